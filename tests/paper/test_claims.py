"""Claims on constructed evidence with known verdicts, both ways."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from runs.stores import row

from gfgn.paper.claims import CLAIMS, FAILS, HOLDS, OPEN, Verdict, effort, judge, page, write
from gfgn.paper.evidence import LEVELS, CellKey, Evidence, Missing, Runs, paired, read_evidence, read_gates
from gfgn.paper.rules import ASSORTATIVE, BASELINES, DISASSORTATIVE, NINE, PPI_BASELINES, SCORED, WITHOUT_GEOM, ranks
from gfgn.paper.studies import load_study
from gfgn.runs.record import DatasetRecord
from gfgn.runs.table import write_runs
from gfgn.train import TrainConfig, difference

Change = Callable[[Evidence], Evidence]
PUBLISHED = load_study("table1").published.scores
BY_NAME = {claim.name: claim for claim in CLAIMS}
NOISE_GAINS = {name: BY_NAME[f"noise-{name}"].arguments["published"] for name in ASSORTATIVE}


def cell(mean: float, splits: int = 4, wobble: float = 0.01) -> Runs:
    """Runs with a given mean and a small spread, the same for every cell."""
    return [(split, seed, mean + wobble * (split - (splits - 1) / 2)) for split in range(splits) for seed in range(2)]


def table1() -> dict[CellKey, Runs]:
    """Table 1 as published."""
    return {
        ("table1", name, model, None): cell(PUBLISHED[model][name])
        for model in (*BASELINES, *LEVELS)
        for name in NINE
        if name in PUBLISHED[model]
    }


def other_studies() -> dict[CellKey, Runs]:
    """The other studies, constructed such that all claims of the paper are true."""
    runs: dict[CellKey, Runs] = {}
    for model in (*LEVELS, *WITHOUT_GEOM):
        runs["arxiv", "ogbn-arxiv", model, None] = cell(PUBLISHED[model]["ogbn-arxiv"])
    ppi = load_study("table2").published.scores
    runs |= {("table2", "ppi", model, None): cell(ppi[model]["ppi"]) for model in (*LEVELS, *PPI_BASELINES)}
    for name in ASSORTATIVE:
        for ratio in (0.0, 0.5, 1.0):
            for index, model in enumerate(LEVELS):
                runs["noise", name, model, ratio] = cell(85 - 5 * ratio - 0.1 * index)
            for model in WITHOUT_GEOM:
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
    rows = {}
    for name in SCORED:
        rows["gfgn-graph", name] = {"min": 0.06, "max": 1.66, "mean": 0.5, "spread": 0.4, "below_055": 0.641, "box": 0}
    for name in ASSORTATIVE:
        rows["gfgn-graph", name] = {"min": 0.55, "max": 0.87, "mean": 0.7, "spread": 0.1, "below_055": 0.0, "box": 0}
    for model in LEVELS[1:]:
        for name in (*SCORED, *ASSORTATIVE):
            rows[model, name] = {"box": 0.05 if name in ("blogcatalog", "flickr") else 0.2}
    return {key: [numbers, numbers] for key, numbers in rows.items()}


NUMBERS = {"motivation: rank correlation, median": 0.02, "motivation: smoothness minus eigenvalue": 1e-12}
HOMOPHILY = {name: 0.1 if name in DISASSORTATIVE else 0.8 for name in NINE}


@pytest.fixture(scope="module")
def truth() -> Evidence:
    """Evidence for which every claim that does not follow from arithmetic is true."""
    return Evidence(table1() | other_studies(), gates(), HOMOPHILY, NUMBERS)


KEYS = ("study", "dataset", "model", "at")


def shifted(study: str, points: float, **where: object) -> Change:
    """Adds points to the scores of some cells; `where` gives one value or several of dataset, model and at."""
    wanted = {key: value if isinstance(value, tuple) else (value,) for key, value in where.items()}

    def change(evidence: Evidence) -> Evidence:
        runs = dict(evidence.runs)
        for key, cell_runs in evidence.runs.items():
            named = dict(zip(KEYS, key, strict=True))
            if named["study"] == study and all(named[name] in values for name, values in wanted.items()):
                runs[key] = [(split, seed, score + points) for split, seed, score in cell_runs]
        return dataclasses.replace(evidence, runs=runs)

    return change


def with_gate(model: str, dataset: str, **numbers: float) -> Change:
    """Replaces statistics of the scores of a level on a graph."""

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
COUNTEREXAMPLES: dict[str, Change] = {
    "social-dimensions": with_number("motivation: rank correlation, median", 0.9),
    "spectral-smoothness": with_number("motivation: smoothness minus eigenvalue", 0.1),
    "homophily": with_homophily("flickr", 0.9),
    "ranks": shifted("table1", -20, model="gfgn-graph"),
    "rank-of-neighbor": shifted("table1", -1, model="gfgn-neighbor"),
    "best-on-most": shifted("table1", 50, model="appnp", dataset=DISASSORTATIVE[:3]),
    **{f"gain-{name}": shifted("table1", 1, model="gcn", dataset=name) for name in NINE},
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
    **{f"noise-{name}": shifted("noise", 1, model="gcn", dataset=name, at=1.0) for name in ASSORTATIVE},
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


def test_every_claim_has_a_counterexample() -> None:
    assert len(BY_NAME) == len(CLAIMS)
    assert set(COUNTEREXAMPLES) | set(BY_ARITHMETIC) == set(BY_NAME)
    assert not set(COUNTEREXAMPLES) & set(BY_ARITHMETIC)


@pytest.mark.parametrize("name", list(COUNTEREXAMPLES))
def test_verdicts_follow_the_evidence(name: str, truth: Evidence) -> None:
    claim = BY_NAME[name]
    assert judge(claim, truth).verdict == HOLDS
    assert judge(claim, COUNTEREXAMPLES[name](truth)).verdict == FAILS
    without = judge(claim, Evidence())
    assert without.verdict == OPEN
    assert without.measured.startswith("missing: ")


def test_arithmetic_claims_need_no_evidence_and_repeat() -> None:
    before = torch.get_rng_state()
    first, again = ([judge(BY_NAME[name], Evidence()) for name in BY_ARITHMETIC] for _ in range(2))
    assert {verdict.claim.name: verdict.verdict for verdict in first} == BY_ARITHMETIC
    assert first == again
    assert torch.equal(before, torch.get_rng_state())


def test_measured_figures(truth: Evidence) -> None:
    assert judge(BY_NAME["gain-flickr"], truth).values["mean"] == pytest.approx(100 * (91.89 - 66.65) / 66.65)
    assert judge(BY_NAME["margin-cornell"], truth).measured.startswith("+24.3 [24.3, 24.")
    assert judge(BY_NAME["noise-pubmed"], truth).values["mean"] == pytest.approx(8.2)
    assert judge(BY_NAME["scores-below-blogcatalog"], truth).measured == "64.1% below"
    assert "of 9 (not citeseer, pubmed)" in judge(BY_NAME["best-on-most"], truth).measured
    assert "neighbor 4.5" in judge(BY_NAME["lambda-stable"], truth).measured
    assert "mlp" not in judge(BY_NAME["ranks"], truth).measured


def test_arithmetic_of_table_1() -> None:
    """Its gains follow from its scores; five of its ranks do not."""
    verdict = judge(BY_NAME["arithmetic-of-ranks"], Evidence())
    assert verdict.measured.startswith("recomputed: ")
    wrong = [part.split()[0] for part in verdict.measured.removeprefix("recomputed: ").split(", ")]
    assert wrong == ["arma", "ggnn", "appnp", "geom-gcn", "gfgn-neighbor"]
    assert verdict.values["ggnn"] == pytest.approx(5.6)
    assert judge(BY_NAME["arithmetic-of-gains"], Evidence()).measured == "all agree"


def test_ranks_follow_the_paper(truth: Evidence) -> None:
    """Ties share the better rank; the nine graphs and ogbn-arxiv make the ten of the paper."""
    ranked = ranks(truth)
    assert (ranked["gcn"] * 9 + 5) / 10 == pytest.approx(6.4)
    assert (ranked["gfgn-pair"] * 9 + 1) / 10 == pytest.approx(2.7)


def test_an_mlp_is_mentioned_if_measured(truth: Evidence) -> None:
    runs: Mapping[CellKey, Runs] = {**truth.runs, **{("table1", name, "mlp", None): cell(99) for name in NINE}}
    verdict = judge(BY_NAME["ranks"], dataclasses.replace(truth, runs=runs))
    assert verdict.verdict == HOLDS  # the paper's claim is about its own baselines
    assert "mlp 1.0" in verdict.measured
    assert "an MLP is ahead of the best level in 0 of 6 cases" in judge(BY_NAME["noise-all"], truth).measured


def test_scores_without_row_normalization_are_mentioned(truth: Evidence) -> None:
    raw = [{"min": 0.1, "max": 0.9, "below_055": 0.25}]
    known = dataclasses.replace(truth, gates={**truth.gates, ("gfgn-graph, without row normalization", "cora"): raw})
    verdict = judge(BY_NAME["scores-range-cora"], known)
    assert (verdict.verdict, verdict.measured) == (HOLDS, "[0.55, 0.87]; without row normalization [0.10, 0.90]")
    assert judge(BY_NAME["scores-above-cora"], known).measured == "0.0% below; without row normalization 25.0%"


def test_wide_intervals_reach_the_published_figure() -> None:
    """A measured gain below the published one holds if its interval reaches it."""
    runs = table1()
    level = [(split, 0, 60 + shift) for split, shift in enumerate((-9, -3, 3, 9))]
    for model in LEVELS:
        runs["table1", "texas", model, None] = level
    runs["table1", "texas", "gcn", None] = [(split, 0, 48.0) for split in range(4)]
    verdict = judge(BY_NAME["gain-texas"], Evidence(runs))
    assert verdict.values["mean"] == pytest.approx(25)
    assert verdict.verdict == HOLDS
    narrow = {**runs, **{("table1", "texas", model, None): cell(60) for model in (*LEVELS,)}}
    narrow["table1", "texas", "gcn", None] = cell(48)
    assert judge(BY_NAME["gain-texas"], Evidence(narrow)).verdict == FAILS


def test_differences_are_over_common_runs() -> None:
    first, second = [(0, 0, 3.0), (1, 0, 5.0), (2, 0, 100.0)], [(0, 0, 1.0), (1, 0, 1.0), (3, 0, 0.0)]
    assert paired("cora", first, second).mean == pytest.approx(3)
    for other in ([(7, 0, 1.0)], [(0, 0, 1.0)]):  # one split has no interval
        with pytest.raises(Missing, match="runs on the same two or more splits of cora"):
            paired("cora", first, other)


def test_intervals_are_corrected_for_overlapping_splits() -> None:
    first, second = [(split, 0, float(split)) for split in range(4)], [(split, 0, 0.0) for split in range(4)]
    gap, other = paired("cora", first, second), paired("minesweeper", first, second)
    assert gap == difference(first, second, 0.25)
    assert gap.low > other.low  # of which a quarter are test nodes


# --- files ------------------------------------------------------------------------------------------------------------


def test_page_and_json(tmp_path: Path, truth: Evidence) -> None:
    verdicts = [judge(claim, COUNTEREXAMPLES["ranks"](truth)) for claim in CLAIMS]
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


def test_the_page_has_no_section_on_failing_claims_without_any(truth: Evidence) -> None:
    assert "What was tried" not in page([judge(BY_NAME["ranks"], truth)])


def test_effort_of_a_study() -> None:
    assert effort("table1").startswith("16 configurations per level and 4 to 16 per baseline, ")
    assert "10 splits with 10 seeds each, at most 400 epochs" in effort("table1")
    assert effort("noise").startswith("8 configurations per level and 4 per baseline, ")
    assert effort("scores").startswith("16 configurations per level, selected by validation")


def test_evidence_from_a_folder(tmp_path: Path) -> None:
    """Only the runs of the selected configuration count."""
    record = DatasetRecord("cora", "f", tuple(f"s{k}" for k in range(10)), False, "accuracy", "", 1, 1, 1, 2)
    study = load_study("lambda")
    config = TrainConfig(study.config.max_epochs, study.config.patience)
    settings = {"record": record, "config": config, "weight_decay": 5e-4}
    grid = ((0.005, 0.5, 0.7, 0.1), (0.005, 0.8, 0.6, 0.1), (0.05, 0.5, 0.9, 0.75), (0.05, 0.8, 0.5, 0.1))
    rows = [
        row(split, 0, "mlp", lr=lr, dropout=drop, val=val, test=test, **settings)
        for lr, drop, val, test in grid
        for split in range(10)
    ]
    write_runs(tmp_path / "lambda" / "runs.csv.gz", rows)
    (tmp_path / "motivation").mkdir()
    (tmp_path / "motivation" / "summary.csv").write_text("measure,value\na number,0.5\n", encoding="utf-8")
    evidence = read_evidence(tmp_path, {"cora": 0.8})
    assert set(evidence.runs) == {("lambda", "cora", "mlp", None)}
    assert evidence.mean("lambda", "cora", "mlp") == pytest.approx(75)
    assert evidence.number("a number") == 0.5
    assert evidence.homophily == {"cora": 0.8}
    with pytest.raises(Missing, match="lambda: gfgn-graph on cora at 1"):
        evidence.cell("lambda", "cora", "gfgn-graph", 1.0)


def test_gates_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "summary.csv"
    path.write_text("dataset,model,split,min\ncora,gfgn-graph,0,0.25\ncora,gfgn-graph,1,0.75\n", encoding="utf-8")
    assert Evidence(gates=read_gates(path)).gate("min", "cora") == 0.5
    assert read_gates(tmp_path / "none.csv") == {}


def test_a_cell_with_diverged_runs_is_no_evidence() -> None:
    evidence = Evidence({("table1", "cora", "gcn", None): [(0, 0, 80.0), (1, 0, math.nan)]})
    with pytest.raises(Missing, match="table1: gcn on cora, where 1 of 2 runs diverged"):
        evidence.mean("table1", "cora", "gcn")
