"""Gates explained: which feature dimensions does a GFGN take from the neighbors?

    python examples/gates.py [--out FOLDER]

In the graph `dimensions`, 24 of 36 feature dimensions follow the edges and 12 describe the node alone; the networks are
not told which. With `--out`, the gates are drawn to FOLDER/gates.svg, as in docs/assets.
"""

import argparse
from pathlib import Path

from gfgn.data import load
from gfgn.report.figures import gates_by_truth
from gfgn.report.style import styled
from gfgn.runs import gates_by_dimension

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path)
parser.add_argument("--epochs", type=int, default=100)
arguments = parser.parse_args()

dataset = load("dimensions")
smooth = dataset.smooth_dimensions  # which dimensions follow the graph: known for a generated graph
gates = {}
for level in ("graph", "neighbor", "pair"):
    gates[level] = gates_by_dimension(dataset, level, epochs=arguments.epochs)
    means = f"{gates[level][smooth].mean():.2f} where a dimension follows the graph, {gates[level][~smooth].mean():.2f}"
    print(f"{level:>8} level: mean gate {means} where it does not")

if arguments.out is not None:
    with styled():
        gates_by_truth(gates, smooth.numpy()).savefig(arguments.out / "gates.svg", metadata={"Date": None})
    print("wrote", arguments.out / "gates.svg")
