"""What `GFGNClassifier` is given: `GraphNodes`, and `unpack`, which takes datasets, PyG `Data` and these apart."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.assemble import Reading
from gfgn.data.columns import Array, RawFeatures
from gfgn.data.dataset import NodeDataset
from gfgn.data.splits import is_mask

if TYPE_CHECKING:
    import networkx
    import pandas as pd
    import scipy.sparse
    from numpy.typing import ArrayLike
    from torch_geometric.data import Data

    from gfgn.graph import Graph

    Matrix: TypeAlias = scipy.sparse.sparray | scipy.sparse.spmatrix
    FeaturesLike: TypeAlias = "ArrayLike | Matrix | Tensor | pd.DataFrame | GraphNodes | NodeDataset | Reading | Data"
    EdgesLike: TypeAlias = ArrayLike | Matrix | Tensor | pd.DataFrame | networkx.Graph[object] | Graph | None
    TargetLike: TypeAlias = ArrayLike | Tensor | pd.Series | pd.DataFrame | None
    WeightLike: TypeAlias = ArrayLike | Tensor | None
    MaskLike: TypeAlias = ArrayLike | Tensor | None

Given: TypeAlias = Any  # what a user gave, before its form is known
Indices: TypeAlias = NDArray[np.int64]
Key: TypeAlias = "int | slice | Indices | NDArray[np.bool_] | list[int]"
Mask: TypeAlias = NDArray[np.bool_]


class Labels(NamedTuple):
    """Labels of all nodes.

    Attributes:
        y: `[N]`, int64, the index of the class, −1 if unknown; or `[N, L]`, bool, for several labels per node.
        classes: The classes in sorted order; the numbers of the labels for several labels per node.
        known: `[N]`, bool: which nodes have a label.
    """

    y: Tensor
    classes: Array
    known: Mask


class GraphNodes:
    """Some or all nodes of a graph: features and edges of the whole graph, and the indices of these nodes.

    Indexing selects nodes and keeps the graph, so that scikit-learn's cross-validation gives every fold the whole
    graph and the labels of its training nodes only:

        GridSearchCV(GFGNClassifier(), {"lr": [0.005, 0.05]}).fit(GraphNodes(X, edge_index), y)

    Args:
        X: Features of all nodes, as for `GFGNClassifier.fit`.
        edge_index: Edges, as for `GFGNClassifier.fit`.
        edge_weight: One weight per edge.
    """

    def __init__(self, X: FeaturesLike, edge_index: EdgesLike = None, edge_weight: WeightLike = None) -> None:
        self.inputs = given = unpack(X, edge_index, edge_weight)
        self.X, self.edge_index, self.edge_weight = given.X, given.edges, given.weight
        self._whole = np.shape(X.values if isinstance(X := given.X, RawFeatures) else X)
        self.index: Indices = np.arange(self._whole[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Number of selected nodes, and number of features."""
        return self.index.size, self._whole[1]

    def __len__(self) -> int:
        return self.index.size

    def __getitem__(self, key: Key | tuple[Key, ...]) -> GraphNodes:
        selected = copy(self)
        selected.index = np.atleast_1d(self.index[key[0] if isinstance(key, tuple) else key])
        return selected

    def __repr__(self) -> str:
        return f"GraphNodes({self.index.size} of {self._whole[0]} nodes, {self.shape[1]} features)"


@dataclass(frozen=True)
class Inputs:
    """What an estimator method was given.

    Attributes:
        X: The features of all nodes; those of a dataset that was not read from tables as the dataset has them.
        dataset: The dataset that X was.
        nodes: The nodes that are meant; all if `None`.
        labels: The labels that `X` had, without those of test nodes.
    """

    X: Given
    edges: Given = None
    weight: Given = None
    y: Given = None
    val_mask: Given = None
    dataset: NodeDataset | None = None
    nodes: Indices | None = None
    labels: Labels | None = None


def unpack(
    X: FeaturesLike,
    edge_index: EdgesLike = None,
    edge_weight: WeightLike = None,
    y: TargetLike = None,
    val_mask: MaskLike = None,
) -> Inputs:
    """Takes apart what holds more than features. Labels and validation nodes that are given beside it win."""
    if isinstance(X, GraphNodes | NodeDataset | Reading):
        if edge_index is not None or edge_weight is not None:
            kind = type(X).__name__
            raise ValueError(f"edge_index and edge_weight must not be given together with {kind}, which have edges")
        if not isinstance(X, GraphNodes):
            return _unpack_dataset(X, y, val_mask)
        return replace(X.inputs, y=y, val_mask=val_mask, nodes=X.index, labels=None)
    if not (hasattr(X, "num_nodes") and hasattr(X, "edge_index") and hasattr(X, "x")):
        return Inputs(X, edge_index, edge_weight, y, val_mask)
    data: Given = X
    if data.x is None:
        raise ValueError("X must have features, got a Data whose x is None")
    if edge_index is None:
        edge_index = data.get("adj_t") if data.edge_index is None else data.edge_index
        edge_weight = data.get("edge_weight") if edge_weight is None else edge_weight
    train, val, labels = _data_mask(data, "train_mask"), _data_mask(data, "val_mask"), data.get("y")
    if labels is not None and train is not None:  # the others are for testing
        known = (train if val is None else train | val).view(-1, *[1] * (labels.dim() - 1))
        missing = torch.full_like(labels, -1, dtype=torch.int64 if labels.dim() == 1 else torch.float32)
        labels = torch.where(known, labels.to(missing.dtype), missing)
    return Inputs(data.x, edge_index, edge_weight, labels if y is None else y, val if val_mask is None else val_mask)


def _unpack_dataset(given: NodeDataset | Reading, y: TargetLike, val_mask: MaskLike) -> Inputs:
    """The test nodes of the first split are held out; its validation nodes validate, if it has any."""
    data, X = (given, None) if isinstance(given, NodeDataset) else (given.dataset, given.raw)
    known = (data.y >= 0) if data.y.dim() == 1 else torch.ones(data.num_nodes, dtype=torch.bool)
    if data.splits:
        known, val = data.splits[0].train | data.splits[0].val, data.splits[0].val
        val_mask = val if val_mask is None and bool(val.any()) and y is None else val_mask
    labels = None
    if y is None and data.num_classes:
        classes = np.arange(data.num_classes)
        if data.class_names is not None and not data.multilabel:
            classes = np.array(data.class_names)
            if all(name.isdecimal() and str(int(name)) == name for name in data.class_names):
                classes = classes.astype(np.int64)  # as pandas reads them
        hidden = data.y if data.multilabel else torch.where(known, data.y, -1)
        labels = Labels(hidden, classes, known.numpy())
    return Inputs(data.x if X is None else X, data.graph, None, y, val_mask, data, None, labels)


def _data_mask(data: Data, name: str) -> Tensor | None:
    mask = data.get(name)
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or not is_mask(mask, data.x.size(0)):
        got = f"shape {list(mask.shape)} of {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} of a Data must be a [N] tensor of booleans, got {got}; select one split of several")
    return mask.bool()


def to_numpy(values: Given) -> Given:
    """A tensor as an array; anything else unchanged."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
