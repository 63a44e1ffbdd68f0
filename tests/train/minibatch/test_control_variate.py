"""VR-GCN's estimate of a sum over all neighbours: unbiased, and better the longer it trains."""

import pytest
import torch
from torch import Tensor
from train.minibatch.blocks import CLASSES, FEATURES, NODES, blocks

from gfgn import ops
from gfgn.nn.baselines.vr_gcn import VRGCN
from gfgn.train.minibatch import ControlVariateBatches
from gfgn.train.minibatch.control_variate import estimate, noise
from gfgn.train.minibatch.loop import node_losses

TRIALS = 600


def setting(
    fanout: int = 2, layers: int = 2, concat: bool = False
) -> tuple[VRGCN, ControlVariateBatches, Tensor, object, Tensor, Tensor]:
    x, graph, y, split = blocks()
    torch.manual_seed(0)
    net = VRGCN(FEATURES, CLASSES, 0.0, hidden=6, layers=layers, concat=concat).double()
    batches = ControlVariateBatches(net, x, graph, y, split[0], fanout=fanout, batch_size=20)
    return net, batches, x, graph, y, split[0]


def activations(net: VRGCN, x: Tensor, graph: object) -> Tensor:
    """`H` of the hidden layer, exactly."""
    with torch.no_grad():
        return net.convs[0](x, net.prepare(graph)).relu()


def estimates(batches: ControlVariateBatches, h: Tensor, history: Tensor) -> Tensor:
    """`[TRIALS, N, hidden]`: the estimate for every node, over many samples."""
    found = []
    for trial in range(TRIALS):
        field = batches.field(torch.arange(NODES), 77, trial)
        found.append(estimate(h[field.below], history, field))
    return torch.stack(found)


def train(net: VRGCN, batches: ControlVariateBatches, epochs: range) -> None:
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in epochs:
        for batch in batches.steps(epoch):
            optimizer.zero_grad()
            batches.loss(net, batch).backward()
            optimizer.step()


@pytest.mark.parametrize("fanout", [1, 2, 5])
@pytest.mark.parametrize("history", ["none", "noise", "trained"])
@pytest.mark.parametrize("concat", [False, True])
def test_estimate_is_unbiased_whatever_the_history(fanout: int, history: str, concat: bool) -> None:
    """The mean over many samples is `ÂH`, to within 4.5 of its standard errors in every one of 900 values."""
    net, batches, x, graph, _, _ = setting(fanout, concat=concat)
    if history == "noise":
        batches.histories[0].normal_(generator=torch.Generator().manual_seed(1))
    elif history == "trained":
        train(net, batches, range(3))
    h = activations(net, x, graph)
    exact = ops.propagate(h, batches.edges)
    found = estimates(batches, h, batches.histories[0])
    error = (found.mean(0) - exact).abs()
    allowed = 4.5 * found.std(0) / TRIALS**0.5 + 1e-12
    assert (error <= allowed).all(), (error / allowed).max()
    assert found.std(0).max() > 0


def test_variance_falls_as_training_goes_on() -> None:
    """Measured after 0, 1, 5 and 20 epochs; and far below that of sampling the activations themselves."""
    net, batches, x, graph, _, _ = setting()
    measured, plain = [], []
    done = 0
    for epochs in (0, 1, 5, 20):
        train(net, batches, range(done, epochs))
        done = epochs
        h = activations(net, x, graph)
        scale = h.square().mean()  # activations grow as the model learns; the estimate is judged relative to them
        measured.append((estimates(batches, h, batches.histories[0]).var(0).mean() / scale).item())
        plain.append((estimates(batches, h, torch.zeros_like(h)).var(0).mean() / scale).item())
    assert measured[0] == pytest.approx(plain[0])  # no history yet: plain neighbour sampling
    assert measured[0] > measured[1] > measured[2] > measured[3]
    assert measured[3] < measured[0] / 20
    assert measured[3] < plain[3] / 20


@pytest.mark.parametrize("layers", [2, 3])
@pytest.mark.parametrize("concat", [False, True])
def test_with_all_neighbors_the_loss_is_exact(layers: int, concat: bool) -> None:
    net, batches, x, graph, y, mask = setting(fanout=NODES, layers=layers, concat=concat)
    for history in batches.histories:
        history.normal_()
    exact = node_losses(net(x, graph), y)[mask].sum()
    total = sum(batches.loss(net, batch) * batch.y.numel() for batch in batches.steps(0))
    torch.testing.assert_close(total, exact)


def test_noise_of_dropout_is_that_of_the_whole_sum() -> None:
    """With all neighbours it is `Â(H − M)` itself; with a few, it varies as much if nodes are dropped independently."""
    generator = torch.Generator().manual_seed(0)
    difference = torch.randn(NODES, 500, generator=generator, dtype=torch.float64)
    _, exact, *_ = setting(fanout=NODES)
    _, few, *_ = setting(fanout=2)
    field = exact.field(torch.arange(NODES), 0)
    whole = ops.propagate(difference, exact.edges)
    torch.testing.assert_close(noise(difference[field.below], field), whole)
    squares = torch.zeros(NODES, dtype=torch.float64)
    for trial in range(200):
        field = few.field(torch.arange(NODES), 1, trial)
        squares += noise(difference[field.below], field).square().mean(1) / 200
    torch.testing.assert_close(squares, whole.square().mean(1), rtol=0.4, atol=0)


def test_history_is_what_was_last_worked_out() -> None:
    net, batches, x, graph, _, _ = setting()
    batch = next(iter(batches.steps(0)))
    batches.loss(net, batch)
    met = batch.fields[-1].below
    torch.testing.assert_close(batches.histories[0][met], activations(net, x, graph)[met])
    others = torch.ones(NODES, dtype=torch.bool)
    others[met] = False
    assert not batches.histories[0][others].any()
    assert met.numel() <= 2 * 20


def test_bad_arguments_are_named() -> None:
    x, graph, y, split = blocks()
    with pytest.raises(ValueError, match="net must have two layers or more, got 1"):
        ControlVariateBatches(VRGCN(FEATURES, CLASSES, layers=1), x, graph, y, split[0])
    with pytest.raises(ValueError, match="fanout must be 1 or larger, got 0"):
        ControlVariateBatches(VRGCN(FEATURES, CLASSES), x, graph, y, split[0], fanout=0)
