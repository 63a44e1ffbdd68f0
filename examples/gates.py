"""Which feature dimensions does the graph smooth? Reads the gates of the three levels on the embedded graph.

    python examples/gates.py [--out docs/assets]

In the graph `dimensions` 24 of 36 feature dimensions follow the edges and 12 are the node's own business; nobody tells
the networks which. The picture shows the gate that each of them learned for every dimension.
"""

import argparse
from pathlib import Path

import matplotlib as mpl

from gfgn.data import load
from gfgn.report.figures import STYLE, gates_by_truth
from gfgn.runs.gates import LEVELS, gates_by_dimension

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path, default=Path())
folder = parser.parse_args().out

dataset = load("dimensions")
smooth = dataset.smooth_dimensions
gates = {level: gates_by_dimension(dataset, level) for level in LEVELS}
for level, gate in gates.items():
    print(f"{level:>8} level: mean gate {gate[smooth].mean():.2f} where a dimension follows the graph, ", end="")
    print(f"{gate[~smooth].mean():.2f} where it does not")

with mpl.rc_context(STYLE | {"svg.fonttype": "path"}):
    figure = gates_by_truth(gates, smooth.numpy())
    for kind in ("svg", "png"):
        path = folder / f"gates.{kind}"
        figure.savefig(path, dpi=160, facecolor="white", metadata={"Date": None} if kind == "svg" else None)
        print(f"wrote {path}")
