"""Claims on made-up evidence where the truth is known, both ways."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from runs.stores import row

from gfgn.paper.claims import CLAIMS, FAILS, GAINS, HOLDS, NOISE_GAINS, OPEN, Verdict, effort, judge, page, write
from gfgn.paper.evidence import LEVELS, Evidence, Missing, Place, Runs, paired, read_evidence, read_gates
from gfgn.paper.rules import (
    ASSORTATIVE,
    BASELINES,
    DISASSORTATIVE,
    NINE,
    PPI_BASELINES,
    SCORED_DISASSORTATIVE,
    ranks,
)
from gfgn.paper.studies import load_study
from gfgn.runs.record import DatasetRecord
from gfgn.runs.table import write_runs
from gfgn.train import TrainConfig

Change = Callable[[Evidence], Evidence]
PUBLISHED = load_study("table1").published.scores
BY_NAME = {claim.name: claim for claim in CLAIMS}


def cell(mean: float, splits: int = 4, wobble: float = 0.01) -> Runs:
    """Runs of a known mean; their spread is small, and the same for every cell."""
    return [(split, seed, mean + wobble * (split - (splits - 1) / 2)) for split in range(splits) for seed in range(2)]


def table1() -> dict[Place, Runs]:
    """Table 1 as published."""
    return {
        ("table1", name, model, None): cell(PUBLISHED[model][name])
        for model in (*BASELINES, *LEVELS)
        for name in NINE
        if name in PUBLISHED[model]
    }


def other_studies() -> dict[Place, Runs]:
    """Studies of which the paper has figures without numbers, made up so that all it says is true."""
    runs: dict[Place, Runs] = {}
    for model in (*LEVELS, *BASELINES[:-1]):
        runs["arxiv", "ogbn-arxiv", model, None] = cell(PUBLISHED[model]["ogbn-arxiv"])
    ppi = load_study("table2").published.scores
    runs |= {("table2", "ppi", model, None): cell(ppi[model]["ppi"]) for model in (*LEVELS, *PPI_BASELINES)}
    for name in ASSORTATIVE:
        for ratio in (0.0, 0.5, 1.0):
            for place, model in enumerate(LEVELS):
                runs["noise", name, model, ratio] = cell(85 - 5 * ratio - 0.1 * place)
            for model in BASELINES[:-1]:
                runs["noise", name, model, ratio] = cell(84.9 - (5 + NOISE_GAINS[name]) * ratio)
            runs["noise", name, "mlp", ratio] = cell(70)
    for name in ("blogcatalog", "cora"):
        runs["lambda", name, "mlp", None] = cell(75)
        for level, slope in zip(LEVELS, (3.0, 0.5, 2.0), strict=True):
            runs["lambda", name, level, 0.0] = cell(75)
            for lam in (1.0, 2.0, 10.0):
                runs["lambda", name, level, lam] = cell(86 - slope * lam)
    return runs


def gates() -> dict[tuple[str, str], list[dict[str, float]]]:
    """Scores as the paper describes them."""
    found = {}
    for name in SCORED_DISASSORTATIVE:
        found["gfgn-graph", name] = {"min": 0.06, "max": 1.66, "mean": 0.5, "spread": 0.4, "below_055": 0.641, "box": 0}
    for name in ASSORTATIVE:
        found["gfgn-graph", name] = {"min": 0.55, "max": 0.87, "mean": 0.7, "spread": 0.1, "below_055": 0.0, "box": 0}
    for model in LEVELS[1:]:
        for name in (*SCORED_DISASSORTATIVE, *ASSORTATIVE):
            found[model, name] = {"box": 0.05 if name in ("blogcatalog", "flickr") else 0.2}
    return {place: [numbers, numbers] for place, numbers in found.items()}


NUMBERS = {"motivation: rank correlation, median": 0.02, "motivation: smoothness less eigenvalue": 1e-12}
HOMOPHILY = {name: 0.1 if name in DISASSORTATIVE else 0.8 for name in NINE}


@pytest.fixture(scope="module")
def truth() -> Evidence:
    """Evidence on which every claim that is not settled by arithmetic is true."""
    return Evidence(table1() | other_studies(), gates(), HOMOPHILY, NUMBERS)


def shifted(study: str, points: float, **where: object) -> Change:
    """Evidence in which some cells score higher or lower; `where` names dataset, model and at."""

    def change(evidence: Evidence) -> Evidence:
        runs = {
            place: [(split, seed, score + points) for split, seed, score in found]
            if place[0] == study
            and all(dict(zip(KEYS, place, strict=True))[key] in given(value) for key, value in where.items())
            else found
            for place, found in evidence.runs.items()
        }
        return dataclasses.replace(evidence, runs=runs)

    return change


KEYS = ("study", "dataset", "model", "at")


def given(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def with_gate(model: str, dataset: str, **numbers: float) -> Change:
    """Evidence in which a level has learned other scores on a graph."""

    def change(evidence: Evidence) -> Evidence:
        rows = [{**line, **numbers} for line in evidence.gates[model, dataset]]
        return dataclasses.replace(evidence, gates={**evidence.gates, (model, dataset): rows})

    return change


def with_number(name: str, value: float) -> Change:
    return lambda evidence: dataclasses.replace(evidence, numbers={**evidence.numbers, name: value})


def with_homophily(name: str, value: float) -> Change:
    return lambda evidence: dataclasses.replace(evidence, homophily={**evidence.homophily, name: value})


BY_ARITHMETIC = {
    "gcn-is-a-case": HOLDS,
    "lambda-zero": HOLDS,
    "few-parameters": HOLDS,
    "few-parameters-deep": FAILS,
    "arithmetic-of-ranks": FAILS,
    "arithmetic-of-gains": HOLDS,
}

# For every claim that evidence decides, a change that makes it false.
UNDONE: dict[str, Change] = {
    "social-dimensions": with_number("motivation: rank correlation, median", 0.9),
    "spectral-smoothness": with_number("motivation: smoothness less eigenvalue", 0.1),
    "homophily": with_homophily("flickr", 0.9),
    "ranks": shifted("table1", -20, model="gfgn-graph"),
    "rank-of-neighbor": shifted("table1", -1, model="gfgn-neighbor"),
    "best-on-most": shifted("table1", 50, model="appnp", dataset=DISASSORTATIVE[:3]),
    **{f"gain-{name}": shifted("table1", 1, model="gcn", dataset=name) for name in GAINS},
    "margin-flickr": shifted("table1", -0.5, model=LEVELS, dataset="flickr"),
    "margin-cornell": shifted("table1", 0.5, model="gcn", dataset="cornell"),
    "larger-on-disassortative": shifted("table1", 13, model="gfgn-pair", dataset="cora"),
    "beats-local-aggregation": shifted("table1", 5, model="sgc", dataset="actor"),
    "does-not-hurt": shifted("table1", -2, model=LEVELS, dataset="pubmed"),
    "graph-on-wisconsin": shifted("table1", -1, model="gfgn-graph", dataset="wisconsin"),
    "pair-on-flickr": shifted("table1", 2, model="gfgn-graph", dataset="flickr"),
    "arxiv": shifted("arxiv", 1, model="appnp"),
    "ppi-neighbor": shifted("table2", 1, model="gaan"),
    "ppi-competitive": shifted("table2", -1, model="gfgn-pair"),
    **{f"noise-{name}": shifted("noise", 1, model="gcn", dataset=name, at=1.0) for name in NOISE_GAINS},
    "noise-all": shifted("noise", 9, model="ggnn", dataset="pubmed", at=0.5),
    "noise-robust": shifted("noise", -20, model="gfgn-pair", dataset="cora", at=1.0),
    "scores-vary": with_gate("gfgn-graph", "pubmed", min=0.5, max=0.52),
    "scores-range-blogcatalog": with_gate("gfgn-graph", "blogcatalog", max=0.99),
    "scores-range-cora": with_gate("gfgn-graph", "cora", min=0.4),
    "scores-variance": with_gate("gfgn-graph", "texas", spread=0.05),
    "scores-below-blogcatalog": with_gate("gfgn-graph", "blogcatalog", below_055=0.1),
    "scores-above-cora": with_gate("gfgn-graph", "cora", below_055=0.02),
    "scores-smaller": with_gate("gfgn-graph", "blogcatalog", mean=1.9),
    "scores-adapt": with_gate("gfgn-pair", "flickr", box=0.001),
    "scores-boxes": with_gate("gfgn-neighbor", "blogcatalog", box=0.3),
    "lambda-mlp": shifted("lambda", 20, model="mlp", dataset="cora"),
    "lambda-large": shifted("lambda", 40, model=LEVELS, dataset="cora", at=10.0),
    "lambda-stable": shifted("lambda", -30, model="gfgn-neighbor", at=10.0),
}


def test_every_claim_is_tried_both_ways() -> None:
    assert len(BY_NAME) == len(CLAIMS)
    assert set(UNDONE) | set(BY_ARITHMETIC) == set(BY_NAME)
    assert not set(UNDONE) & set(BY_ARITHMETIC)


@pytest.mark.parametrize("name", list(UNDONE))
def test_verdicts_follow_the_truth(name: str, truth: Evidence) -> None:
    claim = BY_NAME[name]
    assert judge(claim, truth).verdict == HOLDS
    assert judge(claim, UNDONE[name](truth)).verdict == FAILS


@pytest.mark.parametrize("name", list(UNDONE))
def test_without_evidence_nothing_is_said(name: str) -> None:
    found = judge(BY_NAME[name], Evidence())
    assert found.verdict == OPEN
    assert found.measured.startswith("missing: ")


@pytest.mark.parametrize("name", list(BY_ARITHMETIC))
def test_what_arithmetic_decides(name: str) -> None:
    assert judge(BY_NAME[name], Evidence()).verdict == BY_ARITHMETIC[name]


def test_verdicts_leave_the_random_state_alone_and_repeat() -> None:
    before = torch.get_rng_state()
    first, again = ([judge(BY_NAME[name], Evidence()) for name in BY_ARITHMETIC] for _ in range(2))
    assert first == again
    assert torch.equal(before, torch.get_rng_state())


def test_figures_are_those_that_were_made_up(truth: Evidence) -> None:
    assert judge(BY_NAME["gain-flickr"], truth).values["mean"] == pytest.approx(100 * (91.89 - 66.65) / 66.65)
    assert judge(BY_NAME["margin-cornell"], truth).measured.startswith("+24.3 [24.3, 24.")
    assert judge(BY_NAME["noise-pubmed"], truth).values["mean"] == pytest.approx(8.2)
    assert judge(BY_NAME["scores-below-blogcatalog"], truth).measured == "64.1%"
    assert "of 9 (not citeseer, pubmed)" in judge(BY_NAME["best-on-most"], truth).measured
    assert "neighbor 4.5" in judge(BY_NAME["lambda-stable"], truth).measured
    assert "mlp" not in judge(BY_NAME["ranks"], truth).measured


def test_the_arithmetic_of_the_table() -> None:
    """Its gains follow from its scores; five of its ranks do not."""
    found = judge(BY_NAME["arithmetic-of-ranks"], Evidence())
    assert found.measured.startswith("from the scores: ")
    wrong = [part.split()[0] for part in found.measured.removeprefix("from the scores: ").split(", ")]
    assert wrong == ["arma", "ggnn", "appnp", "geom-gcn", "gfgn-neighbor"]
    assert found.values["ggnn"] == pytest.approx(5.6)
    assert judge(BY_NAME["arithmetic-of-gains"], Evidence()).measured == "all agree"


def test_ranks_are_as_the_paper_takes_them(truth: Evidence) -> None:
    """Ties share the better rank; the nine graphs and ogbn-arxiv make the ten of the paper."""
    found = ranks(truth)
    assert (found["gcn"] * 9 + 5) / 10 == pytest.approx(6.4)
    assert (found["gfgn-pair"] * 9 + 1) / 10 == pytest.approx(2.7)


def test_an_mlp_is_told_beside_where_it_was_measured(truth: Evidence) -> None:
    runs: Mapping[Place, Runs] = {**truth.runs, **{("table1", name, "mlp", None): cell(99) for name in NINE}}
    found = judge(BY_NAME["ranks"], dataclasses.replace(truth, runs=runs))
    assert found.verdict == HOLDS  # the paper's claim is about its own baselines
    assert "mlp 1.0" in found.measured
    assert "an MLP is ahead of the best level in 0 of 6 places" in judge(BY_NAME["noise-all"], truth).measured


def test_features_as_they_come_are_told_beside(truth: Evidence) -> None:
    raw = [{"min": 0.1, "max": 0.9, "below_055": 0.25}]
    known = dataclasses.replace(truth, gates={**truth.gates, ("gfgn-graph, features as they come", "cora"): raw})
    found = judge(BY_NAME["scores-range-cora"], known)
    assert (found.verdict, found.measured) == (HOLDS, "[0.55, 0.87]; with features as they come [0.10, 0.90]")
    assert judge(BY_NAME["scores-above-cora"], known).measured == "0.0% below; with features as they come 25.0%"


def test_wide_intervals_reach_the_published_figure() -> None:
    """A measured gain below the published one holds as long as its interval reaches it, and not beyond."""
    runs = table1()
    level = [(split, 0, 60 + shift) for split, shift in enumerate((-9, -3, 3, 9))]
    for model in LEVELS:
        runs["table1", "texas", model, None] = level
    runs["table1", "texas", "gcn", None] = [(split, 0, 48.0) for split in range(4)]
    found = judge(BY_NAME["gain-texas"], Evidence(runs))
    assert found.values["mean"] == pytest.approx(25)
    assert found.verdict == HOLDS
    narrow = {**runs, **{("table1", "texas", model, None): cell(60) for model in (*LEVELS,)}}
    narrow["table1", "texas", "gcn", None] = cell(48)
    assert judge(BY_NAME["gain-texas"], Evidence(narrow)).verdict == FAILS


def test_differences_are_over_common_runs() -> None:
    first, second = [(0, 0, 3.0), (1, 0, 5.0), (2, 0, 100.0)], [(0, 0, 1.0), (1, 0, 1.0), (3, 0, 0.0)]
    assert paired(first, second).mean == pytest.approx(3)
    with pytest.raises(Missing, match="runs on the same splits and seeds"):
        paired(first, [(7, 0, 1.0)])


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_page_and_json(tmp_path: Path, truth: Evidence) -> None:
    verdicts = [judge(claim, UNDONE["ranks"](truth)) for claim in CLAIMS]
    paths = write(tmp_path, [*verdicts, Verdict(CLAIMS[0], OPEN, "missing: x", {})])
    assert [path.name for path in paths] == ["claims.json", "README.md"]
    entries = json.loads(paths[0].read_text(encoding="utf-8"))
    assert [entry["name"] for entry in entries][:-1] == [claim.name for claim in CLAIMS]
    by_name = {entry["name"]: entry for entry in entries[:-1]}
    assert by_name["ranks"]["verdict"] == FAILS
    assert math.isfinite(by_name["gain-flickr"]["values"]["mean"])
    text = paths[1].read_text(encoding="utf-8")
    assert "| **does not hold** |" in text
    assert "What was tried where a claim does not hold" in text
    assert "1 are not measured yet" in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == len(entries) + 2
    assert {line.count(" | ") for line in lines} == {4}


def test_without_a_failing_claim_there_is_no_section_on_it(truth: Evidence) -> None:
    assert "What was tried" not in page([judge(BY_NAME["ranks"], truth)])


def test_what_a_study_trains_is_told() -> None:
    assert effort("table1").startswith("16 configurations of every level and ")
    assert "10 splits with 10 seeds each, at most 400 epochs" in effort("table1")
    assert effort("noise").startswith("8 configurations of every level and 4 of every other model, ")
    assert effort("scores").startswith("16 configurations of every level, chosen by validation")


def test_evidence_from_a_folder(tmp_path: Path) -> None:
    """The runs of the chosen configuration count, not those of the rest of the grid."""
    record = DatasetRecord("cora", "f", tuple(f"s{k}" for k in range(10)), False, "accuracy", "", 1, 1, 1, 2)
    study = load_study("lambda")
    config = TrainConfig(study.config.max_epochs, study.config.patience)
    rows = [
        row(
            split,
            0,
            "mlp",
            record=record,
            config=config,
            lr=lr,
            dropout=drop,
            weight_decay=5e-4,
            val=val,
            test=test,
        )
        for lr, drop, val, test in (
            (0.005, 0.5, 0.7, 0.1),
            (0.005, 0.8, 0.6, 0.1),
            (0.05, 0.5, 0.9, 0.75),
            (0.05, 0.8, 0.5, 0.1),
        )
        for split in range(10)
    ]
    write_runs(tmp_path / "lambda" / "runs.csv.gz", rows)
    (tmp_path / "motivation").mkdir()
    (tmp_path / "motivation" / "summary.csv").write_text("measure,value\na number,0.5\n", encoding="utf-8")
    found = read_evidence(tmp_path, {"cora": 0.8})
    assert set(found.runs) == {("lambda", "cora", "mlp", None)}
    assert found.mean("lambda", "cora", "mlp") == pytest.approx(75)
    assert found.number("a number") == 0.5
    assert found.homophily == {"cora": 0.8}
    with pytest.raises(Missing, match="lambda: gfgn-graph on cora at 1"):
        found.of("lambda", "cora", "gfgn-graph", 1.0)


def test_gates_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "summary.csv"
    path.write_text("dataset,model,split,min\ncora,gfgn-graph,0,0.25\ncora,gfgn-graph,1,0.75\n", encoding="utf-8")
    assert Evidence(gates=read_gates(path)).gate("min", "cora") == 0.5
    assert read_gates(tmp_path / "none.csv") == {}
