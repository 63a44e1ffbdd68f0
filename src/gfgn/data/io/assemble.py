"""Assembly of a `Dataset` from the contents of a user's files; every repair is recorded in a note."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.columns import Column, Matrix, unlike_the_model
from gfgn.data.dataset import METRICS, Dataset, default_metric
from gfgn.data.encoder import SCALES, FeatureEncoder
from gfgn.data.messages import DataError, counted, listed
from gfgn.data.splits import Split, labelled_splits, random_splits
from gfgn.graph import Graph, TwoWeights, merge_edges, symmetrize

Array: TypeAlias = NDArray[Any]
Progress: TypeAlias = Callable[[int, int], None]  # called with the number of edge rows read and of all edge rows

KEEP = "undirected=False (--directed)"
IMBALANCED = 0.8  # fraction of the largest class beyond which accuracy says little


@dataclass(frozen=True)
class Options:
    """The arguments of `read`."""

    undirected: bool = True
    stratify: bool = False
    scale: str = "standard"
    id: str | None = None
    label: str | None = None
    split: str | None = None
    drop: Sequence[str] = ()
    encoder: FeatureEncoder | None = None
    class_names: Sequence[str] | None = None
    metric: str | None = None
    num_splits: int = 10
    fractions: tuple[float, float] = (0.48, 0.32)

    def __post_init__(self) -> None:
        for name, choices in (("scale", SCALES), ("metric", (*METRICS, None))):
            if getattr(self, name) not in choices:
                known = ", ".join(repr(choice) for choice in choices if choice)
                raise ValueError(f"{name} must be one of {known}, got {getattr(self, name)!r}")
        if isinstance(self.drop, str):
            raise TypeError(f"drop must be a sequence of column names, got the string {self.drop!r}")
        if (self.encoder is None) != (self.class_names is None):
            raise ValueError("encoder and class_names must be given together, as those of a model")


@dataclass
class Edges:
    """Edges as given: node indices from 0 to N − 1, including duplicates and self-loops."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float32] | None = None
    origin: str = ""  # name of the source in messages, if it is not that of all contents


@dataclass
class Contents:
    """The contents of a user's files; `assemble` releases features, edges and labels."""

    origin: str  # name of the source in messages
    raw: Matrix | None
    columns: Sequence[Column]
    labels: NDArray[np.int64] | None  # `[N]`, indices into `class_names`, −1 if unlabelled
    class_names: list[str]
    splits: list[Split] | None
    node_ids: Array
    edges: Edges | None = None
    label: str = "column 'label'"  # name of the labels in messages
    sort_classes: bool = True  # by name; otherwise they are in the order of the files
    differences: list[str] = field(default_factory=list)  # from the columns of a model
    notes: list[str] = field(default_factory=list)  # one sentence per repair


def to_float32(values: Array) -> NDArray[np.float32]:
    """The values in single precision; too large ones become infinite, which the checks report."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def bad_weight(values: NDArray[np.float32]) -> int | None:
    """The index of the first weight that is not finite or negative."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    return int(bad[0]) if bad.size else None


def check_model(contents: Contents, options: Options) -> None:
    """Raises one error that lists how columns and classes differ from those of the model, if one is given."""
    known = contents.class_names if options.class_names is None else options.class_names
    names = set(known)
    unknown = [repr(name) for name in contents.class_names if name not in names]
    parts = list(contents.differences)
    if unknown:
        parts.append(f"{contents.label} has unknown classes {listed(unknown, 20)}, expected {listed(known, 20)}")
    if parts:
        raise unlike_the_model(contents.origin, parts)


def assemble(contents: Contents, name: str, options: Options) -> Dataset:
    """Builds the dataset and appends to `contents.notes`."""
    # The graph comes last: it is the largest, and temporary memory of the others is free by then.
    if options.class_names is None:
        y, splits = _labels_and_splits(contents, options)
    else:
        y, splits = _labels_of_model(contents, options.class_names)
    labels, num_classes = torch.from_numpy(y), len(contents.class_names)
    metric = options.metric or default_metric(labels, num_classes)
    _note_imbalance(contents, y, metric)
    x, encoder = _features(contents, options, splits)
    return Dataset(
        name=name,
        graph=_graph(contents, options.undirected),
        x=x,
        y=labels,
        num_classes=num_classes,
        metric=metric,
        feature_names=encoder.feature_names,
        splits=splits,
        description=f"Read from {contents.origin}.",
        class_names=contents.class_names or None,
        node_ids=contents.node_ids,
        encoder=encoder,
    )


