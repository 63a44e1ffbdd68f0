"""`reproduce`, `check` and the page of a study."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs.small_studies import ALL_RUNS, STUDY, copy_study, scores, write_study

from gfgn.paper import reproduce as module
from gfgn.paper.check import check, check_files
from gfgn.paper.figures.studies import study_points
from gfgn.paper.page import MISSING, make_page
from gfgn.paper.reproduce import reproduce
from gfgn.paper.studies import load_study
from gfgn.runs import read_runs, text, write_runs
from gfgn.runs.record import device_name
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_files import Time
from gfgn.runs.views import known_test_share
from gfgn.train import summarize


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study, next to its file."""
    folder = tmp_path_factory.mktemp("results")
    outcome = reproduce(write_study(folder), folder / "small", device="cpu")
    assert (outcome.made, outcome.missing) == (ALL_RUNS, [])
    assert {path.name for path in outcome.files} == {"runs.csv.gz", "chosen.csv", "times.csv", "README.md"}
    return folder / "small"


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    return copy_study(done, tmp_path / "small")


def read_results(done: Path, study: Path | None = None) -> Results:
    return Results(load_study(study or done.parent / "small.yaml"), read_runs(done / "runs.csv.gz"))


def test_tables_are_rewritten_without_training(copied: Path, done: Path, tmp_path: Path) -> None:
    for name in ("README.md", "chosen.csv"):
        (copied / name).unlink()
    assert reproduce(write_study(tmp_path), copied, train=False).made == 0
    for name in ("README.md", "chosen.csv", "runs.csv.gz"):
        assert (copied / name).read_bytes() == (done / name).read_bytes()
    assert scores(copied) == scores(done)


def test_a_part_of_a_study(tmp_path: Path) -> None:
    reproduce(write_study(tmp_path), tmp_path / "out", device="cpu", models=["gcn"])
    page = (tmp_path / "out" / "README.md").read_text()
    assert f"| gfgn-graph | 60.00 | {MISSING} |" in page
    assert "1 of 2 cells have all their runs" in page
    with pytest.raises(ValueError, match="device must be auto or one that this machine has"):
        reproduce(tmp_path / "small.yaml", tmp_path / "out", device="abacus")


def test_analyses_run_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, str]] = []

    def analysis(out: Path, *, root: Path | None, device: str, progress: Any) -> list[Path]:
        calls.append((out, device))
        return [out / "table.csv"]

    monkeypatch.setitem(module.ANALYSES, "musing", analysis)
    assert "musing" in module.names()
    assert reproduce("musing", tmp_path / "musing", device="cpu").files == [tmp_path / "musing" / "table.csv"]
    assert calls == [(tmp_path / "musing", "cpu")]
    with pytest.raises(ValueError, match=r"name must be one of ablations, .* or a YAML file, got 'table'; did you"):
        reproduce("table", tmp_path)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page(done: Path) -> None:
    results = read_results(done)
    page = (done / "README.md").read_text()
    assert page.startswith("# Small\n\nTwo models on a club.\n")
    assert "**Published**: nobody." in page
    assert f"**Measured**: {ALL_RUNS} runs" in page
    gcn, gfgn = (results[Cell("karate", model)] for model in ("gcn", "gfgn-graph"))
    assert gcn.mean is not None
    assert gfgn.mean is not None
    assert gcn.summary is not None
    by_hand = [100 * row.test for row in results.rows if row.model == "gcn"]
    assert gcn.mean == pytest.approx(sum(by_hand) / 6)
    line = next(line for line in page.splitlines() if line.startswith("| gcn | 51.00 ± 1.50 |"))
    assert gcn.summary == summarize(gcn.rows, known_test_share("karate"))
    interval = text.interval(gcn.summary, "accuracy", digits=2)
    assert f"| {gcn.mean:.2f} ± {100 * gcn.summary.std:.2f} | {interval} |" in line
    assert f"{gcn.mean - 51:+.2f}".replace("-", "−") in line
    assert f"{gcn.mean:.2f}** (51.00)" in page or f"{gcn.mean:.2f} (51.00)" in page
    gain = f"{gfgn.mean - gcn.mean:.2f}".replace("-", "−")
    assert f"the best GFGN level over gcn, points | karate | 10 | {gain} |" in page
    largest = sum(row.gates["max"] for row in gfgn.rows if row.gates) / 6
    assert f"(gfgn-graph) | karate | 0.9 | {largest:.2f} |" in page
    assert "- Clubs are small." in page
    ranks = [line for line in page.splitlines() if line.startswith(("| gcn | 1.5", "| gfgn-graph | 1.5"))]
    assert ranks[0].split(" | ")[1:3] == ["1.5", "1.5"]  # two published datasets, on each of which another one leads
    assert len(ranks) == 2
    assert "## Stand-ins" not in page
    assert "gfgn-graph: lr {0.05}, weight_decay {0.0005}, dropout {0.5, 0.8}, lam {1, 2} (4 configurations)" in page


