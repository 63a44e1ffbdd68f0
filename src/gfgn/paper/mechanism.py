"""The mechanism that the paper claims in its section on smoothing scores: smooth dimensions have large gates.

The smoothness of a dimension, a column `f` of `z = HW` in the first layer of a trained network, is the negative of the
paper's `fᵀLf` for `‖f‖ = 1`, with `L = I − Â`. Gates and smoothness are compared by Spearman's rank correlation over
the dimensions of a network. Its null is that of permuted gates: which dimension has which gate does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from gfgn import ops
from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.paper.outputs import read_csv, write_csv
from gfgn.paper.scores import HYPER, IDLE, first_layer_scores, read_chosen
from gfgn.runs.grid import PAPER_GRID, Configuration, make_replica, make_replicas
from gfgn.runs.selection import select
from gfgn.runs.study_files import CHOSEN
from gfgn.train.loop import train_replicas
from gfgn.train.replica import Run
from gfgn.train.task import with_sparse_features

Floats = NDArray[np.float64]

MODELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair")
DATASETS = (  # the small ones first
    *("texas", "wisconsin", "cornell", "dimensions", "cora", "citeseer"),
    *("actor", "pubmed", "blogcatalog", "flickr"),
)
SPLITS = 10
PERMUTATIONS = 9_999
FEWEST = 5  # dimensions with weights that a rank correlation needs
FILE, FIGURE = "mechanism.csv", "mechanism.svg"


class Correlation(NamedTuple):
    """The gates and the smoothness of one network; NaN where a correlation is not defined.

    Attributes:
        rank_correlation: Of gate and smoothness, as in the paper.
        null_low, null_high: The middle 95% of the correlations with permuted gates.
        p: The two-sided p-value of that null.
        centered: Of gate and smoothness of the column without its mean: a constant is smooth and says nothing.
        label: Of gate and smoothness of the label part of that: every value replaced by the mean of its class.
        truth: Of gate and the share of a dimension's squared weights that belong to smooth features, where it is known.
        dimensions: Number of dimensions that are compared: those whose weights have not vanished.
    """

    dataset: str
    model: str
    split: int
    rank_correlation: float
    null_low: float
    null_high: float
    p: float
    centered: float
    label: float
    truth: float
    dimensions: int


COLUMNS = (*Correlation._fields, *HYPER)


# --- one network ------------------------------------------------------------------------------------------------------


def smoothness(z: Tensor, graph: Graph) -> Floats:
    """`[D]`: the negative Rayleigh quotient `−fᵀLf / fᵀf` of every column of `z`; NaN for a column of zeros.

    As a sum over edges of `(f_i/√d_i − f_j/√d_j)²`, a node without neighbors adds nothing to `fᵀLf`.
    """
    f = z.double()
    alone = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes) == 0
    laplacian = (f - ops.propagate(f, graph)).masked_fill(alone.unsqueeze(1), 0.0)
    return np.asarray((-(f * laplacian).sum(0) / f.square().sum(0)).numpy())


def rank_correlation(first: Floats, second: Floats) -> float:
    """Spearman's rank correlation, ties with their mean rank; NaN with fewer than `FEWEST` values or equal ones."""
    a, b = _ranks(first), _ranks(second)
    return float(a @ b) if a.size >= FEWEST else math.nan


def permutation_null(first: Floats, second: Floats, count: int = PERMUTATIONS, seed: int = 0) -> tuple[float, ...]:
    """The middle 95% of the rank correlations of permuted `first` with `second`, and the two-sided p-value."""
    a, b = _ranks(first), _ranks(second)
    measured = rank_correlation(first, second)
    if math.isnan(measured):
        return math.nan, math.nan, math.nan
    null = np.random.default_rng(seed).permuted(np.tile(a, (count, 1)), axis=1) @ b
    low, high = np.quantile(null, [0.025, 0.975]).tolist()
    return low, high, (1 + int((np.abs(null) >= abs(measured) - 1e-12).sum())) / (count + 1)


