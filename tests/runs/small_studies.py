"""A small study that the tests of studies share."""

import csv
from pathlib import Path
from typing import Any

from gfgn.runs import read_runs
from gfgn.runs.study_file import read_study
from gfgn.runs.study_runner import Outcome, run_study

STUDY = """
title: Small
about: Two models on a club.
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5, 0.8]}
models:
  gfgn-graph: {lam: [1.0, 2.0]}
  gcn: {dropout: [0.5]}
splits: 2
seeds: 3
training: {max_epochs: 3, patience: 3}
published:
  source: nobody
  scores:
    gcn: {karate: 51.0, cora: 87.0}
    gfgn-graph: {karate: 60.0, cora: 80.0}
  spreads:
    gcn: {karate: 1.5}
  ranks: {gcn: 1.5, gfgn-graph: 1.5}
  facts:
    - {measure: gain_over_gcn, dataset: karate, value: 10}
    - {measure: gate_max, dataset: karate, model: gfgn-graph, value: 0.9}
  notes: [Clubs are small.]
"""
ALL_RUNS = 4 * 2 + 2 * 2 + 2 * 3
"""Four configurations on two splits and two more seeds of the chosen one; the only one of the GCN with three seeds."""


def write_study(folder: Path, text: str = STUDY, name: str = "small") -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def run(path: Path, out: Path, **settings: Any) -> Outcome:
    return run_study(read_study(path, trust_code=True), out, **settings)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scores(out: Path) -> dict[str, tuple[float, float]]:
    return {row.key: (row.val, row.test) for row in read_runs(out / "runs.csv.gz")}


def copy_study(done: Path, out: Path) -> Path:
    """Copies the folder of a study without its store."""
    out.mkdir()
    for path in done.iterdir():
        if "sqlite" not in path.name:
            (out / path.name).write_bytes(path.read_bytes())
    return out
