"""A tiny graph with a hub and an isolated node, and plain Python arithmetic to write models in."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gfgn import Graph

NODES, FEATURES, CLASSES = 12, 5, 3
Row = list[float]


def edges(seed: int = 0, directed: bool = False) -> Tensor:
    """Node 0 is connected to all nodes but the last, which is isolated; there are a few more random edges."""
    generator = torch.Generator().manual_seed(seed)
    pairs = {(0, k) for k in range(1, NODES - 1)}
    pairs |= {tuple(pair) for pair in torch.randint(1, NODES - 1, (12, 2), generator=generator).tolist()}
    pairs = {(u, v) for u, v in pairs if u != v}
    if not directed:
        pairs |= {(v, u) for u, v in pairs}
    return torch.tensor(sorted(pairs)).t().contiguous()


def graph(
    seed: int = 0, directed: bool = False, dtype: torch.dtype = torch.float64, device: str | torch.device = "cpu"
) -> Graph:
    return Graph.from_edge_index(edges(seed, directed).to(device), NODES, dtype=dtype)


def device_for(backend: str) -> str:
    """Triton's kernels run on a GPU where there is one, else in Triton's interpreter."""
    return "cuda" if backend == "triton" and torch.cuda.is_available() else "cpu"


def features(seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """About a third of the values are 0."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(NODES, FEATURES, generator=generator, dtype=dtype)
    return x * (torch.rand(NODES, FEATURES, generator=generator) > 0.3)


def neighbors(edge_index: Tensor, num_nodes: int = NODES) -> list[list[int]]:
    """The sources of the edges into each node."""
    sources: list[list[int]] = [[] for _ in range(num_nodes)]
    for source, target in edge_index.t().tolist():
        sources[target].append(source)
    return sources


def randomize(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Draws every parameter, biases included, from a normal distribution, so that none is 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
    return model.double()


def linear(row: Sequence[float], weight: Tensor, bias: Tensor | None = None) -> Row:
    """`W row + b`, by loops."""
    w = weight.tolist()
    b = [0.0] * len(w) if bias is None else bias.tolist()
    return [sum(a * c for a, c in zip(line, row, strict=True)) + shift for line, shift in zip(w, b, strict=True)]


def add(*rows: Sequence[float]) -> Row:
    return [sum(values) for values in zip(*rows, strict=True)]


def scale(factor: float, row: Sequence[float]) -> Row:
    return [factor * value for value in row]


def dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def mean(rows: Sequence[Sequence[float]], width: int) -> Row:
    return scale(1 / len(rows), add(*rows)) if rows else [0.0] * width


def relu(row: Sequence[float]) -> Row:
    return [max(value, 0.0) for value in row]


def leaky(row: Sequence[float], slope: float) -> Row:
    return [value if value > 0 else slope * value for value in row]


def tanh(row: Sequence[float]) -> Row:
    return [math.tanh(value) for value in row]


def sigmoid(row: Sequence[float]) -> Row:
    return [1 / (1 + math.exp(-value)) for value in row]


def softmax(values: Sequence[float]) -> Row:
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def assert_matches(out: Tensor, expected: list[Row]) -> None:
    torch.testing.assert_close(out, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
