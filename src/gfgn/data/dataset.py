"""`Dataset`: graphs with features, labels and splits, checked once so that nothing behind it checks again."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfgn.data.fingerprint import fingerprint_of, fingerprint_of_split
from gfgn.data.splits import Split
from gfgn.graph import Graph

METRICS = ("accuracy", "roc_auc", "micro_f1")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A graph for node classification, or several graphs side by side, whose `graph.batch` tells them apart.

    Attributes:
        name: Short name, as the registry and results have it.
        graph: The adjacency.
        x: `[N, F]`, floating point and finite; dense or sparse CSR.
        y: `[N]`, int64: the class of each node, −1 where it is unknown; or `[N, L]`, boolean: which of `L` labels each
            node has (multi-label).
        num_classes: Number of classes; 0 where no node has a label. `L` where nodes have many.
        metric: What scores are: `"accuracy"`, `"roc_auc"` of the second of two classes, or `"micro_f1"` of multi-label
            data, and of such data only.
        feature_names: `F` names.
        splits: Masks of training, validation and test nodes; disjoint, and of labelled nodes only.
        description: One sentence on what this graph is.
        smooth_dimensions: `[F]`, boolean: which feature dimensions follow the graph by construction; `None`
            where that is unknown.
    """

    name: str
    graph: Graph
    x: Tensor
    y: Tensor
    num_classes: int
    metric: str
    feature_names: list[str]
    splits: list[Split]
    description: str = ""
    smooth_dimensions: Tensor | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}, got {self.metric!r}")
        _check_features(self.x, self.graph.num_nodes)
        if self.multilabel != (self.metric == "micro_f1"):
            kind = "[N, L] of bool" if self.multilabel else "[N]"
            raise ValueError(
                f"metric must be 'micro_f1' for y of [N, L], and only then, got {self.metric!r} for {kind}"
            )
        check = _check_label_sets if self.multilabel else _check_labels
        check(self.y, self.graph.num_nodes, self.num_classes)
        if len(self.feature_names) != self.num_features:
            raise ValueError(f"feature_names must be {self.num_features} names, got {len(self.feature_names)}")
        if self.smooth_dimensions is not None:
            _check_mask("smooth_dimensions", self.smooth_dimensions, self.num_features)
        for k, split in enumerate(self.splits):
            _check_split(k, split, self.y)

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def num_features(self) -> int:
        return self.x.size(1)

    @property
    def multilabel(self) -> bool:
        """Whether a node can have many labels."""
        return self.y.dim() == 2

    @cached_property
    def inductive(self) -> bool:
        """Whether there are several graphs, of which no split divides one: what is tested on is unseen in training."""
        return self.graph.num_graphs > 1 and all(_keeps_graphs_whole(split, self.graph) for split in self.splits)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the edges, features and labels, of the number of classes and the metric; neither of the splits nor
        of the name. It is the same on any device and machine, and whether `x` is dense or sparse."""
        return fingerprint_of(self.graph, self.x, self.y, self.num_classes, self.metric)

    def split_fingerprint(self, k: int) -> str:
        """A hash of the masks of split `k`."""
        if not 0 <= k < len(self.splits):
            raise IndexError(f"k must be from 0 to {len(self.splits) - 1}, one of the splits, got {k}")
        return fingerprint_of_split(self.splits[k])

    def to(self, device: torch.device | str) -> Dataset:
        """The dataset on another device, with what has been worked out about it."""
        if self.x.device == torch.device(device):
            return self
        smooth = self.smooth_dimensions
        fields = {
            "graph": self.graph.to(device),
            "x": self.x.to(device),
            "y": self.y.to(device),
            "splits": [Split(*(mask.to(device) for mask in split)) for split in self.splits],
            "smooth_dimensions": None if smooth is None else smooth.to(device),
        }
        moved = copy.copy(self)  # not `replace`, which would check again what has been checked
        for name, value in fields.items():
            object.__setattr__(moved, name, value)
        return moved

    def __repr__(self) -> str:
        return (
            f"Dataset({self.name!r}, num_nodes={self.num_nodes}, num_edges={self.graph.num_edges}, "
            f"num_features={self.num_features}, num_classes={self.num_classes}, splits={len(self.splits)})"
        )


def _check_features(x: Tensor, num_nodes: int) -> None:
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"x must be a dense or a sparse CSR tensor, got layout {x.layout}")
    if x.dim() != 2 or x.size(0) != num_nodes:
        raise ValueError(f"x must have shape [{num_nodes}, F], one row a node, got {list(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"x must be floating point, got {x.dtype}")
    values = x.values() if x.layout == torch.sparse_csr else x
    # The extremes are NaN where any value is, and cost a fraction of a mask of all values.
    if values.numel() and not torch.stack(values.aminmax()).isfinite().all():
        raise ValueError(f"x must be finite, got {int((~values.isfinite()).sum())} values that are NaN or infinite")


def _check_labels(y: Tensor, num_nodes: int, num_classes: int) -> None:
    if num_classes < 2 and num_classes != 0:  # a graph without labels can be described and predicted on
        raise ValueError(f"num_classes must be 2 or larger, got {num_classes}")
    if y.shape != (num_nodes,) or y.dtype != torch.int64:
        raise ValueError(f"y must be [{num_nodes}] of int64, got {list(y.shape)} of {y.dtype}")
    bad = (y < -1) | (y >= num_classes)
    if bad.any():
        node = int(bad.nonzero()[0])
        raise ValueError(
            f"y must hold −1 to {num_classes - 1} ({num_classes} classes), got {int(y[node])} at node {node}"
        )


def _check_label_sets(y: Tensor, num_nodes: int, num_labels: int) -> None:
    if y.shape != (num_nodes, num_labels) or num_labels < 1 or y.dtype != torch.bool:
        raise ValueError(
            f"y must be [{num_nodes}, {num_labels}] of bool, num_classes ({num_labels}) being the number of labels, "
            f"got {list(y.shape)} of {y.dtype}"
        )


def _keeps_graphs_whole(split: Split, graph: Graph) -> bool:
    """Whether no graph has nodes in two parts."""
    assert graph.batch is not None
    touched = torch.zeros(3, graph.num_graphs, dtype=torch.bool, device=graph.batch.device)
    for row, mask in zip(touched, split, strict=True):
        row[graph.batch[mask]] = True
    return int(touched.sum(0).max()) <= 1


def _check_mask(name: str, mask: Tensor, size: int) -> None:
    if mask.shape != (size,) or mask.dtype != torch.bool:
        raise ValueError(f"{name} must be [{size}] of bool, got {list(mask.shape)} of {mask.dtype}")


def _check_split(k: int, split: Split, y: Tensor) -> None:
    for part, mask in split._asdict().items():
        _check_mask(f"splits[{k}].{part}", mask, y.size(0))
        unlabelled = 0 if y.dim() == 2 else int((mask & (y < 0)).sum())
        if unlabelled:
            raise ValueError(f"splits[{k}].{part} must hold labelled nodes only, got {unlabelled} without a label")
    train, val, test = split
    shared = int(((train & val) | (train & test) | (val & test)).sum())
    if shared:
        raise ValueError(f"splits[{k}] must be disjoint, got {shared} nodes that are in more than one part")
