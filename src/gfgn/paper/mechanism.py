"""The mechanism that the paper claims in its section on smoothing scores: smooth dimensions have large gates.

The smoothness of a dimension, a column `f` of `z = HW` in the first layer of a trained network, is the negative of the
paper's `fᵀLf` for `‖f‖ = 1`, with `L = I − Â`. Gates and smoothness are compared by Spearman's rank correlation over
the dimensions of a network. Its null is that of permuted gates: which dimension has which gate does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import norm, rankdata
from torch import Tensor
from torch.nn import functional

from gfgn import ops
from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.paper.evidence import LEVELS
from gfgn.paper.networks import HYPER, IDLE, SPLITS, fill_tables, first_layer_gates, read_chosen, weight_norms
from gfgn.paper.pages import group_by, read_csv, title_of
from gfgn.report.style import FAINT, INK, PAGE_WIDTH, model_style, save_svg, styled
from gfgn.runs.study_files import CHOSEN
from gfgn.train.replica import Run

Floats = NDArray[np.float64]
SMALL = ("texas", "wisconsin", "cornell", "dimensions", "cora", "citeseer")
DATASETS = (*SMALL, "actor", "pubmed", "blogcatalog", "flickr")
PERMUTATIONS = 9_999
FEWEST = 5  # dimensions with weights that a rank correlation needs
FILE = "mechanism.csv"


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
    return float(_ranks(first) @ _ranks(second)) if first.size >= FEWEST else math.nan


def permutation_null(first: Floats, second: Floats, count: int = PERMUTATIONS, seed: int = 0) -> tuple[float, ...]:
    """The middle 95% of the rank correlations of permuted `first` with `second`, and the two-sided p-value."""
    measured = rank_correlation(first, second)
    if math.isnan(measured):
        return math.nan, math.nan, math.nan
    null = np.random.default_rng(seed).permuted(np.tile(_ranks(first), (count, 1)), axis=1) @ _ranks(second)
    low, high = np.quantile(null, [0.025, 0.975]).tolist()
    return low, high, (1 + int((np.abs(null) >= abs(measured) - 1e-12).sum())) / (count + 1)


def _ranks(values: Floats) -> Floats:
    """The ranks, centered and of length 1; NaN if all values are equal or one is NaN."""
    ranks = np.asarray(rankdata(values, nan_policy="propagate")) - (values.size + 1) / 2
    length = np.linalg.norm(ranks)
    return np.asarray(ranks / length if length > 0 else np.full(values.size, math.nan))


def label_part(z: Tensor, y: Tensor) -> Tensor:
    """Every value replaced by the mean of its column over the nodes of the same class; 0 for a node without label."""
    classes = functional.one_hot(y.clamp(min=0)).to(z.dtype) * (y >= 0).unsqueeze(1)
    return classes @ (classes.t() @ z / classes.sum(0).clamp(min=1).unsqueeze(1))


def correlate(dataset: NodeDataset, run: Run) -> list[dict[str, object]]:
    """Compares the first-layer gates of a trained GFGN, averaged over nodes or edges, with the smoothness of their
    dimensions, of those whose weights have not vanished. NaN where a correlation is not defined.

    Returns the row of `mechanism.csv`: the `rank_correlation` as in the paper, the middle 95% of that with permuted
    gates and its p-value; `centered`, of the column without its mean, as a constant is smooth and says nothing;
    `label`, of the means of the classes in that; `truth`, with the share of a dimension's squared weights that belong
    to smooth features, where it is known; and the number of `dimensions`.
    """
    assert run.state is not None
    used, truth = weight_norms(run) >= IDLE, math.nan
    gates = first_layer_gates(dataset, run).double().mean(0)[used].numpy()
    weight, graph = run.state["convs.0.lin.weight"][used], dataset.graph
    z = ops.linear(dataset.x, weight).double()
    smooth, centered = smoothness(z, graph), z - z.mean(0)
    if dataset.smooth_dimensions is not None:
        squares = weight.double().square()
        truth = rank_correlation(gates, (squares[:, dataset.smooth_dimensions].sum(1) / squares.sum(1)).numpy())
    row = {"dataset": dataset.name, "model": run.model, "split": run.replica.split}
    row |= {"rank_correlation": rank_correlation(gates, smooth)}
    row |= dict(zip(("null_low", "null_high", "p"), permutation_null(gates, smooth), strict=True))
    row |= {"centered": rank_correlation(gates, smoothness(centered, graph))}
    row |= {"label": rank_correlation(gates, smoothness(label_part(centered, dataset.y), graph))}
    return [row | {"truth": truth, "dimensions": gates.size} | {name: getattr(run.replica, name) for name in HYPER}]


def analyze(
    out: Path, *, root: Path | None, device: str, progress: Callable[[str], None], datasets: Sequence[str] = DATASETS
) -> list[Path]:
    """Trains the networks on `datasets` whose correlations the table lacks, and writes the table and a figure.

    Configurations are those chosen for one gate per dimension in the study `thesis`, in `out`; for cells that it does
    not have, those of `../table1`; else they are selected here.
    """
    chosen = read_chosen(out.parent / "table1" / CHOSEN) | read_chosen(out / CHOSEN, "dimension")
    order = [(name, model) for name in DATASETS for model in LEVELS]
    fill_tables(
        {out / FILE: correlate}, [cell for cell in order if cell[0] in datasets], chosen, seeds=range(SPLITS),
        order=order, root=root, device=device, progress=progress,
    )  # fmt: skip
    return [out / FILE, *draw(out)]


class Mean(NamedTuple):
    """The mean rank correlation of several networks: that of permuted gates is within ±`half` with a probability of
    95%. Its two-sided p-value is 1 if no network has a correlation."""

    mean: float
    half: float
    p: float
    networks: int


def mean_correlation(rows: Sequence[Mapping[str, str]], measure: str = "rank_correlation") -> Mean:
    """The mean over networks of one of the rank correlations, with its null.

    A rank correlation with one side permuted has mean 0 and variance `1 / (n − 1)` for `n` dimensions, with or without
    ties. Permutations of different networks are independent, and their mean is close to normal.
    """
    known = [row for row in rows if not math.isnan(float(row[measure]))]
    if not known:
        return Mean(math.nan, math.nan, 1.0, 0)
    mean = math.fsum(float(row[measure]) for row in known) / len(known)
    deviation = math.sqrt(math.fsum(1 / (int(row["dimensions"]) - 1) for row in known)) / len(known)
    return Mean(mean, float(norm.ppf(0.975)) * deviation, 2 * float(norm.sf(abs(mean) / deviation)), len(known))


def draw(out: Path) -> list[Path]:
    """Draws the figure from the table of a folder, one row per dataset and one panel per level: the networks as ticks,
    their mean as a marker, and a band with 95% of the means of permuted gates. No figure without a table."""
    cells = group_by(read_csv(out / FILE), "dataset", "model")
    means = {key: mean for key, rows in cells.items() if (mean := mean_correlation(rows)).networks}
    if not means:
        return []
    datasets, models = (list(dict.fromkeys(key[k] for key in means)) for k in (0, 1))
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 0.7 + 0.22 * len(datasets)), layout="constrained")
        panels = figure.subplots(1, len(models), squeeze=False, sharex=True, sharey=True)[0]
        for axes, model in zip(panels, models, strict=True):
            color, marker = model_style(model)["color"], model_style(model)["marker"]
            for y, name in enumerate(datasets):
                if (name, model) in means:
                    mean = means[name, model]
                    values = [float(row["rank_correlation"]) for row in cells[name, model]]  # NaN is not drawn
                    axes.barh(y, 2 * mean.half, left=-mean.half, height=0.8, color=FAINT, alpha=0.25, linewidth=0)
                    axes.plot(values, [y] * len(values), "|", color=color, alpha=0.6, markersize=6)
                    axes.plot(mean.mean, y, marker=marker, color=color, markersize=4)
            axes.axvline(0, color=INK, linewidth=0.6)
            axes.set_title(title_of(model), loc="left")
            axes.grid(axis="x")
        panels[0].set_xlim(-1, 1)
        panels[0].set_yticks(range(len(datasets)), [title_of(name) for name in datasets])
        panels[0].set_ylim(len(datasets) - 0.5, -0.5)
        figure.supxlabel("rank correlation of gate and smoothness over the dimensions of the first layer", fontsize=8)
        return [save_svg(figure, out / "mechanism.svg")]
