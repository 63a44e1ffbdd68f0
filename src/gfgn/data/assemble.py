"""`assemble`: a `NodeDataset` from the contents of a user's files; every repair is recorded in a note."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import NodeDataset, default_metric
from gfgn.data.encoder import FeatureEncoder
from gfgn.data.messages import DataError, counted, listed
from gfgn.data.raw import RawGraph, ReadOptions
from gfgn.data.splits import Split, labelled_splits, random_splits
from gfgn.graph import Graph, TwoWeights, merge_edges, symmetrize

KEEP = "undirected=False (--directed)"  # what keeps the direction of edges
IMBALANCED = 0.8  # fraction of the largest class beyond which accuracy says little


def assemble(raw: RawGraph, name: str, options: ReadOptions) -> NodeDataset:
    """Builds the dataset and appends to `raw.notes`."""
    if options.class_names is None:
        y, splits = _labels_and_splits(raw, options)
    else:
        y, splits = _labels_of_model(raw, options.class_names)
    labels, num_classes = torch.from_numpy(y), len(raw.class_names)
    metric = options.metric or default_metric(labels, num_classes)
    _note_imbalance(raw, y, metric)
    x, encoder = _features(raw, options, splits)
    return NodeDataset(
        name=name,
        graph=_graph(raw, options.undirected),
        x=x,
        y=labels,
        num_classes=num_classes,
        metric=metric,
        feature_names=encoder.feature_names,
        splits=splits,
        description=f"Read from {raw.origin}.",
        class_names=raw.class_names or None,
        node_ids=raw.node_ids,
        encoder=encoder,
    )


def _features(raw: RawGraph, options: ReadOptions, splits: list[Split]) -> tuple[Tensor, FeatureEncoder]:
    """The features; the encoder is fitted on the nodes in the training part of any split, or on all without splits."""
    if options.encoder is not None:
        return options.encoder.transform(raw.raw, raw.notes), options.encoder
    train = torch.stack([split.train for split in splits]).any(0) if splits else None
    encoder = FeatureEncoder.fit(raw.raw, train, options.scale)
    raw.notes += encoder.notes()
    return encoder.transform(raw.raw, raw.notes), encoder


def _note_imbalance(raw: RawGraph, y: NDArray[np.int64], metric: str) -> None:
    sizes = np.bincount(y[y >= 0], minlength=1)
    largest = sizes.max() / max(1, sizes.sum())
    if metric == "accuracy" and largest > IMBALANCED:
        name = raw.class_names[int(sizes.argmax())]
        raw.notes.append(
            f"imbalanced: {largest:.0%} of the labelled nodes are of class {name!r}, so that accuracy says little"
        )


def _graph(raw: RawGraph, undirected: bool) -> Graph:
    try:
        return Graph.from_csr(_adjacency(raw, undirected), undirected=undirected)
    except TwoWeights as error:
        raise DataError(f"{raw.edge_origin}: {error.message(raw.node_ids.tolist().__getitem__, KEEP)}") from None
    except ValueError as error:  # weights that are finite, but not their sums
        raise DataError(f"{raw.edge_origin}: {error}") from error


def _adjacency(raw: RawGraph, undirected: bool) -> scipy.sparse.csr_array:
    """`A` with one row per target: no self-loops, every edge once, both directions if `undirected`."""
    source, target = raw.edges
    weight, notes, weighted = raw.weight, raw.notes, raw.weight is not None
    loop = source == target
    given = loop.size - int(loop.sum())
    zero = 0
    if weight is not None and not weight.all():
        none = weight == 0
        zero = int((none & ~loop).sum())
        given -= zero
        source, target, weight = source[~none], target[~none], weight[~none]
    matrix = merge_edges(source, target, weight, len(raw.node_ids))
    if weighted and not np.isfinite(matrix.data).all():
        raise ValueError("the weights of a repeated edge sum to infinity, expected a finite sum")
    both = symmetrize(matrix) if undirected else matrix
    notes += edge_notes(int(loop.sum()), zero, given - matrix.nnz, both.nnz - matrix.nnz, weighted)
    return both


def edge_notes(loops: int, zero: int, repeated: int, added: int, weighted: bool) -> list[str]:
    """What was changed about the edges; `added` is the number of opposite edges."""
    notes = [f"{counted(loops, 'self-loop')} dropped"] if loops else []
    notes += [f"{counted(zero, 'edge')} of weight 0 dropped"] if zero else []
    if repeated:
        notes.append(f"{counted(repeated, 'duplicate edge')} merged{', their weights added' if weighted else ''}")
    return [*notes, *([f"edges made undirected: {counted(added, 'opposite edge')} added"] if added else [])]


def _labels_of_model(raw: RawGraph, class_names: Sequence[str]) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, if any, numbered as in the model, and the given splits, if any."""
    found, raw.class_names = raw.class_names, list(class_names)
    if raw.labels is None:
        return np.full(len(raw.node_ids), -1, dtype=np.int64), []
    index = {name: k for k, name in enumerate(class_names)}
    y = np.array([*(index[name] for name in found), -1], dtype=np.int64)[raw.labels]  # the last is that of label −1
    return y, split_masks(np.where(y >= 0, raw.parts, -1)) if raw.parts is not None else []