def test_incomplete_cells(done: Path) -> None:
    study, rows = read_results(done).study, read_results(done).rows
    last = max(k for k, row in enumerate(rows) if row.model == "gcn")
    partial = make_page(Results(study, rows[:last] + rows[last + 1 :]))
    assert f"| gcn | 51.00 ± 1.50 | {MISSING} (5 of 6 runs) | – | – | 0 |" in partial
    assert f"| karate | 10 | {MISSING} | – |" in partial
    empty = make_page(Results(study, []))
    assert f"| gfgn-graph | 60.00 | {MISSING} |" in empty
    assert "0 of 2 cells have all their runs" in empty
    results = Results(study, [row for row in rows if (row.replica.dropout, row.replica.split) != (0.8, 1)])
    assert results[Cell("karate", "gfgn-graph")].selection is None  # the grid is not complete
    assert results[Cell("karate", "gfgn-graph")].have == 6
    assert results.missing() == [Cell("karate", "gfgn-graph")]


def test_stand_ins_have_a_separate_section(done: Path, tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY.replace("datasets: [karate]", "datasets: [karate, ppi-relabelled]"))
    page = make_page(read_results(done, path))
    before, after = page.split("## Stand-ins")
    assert "ppi-relabelled" not in before
    section = after.split("## Times")[0]
    assert "### ppi-relabelled" in section
    assert "published |" not in section
    assert section.count(MISSING) == 2


def test_one_split_has_no_interval(done: Path, tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY.replace("splits: 2", "splits: 1"))
    page = make_page(read_results(done, path))
    line = next(line for line in page.splitlines() if line.startswith("| gcn | 51.00 ± 1.50 |"))
    assert line.split(" | ")[3] == "–"
    assert "With one split there is no interval over splits." in page


def test_times_of_the_page(done: Path, tmp_path: Path) -> None:
    rows = read_results(done).rows
    for seconds, exceeds in ((1e4, False), (1e-4, True)):
        page = make_page(read_results(done), [Time("karate", "gcn", 6, seconds, "cpu", "2026-01-01")])
        assert ("Training time exceeds wall-clock time where" in page) == exceeds
        assert "| **the GFGN levels** | 12 | " in page
    only = load_study(
        write_study(tmp_path, STUDY.replace("  gfgn-graph: {lam: [1.0, 2.0]}\n", "").split("published:")[0])
    )
    page = make_page(Results(only, [row for row in rows if row.model == "gcn"]))
    assert "GFGN levels" not in page
    assert "| **all** | 6 | " in page


def test_one_run_has_no_deviation(done: Path, tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY.replace("splits: 2", "splits: 1").replace("seeds: 3", "seeds: 1"))
    page = make_page(read_results(done, path))
    line = next(line for line in page.splitlines() if line.startswith("| gcn | 51.00 ± 1.50 |"))
    assert "±" not in line.split(" | ")[2]
    assert "± is the standard deviation" not in page


# --- checks -----------------------------------------------------------------------------------------------------------


def falsify(out: Path, model: str, **changes: float) -> None:
    """Adds to scores of the first run of a model with seed 0."""
    rows = read_runs(out / "runs.csv.gz")
    k = next(k for k, row in enumerate(rows) if (row.model, row.replica.seed) == (model, 0))
    rows[k] = replace(rows[k], **{name: getattr(rows[k], name) + change for name, change in changes.items()})
    write_runs(out / "runs.csv.gz", rows)


def test_the_page_says_how_many_runs_diverged(copied: Path, tmp_path: Path) -> None:
    path = write_study(tmp_path)
    falsify(copied, "gcn", val=math.nan, test=math.nan)
    reproduce(path, copied, train=False)
    page = (copied / "README.md").read_text(encoding="utf-8")
    assert "- 1 of them diverged: no epoch had a finite loss" in page
    assert "| gcn | 1 of 6 runs diverged (51.00) |" in page
    assert "| gcn | 51.00 ± 1.50 | 1 of 6 runs diverged | – | – | 6 |" in page
    assert "| 0 of 1 |" in page  # datasets of the GCN with a score
    assert "nan" not in page
    assert {point.model for point in study_points(read_results(copied, path))} == {"gfgn-graph"}
    assert check_files(load_study(path), copied) == []


