"""Assembly of a `Dataset` from the contents of a user's files; every repair is recorded in a note."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import Dataset
from gfgn.data.messages import DataError, counted, listed, reason
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph, merge_edges, symmetrize
from gfgn.ops.features import row_normalize

Array: TypeAlias = NDArray[Any]
Progress: TypeAlias = Callable[[int, int], None]  # called with the number of edge rows read and of all edge rows

NUM_SPLITS = 10


@dataclass
class Edges:
    """Edges as given: node indices from 0 to N − 1, including duplicates and self-loops."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float32] | None = None


@dataclass
class Contents:
    """The contents of a user's files; `assemble` releases the edges and labels."""

    origin: str  # name of the source in messages
    x: Tensor
    feature_names: list[str]
    kinds: dict[str, int]  # number of features of each kind
    labels: NDArray[np.int64] | None  # `[N]`, indices into `class_names`, −1 if unlabelled
    class_names: list[str]
    splits: list[Split] | None
    edges: Edges | None = None
    node_ids: Array | None = None
    notes: list[str] = field(default_factory=list)  # one sentence per repair


@contextmanager
def reading(label: str, kind: str) -> Iterator[None]:
    """Turns the exceptions of a parser, which are nearly any on a damaged file, into a `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{label} cannot be read as {kind} ({reason(error)})") from error


def to_float32(values: Array) -> NDArray[np.float32]:
    """The values in single precision; too large ones become infinite, which the checks report."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def bad_weight(values: NDArray[np.float32]) -> int | None:
    """The index of the first weight that is not finite or negative."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    return int(bad[0]) if bad.size else None


def assemble(
    contents: Contents, name: str, *, undirected: bool = True, stratify: bool = False, normalize: bool = False
) -> Dataset:
    """Builds the dataset and appends to `contents.notes`."""
    # The graph comes last: it is the largest, and temporary memory of the others is free by then.
    y, splits = _labels_and_splits(contents, stratify)
    x = contents.x
    if normalize:
        contents.notes.append("features normalized: absolute values of each row sum to 1, rows of zeros unchanged")
        x = row_normalize(x)
    return Dataset(
        name=name,
        graph=Graph.from_csr(_adjacency(contents, undirected), undirected=undirected),
        x=x,
        y=torch.from_numpy(y),
        num_classes=len(contents.class_names),
        metric="accuracy",
        feature_names=contents.feature_names,
        splits=splits,
        description=f"Read from {contents.origin}.",
        class_names=contents.class_names or None,
        node_ids=contents.node_ids,
    )


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
    matrix = merge_edges(edges.source, edges.target, edges.weight, contents.x.size(0))
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
    if added or (weighted and (both.data != matrix.data).any()):
        larger = "; the larger weight where two directions differ" if weighted else ""
        notes.append(f"edges made undirected: {counted(added, 'opposite edge')} added{larger}")
    return both


def _labels_and_splits(contents: Contents, stratify: bool) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, and masks over labelled nodes; sorts `contents.class_names`."""
    origin, notes = contents.origin, contents.notes
    if contents.labels is None:
        given = ", and the given splits are ignored" if contents.splits is not None else ""
        notes.append(f"no labels: no model can be trained on this graph{given}")
        return np.full(contents.x.size(0), -1, dtype=np.int64), []
    y = _sort_classes(contents, contents.labels)
    names = contents.class_names
    if len(names) < 2:
        got = f"one class ({names[0]!r})" if names else "no labelled node"
        raise DataError(f"{origin} has {got}, expected labelled nodes of two classes or more")
    unlabelled = int((y < 0).sum())
    if unlabelled:
        notes.append(f"{counted(unlabelled, 'unlabelled node')} kept, in no part of any split")
    single = [names[k] for k in np.flatnonzero(np.bincount(y[y >= 0], minlength=len(names)) == 1)]
    if single and stratify and contents.splits is None:
        raise DataError(f"{origin}: class {single[0]!r} has one member, expected two or more to stratify")
    if single:
        notes.append(f"{counted(len(single), 'class', 'classes')} with one member: {listed(single)}")
    if contents.splits is None:
        return y, _random_splits(contents, y, stratify)
    if stratify:
        notes.append("splits are given, so stratify has no effect")
    return y, _given_splits(contents, contents.splits, torch.from_numpy(y >= 0))


def _sort_classes(contents: Contents, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    names = contents.class_names
    numeric = all(name.removeprefix("-").isdecimal() and name.isascii() for name in names)
    # Equal numbers that are written differently ("1", "01") are separate classes, ordered by their text.
    order = sorted(range(len(names)), key=lambda k: (int(names[k]), names[k]) if numeric else (0, names[k]))
    contents.class_names = [names[k] for k in order]
    if contents.class_names != [str(k) for k in range(len(names))]:
        shown = listed([f"{name!r} is {k}" for k, name in enumerate(contents.class_names)])
        contents.notes.append(f"classes numbered in sorted order: {shown}")
    index = np.full(len(names) + 1, -1, dtype=np.int64)  # the last entry is that of label −1
    index[order] = np.arange(len(names))
    contents.labels = None
    return index[labels]


def _random_splits(contents: Contents, y: NDArray[np.int64], stratify: bool) -> list[Split]:
    labelled = torch.from_numpy(np.flatnonzero(y >= 0))
    classes = torch.from_numpy(y[y >= 0]) if stratify else None
    problem = f" has {counted(labelled.numel(), 'labelled node')}, expected 3 or more to split"
    try:
        random_splits(labelled.numel(), 1)  # tells too few nodes from classes that are too small
        problem = ": classes are too small to stratify, expected one of 3 nodes or more"
        splits = random_splits(labelled.numel(), NUM_SPLITS, stratify=classes)
    except ValueError:
        raise DataError(contents.origin + problem) from None
    kind = "stratified" if stratify else "random"
    contents.notes.append(f"{NUM_SPLITS} {kind} splits (48% train, 32% val, 20% test) of the labelled nodes made")
    masks = torch.zeros(NUM_SPLITS, 3, y.size, dtype=torch.bool)
    masks[..., labelled] = torch.stack([torch.stack(list(split)) for split in splits])
    return [Split(*split) for split in masks]


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
