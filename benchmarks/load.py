"""The first load of a dataset, from its raw files, compared with the second, from the cache.

    python benchmarks/load.py

Copies the raw files in `GFGN_DATA` to a folder without a cache and loads every dataset available there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import common

from gfgn.data import DATASETS, load

ROUNDS = 3


def seconds(name: str, root: Path) -> float:
    start = time.perf_counter()
    load(name, root=root)
    return time.perf_counter() - start


def measure(name: str, root: Path) -> dict[str, object]:
    first = seconds(name, root)
    second = min(seconds(name, root) for _ in range(ROUNDS))
    print(f"{name:<22} first {1e3 * first:8.1f} ms  second {1e3 * second:6.1f} ms  {first / second:6.1f}x", flush=True)
    return {"dataset": name, "first_ms": 1e3 * first, "second_ms": 1e3 * second, "ratio": first / second}


def main() -> None:
    source = Path(os.environ.get("GFGN_DATA", ""))
    names = [name for name, entry in DATASETS.items() if entry.files]
    with tempfile.TemporaryDirectory() as folder:
        available = []
        for name in names:
            files = DATASETS[name].files
            if not all((source / file).is_file() for file in files):
                continue
            for file in files:
                (Path(folder) / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / file, Path(folder) / file)
            available.append(name)
        load("karate")  # imports the packages that loading needs
        common.write("load", "cpu", [measure(name, Path(folder)) for name in available])


if __name__ == "__main__":
    main()
