"""Figure of the mechanism: rank correlations of gates and smoothness, by graph and level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from gfgn.paper.titles import title_of
from gfgn.report.style import FAINT, INK, PAGE_WIDTH, model_style, styled

if TYPE_CHECKING:
    from gfgn.paper.mechanism import Correlation


def mechanism_figure(correlations: Sequence[Correlation]) -> Figure:
    """Draws one row per dataset and one panel per level: the networks as ticks, their mean as a marker, and the 95%
    interval of the mean with permuted gates as a gray band."""
    from gfgn.paper.mechanism import mean_correlation

    if not correlations:
        raise ValueError("correlations must hold at least one network, got none")
    datasets = list(dict.fromkeys(each.dataset for each in correlations))
    models = list(dict.fromkeys(each.model for each in correlations))
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 0.7 + 0.22 * len(datasets)), layout="constrained")
        panels = figure.subplots(1, len(models), squeeze=False, sharex=True, sharey=True)[0]
        for axes, model in zip(panels, models, strict=True):
            style = model_style(model)
            for y, name in enumerate(datasets):
                own = [each for each in correlations if (each.dataset, each.model) == (name, model)]
                mean = mean_correlation(own)
                if not mean.networks:
                    continue
                axes.barh(y, 2 * mean.half, left=-mean.half, height=0.8, color=FAINT, alpha=0.25, linewidth=0)
                values = [each.rank_correlation for each in own]
                axes.plot(values, [y] * len(own), "|", color=style["color"], alpha=0.6, markersize=6)
                axes.plot(mean.mean, y, marker=style["marker"], color=style["color"], markersize=4)
            axes.axvline(0, color=INK, linewidth=0.6)
            axes.set_title(title_of(model), loc="left")
            axes.grid(axis="x")
        panels[0].set_xlim(-1, 1)
        panels[0].set_yticks(range(len(datasets)), [title_of(name) for name in datasets])
        panels[0].set_ylim(len(datasets) - 0.5, -0.5)
        figure.supxlabel("rank correlation of gate and smoothness over the dimensions of the first layer", fontsize=8)
        return figure