def _features(contents: Contents, options: Options, splits: list[Split]) -> tuple[Tensor, FeatureEncoder]:
    """The features; statistics are those of the nodes in the training part of any split, or of all without splits."""
    raw, contents.raw = contents.raw, None
    assert raw is not None
    if options.encoder is not None:
        return options.encoder.transform(raw, contents.notes), options.encoder
    train = torch.stack([split.train for split in splits]).any(0) if splits else None
    encoder = FeatureEncoder.fit(raw, contents.columns, train, options.scale)
    contents.notes += encoder.notes()
    return encoder.transform(raw, contents.notes), encoder


def _note_imbalance(contents: Contents, y: NDArray[np.int64], metric: str) -> None:
    sizes = np.bincount(y[y >= 0], minlength=1)
    largest = sizes.max() / max(1, sizes.sum())
    if metric == "accuracy" and largest > IMBALANCED:
        name = contents.class_names[int(sizes.argmax())]
        contents.notes.append(
            f"imbalanced: {largest:.0%} of the labelled nodes are of class {name!r}, so that accuracy says little"
        )


def _graph(contents: Contents, undirected: bool) -> Graph:
    origin = contents.edges.origin if contents.edges and contents.edges.origin else contents.origin
    try:
        return Graph.from_csr(_adjacency(contents, undirected), undirected=undirected)
    except DataError:
        raise
    except TwoWeights as error:
        raise DataError(f"{origin}: {error.message(contents.node_ids.tolist().__getitem__, KEEP)}") from None
    except ValueError as error:  # weights that are finite, but not their sums
        raise DataError(f"{origin}: {error}") from error


def _adjacency(contents: Contents, undirected: bool) -> scipy.sparse.csr_array:
    """`A` with one row per target: no self-loops, every edge once, both directions if `undirected`."""
    edges, contents.edges = contents.edges, None
    assert edges is not None
    notes, weighted = contents.notes, edges.weight is not None
    loop = edges.source == edges.target
    given = loop.size - int(loop.sum())
    if given < loop.size:
        notes.append(f"{counted(loop.size - given, 'self-loop')} dropped")
    if edges.weight is not None and not edges.weight.all():
        zero = edges.weight == 0
        dropped = int((zero & ~loop).sum())
        notes.append(f"{counted(dropped, 'edge')} of weight 0 dropped")
        edges = Edges(edges.source[~zero], edges.target[~zero], edges.weight[~zero])
        given -= dropped
    del loop
    matrix = merge_edges(edges.source, edges.target, edges.weight, len(contents.node_ids))
    del edges
    if weighted and not np.isfinite(matrix.data).all():
        raise DataError(f"{contents.origin}: the weights of a repeated edge sum to infinity, expected a finite sum")
    if given > matrix.nnz:
        sums = ", their weights added" if weighted else ""
        notes.append(f"{counted(given - matrix.nnz, 'duplicate edge')} merged{sums}")
    if not undirected:
        return matrix
    both = symmetrize(matrix)
    added = both.nnz - matrix.nnz
    if added:
        notes.append(f"edges made undirected: {counted(added, 'opposite edge')} added")
    return both


def _labels_of_model(contents: Contents, class_names: Sequence[str]) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, if any, numbered as in the model, and the given splits, if any."""
    found, labels, contents.labels = contents.class_names, contents.labels, None
    contents.class_names = list(class_names)
    if labels is None:
        return np.full(len(contents.node_ids), -1, dtype=np.int64), []
    index = {name: k for k, name in enumerate(class_names)}
    y = np.array([*(index[name] for name in found), -1], dtype=np.int64)[labels]  # the last entry is that of label −1
    labelled = torch.from_numpy(y >= 0)
    return y, [Split(*(mask & labelled for mask in split)) for split in contents.splits or ()]


def _labels_and_splits(contents: Contents, options: Options) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, and masks over labelled nodes; sorts `contents.class_names`."""
    origin, notes = contents.origin, contents.notes
    if contents.labels is None:
        given = ", and the given splits are ignored" if contents.splits is not None else ""
        notes.append(f"no labels: no model can be trained on this graph{given}")
        return np.full(len(contents.node_ids), -1, dtype=np.int64), []
    _check_classes(contents, contents.labels)
    y = _sort_classes(contents, contents.labels)
    names = contents.class_names
    unlabelled = int((y < 0).sum())
    if unlabelled:
        notes.append(f"{counted(unlabelled, 'unlabelled node')} kept, in no part of any split")
    single = [names[k] for k in np.flatnonzero(np.bincount(y[y >= 0], minlength=len(names)) == 1)]
    if single and options.stratify and contents.splits is None:
        raise DataError(f"{origin}: class {single[0]!r} has one member, expected two or more to stratify")
    if single:
        notes.append(f"{counted(len(single), 'class', 'classes')} with one member: {listed(single)}")
    if contents.splits is None:
        return y, _random_splits(contents, y, options)
    if options.stratify:
        notes.append("splits are given, so stratify has no effect")
    return y, _given_splits(contents, contents.splits, torch.from_numpy(y >= 0))


