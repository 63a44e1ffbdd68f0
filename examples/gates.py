"""Gates explained: which feature dimensions does a GFGN take from the neighbors?

    python examples/gates.py [--out FOLDER]

In the graph `dimensions`, 24 of 36 feature dimensions follow the edges and 12 describe the node alone; the networks are
not told which. With `--out`, the gates are drawn to FOLDER/gates.svg, as in docs/assets.
"""

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from gfgn.data import load
from gfgn.runs import gates_by_dimension

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path)
parser.add_argument("--epochs", type=int, default=100)
arguments = parser.parse_args()

dataset = load("dimensions")
smooth = dataset.smooth_dimensions  # which dimensions follow the graph: known for a generated graph
figure = Figure(figsize=(6, 3.4), layout="constrained")
axes = figure.add_subplot(xlabel="mean gate (0: keeps its own value, 1: takes its neighbors')")
for row, level in enumerate(("graph", "neighbor", "pair")):
    gates = gates_by_dimension(dataset, level, epochs=arguments.epochs)
    means = f"{gates[smooth].mean():.2f} where a dimension follows the graph, {gates[~smooth].mean():.2f}"
    print(f"{level:>8} level: mean gate {means} where it does not")
    for mask, color, name, y in (
        (smooth, "#0072B2", "follows", row - 0.15),
        (~smooth, "#E69F00", "does not", row + 0.15),
    ):
        axes.scatter(gates[mask], [y] * int(mask.sum()), color=color, alpha=0.75, label=None if row else name)
axes.set_yticks(range(3), ["graph level", "neighbor level", "pair level"])
figure.legend(loc="outside upper left", ncols=2)
if arguments.out is not None:
    figure.savefig(arguments.out / "gates.svg", metadata={"Date": None})
    print("wrote", arguments.out / "gates.svg")
