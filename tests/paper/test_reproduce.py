"""`reproduce` and `check` of a small study, of a custom one, and of an analysis."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from runs.small_studies import ALL_RUNS, copy_study, scores
from runs.small_studies import STUDY as SMALL
from runs.small_studies import write_study as write

from gfgn.paper import check as checking
from gfgn.paper.check import MEASURES, Rerun, check, check_files, compare
from gfgn.paper.reproduce import reproduce, write_derived
from gfgn.paper.studies import ANALYSES, load_study
from gfgn.runs import RunRecord, read_runs, write_runs
from gfgn.runs.results import Results
from gfgn.train import Run

STUDY = "".join(line for line in SMALL.splitlines(keepends=True) if "gate_max" not in line)  # so that there is a figure


def write_study(folder: Path, text: str = STUDY) -> Path:
    return write(folder, text)


@pytest.fixture(autouse=True)
def no_run_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SLOW", math.inf)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished study, next to its file."""
    folder = tmp_path_factory.mktemp("results")
    outcome = reproduce(write_study(folder), folder / "small", device="cpu")
    assert (outcome.made, outcome.missing) == (ALL_RUNS, [])
    names = {path.name for path in outcome.files}
    assert names > {"runs.csv.gz", "chosen.csv", "times.csv", "README.md", "small.svg"}
    return folder / "small"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path)


@pytest.fixture
def copied(done: Path, tmp_path: Path) -> Path:
    return copy_study(done, tmp_path / "small")


def test_tables_are_rewritten_without_training(copied: Path, done: Path, study: Path) -> None:
    for name in ("README.md", "chosen.csv", "small.svg"):
        (copied / name).unlink()
    assert reproduce(study, copied, train=False).made == 0
    for name in ("README.md", "chosen.csv", "runs.csv.gz", "small.svg"):
        assert (copied / name).read_bytes() == (done / name).read_bytes()
    assert scores(copied) == scores(done)


def test_analyses_run_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, str]] = []

    def analysis(out: Path, *, root: Path | None, device: str, progress: object) -> list[Path]:
        calls.append((out, device))
        return [out / "table.csv"]

    monkeypatch.setitem(ANALYSES, "musing", analysis)
    assert reproduce("musing", tmp_path / "musing", device="cpu").files == [tmp_path / "musing" / "table.csv"]
    assert calls == [(tmp_path / "musing", "cpu")]
    with pytest.raises(ValueError, match=r"name must be one of .*musing.*, got 'table'; did you"):
        reproduce("table", tmp_path)
    with pytest.raises(ValueError, match="datasets must not be given for 'musing'"):
        reproduce("musing", tmp_path, device="cpu", datasets=["cora"])


# --- checks -----------------------------------------------------------------------------------------------------------


def change(out: Path, model: str, **changes: object) -> None:
    """Replaces fields of the first run of a model with seed 0."""
    rows = read_runs(out / "runs.csv.gz")
    k = next(k for k, row in enumerate(rows) if (row.model, row.seed) == (model, 0))
    rows[k] = replace(rows[k], **changes)  # type: ignore[arg-type]
    write_runs(out / "runs.csv.gz", rows)


def test_a_check_that_passes(copied: Path, study: Path) -> None:
    lines: list[str] = []
    assert check(study, copied, seed=7, log=lines.append) == {
        f"tables and figures of {copied}": [],
        f"{ALL_RUNS} runs on 1 graph trained again (sample 7), {ALL_RUNS} equal bit for bit": [],
    }
    assert any("--seed 7 draws it again" in line for line in lines)


@pytest.mark.parametrize("name", ["README.md", "chosen.csv", "small.svg"])
def test_a_changed_file_is_found(name: str, copied: Path, study: Path) -> None:
    text = (copied / name).read_text(encoding="utf-8")
    (copied / name).write_text(text.replace("0", "1", 1), encoding="utf-8")
    results = Results(load_study(study), read_runs(copied / "runs.csv.gz"))
    (problem,) = check_files(copied, partial(write_derived, results))
    assert problem.startswith(f"{copied / name}: has ")
    (copied / name).unlink()
    assert check_files(copied, partial(write_derived, results)) == [f"{copied / name}: does not exist"]


def test_a_changed_score_is_found(copied: Path, study: Path) -> None:
    change(copied, "gcn", test=0.123)
    tables, runs = check(study, copied, seed=1).items()
    assert any("README.md: has " in problem for problem in tables[1])
    assert f"{ALL_RUNS - 1} equal bit for bit" in runs[0]


def test_runs_of_other_data_and_data_that_cannot_be_loaded(
    copied: Path, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [replace(row, dataset_fingerprint="f00d") for row in read_runs(copied / "runs.csv.gz")]
    write_runs(copied / "runs.csv.gz", rows)
    (problem,) = check(study, copied, datasets=["karate"])["data"]
    assert problem.startswith("karate: the data have another fingerprint")

    def load(*_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("gfgn.runs.study.load_view", load)
    lines: list[str] = []
    assert not any(check(study, copied, log=lines.append).values())
    assert "not trained again: karate: no network" in lines
    assert check(study, copied, full=True)["data"] == ["karate: no network"]
    with pytest.raises(FileNotFoundError, match=r"out must be the folder of a study with runs.csv.gz"):
        check(study, copied / "nowhere")


def test_a_full_check_has_runs_of_every_model(copied: Path, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "WORK", 0)
    assert "1 run on 1 graph trained again" in list(check(study, copied, seed=1))[-1]
    monkeypatch.setattr(checking, "FULL_RUNS", ALL_RUNS)
    assert f"{ALL_RUNS} runs on 1 graph" in list(check(study, copied, seed=2, full=True))[-1]


def reruns(rows: list[RunRecord], shift: float = 0.0, only: int = -1) -> list[Rerun]:
    """Runs that differ from their records by `shift`, all or only one."""
    made = []
    for k, row in enumerate(rows):
        moved = shift if only in (-1, k) else 0.0
        run = Run(row.replica, row.model, row.val, row.test + moved, row.epoch, row.epochs, {}, 0.0, row.num_parameters)
        made.append(Rerun(row, run, rows, dict.fromkeys(MEASURES, 1000)))
    return made


def test_reruns_are_compared_with_the_spread(done: Path) -> None:
    """The spread over seeds is one point: one run may differ by several, the mean of twenty by less than two."""
    first = next(row for row in read_runs(done / "runs.csv.gz") if row.model == "gcn")
    seeds = [(split, seed) for split in range(4) for seed in range(5)]
    rows = [replace(first, split=k, seed=s, test=0.7 + 0.1 * k + 0.0063 * (s - 2), val=0.8) for k, s in seeds]
    assert compare(reruns(rows)) == []
    assert reruns(rows)[0].has_same_bits
    assert not reruns(rows, 1e-9)[0].has_same_bits
    sigma, degrees = reruns(rows)[0].spread("test")
    assert (sigma, degrees) == (pytest.approx(math.hypot(0.0063 * math.sqrt(2.5), 0.001)), 16)
    assert compare(reruns(rows, 0.05, only=3)) == []
    (problem,) = compare(reruns(rows, 0.2, only=3))
    assert "split 0, seed 3: test score" in problem
    (problem,) = compare(reruns(rows, 0.03))
    assert problem.startswith("all 20 runs: the mean test score differs by ")
    diverged = [each._replace(run=replace(each.run, val=math.nan, test=math.nan)) for each in reruns(rows)[:1]]
    assert compare(diverged) == [f"{first.dataset} gcn, split 0, seed 0: only one of two runs diverged"]
