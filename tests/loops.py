"""One layer as loops over Python floats, written from the paper's equations; it shares no code with the package."""

import math

import torch
from torch import Tensor


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
) -> list[list[float]]:
    """One GFGN layer. `w` is `[heads*d, in]`, `gate` `[heads, d or 2d, d]`."""
    n, heads, d = x.size(0), gate.size(0), gate.size(2)
    xs, ws, gates = x.tolist(), w.tolist(), gate.tolist()
    shift = [0.0] * (heads * d) if bias is None else bias.tolist()
    z = [[sum(a * b for a, b in zip(xs[i], ws[c], strict=True)) for c in range(heads * d)] for i in range(n)]
    A = adjacency(edges, weights)
    deg = [sum(A.get(i, {}).values()) for i in range(n)]

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
                    norm = a / math.sqrt(deg[i] * deg[j]) if deg[i] > 0 and deg[j] > 0 else 0.0
                    if level == "graph":
                        members = [v for v in range(n) if batch[v] == batch[i]]
                        s = score([pooled(members, k) for k in own], [], head, c)
                    elif level == "neighbor":
                        s = score([z[i][k] for k in own], [pooled(list(row), k) for k in own], head, c)
                    else:
                        s = score([z[i][k] for k in own], [z[j][k] for k in own], head, c)
                        kept -= s * a / deg[i]
                    taken += s * norm * z[j][column]
                if level != "pair":
                    if level == "graph":
                        members = [v for v in range(n) if batch[v] == batch[i]]
                        kept = 1 - score([pooled(members, k) for k in own], [], head, c)
                    else:
                        kept = 1 - score([z[i][k] for k in own], [pooled(list(row), k) for k in own], head, c)
                out[i][column] = kept * z[i][column] + taken + shift[column]
    return out


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
