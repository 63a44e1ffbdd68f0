"""Custom models in the engine against plain loops of PyTorch; what cannot agree is refused by name."""

# ruff: noqa: NPY002

import copy
import random
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GCNConv

from gfgn import Graph
from gfgn.data import NodeDataset, dimensions
from gfgn.data.splits import Split
from gfgn.ops.thread_count import num_threads
from gfgn.runs import Store
from gfgn.runs.comparison import compare
from gfgn.train import Replica, Run, Status, messages, train_replicas
from gfgn.train.task import graphs_with


@pytest.fixture
def data() -> NodeDataset:
    return dimensions(40, degree=4, splits=2, seed=1)


class Linear(nn.Module):
    """The network that the others of this page change."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        neighbors = torch.zeros_like(x).index_add(0, target, x.index_select(0, source))
        out: Tensor = self.lin(x + neighbors)
        return out


# --- the data ---------------------------------------------------------------------------------------------------------


class InPlaceDropout(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(F.dropout(x, 0.5, self.training, inplace=True), edge_index)


class InPlaceReLU(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x.relu_(), edge_index)


class ThroughNumPy(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x.numpy()[0, 0] = 7
        return super().forward(x, edge_index)


class Rewiring(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index[0] = edge_index[1]
        return super().forward(x, edge_index)


class Clamping(Linear):
    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        edge_weight.clamp_(max=0.6)
        return super().forward(x, edge_index)


class Degrees(Linear):
    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        graph.degree.add_(1)
        return super().forward(x, graph.edge_index)


class OutOfRange(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edge_index.add_(1)
        return super().forward(x, edge_index)


class Late(Linear):
    """Changes the features after some steps, when it has been tried."""

    calls = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 10:
            x.data.zero_()
        return super().forward(x, edge_index)


CHANGING: list[tuple[type[nn.Module], str]] = [
    (InPlaceDropout, "x"),
    (InPlaceReLU, "x"),
    (ThroughNumPy, "x"),
    (Rewiring, "edge_index"),
    (Clamping, "edge_weight"),
    (Degrees, "graph.degree"),
    (OutOfRange, "edge_index"),
    (Late, "x"),
]


def weighted(data: NodeDataset) -> NodeDataset:
    weight = torch.linspace(0.5, 1.5, data.graph.num_edges)
    graph = Graph.from_edge_index(data.graph.edge_index, data.num_nodes, weight)
    return NodeDataset("w", graph, data.x, data.y, data.num_classes, data.metric, data.feature_names, data.splits)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("model", "name"), CHANGING)
def test_a_module_that_changes_its_arguments_is_refused(
    data: NodeDataset, model: type[nn.Module], name: str, threads: int
) -> None:
    data = weighted(data)
    before = copy.deepcopy((data.x, data.graph))
    replicas = [Replica(split=seed % 2, seed=seed) for seed in range(3)]
    with num_threads(threads), pytest.raises(ValueError, match=rf"{model.__name__} must not change .* got {name} "):
        train_replicas(model, data, replicas, 20, 20)
    assert torch.equal(data.x, before[0])
    assert torch.equal(data.graph.edge_index, before[1].edge_index)
    assert torch.equal(data.graph.degree, before[1].degree)


def test_no_score_from_changed_data_is_kept(data: NodeDataset) -> None:
    with Store(":memory:") as store:
        with pytest.raises(ValueError, match="InPlaceReLU must not change"):
            compare(data, [f"{__name__}:InPlaceReLU", "gcn"], splits=1, max_epochs=2, store=store)
        assert len(store) == 0
        (row,) = compare(data, ["gcn"], splits=1, max_epochs=2, store=store).rows["gcn"]
    (run,) = train_replicas("gcn", dimensions(40, degree=4, splits=2, seed=1), [row.replica], 2)
    assert run.test == row.test


# --- against a plain loop ---------------------------------------------------------------------------------------------

EPOCHS, PATIENCE = 25, 8


def plain_loop(factory: Callable[..., nn.Module], data: NodeDataset, replica: Replica) -> dict[str, Any]:
    """What the engine must agree with: one call of `forward` in training and one in evaluation per epoch."""
    torch.manual_seed(replica.seed)
    random.seed(replica.seed)
    np.random.seed(replica.seed)
    x, edge_index = data.x.clone(), data.graph.edge_index
    model = factory(data.num_features, data.num_classes).to(x.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    train, val, test = data.splits[replica.split]
    best: tuple[Any, ...] = (-1.0, 0.0, -1, 0.0)  # score, loss with the sign changed, epoch, test score
    losses: list[tuple[float, float]] = []
    for epoch in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edge_index)[train], data.y[train])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(x, edge_index)
        right = (out.argmax(1) == data.y).double()
        val_loss = F.cross_entropy(out[val], data.y[val]).item()
        losses.append((loss.item(), val_loss))
        best = max(best, (right[val].mean().item(), -val_loss, epoch, right[test].mean().item()))
        if epoch - best[2] >= PATIENCE:
            break
    return {"losses": losses, "val": best[0], "epoch": best[2], "test": best[3]}


def facts(run: Run) -> dict[str, Any]:
    losses = list(zip(run.history["train_loss"], run.history["val_loss"], strict=True))
    return {"losses": losses, "val": run.val, "epoch": run.epoch, "test": run.test}


def assert_agrees(factory: Callable[..., nn.Module], data: NodeDataset, threads: int = 1) -> None:
    replicas = [Replica(split=seed % 2, seed=seed, lr=0.1, dropout=0.0) for seed in range(4)]
    with num_threads(threads):
        runs = train_replicas(factory, data, replicas, EPOCHS, PATIENCE)
    for run in runs:
        expected = plain_loop(factory, data, run.replica)
        for (loss, val), (right, right_val) in zip(facts(run).pop("losses"), expected["losses"], strict=True):
            assert (loss, val) == pytest.approx((right, right_val), rel=1e-6)
        for name in ("val", "epoch", "test"):
            assert facts(run)[name] == pytest.approx(expected[name]), name
    (alone,) = train_replicas(factory, data, replicas[2:3], EPOCHS, PATIENCE)
    assert facts(alone)["test"] == facts(runs[2])["test"]
    assert alone.history["val_loss"] == pytest.approx(runs[2].history["val_loss"], rel=1e-9)


@pytest.fixture
def double() -> NodeDataset:
    """Data in float64, where rounding errors stay small."""
    data = dimensions(60, degree=4, splits=2, seed=1)
    return replace(data, x=data.x.double(), graph=data.graph.to(torch.float64))


# constructors


class RandomFeatures(Linear):
    """Random features that are no buffer."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.R = torch.randn(in_channels, in_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x + 0.3 * (x @ self.R.to(x.dtype)), edge_index)


