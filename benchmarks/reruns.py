"""How far runs of a study that are trained again are from their records.

    python benchmarks/reruns.py table1-open --datasets cora,citeseer --seeds 1,2

Draws the samples that `gfgn reproduce NAME --check --seed …` draws with these datasets, and a third as many runs of
configurations that were not chosen. Trains each run once and adds it to `results/NAME/retrained.csv`, which has the
recorded and the new scores, and the standard deviation of test scores over seeds; what is in it already is not trained
again. Prints, by graph, the differences of all runs in it that were drawn at random, and what `--check` would say.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gfgn.paper import check as checking
from gfgn.paper import retrain
from gfgn.paper.consistency import Facts
from gfgn.paper.outputs import read_csv, write_csv
from gfgn.paper.retrain import CellRuns, Pick
from gfgn.paper.studies import load_study
from gfgn.runs import read_runs
from gfgn.runs.record import device_name
from gfgn.runs.results import Results
from gfgn.runs.study_files import RUNS
from gfgn.train.replica import Run

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = ("dataset", "model", "split", "seed", "configuration", "drawn", "key", "recorded_on", "trained_on")
SCORES = ("recorded_val", "val", "recorded_test", "test", "spread_test", "recorded_epochs", "epochs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("--datasets", required=True)
    parser.add_argument("--seeds", default="1", help="of the samples")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    study, out, datasets = load_study(arguments.study), RESULTS / arguments.study, arguments.datasets.split(",")
    results = Results(study, read_runs(out / RUNS))
    cells = [cell for cell in study.all_cells() if cell.dataset in datasets]
    data, _ = checking._load(study, results, cells, None)
    found = retrain.find_cells(results, cells, {name: Facts.of(each) for name, each in data.items()})
    sizes = {name: max(checking._size(data[runs.data]) for runs in own) for name, own in found.items()}
    table = {row["key"]: row for row in read_csv(out / "retrained.csv")}
    picks = {pick.row.key: pick for pick in draw(found, sizes, map(int, arguments.seeds.split(",")))}
    new = [pick for key, pick in picks.items() if key not in table]
    made = retrain.train_again(new, data, sizes, arguments.device, lambda line: print(line, flush=True))
    for pick, run in made:
        table[pick.row.key] = dict(zip(COLUMNS + SCORES, map(str, compared(pick, run, arguments.device)), strict=True))
    rows = sorted(([row[name] for name in COLUMNS + SCORES] for row in table.values()), key=lambda row: row[:7])
    print(write_csv(out / "retrained.csv", COLUMNS + SCORES, rows))
    drawn = [row for row in table.values() if row["drawn"] == "sample"]
    for name in dict.fromkeys(row["dataset"] for row in drawn):
        describe(name, [row for row in drawn if row["dataset"] == name])
    for kind in ("chosen", "other"):
        describe(f"all, {kind}", [row for row in drawn if row["configuration"] == kind])
    describe("all", drawn)
    for problem in retrain.compare(made, len(results.rows), arguments.device).problems:
        print(f"differs: {problem}")


def draw(found: Mapping[str, Sequence[CellRuns]], sizes: Mapping[str, int], seeds: Iterable[int]) -> list[Pick]:
    """The outliers, then the runs drawn at random, so that these are kept of a run that is both."""
    picks: list[Pick] = []
    for seed in seeds:
        picks += retrain.draw_sample(found, sizes, seed, False)
        generator = random.Random(seed)
        for name, cells in found.items():
            others = [Pick(runs, row, False) for runs in cells for row in runs.others]
            picks += generator.sample(others, max(1, retrain.WORK // sizes[name] // 3))
    return sorted(picks, key=lambda pick: pick.what_for == "sample")


def compared(pick: Pick, run: Run, device: str) -> list[object]:
    """A row of the table."""
    row, kind = pick.row, "chosen" if pick.chosen else "other"
    names = (pick.runs.cell.dataset, row.model, row.replica.split, row.replica.seed, kind, pick.what_for)
    spread = pick.runs.spreads[pick.chosen, "test"].sigma
    scores = (f"{score:.9g}" for score in (row.val, run.val, row.test, run.test, spread))
    return [*names, row.key, row.device, device_name(device), *scores, row.epochs, run.epochs]


def describe(name: str, rows: Sequence[Mapping[str, str]]) -> None:
    """Prints how far test scores are from their records, in points."""
    before, after, sigma = (
        100 * np.array([float(row[column]) for row in rows]) for column in ("recorded_test", "test", "spread_test")
    )
    gap = after - before
    z = gap / (math.sqrt(2) * sigma)
    print(
        f"{name}: {len(rows)} runs, {np.mean(gap == 0):.0%} the same, mean {gap.mean():+.3f}, standard error by the "
        f"spread over seeds {math.sqrt(2 * np.sum(sigma**2)) / len(rows):.3f}, standard deviation {gap.std():.2f}, "
        f"largest {np.abs(gap).max():.2f}; over √2 σ, root mean square {math.sqrt(np.mean(z**2)):.2f}, "
        f"largest {np.abs(z).max():.2f}"
    )


if __name__ == "__main__":
    main()
