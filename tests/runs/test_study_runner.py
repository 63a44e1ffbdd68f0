"""Studies run in parts and resume after any interruption."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs.small_studies import ALL_RUNS, STUDY, copy_study, read_csv, run, scores, write_study

from gfgn.runs import read_runs, write_runs
from gfgn.runs import study_runner as module
from gfgn.runs.results import Results, ResultsError
from gfgn.runs.study import Cell
from gfgn.runs.study_file import read_study
from gfgn.runs.study_files import read_times


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study, next to its file."""
    folder = tmp_path_factory.mktemp("results")
    outcome = run(write_study(folder), folder / "small")
    assert outcome.made == ALL_RUNS
    assert not outcome.missing
    return folder / "small"


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    return copy_study(done, tmp_path / "small")


def test_the_files_of_a_study(done: Path) -> None:
    rows = read_runs(done / "runs.csv.gz")
    assert len(rows) == ALL_RUNS
    chosen = read_csv(done / "chosen.csv")
    assert [line["chosen"] for line in chosen] == ["1", "0", "0", "0", "1"]
    assert len({(line["lr"], line["dropout"], line["lam"]) for line in chosen[:4]}) == 4
    values = [float(line["val"]) for line in chosen[:4]]
    assert values == sorted(values, reverse=True)
    best = chosen[0]
    final = [row.replica for row in rows if row.model == "gfgn-graph" and row.replica.seed]
    assert {(r.dropout, r.lam) for r in final} == {(float(best["dropout"]), float(best["lam"]))}
    assert {(r.split, r.seed) for r in final} == {(split, seed) for split in (0, 1) for seed in (1, 2)}
    tuning = [row.val for row in rows if row.model == "gfgn-graph" and not row.replica.seed]
    assert float(best["val"]) == pytest.approx(max(sum(tuning[k : k + 2]) / 2 for k in range(0, 8, 2)), abs=1e-6)
    times = read_times(done / "times.csv")
    assert [time.model for time in times] == ["gfgn-graph", "gcn"]
    assert sum(time.runs for time in times) == ALL_RUNS


def test_a_second_call_trains_nothing(copied: Path, done: Path, tmp_path: Path) -> None:
    """Neither with the store nor, without it, with the table alone."""
    path, names = write_study(tmp_path), ("runs.csv.gz", "chosen.csv")
    before, lines = [(copied / name).read_bytes() for name in names], []
    assert run(path, copied, log=lines.append).made == 0
    assert lines[0] == f"{ALL_RUNS} runs from {copied / 'runs.csv.gz'}"
    assert [(copied / name).read_bytes() for name in names] == before
    assert run(path, copied).made == 0
    assert read_times(copied / "times.csv") == read_times(done / "times.csv")


def test_only_missing_runs_are_trained(copied: Path, done: Path, tmp_path: Path) -> None:
    rows = read_runs(copied / "runs.csv.gz")
    write_runs(copied / "runs.csv.gz", [row for k, row in enumerate(rows) if k % 3])
    assert run(write_study(tmp_path), copied).made == ALL_RUNS // 3
    assert scores(copied) == scores(done)


