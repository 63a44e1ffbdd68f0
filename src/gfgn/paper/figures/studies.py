"""Figures of studies: accuracy under noise and by λ, tables as differences or scores, and the effect of variants."""

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
from gfgn.report.style import BLACK, FAINT, INK, PAGE_WIDTH, label_panels, model_style, save_svg, styled
from gfgn.runs.record import is_gfgn
from gfgn.runs.views import data_name
from gfgn.train.statistics import Summary, difference, summarize

if TYPE_CHECKING:
    from gfgn.runs.results import Results

FAMILIES = {  # of models, one row of panels each in the figure of noise
    "GFGN": ("gfgn-graph", "gfgn-neighbor", "gfgn-pair"),
    "fixed edge weights": ("gcn", "sgc", "arma", "appnp"),
    "attention, gates, no edges": ("gat", "ggnn", "mlp"),
}
LAMBDAS = (0, 0.5, 1, 2, 4, 6, 10)  # ticks
DIFFERENCES = (-40, -10, -5, -2, 0, 2, 5, 10)  # ticks, in points
CHANGES = (-20, -5, -2, 0, 2, 5)  # ticks of narrow panels
LINEAR = 2.0  # up to this difference, in points, the axis of differences is linear
SEEDS = 1_000  # more than a study has, to tell apart the runs of its draws
PUBLISHED = "published"  # the first row of a figure of variants
# The styles of single runs and of published values.
TICK: dict[str, Any] = {"marker": "|", "linestyle": "", "markersize": 7, "markeredgewidth": 0.9}
HOLLOW = TICK | {"marker": "D", "markersize": 5, "markerfacecolor": "none", "markeredgecolor": FAINT}


class Point(NamedTuple):
    """One run: its position `x` on the study's axis, NaN for a model that does not depend on it; its score in %; and
    what intervals are corrected by, see `gfgn.train.statistics.standard_error`."""

    x: float
    model: str
    dataset: str
    split: int
    seed: int
    score: float
    test_share: float | None = None
    draw: int = 0


class Gap(NamedTuple):
    """Difference, in points, of a variant or of the published score from the first variant, with its 95% interval."""

    variant: str
    model: str
    dataset: str
    mean: float
    low: float | None = None
    high: float | None = None


def draw_study(results: Results, folder: Path) -> list[Path]:
    """Draws the complete cells of a study as `<study>.svg` and returns the path; an empty list if there are none, or
    for a study of gates, whose figures come from the analysis `scores`."""
    study, points = results.study, study_points(results)
    if not points or any(fact.measure.startswith("gate_") for fact in study.published.facts):
        return []
    if study.vary is None:
        figure = table_figure(points, study.published.scores)
    elif study.vary.name != "variant":
        figure = (noise_figure if study.vary.name == "noise" else lambda_figure)(points)
    elif gaps := study_gaps(results):
        figure = variants_figure(gaps, list(study.models))
    else:
        return []
    return [save_svg(figure, folder / f"{study.name}.svg")]


def study_points(results: Results) -> list[Point]:
    """Returns the runs of the selected configuration of every complete cell without diverged runs."""
    points = []
    for cell in results.study.all_cells():
        x, dataset = cell.at if isinstance(cell.at, float) else math.nan, data_name(cell.dataset)
        for draw, rows in enumerate(results[cell].draws if results[cell].mean is not None else ()):
            for row in rows:
                run = (row.replica.split, row.replica.seed, 100 * row.test)
                points.append(Point(x, cell.model, dataset, *run, results.test_share(cell), draw))
    return points


def study_gaps(results: Results) -> list[Gap]:
    """Returns the changes of all complete variants, and the gaps from the first variant to the published scores."""
    study, gaps = results.study, []
    assert study.vary is not None
    for cell in study.all_cells():
        mean, published = results[cell].mean, study.published.score(cell.dataset, cell.model)
        if cell.at != study.vary.values[0]:
            change = results.change(cell)
            gaps += [] if change is None else [Gap(str(cell.at), cell.model, cell.dataset, *change[:3])]
        elif mean is not None and published is not None:
            gaps.append(Gap(PUBLISHED, cell.model, cell.dataset, published - mean))
    order = [PUBLISHED, *map(str, study.vary.values)]
    return sorted(gaps, key=lambda gap: order.index(gap.variant))


# --- accuracy along an axis -------------------------------------------------------------------------------------------


