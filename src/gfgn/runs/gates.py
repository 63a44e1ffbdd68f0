"""Gates by input dimension: how much a GFGN smooths each of them.

A gate of a GFGN belongs to a column of `H W`, a mixture of input dimensions. Here `W` is fixed to the identity, so that
each gate belongs to one input dimension.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gfgn.data.dataset import Dataset
from gfgn.data.diagnosis import smoothness
from gfgn.graph import Graph
from gfgn.nn import GFGNConv
from gfgn.runs.store import Store
from gfgn.train.settings import fitting_threads

LEVELS = ("graph", "neighbor", "pair")
MAX_DIMENSIONS = 1024  # the size of the gate's matrix is the square of the number of dimensions


class GateReader(nn.Module):
    """One gating layer on the input dimensions, followed by a linear classifier.

    The classifier is initialized with zeros, so that it takes its first step before any gate has a gradient. With
    random weights, a few gates of dimensions that do not follow the graph end near 1: on `dimensions`, the rank
    correlation of gates and truth is 0.41 to 0.82, depending on the seed, instead of 0.82, the largest possible value.
    """

    def __init__(self, num_features: int, num_classes: int, level: str, lam: float = 1.0) -> None:
        super().__init__()
        self.conv = GFGNConv(num_features, num_features, level=level, heads=1, lam=lam, bias=False, validate=False)
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


def gates_by_dimension(
    dataset: Dataset,
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
        dataset: The dataset, with at most `MAX_DIMENSIONS` dense or sparse feature dimensions.
        level: `"graph"`, `"neighbor"` or `"pair"`.
        split: Index of a split of the dataset; validation and test nodes are not used.
        epochs: Number of epochs; there is no early stopping.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(map(repr, LEVELS))}, got {level!r}")
    if dataset.num_features > MAX_DIMENSIONS:
        raise ValueError(f"dataset must have at most {MAX_DIMENSIONS} features, got {dataset.num_features}")
    if not 0 <= split < len(dataset.splits):
        raise ValueError(f"split must be 0 to {len(dataset.splits) - 1} for {dataset.name!r}, got {split}")
    x, train = dataset.x, dataset.splits[split].train
    if x.layout != torch.strided:
        x = x.to_dense()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        reader = GateReader(dataset.num_features, dataset.num_classes, level, lam).to(x.device)
    learned = [parameter for parameter in reader.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=lr, weight_decay=weight_decay)
    with fitting_threads(dataset):
        for _ in range(epochs):
            optimizer.zero_grad()
            cross_entropy(reader(x, dataset.graph)[train], dataset.y[train]).backward()
            optimizer.step()
    return reader.gates(x, dataset.graph)


def gates_note(store: Store, dataset: Dataset) -> dict[str, Any] | None:
    """The mean gate of each dimension by level, computed once and kept in the store, with either `"smooth"`, which
    dimensions follow the graph by construction, or `"roughness"`, how much each varies along edges. `None` for a
    dataset with too many dimensions or several labels per node."""
    kept = store.notes("gates").get(dataset.name)
    if kept is not None and kept["fingerprint"] == dataset.fingerprint:
        return kept
    if dataset.num_features > MAX_DIMENSIONS or dataset.multilabel:
        return None
    smooth = dataset.smooth_dimensions
    note = {
        "fingerprint": dataset.fingerprint,
        "levels": {level: _rounded(gates_by_dimension(dataset, level)) for level in LEVELS},
        "smooth": None if smooth is None else smooth.tolist(),
        "roughness": None if smooth is not None else _rounded(smoothness(dataset)),
    }
    store.note("gates", dataset.name, note)
    return note


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.double().tolist()]