class InContainers(Linear):
    """In a dictionary of lists, and as an array."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.held = {"scales": [torch.rand(in_channels), (torch.rand(1).item(),)]}
        self.array = torch.rand(in_channels).numpy()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        (first, (second,)), third = self.held["scales"], torch.from_numpy(self.array)
        return super().forward(x * first.to(x.dtype) * second + third.to(x.dtype), edge_index)


class Drawing(Linear):
    """Draws from NumPy and from Python when it is built."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lin.weight.data = torch.from_numpy(np.random.randn(out_channels, in_channels) * random.uniform(0.1, 0.5))


class Unregistered(Linear):
    """A list of layers that are no submodules, as beginners write: they keep their initial values."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.layers = [nn.Linear(in_channels, in_channels)]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.layers[0](x.float()).to(x.dtype), edge_index)


class Listed(Linear):
    """A list of parameters that are registered under other names, too, and start with the same values."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.shift = nn.Parameter(torch.zeros(out_channels))
        self.shifts = [self.shift]

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index) * (1 + self.shifts[0])


class Rarely(Linear):
    """A number that differs only for seed 3: the first steps are tried with seeds 0 and 1."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        scale = 0.3 if torch.rand(()) < 0.1 else 1.0
        super().__init__(in_channels, out_channels)
        self.scale = scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.scale * x, edge_index)


CONSTRUCTORS = [RandomFeatures, InContainers, Drawing, Unregistered, Listed, Rarely]


@pytest.mark.parametrize("factory", CONSTRUCTORS)
def test_what_a_constructor_draws_is_that_of_each_seed(double: NodeDataset, factory: type[nn.Module]) -> None:
    assert_agrees(factory, double)


# what a module remembers


class Schedule(Linear):
    """A temperature that falls at every call: a later state than that of the best epoch scores otherwise."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.step = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.step += 1
        return super().forward(x * float(np.cos(self.step / 7)), edge_index)