def noise_figure(points: Sequence[Point]) -> Figure:
    """Draws accuracy under noise: one column of panels per dataset and one row per family of models, see `FAMILIES`.

    The models of the other families are thin gray lines. Bands are from the lowest to the highest draw of random edges
    or, if there is a single one, 95% intervals over splits.
    """
    (datasets, models), several = _names(points), len({point.draw for point in points}) > 1
    known = {name: [model for model in family if model in models] for name, family in FAMILIES.items()}
    known["other models"] = [model for model in models if not any(model in family for family in known.values())]
    families = {name: family for name, family in known.items() if family}
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 0.5 + 1.75 * len(families)), layout="constrained")
        grid = figure.subplots(len(families), len(datasets), squeeze=False, sharex=True, sharey="col")
        for row, family in zip(grid, families.values(), strict=True):
            for axes, dataset in zip(row, datasets, strict=True):
                for model in models:
                    _noise_line(axes, points, dataset, model, model in family, several)
                axes.grid(axis="y")
            marks: Any = [Line2D([], [], label=title_of(model), markersize=4, **model_style(model)) for model in family]
            row[-1].legend(handles=marks, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.6)
        for axes, dataset in zip(grid[0], datasets, strict=True):
            axes.set_title(title_of(dataset), loc="left")
        for axes, name in zip(grid[:, 0], families, strict=True):
            axes.set_ylabel(f"{name}\naccuracy, %")
        label_panels(grid[0] if len(datasets) > 1 else [])
        bands = "lowest to highest draw of edges" if several else "95% interval over splits"
        figure.supxlabel(f"random edges added, % of the edges (bands: {bands})", fontsize="medium")
        return figure


def _noise_line(axes: Axes, points: Sequence[Point], dataset: str, model: str, shown: bool, several: bool) -> None:
    summaries = _summaries(points, dataset, model)
    if not summaries:
        return
    x, mean = 100 * np.array(list(summaries)), np.array([summary.mean for summary in summaries.values()])
    if not shown:
        axes.plot(x, mean, color=FAINT, linewidth=0.6, alpha=0.35, zorder=1)
        return
    low, high = _draw_range(points, dataset, model) if several else _interval(summaries)
    style = model_style(model)
    axes.plot(x, mean, markersize=3.5, linewidth=1.2, label=title_of(model), **style)
    axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def _interval(summaries: Mapping[float, Summary]) -> tuple[list[float], list[float]]:
    return [summary.low for summary in summaries.values()], [summary.high for summary in summaries.values()]


def _draw_range(points: Sequence[Point], dataset: str, model: str) -> tuple[list[float], list[float]]:
    """The lowest and the highest mean of a draw at every `x`, in ascending order."""
    groups: dict[float, dict[int, list[float]]] = {}
    for point in points:
        if (point.dataset, point.model) == (dataset, model):
            groups.setdefault(point.x, {}).setdefault(point.draw, []).append(point.score)
    means = [[float(np.mean(scores)) for scores in groups[x].values()] for x in sorted(groups)]
    return [min(each) for each in means], [max(each) for each in means]


def lambda_figure(points: Sequence[Point]) -> Figure:
    """Draws accuracy by λ on an axis that is linear up to 1 and logarithmic beyond: one panel per dataset and one line
    per model with its 95% interval, horizontal for a model whose `x` is NaN."""
    datasets, models = _names(points)
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 2.9), layout="constrained")
        panels: list[Axes] = list(figure.subplots(1, len(datasets), squeeze=False)[0])
        for axes, dataset in zip(panels, datasets, strict=True):
            for model in models:
                _line(axes, _summaries(points, dataset, model), model)
            axes.set_xscale("symlog", linthresh=1, linscale=0.6)
            axes.set_xticks(LAMBDAS, list(map(str, LAMBDAS)))
            axes.set_xticks([], minor=True)
            axes.set_xlim(left=-0.08)
            axes.set_title(title_of(dataset), loc="left")
            axes.set_xlabel("λ, the upper bound of the gates (bands: 95% intervals)")
            axes.grid(axis="y")
        panels[0].set_ylabel("test accuracy, %")
        label_panels(panels if len(panels) > 1 else [])
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), handlelength=3, columnspacing=1.2)
        return figure


def _line(axes: Axes, summaries: Mapping[float, Summary], model: str) -> None:
    if not summaries:
        return
    style, (low, high) = model_style(model), _interval(summaries)
    mean, label = [summary.mean for summary in summaries.values()], title_of(model)
    if all(math.isnan(x) for x in summaries):
        axes.axhline(mean[0], linewidth=0.9, label=label, **{**style, "marker": ""})
        axes.axhspan(low[0], high[0], color=style["color"], alpha=0.1, linewidth=0)
        return
    axes.plot(list(summaries), mean, markersize=4, linewidth=1.6, label=label, **style)
    axes.fill_between(list(summaries), low, high, color=style["color"], alpha=0.18, linewidth=0)


