"""README and documentation show what the folder `results` has."""

import re
import shutil
from pathlib import Path

from gfgn.paper.reproduce import reproduce

ROOT = Path(__file__).parents[2]


def test_the_readme_shows_the_table_of_the_results() -> None:
    page = (ROOT / "results" / "table1" / "README.md").read_text(encoding="utf-8")
    lines = page.splitlines()
    begin = lines.index("## Overview")
    table = [line for line in lines[begin : lines.index("### blogcatalog")] if line.startswith("|")]
    assert len(table) == 2 + 11
    assert "\n".join(table) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_documentation_shows_every_figure_of_the_results() -> None:
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    figures = {path.relative_to(ROOT).as_posix() for path in (ROOT / "results").glob("*/*.svg")}
    assert set(re.findall(r"\]\(\.\./(results/\S+\.svg)\)", page)) == figures


def test_figures_of_scores_are_redrawn_from_their_tables(tmp_path: Path) -> None:
    committed, names = ROOT / "results" / "scores", ["gfgn-graph.svg", "gfgn-neighbor.svg", "gfgn-pair.svg"]
    for path in committed.glob("*.csv*"):
        shutil.copy(path, tmp_path)
    outcome = reproduce("scores", tmp_path, train=False)
    assert outcome.made == 0
    assert {path.name for path in outcome.files} >= {*names, "runs.csv.gz", "README.md", "dimensions.md"}
    for name in (*names, "README.md", "dimensions.md"):
        assert (tmp_path / name).read_bytes() == (committed / name).read_bytes()
