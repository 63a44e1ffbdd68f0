"""How far honest reruns are from the committed runs of Table 1, and whether `check` finds forged ones.

    python benchmarks/forging.py --device cpu
    python benchmarks/forging.py --device cuda --datasets texas,wisconsin,cornell,cora,citeseer,pubmed

Three checks of the committed runs with three samples must pass. Then each forgery is made in a copy, tables and figures
are made again, and checks with several samples look for it; the JSON says how many it took. Runs are trained once and
kept for all checks. At the end, many checks are simulated whose reruns are other seeds of the same split, the worst
that other code can do to a run. Takes about half an hour on one core.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import common
import numpy as np

from gfgn.paper import check as checking
from gfgn.paper import retrain
from gfgn.paper.check import check
from gfgn.paper.consistency import Facts
from gfgn.paper.reproduce import reproduce
from gfgn.paper.studies import load_study
from gfgn.runs import Row, read_runs, write_runs
from gfgn.runs.results import Results
from gfgn.runs.study_files import CHOSEN, RUNS, STORE
from gfgn.train.loop import train_runs
from gfgn.train.replica import Replica, Run

RESULTS = Path(__file__).parents[1] / "results"
HONEST, FORGED = (1, 2, 3), (1, 2, 3, 4, 5)  # seeds of the samples
Rows = list[Row]


class Kept:
    """`train_runs` that trains every run once."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str, Replica], Run] = {}

    def __call__(self, model: str, data: Any, replicas: Sequence[Replica], config: Any, device: str) -> list[Run]:
        new = [each for each in replicas if (data.name, model, each) not in self.runs]
        for replica, run in zip(new, train_runs(model, data, new, config, device) if new else [], strict=True):
            self.runs[data.name, model, replica] = run
        return [self.runs[data.name, model, each] for each in replicas]


