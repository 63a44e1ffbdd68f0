"""Studies of variants, whose cells differ in data, options or training."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from runs.small_studies import read_csv, run, scores, write_study

from gfgn.data import load
from gfgn.paper.check import check
from gfgn.paper.figures.studies import draw_study, study_gaps
from gfgn.paper.page import MISSING, make_page
from gfgn.runs import read_runs, write_runs
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_file import read_study
from gfgn.train import paired_test

STUDY = """
title: Small
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models:
  gfgn-pair: {lam: [1.0, 2.0]}
  gfgn-graph: {}
splits: 3
seeds: 2
training: {max_epochs: 4, patience: 3}
vary:
  variant:
    standard: {}
    ELU: {grid: {activation: [elu]}, about: Smooth.}
    shut: {grid: {gate_bias: [-2.0]}}
    loss: {training: {best: loss}}
    last: {training: {best: last}}
    60/20/20: {data: {fractions: [0.6, 0.2]}}
published:
  source: nobody
  scores: {gfgn-pair: {karate: 60.0}}
"""
VARIANTS = ["standard", "ELU", "shut", "loss", "last", "60/20/20"]
ALL_RUNS = len(VARIANTS) * (2 * 3 + 3 + 3 * 2)
"""Two configurations on three splits and another seed of the chosen one; one configuration with two seeds."""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the whole study."""
    folder = tmp_path_factory.mktemp("studies")
    assert run(write_study(folder, STUDY), folder / "small").made == ALL_RUNS
    return folder / "small"


def read_results(out: Path) -> Results:
    return Results(read_study(out.parent / "small.yaml"), read_runs(out / "runs.csv.gz"))


def test_the_runs_of_variants_differ(done: Path) -> None:
    results = read_results(done)
    assert not results.missing()
    rows = {at: results[Cell("karate", "gfgn-pair", at)].rows for at in VARIANTS}
    assert len({row.key for own in rows.values() for row in own}) == 6 * len(VARIANTS)
    assert {dict(row.replica.options).get("activation") for row in rows["ELU"]} == {"elu"}
    assert {dict(row.replica.options).get("gate_bias") for row in rows["shut"]} == {-2.0}
    assert all(row.gates is not None and row.gates["mean"] < 0.3 * row.replica.lam for row in rows["shut"])
    assert {row.config.best for row in rows["loss"]} == {"loss"}
    assert {(row.epoch, row.epochs) for row in rows["last"]} == {(3, 4)}
    assert {row.dataset for row in rows["60/20/20"]} == {"karate 60/20/20"}
    assert {row.dataset_fingerprint for own in rows.values() for row in own} == {load("karate").fingerprint}
    assert not {row.split_fingerprint for row in rows["60/20/20"]} & {row.split_fingerprint for row in rows["ELU"]}
    assert {line["variant"] for line in read_csv(done / "chosen.csv")} == set(VARIANTS)


def test_a_study_resumes_from_its_table(done: Path, tmp_path: Path) -> None:
    rows = read_runs(done / "runs.csv.gz")
    write_runs(tmp_path / "small" / "runs.csv.gz", rows[4:])
    assert run(done.parent / "small.yaml", tmp_path / "small").made == 4
    assert scores(tmp_path / "small") == scores(done)


def test_only_the_standard_is_reused(done: Path, tmp_path: Path) -> None:
    plain = write_study(tmp_path, STUDY[: STUDY.index("vary:")], "plain")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "runs.csv.gz").write_bytes((done / "runs.csv.gz").read_bytes())
    assert run(plain, tmp_path / "plain", reuse=[tmp_path / "small"]).made == 0
    reused = read_runs(tmp_path / "plain" / "runs.csv.gz")
    assert len(reused) == 2 * 3 + 3 + 3 * 2
    assert {row.config.best for row in reused} == {"score"}


