"""Learned smoothing scores: the gates of the first layer of trained networks, by dimension.

At graph level a dimension has one score; at neighbor and pair level it has one per node or edge, of which quantiles are
kept. Networks are trained with the configuration selected for Table 1, or with one selected here by validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import path as paths
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from numpy.typing import NDArray

from gfgn.data import load
from gfgn.data.dataset import NodeDataset
from gfgn.paper.networks import (
    HYPER,
    IDLE,
    first_layer_gates,
    has_networks,
    read_chosen,
    replace_rows,
    train_networks,
    weight_norms,
)
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


def summarize(dataset: NodeDataset, run: Run) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The row of a trained GFGN in `summary.csv`, and its rows in `dimensions.csv`."""
    gates, weight = first_layer_gates(dataset, run).double().numpy(), weight_norms(run).numpy()
    quantiles = dict(zip(QUANTILES, np.quantile(gates, list(QUANTILES.values()), axis=0), strict=True))
    mean, std, first = gates.mean(axis=0), gates.std(axis=0), {"dataset": dataset.name, "model": run.model}
    numbers = {
        "min": gates.min(),
        "mean": mean.mean(),
        "max": gates.max(),
        "spread": mean.std(),
        "box": (quantiles["q75"] - quantiles["q25"]).mean(),
        "below_055": (gates < LOW).mean(),
        "idle": (weight < IDLE).mean(),
    }
    hyper = {name: getattr(run.replica, name) for name in ("split", "seed", *HYPER)}
    scores = {"val": run.val, "test": run.test} | {name: float(value) for name, value in numbers.items()}
    columns = {"weight": weight, "mean": mean, "std": std, **quantiles}
    dimensions = [
        {**first, "split": run.replica.split, "dimension": d, **{k: float(each[d]) for k, each in columns.items()}}
        for d in range(weight.size)
    ]
    return {**first, **hyper, **scores}, dimensions


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Trains the networks of the paper's figures of scores and writes the scores, figures and a page.

    Configurations come from `chosen.csv` in `out` or, for cells that it does not have, in `../table1`; cells without a
    selected configuration are skipped. If neither file exists, configurations are selected here from the paper's grid.
    Networks that the folder already has for the same configuration are not trained again.
    """
    chosen = read_chosen(out.parent / "table1" / CHOSEN) | read_chosen(out / CHOSEN)
    cells = [(SUMMARY, model, name) for model, names in FIGURES.items() for name in names]
    order = [(name, model) for _, model, name in cells]
    cells += [(RAW_SUMMARY, "gfgn-graph", name) for name in RAW]
    for file, model, name in sorted(cells, key=lambda cell: EIGHT.index(cell[2])):
        configuration = chosen.get((name, model)) if file == SUMMARY else None
        if chosen and (name, model) not in chosen:
            progress(f"scores: skipping {model} on {name}: a configuration is not selected yet")
        elif not has_networks(out / file, name, model, configuration):
            source = "configuration of chosen.csv" if configuration else "configuration selected by validation"
            normalized = "" if file == SUMMARY else ", without row normalization"
            progress(f"scores: {model} on {name}{normalized}, {source}")
            dataset = load(name, root, normalize=file == SUMMARY)
            _, runs = train_networks(model, dataset, configuration, device=device)
            rows = [summarize(dataset, run) for run in runs]
            replace_rows(out / file, [row for row, _ in rows], order)
            if file == SUMMARY:
                replace_rows(out / DIMENSIONS, rows[0][1], order)
    tables = [out / file for file in (SUMMARY, DIMENSIONS, RAW_SUMMARY) if (out / file).is_file()]
    return [*tables, *draw(out)]


def draw(out: Path) -> list[Path]:
    """Draws the figures and writes the page from the tables of a folder."""
    summary, figures = read_csv(out / SUMMARY), list[Path]()
    if not summary:
        return []
    lams = {(line["dataset"], line["model"]): float(line["lam"]) for line in summary}
    gray: dict[tuple[str, ...], Booleans] = {}  # by model and dataset, which dimensions are undecided
    for (model,), lines in group_by(read_csv(out / DIMENSIONS), "model").items():
        quantiles: dict[str, Floats] = {}
        for (name,), own in group_by(lines, "dataset").items():
            quantiles[name] = numbers(own, *QUANTILES)
            gray[model, name] = undecided(quantiles[name], lams[name, model])
        with styled():
            figure = scores_figure(quantiles, {name: gray[model, name] for name in quantiles}, model)
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


NUMBERS = ("min", "max", "below_055", "spread", "box", "idle", "test")  # of the page


def numbers(lines: Sequence[Mapping[str, str]], *columns: str) -> Floats:
    """Some columns of a table as an array."""
    return np.array([[float(line[name]) for name in columns] for line in lines])


def undecided(quantiles: Floats, lam: float) -> Booleans:
    """Which dimensions are undecided, see `UNDECIDED`, from their `[D, 7]` quantiles and λ."""
    return np.asarray((np.abs(quantiles[:, 1:-1] - lam / 2) <= UNDECIDED).all(axis=1))


def scores_figure(quantiles: Mapping[str, Floats], gray: Mapping[str, Booleans], model: str) -> Figure:
    """The scores of every dimension, one panel per dataset: a dot at graph level, else a box from quartile to quartile
    with whiskers at 5% and 95%. Dimensions whose scores stay at λ/2 are gray."""
    draw_scores, most = (_dots, 4) if model == "gfgn-graph" else (_boxes, 2)
    columns = min(most, len(gray))
    rows = math.ceil(len(gray) / columns)
    figure = Figure(figsize=(PAGE_WIDTH * max(columns, 2) / most, 0.4 + 1.45 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels: list[Axes] = grid.ravel().tolist()
    for axes, (name, own) in zip(panels, gray.items(), strict=False):
        axes.axhline(LOW, color=INK, linewidth=0.6, linestyle="--")
        for shown, color in ((own, GRAY), (~own, str(model_style(model)["color"]))):
            if shown.any():
                draw_scores(axes, np.flatnonzero(shown), quantiles[name][shown], color)
        axes.set_title(title_of(name), loc="left")
        axes.grid(axis="y")
        axes.set_xlim(-1.5, own.size + 0.5)
    panels[0].set_ylim(bottom=0)  # shared by all panels, once all are drawn
    label_panels(panels[: len(gray)])
    for axes in panels[len(gray) :]:
        axes.axis("off")
    for axes in grid[:, 0]:
        axes.set_ylabel("score")
    words = "dimension of the first layer of {} (gray: undecided, within 0.01 of λ/2)"
    figure.supxlabel(words.format(title_of(model)), fontsize=8)
    return figure


def _dots(axes: Axes, x: NDArray[np.int64], quantiles: Floats, color: str) -> None:
    axes.plot(x, quantiles[:, 0], "o", color=color, markersize=2.4, markeredgewidth=0)


def _boxes(axes: Axes, x: NDArray[np.int64], quantiles: Floats, color: str) -> None:
    """Boxes, whiskers and medians; each kind is one shape or line, which keeps files small."""
    _, low, lower, middle, upper, high, _ = quantiles.T
    _strokes(axes, (x, x), (low, high), color=color, linewidth=0.6, alpha=0.7)
    corners = [(x - 0.4, lower), (x - 0.4, upper), (x + 0.4, upper), (x + 0.4, lower)]
    boxes = np.stack([np.stack(corner, axis=1) for corner in corners], axis=1)
    shape = paths.Path.make_compound_path(*(paths.Path(box, closed=False) for box in boxes))
    axes.add_patch(PathPatch(shape, facecolor=color, alpha=0.7, linewidth=0))
    _strokes(axes, (x - 0.4, x + 0.4), (middle, middle), color=INK if color != GRAY else GRAY, linewidth=0.8)


def _strokes(axes: Axes, x: tuple[Any, Any], y: tuple[Any, Any], **style: Any) -> None:
    gap = np.full(len(x[0]), np.nan)
    axes.plot(np.stack([*x, gap], axis=1).ravel(), np.stack([*y, gap], axis=1).ravel(), **style)
