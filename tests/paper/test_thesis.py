"""The verdict on the thesis: from runs by a stated rule."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from paper.test_mechanism import make
from runs.small_studies import write_study

from gfgn.paper.outputs import write_csv
from gfgn.paper.reproduce import render, reproduce
from gfgn.paper.studies import load_study
from gfgn.paper.thesis import (
    FAILS,
    GAIN,
    HOLDS,
    LOSS,
    NONE,
    OPEN,
    UNDECIDED,
    compare,
    decide,
    judge_mechanism,
    sections,
)
from gfgn.runs import read_runs
from gfgn.runs.record import Row
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_file import read_study
from gfgn.train import paired_test

STUDY = """
title: Small
datasets: [karate]
grid: {lr: [0.05], weight_decay: [5.0e-4], dropout: [0.5]}
models: {gfgn-graph: {lam: [1.0]}, gfgn-pair: {lam: [1.0]}}
splits: 3
seeds: 2
training: {max_epochs: 3, patience: 3}
vary:
  variant:
    dimension: {}
    scalar: {grid: {gate_form: [scalar]}}
    constant: {grid: {gate_form: [constant], lam: [0.1]}}
"""


@pytest.mark.parametrize(
    ("kinds", "verdict"),
    [
        ([GAIN, GAIN, LOSS], HOLDS),
        ([GAIN, NONE, UNDECIDED, NONE], FAILS),
        ([GAIN, NONE, UNDECIDED], UNDECIDED),
        ([GAIN, NONE, OPEN], OPEN),
        ([GAIN, GAIN, OPEN], HOLDS),
        ([NONE, LOSS, OPEN], FAILS),
    ],
)
def test_the_rule(kinds: list[str], verdict: str) -> None:
    assert decide(kinds) == verdict


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies")
    assert reproduce(write_study(folder, STUDY, "thesis"), folder / "thesis", device="cpu").made == 2 * 3 * 6
    return folder / "thesis"


def form(row: Row) -> str:
    return str(dict(row.replica.options).get("gate_form", "dimension"))


def results_of(done: Path, **gains: float) -> Results:
    """The results with test scores of a form that are higher by a gain, the same one for every split but noise."""
    rows = [
        replace(row, test=0.5 + gains.get(form(row), 0.0) + 0.002 * ((7 * row.replica.split) % 3))
        for row in read_runs(done / "runs.csv.gz")
    ]
    return Results(read_study(done.parent / "thesis.yaml"), rows)


def test_differences_are_paired_and_adjusted(done: Path) -> None:
    results = Results(read_study(done.parent / "thesis.yaml"), read_runs(done / "runs.csv.gz"))
    assert not results.missing()
    findings = compare(results, "scalar", "constant")
    assert [(each.dataset, each.model) for each in findings] == [("karate", "gfgn-graph"), ("karate", "gfgn-pair")]
    rows = {
        at: [row for row in results.rows if (row.model, form(row)) == ("gfgn-pair", at)]
        for at in ("scalar", "constant")
    }
    expected = paired_test(rows["scalar"], rows["constant"])
    assert findings[1].mean == pytest.approx(100 * expected.mean)
    assert findings[1].p == pytest.approx(expected.t_p)  # one graph: nothing to adjust for
    same = compare(results_of(done), "dimension", "scalar")
    assert [each.kind for each in same] == [NONE, NONE]
    better = compare(results_of(done, dimension=0.1), "dimension", "scalar")
    assert [each.kind for each in better] == [GAIN, GAIN]
    assert [each.kind for each in compare(results_of(done, scalar=0.1), "dimension", "scalar")] == [LOSS, LOSS]


def test_the_page_ends_with_three_sentences(done: Path) -> None:
    page = (done / "README.md").read_text(encoding="utf-8")
    assert page == render(read_study(done.parent / "thesis.yaml"), done)["README.md"]
    verdict = page[page.index("## Verdict") :].strip().splitlines()[2:]
    assert len(verdict) == 3
    assert all(line.endswith(".") for line in verdict)
    assert (
        "The mechanism, that gates rise with the smoothness of a dimension, is not measured yet (positive in 0" in page
    )
    better = sections(results_of(done, dimension=0.1, constant=0.2), done)
    assert (
        "the thesis of the paper, holds (2 gain of 2 pairs of a real graph and a level, a mean of +10.00 points)"
        in better
    )
    assert "a constant that validation chooses does not hold (2 loss of 2 pairs" in better
    results = results_of(done)
    without = [row for row in results.rows if form(row) != "scalar"]
    assert "the thesis of the paper, is not measured yet (2 not measured yet of 2" in sections(
        Results(results.study, without), done
    )


def test_the_mechanism_is_judged_by_its_mean(done: Path, tmp_path: Path) -> None:
    correlations = [make(k, 0.3 + 0.01 * k) for k in range(3)]
    correlations += [each._replace(dataset="cora", rank_correlation=0.01) for each in correlations]
    cells = judge_mechanism(correlations, "rank_correlation")
    assert {key: kind for key, (_, kind) in cells.items()} == {
        ("texas", "gfgn-graph"): GAIN,
        ("cora", "gfgn-graph"): UNDECIDED,
    }
    assert judge_mechanism(correlations, "centered")["texas", "gfgn-graph"][1] == LOSS
    assert math.isnan(judge_mechanism(correlations, "truth")["texas", "gfgn-graph"][0].mean)
    write_csv(tmp_path / "mechanism.csv", correlations[0]._fields, correlations)
    text = sections(results_of(done), tmp_path)
    assert "| Texas | GFGN-graph | +0.31* | −0.31* | +0.31* | – | ±0.23 | 3 |" in text
    assert "(positive in 1, negative in 0 of 2 measured pairs of 27)" in text


def test_another_study_of_that_name_has_no_verdict(tmp_path: Path) -> None:
    plain = read_study(write_study(tmp_path, STUDY[: STUDY.index("vary:")], "thesis"))
    assert sections(Results(plain, []), tmp_path) == ""


def test_every_form_has_the_same_number_of_configurations() -> None:
    study = load_study("thesis")
    counts = {len(variant.models[model]) for variant in study.variants.values() for model in study.models}
    assert counts == {16}
    assert (study.splits, study.seeds, len(study.datasets)) == (10, 10, 10)
    axes = {name for variant in study.variants.values() for each in variant.models["gfgn-pair"] for name in each}
    assert axes == {"lr", "weight_decay", "dropout", "lam", "gate_form"}


def test_the_form_of_the_paper_is_that_of_table_1() -> None:
    """So that its runs are those of Table 1."""
    study, table = load_study("thesis"), load_study("table1")
    for model in study.models:
        for dataset in table.datasets:
            assert study.plan(Cell(dataset, model, "dimension")) == table.plan(Cell(dataset, model))