def test_check_repeats_runs_of_variants(done: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    study = done.parent / "small.yaml"
    check(study, done, datasets=["karate"], models=["gfgn-pair"], log=lines.append)
    assert [name for name in VARIANTS if any(f" gfgn-pair ({name}): " in line for line in lines)] == VARIANTS
    rows = [
        replace(row, split_fingerprint=f"f00d{row.replica.split}") if row.dataset == "karate 60/20/20" else row
        for row in read_runs(done / "runs.csv.gz")
    ]
    write_runs(tmp_path / "runs.csv.gz", rows)
    problems = check(study, tmp_path, datasets=["karate"], models=["gfgn-graph"]).problems
    assert any(line.startswith("karate 60/20/20 gfgn-") and "split 0 differs from" in line for line in problems)


def test_effects_are_paired_over_splits(done: Path) -> None:
    results = read_results(done)
    one, base = (results[Cell("karate", "gfgn-pair", at)] for at in ("shut", "standard"))
    change, expected = results.change(Cell("karate", "gfgn-pair", "shut")), paired_test(one.rows, base.rows)
    assert change is not None
    assert change.low is not None
    assert change.high is not None
    assert change.mean == pytest.approx(100 * expected.mean)
    assert change.low <= change.mean <= change.high
    assert change.p == pytest.approx(expected.t_p)
    other = results.change(Cell("karate", "gfgn-pair", "60/20/20"))
    assert other is not None
    assert other[1:] == (None, None, None)
    mean, before = results[Cell("karate", "gfgn-pair", "60/20/20")].mean, base.mean
    assert mean is not None
    assert before is not None
    assert other.mean == pytest.approx(mean - before)


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−").replace("+0.00", "0.00").replace("−0.00", "0.00")


def test_the_page_of_variants(done: Path) -> None:
    results = read_results(done)
    page = make_page(results)
    assert "| ELU | activation {elu} | Smooth. |" in page
    assert "| shut | gate_bias {-2} |  |" in page
    assert "| loss | best loss |  |" in page
    assert "| 60/20/20 | fractions 0.6/0.2 |  |" in page
    assert "of 8 comparisons" in page
    assert "### gfgn-pair on karate, published 60.00" in page
    result, change = (read(Cell("karate", "gfgn-pair", "ELU")) for read in (results.__getitem__, results.change))
    line = next(line for line in page.splitlines() if line.startswith("| ELU |") and "activation elu" in line)
    assert f"| {result.mean:.2f} ±" in line  # type: ignore[union-attr]
    assert signed(change.mean) in line  # type: ignore[union-attr]
    changes = [
        change.mean for model in results.study.models if (change := results.change(Cell("karate", model, "ELU")))
    ]
    assert len(changes) == 2
    summary = next(line for line in page.splitlines() if line.startswith("| ELU |") and " of 2 |" in line)
    assert [signed(value) for value in (fmean(changes), min(changes), max(changes))] == summary.split(" | ")[1:4]
    assert f"| {sum(change > 0 for change in changes)} of 2 |" in summary
    assert "edges are undirected, unless a variant changes it." in page
    rows = [row for row in results.rows if dict(row.replica.options).get("activation") != "elu"]
    partial = make_page(Results(results.study, rows))
    assert f"| ELU | {MISSING} | – | – | – | – | – | 0 |" in partial
    assert "of 6 comparisons" in partial
    rows = [row for row in results.rows if row.config.best != "score"]
    assert "comparisons" not in make_page(Results(results.study, rows))


def test_the_figure_of_variants(done: Path, tmp_path: Path) -> None:
    results = read_results(done)
    gaps = study_gaps(results)
    assert [gap.variant for gap in gaps][:1] == ["published"]
    assert [gap.variant for gap in gaps if gap.model == "gfgn-graph"] == VARIANTS[1:]
    base = results[Cell("karate", "gfgn-pair", "standard")].mean
    assert base is not None
    assert math.isclose(gaps[0].mean, 60 - base)
    assert [path.name for path in draw_study(results, tmp_path)] == ["small.svg"]
    without = Results(results.study, [row for row in results.rows if row.config.best == "loss"])
    assert draw_study(without, tmp_path) == []