def _check_classes(contents: Contents, labels: NDArray[np.int64]) -> None:
    """Refuses a single class, and labels that look like the target of a regression, or like names of nodes."""
    names, labelled = contents.class_names, int((labels >= 0).sum())
    if len(names) < 2:
        got = f"one class ({names[0]!r})" if names else "no labelled node"
        raise DataError(f"{contents.origin} has {got}, expected labelled nodes of two classes or more")
    if len(names) <= 20:
        return
    values = f"{contents.origin}: {contents.label} has {len(names):,} distinct values in {labelled:,} labelled nodes"
    try:
        fractions = sum(float(name) % 1 != 0 for name in names)
    except ValueError:  # names
        if len(names) > 100 and len(names) > labelled / 5:
            raise DataError(f"{values}, expected classes with several members each: is it an id or a text?") from None
        return
    if fractions > len(names) / 2 or len(names) > labelled / 5:
        bins = "gfgn predicts classes, so put the numbers into a few bins, such as low, medium and high"
        raise DataError(f"{values}, all of them numbers: is it a regression? {bins}")


def _sort_classes(contents: Contents, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    names = contents.class_names
    contents.labels = None
    if not contents.sort_classes:
        return labels
    try:
        keys = [float(name) for name in names]
    except ValueError:
        keys = [0.0] * len(names)
    # Equal numbers that are written differently ("1", "01") are separate classes, ordered by their text.
    order = sorted(range(len(names)), key=lambda k: (keys[k], names[k]))
    contents.class_names = [names[k] for k in order]
    if contents.class_names != [str(k) for k in range(len(names))]:
        shown = listed([f"{name!r} is {k}" for k, name in enumerate(contents.class_names)])
        contents.notes.append(f"classes numbered in sorted order: {shown}")
    index = np.full(len(names) + 1, -1, dtype=np.int64)  # the last entry is that of label −1
    index[order] = np.arange(len(names))
    return index[labels]


def _random_splits(contents: Contents, y: NDArray[np.int64], options: Options) -> list[Split]:
    labelled = int((y >= 0).sum())
    problem = f" has {counted(labelled, 'labelled node')}, expected 3 or more to split"
    try:
        random_splits(labelled, 1, 0, *options.fractions)  # tells too few nodes from too small classes
        problem = ": classes are too small to stratify, expected one of 3 nodes or more"
        splits = labelled_splits(torch.from_numpy(y), options.num_splits, options.fractions, options.stratify)
    except ValueError:
        raise DataError(contents.origin + problem) from None
    kind = "stratified" if options.stratify else "random"
    parts = dict(zip(Split._fields, (*options.fractions, 1 - sum(options.fractions)), strict=True))
    sizes = ", ".join(f"{part:.0%} {name}" for name, part in parts.items() if part > 1e-9)
    made = counted(options.num_splits, f"{kind} split")
    contents.notes.append(f"{made} ({sizes}) of the labelled nodes made")
    return splits


def _given_splits(contents: Contents, given: list[Split], labelled: Tensor) -> list[Split]:
    """The given masks without unlabelled nodes; none may be empty."""
    masks = torch.stack([torch.stack(list(split)) for split in given])
    for k, part in (~(masks & labelled).any(2)).nonzero()[:1].tolist():
        name = Split._fields[part]
        raise DataError(f"{contents.origin}: split {k} has no labelled node in {name}, expected one or more")
    removed = int((masks & ~labelled).any(1).any(0).sum())
    if removed:
        contents.notes.append(f"{counted(removed, 'unlabelled node')} removed from the given splits")
    contents.notes.append(f"{counted(len(given), 'split')} as given")
    return [Split(*split) for split in masks & labelled]
