"""Studies run in parts, go on after any interruption, and the files that come of them are checked."""

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paper.small_studies import quiet, run, write_study

from gfgn.data import load
from gfgn.paper import reproduce as module
from gfgn.paper.check import _compare, check, check_files
from gfgn.paper.page import MISSING, Time, make_page
from gfgn.paper.reproduce import add_time, main, read_times, show, show_check
from gfgn.runs import Store
from gfgn.runs.record import Row
from gfgn.runs.results import Results, ResultsError
from gfgn.runs.study import Cell, load_study
from gfgn.runs.table import read_runs, write_runs
from gfgn.runs.views import View, load_view
from gfgn.train import Replica, Status

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


def write(folder: Path, text: str = STUDY, name: str = "small") -> Path:
    return write_study(folder, text, name)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def scores(out: Path) -> dict[str, tuple[float, float]]:
    return {row.key: (row.val, row.test) for row in read_runs(out / "runs.csv")}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study, whose file lies beside it."""
    folder = tmp_path_factory.mktemp("results")
    outcome = run(write(folder), folder / "small")
    assert outcome.made == ALL_RUNS
    assert not outcome.missing
    return folder / "small"


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed, without its store."""
    out = tmp_path / "small"
    out.mkdir()
    for path in done.iterdir():
        if "sqlite" not in path.name:
            (out / path.name).write_bytes(path.read_bytes())
    return out


# --- running ----------------------------------------------------------------------------------------------------------


def test_a_study_and_its_files(done: Path) -> None:
    rows = table(done / "runs.csv")
    assert len(rows) == ALL_RUNS
    chosen = table(done / "chosen.csv")
    assert [line["chosen"] for line in chosen] == ["1", "0", "0", "0", "1"]
    assert len({(line["lr"], line["dropout"], line["lam"]) for line in chosen[:4]}) == 4
    values = [float(line["val"]) for line in chosen[:4]]
    assert values == sorted(values, reverse=True)
    best = chosen[0]
    final = [r for r in rows if r["model"] == "gfgn-graph" and r["seed"] != "0"]
    assert {(r["dropout"], r["lam"]) for r in final} == {(best["dropout"], best["lam"])}
    assert {(r["split"], r["seed"]) for r in final} == {(s, k) for s in "01" for k in "12"}
    tuning = [float(r["val"]) for r in rows if r["model"] == "gfgn-graph" and r["seed"] == "0"]
    by_hand = max(sum(tuning[k : k + 2]) / 2 for k in range(0, 8, 2))
    assert float(best["val"]) == pytest.approx(by_hand, abs=1e-6)
    assert [time.model for time in read_times(done / "times.csv")] == ["gfgn-graph", "gcn"]
    assert sum(time.runs for time in read_times(done / "times.csv")) == ALL_RUNS


def test_run_again_it_trains_nothing(copied: Path, done: Path, tmp_path: Path) -> None:
    """Neither from the store nor, where there is none, from the table."""
    path, texts = (
        write(tmp_path),
        {name: (copied / name).read_text() for name in ("runs.csv", "chosen.csv", "README.md")},
    )
    lines: list[str] = []
    assert run(path, copied, say=lines.append).made == 0
    assert lines[0] == f"{ALL_RUNS} runs from {copied / 'runs.csv'}"
    assert {name: (copied / name).read_text() for name in texts} == texts
    assert run(path, copied).made == 0
    assert read_times(copied / "times.csv") == read_times(done / "times.csv")


def test_what_the_table_lacks_is_trained(copied: Path, done: Path, tmp_path: Path) -> None:
    rows = read_runs(copied / "runs.csv")
    write_runs(copied / "runs.csv", [row for place, row in enumerate(rows) if place % 3])
    outcome = run(write(tmp_path), copied)
    assert outcome.made == ALL_RUNS // 3
    assert scores(copied) == scores(done)


