"""VR-GCN's estimate of a sum over all neighbors: unbiased, and with less variance the longer it trains."""

import pytest
import torch
from torch import Tensor
from train.minibatch.blocks import CLASSES, FEATURES, NODES, blocks

from gfgn import ops
from gfgn.metrics import node_losses
from gfgn.nn.baselines.vr_gcn import VRGCN
from gfgn.train.minibatch import ControlVariateBatches
from gfgn.train.minibatch.vr_gcn import estimate

DATA = blocks()
TRAIN = DATA.splits[0].train
TRIALS = 400


def make(fanout: int = 2, layers: int = 2, concat: bool = False) -> ControlVariateBatches:
    torch.manual_seed(0)
    net = VRGCN(FEATURES, CLASSES, 0.0, hidden=6, layers=layers, concat=concat).double()
    return ControlVariateBatches(net, DATA, TRAIN, fanout=fanout, batch_size=20)


def activations(batches: ControlVariateBatches) -> Tensor:
    """`H` of the hidden layer, exactly."""
    with torch.no_grad():
        return batches.net.convs[0](DATA.x, batches.edges).relu()


def estimates(batches: ControlVariateBatches, h: Tensor) -> Tensor:
    """`[TRIALS, N, hidden]`: the estimate for every node, over many samples."""
    fields = [batches.field(torch.arange(NODES), 77, trial) for trial in range(TRIALS)]
    return torch.stack([estimate(h[field.below], batches.histories[0], field) for field in fields])


def exact_variance(batches: ControlVariateBatches, change: Tensor) -> Tensor:
    """`[N, hidden]`: the variance of `n / D` times the sum over `D` of `n` neighbors, drawn without replacement."""
    field = batches.field(torch.arange(NODES), 0)
    terms = field.all_weight.unsqueeze(1) * change[field.all_source]
    count = torch.bincount(field.all_target, minlength=NODES).unsqueeze(1)
    total, squares = (
        torch.zeros(NODES, change.size(1), dtype=change.dtype).index_add(0, field.all_target, value)
        for value in (terms, terms.square())
    )
    spread = (squares - total.square() / count.clamp(min=1)) / (count - 1).clamp(min=1)
    drawn = count.clamp(max=batches.fanout)
    return count.square() * spread * (1 - drawn / count.clamp(min=1)) / drawn.clamp(min=1)


def train(batches: ControlVariateBatches, epochs: range) -> None:
    optimizer = torch.optim.Adam(batches.net.parameters(), lr=0.01)
    for epoch in epochs:
        for batch in batches.steps(epoch):
            optimizer.zero_grad()
            batches.loss(batch).backward()
            optimizer.step()


@pytest.mark.parametrize(
    ("fanout", "history", "concat"),
    [(1, "noise", False), (2, "none", False), (2, "trained", True), (5, "trained", False), (5, "noise", True)],
)
def test_estimate_is_unbiased_for_any_history(fanout: int, history: str, concat: bool) -> None:
    """The mean over many samples is `ÂH`, to within 4.5 exact standard errors in every one of 900 values; their squares
    have the mean that the variance predicts."""
    batches = make(fanout, concat=concat)
    if history == "noise":
        batches.histories[0].normal_(generator=torch.Generator().manual_seed(1))
    elif history == "trained":
        train(batches, range(3))
    h = activations(batches)
    error = exact_variance(batches, h - batches.histories[0]).sqrt() / TRIALS**0.5
    deviation = estimates(batches, h).mean(0) - ops.propagate(h, batches.edges)
    assert (deviation.abs() <= 4.5 * error + 1e-12).all()
    ratio = (deviation / error)[error > 1e-9]
    assert ratio.numel() > 100
    assert 0.6 < ratio.square().mean() < 1.5


def test_variance_falls_during_training() -> None:
    """After 0, 1, 5 and 20 epochs; and far below that of sampling the activations themselves."""
    batches = make()
    measured, plain, done = [], [], 0
    for epochs in (0, 1, 5, 20):
        train(batches, range(done, epochs))
        done = epochs
        h = activations(batches)
        scale = h.square().mean()  # activations grow as the model learns; the variance is relative to them
        measured.append((exact_variance(batches, h - batches.histories[0]).mean() / scale).item())
        plain.append((exact_variance(batches, h).mean() / scale).item())
    assert measured[0] == pytest.approx(plain[0])  # without a history it is plain neighbor sampling
    assert measured[0] > measured[1] > measured[2] > measured[3]
    assert measured[3] < measured[0] / 20
    assert measured[3] < plain[3] / 20


@pytest.mark.parametrize(("layers", "concat"), [(2, False), (3, True)])
def test_with_all_neighbors_the_loss_is_exact(layers: int, concat: bool) -> None:
    batches = make(fanout=NODES, layers=layers, concat=concat)
    for history in batches.histories:
        history.normal_()
    exact = node_losses(batches.net(DATA.x, DATA.graph), DATA.y)[TRAIN].sum()
    total = sum(batches.loss(batch) * batch.y.numel() for batch in batches.steps(0))
    torch.testing.assert_close(total, exact)


def test_history_has_the_last_activations() -> None:
    batches = make()
    batch = next(iter(batches.steps(0)))
    batches.loss(batch)
    met = batch.fields[-1].below
    torch.testing.assert_close(batches.histories[0][met], activations(batches)[met])
    others = torch.ones(NODES, dtype=torch.bool)
    others[met] = False
    assert not batches.histories[0][others].any()
    assert met.numel() <= 2 * 20


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="net must have two layers or more, got 1"):
        ControlVariateBatches(VRGCN(FEATURES, CLASSES, layers=1), DATA, TRAIN)
    with pytest.raises(ValueError, match="fanout must be 1 or larger, got 0"):
        ControlVariateBatches(VRGCN(FEATURES, CLASSES), DATA, TRAIN, fanout=0)
