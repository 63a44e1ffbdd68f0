"""A study with models and graphs of one's own is reproduced and checked like one of the paper."""

from pathlib import Path

from runs.small_studies import write_study
from runs.test_own import STUDY, write_graph

from gfgn.paper.check import check
from gfgn.paper.reproduce import reproduce


def test_a_study_of_ones_own_is_written_and_checked(tmp_path: Path) -> None:
    write_graph(tmp_path / "graphs" / "mine")
    path, out = write_study(tmp_path, STUDY), tmp_path / "out"
    outcome = reproduce(path, out, device="cpu", trust_code=True)
    assert not outcome.left_out
    page = (out / "README.md").read_text(encoding="utf-8")
    assert "| nets:Branching |" in page
    assert "### mine" in page
    checked = check(path, out, trust_code=True)
    assert checked.problems == []
    assert "runs on 2 graphs trained again" in checked.summary[-1]
    (tmp_path / "graphs" / "mine" / "nodes.csv").write_text(
        (tmp_path / "graphs" / "mine" / "nodes.csv").read_text().replace("0,a,0,0", "0,a,2,3")
    )
    problems = check(path, out, trust_code=True).problems
    assert any(line.startswith("mine ") and "the graph differs" in line for line in problems)