# --- variants ---------------------------------------------------------------------------------------------------------


def variants_figure(gaps: Sequence[Gap], models: Sequence[str]) -> Figure:
    """Draws the changes, in the order of the rows: one panel per dataset and one row per variant with all `models`.

    Where changes differ much in size, the axis is logarithmic beyond a few points.
    """
    rows, datasets = (list(dict.fromkeys(getattr(gap, name) for gap in gaps)) for name in ("variant", "dataset"))
    step, wide = 0.7 / max(1, len(models)), max(abs(gap.mean) for gap in gaps) > 2 * CHANGES[-1]
    with styled():
        height = 0.45 + len(rows) * (0.1 + 0.085 * len(models))
        figure, panels = _panels(len(datasets), 5, height, sharex=True)
        for axes, dataset in zip(panels, datasets, strict=True):
            axes.axvline(0, color=INK, linewidth=0.8)
            for row in range(0, len(rows), 2):
                axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.08, linewidth=0)
            for gap in gaps:
                if gap.dataset == dataset:
                    offset = (models.index(gap.model) - (len(models) - 1) / 2) * step
                    _gap(axes, gap, rows.index(gap.variant) + offset)
            axes.grid(axis="x")
            if wide:
                _difference_axis(axes, CHANGES)
            _rows(axes, title_of(dataset), rows, 0.5)
        label = "change of the test score from the standard, points, with 95% interval over splits"
        figure.supxlabel(label, fontsize="medium")
        label_panels(panels if len(panels) > 1 else [])
        styles = {title_of(model): {"linestyle": "", "markersize": 4, **_mark(model)} for model in models}
        styles |= {PUBLISHED: HOLLOW} if PUBLISHED in rows else {}
        marks: Any = [Line2D([], [], label=name, **style) for name, style in styles.items()]
        figure.legend(handles=marks, loc="outside upper left", ncols=len(marks), handletextpad=0.4)
        return figure


def _gap(axes: Axes, gap: Gap, y: float) -> None:
    mark = _mark(gap.model)
    if gap.low is not None and gap.high is not None:
        axes.plot([gap.low, gap.high], [y, y], color=mark["color"], linewidth=1.4, solid_capstyle="butt")
    if gap.variant == PUBLISHED:
        axes.plot(gap.mean, y, **{**HOLLOW, "markeredgecolor": mark["color"]})
    else:
        axes.plot(gap.mean, y, markersize=4, **mark)


def _mark(model: str) -> dict[str, Any]:
    return {name: model_style(model)[name] for name in ("color", "marker")}


# --- tables -----------------------------------------------------------------------------------------------------------


