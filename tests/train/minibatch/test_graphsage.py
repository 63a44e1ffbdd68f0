"""GraphSAGE in mini-batches."""

import pytest
import torch
from train.minibatch.blocks import CLASSES, FEATURES, blocks

from gfgn.metrics import node_losses
from gfgn.nn.baselines.graphsage import GraphSAGE
from gfgn.train.minibatch import NeighborBatches

DATA = blocks()
TRAIN = DATA.splits[0].train


def network(layers: int = 2) -> GraphSAGE:
    return GraphSAGE(FEATURES, CLASSES, 0.0, hidden=6, layers=layers).double()


def test_with_all_neighbors_a_batch_is_the_whole_graph() -> None:
    net = network()
    batches = NeighborBatches(net, DATA, TRAIN, fanouts=(-1, -1), batch_size=20)
    exact = node_losses(net(DATA.x, DATA.graph), DATA.y)[TRAIN]
    sizes, losses = [], []
    for batch in batches.steps(0):
        sizes.append(batch.y.numel())
        losses.append(batches.loss(batch) * batch.y.numel())
    assert sum(sizes) == TRAIN.sum()
    assert max(sizes) == 20
    torch.testing.assert_close(sum(losses), exact.sum())


def test_upper_layers_see_fewer_nodes() -> None:
    """Each layer on its own part of the sample gives the training nodes the same result as the whole sample."""
    net = network(layers=3)
    batches = NeighborBatches(net, DATA, TRAIN, fanouts=(3, 2, 2), batch_size=10)
    batch = next(iter(batches.steps(0)))
    sizes = [g.num_nodes for g in batch.graphs]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] == batch.x.size(0)
    expected = node_losses(net(batch.x, batch.graphs[0])[:10], batch.y).mean()
    torch.testing.assert_close(batches.loss(batch), expected)


def test_fanouts_follow_the_layers() -> None:
    assert NeighborBatches(network(3), DATA, TRAIN).sampler.fanouts == (25, 10, 10)
    with pytest.raises(ValueError, match="fanouts must be 2 numbers, one per layer, got 3"):
        NeighborBatches(network(), DATA, TRAIN, fanouts=(3, 2, 2))
    with pytest.raises(ValueError, match="batch_size must be 1 or larger, got 0"):
        NeighborBatches(network(), DATA, TRAIN, batch_size=0)
