"""Runs the benchmarks of speed on this machine, then draws the plots and fills the tables: `make bench`.

Arguments go to every benchmark (`--device cuda`). `GFGN_DATA` is the folder of the datasets.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

for script in ("operators.py", "layer.py", "edge_index.py", "growth.py", "training.py"):
    subprocess.run([sys.executable, str(HERE / script), *sys.argv[1:]], check=True)
subprocess.run([sys.executable, str(HERE / "plot.py")], check=True)
