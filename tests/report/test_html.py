"""The report is one self-contained file with all results, readable without color and on a narrow screen."""

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from gfgn.data import dimensions
from gfgn.report import write_report
from gfgn.report.figures import stack
from gfgn.runs import Comparison, Store, compare, grid
from gfgn.runs.gates import gates_note
from gfgn.runs.text import interval

VOID = {"meta", "link", "br", "use", "path"}


class Balance(HTMLParser):
    """Collects tags that are not properly closed."""

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
    with Store(":memory:") as store:
        gates_note(store, data)
        return compare(data, ["mlp", "gfgn-graph"], splits=2, store=store, max_epochs=5)


@pytest.fixture(scope="module")
def tuned() -> Comparison:
    data = dataclasses.replace(dimensions(120, degree=8, splits=2, seed=1), name="second", smooth_dimensions=None)
    with Store(":memory:") as store:
        gates_note(store, data)
        choices = grid(lr=(0.01, 0.05), lam=(1.0, 2.0))
        return compare(data, ["mlp", "gfgn-graph", "gfgn-pair"], splits=2, store=store, grid=choices, max_epochs=5)


def write(folder: Path, *comparisons: Comparison) -> str:
    return write_report(comparisons, folder / "deep" / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("report"), comparison)


@pytest.fixture(scope="module")
def both(comparison: Comparison, tuned: Comparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("report"), comparison, tuned)


@pytest.mark.parametrize("name", ["page", "both"])
def test_the_page_is_self_contained(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name)
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"<(script|link|img|iframe)\b|@import", page)


@pytest.mark.parametrize("name", ["page", "both"])
def test_the_page_is_well_formed(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name)
    balance = Balance()
    balance.feed(page)
    assert balance.wrong == []
    assert balance.open == []
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"""(?:href="|url\()#([^")]+)""", page))
    assert used
    assert used <= set(ids)


def test_the_table_shows_the_summaries(page: str, comparison: Comparison) -> None:
    for model, summary in comparison.summary().items():
        row = re.search(rf"<tr[^>]*><td>{model}</td>(.*?)</tr>", page)
        assert row is not None
        assert f"{100 * summary.mean:.1f} ± {100 * summary.std:.1f}" in row[1]
        assert interval(summary, "accuracy") in row[1]
    assert "against mlp" in page
    assert "at most 5 epochs" in page
    assert comparison.dataset.description in page
    assert "2 models on dimensions" in page
    assert "4 runs, all of them in the store" in page


def test_figures_use_the_page_color_and_have_alternative_texts(page: str) -> None:
    figures = re.findall(r"<svg role=\"img\" aria-label=\"([^\"]+)\"", page)
    assert len(figures) == 2
    assert "where the dimension follows the graph" in figures[1]
    assert "currentColor" in page
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_runs_with_the_same_score_do_not_hide_each_other() -> None:
    assert stack([70.0, 80.0, 70.01, 70.0], step=0.1) == pytest.approx([0, 0, 0.1, 0.2])
    assert stack([70.0] * 4, step=0.1, height=3) == pytest.approx([0, 0.1, 0.2, 0])


def test_several_datasets_have_an_overview_with_ranks(both: str, comparison: Comparison, tuned: Comparison) -> None:
    assert "<h1>3 models on 2 datasets</h1>" in both
    head, overview = both.split("<tbody>")[:2]
    assert re.findall(r'<th scope="col">(.*?)</th>', head) == ["model", "dimensions", "second", "rank"]
    rows = dict(re.findall(r"<tr[^>]*><td>(.*?)</td>(.*?)</tr>", overview.split("</tbody>")[0]))
    assert list(rows) == ["mlp", "gfgn-graph", "gfgn-pair"]
    for model, row in rows.items():
        for each in (comparison, tuned):
            if model in each.models:
                assert f"{100 * each.summary()[model].mean:.1f} ±" in row
    assert rows["gfgn-pair"].startswith("<td></td>")  # did not run on the first dataset
    assert rows["gfgn-pair"].endswith("<td></td>")  # so it has no rank
    assert overview.count('class="bold"') >= 2
    assert both.count("<h2 id=") == 2


