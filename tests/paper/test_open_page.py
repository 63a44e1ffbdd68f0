"""The page of a study with a search: budget, differences to the best baseline, ranks and runs at the cap."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from gfgn.paper.open_page import MARKS, PUBLISHED, gaps_to_best_baseline, share_at_cap
from gfgn.paper.outputs import read_csv
from gfgn.paper.reproduce import reproduce
from gfgn.paper.studies import load_study
from gfgn.runs import read_runs
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_file import read_study
from gfgn.train.statistics import difference, holm, paired_test

CONTENT: dict[str, Any] = {
    "title": "Two generated graphs",
    "datasets": ["karate", "dimensions"],
    "search": {
        "configurations": 4,
        "rungs": [3],
        "space": {"lr": {"log_uniform": [0.01, 0.1]}, "features": ["given", "normalized"]},
    },
    "models": {"gfgn-graph": {"lam": {"uniform": [0.5, 2.0]}}, "gcn": {"layers": [1, 2]}, "mlp": {}},
    "only": {"mlp": ["karate"]},
    "splits": 3,
    "seeds": 2,
    "training": {"max_epochs": 6, "patience": 4},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Path]:
    folder = tmp_path_factory.mktemp("open")
    path = folder / "two.yaml"
    path.write_text(yaml.safe_dump(CONTENT, sort_keys=False))
    reproduce(path, folder / "out", device="cpu")
    return Results(read_study(path), read_runs(folder / "out" / "runs.csv.gz")), folder / "out"


def test_gaps_are_paired_and_corrected(results: tuple[Results, Path]) -> None:
    measured, _ = results
    gaps = gaps_to_best_baseline(measured, measured.study.datasets)
    for name in measured.study.datasets:
        baselines = [model for model in ("gcn", "mlp") if measured[Cell(name, model)].mean is not None]
        best = max(baselines, key=lambda model: np.mean([row.test for row in measured[Cell(name, model)].rows]))
        assert Cell(name, best) not in gaps
        runs, others = measured[Cell(name, "gfgn-graph")].rows, measured[Cell(name, best)].rows
        share = measured.test_share(Cell(name, "gfgn-graph"))
        expected, gap = difference(runs, others, share), gaps[Cell(name, "gfgn-graph")]
        assert (gap.baseline, gap.mean, gap.low) == (best, 100 * expected.mean, 100 * expected.low)
        assert gap.p >= paired_test(runs, others, share).t_p
    plain = {
        cell: paired_test(
            measured[cell].rows, measured[cell._replace(model=gap.baseline)].rows, measured.test_share(cell)
        ).t_p
        for cell, gap in gaps.items()
    }
    known = {cell: p for cell, p in plain.items() if not np.isnan(p)}
    assert {cell: gaps[cell].p for cell in known} == dict(zip(known, holm(list(known.values())), strict=True))


def test_the_share_at_the_cap(results: tuple[Results, Path]) -> None:
    measured, _ = results
    rows = measured[Cell("karate", "gcn")].rows
    share = share_at_cap(measured, Cell("karate", "gcn"))
    assert len(rows) == 6
    assert share == sum(row.epochs == 6 for row in rows) / 6
    assert share_at_cap(measured, Cell("dimensions", "mlp")) is None


def test_the_page(results: tuple[Results, Path]) -> None:
    page = (results[1] / "README.md").read_text(encoding="utf-8")
    titles = [line for line in page.splitlines() if line.startswith("#")]
    assert titles == [
        *("# Two generated graphs", "## Overview", "## Budget", "## Differences to the best baseline"),
        *("## Average ranks", "## Runs at the cap", "### karate", "### dimensions", "## Times", "## Method"),
    ]
    assert (
        "Every model has 4 configurations per graph, drawn with seed 0. All share lr 0.01 to 0.1 (logarithmic)" in page
    )
    assert "after 3 epochs, 2 of them continue" in page
    # two of four configurations stopped on three splits of two graphs; the choice has three runs of seed 0
    assert "| gfgn-graph | 4 | lam 0.5 to 2 | 2 | 18 | 12 |" in page
    assert "| mlp | 4 | – | 1 | 9 | 6 |" in page
    assert "published" not in page.lower().replace("**published**: nothing", "")


def test_missing_cells_are_named(results: tuple[Results, Path]) -> None:
    from gfgn.paper.page import make_page

    measured, _ = results
    rows = [row for row in measured.rows if row.model != "gcn" or row.replica.seed == 0]
    page = make_page(Results(measured.study, rows))
    assert "missing (12 of 15 runs)" in page
    assert "3 of 5 cells have all their runs" in page
    assert make_page(Results(measured.study, [])).count("missing") >= 5


def test_the_open_protocol_treats_all_models_alike() -> None:
    study = load_study("table1-open")
    assert study.search is not None
    assert {"features", "lr", "weight_decay", "input_dropout", "dropout"} == set(study.search.space)
    drawn = {tuple(tuple(each[name] for name in study.search.space) for each in own) for own in study.models.values()}
    assert len(drawn) == 1
    assert {len(own) for own in study.models.values()} == {32}
    assert {study.plan(cell).stops()[0] for cell in study.all_cells()} == {30}
    assert (study.splits, study.seeds, study.configs) == (10, 10, {})
    assert len(study.datasets) == 15


def test_published_scores_stand_on_the_page_of_the_open_protocol() -> None:
    from gfgn.paper.page import make_page

    study = load_study("table1-open")
    entries = read_csv(PUBLISHED)
    assert {entry["dataset"] for entry in entries} <= set(study.datasets)
    assert all(entry["mark"] in MARKS and entry["source"].startswith("https://") for entry in entries)
    page = make_page(Results(study, []))
    assert "| cornell | ACMII-GCN++ | 86.49 ± 6.73 | – | – | selected on test scores |" in page
