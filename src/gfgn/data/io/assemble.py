"""From edges, features and labels as they stand in a file to a `Dataset`: merging, symmetrising, splits, and a note
on every repair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import Dataset
from gfgn.data.splits import Split, random_splits
from gfgn.graph import Graph, merge_edges, symmetrize

Array: TypeAlias = NDArray[Any]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the edge rows done and the edge rows in all."""

NUM_SPLITS = 10


class DataError(ValueError):
    """A user's data cannot be read; the message names the place, what was found there and what was expected."""


@dataclass
class Edges:
    """Edges as given: node numbers in 0 … N − 1, repetitions and self-loops included."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    weight: NDArray[np.float32] | None


@dataclass
class Parts:
    """What a format's reader hands over.

    Attributes:
        origin: How messages name the source.
        labels: `[N]`, positions in `label_names`, −1 where unlabelled; `None` where there are no labels at all.
        kinds: How many features there are of each kind.
        splits: Masks as given, or `None`.
    """

    origin: str
    edges: Edges | None
    x: Tensor
    feature_names: list[str]
    kinds: dict[str, int]
    labels: NDArray[np.int64] | None
    label_names: list[str]
    splits: list[Split] | None
    ids: Array
    notes: list[str] = field(default_factory=list)


def number(count: int, thing: str, plural: str | None = None) -> str:
    """`1 edge`, `2,000 edges`."""
    return f"{count:,} {thing if count == 1 else plural or thing + 's'}"


def some(items: Sequence[object], limit: int = 5) -> str:
    """The first few items, and how many more there are."""
    shown = ", ".join(map(str, items[:limit]))
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit:,} more"


def to_float32(values: Array) -> NDArray[np.float32]:
    """The values in single precision; what is too large for it becomes infinite, which the checks then name."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def assemble(parts: Parts, name: str, *, undirected: bool, stratify: bool, normalize: bool) -> Dataset:
    """Makes the dataset and adds to `parts.notes`; releases `parts.edges` on the way."""
    # The graph last: it is the largest, and what the others need on the way is free again by then.
    y, splits = _labels_and_splits(parts, stratify)
    x = _normalized(parts) if normalize else parts.x
    graph = Graph.from_csr(_adjacency(parts, undirected), undirected=undirected)
    return Dataset(
        name=name,
        graph=graph,
        x=x,
        y=torch.from_numpy(y),
        num_classes=len(parts.label_names),
        metric="accuracy",
        feature_names=parts.feature_names,
        splits=splits,
        description=f"Read from {parts.origin}.",
    )


# --- edges ----------------------------------------------------------------------------------------


def _adjacency(parts: Parts, undirected: bool) -> scipy.sparse.csr_array:
    """`A` with a row a target: no self-loops, every edge once, both directions if `undirected`."""
    edges, parts.edges = parts.edges, None
    assert edges is not None
    loops = int((edges.source == edges.target).sum())
    if loops:
        parts.notes.append(f"{number(loops, 'self-loop')} dropped")
    _drop_weightless(edges, parts.notes)
    given, weighted = edges.source.size - int((edges.source == edges.target).sum()), edges.weight is not None
    matrix = merge_edges(edges.source, edges.target, edges.weight, parts.x.size(0))
    del edges
    if weighted and not np.isfinite(matrix.data).all():
        raise DataError(f"{parts.origin}: weights of repeated edges add up to infinity, expected a finite sum")
    if given > matrix.nnz:
        added = ", their weights added" if weighted else ""
        parts.notes.append(f"{number(given - matrix.nnz, 'duplicate edge')} merged{added}")
    return _symmetric(matrix, parts.notes, weighted) if undirected else matrix


def _drop_weightless(edges: Edges, notes: list[str]) -> None:
    """Takes edges of weight 0 out, which are none; those among them that are self-loops have been counted as such."""
    if edges.weight is None or edges.weight.all():
        return
    zero = edges.weight == 0
    notes.append(f"{number(int((zero & (edges.source != edges.target)).sum()), 'edge')} of weight 0 dropped")
    edges.source, edges.target, edges.weight = (part[~zero] for part in (edges.source, edges.target, edges.weight))


def _symmetric(matrix: scipy.sparse.csr_array, notes: list[str], weighted: bool) -> scipy.sparse.csr_array:
    both = symmetrize(matrix)
    added = both.nnz - matrix.nnz
    raised = weighted and not added and bool((both.data != matrix.data).any())
    if added or raised:
        larger = "; the larger weight where two directions differ" if weighted else ""
        notes.append(f"edges symmetrised: {number(added, 'opposite edge')} added{larger}")
    return both


# --- features -------------------------------------------------------------------------------------


