"""Figures of studies: tables as differences or scores, accuracy under noise and by λ, and the effect of variants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gfgn.paper.pages import title_of
from gfgn.paper.study_page import gaps_to_best_baseline, known_means
from gfgn.report.style import BLACK, FAINT, INK, PAGE_WIDTH, label_panels, model_style, save_svg, styled
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, data_name

Style = dict[str, Any]
FAMILIES = {  # of models, one row of panels each in the figure of noise; the others are thin gray lines
    "GFGN": ("gfgn-graph", "gfgn-neighbor", "gfgn-pair"),
    "fixed edge weights": ("gcn", "sgc", "arma", "appnp"),
    "attention, gates, no edges": ("gat", "ggnn", "mlp"),
}
LAMBDAS = (0, 0.5, 1, 2, 4, 6, 10)  # ticks
DIFFERENCES = (-40, -10, -5, -2, 0, 2, 5, 10)  # ticks, in points
CHANGES = (-20, -5, -2, 0, 2, 5)  # ticks of narrow panels
LINEAR = 2.0  # up to this difference, in points, the axis of differences is linear
PUBLISHED = "published"  # the first row of a figure of variants
TICK: Style = {"marker": "|", "linestyle": "", "markersize": 7, "markeredgewidth": 0.9}  # of single runs
HOLLOW = TICK | {"marker": "D", "markersize": 5, "markerfacecolor": "none", "markeredgecolor": FAINT}  # published


def draw_study(results: Results, folder: Path) -> list[Path]:
    """Draws the complete cells of a study as `<study>.svg` and returns the path; an empty list if there are none, or
    for a study of gates, whose figures come from the analysis `scores`."""
    axis = results.study.vary.name if results.study.vary else ""
    cells = [cell for cell in results.study.all_cells() if results[cell].mean is not None]
    gates = any(fact.measure.startswith("gate_") for fact in results.study.published.facts)
    if gates or not cells or (axis == "variant" and len({cell.at for cell in cells}) < 2):
        return []
    draw = {"": draw_table, "noise": draw_axis, "lam": draw_axis, "variant": draw_variants}[axis]
    with styled():
        return [save_svg(draw(results, cells), folder / f"{results.study.name}.svg")]


def draw_axis(results: Results, cells: Sequence[Cell]) -> Figure:
    """Accuracy under noise or by λ: one column of panels per dataset and, under noise, one row per family of models.
    Bands are 95% intervals over splits or, if there are several draws of random edges, from the lowest to the highest.
    A model without λ is a horizontal line."""
    (datasets, models), by_lambda = _names(cells), results.study.vary is not None and results.study.vary.name == "lam"
    families = {name: [model for model in family if model in models] for name, family in FAMILIES.items()}
    families["other models"] = [model for model in models if not any(model in own for own in families.values())]
    rows = {"": models} if by_lambda else {name: own for name, own in families.items() if own}
    figure = Figure(figsize=(PAGE_WIDTH, 0.5 + (2.4 if by_lambda else 1.75) * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), len(datasets), squeeze=False, sharex=True, sharey="col")
    for panels, (name, family) in zip(grid, rows.items(), strict=True):
        for axes, dataset in zip(panels, datasets, strict=True):
            for model in models:
                own = [cell for cell in cells if (cell.dataset, cell.model) == (dataset, model)]
                _draw_line(axes, results, own, model_style(model) if model in family else {})
            axes.grid(axis="y")
            if by_lambda:  # linear up to 1 and logarithmic beyond
                axes.set_xscale("symlog", linthresh=1, linscale=0.6)
                axes.set_xticks(LAMBDAS, list(map(str, LAMBDAS)))
                axes.set_xticks([], minor=True)
                axes.set_xlim(left=-0.08)
        marks = [Line2D([], [], label=title_of(model), markersize=4, **model_style(model)) for model in family]
        panels[-1].legend(handles=marks, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.6)
        panels[0].set_ylabel(f"{name}\naccuracy, %".strip())
    for axes, dataset in zip(grid[0], datasets, strict=True):
        axes.set_title(title_of(data_name(dataset)), loc="left")
    label_panels(grid[0] if len(datasets) > 1 else [])
    bands = "lowest to highest draw of edges" if results.study.draws > 1 else "95% interval over splits"
    what = "λ, the upper bound of the gates" if by_lambda else "random edges added, % of the edges"
    figure.supxlabel(f"{what} (bands: {bands})", fontsize="medium")
    return figure


def _draw_line(axes: Axes, results: Results, cells: Sequence[Cell], style: Style) -> None:
    """The cells of a model along the axis; a thin gray line without a style."""
    points, noise = [], results.study.vary is not None and results.study.vary.name == "noise"
    for cell in cells:
        if (summary := results[cell].summary) is not None:
            means = [100 * sum(row.test for row in rows) / len(rows) for rows in results[cell].draws]
            ends = (min(means), max(means)) if results.study.draws > 1 else (100 * summary.low, 100 * summary.high)
            at = cell.at if isinstance(cell.at, float) else math.nan
            points.append((100 * at if noise else at, 100 * summary.mean, *ends))
    if not points:
        return
    x, mean, low, high = zip(*sorted(points), strict=True)
    if not style:
        axes.plot(x, mean, color=FAINT, linewidth=0.6, alpha=0.35, zorder=1)
    elif math.isnan(x[0]):
        axes.axhline(mean[0], linewidth=0.9, **{**style, "marker": ""})
        axes.axhspan(low[0], high[0], color=style["color"], alpha=0.1, linewidth=0)
    else:
        axes.plot(x, mean, markersize=3.5, linewidth=1.2, **style)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)


def draw_variants(results: Results, cells: Sequence[Cell]) -> Figure:
    """The changes due to variants: one panel per dataset and one row per variant with all models. Where changes differ
    much in size, the axis is logarithmic beyond a few points."""
    study, models = results.study, list(results.study.models)
    first, gaps = next(iter(study.variants)), dict[tuple[str, str, str], tuple[float, ...]]()
    for cell in cells:
        mean, published = results[cell].mean, study.published.score(cell.dataset, cell.model)
        if cell.at == first and mean is not None and published is not None:
            gaps[PUBLISHED, cell.dataset, cell.model] = (published - mean,)
        elif cell.at != first and (change := results.change(cell)) is not None:
            gaps[str(cell.at), cell.dataset, cell.model] = tuple(x for x in change.points[:3] if not math.isnan(x))
    rows = [at for at in (PUBLISHED, *map(str, study.variants)) if any(at == key[0] for key in gaps)]
    datasets = [name for name in study.datasets if any(name == key[1] for key in gaps)]
    step, wide = 0.7 / max(1, len(models)), max(abs(gap[0]) for gap in gaps.values()) > 2 * CHANGES[-1]
    figure, panels = _panels(len(datasets), 5, 0.45 + len(rows) * (0.1 + 0.085 * len(models)), sharex=True)
    for axes, dataset in zip(panels, datasets, strict=True):
        axes.axvline(0, color=INK, linewidth=0.8)
        for row in range(0, len(rows), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.08, linewidth=0)
        for (variant, name, model), (mean, *ends) in gaps.items():
            if name == dataset:
                y = rows.index(variant) + (models.index(model) - (len(models) - 1) / 2) * step
                mark = model_style(model) | {"linestyle": "", "markersize": 4}
                axes.plot(ends, [y] * len(ends), color=mark["color"], linewidth=1.4, solid_capstyle="butt")
                axes.plot(mean, y, **(HOLLOW | {"markeredgecolor": mark["color"]} if variant == PUBLISHED else mark))
        if wide:
            _difference_axis(axes, CHANGES)
        _label_rows(axes, title_of(data_name(dataset)), rows, 0.5)
    styles = {title_of(model): model_style(model) | {"linestyle": "", "markersize": 4} for model in models}
    styles |= {PUBLISHED: HOLLOW} if PUBLISHED in rows else {}
    _finish(figure, panels, "change of the test score from the standard, points, with 95% interval over splits", styles)
    return figure


def draw_table(results: Results, cells: Sequence[Cell]) -> Figure:
    """A table, one panel per dataset. With several splits and a baseline, differences to the best baseline of the panel
    with 95% intervals; otherwise scores, with the single runs if there is only one split."""
    (datasets, models), several, published = _names(cells), results.study.splits > 1, False
    differences = several and not all(map(is_gfgn, models))
    gaps = gaps_to_best_baseline(results, datasets)
    figure, panels = _panels(len(datasets), 3, 0.45 + 0.145 * len(models), sharex=differences)
    for axes, dataset in zip(panels, datasets, strict=True):
        means, title, base, best = known_means(results, dataset), title_of(data_name(dataset)), 0.0, 0.0
        scores = results.study.published.scores.items() if data_name(dataset) == dataset else ()
        given = {model: own[dataset] for model, own in scores if model in models and dataset in own}
        if differences:
            baseline = max((model for model in means if not is_gfgn(model)), key=lambda model: means[model], default="")
            base, title = means.get(baseline, math.nan), f"{title}: {title_of(baseline)} {means[baseline]:.1f}"
            best = max((score for model, score in given.items() if not is_gfgn(model)), default=math.nan)
            axes.axvline(0, color=INK, linewidth=0.8)
            _difference_axis(axes, DIFFERENCES)
        for row, model in enumerate(models):
            color, result = model_style(model)["color"] if is_gfgn(model) else BLACK, results[Cell(dataset, model)]
            if result.summary is not None:
                gap, ends = gaps.get(Cell(dataset, model)), [100 * result.summary.low, 100 * result.summary.high]
                if differences:
                    ends = [0.0, 0.0] if gap is None else [gap.low, gap.high]
                if several:
                    axes.plot(ends, [row, row], color=color, linewidth=1.6, solid_capstyle="butt")
                else:
                    axes.plot([100 * run.test for run in result.rows], [row] * len(result.rows), color=color, **TICK)
                axes.plot(means[model] - base, row, "o", color=color, markersize=3.6)
            if model in given and not math.isnan(best):
                axes.plot(given[model] - best, row, **HOLLOW)
                published = True
        axes.grid(axis="y", alpha=0.12)
        _label_rows(axes, title, [title_of(model) for model in models], 0.6)
    mark: Style = {"color": BLACK, "marker": "o", "markersize": 3.6, "linestyle": "-" if several else ""}
    styles = {"measured, with 95% interval" if several else "measured, mean": mark}
    styles |= {} if several else {"single runs": TICK | {"color": BLACK}}
    words = "published, to the best published baseline" if differences else "published"
    label = "test score minus that of the best baseline, which the title of a panel names, points"
    _finish(figure, panels, label if differences else "test score, %", styles | ({words: HOLLOW} if published else {}))
    return figure


def _names(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """The datasets and the models of cells in order."""
    return list(dict.fromkeys(cell.dataset for cell in cells)), list(dict.fromkeys(cell.model for cell in cells))


def _panels(count: int, columns: int, height: float, sharex: bool) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels of a height in at most as many columns, with room for a legend and a label."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(PAGE_WIDTH, 0.75 + rows * height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True, sharex=sharex).ravel().tolist()
    for axes in panels[count:]:
        axes.axis("off")
    return figure, panels[:count]


def _finish(figure: Figure, panels: Sequence[Axes], label: str, styles: dict[str, Style]) -> None:
    """The label below all panels, their letters and the legend."""
    figure.supxlabel(label, fontsize="medium")
    label_panels(panels if len(panels) > 1 else [])
    marks = [Line2D([], [], label=name, **style) for name, style in styles.items()]
    figure.legend(handles=marks, loc="outside upper left", ncols=len(marks), handletextpad=0.4)


def _difference_axis(axes: Axes, ticks: Sequence[int]) -> None:
    """Differences in points on an axis that is logarithmic beyond `LINEAR`."""
    axes.set_xscale("symlog", linthresh=LINEAR, linscale=0.5)
    axes.set_xticks(ticks, [f"{tick}".replace("-", "−") for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.tick_params(axis="x", labelsize=6)


def _label_rows(axes: Axes, title: str, names: Sequence[str], margin: float) -> None:
    """Labels the rows of a panel, the first on top."""
    axes.grid(axis="x")
    axes.set_title(title, loc="left")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 1 + margin, -margin)
    axes.tick_params(axis="y", length=0)
