"""One layer as loops over Python floats, written from the paper's equations; it shares no code with the package."""

import math

import torch
from torch import Tensor

from gfgn import GFGNConv


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def adjacency(edges: list[tuple[int, int]], weights: list[float] | None) -> dict[int, dict[int, float]]:
    """`A[i][j]` for each edge from `j` to `i`: no self-loops, repeated edges merged (weights added, 1 without)."""
    result: dict[int, dict[int, float]] = {}
    for k, (source, target) in enumerate(edges):
        if source != target:
            row = result.setdefault(target, {})
            row[source] = 1.0 if weights is None else row.get(source, 0.0) + weights[k]
    return result


def layer(
    x: Tensor,
    edges: list[tuple[int, int]],
    weights: list[float] | None,
    batch: list[int],
    w: Tensor,
    gate: Tensor,
    bias: Tensor | None,
    level: str,
    lam: float,
    pool: str = "mean",
    mask: list[float] | None = None,
) -> list[list[float]]:
    """One GFGN layer. `w` is `[heads*d, in]`, `gate` `[heads, d or 2d, d]`. `mask` has one factor per given edge, for
    what it sends; repeated edges send equal parts."""
    n, heads, d = x.size(0), gate.size(0), gate.size(2)
    xs, ws, gates = x.tolist(), w.tolist(), gate.tolist()
    shift = [0.0] * (heads * d) if bias is None else bias.tolist()
    z = [[sum(a * b for a, b in zip(xs[i], ws[c], strict=True)) for c in range(heads * d)] for i in range(n)]
    A = adjacency(edges, weights)
    deg = [sum(A.get(i, {}).values()) for i in range(n)]
    factors: dict[tuple[int, int], list[float]] = {}
    for k, edge in enumerate(edges):
        factors.setdefault(edge, []).append(1.0 if mask is None else mask[k])

    def pooled(nodes: list[int], column: int) -> float:
        values = [z[i][column] for i in nodes]
        if not values:
            return 0.0
        return {"mean": sum(values) / len(values), "sum": sum(values), "max": max(values)}[pool]

    def score(first: list[float], second: list[float], head: int, c: int) -> float:
        inputs = first + second
        return lam * sigmoid(sum(value * gates[head][r][c] for r, value in enumerate(inputs)))

    out = [[0.0] * (heads * d) for _ in range(n)]
    for i in range(n):
        row = A.get(i, {})
        for head in range(heads):
            own = list(range(head * d, (head + 1) * d))
            for c, column in enumerate(own):
                kept, taken = 1.0, 0.0
                for j, a in row.items():
                    factor = sum(factors[j, i]) / len(factors[j, i])
                    norm = a / math.sqrt(deg[i] * deg[j]) if deg[i] > 0 and deg[j] > 0 else 0.0
                    if level == "graph":
                        members = [v for v in range(n) if batch[v] == batch[i]]
                        s = score([pooled(members, k) for k in own], [], head, c)
                    elif level == "neighbor":
                        s = score([z[i][k] for k in own], [pooled(list(row), k) for k in own], head, c)
                    else:
                        s = score([z[i][k] for k in own], [z[j][k] for k in own], head, c)
                        kept -= factor * s * a / deg[i] if deg[i] > 0 else 0.0
                    taken += factor * s * norm * z[j][column]
                if level != "pair":
                    if level == "graph":
                        members = [v for v in range(n) if batch[v] == batch[i]]
                        kept = 1 - score([pooled(members, k) for k in own], [], head, c)
                    else:
                        kept = 1 - score([z[i][k] for k in own], [pooled(list(row), k) for k in own], head, c)
                out[i][column] = kept * z[i][column] + taken + shift[column]
    return out


def equation(
    conv: GFGNConv,
    x: Tensor,
    edges: Tensor,
    weight: Tensor | None = None,
    batch: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The output of a layer by `layer`."""
    weights, factors = (None if values is None else values.tolist() for values in (weight, mask))
    graphs = [0] * x.size(0) if batch is None else batch.tolist()
    pairs = [(source, target) for source, target in edges.t().tolist()]
    parameters = (conv.lin.weight, conv.gate, conv.bias, conv.level, conv.lam, conv.pool)
    return torch.tensor(layer(x, pairs, weights, graphs, *parameters, factors), dtype=torch.float64)


def bipartite_layer(
    x_src: Tensor,
    x_dst: Tensor,
    edges: list[tuple[int, int]],
    weights: list[float] | None,
    batch: list[int],
    w_src: Tensor,
    w_dst: Tensor,
    gate: Tensor,
    bias: Tensor,
    level: str,
    lam: float,
    pool: str = "mean",
) -> Tensor:
    """One layer with neighbors from the sources and own features from the targets; differentiable, value by value."""
    heads, d = gate.size(0), gate.size(2)
    z_src, z_dst = x_src @ w_src.t(), x_dst @ w_dst.t()
    A: dict[tuple[int, int], float] = {}
    for k, (source, target) in enumerate(edges):
        A[target, source] = 1.0 if weights is None else A.get((target, source), 0.0) + weights[k]
    d_dst = [sum(a for (i, _), a in A.items() if i == target) for target in range(x_dst.size(0))]
    d_src = [sum(a for (_, j), a in A.items() if j == source) for source in range(x_src.size(0))]

    def pooled(rows: list[Tensor]) -> Tensor:
        values = torch.stack(rows)
        return {"mean": values.mean(0), "sum": values.sum(0), "max": values.amax(0)}[pool]

    def gates(*inputs: Tensor) -> Tensor:
        parts = [torch.cat([z[k * d : (k + 1) * d] for z in inputs]) @ gate[k] for k in range(heads)]
        return lam * torch.sigmoid(torch.cat(parts))

    rows = []
    for i, own in enumerate(z_dst):
        neighbors = [j for target, j in A if target == i]
        if level == "graph":
            s = gates(pooled([z_dst[v] for v in range(len(batch)) if batch[v] == batch[i]]))
        elif level == "neighbor":
            s = gates(own, pooled([z_src[j] for j in neighbors]) if neighbors else torch.zeros_like(own))
        out = own.clone() if level == "pair" else (1 - s) * own
        for j in neighbors:
            s = gates(own, z_src[j]) if level == "pair" else s
            if d_dst[i] > 0 and d_src[j] > 0:
                out = out + s * A[i, j] / math.sqrt(d_dst[i] * d_src[j]) * z_src[j]
            if level == "pair" and d_dst[i] > 0:
                out = out - s * A[i, j] / d_dst[i] * own
        rows.append(out + bias)
    return torch.stack(rows) if rows else z_dst.new_zeros(0, heads * d)


def random_edges(num_nodes: int, num_edges: int, generator: torch.Generator) -> Tensor:
    """Directed edges, possibly with self-loops and repetitions."""
    return torch.randint(0, num_nodes, (2, num_edges), generator=generator)


def undirected(num_nodes: int, num_edges: int, generator: torch.Generator) -> Tensor:
    """A simple undirected graph without isolated nodes: a ring and random chords, both directions."""
    ring = torch.arange(num_nodes)
    edges = {(int(u), (int(u) + 1) % num_nodes) for u in ring}
    for u, v in random_edges(num_nodes, num_edges, generator).t().tolist():
        if u != v:
            edges.add((u, v))
    both = sorted({(u, v) for u, v in edges} | {(v, u) for u, v in edges})
    return torch.tensor(both).t().contiguous()