def _normalized(parts: Parts) -> Tensor:
    """Features whose absolute values add up to 1 in every row."""
    parts.notes.append("features normalised: the absolute values of every row add up to 1, rows of zeros stay")
    x = parts.x
    if x.layout != torch.sparse_csr:
        return x / x.abs().sum(1, keepdim=True, dtype=torch.float64).clamp(min=1e-12).to(x.dtype)
    ptr, values = x.crow_indices(), x.values()
    row = torch.repeat_interleave(torch.arange(x.size(0)), ptr.diff())
    total = torch.zeros(x.size(0), dtype=torch.float64).index_add(0, row, values.abs().double()).clamp(min=1e-12)
    scaled = (values.double() / total[row]).to(values.dtype)
    return torch.sparse_csr_tensor(ptr, x.col_indices(), scaled, x.shape, check_invariants=True)


# --- labels and splits ----------------------------------------------------------------------------


def _labels_and_splits(parts: Parts, stratify: bool) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, and masks over labelled nodes; `parts.label_names` are in sorted order on return."""
    if parts.labels is None:
        given = ", and the splits that were given are left out" if parts.splits is not None else ""
        parts.notes.append(f"no labels: nothing can be trained on this graph{given}")
        return np.full(parts.x.size(0), -1, dtype=np.int64), []
    y = _sorted_classes(parts)
    sizes = np.bincount(y[y >= 0], minlength=len(parts.label_names))
    if len(parts.label_names) < 2:
        found = f"one class ({parts.label_names[0]!r})" if parts.label_names else "labels on no node"
        raise DataError(f"{parts.origin} holds {found}, expected nodes of two classes or more")
    unlabelled = int((y < 0).sum())
    if unlabelled:
        parts.notes.append(f"{number(unlabelled, 'unlabelled node')} kept, in no part of any split")
    single = [parts.label_names[k] for k in np.flatnonzero(sizes == 1)]
    if single and stratify and parts.splits is None:
        raise DataError(f"{parts.origin}: class {single[0]!r} has one member, expected two or more to stratify")
    if single:
        parts.notes.append(f"{number(len(single), 'class', 'classes')} with one member: {some(single)}")
    if parts.splits is None:
        return y, _made_splits(parts, y, stratify)
    if stratify:
        parts.notes.append("splits are given, so stratify changes nothing")
    return y, _given_splits(parts, y)


def _sorted_classes(parts: Parts) -> NDArray[np.int64]:
    assert parts.labels is not None
    names = parts.label_names
    numeric = all(name.removeprefix("-").isdecimal() and name.isascii() for name in names)
    # Equal numbers written differently ("1", "01") are classes of their own; the text decides between them.
    order = sorted(range(len(names)), key=lambda k: (int(names[k]), names[k]) if numeric else (0, names[k]))
    parts.label_names = [names[k] for k in order]
    if parts.label_names != [str(k) for k in range(len(names))]:
        shown = some([f"{name!r} is {k}" for k, name in enumerate(parts.label_names)])
        parts.notes.append(f"classes numbered in sorted order: {shown}")
    place = np.full(len(names) + 1, -1, dtype=np.int64)  # the last entry serves −1
    place[order] = np.arange(len(names))
    labels, parts.labels = parts.labels, None
    return place[labels]


def _made_splits(parts: Parts, y: NDArray[np.int64], stratify: bool) -> list[Split]:
    labelled = torch.from_numpy(np.flatnonzero(y >= 0))
    classes = torch.from_numpy(y[y >= 0]) if stratify else None
    try:
        random_splits(labelled.numel(), 1)  # tells too few nodes from classes that are too small
    except ValueError:
        raise DataError(
            f"{parts.origin} has {number(labelled.numel(), 'labelled node')}, expected 3 or more to split"
        ) from None
    try:
        drawn = random_splits(labelled.numel(), NUM_SPLITS, stratify=classes)
    except ValueError:
        raise DataError(f"{parts.origin}: classes are too small to stratify, expected one of 3 nodes or more") from None
    kind = "stratified" if stratify else "random"
    parts.notes.append(f"{NUM_SPLITS} {kind} splits (48% train, 32% val, 20% test) made over the labelled nodes")
    return drawn if labelled.numel() == y.size else [_spread(split, labelled, y.size) for split in drawn]


def _spread(split: Split, labelled: Tensor, size: int) -> Split:
    """The split of the labelled nodes as masks over all nodes."""
    masks = torch.zeros(3, size, dtype=torch.bool)
    masks[:, labelled] = torch.stack(list(split))
    return Split(*masks)


def _given_splits(parts: Parts, y: NDArray[np.int64]) -> list[Split]:
    """The masks less the nodes without a label, none of them empty."""
    assert parts.splits is not None
    labelled = torch.from_numpy(y >= 0)
    lost = torch.zeros_like(labelled)
    splits = []
    for k, split in enumerate(parts.splits):
        for mask in split:
            lost |= mask & ~labelled
        kept = Split(*(mask & labelled for mask in split))
        for part, mask in kept._asdict().items():
            if not mask.any():
                raise DataError(f"{parts.origin}: split {k} has no labelled node in {part}, expected one or more")
        splits.append(kept)
    if lost.any():
        parts.notes.append(f"{number(int(lost.sum()), 'unlabelled node')} taken out of the splits that were given")
    parts.notes.append(f"{number(len(splits), 'split')} as given")
    return splits
