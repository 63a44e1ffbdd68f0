"""Runs all benchmarks on this machine and draws the plots: `make bench`. `GFGN_DATA` is the folder of the datasets."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

for script in ("operators.py", "layer.py", "edge_index.py", "attention.py", "training.py", "plot.py"):
    subprocess.run([sys.executable, str(HERE / script), *(sys.argv[1:] if script != "plot.py" else [])], check=True)
