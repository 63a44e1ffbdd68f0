"""`ReadOptions`, and `RawGraph`: a graph as it is in a user's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gfgn.data.columns import Array, RawFeatures
from gfgn.data.messages import listed

if TYPE_CHECKING:
    from gfgn.data.encoder import FeatureEncoder


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a graph: the keywords of `read`.

    Attributes:
        undirected: Whether to add the opposite of every edge.
        stratify: Whether random splits keep the proportions of the classes. Given splits are used as they are.
        scale: `"standard"`, `"row"` or `"none"`, see `FeatureEncoder`. It is fitted on the nodes that are in the
            training part of any of the splits.
        id: Name of the column of ids in the node table, by default `"id"` or a usual name such as `node_id`.
        label: Name of the column of labels, `"label"` by default.
        split: Name of the column of splits, `"split"` by default.
        drop: Names of columns of the node table to leave out.
        source_column: Name of the column of sources in the edge table; by default found by usual names such as
            `source`, `src` and `from`, or as one of the only two columns.
        target_column: Name of the column of targets in the edge table.
        sep: Separator of the cells of CSV files, guessed by default.
        encoding: Encoding of CSV files, guessed by default.
        skip_unknown: Whether to leave out edges with an id that is not in the node table; they are an error otherwise.
        encoder: With `class_names`, those of a model: the features are encoded as the model expects, labels are
            optional, no splits are drawn, and columns or classes that differ from the model's are an error.
        class_names: Names of the classes of a model, see `encoder`.
        metric: What is measured; by default `"roc_auc"` for two classes, `"accuracy"` for more.
        num_splits: Number of random splits if none are given.
        fractions: Fractions of training and validation nodes of random splits; if they sum to 1, there are no test
            nodes.
    """

    undirected: bool = True
    stratify: bool = False
    scale: str = "standard"
    id: str | None = None
    label: str | None = None
    split: str | None = None
    drop: Sequence[str] = ()
    source_column: str | None = None
    target_column: str | None = None
    sep: str | None = None
    encoding: str | None = None
    skip_unknown: bool = False
    encoder: FeatureEncoder | None = None
    class_names: Sequence[str] | None = None
    metric: str | None = None
    num_splits: int = 10
    fractions: tuple[float, float] = (0.48, 0.32)

    def __post_init__(self) -> None:
        if isinstance(self.drop, str):
            raise TypeError(f"drop must be a sequence of column names, got the string {self.drop!r}")
        if (self.encoder is None) != (self.class_names is None):
            raise ValueError("encoder and class_names must be given together, as those of a model")

    def unknown_classes(self, found: Sequence[str], label: str) -> list[str]:
        """How the classes differ from those of the model, if one is given."""
        unknown = [repr(name) for name in found if self.class_names is not None and name not in self.class_names]
        expected = listed(self.class_names or (), 20)
        return [f"{label} has unknown classes {listed(unknown, 20)}, expected {expected}"] if unknown else []


@dataclass
class RawGraph:
    """A graph as it is in its files.

    Attributes:
        origin: Name of the source of the nodes in messages.
        edge_origin: Name of that of the edges.
        label: Name of the labels in messages.
        edges: `[2, E]`, node indices from 0 to N − 1, as given.
        weight: `[E]`, or `None` without weights.
        labels: `[N]`, indices into `class_names`, −1 if unlabeled; `None` without labels.
        parts: `[S, N]`, 0, 1 and 2 for training, validation and test nodes, −1 for others; `None` without splits.
        named_classes: Whether the names of the classes belong to numbers in the files.
        notes: One sentence per repair.
    """

    origin: str
    edge_origin: str
    label: str
    raw: RawFeatures
    edges: NDArray[np.integer]
    weight: NDArray[np.float32] | None
    labels: NDArray[np.int64] | None
    class_names: list[str]
    parts: NDArray[np.int64] | None
    node_ids: Array
    named_classes: bool = False
    name: str = ""
    notes: list[str] = field(default_factory=list)