@pytest.mark.parametrize("after", [1, 9, ALL_RUNS - 1])
def test_an_interruption_keeps_what_has_finished(
    after: int, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out, seen = write(tmp_path), tmp_path / "out", []
    count = module._Runner._count

    def interrupt(self: Any, row: Any) -> None:
        count(self, row)
        seen.append(row)
        if len(seen) == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(module._Runner, "_count", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(path, out)
    monkeypatch.undo()
    assert len(read_runs(out / "runs.csv")) == after
    assert sum(time.runs for time in read_times(out / "times.csv")) == after
    (out / "runs.sqlite").unlink()
    for rest in out.glob("runs.sqlite-*"):
        rest.unlink()
    outcome = run(path, out)
    assert outcome.made == ALL_RUNS - after
    assert scores(out) == scores(done)
    assert (out / "chosen.csv").read_text() == (done / "chosen.csv").read_text()


def test_files_are_written_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is killed leaves more than its store."""
    monkeypatch.setattr(module, "WRITE_EVERY", 0.0)
    out, found = tmp_path / "out", []

    def look(line: str) -> None:
        found.append(len(table(out / "runs.csv")) if (out / "runs.csv").is_file() else 0)

    run(write(tmp_path), out, say=look)
    assert found == [0, ALL_RUNS - 6]  # as the second model ends, those of the first are there


def test_in_parts(done: Path, tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "out"
    first = run(path, out, models=["gcn"])
    assert first.made == 6
    assert not first.missing
    page = (out / "README.md").read_text()
    assert f"| gfgn-graph | 60.00 | {MISSING} |" in page
    assert "1 of 2 cells have all their runs" in page
    second = run(path, out, datasets=["karate"], models=["gfgn-graph"])
    assert second.made == ALL_RUNS - 6
    assert scores(out) == scores(done)
    for settings, message in (
        ({"models": ["mlp"]}, "--models must be among gfgn-graph, gcn, got 'mlp'"),
        ({"datasets": ["cora"]}, "--datasets must be among karate, got 'cora'"),
        ({"limit_minutes": 0}, "limit_minutes must be above 0, got 0"),
        ({"device": "abacus"}, "--device must be auto or one that this machine has"),
    ):
        with pytest.raises(ValueError, match=message):
            run(path, out, **settings)


def test_the_limit_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write(tmp_path), tmp_path / "out"
    outcome = run(path, out, limit_minutes=1e-9)
    assert outcome.stopped
    assert outcome.made == 0
    assert len(outcome.missing) == 2
    assert read_runs(out / "runs.csv") == []
    looks: list[int] = []

    def check(self: Any, grace: float = 0.0) -> None:
        looks.append(0)
        if len(looks) > 12:
            raise module.TimeUp

    monkeypatch.setattr(module._Clock, "check", check)
    outcome = run(path, out, batch_size=2)
    assert outcome.stopped
    assert 0 < outcome.made < ALL_RUNS
    assert len(read_runs(out / "runs.csv")) == outcome.made
    monkeypatch.undo()
    assert run(path, out, limit_minutes=60).made == ALL_RUNS - outcome.made


def test_what_is_nearly_done_has_a_minute_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    lines: list[str] = []
    clock = module._Clock(1.0, lines.append)
    clock.label = "karate gcn"

    def status(left: float | None) -> Status:
        return Status(replicas=8, finished=2, alive=6, epoch=5, best_val=0.5, seconds=1.0, seconds_left=left)

    clock.watch(status(None))
    assert lines == []
    now[0] = 59.0
    clock.watch(status(1000.0))
    assert lines == ["karate gcn: 2 of 8 runs, 6 training at epoch 5, about 1000 s left"]
    now[0] = 61.0
    clock.watch(status(30.0))
    for left in (61.0, None):
        with pytest.raises(module.TimeUp):
            clock.watch(status(left))
    with pytest.raises(module.TimeUp):
        clock.check()
    now[0] = 121.0
    with pytest.raises(module.TimeUp):
        clock.watch(status(1.0))
    assert [clock.is_time_to_write(), clock.is_time_to_write()] == [True, False]


def test_what_a_neighbour_has_is_not_trained_again(copied: Path, tmp_path: Path) -> None:
    fewer = STUDY.replace("seeds: 3", "seeds: 1").replace("dropout: [0.5, 0.8]}", "dropout: [0.5]}")
    lines: list[str] = []
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "runs.csv").write_text("a,b\n1,2\n")  # a table of something else
    outcome = run(write(tmp_path, fewer, "fewer"), tmp_path / "fewer", say=lines.append)
    assert outcome.made == 0
    assert "6 runs from small/runs.csv" in lines
    assert len(read_runs(tmp_path / "fewer" / "runs.csv")) == 2 * 2 + 2  # and nothing that it has not asked for
    again = run(tmp_path / "fewer.yaml", tmp_path / "again", train=False)
    assert (again.made, again.missing) == (0, [])
    longer = fewer.replace("max_epochs: 3", "max_epochs: 2")
    assert run(write(tmp_path, longer, "longer"), tmp_path / "longer").made == 6


def test_noise_and_what_is_varied(tmp_path: Path) -> None:
    noisy = STUDY.replace("grid:", "vary: {noise: [0.0, 0.5]}\ngrid:").replace("seeds: 3", "seeds: 1")
    noisy = noisy.replace("dataset: karate, value: 10", "dataset: karate, at: 0.5, value: 10")
    noisy = noisy.replace("model: gfgn-graph, value: 0.9", "model: gfgn-graph, at: 0.5, value: 0.9")
    out = tmp_path / "noisy"
    outcome = run(write(tmp_path, noisy, "noisy"), out)
    assert outcome.made == 2 * (4 * 2 + 2)
    rows = table(out / "runs.csv")
    assert {row["dataset"] for row in rows} == {"karate", "karate+50%"}
    assert len({row["dataset_fingerprint"] for row in rows}) == 2
    assert {line["noise"] for line in table(out / "chosen.csv")} == {"0.0", "0.5"}
    page = (out / "README.md").read_text()
    assert "| added edges | 0% | 50% |" in page
    assert "karate, 50% added edges | 10 |" in page
    karate = load("karate")
    assert load_view("karate", View(noise=0.5)).graph.num_edges == karate.graph.num_edges + 2 * 39


def test_lambda_is_varied_in_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = STUDY.replace("grid:", "vary: {lam: [0.0, 1.0, 10.0]}\ngrid:").replace("seeds: 3", "seeds: 2")
    text = text.replace("{lam: [1.0, 2.0]}", "{}")
    text = text[: text.index("  facts")]
    calls: list[int] = []
    original = module.run_study

    def counting(*arguments: Any, **settings: Any) -> Any:
        calls.append(len(arguments[3]))
        return original(*arguments, **settings)

    monkeypatch.setattr(module, "run_study", counting)
    out = tmp_path / "lam"
    assert run(write(tmp_path, text, "lam"), out).made == 3 * (2 * 2 + 2) + 4
    assert calls == [12, 12, 4]  # the grids of three λ at once, their final runs (half of them there), the GCN
    page = (out / "README.md").read_text()
    assert "| λ | 0 | 1 | 10 |" in page
    assert "gcn does not depend on λ." in page
    assert {row["lam"] for row in table(out / "runs.csv") if row["model"] == "gfgn-graph"} == {"0.0", "1.0", "10.0"}
    assert {line["at_lam"] for line in table(out / "chosen.csv")} == {"0.0", "1.0", "10.0", ""}


def test_data_that_is_not_there_is_left_out_unless_it_was_named(tmp_path: Path) -> None:
    path, out = write(tmp_path, STUDY.replace("[karate]", "[ogbn-arxiv-structure, karate]")), tmp_path / "out"
    outcome = run(path, out, root=tmp_path, models=["gcn"])
    assert outcome.made == 6
    assert len(outcome.left_out) == 1
    assert outcome.left_out[0].startswith("ogbn-arxiv-structure: ogbn-arxiv-structure needs ")
    assert outcome.missing == [Cell("ogbn-arxiv-structure", "gcn")]
    with pytest.raises(FileNotFoundError, match="ogbn-arxiv-structure needs"):
        run(path, out, root=tmp_path, datasets=["ogbn-arxiv-structure"])


def test_runs_of_other_data_are_not_added_to(copied: Path, tmp_path: Path) -> None:
    for column in ("dataset_fingerprint", "split_fingerprint"):
        rows, before = table(copied / "runs.csv"), (copied / "runs.csv").read_text()
        (copied / "runs.csv").write_text(before.replace(rows[0][column], "f00d"))
        with pytest.raises(ValueError, match="whose 'karate', split 0, is not the one that is loaded"):
            run(write(tmp_path), copied)
        (copied / "runs.csv").write_text(before)
        for path in copied.glob("runs.sqlite*"):
            path.unlink()


def test_a_package_that_is_not_there_leaves_a_model_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise ImportError("a package")

    monkeypatch.setattr("gfgn.train.dispatch.train_minibatch", missing)
    path = write(tmp_path, STUDY.replace("  gcn: {dropout: [0.5]}", "  vr-gcn: {dropout: [0.5]}\n  gcn: {}"))
    outcome = run(path, tmp_path / "out", models=["vr-gcn", "gcn"])
    assert outcome.missing == [Cell("karate", "vr-gcn")]
    assert outcome.left_out[0].startswith("karate vr-gcn: ")
    assert outcome.made == 2 * 2 + 2 * 2
    assert show(outcome) == 1


def test_analyses_run_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, str]] = []

    def analysis(out: Path, *, root: Path | None, device: str, progress: Any) -> list[Path]:
        calls.append((out, device))
        return [out / "found.csv"]

    monkeypatch.setitem(module.ANALYSES, "musing", analysis)
    assert "musing" in module.names()
    assert run("musing", tmp_path / "musing").files == [tmp_path / "musing" / "found.csv"]  # type: ignore[arg-type]
    assert calls == [(tmp_path / "musing", "cpu")]
    with pytest.raises(ValueError, match=r"name must be one of ablations, .* or a YAML file, got 'table'; did you"):
        run("table", tmp_path)  # type: ignore[arg-type]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page(done: Path) -> None:
    study = load_study(done.parent / "small.yaml")
    results = Results(study, read_runs(done / "runs.csv"))
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
    low, high = 100 * gcn.summary.low, 100 * gcn.summary.high
    assert f"| {gcn.mean:.2f} ± {100 * gcn.summary.std:.2f} | [{low:.2f}, {high:.2f}] |" in line
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


def test_what_is_missing_says_so(done: Path) -> None:
    study, rows = load_study(done.parent / "small.yaml"), read_runs(done / "runs.csv")
    last = max(place for place, row in enumerate(rows) if row.model == "gcn")
    some = make_page(Results(study, rows[:last] + rows[last + 1 :]))
    assert f"| gcn | 51.00 ± 1.50 | {MISSING} (5 of 6 runs) | – | – | 0 |" in some
    assert f"| karate | 10 | {MISSING} | – |" in some
    none = make_page(Results(study, []))
    assert f"| gfgn-graph | 60.00 | {MISSING} |" in none
    assert "0 of 2 cells have all their runs" in none
    results = Results(study, [row for row in rows if (row.replica.dropout, row.replica.split) != (0.8, 1)])
    assert results[Cell("karate", "gfgn-graph")].selection is None  # the grid is not complete
    assert results[Cell("karate", "gfgn-graph")].have == 6
    assert results.missing() == [Cell("karate", "gfgn-graph")]


def test_stand_ins_have_a_section_of_their_own(done: Path, tmp_path: Path) -> None:
    path = write(tmp_path, STUDY.replace("datasets: [karate]", "datasets: [karate, ppi-relabelled]"))
    page = make_page(Results(load_study(path), read_runs(done / "runs.csv")))
    before, after = page.split("## Stand-ins")
    assert "ppi-relabelled" not in before
    section = after.split("## Times")[0]
    assert "### ppi-relabelled" in section
    assert "published |" not in section
    assert section.count(MISSING) == 2


def test_one_split_has_no_interval(done: Path, tmp_path: Path) -> None:
    path = write(tmp_path, STUDY.replace("splits: 2", "splits: 1"))
    page = make_page(Results(load_study(path), read_runs(done / "runs.csv")))
    line = next(line for line in page.splitlines() if line.startswith("| gcn | 51.00 ± 1.50 |"))
    assert line.split(" | ")[3] == "–"
    assert "There is one split, and so no interval over splits." in page


def test_times_of_the_page(done: Path, tmp_path: Path) -> None:
    study, rows = load_study(done.parent / "small.yaml"), read_runs(done / "runs.csv")
    for seconds, told in ((1e4, False), (1e-4, True)):
        page = make_page(Results(study, rows), [Time("karate", "gcn", 6, seconds, "cpu", "2026-01-01")])
        assert ("The first exceed the second where" in page) == told
        assert "| **the GFGN levels** | 12 | " in page
    only = load_study(write(tmp_path, STUDY.replace("  gfgn-graph: {lam: [1.0, 2.0]}\n", "").split("published:")[0]))
    page = make_page(Results(only, [row for row in rows if row.model == "gcn"]))
    assert "GFGN levels" not in page
    assert "| **all** | 6 | " in page


def test_one_run_has_no_deviation(done: Path, tmp_path: Path) -> None:
    path = write(tmp_path, STUDY.replace("splits: 2", "splits: 1").replace("seeds: 3", "seeds: 1"))
    page = make_page(Results(load_study(path), read_runs(done / "runs.csv")))
    line = next(line for line in page.splitlines() if line.startswith("| gcn | 51.00 ± 1.50 |"))
    assert "±" not in line.split(" | ")[2]
    assert "What follows a ±" not in page


def test_two_graphs_of_one_name_are_refused(done: Path) -> None:
    import dataclasses

    study, rows = load_study(done.parent / "small.yaml"), read_runs(done / "runs.csv")
    other = dataclasses.replace(rows[0], dataset_fingerprint="f00d")
    with pytest.raises(ResultsError, match="one graph and one split for a name, got two different ones of 'karate'"):
        Results(study, [*rows, other])


# --- checks -----------------------------------------------------------------------------------------------------------


def falsify(out: Path, column: str, change: float, **where: str) -> None:
    """Changes a number in the first line that agrees with `where`."""
    rows = table(out / "runs.csv")
    line = next(row for row in rows if all(row[name] == value for name, value in where.items()))
    line[column] = str(float(line[column]) + change)
    with (out / "runs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def test_a_check_of_what_is_right(copied: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    assert check(write(tmp_path), copied, datasets=["karate"], say=lines.append) == []
    assert lines[0] == f"{copied}: tables follow from the runs"
    assert lines[-1] == "karate: 4 runs made again, mean test score +0.00 points (at most 14.29)"
    assert sum("again" in line for line in lines) == 5
    lines.clear()
    assert check(write(tmp_path), copied, say=lines.append) == []
    assert "no run is made again: small has none of texas, cornell, wisconsin, cora" in lines[-1]


def test_a_falsified_test_score_is_found(copied: Path, tmp_path: Path) -> None:
    falsify(copied, "test", 0.01, model="gcn")
    (found,) = check(write(tmp_path), copied, datasets=["karate"], runs_a_cell=0, say=quiet)
    assert found.startswith(f"{copied / 'README.md'}: has ")
    assert "and its runs make" in found


def test_a_falsified_run_of_the_grid_is_found(copied: Path, tmp_path: Path) -> None:
    falsify(copied, "val", 0.01, model="gfgn-graph", seed="0")
    found = check_files(load_study(write(tmp_path)), copied)
    assert any(line.startswith(f"{copied / 'chosen.csv'}: has ") for line in found)


def test_a_falsified_run_whose_tables_follow_is_found_by_running_it_again(copied: Path, tmp_path: Path) -> None:
    path = write(tmp_path)
    falsify(copied, "val", 0.3, model="gcn", split="0", seed="0")
    falsify(copied, "test", -0.5, model="gcn", split="0", seed="0")
    run(path, copied, train=False)
    found = check(path, copied, datasets=["karate"], models=["gcn"], say=quiet)
    assert len(found) == 2
    assert sum(line.startswith("karate gcn split 0 seed 0: validation ") for line in found) == 1
    assert sum("the mean test score of 2 runs is off by +25.00 points" in line for line in found) == 1


def test_some_runs_may_go_astray(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a score that other seeds have, and not too many of them."""
    path = write(tmp_path)
    falsify(copied, "val", 0.6, model="gcn", split="0", seed="0")
    run(path, copied, train=False)
    rows = {(row.replica.split, row.replica.seed): row for row in read_runs(copied / "runs.csv") if row.model == "gcn"}

    def elsewhere(model: str, data: Any, replicas: list[Replica], config: Any) -> list[Row]:
        """Runs that end like the first of another seed of their split."""
        others = {r: next(s for s in sorted(rows) if s[0] == r.split and s[1] != r.seed) for r in replicas}
        return [replace(rows[r.split, r.seed], val=rows[others[r]].val) for r in replicas]

    monkeypatch.setattr("gfgn.paper.check.train_runs", elsewhere)
    lines: list[str] = []
    settings: dict[str, Any] = {"datasets": ["karate"], "models": ["gcn"], "say": lines.append}
    (found,) = check(path, copied, **settings)
    assert found.startswith("karate gcn split 0 seed 0: validation ")
    assert lines[-1] == "1 of 2 runs went astray, to scores that other seeds have"
    monkeypatch.setattr("gfgn.paper.check.ASTRAY", 0.5)
    assert check(path, copied, **settings) == []
    rows = {place: replace(row, val=0.0) for place, row in rows.items()}  # no seed has that
    (found, *_) = check(path, copied, **settings)
    assert "again 0.00" in found


@pytest.mark.parametrize(("val", "astray"), [(0.7, 1), (0.0, 0)])
def test_with_one_seed_other_splits_tell_what_is_astray(
    val: float, astray: int, done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load("karate")
    row, other = sorted(
        (row for row in read_runs(done / "runs.csv") if row.model == "gcn" and row.replica.seed == 0),
        key=lambda row: row.replica.split,
    )[:2]
    row, siblings = replace(row, val=1.0), [replace(other, val=0.7), replace(other, val=0.75)]
    monkeypatch.setattr("gfgn.paper.check.train_runs", lambda *_: [replace(row, val=val)])
    again = _compare(data, Cell("karate", "gcn"), [row], [row, *siblings], row.config, quiet)
    assert (len(again.astray), len(again.wrong)) == (astray, 1 - astray)


def test_runs_of_another_graph_are_found(copied: Path, tmp_path: Path) -> None:
    rows = table(copied / "runs.csv")
    text = (copied / "runs.csv").read_text().replace(rows[0]["dataset_fingerprint"], "f00d")
    (copied / "runs.csv").write_text(text)
    found = check(write(tmp_path), copied, datasets=["karate"], models=["gcn"], say=quiet)
    assert found == ["karate: the graph is not the one of runs.csv"]


def test_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"out must be the folder of a study with runs.csv, got "):
        check(write(tmp_path), tmp_path / "nowhere", say=quiet)
    with pytest.raises(FileNotFoundError, match=r"out must be the folder of a study with runs.csv, or beside such"):
        run(write(tmp_path), tmp_path / "nowhere", train=False)
    assert not (tmp_path / "nowhere").exists()


def test_tables_are_written_again_without_training(copied: Path, done: Path, tmp_path: Path) -> None:
    for name in ("README.md", "chosen.csv"):
        (copied / name).unlink()
    outcome = run(write(tmp_path), copied, train=False)
    assert outcome.made == 0
    for name in ("README.md", "chosen.csv", "runs.csv"):
        assert (copied / name).read_text() == (done / name).read_text()


# --- as a command -----------------------------------------------------------------------------------------------------


def test_the_plain_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(write(tmp_path)), str(tmp_path / "out")
    assert main([path, "--out", out, "--device", "cpu", "--models", "gcn, "]) == 0
    assert capsys.readouterr().out.startswith("6 new runs; ")
    assert main([path, "--out", out, "--check", "--datasets", "karate", "--models", "gcn"]) == 0
    assert capsys.readouterr().out == "all as committed\n"
    falsify(Path(out), "test", 0.1, model="gcn")
    assert main([path, "--out", out, "--check"]) == 1
    assert "differs: " in capsys.readouterr().out
    assert main([path, "--out", out, "--tables"]) == 0
    assert main([path, "--out", out, "--check"]) == 0
    assert main([path, "--models", "mlp"]) == 2
    assert "gfgn: --models must be among" in capsys.readouterr().err
    assert show_check([]) == 0


def test_it_runs_with_little_installed(tmp_path: Path) -> None:
    path = write(tmp_path)
    code = (
        "import sys\n"
        "for name in 'typer rich pydantic pandas pyarrow sklearn matplotlib numba llvmlite'.split():\n"
        "    sys.modules[name] = None\n"
        "from gfgn.paper.reproduce import main\n"
        f"sys.exit(main([{str(path)!r}, '--out', {str(tmp_path / 'out')!r}, '--device', 'cpu']))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with Store(tmp_path / "out" / "runs.sqlite", read_only=True) as store:
        assert len(store) == ALL_RUNS
    assert f"{ALL_RUNS} runs" in (tmp_path / "out" / "README.md").read_text()


def test_processes_add_their_times_to_one_file(tmp_path: Path) -> None:
    path, date = tmp_path / "times.csv", "2026-01-01T00:00:00+00:00"
    code = (
        "import sys; from pathlib import Path; from gfgn.paper.page import Time; "
        "from gfgn.paper.reproduce import add_time\n"
        f"for k in range(50): add_time(Path(sys.argv[1]), Time('a, b', sys.argv[2], k, 1.004, 'cpu', {date!r}))"
    )
    add_time(path, Time("first", "gcn", 1, 2.0, "cpu", date))
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("gat", "sgc")]
    assert [writer.wait() for writer in writers] == [0, 0]
    first, *others = read_times(path)
    assert first == Time("first", "gcn", 1, 2.0, "cpu", date)
    for name in ("gat", "sgc"):
        assert [time for time in others if time.model == name] == [
            Time("a, b", name, k, 1.0, "cpu", date) for k in range(50)
        ]
    assert len(others) == 100
