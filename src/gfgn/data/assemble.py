"""`assemble`: a `NodeDataset` from the contents of a user's files; every repair is recorded in a note."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gfgn.data.columns import KINDS, RawFeatures
from gfgn.data.dataset import NodeDataset, default_metric
from gfgn.data.encoder import FeatureEncoder
from gfgn.data.messages import DataError, counted, listed
from gfgn.data.raw import RawGraph, ReadOptions
from gfgn.data.splits import Split, labelled_splits, split_masks
from gfgn.graph import Graph, TwoWeights, merge_edges, symmetrize

KEEP = "undirected=False (--directed)"  # what keeps the direction of edges
IMBALANCED = 0.8  # fraction of the largest class beyond which accuracy says little


class Reading(NamedTuple):
    """A dataset, and one sentence per repair or choice.

    Attributes:
        raw: The features before they were encoded; `None` if only the dataset is known.
    """

    dataset: NodeDataset
    notes: list[str]
    raw: RawFeatures | None = None


def assemble(raw: RawGraph, options: ReadOptions) -> Reading:
    """Builds the dataset of what has been read from files."""
    y, splits = _labels_and_splits(raw, options) if options.class_names is None else _labels_of_model(raw, options)
    labels, num_classes = torch.from_numpy(y), len(raw.class_names)
    metric = options.metric or default_metric(labels, num_classes)
    sizes = np.bincount(y[y >= 0], minlength=1)
    largest = sizes.max() / max(1, sizes.sum())
    if metric == "accuracy" and largest > IMBALANCED:
        imbalanced = f"imbalanced: {largest:.0%} of the labelled nodes are of class"
        raw.notes.append(f"{imbalanced} {raw.class_names[int(sizes.argmax())]!r}, so that accuracy says little")
    encoder = options.encoder
    if encoder is None:  # fitted on the nodes in the training part of any split, or on all without splits
        train = torch.stack([split.train for split in splits]).any(0) if splits else None
        encoder = FeatureEncoder.fit(raw.raw, train, options.scale)
        raw.notes += encoder.notes()
    dataset = NodeDataset(
        name=raw.name,
        x=encoder.transform(raw.raw, raw.notes),
        graph=_graph(raw, options.undirected),
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
    return Reading(dataset, raw.notes, raw.raw)


def _graph(raw: RawGraph, undirected: bool) -> Graph:
    """The graph: no self-loops, every edge once, both directions if `undirected`."""
    (source, target), weight, weighted = raw.edges, raw.weight, raw.weight is not None
    loop = source == target
    zero = np.zeros_like(loop) if weight is None else weight == 0
    given = int((~loop & ~zero).sum())
    if weight is not None and zero.any():
        source, target, weight = source[~zero], target[~zero], weight[~zero]
    try:
        matrix = merge_edges(source, target, weight, len(raw.node_ids))
        if weighted and not np.isfinite(matrix.data).all():
            raise ValueError("the weights of a repeated edge sum to infinity, expected a finite sum")
        both = symmetrize(matrix) if undirected else matrix
        loops, zeros = int(loop.sum()), int((zero & ~loop).sum())
        raw.notes += edge_notes(loops, zeros, given - matrix.nnz, both.nnz - matrix.nnz, weighted)
        return Graph.from_csr(both, undirected=undirected)
    except TwoWeights as error:
        raise DataError(f"{raw.edge_origin}: {error.message(raw.node_ids.tolist().__getitem__, KEEP)}") from None
    except ValueError as error:  # weights that are finite, but not their sums
        raise DataError(f"{raw.edge_origin}: {error}") from error


def edge_notes(loops: int, zero: int, repeated: int, added: int, weighted: bool) -> list[str]:
    """What was changed about the edges; `added` is the number of opposite edges."""
    notes = [f"{counted(loops, 'self-loop')} dropped"] if loops else []
    notes += [f"{counted(zero, 'edge')} of weight 0 dropped"] if zero else []
    if repeated:
        notes.append(f"{counted(repeated, 'duplicate edge')} merged{', their weights added' if weighted else ''}")
    return [*notes, *([f"edges made undirected: {counted(added, 'opposite edge')} added"] if added else [])]


# --- labels and splits ------------------------------------------------------------------------------------------------


def _labels_of_model(raw: RawGraph, options: ReadOptions) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, if any, numbered as in the model, and the given splits, if any."""
    found, raw.class_names = raw.class_names, list(options.class_names or ())
    if raw.labels is None:
        return np.full(len(raw.node_ids), -1, dtype=np.int64), []
    y = np.array([*map(raw.class_names.index, found), -1], dtype=np.int64)[raw.labels]  # the last is that of label −1
    return y, [] if raw.parts is None else split_masks(np.where(y >= 0, raw.parts, -1))