def test_a_tuned_comparison_shows_the_selected_configurations(both: str, tuned: Comparison) -> None:
    assert both.count("Selected configurations") == 1
    assert "All 10 configurations tried" in both
    selected = both.split("Selected configurations")[1].split("<details>")[0]
    for model in tuned.models:
        best = tuned.selections[model].candidates[0]
        assert f"learning rate {best.configuration['lr']:g}, " in selected
        assert f"{100 * best.val:.1f} ± {100 * best.std:.1f}" in selected
    row = re.search(r"<tr><td>mlp</td>(.*?)</tr>", selected)
    assert row is not None
    assert "λ" not in row[1]  # an MLP has none
    assert "grid of 4 (learning rate 0.01 or 0.05; λ 1 or 2)" in both


def test_shared_settings_are_shown_once(comparison: Comparison, tuned: Comparison, tmp_path: Path) -> None:
    plan = dataclasses.replace(comparison.plan, dataset=dataclasses.replace(comparison.dataset, name="other"))
    assert write(tmp_path, comparison, dataclasses.replace(comparison, plan=plan)).count("Every model: ") == 1
    assert write(tmp_path, comparison, tuned).count("Every model: ") == 2


def test_gates_are_shown_against_smoothness_where_the_truth_is_unknown(tuned: Comparison, tmp_path: Path) -> None:
    page = write(tmp_path, tuned)
    assert "against its smoothness" in page
    assert "follows the graph, " not in page


def test_gates_of_trained_models(comparison: Comparison, tmp_path: Path) -> None:
    gates = [{"min": 0.1, "mean": mean, "max": 1.5, "std": 0.2, "below_055": 0.641} for mean in (0.2, 0.4)]
    rows = [
        dataclasses.replace(row, gates=each) for row, each in zip(comparison.rows["gfgn-graph"], gates, strict=True)
    ]
    known = dataclasses.replace(comparison, rows=comparison.rows | {"gfgn-graph": rows})
    section = write(tmp_path, known).split("What the gates learned")[1]
    row = re.search(r"<tr[^>]*><td>gfgn-graph</td>(.*?)</tr>", section)
    assert row is not None
    assert re.findall(r"<td>(.*?)</td>", row[1]) == ["0.10", "0.30", "1.50", "0.20", "64"]


def test_missing_parts_are_named(comparison: Comparison, tmp_path: Path) -> None:
    wide = dataclasses.replace(comparison.dataset, num_features=1703, standin=True)
    plan = dataclasses.replace(comparison.plan, dataset=wide)
    page = write(tmp_path, dataclasses.replace(comparison, plan=plan, gates=None, incomplete={"gcn": (1, 2)}))
    assert "up to 1,024 dimensions; this graph has 1,703" in page
    assert "gcn, 1 of 2 runs" in page
    assert "This is a stand-in" in page
    assert page.count("<svg") == 1


def test_a_comparison_without_finished_models(comparison: Comparison, tmp_path: Path) -> None:
    empty = dataclasses.replace(comparison, rows={}, incomplete={"mlp": (0, 2), "gfgn-graph": (1, 2)})
    assert "mlp, 0 of 2 runs; gfgn-graph, 1 of 2 runs" in write(tmp_path, empty)
    assert "<h1>2 models on 2 datasets</h1>" in write(tmp_path, empty, comparison)
    with pytest.raises(ValueError, match="comparisons must not be empty, got none"):
        write_report([], tmp_path / "none.html")


def test_without_gated_models_there_is_no_section_on_gates(comparison: Comparison, tmp_path: Path) -> None:
    rows = {"mlp": comparison.rows["mlp"]}
    page = write(tmp_path, dataclasses.replace(comparison, rows=rows, gates=None))
    assert "What the gates learned" not in page
    assert page.count("<svg") == 1
    assert "against" not in page


def test_text_is_escaped(comparison: Comparison, tmp_path: Path) -> None:
    data = dataclasses.replace(comparison.dataset, name="<b>x</b>", description="a < b & c")
    plan = dataclasses.replace(comparison.plan, dataset=data)
    page = write(tmp_path, dataclasses.replace(comparison, plan=plan))
    assert "<b>x</b>" not in page
    assert "<p>A &lt; b &amp; c.</p>" in page
