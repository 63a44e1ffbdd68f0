"""How far runs of a study that are trained again are from their records.

    python benchmarks/reruns.py table1-open --datasets cora,citeseer --seeds 1,2

Draws the samples that `gfgn reproduce NAME --check --seed …` draws, trains their runs once, and writes them into
`results/NAME/retrained.csv`: each run with its recorded and its new scores, and the standard deviation of test scores
over seeds. Prints, by graph, the differences of the runs drawn at random, and what `--check` would say.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gfgn.paper import check as checking
from gfgn.paper import retrain
from gfgn.paper.consistency import Facts
from gfgn.paper.outputs import write_csv
from gfgn.paper.studies import load_study
from gfgn.runs import read_runs
from gfgn.runs.record import device_name
from gfgn.runs.results import Results
from gfgn.runs.study_files import RUNS
from gfgn.runs.study_runner import LOG
from gfgn.train.replica import Run

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = ("dataset", "model", "split", "seed", "configuration", "drawn", "key", "recorded_on", "trained_on")
SCORES = ("recorded_val", "val", "recorded_test", "test", "spread_test", "recorded_epochs", "epochs")
Made = Sequence[tuple[retrain.Pick, Run]]


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
    samples = [retrain.draw_sample(found, sizes, int(seed), False) for seed in arguments.seeds.split(",")]
    outliers = {pick.row.key: pick for sample in samples for pick in sample}
    picks = outliers | {p.row.key: p for sample in samples for p in sample if p.what_for == "sample"}
    made = retrain.train_again(list(picks.values()), data, sizes, arguments.device, LOG)
    table = sorted(([*_names(pick, arguments.device), *_scores(pick, run)] for pick, run in made), key=lambda r: r[:7])
    print(write_csv(out / "retrained.csv", COLUMNS + SCORES, table, digits=9))
    for name in found:
        describe(name, [(pick, run) for pick, run in made if pick.runs.cell.dataset == name])
    describe("all", made)
    for problem in retrain.compare(made, len(results.rows), arguments.device).problems:
        print(f"differs: {problem}")


def _names(pick: retrain.Pick, device: str) -> list[str | int]:
    row, chosen = pick.row, "chosen" if pick.chosen else "other"
    names = (pick.runs.cell.dataset, row.model, row.replica.split, row.replica.seed)
    return [*names, chosen, pick.what_for, row.key, row.device, device_name(device)]


def _scores(pick: retrain.Pick, run: Run) -> list[float | int]:
    row = pick.row
    return [row.val, run.val, row.test, run.test, pick.runs.spreads[pick.chosen, "test"].sigma, row.epochs, run.epochs]


def describe(name: str, made: Made) -> None:
    """Prints how far the test scores of the runs drawn at random are from their records, in points."""
    drawn = [(pick, run) for pick, run in made if pick.what_for == "sample"]
    gap = 100 * np.array([run.test - pick.row.test for pick, run in drawn])
    sigma = 100 * np.array([pick.runs.spreads[pick.chosen, "test"].sigma for pick, _ in drawn])
    z = gap / (math.sqrt(2) * sigma)
    print(
        f"{name}: {len(drawn)} runs, {np.mean(gap == 0):.0%} the same, mean {gap.mean():+.3f}, standard error by the "
        f"spread over seeds {math.sqrt(2 * np.sum(sigma**2)) / len(drawn):.3f}, standard deviation {gap.std():.2f}, "
        f"largest {np.abs(gap).max():.2f}; over √2 σ, root mean square {math.sqrt(np.mean(z**2)):.2f}, "
        f"largest {np.abs(z).max():.2f}"
    )


if __name__ == "__main__":
    main()
