"""The committed results follow from the committed runs, and README and documentation show them."""

import json
from functools import partial
from pathlib import Path

import pytest

from gfgn.paper.check import check_files
from gfgn.paper.claims import CLAIMS, as_json, judge, write
from gfgn.paper.evidence import read_evidence
from gfgn.paper.reproduce import write_derived
from gfgn.paper.studies import load_study, study_names
from gfgn.runs.results import Results
from gfgn.runs.table import read_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
QUICK = ("table2", "table2-longer", "arxiv", "plus-deep", "plus-tolokers", "geom-gcn-pubmed", "scores", "lambda")
COMMITTED = json.loads((RESULTS / "claims" / "claims.json").read_text(encoding="utf-8"))


def without_figures(problems: list[str]) -> list[str]:
    """Problems but for figures, whose bytes depend on the version of Matplotlib."""
    return [problem for problem in problems if ".svg: " not in problem]


@pytest.mark.parametrize("name", QUICK)
def test_the_files_of_a_study_follow_from_its_runs(name: str) -> None:
    results = Results(load_study(name), read_runs(RESULTS / name / "runs.csv.gz"))
    assert without_figures(check_files(RESULTS / name, partial(write_derived, results))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in study_names() if name not in QUICK])
def test_the_files_of_a_large_study_follow_from_its_runs(name: str) -> None:
    if not (RESULTS / name / "runs.csv.gz").is_file():
        pytest.skip(f"{name} has not been run")
    results = Results(load_study(name), read_runs(RESULTS / name / "runs.csv.gz"))
    assert without_figures(check_files(RESULTS / name, partial(write_derived, results))) == []


@pytest.mark.slow
def test_the_claims_follow_from_the_runs(tmp_path: Path) -> None:
    verdicts = judge(read_evidence(RESULTS))
    assert json.loads(as_json(verdicts)) == COMMITTED
    page = (RESULTS / "claims" / "README.md").read_text(encoding="utf-8")
    assert write(tmp_path, verdicts).read_text(encoding="utf-8") == page


def test_every_claim_has_a_committed_verdict() -> None:
    assert [claim["name"] for claim in COMMITTED["claims"]] == [claim.name for claim in CLAIMS]
    assert len(CLAIMS) == 69


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("README.md", "Of the paper's {} claims, {}"), ("docs/results.md", "Of {} statements of the paper, {}")],
)
def test_texts_have_the_counts_of_the_claims(name: str, sentence: str) -> None:
    words = [claim["verdict"] for claim in COMMITTED["claims"]]
    kinds = {"holds": "hold", "does not hold": "do not hold", "undecided": "are undecided"}
    counts = ", ".join(f"{words.count(verdict)} {word}" for verdict, word in kinds.items())
    counted = sentence.format(len(words), f"{counts} and {words.count('not measured yet')} are not measured yet")
    assert counted in " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_documentation_shows_the_table_of_the_results() -> None:
    lines = (RESULTS / "table1" / "README.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index("## Overview")
    table = [line for line in lines[begin : lines.index("### blogcatalog")] if line.startswith("|")]
    assert len(table) == 2 + 11
    assert "\n".join(table[2:]) in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def test_pages_of_results_show_their_figures() -> None:
    for figure in RESULTS.glob("*/*.svg"):
        pages = "".join(page.read_text(encoding="utf-8") for page in figure.parent.glob("*.md"))
        assert f"]({figure.name})" in pages, figure