def table_figure(points: Sequence[Point], published: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draws a table, one panel per dataset, with published means in % by model and dataset.

    With several splits and a baseline, differences to the best baseline of the panel, with 95% intervals; otherwise
    scores, with the single runs if there is only one split.
    """
    datasets, models = _names(points)
    several = len({point.split for point in points}) > 1 and not all(map(is_gfgn, models))
    with styled():
        figure, panels = _panels(len(datasets), 3, 0.45 + 0.145 * len(models), sharex=several)
        for axes, dataset in zip(panels, datasets, strict=True):
            (_differences if several else _forest)(axes, points, published, dataset)
        label_panels(panels if len(datasets) > 1 else [])
        words = "test score minus that of the best baseline, which the title of a panel names, points"
        label = words if several else "test score, %"
        figure.supxlabel(label, fontsize="medium")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(labels), handletextpad=0.4)
        return figure


def _differences(
    axes: Axes, points: Sequence[Point], published: Mapping[str, Mapping[str, float]], dataset: str
) -> None:
    """One panel of differences to the best baseline; published scores to the best published baseline."""
    _, models = _names(points)
    runs = {
        model: [(p.split, p.seed, p.score) for p in points if (p.dataset, p.model) == (dataset, model)]
        for model in models
    }
    share = next((point.test_share for point in points if point.dataset == dataset), None)
    means = {model: float(np.mean([score for *_, score in own])) for model, own in runs.items() if own}
    best = _best_baseline(means)
    given = {model: published[model][dataset] for model in models if dataset in published.get(model, {})}
    axes.axvline(0, color=INK, linewidth=0.8)
    for row, model in enumerate(models):
        color = model_style(model)["color"] if is_gfgn(model) else BLACK
        if best is not None and model in means:
            gap = difference(runs[model], runs[best], share)
            axes.plot([gap.low, gap.high], [row, row], color=color, linewidth=1.6, solid_capstyle="butt")
            axes.plot(gap.mean, row, "o", color=color, markersize=3.6)
        if model in given and (base := _best_baseline(given)) is not None:
            axes.plot(given[model] - given[base], row, **HOLLOW)
    axes.plot([], [], "o-", color=BLACK, markersize=3.6, linewidth=1.6, label="measured, with 95% interval")
    if any(point.dataset in published.get(point.model, {}) for point in points):
        axes.plot([], [], label="published, to the best published baseline", **HOLLOW)
    _difference_axis(axes, DIFFERENCES)
    axes.grid(axis="x")
    axes.grid(axis="y", alpha=0.12)
    against = "" if best is None else f": {title_of(best)} {means[best]:.1f}"
    _rows(axes, f"{title_of(dataset)}{against}", [title_of(model) for model in models], 0.6)


def _best_baseline(means: Mapping[str, float]) -> str | None:
    """The model with the highest mean among those that are not GFGN."""
    baselines = [model for model in means if not is_gfgn(model)]
    return max(baselines, key=lambda model: means[model]) if baselines else None


def _forest(axes: Axes, points: Sequence[Point], published: Mapping[str, Mapping[str, float]], dataset: str) -> None:
    (_, models), intervals = _names(points), len({point.split for point in points}) > 1
    for row, model in enumerate(models):
        color = model_style(model)["color"] if is_gfgn(model) else BLACK
        for summary in _summaries(points, dataset, model).values():
            if intervals:
                axes.plot([summary.low, summary.high], [row, row], color=color, linewidth=1.6, solid_capstyle="butt")
            else:
                runs = [point.score for point in points if (point.dataset, point.model) == (dataset, model)]
                axes.plot(runs, [row] * len(runs), color=color, **TICK)
            axes.plot(summary.mean, row, "o", color=color, markersize=3.6)
        if dataset in published.get(model, {}):
            axes.plot(published[model][dataset], row, **HOLLOW)
    if intervals:
        axes.plot([], [], "o-", color=BLACK, markersize=3.6, linewidth=1.6, label="measured, with 95% interval")
    else:
        axes.plot([], [], "o", color=BLACK, markersize=3.6, label="measured, mean")
        axes.plot([], [], color=BLACK, label="single runs", **TICK)
    if any(point.dataset in published.get(point.model, {}) for point in points):
        axes.plot([], [], label="published", **HOLLOW)
    axes.grid(axis="x")
    axes.grid(axis="y", alpha=0.12)
    _rows(axes, title_of(dataset), [title_of(model) for model in models], 0.6)


# --- shared -----------------------------------------------------------------------------------------------------------


def _panels(count: int, columns: int, height: float, sharex: bool) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of a height in at most as many columns, with room for a legend and a label."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(PAGE_WIDTH, 0.75 + rows * height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True, sharex=sharex).ravel().tolist()
    for axes in panels[count:]:
        axes.axis("off")
    return figure, panels[:count]


def _difference_axis(axes: Axes, ticks: Sequence[int]) -> None:
    """Differences in points on an axis that is logarithmic beyond `LINEAR`."""
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
    axes.set_xticks(ticks, [f"{tick}".replace("-", "−") for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.tick_params(axis="x", labelsize=6)


def _rows(axes: Axes, title: str, names: Sequence[str], margin: float) -> None:
    """Labels the rows of a panel, the first on top."""
    axes.set_title(title, loc="left")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 1 + margin, -margin)
    axes.tick_params(axis="y", length=0)


def _names(points: Sequence[Point]) -> tuple[list[str], list[str]]:
    """Returns the datasets and the models in the order in which they occur."""
    if not points:
        raise ValueError("points must hold at least one run, got none")
    return list(dict.fromkeys(p.dataset for p in points)), list(dict.fromkeys(p.model for p in points))


def _summaries(points: Sequence[Point], dataset: str, model: str) -> dict[float, Summary]:
    """Returns mean and interval at every `x`, in ascending order."""
    groups: dict[float, list[tuple[int, int, float]]] = {}
    share = None
    for point in points:
        if (point.dataset, point.model) == (dataset, model):
            x = math.nan if math.isnan(point.x) else point.x  # NaN is not equal to itself: one object for all
            groups.setdefault(x, []).append((point.split, SEEDS * point.draw + point.seed, point.score))
            share = point.test_share
    return {x: summarize(groups[x], share) for x in sorted(groups)}
