"""What README and documentation show is what the folder `results` and the registry have."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gfgn.nn.registry import MODELS
from gfgn.paper.reproduce import reproduce

ROOT = Path(__file__).parents[1]
FIGURES = {
    "motivation": ["embedding", "neighbors"],
    "spectral": ["spectral"],
    "lambda": ["lambda"],
    "noise": ["noise"],
    "ablations": ["ablations"],
    "geom-gcn": ["geom-gcn"],
    "geom-gcn-pubmed": ["geom-gcn-pubmed"],
    "scores": ["gfgn-graph", "gfgn-neighbor", "gfgn-pair"],
    "table1": ["table1"],
    "table2": ["table2"],
    "table2-longer": ["table2-longer"],
    "arxiv": ["arxiv"],
    "parameters": ["parameters"],
}


def test_the_table_of_the_readme_is_that_of_the_results() -> None:
    page = (ROOT / "results" / "table1" / "README.md").read_text(encoding="utf-8")
    lines = page.splitlines()
    begin = lines.index("## Measured, and in brackets published")
    table = [line for line in lines[begin : lines.index("### blogcatalog")] if line.startswith("|")]
    assert len(table) == 2 + 11
    assert "\n".join(table) in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("study", "name"), [(study, name) for study, names in FIGURES.items() for name in names])
def test_figures_of_the_documentation_are_those_of_the_results(study: str, name: str) -> None:
    shown = (ROOT / "docs" / "assets" / f"{name}.svg").read_bytes()
    assert shown == (ROOT / "results" / study / f"{name}.svg").read_bytes()
    assert f"assets/{name}.svg" in (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")


def test_figures_of_scores_are_drawn_again_from_their_tables(tmp_path: Path) -> None:
    committed, names = ROOT / "results" / "scores", [f"{name}.svg" for name in FIGURES["scores"]]
    for path in committed.glob("*.csv"):
        shutil.copy(path, tmp_path)
    outcome = reproduce("scores", tmp_path, train=False, say=lambda line: None)
    assert outcome.made == 0
    assert {path.name for path in outcome.files} >= {*names, "runs.csv", "README.md", "dimensions.md"}
    for name in (*names, "README.md", "dimensions.md"):
        assert (tmp_path / name).read_bytes() == (committed / name).read_bytes()


def test_the_page_of_models_has_what_the_registry_has() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    expected = []
    for name, entry in MODELS.items():
        options = "<br>".join(f"`{key}` {value.default}: {value.meaning}" for key, value in entry.parameters.items())
        expected.append(f"| `{name}` | {entry.reference} | {options} |")
    assert sorted(rows) == sorted(expected)


def test_the_examples_of_the_page_of_models_run() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["run"].replica.options == (("alpha", 0.2), ("steps", 5))
    assert names["run"].val > 0.5
    assert names["logits"].shape == (names["dataset"].num_nodes, names["dataset"].num_classes)
