"""`NodeDataset`: a graph with features, labels and splits, validated on construction."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gfgn.data.columns import Array
from gfgn.data.encoder import FeatureEncoder
from gfgn.data.fingerprint import fingerprint_of, fingerprint_of_split
from gfgn.data.mapped import is_mapped
from gfgn.data.splits import Split
from gfgn.graph import Graph
from gfgn.metrics import METRICS, metrics_for


def default_metric(y: Tensor, num_classes: int) -> str:
    """`"roc_auc"` for two classes, `"accuracy"` for more, `"micro_f1"` for multi-label data (`y` is `[N, L]`)."""
    if y.dim() == 2:
        return "micro_f1"
    return "roc_auc" if num_classes == 2 else "accuracy"


@dataclass(frozen=True, eq=False, repr=False)
class NodeDataset:
    """Node classification on one graph, or on several graphs that `graph.batch` tells apart.

    Attributes:
        graph: The edges, as given; none may have the weight 0, which readers of data take for no edge, layers for one.
        x: `[N, F]` features, floating point and finite; dense or sparse CSR.
        y: `[N]`, int64: the class of each node, −1 if unknown; or `[N, L]`, bool: the labels of each node
            (multi-label).
        num_classes: Number of classes, 0 if no node is labelled; `L` for multi-label data.
        metric: One of `gfgn.metrics.METRICS`.
        splits: Boolean masks `(train, val, test)` over the nodes; disjoint, labelled nodes only.
        smooth_dimensions: `[F]`, bool: the feature dimensions that follow the graph by construction; `None` if unknown.
        node_ids: `[N]`, strings or integers: the ids in the user's files; `None` for datasets without ids.
        encoder: How the features were made from the columns of the user's files; not part of the fingerprint.
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
    class_names: list[str] | None = None
    node_ids: Array | None = None
    encoder: FeatureEncoder | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(map(repr, METRICS))}, got {self.metric!r}")
        if self.metric not in (known := metrics_for(self.multilabel)):
            kind = "multi-label y ([N, L])" if self.multilabel else "y of one class per node ([N])"
            raise ValueError(f"metric must be one of {', '.join(map(repr, known))} for {kind}, got {self.metric!r}")
        weight = None if is_mapped(self.graph) else self.graph.weight
        if weight is not None and not weight.all():
            raise ValueError(f"graph must have no edge of weight 0, got {int((weight == 0).sum())}: leave them out")
        _check_features(self.x, self.num_nodes)
        self._check_labels()
        features = None if self.encoder is None else self.encoder.feature_names
        for name, values, size in (
            ("feature_names", self.feature_names, self.num_features),
            ("class_names", self.class_names, self.num_classes),
            ("node_ids", self.node_ids, self.num_nodes),
            ("encoder", features, self.num_features),
        ):
            if values is not None and len(values) != size:
                raise ValueError(f"{name} must have {size} entries, got {len(values)}")
        if self.smooth_dimensions is not None:
            _check("smooth_dimensions", self.smooth_dimensions, [self.num_features], torch.bool)
        for k, split in enumerate(self.splits):
            self._check_split(f"splits[{k}]", split)

    def _check_labels(self) -> None:
        y, classes = self.y, self.num_classes
        if self.multilabel:
            _check("y", y, [self.num_nodes, classes], torch.bool)
            return
        if classes < 2 and classes != 0:  # an unlabelled graph can be described and predicted on
            raise ValueError(f"num_classes must be 2 or larger, got {classes}")
        _check("y", y, [self.num_nodes], torch.int64)
        for node in ((y < -1) | (y >= classes)).nonzero().view(-1)[:1]:
            raise ValueError(f"y must hold −1 to {classes - 1} ({classes} classes), got {int(y[node])} at node {node}")

    def _check_split(self, name: str, split: Split) -> None:
        for part, mask in split._asdict().items():
            _check(f"{name}.{part}", mask, [self.num_nodes], torch.bool)
            unlabelled = 0 if self.multilabel else int((mask & (self.y < 0)).sum())
            if unlabelled:
                raise ValueError(f"{name}.{part} must contain labelled nodes only, got {unlabelled} without a label")
        train, val, test = split
        shared = int(((train & val) | (train & test) | (val & test)).sum())
        if shared:
            raise ValueError(f"{name} must be disjoint, got {shared} nodes in more than one part")

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def num_features(self) -> int:
        return self.x.size(1)

    @property
    def multilabel(self) -> bool:
        """Whether a node can have several labels."""
        return self.y.dim() == 2

    @cached_property
    def inductive(self) -> bool:
        """Whether there are several graphs and each lies within one part of every split."""
        batch, count = self.graph.batch, self.graph.num_graphs
        if batch is None or count < 2:
            return False
        for split in self.splits:
            touched = torch.stack([torch.bincount(batch[mask], minlength=count) > 0 for mask in split])
            if (touched.sum(0) > 1).any():
                return False
        return True

    @cached_property
    def fingerprint(self) -> str:
        """Hash of edges, features, labels, number of classes and metric, but not of splits or names.

        It is the same on every device and machine, for dense and sparse `x`.
        """
        return fingerprint_of(self.graph, self.x, self.y, self.num_classes, self.metric)

    def split_fingerprint(self, k: int) -> str:
        """Hash of the masks of split `k`."""
        if not 0 <= k < len(self.splits):
            raise IndexError(f"k must be the index of a split, 0 to {len(self.splits) - 1}, got {k}")
        return fingerprint_of_split(self.splits[k])

    def to(self, device: torch.device | str) -> NodeDataset:
        """The dataset on another device; cached properties are kept."""
        if self.x.device == torch.device(device):
            return self
        moved = copy.copy(self)  # `replace` would validate again
        for name in ("graph", "x", "y", "smooth_dimensions"):
            value = getattr(self, name)
            object.__setattr__(moved, name, None if value is None else value.to(device))
        splits = [Split(*(mask.to(device) for mask in split)) for split in self.splits]
        object.__setattr__(moved, "splits", splits)
        return moved

    def __repr__(self) -> str:
        return (
            f"NodeDataset({self.name!r}, num_nodes={self.num_nodes}, num_edges={self.graph.num_edges}, "
            f"num_features={self.num_features}, num_classes={self.num_classes}, splits={len(self.splits)})"
        )


def _check_features(x: Tensor, num_nodes: int) -> None:
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"x must be a dense or a sparse CSR tensor, got layout {x.layout}")
    if x.dim() != 2 or x.size(0) != num_nodes:
        raise ValueError(f"x must have shape [{num_nodes}, F], one row per node, got {list(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"x must be floating point, got {x.dtype}")
    values = x.values() if x.layout == torch.sparse_csr else x
    # The extremes are NaN if any value is, and are cheaper than a mask of all values.
    if values.numel() and not torch.stack(values.aminmax()).isfinite().all():
        raise ValueError(f"x must be finite, got {int((~values.isfinite()).sum())} values that are NaN or infinite")


def _check(name: str, value: Tensor, shape: list[int], dtype: torch.dtype) -> None:
    if list(value.shape) != shape or value.dtype != dtype:
        expected = f"{shape} of {str(dtype).removeprefix('torch.')}"
        raise ValueError(f"{name} must be {expected}, got {list(value.shape)} of {value.dtype}")


Dataset = NodeDataset  # its name in gfgn 0.2
