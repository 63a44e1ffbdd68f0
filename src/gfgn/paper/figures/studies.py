"""Figures of studies that train: accuracy along what is varied (noise, λ), tables as forests of intervals, and what
variants change."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gfgn.paper.titles import title_of
from gfgn.report.style import BLACK, FAINT, INK, PAGE, letter, look_of, save, styled
from gfgn.runs.views import data_name
from gfgn.train.statistics import Summary, summarize

HOLLOW: dict[str, Any] = {
    "marker": "D",
    "linestyle": "",
    "markerfacecolor": "none",
    "markeredgecolor": FAINT,
    "markersize": 5,
    "markeredgewidth": 0.9,
}
"""How published values are drawn."""
SINGLE: dict[str, Any] = {"marker": "|", "linestyle": "", "markersize": 7, "markeredgewidth": 0.9}
"""How single runs are drawn."""

if TYPE_CHECKING:
    from gfgn.runs.results import Results


class Point(NamedTuple):
    """One run: where it lies along what is varied (NaN for a model that does not depend on it), and its score in %."""

    x: float
    model: str
    dataset: str
    split: int
    seed: int
    score: float


def draw_study(results: Results, folder: Path) -> list[Path]:
    """Draws what there is of a study and returns the paths of the files; none for a study without a complete cell, and
    for one of gates, whose figures are of scores.

    Args:
        results: The study and its runs.
        folder: Where to write `<study>.svg`.
    """
    study, points = results.study, study_points(results)
    if not points or any(fact.measure.startswith("gate_") for fact in study.published.facts):
        return []
    vary = None if study.vary is None else study.vary.name
    if vary == "noise":
        figure = noise_figure(points)
    elif vary == "lam":
        figure = lambda_figure(points)
    elif vary == "variant":
        gaps = study_gaps(results)
        if not gaps:
            return []
        figure = variants_figure(gaps, list(study.models))
    else:
        figure = table_figure(points, study.published.scores)
    return save(figure, folder, study.name)


def study_points(results: Results) -> list[Point]:
    """The runs of the chosen configuration of every complete cell."""
    return [
        Point(
            cell.at if isinstance(cell.at, float) else math.nan,
            cell.model,
            data_name(cell.dataset),
            place.split,
            place.seed,
            100 * row.test,
        )
        for cell in results.study.all_cells()
        for row in results[cell].rows
        for place in (row.replica,)
    ]


class Gap(NamedTuple):
    """What a variant, or what is published, has more than the variant to compare with, in points; with an interval
    where there is one."""

    variant: str
    model: str
    dataset: str
    mean: float
    low: float | None = None
    high: float | None = None


PUBLISHED = "published"
"""The row of what is published in a figure of variants."""


def study_gaps(results: Results) -> list[Gap]:
    """What every complete variant changes, and how far the published scores are from the first variant."""
    study, found = results.study, []
    assert study.vary is not None
    for cell in study.all_cells():
        base, said = results[cell].mean, study.published.score(cell.dataset, cell.model)
        if cell.at != study.vary.values[0]:
            change = results.change(cell)
            found += [] if change is None else [Gap(str(cell.at), cell.model, cell.dataset, *change[:3])]
        elif base is not None and said is not None:
            found.append(Gap(PUBLISHED, cell.model, cell.dataset, said - base))
    order = [PUBLISHED, *map(str, study.vary.values)]
    return sorted(found, key=lambda gap: order.index(gap.variant))


def noise_figure(points: Sequence[Point]) -> Figure:
    """Accuracy by the share of random edges, a panel a dataset and a line a model.

    Args:
        points: The runs; `x` is the share of edges that were added.
    """
    return _lines(points, "random edges added, % of the edges", scale=100)


def lambda_figure(points: Sequence[Point]) -> Figure:
    """Accuracy by λ, a panel a dataset and a line a level, a model without gates as a level line.

    Args:
        points: The runs; `x` is λ, NaN for a model without gates.
    """
    return _lines(points, "λ, the largest value a gate can take")


def _lines(points: Sequence[Point], label: str, scale: float = 1) -> Figure:
    datasets, models = _names(points)
    with styled():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(datasets), squeeze=False)[0])
        for axes, dataset in zip(panels, datasets, strict=True):
            for model in models:
                _line(axes, _summaries(points, dataset, model), model, scale)
            axes.set_title(title_of(dataset), loc="left")
            axes.set_xlabel(label if len(datasets) < 3 or dataset == datasets[1] else " ")
            axes.grid(axis="y")
        panels[0].set_ylabel("test accuracy, %")
        if len(panels) > 1:
            letter(panels)
        handles, labels = panels[0].get_legend_handles_labels()
        columns = math.ceil(len(labels) / math.ceil(len(labels) / 6))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3, columnspacing=1.2)
        return figure


def _line(axes: Axes, summaries: Mapping[float, Summary], model: str, scale: float) -> None:
    if not summaries:
        return
    look, gated = look_of(model), model.startswith("gfgn-")
    low, mean, high = (np.array([getattr(s, name) for s in summaries.values()]) for name in ("low", "mean", "high"))
    weight, shade = (1.6, 0.18) if gated else (0.9, 0.1)
    if all(math.isnan(x) for x in summaries):  # the same whatever x is
        axes.axhline(mean[0], linewidth=weight, label=title_of(model), **{**look, "marker": ""})
        axes.axhspan(low[0], high[0], color=look["color"], alpha=shade, linewidth=0)
        return
    x = scale * np.array(list(summaries))
    axes.plot(x, mean, markersize=4 if gated else 3.5, linewidth=weight, label=title_of(model), **look)
    axes.fill_between(x, low, high, color=look["color"], alpha=shade, linewidth=0)


def variants_figure(gaps: Sequence[Gap], models: Sequence[str]) -> Figure:
    """What every variant changes, a panel a dataset and a row a variant; the first row is what there is to explain.

    Args:
        gaps: The changes, in the order of the rows.
        models: Their models, in the order within a row.
    """
    rows, datasets = (list(dict.fromkeys(getattr(gap, name) for gap in gaps)) for name in ("variant", "dataset"))
    step = 0.7 / max(1, len(models))
    with styled():
        height = 1.0 + len(rows) * (0.1 + 0.085 * len(models))
        figure = Figure(figsize=(PAGE, height), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(datasets), squeeze=False, sharex=True, sharey=True)[0])
        for axes, dataset in zip(panels, datasets, strict=True):
            axes.axvline(0, color=INK, linewidth=0.8)
            for row in range(0, len(rows), 2):
                axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.08, linewidth=0)
            for gap in gaps:
                if gap.dataset == dataset:
                    place = rows.index(gap.variant) + (models.index(gap.model) - (len(models) - 1) / 2) * step
                    _gap(axes, gap, place)
            axes.set_title(title_of(dataset), loc="left")
            axes.set_yticks(range(len(rows)), rows)
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.tick_params(axis="y", length=0)
            axes.grid(axis="x")
        label = "change of test accuracy against the standard, points, with 95% interval over splits"
        figure.supxlabel(label, fontsize="medium")
        letter(panels if len(panels) > 1 else [])
        marks: list[Any] = [
            Line2D([], [], linestyle="", markersize=4, label=title_of(model), **_mark(model)) for model in models
        ]
        marks.append(Line2D([], [], label="published", **HOLLOW))
        figure.legend(handles=marks, loc="outside upper left", ncols=len(marks), handletextpad=0.4)
        return figure


def _gap(axes: Axes, gap: Gap, place: float) -> None:
    mark = _mark(gap.model)
    if gap.low is not None and gap.high is not None:
        axes.plot([gap.low, gap.high], [place, place], color=mark["color"], linewidth=1.4, solid_capstyle="butt")
    if gap.variant == PUBLISHED:
        axes.plot(gap.mean, place, **{**HOLLOW, "markeredgecolor": mark["color"]})
    else:
        axes.plot(gap.mean, place, markersize=4, **mark)


def _mark(model: str) -> dict[str, Any]:
    look = look_of(model)
    return {"color": look["color"], "marker": look["marker"]}


def table_figure(points: Sequence[Point], published: Mapping[str, Mapping[str, float]]) -> Figure:
    """A table as a forest: measured means with their 95% intervals, or the single runs where there is one split and so
    no interval, beside published means; a panel a dataset.

    Args:
        points: The runs; `x` does not matter.
        published: Published means in % by model and dataset.
    """
    datasets, models = _names(points)
    columns = min(3, len(datasets))
    rows = math.ceil(len(datasets) / columns)
    with styled():
        height = 0.55 + rows * (0.45 + 0.145 * len(models))
        figure = Figure(figsize=(PAGE, height), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel().tolist()
        for axes, dataset in zip(panels, datasets, strict=False):
            _forest(axes, points, published, dataset, models)
        for axes in panels[len(datasets) :]:
            axes.axis("off")
        letter(panels[: len(datasets)] if len(datasets) > 1 else [])
        for axes in panels[max(0, len(datasets) - columns) : len(datasets)]:
            axes.set_xlabel("test score, %")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), handletextpad=0.4)
        return figure


def _forest(
    axes: Axes,
    points: Sequence[Point],
    published: Mapping[str, Mapping[str, float]],
    dataset: str,
    models: Sequence[str],
) -> None:
    intervals = len({point.split for point in points}) > 1
    for place, model in enumerate(models):
        found = list(_summaries(points, dataset, model).values())
        colour = look_of(model)["color"] if model.startswith("gfgn-") else BLACK
        if found:
            summary = found[0]
            if intervals:
                ends = [summary.low, summary.high]
                axes.plot(ends, [place, place], color=colour, linewidth=1.6, solid_capstyle="butt")
            else:
                runs = [point.score for point in points if (point.dataset, point.model) == (dataset, model)]
                axes.plot(runs, [place] * len(runs), color=colour, **SINGLE)
            axes.plot(summary.mean, place, "o", color=colour, markersize=3.6)
        said = published.get(model, {}).get(dataset)
        if said is not None:
            axes.plot(said, place, **HOLLOW)
    if intervals:
        axes.plot([], [], "o-", color=BLACK, markersize=3.6, linewidth=1.6, label="measured, with 95% interval")
    else:
        axes.plot([], [], "o", color=BLACK, markersize=3.6, label="measured, mean")
        axes.plot([], [], color=BLACK, label="each run", **SINGLE)
    if any(point.dataset in published.get(point.model, {}) for point in points):
        axes.plot([], [], label="published", **HOLLOW)
    axes.set_yticks(range(len(models)), [title_of(model) for model in models])
    axes.set_ylim(len(models) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.grid(axis="y", alpha=0.12)
    axes.set_title(title_of(dataset), loc="left")


def _names(points: Sequence[Point]) -> tuple[list[str], list[str]]:
    """Datasets and models in the order in which they occur."""
    if not points:
        raise ValueError("points must hold at least one run, got none")
    return list(dict.fromkeys(p.dataset for p in points)), list(dict.fromkeys(p.model for p in points))


def _summaries(points: Sequence[Point], dataset: str, model: str) -> dict[float, Summary]:
    """Mean and interval at every value of what is varied, in order."""
    groups: dict[float, list[tuple[int, int, float]]] = {}
    for point in points:
        if (point.dataset, point.model) == (dataset, model):
            x = math.nan if math.isnan(point.x) else point.x  # one key for all that is not a number
            groups.setdefault(x, []).append((point.split, point.seed, point.score))
    return {x: summarize(groups[x]) for x in sorted(groups)}
