"""Figures of datasets in the common style; the charts of the HTML report are in `charts`."""

from __future__ import annotations

from matplotlib.figure import Figure

from gfgn.data.diagnosis import Description
from gfgn.report.style import BLUE, ORANGE, styled


def description_figure(description: Description) -> Figure:
    """Histograms of the node degrees and of the smoothness of the feature dimensions."""
    with styled():
        figure = Figure(figsize=(6.0, 4.4), layout="constrained")
        above, below = figure.subplots(2, 1)
        bins = description.degrees.bins
        above.bar(range(len(bins)), [count for _, _, count in bins], color=ORANGE, width=0.85)
        above.set_xticks(range(len(bins)), [str(low) for low, _, _ in bins])
        above.set(xlabel="degree of a node (each bar reaches to the next label)", ylabel="nodes")
        title = f"{description.name}: {description.num_nodes:,} nodes, {description.num_edges:,} edges"
        above.set_title(title, parse_math=False)
        counts, edges = description.smoothness_histogram(24)
        below.bar(edges[:-1].numpy(), counts.numpy(), width=0.92 * edges.diff().numpy(), align="edge", color=BLUE)
        smoothness = "smoothness fᵀLf / fᵀf of a feature dimension (0: smooth, 1: noise)"
        below.set(xlabel=smoothness, ylabel="dimensions")
        return figure
