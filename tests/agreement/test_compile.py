"""`torch.compile(fullgraph=True)` of stacks of layers: outputs, scores and gradients are those of the eager program."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gfgn import GFGN, GFGNConv, Graph
from gfgn.nn.plus import GFGNPlusConv

LEVELS = ("graph", "neighbor", "pair")
every_level = pytest.mark.parametrize("level", LEVELS)


class Stack(nn.Module):
    """Layers with an activation between them, written out as users do."""

    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, *edges: Any) -> tuple[Tensor, list[Tensor]]:
        scores = []
        for conv in self.convs:
            x, s = conv(x.relu() if scores else x, *edges, return_scores=True)
            scores.append(s)
        return x, scores


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Dynamo limits the compilations of one function."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def data(nodes: int = 12, edges: int = 30) -> tuple[Tensor, Tensor]:
    """Features and directed edges, some of them self-loops and repetitions; the last nodes have none."""
    generator = torch.Generator().manual_seed(nodes)
    x = torch.randn(nodes, 5, generator=generator, dtype=torch.float64)
    return x, torch.randint(0, nodes - 2, (2, edges), generator=generator)


def results(module: Any, parameters: list[Tensor], inputs: tuple[Any, ...]) -> list[Tensor]:
    """All outputs, and the gradients of a function of them with respect to parameters and inputs."""
    out = module(*inputs)
    outputs = [out] if isinstance(out, Tensor) else [out[0], *out[1]]
    leaves = [x for x in (*parameters, *inputs) if isinstance(x, Tensor) and x.requires_grad]
    return [*outputs, *torch.autograd.grad(sum(x.square().sum() for x in outputs), leaves)]


def check(module: nn.Module, *calls: tuple[Any, ...], backend: str = "aot_eager", dynamic: bool | None = None) -> None:
    """Compares a module in training mode with itself compiled, call after call."""
    compiled = torch.compile(module.double(), fullgraph=True, backend=backend, dynamic=dynamic)
    parameters = list(module.parameters())
    for inputs in calls:
        torch.testing.assert_close(results(compiled, parameters, inputs), results(module, parameters, inputs))


@every_level
def test_stacked_layers(level: str) -> None:
    check(Stack(GFGNConv(5, 3, level, heads=2), GFGNConv(6, 3, level, heads=2), GFGNConv(6, 2, level)), data())


@every_level
def test_stacked_layers_that_read_a_known_graph(level: str) -> None:
    x, edges = data()
    graph = Graph.from_edge_index(edges, x.size(0), dtype=torch.float64)
    check(Stack(GFGNConv(5, 3, level, heads=2), GFGNConv(6, 2, level)), (x.requires_grad_(), graph))


@every_level
def test_networks(level: str) -> None:
    check(GFGN(5, 8, 3, 2, level=level, heads=2, dropout=0.0, norm="LayerNorm", jk="cat", residual=True), data())


def test_edge_weights_with_gradients() -> None:
    x, edges = data()
    weight = torch.linspace(0.1, 2, edges.size(1), dtype=torch.float64, requires_grad=True)
    check(Stack(GFGNConv(5, 3, "neighbor"), GFGNConv(3, 2, "pair")), (x.requires_grad_(), edges, weight))


def test_sizes_that_change() -> None:
    check(Stack(GFGNConv(5, 3, "graph"), GFGNConv(3, 2, "pair")), data(), data(20, 50), dynamic=True)


def test_two_sets_of_nodes() -> None:
    (x_src, edges), (x_dst, _) = data(), data(15)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GFGNConv((5, 5), 3, "neighbor"), GFGNConv((5, 3), 2)

        def forward(self, x_src: Tensor, x_dst: Tensor, edges: Tensor) -> Tensor:
            out: Tensor = self.second((x_src, self.first((x_src, x_dst), edges).relu()), edges)
            return out

    check(Net(), (x_src, x_dst, edges))


def test_layers_of_gfgn_plus() -> None:
    first = GFGNPlusConv(5, 3, "neighbor", hops=2, self_loops=True, normalization="row")
    check(Stack(first, GFGNPlusConv(3, 2, "pair")), data())


def test_dropout_in_training() -> None:
    """Other numbers are drawn, so that only the program in evaluation mode is the same."""
    model, (x, edges) = GFGN(5, 8, 2, 2, heads=2, dropout=0.5).double(), data()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    first, second = compiled(x, edges), compiled(x, edges)
    assert not torch.equal(first, second)
    second.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    model.eval()
    torch.testing.assert_close(compiled(x, edges), model(x, edges))


@pytest.mark.slow
def test_inductor() -> None:
    x, edges = data()
    graph = Graph.from_edge_index(edges, x.size(0), dtype=torch.float64)
    check(Stack(GFGNConv(5, 3, "graph"), GFGNConv(3, 2, "pair")), (x, graph), backend="inductor")