class Forger:
    """The runs of Table 1, and ways to forge them by whole nodes, which no rule on single numbers finds."""

    def __init__(self, rows: Rows, results: Results, facts: dict[str, Facts]) -> None:
        self.rows, self.facts = rows, facts
        self.chosen = {row.key for cell in results.study.all_cells() for row in results[cell].rows}

    def _shift(self, row: Row, measure: str, points: float) -> Row:
        nodes = getattr(self.facts[row.dataset], measure)[row.replica.split]
        right = min(max(round(nodes * (getattr(row, measure) + points / 100)), 0), nodes)
        return replace(row, **{measure: float(np.float32(right) / np.float32(nodes))})

    def shifted(self, condition: Callable[[Row], bool], points: float, measure: str = "test") -> Rows:
        """The runs with a score of some of them changed."""
        forged = [row.dataset in self.facts and condition(row) for row in self.rows]
        return [self._shift(row, measure, points) if each else row for each, row in zip(forged, self.rows, strict=True)]

    def swapped(self) -> Rows:
        """The scores of two models on one split with one seed, exchanged."""
        pair = [
            next(
                row
                for row in self.rows
                if (row.dataset, row.model, row.replica.split, row.replica.seed) == ("cora", model, 2, 5)
            )
            for model in ("gfgn-pair", "mlp")
        ]
        other = {pair[0].key: pair[1], pair[1].key: pair[0]}
        names = ("val", "test", "epoch", "epochs")
        return [replace(r, **{name: getattr(other.get(r.key, r), name) for name in names}) for r in self.rows]

    def with_fake_seed(self) -> Rows:
        """An eleventh seed."""
        row = next(row for row in self.rows if row.replica.seed == 9)
        return [*self.rows, replace(row, replica=replace(row.replica, seed=10))]

    def forgeries(self, datasets: Sequence[str]) -> dict[str, Rows]:
        """The forged runs by what was forged."""
        single = next(row.key for row in self.rows if (row.dataset, row.model, row.replica.seed) == ("cora", "arma", 3))

        def is_cell(dataset: str, model: str) -> Callable[[Row], bool]:
            return lambda row: (row.dataset, row.model) == (dataset, model)

        def is_other(row: Row) -> bool:
            return is_cell("cora", "gcn")(row) and row.key not in self.chosen

        return {
            "a cell: gfgn-pair on Cora, test +8 points": self.shifted(is_cell("cora", "gfgn-pair"), 8),
            "a cell: gfgn-pair on Texas, test +8 points": self.shifted(is_cell("texas", "gfgn-pair"), 8),
            "a model: gfgn-neighbor everywhere, test +5 points": self.shifted(lambda r: r.model == "gfgn-neighbor", 5),
            "a dataset: Texas, test +5 points": self.shifted(lambda r: r.dataset == "texas", 5),
            "configurations not chosen: gcn on Cora, validation −8 points": self.shifted(is_other, -8, "val"),
            "one run: arma on Cora, test +8 points": self.shifted(lambda r: r.key == single, 8),
            "two runs swapped: gfgn-pair and mlp on Cora": self.swapped(),
            "a seed added": self.with_fake_seed(),
            "scores that are no whole nodes: all, test +0.4 points": [
                replace(row, test=min(1.0, row.test + 0.004)) if row.dataset in datasets else row for row in self.rows
            ],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--datasets", default="texas,wisconsin,cora")
    parser.add_argument("--simulate", type=int, default=200, help="number of simulated checks")
    arguments = parser.parse_args()
    datasets = arguments.datasets.split(",")
    study, rows = load_study("table1"), list(read_runs(RESULTS / "table1" / RUNS))
    results = Results(study, rows)
    cells = [cell for cell in study.all_cells() if cell.dataset in datasets]
    data, _ = checking._load(study, results, cells, None)
    facts = {name: Facts.of(each) for name, each in data.items()}
    retrain.train_runs = kept = Kept()  # type: ignore[assignment]
    outcomes: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "alone" / "table1"
        for seed in HONEST:
            outcomes.append(judge(f"honest, sample {seed}", RESULTS / "table1", datasets, [seed], arguments.device))
        for name, forged in Forger(rows, results, facts).forgeries(datasets).items():
            make(out, forged)
            outcomes.append(judge(name, out, datasets, FORGED, arguments.device))
        outcomes += judge_files(Path(folder), out, rows, datasets, arguments.device)
    found = retrain.find_cells(results, cells, facts)
    sizes = {name: max(checking._size(data[runs.data]) for runs in own) for name, own in found.items()}
    extra: dict[str, Any] = {"gaps": gaps(kept, found), "simulated": simulate(found, sizes, rows, arguments.simulate)}
    for line in (*extra["gaps"], extra["simulated"]):
        print(line)
    common.write("forging", arguments.device, outcomes, **extra)


def make(out: Path, rows: Rows) -> None:
    """A study's folder with forged runs, its tables and figures made from them."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    write_runs(out / RUNS, rows)
    reproduce("table1", out, device="cpu", train=False)
    (out / STORE).unlink()


def judge(name: str, out: Path, datasets: Sequence[str], seeds: Sequence[int], device: str) -> dict[str, object]:
    """What the first check with one of these samples finds that finds anything."""
    start, samples, problems = time.perf_counter(), 0, list[str]()
    while not problems and samples < len(seeds):
        problems = check("table1", out, datasets=datasets, seed=seeds[samples], device=device).problems
        samples += 1
    seconds = round(time.perf_counter() - start, 1)
    print(f"{name}: {len(problems)} problems, {samples} samples, {seconds} s {problems[:2]}", flush=True)
    first = [problem.replace(f"{out.parent}/", "") for problem in problems[:2]]
    return {"dataset": name, "problems": len(problems), "first": first, "samples": samples, "seconds": seconds}


def judge_files(folder: Path, out: Path, rows: Rows, datasets: Sequence[str], device: str) -> list[dict[str, object]]:
    """Forged files next to honest runs."""
    outcomes = []
    for name, old, new in ((CHOSEN, ",1\n", ",0\n"), ("table1.svg", "M ", "M 1"), ("README.md", "| 8", "| 9")):
        make(out, rows)
        (out / name).write_text((out / name).read_text().replace(old, new, 1))
        outcomes.append(judge(f"a file: {name}", out, datasets, FORGED, device))
    beside = folder / "results"
    beside.mkdir()
    for sibling in RESULTS.iterdir():
        if sibling.name != "claims":
            (beside / sibling.name).symlink_to(sibling)
    shutil.copytree(RESULTS / "claims", beside / "claims")
    honest = check("claims", beside / "claims").problems
    text = (beside / "claims" / "claims.json").read_text()
    (beside / "claims" / "claims.json").write_text(text.replace('"does not hold"', '"holds"', 1))
    forged = [problem.replace(f"{beside}/", "") for problem in check("claims", beside / "claims").problems]
    print(f"claims: {len(honest)} problems; forged: {forged}")
    outcomes.append({"dataset": "claims, honest", "problems": len(honest), "first": honest[:2]})
    return [*outcomes, {"dataset": "a claim's verdict", "problems": len(forged), "first": forged[:2]}]


def gaps(kept: Kept, found: dict[str, list[retrain.CellRuns]]) -> list[dict[str, object]]:
    """How far reruns are from the records, by dataset: in points, and over `√2 σ`."""
    table = []
    for name, cells in found.items():
        pairs = [
            (runs, chosen, row, kept.runs[runs.data, runs.cell.model, row.replica])
            for runs in cells
            for chosen, rows in ((True, runs.chosen), (False, runs.others))
            for row in rows
            if (runs.data, runs.cell.model, row.replica) in kept.runs
        ]
        for measure in retrain.MEASURES:
            gap = np.array([getattr(run, measure) - getattr(row, measure) for _, _, row, run in pairs])
            sigma = np.array([runs.spreads[chosen, measure].sigma for runs, chosen, _, _ in pairs])
            z = gap / (math.sqrt(2) * sigma)
            numbers = {
                "equal_%": 100 * np.mean(gap == 0),
                "mean": 100 * gap.mean(),
                "std": 100 * gap.std(),
                "largest": 100 * np.abs(gap).max(),
                "standardized": math.sqrt(np.mean(z**2)),
                "largest_standardized": np.abs(z).max(),
            }
            rounded = {key: round(float(value), 2) for key, value in numbers.items()}
            table.append({"dataset": name, "measure": measure, "runs": len(pairs), **rounded})
    return table


def simulate(
    found: dict[str, list[retrain.CellRuns]], sizes: dict[str, int], rows: Rows, checks: int
) -> dict[str, int]:
    """The number of checks that fail if every rerun is another recorded seed of its split."""
    generator, failed, suspicious = random.Random(0), 0, 0

    def rerun(picks: Sequence[retrain.Pick]) -> list[tuple[retrain.Pick, Any]]:
        made: list[tuple[retrain.Pick, Any]] = []
        for pick in picks:
            others = [row for row in pick.runs.like(pick.row, pick.chosen) if row.key != pick.row.key]
            made.append((pick, generator.choice(others or [pick.row])))
        return made

    for seed in range(checks):
        made = rerun(retrain.draw_sample(found, sizes, seed, False))
        compared = retrain.compare(made, len(rows), "cpu")
        suspicious += len(compared.suspicious)
        made += rerun(retrain.draw_further(compared, sizes, seed))
        failed += bool(retrain.compare(made, len(rows), "cpu").problems)
    return {"checks": checks, "failed": failed, "suspicious_cells": suspicious}


if __name__ == "__main__":
    main()