def test_a_check_that_passes(copied: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    checked = check(write_study(tmp_path), copied, seed=7, log=lines.append)
    assert checked.problems == []
    assert lines[0] == f"{copied}: making tables and figures of {ALL_RUNS} runs again"
    assert f"{ALL_RUNS} runs of 2 cells on 1 graph train on {device_name('cpu')}" in lines
    by_bits = f"{ALL_RUNS} by bits, 0 by bounds, also in 0 groups"
    assert checked.summary == [
        f"tables and figures of {copied}: passed",
        f"consistency of {ALL_RUNS} runs: passed",
        f"{ALL_RUNS} runs on 1 graph trained again (sample 7), {by_bits}: passed",
    ]


def test_a_falsified_test_score_is_detected(copied: Path, tmp_path: Path) -> None:
    falsify(copied, "gcn", test=0.01)
    problems = check(write_study(tmp_path), copied, train=False).problems
    assert problems[0].startswith(f"{copied / 'README.md'}: has ")
    assert "but its runs give" in problems[0]
    assert "is no accuracy of 7 nodes" in problems[1]


def test_a_falsified_run_of_the_grid_is_detected(copied: Path, tmp_path: Path) -> None:
    falsify(copied, "gfgn-graph", val=0.01)
    problems = check_files(load_study(write_study(tmp_path)), copied)
    assert any(line.startswith(f"{copied / 'chosen.csv'}: has ") for line in problems)


def test_runs_of_the_same_code_and_device_are_repeated_bit_for_bit(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_study(tmp_path)
    arguments: dict[str, Any] = {"datasets": ["karate"], "models": ["gcn"], "full": True}
    rows = [
        replace(row, test=math.nextafter(row.test, 1)) if row.model == "gcn" and row.replica.seed == 0 else row
        for row in read_runs(copied / "runs.csv.gz")
    ]
    write_runs(copied / "runs.csv.gz", rows)
    reproduce(path, copied, train=False)
    (copied / "runs.sqlite").unlink()
    problems = check(path, copied, **arguments).problems
    assert sum("test of this code on such a device must have the same bits" in line for line in problems) == 2
    monkeypatch.setattr("gfgn.paper.retrain.device_name", lambda device: "another processor")
    problems = check(path, copied, **arguments).problems
    assert problems
    assert all("is no accuracy" in line for line in problems)  # within the bounds


def test_a_run_that_diverged_is_repeated(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_study(tmp_path)
    rows = list(read_runs(copied / "runs.csv.gz"))
    k = next(k for k, row in enumerate(rows) if row.model == "gcn")
    rows[k] = replace(rows[k], val=math.nan, test=math.nan, epoch=-1)
    write_runs(copied / "runs.csv.gz", rows)
    reproduce(path, copied, train=False)
    (copied / "runs.sqlite").unlink()
    monkeypatch.setattr("gfgn.paper.retrain.versions", dict)  # as if another code had made the runs
    arguments: dict[str, Any] = {"datasets": ["karate"], "models": ["gcn"], "full": True}
    (problem,) = check(path, copied, **arguments).problems
    assert "validation nan, now " in problem
    assert problem.endswith("one of the two diverged")
    recorded = {row.replica: row for row in rows if row.model == "gcn"}
    monkeypatch.setattr(
        "gfgn.paper.retrain.train_runs", lambda m, d, replicas, c, where: [recorded[each] for each in replicas]
    )
    assert check(path, copied, **arguments).problems == []


def test_runs_of_another_graph_are_detected(copied: Path, tmp_path: Path) -> None:
    rows = [replace(row, dataset_fingerprint="f00d") for row in read_runs(copied / "runs.csv.gz")]
    write_runs(copied / "runs.csv.gz", rows)
    problems = check(write_study(tmp_path), copied, datasets=["karate"], models=["gcn"]).problems
    assert "the graph differs from that of runs.csv.gz" in problems[0]
    assert problems[-1] == f"… and {ALL_RUNS - 3} more like the last"


def test_data_that_cannot_be_loaded(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("gfgn.runs.study.load_view", load)
    path = write_study(tmp_path)
    checked = check(path, copied)
    assert checked.problems == []
    assert "data of karate (not loaded): not checked" in checked.summary
    for required in ({"full": True}, {"datasets": ["karate"]}):
        assert check(path, copied, **required).problems == ["karate: no network"]  # type: ignore[arg-type]


def test_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"out must be the folder of a study with runs.csv.gz, got "):
        check(write_study(tmp_path), tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