def _ranks(values: Floats) -> Floats:
    """The ranks, centered and of length 1; NaN if all values are equal or one is NaN."""
    from scipy.stats import rankdata

    if np.isnan(values).any():
        return np.full(values.size, math.nan)
    ranks = rankdata(values) - (values.size + 1) / 2
    length = np.linalg.norm(ranks)
    return np.asarray(ranks / length if length > 0 else np.full(values.size, math.nan))


def label_part(z: Tensor, y: Tensor) -> Tensor:
    """Every value replaced by the mean of its column over the nodes of the same class; 0 for a node without label."""
    known = y >= 0
    classes = functional.one_hot(y.clamp(min=0)).to(z.dtype) * known.unsqueeze(1)
    means = classes.t() @ z / classes.sum(0).clamp(min=1).unsqueeze(1)
    return classes @ means


def correlate(dataset: NodeDataset, run: Run) -> Correlation:
    """Compares the first-layer gates of a trained GFGN, averaged over nodes or edges, with the smoothness."""
    assert run.state is not None
    gates = first_layer_scores(dataset, run).double().mean(0).numpy()
    weight = run.state["convs.0.lin.weight"]
    norms = weight.double().norm(dim=1).numpy()
    used = norms >= IDLE * norms.max()
    gates, weight = gates[used], weight[torch.from_numpy(used)]
    z = ops.linear(dataset.x, weight).double()
    smooth, centered = smoothness(z, dataset.graph), z - z.mean(0)
    truth = math.nan
    if dataset.smooth_dimensions is not None:
        squares = weight.double().square()
        share = squares[:, dataset.smooth_dimensions].sum(1) / squares.sum(1)
        truth = rank_correlation(gates, share.numpy())
    return Correlation(
        dataset=dataset.name,
        model=run.model,
        split=run.replica.split,
        rank_correlation=rank_correlation(gates, smooth),
        **dict(zip(("null_low", "null_high", "p"), permutation_null(gates, smooth), strict=True)),
        centered=rank_correlation(gates, smoothness(centered, dataset.graph)),
        label=rank_correlation(gates, smoothness(label_part(centered, dataset.y), dataset.graph)),
        truth=truth,
        dimensions=int(used.sum()),
    )


def train_and_correlate(
    model: str,
    dataset: NodeDataset,
    configuration: Configuration | None = None,
    *,
    splits: int = SPLITS,
    device: str = "cpu",
    grid: Sequence[Configuration] = tuple(PAPER_GRID),
    max_epochs: int = 400,
    patience: int = 100,
) -> tuple[Configuration, list[Correlation]]:
    """Trains a GFGN on the first splits, every split with a seed of its own, so that the networks are independent.

    Without a `configuration`, the one of `grid` with the best mean validation score is used; it is returned.
    """
    data = with_sparse_features(dataset.to(device))
    settings: dict[str, Any] = {"max_epochs": max_epochs, "patience": patience, "device": device, "history": False}
    if configuration is None:
        tuning = train_replicas(model, data, make_replicas(model, grid, range(splits)), **settings, gates=False)
        configuration = select(tuning).best
    replicas = [make_replica(configuration, split, seed=split) for split in range(splits)]
    runs = train_replicas(model, data, replicas, **settings, gates=False, keep_state=True)
    here = dataset.to("cpu")
    return configuration, [correlate(here, _on_cpu(run)) for run in runs]


def _on_cpu(run: Run) -> Run:
    assert run.state is not None
    return replace(run, state={name: value.cpu() for name, value in run.state.items()})


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(
    out: Path,
    *,
    root: Path | None,
    device: str,
    progress: Callable[[str], None],
    models: Sequence[str] = (),
    datasets: Sequence[str] = (),
    **settings: Any,
) -> list[Path]:
    """Trains the networks whose correlations the table lacks, and writes the table and a figure.

    Configurations are those chosen for one gate per dimension in the study `thesis`, in `out`; for cells that it does
    not have, those of `../table1`; else they are selected here. Networks of another configuration are trained again.

    Args:
        out, root, device, progress: See `gfgn.paper.analyses`.
        models: Models to train; all three levels by default.
        datasets: Datasets to train on; all of `DATASETS` by default.
        **settings: Further arguments of `train_and_correlate`.
    """
    from gfgn.data import load

    for option, names, known in (("models", models, MODELS), ("datasets", datasets, DATASETS)):
        for name in names:
            if name not in known:
                raise ValueError(f"{option} must be among {', '.join(known)}, got {name!r}")
    chosen = read_chosen(out.parent / "table1" / CHOSEN) | read_chosen(out / CHOSEN, "dimension")
    splits = settings.get("splits", SPLITS)
    for name in datasets or DATASETS:
        for model in models or MODELS:
            configuration = chosen.get((name, model))
            if _has(read_csv(out / FILE), name, model, configuration, splits):
                continue
            source = "configuration of chosen.csv" if configuration else "configuration selected by validation"
            progress(f"mechanism: {model} on {name}, {source}")
            made = train_and_correlate(model, load(name, root), configuration, device=device, **settings)
            _replace(out / FILE, *made)
    return [out / FILE, *draw(out)]