class LateSchedule(Schedule):
    """One whose first steps are the same."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.step += self.training
        return Linear.forward(self, -x if self.step > 12 else x, edge_index)


class Closed(Linear):
    """A count in a closure."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        calls = 0

        def scale() -> float:
            nonlocal calls
            calls += 1
            return 0.5 if calls > 20 else 1.0

        self.scale = scale

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x * self.scale(), edge_index)


class Running(Linear):
    """A buffer that evaluation updates, too."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.register_buffer("mean", torch.zeros(out_channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        self.mean = 0.8 * self.mean + 0.2 * out.detach().mean(0)
        return out - self.mean


class Remembering(Linear):
    """The last logits, and the best of the best states: outputs that the module changes later."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.last: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.last is not None and not self.training:
            self.last.mul_(-1)
        out = super().forward(x, edge_index)
        self.last = out.detach()
        return out


class Anchored(Linear):
    """Stays near its first weights, which it keeps at the first step."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.first: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.first is None:
            self.first = self.lin.weight.detach().clone()
        return super().forward(x, edge_index) + x @ self.first.t()


class ClippingInPlace(Linear):
    """The weights are small enough at first."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with torch.no_grad():
            self.lin.weight.clamp_(-0.3, 0.3)
        return super().forward(x, edge_index)


class Chance(Linear):
    """Draws from NumPy and from Python at every call."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x * random.uniform(0.9, 1.1) + np.random.randn() / 10, edge_index)


class Generators(Linear):
    """Generators of its own."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.numpy = np.random.default_rng(3)
        self.torch = torch.Generator().manual_seed(3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=self.torch, dtype=x.dtype)
        return super().forward(x + noise / 10 + self.numpy.normal() / 10, edge_index)


class Freezing(Linear):
    """A buffer instead of a number, which a batch can have."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.step += 1
        return super().forward(x * torch.cos(self.step / 7), edge_index)


REMEMBERING = [Schedule, LateSchedule, Closed, Running, Remembering, Freezing]
REMEMBERING += [Anchored, ClippingInPlace, Chance, Generators]


@pytest.mark.parametrize("factory", REMEMBERING)
def test_the_test_score_is_that_of_the_best_epoch(double: NodeDataset, factory: type[nn.Module]) -> None:
    assert_agrees(factory, double)


@pytest.mark.parametrize("factory", [Schedule, Chance])
def test_threads_do_not_mix_runs(double: NodeDataset, factory: type[nn.Module]) -> None:
    assert_agrees(factory, double, threads=2)


# hooks


class WeightHook(Linear):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lin.weight.register_hook(lambda grad: grad.clamp(-1e-2, 1e-2) + 0.01)


def _turn(weight: Tensor) -> None:
    weight.grad = None if weight.grad is None else -weight.grad


class AfterAccumulation(Linear):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lin.weight.register_post_accumulate_grad_hook(_turn)


class ForwardHook(Linear):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lin.register_forward_hook(lambda module, args, out: 2 * out)
        self.lin.register_forward_pre_hook(lambda module, args: (args[0] / 3,))


class BackwardHook(Linear):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lin.register_full_backward_hook(lambda module, grads, outs: (-grads[0],))
        self.first = nn.Linear(in_channels, in_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(self.first(x), edge_index)


class HiddenHook(BackwardHook):
    """A hook on a hidden tensor, that acts on large gradients only."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lin._backward_hooks.clear()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x)
        if h.requires_grad:
            h.register_hook(lambda grad: torch.where(grad.abs() > 0.01, 0, grad))
        return Linear.forward(self, h, edge_index)