@pytest.mark.parametrize("after", [1, ALL_RUNS - 1])
def test_finished_runs_survive_an_interruption(
    after: int, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = write_study(tmp_path), tmp_path / "out"
    count = module._Progress.on_run_end

    def interrupt(self: Any, row: Any) -> None:
        count(self, row)
        if self.outcome.made == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(module._Progress, "on_run_end", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(path, out)
    monkeypatch.undo()
    assert len(read_runs(out / "runs.csv.gz")) == after
    assert sum(time.runs for time in read_times(out / "times.csv")) == after
    for store in out.glob("runs.sqlite*"):
        store.unlink()
    assert run(path, out).made == ALL_RUNS - after
    assert scores(out) == scores(done)
    assert (out / "chosen.csv").read_text() == (done / "chosen.csv").read_text()


def test_a_part_of_a_study(done: Path, tmp_path: Path) -> None:
    path, out = write_study(tmp_path), tmp_path / "out"
    first = run(path, out, models=["gcn"])
    assert (first.made, first.missing) == (6, [])
    assert run(path, out, datasets=["karate"], models=["gfgn-graph"]).made == ALL_RUNS - 6
    assert scores(out) == scores(done)
    for settings, message in (
        ({"models": ["mlp"]}, "models must be among gfgn-graph, gcn, got 'mlp'"),
        ({"datasets": ["cora"]}, "datasets must be among karate, got 'cora'"),
        ({"limit_minutes": 0}, "limit_minutes must be above 0, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            run(path, out, **settings)


def test_the_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write_study(tmp_path), tmp_path / "out"
    outcome = run(path, out, limit_minutes=1e-9)
    assert (outcome.stopped, outcome.made, len(outcome.missing)) == (True, 0, 2)
    assert read_runs(out / "runs.csv.gz") == []
    checks: list[int] = []

    def check_time(self: Any, grace: float = 0.0) -> None:
        checks.append(0)
        if len(checks) > 12:
            raise module.TimeUp

    monkeypatch.setattr(module._Progress, "check_time", check_time)
    outcome = run(path, out, batch_size=2)
    assert outcome.stopped
    assert 0 < outcome.made < ALL_RUNS
    assert len(read_runs(out / "runs.csv.gz")) == outcome.made
    monkeypatch.undo()
    assert run(path, out, limit_minutes=60).made == ALL_RUNS - outcome.made


def test_runs_of_named_folders_are_reused(copied: Path, tmp_path: Path) -> None:
    fewer = STUDY.replace("seeds: 3", "seeds: 1").replace("dropout: [0.5, 0.8]}", "dropout: [0.5]}")
    lines: list[str] = []
    outcome = run(write_study(tmp_path, fewer, "fewer"), tmp_path / "fewer", reuse=[copied], log=lines.append)
    assert outcome.made == 0
    assert outcome.reused == [f"6 runs from {copied / 'runs.csv.gz'}"]
    assert f"reused: {outcome.reused[0]}" in lines
    assert len(read_runs(tmp_path / "fewer" / "runs.csv.gz")) == 2 * 2 + 2  # and no others
    again = run(tmp_path / "fewer.yaml", tmp_path / "again", reuse=[tmp_path / "fewer"], train=False)
    assert (again.made, again.missing) == (0, [])
    shorter = fewer.replace("max_epochs: 3", "max_epochs: 2")
    assert run(write_study(tmp_path, shorter, "shorter"), tmp_path / "shorter", reuse=[copied]).made == 6
    with pytest.raises(FileNotFoundError, match=r"out must be the folder of a study with runs.csv.gz, got .*nowhere"):
        run(tmp_path / "fewer.yaml", tmp_path / "deep" / "nowhere", train=False)
    assert not (tmp_path / "deep").exists()


def test_missing_data_is_left_out_unless_it_was_named(tmp_path: Path) -> None:
    text = STUDY.replace("[karate]", "[ogbn-arxiv-structure, karate]")
    path, out = write_study(tmp_path, text), tmp_path / "out"
    outcome = run(path, out, root=tmp_path, models=["gcn"])
    assert outcome.made == 6
    assert len(outcome.left_out) == 1
    assert outcome.left_out[0].startswith("ogbn-arxiv-structure: ogbn-arxiv-structure needs ")
    assert outcome.missing == [Cell("ogbn-arxiv-structure", "gcn")]
    with pytest.raises(FileNotFoundError, match="ogbn-arxiv-structure needs"):
        run(path, out, root=tmp_path, datasets=["ogbn-arxiv-structure"])


def test_runs_of_other_data_are_refused(copied: Path, tmp_path: Path) -> None:
    rows = read_runs(copied / "runs.csv.gz")
    for name in ("dataset_fingerprint", "split_fingerprint"):
        changed = [replace(row, **{name: f"f00d{row.replica.split * (name[0] == 's')}"}) for row in rows]
        write_runs(copied / "runs.csv.gz", changed)
        with pytest.raises(ValueError, match="whose 'karate', split 0, differs from the loaded one"):
            run(write_study(tmp_path), copied)
        for path in copied.glob("runs.sqlite*"):
            path.unlink()


def test_two_graphs_with_one_name_are_refused(done: Path) -> None:
    study, rows = read_study(done.parent / "small.yaml"), read_runs(done / "runs.csv.gz")
    other = replace(rows[0], dataset_fingerprint="f00d")
    with pytest.raises(ResultsError, match="one graph and one split per name, got two different ones of 'karate'"):
        Results(study, [*rows, other])