def _has(
    lines: Sequence[dict[str, str]], dataset: str, model: str, configuration: Configuration | None, splits: int
) -> bool:
    """Whether a table has all splits of a model on a dataset, with the configuration if one is given."""
    own = [line for line in lines if (line["dataset"], line["model"]) == (dataset, model)]
    wanted = configuration or {}
    same = all(float(line[name]) == float(wanted[name]) for line in own for name in HYPER if name in wanted)
    return same and {int(line["split"]) for line in own} == set(range(splits))


def _replace(path: Path, configuration: Configuration, made: Sequence[Correlation]) -> None:
    """Replaces the rows of one model on one dataset."""
    lines = [line for line in read_csv(path) if (line["dataset"], line["model"]) != made[0][:2]]
    rows: list[tuple[Any, ...]] = [tuple(line[name] for name in COLUMNS) for line in lines]
    rows += [(*each, *(configuration[name] for name in HYPER)) for each in made]
    rows.sort(key=lambda row: (DATASETS.index(row[0]) if row[0] in DATASETS else -1, row[0], MODELS.index(row[1])))
    write_csv(path, COLUMNS, rows, digits=5)


def read_correlations(path: Path) -> list[Correlation]:
    """The correlations of a table; an empty list if there is no such file."""
    kinds: dict[str, Callable[[str], Any]] = {"dataset": str, "model": str, "split": int, "dimensions": int}
    return [
        Correlation(*(kinds.get(name, float)(line[name]) for name in Correlation._fields)) for line in read_csv(path)
    ]


def draw(out: Path) -> list[Path]:
    """Draws the figure from the table of a folder; an empty list without a table."""
    from gfgn.paper.figures.mechanism import mechanism_figure
    from gfgn.report.style import save_svg

    cells: dict[tuple[str, str], list[Correlation]] = {}
    for each in read_correlations(out / FILE):
        if not math.isnan(each.rank_correlation):
            cells.setdefault((each.dataset, each.model), []).append(each)
    values = {key: [each.rank_correlation for each in own] for key, own in cells.items()}
    half = {key: mean_correlation(own).half for key, own in cells.items()}
    return [save_svg(mechanism_figure(values, half), out / FIGURE)] if cells else []


# --- several networks -------------------------------------------------------------------------------------------------


class Mean(NamedTuple):
    """The mean rank correlation of several networks.

    Attributes:
        half: The mean of permuted gates is within ±`half` with a probability of 95%.
        p: Its two-sided p-value; 1 if no network has a correlation.
    """

    mean: float
    half: float
    p: float
    networks: int


def mean_correlation(correlations: Sequence[Correlation], measure: str = "rank_correlation") -> Mean:
    """The mean over networks of one of the rank correlations, with its null.

    A rank correlation with one side permuted has mean 0 and variance `1 / (n − 1)` for `n` dimensions, with or without
    ties. Permutations of different networks are independent, and their mean is close to normal.
    """
    defined = [each for each in correlations if not math.isnan(getattr(each, measure))]
    if not defined:
        return Mean(math.nan, math.nan, 1.0, 0)
    mean = math.fsum(getattr(each, measure) for each in defined) / len(defined)
    deviation = math.sqrt(math.fsum(1 / (each.dimensions - 1) for each in defined)) / len(defined)
    return Mean(mean, 1.959964 * deviation, math.erfc(abs(mean) / deviation / math.sqrt(2)), len(defined))