class Looking(Linear):
    """Branches by what `vmap` hides."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        return out * 2 if out.requires_grad else out


class Checkpointing(BackwardHook):
    """Computes hidden units a second time in the backward pass."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = checkpoint(self.first, x, use_reentrant=False)
        return Linear.forward(self, h, edge_index)


class Spectral(Linear):
    """A parametrization whose buffers change in training."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        nn.utils.parametrizations.spectral_norm(self.lin)


class NewNorm(Linear):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        nn.utils.parametrizations.weight_norm(self.lin)


HOOKS = [
    Looking,
    Checkpointing,
    WeightHook,
    AfterAccumulation,
    ForwardHook,
    BackwardHook,
    HiddenHook,
    Spectral,
    NewNorm,
]


@pytest.mark.parametrize("factory", HOOKS)
def test_hooks_act(double: NodeDataset, factory: type[nn.Module]) -> None:
    assert_agrees(factory, double)


class DropoutAgain(BackwardHook):
    """A second forward pass that would drop other entries."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        def hidden(h: Tensor) -> Tensor:
            return F.dropout(h.sin(), 0.5, self.training)

        return Linear.forward(self, checkpoint(hidden, self.first(x), use_reentrant=True), edge_index)


def test_random_numbers_in_the_backward_pass_are_refused(double: NodeDataset) -> None:
    with pytest.raises(NotImplementedError, match="dropout in the backward pass is random"):
        train_replicas(DropoutAgain, double, [Replica(dropout=0.0)], 2, 2)


# --- what remembers, in the engine's other ways -----------------------------------------------------------------------


@pytest.mark.parametrize("factory", [Schedule, Anchored])
def test_a_run_that_remembers_starts_again_after_an_interruption(
    double: NodeDataset, tmp_path: Path, factory: type[nn.Module]
) -> None:
    replicas = [Replica(split=seed % 2, seed=seed, lr=0.1, dropout=0.0) for seed in range(3)]
    settings: dict[str, Any] = {"max_epochs": EPOCHS, "patience": PATIENCE}
    whole = train_replicas(factory, double, replicas, **settings)
    saves: dict[str, Any] = {"checkpoint": tmp_path, "checkpoint_every": 1}

    def interrupt(status: Status) -> None:
        if status.finished == 1 and status.epoch == 5:
            raise KeyboardInterrupt

    with num_threads(1), pytest.raises(KeyboardInterrupt):
        train_replicas(factory, double, replicas, **settings, **saves, status=interrupt)
    assert list(map(facts, train_replicas(factory, double, replicas, **settings, **saves))) == list(map(facts, whole))


def test_rungs_do_not_mix_runs(double: NodeDataset) -> None:
    replicas = [Replica(seed=seed, lr=0.1, dropout=0.0) for seed in range(3)]
    whole = train_replicas(Schedule, double, replicas, EPOCHS, PATIENCE)
    dropped = train_replicas(
        Schedule,
        double,
        replicas,
        EPOCHS,
        PATIENCE,
        rungs=[2, 5],
        prune=lambda epoch, asked, scores: [True] * len(asked),
    )
    assert list(map(facts, dropped)) == list(map(facts, whole))


def test_the_state_of_the_best_epoch_is_that_of_a_plain_loop(double: NodeDataset) -> None:
    replica = Replica(lr=0.1, dropout=0.0)
    (run,) = train_replicas(Running, double, [replica], EPOCHS, PATIENCE, keep_state=True)
    torch.manual_seed(0)
    model = Running(double.num_features, double.num_classes).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=replica.weight_decay)
    for _ in range(run.epoch + 1):
        optimizer.zero_grad()
        out = model(double.x, double.graph.edge_index)
        train = double.splits[0].train
        F.cross_entropy(out[train], double.y[train]).backward()
        optimizer.step()
        model(double.x, double.graph.edge_index)
    assert run.state is not None
    torch.testing.assert_close(dict(model.state_dict()), run.state, rtol=1e-6, atol=1e-9)


