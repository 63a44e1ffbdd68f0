"""Learned smoothing scores: the gates of the first layer of trained networks, by dimension.

At graph level a dimension has one score; at neighbor and pair level it has one per node or edge, of which quantiles are
kept. Networks are trained with the configuration selected for Table 1, or with one selected here by validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gfgn.data.dataset import NodeDataset
from gfgn.paper.networks import HYPER, IDLE, SPLITS, fill_tables, first_layer_gates, read_chosen, weight_norms
from gfgn.paper.pages import group_by, read_csv, title_of, write_page
from gfgn.report.style import INK, PAGE_WIDTH, label_panels, model_style, save_svg, styled
from gfgn.runs.study_files import CHOSEN
from gfgn.train.replica import Run

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
EIGHT = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")
FIGURES = {"gfgn-graph": EIGHT, "gfgn-neighbor": EIGHT, "gfgn-pair": ("blogcatalog", "flickr", "texas", "cora")}
RAW = ("blogcatalog", "cora")  # where the paper gives numbers, GFGN-graph also without row normalization
QUANTILES = {"min": 0.0, "q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95, "max": 1.0}
UNDECIDED = 0.01  # a dimension is undecided if 90% of its scores are at most this far from λ/2, where they begin
LOW = 0.55  # the score that separates low from high scores in the paper
GRAY = "#B3B3B3"
SUMMARY, DIMENSIONS, RAW_SUMMARY, PAGE = "summary.csv", "dimensions.csv", "raw.csv", "dimensions.md"
NUMBERS = ("min", "max", "below_055", "spread", "box", "idle", "test")  # of the page


def summarize(dataset: NodeDataset, run: Run) -> list[dict[str, object]]:
    """The row of a trained GFGN in `summary.csv`."""
    gates, weight = first_layer_gates(dataset, run).double().numpy(), weight_norms(run).numpy()
    mean, (low, high) = gates.mean(axis=0), np.quantile(gates, [0.25, 0.75], axis=0)
    numbers = {
        "min": gates.min(),
        "mean": mean.mean(),
        "max": gates.max(),
        "spread": mean.std(),
        "box": (high - low).mean(),
        "below_055": (gates < LOW).mean(),
        "idle": (weight < IDLE).mean(),
    }
    row = {"dataset": dataset.name, "model": run.model, "split": run.replica.split, "seed": run.replica.seed}
    row |= {name: getattr(run.replica, name) for name in HYPER}
    return [row | {"val": run.val, "test": run.test} | {name: float(value) for name, value in numbers.items()}]


def list_dimensions(dataset: NodeDataset, run: Run) -> list[dict[str, object]]:
    """The rows of a trained GFGN in `dimensions.csv`, which has those of the first split."""
    gates, weight = first_layer_gates(dataset, run).double().numpy(), weight_norms(run).numpy()
    quantiles = zip(QUANTILES, np.quantile(gates, list(QUANTILES.values()), axis=0), strict=True)
    columns = {"weight": weight, "mean": gates.mean(axis=0), "std": gates.std(axis=0), **dict(quantiles)}
    first = {"dataset": dataset.name, "model": run.model, "split": run.replica.split}
    numbers = [{name: float(values[d]) for name, values in columns.items()} for d in range(weight.size)]
    return [{**first, "dimension": d, **own} for d, own in enumerate(numbers)] if run.replica.split == 0 else []


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Trains the networks of the paper's figures of scores that the tables lack and writes scores, figures and a page.

    Configurations come from `chosen.csv` in `out` or, for cells that it does not have, in `../table1`; without either,
    configurations are selected here from the paper's grid.
    """
    chosen = read_chosen(out.parent / "table1" / CHOSEN) | read_chosen(out / CHOSEN)
    order = [(name, model) for model, names in FIGURES.items() for name in names]
    fill = partial(fill_tables, seeds=(0,) * SPLITS, order=order, root=root, device=device, progress=progress)
    fill({out / SUMMARY: summarize, out / DIMENSIONS: list_dimensions}, order, chosen)
    fill({out / RAW_SUMMARY: summarize}, [(name, "gfgn-graph") for name in RAW], {}, normalize=False)
    return [*(out / file for file in (SUMMARY, DIMENSIONS, RAW_SUMMARY)), *draw(out)]


