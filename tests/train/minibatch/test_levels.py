"""GFGN on samples: with all neighbors the loss of the whole graph, and as good as full-batch training."""

import pytest
import torch
from train.minibatch.blocks import blocks, two_graphs

from gfgn.metrics import node_losses
from gfgn.nn import GFGN
from gfgn.train import Replica, TrainConfig, train_minibatch, train_runs
from gfgn.train.minibatch import LevelBatches

LEVELS = ("graph", "neighbor", "pair")


@pytest.mark.parametrize("level", ["neighbor", "pair"])
def test_all_neighbors_give_the_loss_of_the_whole_graph(level: str) -> None:
    data = blocks()
    net = GFGN(8, 16, 2, 3, level=level, heads=2, dropout=0.0).double()
    batches = LevelBatches(net, data, data.splits[0].train, fanout=-1, batch_size=20)
    total = sum(batches.loss(batch) * batch.y.size(0) for batch in batches.steps(0))
    train = data.splits[0].train
    expected = node_losses(net(data.x, data.graph)[train], data.y[train]).sum()
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("options", [(("batch_size", 16), ("fanout", 4)), (("batch_size", 16), ("replace", True))])
def test_every_level_learns_on_samples(level: str, options: tuple[tuple[str, int], ...]) -> None:
    data = blocks(dtype=torch.float32)
    replica, model = Replica(lr=0.02, options=options), f"gfgn-{level}"
    sampled = train_minibatch(model, data, [replica], TrainConfig(25, 25))[0]
    same, whole = train_runs(model, data, [replica, Replica(lr=0.02)], TrainConfig(25, 25))
    assert (same.val, same.test, same.epoch) == (sampled.val, sampled.test, sampled.epoch)
    # The loss of samples has a floor, their variance; what counts is the whole graph. Guessing gives a third.
    assert sampled.test > whole.test - 0.1 > 0.8


def test_the_state_is_that_of_a_model_without_samples() -> None:
    data = blocks(dtype=torch.float32)
    net = GFGN(8, 16, 2, 3, level="graph", heads=2)
    names = list(net.state_dict())
    LevelBatches(net, data, data.splits[0].train)
    assert list(net.state_dict()) == names


def test_bad_arguments_are_named() -> None:
    data, several = blocks(), two_graphs()
    with pytest.raises(ValueError, match="fanout must be 1 or larger, got 0"):
        LevelBatches(GFGN(8, 16, 2, 3), data, data.splits[0].train, fanout=0)
    with pytest.raises(ValueError, match="data must be one graph for the samples of a graph gate, got 2"):
        LevelBatches(GFGN(8, 16, 2, 3, level="graph"), several, several.splits[0].train)
