"""Figures of the Cornell page: measures of links against permutations of nodes, and the ranks of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from gfgn.paper.titles import title_of
from gfgn.report.style import FAINT, PAGE_WIDTH, RED, label_panels, model_style, styled
from gfgn.runs.record import is_gfgn

TITLES = {"texas": "Texas", "cornell": "Cornell as downloaded", "cornell-corrected": "Cornell corrected"}
LABELS = {"homophily": "edge homophily", "similarity": "similarity of linked nodes", "excess": "excess similarity"}


def permutations_figure(values: Mapping[tuple[str, str], float], bars: Sequence[Mapping[str, str]]) -> Figure:
    """Draws the measured value of every graph and measure over a histogram of its permutations.

    Args:
        values: The value by graph and measure.
        bars: Rows with `graph`, `measure`, `low`, `high` and `count`.
    """
    graphs, measures = (list(dict.fromkeys(key[k] for key in values)) for k in (0, 1))
    with styled():
        figure = Figure(figsize=(PAGE_WIDTH, 0.5 + 1.45 * len(measures)), layout="constrained")
        grid = figure.subplots(len(measures), len(graphs), squeeze=False, sharex="row", sharey="row")
        for row, measure in zip(grid, measures, strict=True):
            for axes, graph in zip(row, graphs, strict=True):
                own = [bar for bar in bars if (bar["graph"], bar["measure"]) == (graph, measure)]
                low, high, count = ([float(bar[name]) for bar in own] for name in ("low", "high", "count"))
                widths = [b - a for a, b in zip(low, high, strict=True)]
                density = [n / sum(count) / width for n, width in zip(count, widths, strict=True)]
                axes.bar(low, density, width=widths, align="edge", color=FAINT, alpha=0.6, label="permuted nodes")
                axes.axvline(values[graph, measure], color=RED, linewidth=1.6, label="measured")
                axes.set_xlabel(LABELS[measure])
                axes.set_yticks([])
                axes.spines["left"].set_visible(False)
        for axes, graph in zip(grid[0], graphs, strict=True):
            axes.set_title(TITLES.get(graph, graph), loc="left")
        label_panels(list(grid[0]))
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2)
        return figure


def ranks_figure(ranks: Mapping[str, tuple[float, float]]) -> Figure:
    """Draws one line per model from its rank as downloaded to its rank as corrected; 1 is on top."""
    with styled():
        figure = Figure(figsize=(0.62 * PAGE_WIDTH, 0.8 + 0.19 * len(ranks)), layout="constrained")
        axes = figure.subplots()
        for model, (first, second) in ranks.items():
            named = is_gfgn(model) or model == "mlp"
            color, width = (model_style(model)["color"], 1.8) if named else (FAINT, 0.9)
            axes.plot([0, 1], [first, second], "o-", color=color, linewidth=width, markersize=3.5)
        for x, side, align in ((0, 0, "right"), (1, 1, "left")):
            tied: dict[float, list[str]] = {}
            for model, both in ranks.items():
                tied.setdefault(both[side], []).append(title_of(model))
            for rank, names in tied.items():
                axes.annotate(
                    ", ".join(names), (x, rank), (-6 if x == 0 else 6, 0), textcoords="offset points", ha=align,
                    va="center", fontsize=7,
                )  # fmt: skip
        axes.set_xlim(-0.75, 1.75)
        axes.set_ylim(len(ranks) + 0.6, 0.4)
        axes.set_xticks([0, 1], ["Cornell as downloaded", "corrected"])
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
        return figure