def draw(out: Path) -> list[Path]:
    """Draws the figures and writes the page from the tables of a folder; nothing without them."""
    summary, figures = read_csv(out / SUMMARY), list[Path]()
    if not summary:
        return []
    lams = {(line["dataset"], line["model"]): float(line["lam"]) for line in summary}
    gray: dict[tuple[str, ...], Booleans] = {}  # by model and dataset, which dimensions are undecided
    for (model,), lines in group_by(read_csv(out / DIMENSIONS), "model").items():
        quantiles = {name: numbers(own, *QUANTILES) for (name,), own in group_by(lines, "dataset").items()}
        gray |= {(model, name): undecided(own, lams[name, model]) for name, own in quantiles.items()}
        with styled():
            figure = draw_scores(quantiles, {name: gray[model, name] for name in quantiles}, model)
        figures.append(save_svg(figure, out / f"{model}.svg"))
    groups = {
        title: {
            key: (numbers(own, *NUMBERS), float(own[0]["lam"]))
            for key, own in group_by(lines, "model", "dataset").items()
        }
        for title, lines in (("", summary), (", without row normalization", read_csv(out / RAW_SUMMARY)))
    }
    shares = {key: 100 * own.mean() for key, own in gray.items()}
    return [*figures, write_page(out / PAGE, "scores", groups=groups, undecided=shares)]


def numbers(lines: Sequence[Mapping[str, str]], *columns: str) -> Floats:
    """Some columns of a table as an array."""
    return np.array([[float(line[name]) for name in columns] for line in lines])


def undecided(quantiles: Floats, lam: float) -> Booleans:
    """Which dimensions are undecided, see `UNDECIDED`, from their `[D, 7]` quantiles and λ."""
    return np.asarray((np.abs(quantiles[:, 1:-1] - lam / 2) <= UNDECIDED).all(axis=1))


def draw_scores(quantiles: Mapping[str, Floats], gray: Mapping[str, Booleans], model: str) -> Figure:
    """The scores of every dimension, one panel per dataset: a dot at graph level, else a box from quartile to quartile
    with whiskers at 5% and 95%. Dimensions whose scores stay at λ/2 are gray."""
    dots = model == "gfgn-graph"
    columns = min(4 if dots else 2, len(gray))
    size = (PAGE_WIDTH * max(columns, 2) / (4 if dots else 2), 0.4 + 1.45 * math.ceil(len(gray) / columns))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(math.ceil(len(gray) / columns), columns, squeeze=False, sharex=True, sharey=True)
    for axes, (name, own) in zip(grid.flat, gray.items(), strict=False):
        axes.axhline(LOW, color=INK, linewidth=0.6, linestyle="--")
        for shown, color in ((own, GRAY), (~own, str(model_style(model)["color"]))):
            x, values = np.flatnonzero(shown), quantiles[name][shown]
            if dots:
                axes.plot(x, values[:, 0], "o", color=color, markersize=2.4, markeredgewidth=0)
            else:
                _draw_boxes(axes, x, values, color)
        axes.set_title(title_of(name), loc="left")
        axes.grid(axis="y")
        axes.set_xlim(-1.5, own.size + 0.5)
    grid[0, 0].set_ylim(bottom=0)  # shared by all panels, once all are drawn
    label_panels(list(grid.flat)[: len(gray)])
    for axes in list(grid.flat)[len(gray) :]:
        axes.axis("off")
    for axes in grid[:, 0]:
        axes.set_ylabel("score")
    words = "dimension of the first layer of {} (gray: undecided, within 0.01 of λ/2)"
    figure.supxlabel(words.format(title_of(model)), fontsize=8)
    return figure


def _draw_boxes(axes: Axes, x: NDArray[np.int64], quantiles: Floats, color: str) -> None:
    """Boxes, whiskers and medians."""
    _, low, lower, middle, upper, high, _ = quantiles.T
    gap = np.full(x.size, np.nan)  # between the pieces of one line, which keeps files small
    for ends, width in (((low, high), 0.6), ((lower, upper), 2.4)):
        line = np.stack([*ends, gap], axis=1).ravel()
        axes.plot(np.repeat(x, 3), line, color=color, linewidth=width, alpha=0.7, solid_capstyle="butt")
    across = np.stack([x - 0.4, x + 0.4, gap], axis=1).ravel()
    axes.plot(across, np.repeat(middle, 3), color=INK if color != GRAY else GRAY, linewidth=0.8)
