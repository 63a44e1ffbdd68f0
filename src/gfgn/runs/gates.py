"""Gates by input dimension: how much a GFGN smooths each of them.

A gate of a GFGN belongs to a column of `H W`, a mixture of input dimensions. Here `W` is fixed to the identity, so that
each gate belongs to one input dimension.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from gfgn import ops
from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.metrics import node_losses
from gfgn.nn import GFGNConv
from gfgn.ops.seeded import seeded
from gfgn.train.settings import threads_for
from gfgn.train.task import with_sparse_features

LEVELS = ("graph", "neighbor", "pair")
MAX_DIMENSIONS = 1024  # the size of a gate's matrix is the square of the number of dimensions


class GateReader(nn.Module):
    """One gating layer on the input dimensions, followed by a linear classifier.

    The classifier is initialized with zeros, so that it takes its first step before any gate has a gradient. With
    random weights, a few gates of dimensions that do not follow the graph end near 1: on `dimensions`, the rank
    correlation of gates and truth is 0.41 to 0.82, depending on the seed, instead of 0.82, the largest possible value.
    """

    def __init__(self, num_features: int, num_classes: int, level: str, lam: float = 1.0) -> None:
        super().__init__()
        # The gates have a bias of their own, because they cannot tell apart features of mean 0 without it.
        options: dict[str, Any] = {"heads": 1, "bias": False, "gate_bias": 0.0, "validate": False}
        self.conv = GFGNConv(num_features, num_features, level=level, lam=lam, **options)
        self.conv.lin.weight.requires_grad_(False)
        self.out = nn.Linear(num_features, num_classes)
        with torch.no_grad():
            self.conv.lin.weight.copy_(torch.eye(num_features))
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        return cast(Tensor, self.out(self.conv(x, graph)))

    @torch.no_grad()
    def gates(self, x: Tensor, graph: Graph) -> Tensor:
        """`[F]`: the gate of each dimension, averaged over the graph's nodes or edges."""
        _, scores = self.conv(x, graph, return_scores=True)
        return cast(Tensor, scores.mean(0))


class GateVector(nn.Module):
    """`GateReader` at graph level for any number of dimensions, dense or sparse.

    With the identity as `W`, the gate of a graph is one vector `s`, here learned directly instead of as `λ σ(z̄ W_s)`
    with a square `W_s`: `logits = x ((1 − s) ∘ V) + Â x (s ∘ V) + b`. Only class scores are propagated. Features are
    divided by the root mean square of their rows' norms: then weight decay, which keeps gates without evidence near
    λ/2, means the same for word counts and for normalized rows.
    """

    def __init__(self, x: Tensor, num_classes: int, lam: float = 1.0) -> None:
        super().__init__()
        values = x.values() if x.layout == torch.sparse_csr else x
        self.lam = lam
        self.scale = float((values.square().sum() / max(x.size(0), 1)).clamp(min=1e-12).rsqrt())
        self.logit = nn.Parameter(torch.zeros(x.size(1), dtype=x.dtype))
        self.out = nn.Linear(x.size(1), num_classes, dtype=x.dtype)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        s, weight = self.gates(x, graph), self.scale * self.out.weight
        own, other = ops.linear(x, torch.cat([(1 - s) * weight, s * weight])).chunk(2, dim=1)
        return own + ops.propagate(other.contiguous(), graph) + self.out.bias

    def gates(self, x: Tensor, graph: Graph) -> Tensor:
        """`[F]`: the gate of each dimension."""
        return self.lam * torch.sigmoid(self.logit)


def gates_by_dimension(
    dataset: NodeDataset,
    level: str,
    seed: int = 0,
    *,
    split: int = 0,
    epochs: int = 100,
    lr: float = 0.02,
    weight_decay: float = 5e-4,
    lam: float = 1.0,
) -> Tensor:
    """Trains a `GateReader` on the training nodes of a split and returns `[F]`: the mean gate of each input dimension.

    Args:
        dataset: The dataset, with dense or sparse features. Above `MAX_DIMENSIONS` features only the graph level can
            be read, by a `GateVector`.
        level: `"graph"`, `"neighbor"` or `"pair"`.
        split: Index of a split of the dataset; validation and test nodes are not used.
        epochs: Number of epochs; there is no early stopping.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    wide = dataset.num_features > MAX_DIMENSIONS
    if wide and level != "graph":
        raise ValueError(
            f"level must be 'graph' above {MAX_DIMENSIONS:,} features, got {level!r} for {dataset.num_features:,}"
        )
    if not 0 <= split < len(dataset.splits):
        raise ValueError(f"split must be 0 to {len(dataset.splits) - 1} for {dataset.name!r}, got {split}")
    x, train = with_sparse_features(dataset).x if wide else dataset.x, dataset.splits[split].train
    if x.layout != torch.strided and not wide:
        x = x.to_dense()
    reader: GateReader | GateVector
    with seeded(seed):
        sizes = (dataset.num_features, dataset.num_classes)
        reader = GateVector(x, sizes[1], lam) if wide else GateReader(*sizes, level, lam)
    reader.to(x.device)
    learned = [parameter for parameter in reader.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=lr, weight_decay=weight_decay)
    with threads_for(dataset):
        for _ in range(epochs):
            optimizer.zero_grad()
            node_losses(reader(x, dataset.graph)[train], dataset.y[train]).mean().backward()
            optimizer.step()
    return reader.gates(x, dataset.graph).detach()