def _labels_and_splits(raw: RawGraph, options: ReadOptions) -> tuple[NDArray[np.int64], list[Split]]:
    """The labels, and masks over labelled nodes."""
    notes = raw.notes
    if raw.labels is None:
        given = ", and the given splits are ignored" if raw.parts is not None else ""
        notes.append(f"no labels: no model can be trained on this graph{given}")
        return np.full(len(raw.node_ids), -1, dtype=np.int64), []
    _check_classes(raw, raw.labels)
    y, names = raw.labels, raw.class_names
    if not raw.named_classes and names != [str(k) for k in range(len(names))]:
        shown = listed([f"{name!r} is {k}" for k, name in enumerate(names)])
        notes.append(f"classes numbered in sorted order: {shown}")
    unlabelled = int((y < 0).sum())
    if unlabelled:
        notes.append(f"{counted(unlabelled, 'unlabelled node')} kept, in no part of any split")
    single = [names[k] for k in np.flatnonzero(np.bincount(y[y >= 0], minlength=len(names)) == 1)]
    if single and options.stratify and raw.parts is None:
        raise DataError(f"{raw.origin}: class {single[0]!r} has one member, expected two or more to stratify")
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


def _random_splits(raw: RawGraph, y: NDArray[np.int64], options: ReadOptions) -> list[Split]:
    try:
        splits = labelled_splits(torch.from_numpy(y), options.num_splits, options.fractions, options.stratify)
    except ValueError:
        few = f"{counted(int((y >= 0).sum()), 'labelled node')}, expected 3 or more to split"
        problem = "classes that are too small to stratify" if options.stratify else few
        raise DataError(f"{raw.origin} has {problem}") from None
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


# --- description ------------------------------------------------------------------------------------------------------


def describe_reading(reading: Reading) -> str:
    """How the files were understood, as lines for a terminal."""
    data = reading.dataset
    assert data.node_ids is not None
    assert data.encoder is not None
    direction = "both directions counted" if data.graph.by_source is data.graph.by_target else "directed"
    weighted = "" if data.graph.weight is None else ", weighted"
    kinds = Counter(KINDS[column.kind].word for column in data.encoder.columns)
    words = dict.fromkeys(kind.word for kind in KINDS.values())
    columns = ", ".join(f"{kinds[word]:,} {word}" for word in words if word in kinds)
    sizes = np.bincount(data.y[data.y >= 0], minlength=data.num_classes).tolist()
    classes = [f"{name} ({size:,})" for name, size in zip(data.class_names or [], sizes, strict=False)]
    splits = "none"
    if data.splits:
        parts = ", ".join(f"{part} {int(mask.sum()):,}" for part, mask in data.splits[0]._asdict().items())
        splits = f"{len(data.splits)}; the first: {parts}"
    lines = {
        "nodes": f"{data.num_nodes:,} (ids such as {listed([repr(name) for name in data.node_ids[:3].tolist()])})",
        "edges": f"{data.graph.num_edges:,}, {direction}{weighted}",
        "columns": f"{kinds.total():,}: {columns}",
        "features": f"{data.num_features:,}: {listed(data.feature_names)}; scale {data.encoder.scale}",
        "classes": f"{data.num_classes:,}{': ' if classes else ''}{listed(classes, 10)}",
        "splits": splits,
        "metric": data.metric,
    }
    notes = [("note", note) for note in reading.notes or ["nothing was changed"]]
    return "\n".join([data.name, *(f"  {name:<10}{text}" for name, text in [*lines.items(), *notes])])
