"""Figure of the mechanism: rank correlations of gates and smoothness, by graph and level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from gfgn.paper.titles import title_of
from gfgn.report.style import FAINT, INK, PAGE_WIDTH, model_style, styled


def mechanism_figure(
    values: Mapping[tuple[str, str], Sequence[float]], half: Mapping[tuple[str, str], float]
) -> Figure:
    """Draws one row per dataset and one panel per level: the networks as ticks and their mean as a marker.

    Args:
        values: The correlations of the networks by dataset and model.
        half: Half the width of the gray band around 0, that of the mean with permuted gates.
    """
    if not values:
        raise ValueError("values must hold at least one dataset, got none")
    datasets, models = (list(dict.fromkeys(key[k] for key in values)) for k in (0, 1))
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 0.7 + 0.22 * len(datasets)), layout="constrained")
        panels = figure.subplots(1, len(models), squeeze=False, sharex=True, sharey=True)[0]
        for axes, model in zip(panels, models, strict=True):
            style = model_style(model)
            for y, name in enumerate(datasets):
                own, width = values.get((name, model)), half.get((name, model), 0.0)
                if own:
                    axes.barh(y, 2 * width, left=-width, height=0.8, color=FAINT, alpha=0.25, linewidth=0)
                    axes.plot(own, [y] * len(own), "|", color=style["color"], alpha=0.6, markersize=6)
                    axes.plot(sum(own) / len(own), y, marker=style["marker"], color=style["color"], markersize=4)
            axes.axvline(0, color=INK, linewidth=0.6)
            axes.set_title(title_of(model), loc="left")
            axes.grid(axis="x")
        panels[0].set_xlim(-1, 1)
        panels[0].set_yticks(range(len(datasets)), [title_of(name) for name in datasets])
        panels[0].set_ylim(len(datasets) - 0.5, -0.5)
        figure.supxlabel("rank correlation of gate and smoothness over the dimensions of the first layer", fontsize=8)
        return figure