def split_masks(parts: NDArray[np.integer]) -> list[Split]:
    """The masks of `[S, N]` numbers: 0, 1 and 2 for training, validation and test nodes."""
    return [Split(*(torch.from_numpy(part == k) for k in range(3))) for part in parts]


def _labels_and_splits(raw: RawGraph, options: ReadOptions) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, and masks over labelled nodes; sorts `raw.class_names`."""
    origin, notes = raw.origin, raw.notes
    if raw.labels is None:
        given = ", and the given splits are ignored" if raw.parts is not None else ""
        notes.append(f"no labels: no model can be trained on this graph{given}")
        return np.full(len(raw.node_ids), -1, dtype=np.int64), []
    _check_classes(raw, raw.labels)
    y = _sort_classes(raw, raw.labels) if raw.sort_classes else raw.labels
    names = raw.class_names
    unlabelled = int((y < 0).sum())
    if unlabelled:
        notes.append(f"{counted(unlabelled, 'unlabelled node')} kept, in no part of any split")
    single = [names[k] for k in np.flatnonzero(np.bincount(y[y >= 0], minlength=len(names)) == 1)]
    if single and options.stratify and raw.parts is None:
        raise DataError(f"{origin}: class {single[0]!r} has one member, expected two or more to stratify")
    if single:
        notes.append(f"{counted(len(single), 'class', 'classes')} with one member: {listed(single)}")
    if raw.parts is None:
        return y, _random_splits(raw, y, options)
    if options.stratify:
        notes.append("splits are given, so stratify has no effect")
    return y, _given_splits(raw, raw.parts, y >= 0)


def _check_classes(raw: RawGraph, labels: NDArray[np.int64]) -> None:
    """Refuses a single class, and labels that look like the target of a regression, or like names of nodes."""
    names, labelled = raw.class_names, int((labels >= 0).sum())
    if len(names) < 2:
        got = f"one class ({names[0]!r})" if names else "no labelled node"
        raise DataError(f"{raw.origin} has {got}, expected labelled nodes of two classes or more")
    if len(names) <= 20:
        return
    values = f"{raw.origin}: {raw.label} has {len(names):,} distinct values in {labelled:,} labelled nodes"
    try:
        fractions = sum(float(name) % 1 != 0 for name in names)
    except ValueError:  # names
        if len(names) > 100 and len(names) > labelled / 5:
            raise DataError(f"{values}, expected classes with several members each: is it an id or a text?") from None
        return
    if fractions > len(names) / 2 or len(names) > labelled / 5:
        bins = "gfgn predicts classes, so put the numbers into a few bins, such as low, medium and high"
        raise DataError(f"{values}, all of them numbers: is it a regression? {bins}")


def class_order(names: Sequence[str]) -> list[int]:
    """The order of classes: by number if all are numbers, else by name. Equal numbers that are written differently
    ("1", "01") are separate classes, ordered by their text."""
    try:
        keys = [float(name) for name in names]
    except ValueError:
        keys = [0.0] * len(names)
    return sorted(range(len(names)), key=lambda k: (keys[k], names[k]))


def _sort_classes(raw: RawGraph, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    names = raw.class_names
    order = class_order(names)
    raw.class_names = [names[k] for k in order]
    if raw.class_names != [str(k) for k in range(len(names))]:
        shown = listed([f"{name!r} is {k}" for k, name in enumerate(raw.class_names)])
        raw.notes.append(f"classes numbered in sorted order: {shown}")
    index = np.full(len(names) + 1, -1, dtype=np.int64)  # the last entry is that of label −1
    index[order] = np.arange(len(names))
    return index[labels]


def _random_splits(raw: RawGraph, y: NDArray[np.int64], options: ReadOptions) -> list[Split]:
    labelled = int((y >= 0).sum())
    problem = f" has {counted(labelled, 'labelled node')}, expected 3 or more to split"
    try:
        random_splits(labelled, 1, 0, *options.fractions)  # tells too few nodes from too small classes
        problem = ": classes are too small to stratify, expected one of 3 nodes or more"
        splits = labelled_splits(torch.from_numpy(y), options.num_splits, options.fractions, options.stratify)
    except ValueError:
        raise DataError(raw.origin + problem) from None
    kind = "stratified" if options.stratify else "random"
    parts = dict(zip(Split._fields, (*options.fractions, 1 - sum(options.fractions)), strict=True))
    sizes = ", ".join(f"{part:.0%} {name}" for name, part in parts.items() if part > 1e-9)
    raw.notes.append(f"{counted(options.num_splits, f'{kind} split')} ({sizes}) of the labelled nodes made")
    return splits


def _given_splits(raw: RawGraph, parts: NDArray[np.int64], labelled: NDArray[np.bool_]) -> list[Split]:
    """The given masks without unlabelled nodes; none may be empty."""
    kept = np.where(labelled, parts, -1)
    for k, part in enumerate(kept):
        for code, name in enumerate(Split._fields):
            if not (part == code).any():
                raise DataError(f"{raw.origin}: split {k} has no labelled node in {name}, expected one or more")
    removed = int((parts != kept).any(0).sum())
    if removed:
        raw.notes.append(f"{counted(removed, 'unlabelled node')} removed from the given splits")
    raw.notes.append(f"{counted(len(parts), 'split')} as given")
    return split_masks(kept)