def of_several_graphs() -> NodeDataset:
    """Three graphs: one to train on, one to validate, one to test."""
    parts = [dimensions(40, degree=4, splits=1, seed=seed) for seed in range(3)]
    edges = torch.cat([part.graph.edge_index + 40 * k for k, part in enumerate(parts)], 1)
    batch = torch.arange(3).repeat_interleave(40)
    graph = Graph.from_edge_index(edges, 120, batch=batch, dtype=torch.float64)
    x, y = (torch.cat([getattr(part, name) for part in parts]) for name in ("x", "y"))
    split = Split(batch == 0, batch == 1, batch == 2)
    first = parts[0]
    return NodeDataset("three", graph, x.double(), y, first.num_classes, "accuracy", first.feature_names, [split])


@pytest.mark.parametrize("factory", [Schedule, Running])
def test_on_other_graphs_a_copy_of_the_best_epoch_is_tested(factory: type[nn.Module]) -> None:
    data, replica = of_several_graphs(), Replica(lr=0.1, dropout=0.0)
    assert data.inductive
    (run,) = train_replicas(factory, data, [replica], EPOCHS, EPOCHS)
    torch.manual_seed(0)
    model = factory(data.num_features, data.num_classes).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=replica.weight_decay)
    parts = [graphs_with(data, nodes) for nodes in data.splits[0]]
    for _ in range(run.epoch + 1):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(parts[0].x, parts[0].graph.edge_index), parts[0].y).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            val = model(parts[1].x, parts[1].graph.edge_index)
    assert run.val == pytest.approx((val.argmax(1) == parts[1].y).double().mean().item())
    with torch.no_grad():
        test = model(parts[2].x, parts[2].graph.edge_index)
    assert run.test == pytest.approx((test.argmax(1) == parts[2].y).double().mean().item())


# --- what all models share --------------------------------------------------------------------------------------------


class Doubling(Linear):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        torch.set_default_dtype(torch.float64)
        super().__init__(in_channels, out_channels)


