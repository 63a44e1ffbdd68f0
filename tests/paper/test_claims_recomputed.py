"""`results/claims` follows from the committed runs, and a forged number does not go unnoticed."""

import dataclasses
import json
import os
import shutil
from pathlib import Path

import pytest

from gfgn.paper.claims import CLAIMS, GRAPHS, as_json, judge, measure_graphs, page, sources, tally
from gfgn.paper.evidence import Evidence, read_evidence, read_graphs, read_study
from gfgn.paper.studies import load_study
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.table import read_runs, write_runs

RESULTS = Path(__file__).parents[2] / "results"
COMMITTED = (RESULTS / "claims" / "claims.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return read_evidence(RESULTS)


def test_the_committed_claims_follow_from_the_committed_runs(evidence: Evidence) -> None:
    verdicts = judge(evidence)
    assert as_json(verdicts, sources(RESULTS)) == COMMITTED
    assert page(verdicts) == (RESULTS / "claims" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("README.md", "Of the paper's {} claims, {}"), ("docs/reproduce.md", "Of {} statements of the paper, {}")],
)
def test_texts_have_the_counts_of_the_committed_claims(name: str, sentence: str) -> None:
    words = [claim["verdict"] for claim in json.loads(COMMITTED)["claims"]]
    text = " ".join((RESULTS.parent / name).read_text(encoding="utf-8").split())
    assert sentence.format(len(words), tally(words)) in text


@pytest.mark.skipif("GFGN_DATA" not in os.environ, reason="needs the data")
def test_the_committed_graphs_follow_from_the_data() -> None:
    committed = read_graphs(RESULTS / "claims" / GRAPHS)
    for name, row in measure_graphs(None, print).items():
        assert row == committed[name]


def test_a_forged_score_changes_the_claims(evidence: Evidence, tmp_path: Path) -> None:
    """One run of a chosen configuration, eight points higher."""
    rows = read_runs(RESULTS / "lambda" / "runs.csv.gz")
    chosen = Results(load_study("lambda"), rows)[Cell("cora", "mlp")].rows[0]
    rows[rows.index(chosen)] = dataclasses.replace(chosen, test=chosen.test + 0.08)
    runs, _ = read_study("lambda", write_runs(tmp_path / "runs.csv.gz", rows))
    forged = dataclasses.replace(evidence, runs={**evidence.runs, **runs})
    claims = [claim for claim in CLAIMS if claim.study == "lambda"]
    honest, changed = (as_json(judge(each, claims), {}) for each in (evidence, forged))
    assert honest != changed


def test_any_forged_number_changes_the_files(tmp_path: Path) -> None:
    """Also that of a run that was not chosen: the claims name the files they rest on."""
    for name in sources(RESULTS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(RESULTS / name, tmp_path / name)
    assert sources(tmp_path) == sources(RESULTS)
    rows = read_runs(tmp_path / "lambda" / "runs.csv.gz")
    rows[-1] = dataclasses.replace(rows[-1], val=rows[-1].val + 1e-6)
    write_runs(tmp_path / "lambda" / "runs.csv.gz", rows)
    changed = {name for name, digest in sources(RESULTS).items() if sources(tmp_path)[name] != digest}
    assert changed == {"lambda/runs.csv.gz"}
