"""The report is one file, says what was found, and reads without colour, network or a wide screen."""

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gfgn.data import dimensions
from gfgn.experiments import Comparison, compare, gates_by_dimension
from gfgn.report import write_report

VOID = {"meta", "link", "br", "use", "path"}


class Balance(HTMLParser):
    """Collects the tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    data = dimensions(120, degree=8, splits=2)
    return compare(data, ["mlp", "gfgn-graph"], splits=2, max_epochs=5)


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    gates = {level: gates_by_dimension(comparison.dataset, level, epochs=2) for level in ("graph", "pair")}
    path = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    return write_report(comparison, path, gates).read_text(encoding="utf-8")


def test_needs_nothing_but_itself(page: str) -> None:
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"<(script|link|img|iframe)\b|@import", page)


def test_is_well_formed(page: str) -> None:
    balance = Balance()
    balance.feed(page)
    assert balance.wrong == []
    assert balance.open == []
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"""(?:href="|url\()#([^")]+)""", page))
    assert used
    assert used <= set(ids)


def test_the_table_holds_the_numbers(page: str, comparison: Comparison) -> None:
    for model, summary in comparison.summary().items():
        row = re.search(rf"<tr[^>]*><td>{model}</td>(.*?)</tr>", page)
        assert row is not None
        assert f"{100 * summary.mean:.1f} ± {100 * summary.std:.1f}" in row[1]
        assert f"[{100 * summary.low:.1f}, {100 * summary.high:.1f}]" in row[1]
    assert "against mlp" in page
    assert "at most 5 epochs" in page
    assert comparison.dataset.description in page


def test_figures_follow_the_page_and_have_words(page: str) -> None:
    figures = re.findall(r"<svg role=\"img\" aria-label=\"([^\"]+)\"", page)
    assert len(figures) == 2
    assert "where the dimension follows the graph" in figures[1]
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_without_truth_gates_are_shown_against_smoothness(comparison: Comparison, tmp_path: Path) -> None:
    data = dataclasses.replace(comparison.dataset, smooth_dimensions=None)
    unknown = dataclasses.replace(comparison, dataset=data)
    gates = {"graph": gates_by_dimension(data, "graph", epochs=2)}
    page = write_report(unknown, tmp_path / "report.html", gates).read_text(encoding="utf-8")
    assert "against its roughness" in page
    assert "follows the graph" not in page


def test_without_gates_there_is_no_section_on_them(comparison: Comparison, tmp_path: Path) -> None:
    page = write_report(comparison, tmp_path / "report.html").read_text(encoding="utf-8")
    assert "What the gates learned" not in page
    assert page.count("<svg") == 1


def test_text_is_escaped(comparison: Comparison, tmp_path: Path) -> None:
    data = dataclasses.replace(comparison.dataset, name="<b>x</b>", description="a < b & c")
    page = write_report(dataclasses.replace(comparison, dataset=data), tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<b>x</b>" not in page
    assert "a &lt; b &amp; c" in page