class WithoutGradients(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        torch.set_grad_enabled(not self.training)
        return out


class Threads(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        torch.set_num_threads(torch.get_num_threads() + 1)
        return super().forward(x, edge_index)


class Seeding(Linear):
    """Means the same random features at every call, which they would not be."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        torch.manual_seed(0)
        return super().forward(x + torch.randn_like(x), edge_index)


class Counting(Linear):
    count = 0

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        type(self).count += 1
        return super().forward(x / type(self).count, edge_index)


class Instances(Linear):
    built: list[int] = []  # noqa: RUF012

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.built.append(len(self.built))


class InDefault(Linear):
    def forward(self, x: Tensor, edge_index: Tensor, history: list[int] = []) -> Tensor:  # noqa: B006
        history.append(1)
        return super().forward(x / len(history), edge_index)


losses: list[float] = []


class InGlobal(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        losses.append(1.0)
        return super().forward(x, edge_index)


def scaled(x: Tensor) -> Tensor:
    scaled.calls = 1 + getattr(scaled, "calls", 0)  # type: ignore[attr-defined]
    return x / scaled.calls  # type: ignore[attr-defined]


class Table:
    """Of a user, who keeps numbers in the class."""

    seen: list[int] = []  # noqa: RUF012


generator, recent, numbers = np.random.default_rng(0), deque([0], maxlen=9), (1 / k for k in range(1, 1000))


class OnFunction(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(scaled(x), edge_index)


class OnAnotherClass(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        Table.seen.append(1)
        return super().forward(x / len(Table.seen), edge_index)


class OfGlobalGenerator(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x * generator.random(), edge_index)


class OfGlobalIterator(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x * next(numbers), edge_index)


class InDeque(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        recent.append(recent[-1] + 1)
        return super().forward(x / recent[-1], edge_index)


SHARING = [
    (Doubling, "settings .*set_default_dtype"),
    (WithoutGradients, "settings .*set_grad_enabled"),
    (Threads, "settings .*set_num_threads"),
    (Seeding, "must not seed PyTorch, got a call of torch.manual_seed"),
    (Counting, r"must not change Counting.count, which all runs share"),
    (Instances, r"must not change Instances.built"),
    (InDefault, r"must not change InDefault.forward.defaults"),
    (InGlobal, r"must not change .*losses"),
    (OnFunction, r"must not change .*scaled.calls"),
    (OnAnotherClass, r"must not change .*Table.seen"),
    (OfGlobalGenerator, r"must not change .*generator"),
    (OfGlobalIterator, r"must not change .*numbers"),
    (InDeque, r"must not change .*recent"),
]


@pytest.mark.parametrize(("factory", "message"), SHARING)
def test_what_all_models_share_stays_as_it_is(double: NodeDataset, factory: type[nn.Module], message: str) -> None:
    def shared() -> list[Any]:
        return [
            *(torch.get_default_dtype(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()),
            *(torch.get_num_threads(), torch.get_rng_state().tolist(), random.getstate()),
        ]

    before = shared()
    with pytest.raises(ValueError, match=message):
        train_replicas(factory, double, [Replica(dropout=0.0)], 3, 3)
    assert shared() == before


class Cached(nn.Module):
    """Keeps the normalized edges of the first graph it sees."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = GCNConv(in_channels, out_channels, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


def test_a_cache_is_that_of_each_dataset(double: NodeDataset, caplog: pytest.LogCaptureFixture) -> None:
    other = dimensions(50, degree=6, splits=2, seed=2)
    with caplog.at_level("INFO", "gfgn"):
        for data in (double, replace(other, x=other.x.double(), graph=other.graph.to(torch.float64))):
            assert_agrees(Cached, data)
    assert "one run at a time" not in caplog.text


class Opaque(Linear):
    """Holds what nobody can look into."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.lock = threading.Lock()


class KeptProduct(Linear):
    """Keeps what a batch computes for each of its runs, though it is the same for all."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.register_buffer("scale", torch.full((in_channels,), 0.5))
        self.scaled: Tensor | None = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.scaled = x * self.scale if self.scaled is None else self.scaled
        return super().forward(self.scaled, edge_index)


def test_what_a_batch_keeps_for_each_run_is_not_kept(double: NodeDataset) -> None:
    replicas = [Replica(seed=seed, lr=lr, dropout=0.0) for seed, lr in enumerate((0.3, 0.001, 0.01))]
    together = train_replicas(KeptProduct, double, replicas, 40, 3)
    assert len({run.epochs for run in together}) > 1  # so that a batch would shrink
    alone = [train_replicas(KeptProduct, double, [replica], 40, 3)[0] for replica in replicas]
    assert list(map(facts, together)) == list(map(facts, alone))


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (KeptProduct, "it keeps scaled from step to step"),
        (RandomFeatures, "R differs between seeds, and is no parameter or buffer"),
        (InContainers, "held differs between seeds"),
        (Listed, "shifts may change from step to step"),
        (LateSchedule, "step changes from step to step"),
        (Closed, "scale changes from step to step"),
        (Running, "forward changes mean in evaluation"),
        (Chance, "it draws from random or numpy.random"),
        (WeightHook, "it has a hook of lin.weight"),
        (ForwardHook, "it has lin.forward_hooks"),
        (HiddenHook, "a hook on a tensor would be ignored"),
        (Opaque, "lock may change from step to step"),
    ],
)
def test_why_a_model_trains_one_run_at_a_time_is_said(
    double: NodeDataset, factory: type[nn.Module], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages._logged.clear()
    with caplog.at_level("INFO", "gfgn"):
        train_replicas(factory, double, [Replica(dropout=0.0)], 2, 2)
    (message,) = caplog.messages
    assert re.search(rf"{factory.__name__} trains one run at a time, because it cannot be batched: .*{reason}", message)
