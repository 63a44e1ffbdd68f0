"""The report is one self-contained, valid and accessible file with all results; names of users cannot break it."""

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from report.pages import Page, with_classes, with_explanation, with_features, with_record, write

from gfgn.data import NodeDataset, dimensions
from gfgn.report import write_report
from gfgn.report.charts import padded, stack, ticks
from gfgn.runs import Comparison, Store, compare, explain, grid, read_comparisons
from gfgn.runs.text import interval

HOSTILE = "</script><script>alert(1)</script><!-- <b>&\"'"


def explained(data: NodeDataset, models: list[str], splits: int = 2, **settings: Any) -> Comparison:
    with Store(":memory:") as store:
        explain(store, data, compare(data, models, splits=splits, store=store, max_epochs=5, **settings))
        return read_comparisons(store)[0]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return explained(dimensions(120, degree=8, splits=2), ["mlp", "gfgn-graph"])


@pytest.fixture(scope="module")
def tuned() -> Comparison:
    data = dataclasses.replace(dimensions(120, degree=8, splits=2, seed=1), name="second", smooth_dimensions=None)
    return explained(data, ["mlp", "gfgn-graph", "gfgn-pair"], grid=grid(lr=(0.01, 0.05), lam=(1.0, 2.0)))


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("report"), comparison)


@pytest.fixture(scope="module")
def both(comparison: Comparison, tuned: Comparison, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("report"), comparison, tuned)


def rows_of(text: str, name: str) -> list[list[str]]:
    """The cells of the rows that begin with a name."""
    rows = re.findall(rf'<tr[^>]*><th scope="row"[^>]*>{re.escape(name)}</th>(.*?)</tr>', text)
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]


# --- the page as a whole ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["page", "both"])
def test_the_page_is_self_contained(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name)
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"<(link|img|iframe)\b|@import|https?:|fetch\(", page)


@pytest.mark.parametrize("name", ["page", "both"])
def test_the_page_is_valid_and_accessible(name: str, request: pytest.FixtureRequest) -> None:
    page = Page(request.getfixturevalue(name))
    assert page.wrong == []
    regions = [attributes for _, attributes in page.elements if attributes.get("role") == "region"]
    assert regions
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)
    assert page.elements[[tag for tag, _ in page.elements].index("a")][1]["href"] == "#main"  # the first link
    for media in ("prefers-color-scheme: dark", "prefers-reduced-motion", "print"):
        assert media in page.text
    assert 'name="viewport"' in page.text


def test_the_parser_finds_what_is_wrong() -> None:
    start = "<h1>a</h1>"
    wrong = {
        "<p>": "not closed",
        "<b></i>": "</i>",
        '<p id="a"></p><p id="a"></p>': "twice",
        "<h3></h3>": "after h1",
        "<table><caption></caption><tr><th>a</th></tr></table>": "without scope",
        "<input>": "without a label",
        "<button></button>": "without a text",
        '<a href="#b"></a>': "link to",
        '<a href="x.html"></a>': "link to",
        "<svg></svg>": "alternative text",
        "<h1></h1>": "not one h1",
        "<table></table>": "without a caption",
        "<td></td>": "outside of a row",
    }
    assert Page(start).wrong == []
    for text, message in wrong.items():
        assert message in " ".join(Page(start + text).wrong), text


def test_no_text_is_smaller_than_11_pixels(page: str) -> None:
    sizes = [(float(size), unit) for size, unit in re.findall(r"font(?:-size)?:\s*([\d.]+)(px|rem|em)", page)]
    assert sizes
    assert all(size * (1 if unit == "px" else 16 * 0.85) >= 10.6 for size, unit in sizes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page: str, scheme: str) -> None:
    """4.5 for text on the page and on the darkest cell of the confusion matrix, 3 for marks (WCAG 2.1, AA)."""
    blocks = re.findall(r":root \{(.*?)\}", page, re.S)
    colors = dict(re.findall(r"--(\w+): (#\w+)", blocks[0] + (blocks[1] if scheme == "dark" else "")))

    def rgb(name: str) -> list[float]:
        text = colors[name][1:]
        text = text if len(text) == 6 else "".join(2 * digit for digit in text)
        return [int(text[k : k + 2], 16) / 255 for k in (0, 2, 4)]

    def luminance(color: list[float]) -> float:
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(first: list[float], second: list[float]) -> float:
        low, high = sorted((luminance(first), luminance(second)))
        return (high + 0.05) / (low + 0.05)

    for name in ("ink", "soft"):
        assert contrast(rgb(name), rgb("paper")) >= 4.5
    for name in ("blue", "orange", "edge"):
        assert contrast(rgb(name), rgb("paper")) >= 3
    cell = [0.55 * paper + 0.45 * blue for paper, blue in zip(rgb("paper"), rgb("blue"), strict=True)]
    assert contrast(rgb("ink"), cell) >= 4.5


def test_names_of_users_are_escaped(comparison: Comparison, tmp_path: Path) -> None:
    names = [f"{HOSTILE} {k}" for k in range(50)]
    changed = with_record(comparison, name=HOSTILE, description="a < b & c")
    changed = with_features(with_classes(changed, names[:6]), names)
    node = {"id": HOSTILE, "class": HOSTILE, "degree": 3}
    extremes = {"model": "gfgn-pair", "kind": "edges", "total": 9, "most": [{"gate": 0.5, "nodes": [node, node]}]}
    changed = with_explanation(changed, extremes=extremes | {"least": extremes["most"]})
    text = write(tmp_path, changed)
    page = Page(text)
    assert page.wrong == []
    assert "alert(1)</script>" not in text
    assert [tag for tag, _ in page.elements].count("script") == 2  # the data and the page's own
    assert not any(tag == "b" for tag, _ in page.elements)
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text)
    assert json.loads(data)["names"] == names
    assert "<p>A &lt; b &amp; c.</p>" in text
    with (tmp_path / "deep" / "gates.csv").open(encoding="utf-8", newline="") as file:
        assert [row["feature"] for row in csv.DictReader(file)] == names


# --- results ----------------------------------------------------------------------------------------------------------


def test_one_split_has_no_interval(tmp_path: Path) -> None:
    data = dataclasses.replace(dimensions(120, degree=8, splits=1), metric="log_loss")
    page = write(tmp_path, compare(data, ["mlp", "gfgn-graph"], splits=1, max_epochs=3))
    assert "nan" not in re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL).lower()
    assert "test negative log loss</th>" in page
    assert "<td>–</td>" in page


def test_the_table_shows_the_summaries(page: str, comparison: Comparison) -> None:
    for model, summary in comparison.summary().items():
        cells = rows_of(page, model)[0]
        assert cells[0].startswith(f"{100 * summary.mean:.1f} ± {100 * summary.std:.1f}")
        assert cells[1] == interval(summary, "accuracy")
    assert "against mlp" in page
    assert "at most 5 epochs" in page
    assert comparison.dataset.description in page
    assert "2 models on dimensions" in page
    assert "4 runs, all of them in the store" in page


def test_the_headline_comes_first(page: str, comparison: Comparison) -> None:
    from gfgn.runs.verdict import headline

    first = re.search(r"</h1>\s*<p class=\"headline\">(.*?)</p>", page)
    assert first is not None
    assert first[1].replace("&#x27;", "'") == headline(comparison)


def test_every_run_is_a_mark(page: str) -> None:
    chart = page.split("All runs</h2>")[1].split("</figure>")[0]
    chart = chart[chart.index('class="chart"') :]
    assert chart.count("<circle") == 2  # of gfgn-graph
    assert chart.count("<rect") == 2  # of the MLP: another shape, not only another color


def test_runs_with_the_same_score_do_not_hide_each_other() -> None:
    assert stack([70.0, 80.0, 70.01, 70.0], step=0.1) == pytest.approx([0, 0, 0.1, 0.2])
    assert stack([70.0] * 4, step=0.1, height=3) == pytest.approx([0, 0.1, 0.2, 0])


def test_axes() -> None:
    assert ticks((0.0, 1.0)) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks((41.3, 92.0)) == [50, 60, 70, 80, 90]
    assert ticks((-0.002, 0.011), 3) == [0, 0.005, 0.01]
    assert padded([1.0, None, float("nan"), 3.0]) == pytest.approx((0.88, 3.12))
    low, high = padded([5.0])
    assert low < 5 < high
    assert padded([], zero=True)[0] < 0 < padded([], zero=True)[1]


def test_several_datasets_have_an_overview_with_ranks(both: str, comparison: Comparison, tuned: Comparison) -> None:
    assert "<h1>3 models on 2 datasets</h1>" in both
    head, overview = both.split("<tbody>")[:2]
    overview = overview.split("</tbody>")[0]
    assert re.findall(r'<th scope="col">(.*?)</th>', head) == ["model", "dimensions", "second", "rank"]
    assert re.findall(r'<th scope="row">(.*?)</th>', overview) == ["mlp", "gfgn-graph", "gfgn-pair"]
    for k, each in enumerate((comparison, tuned)):
        for model, summary in each.summary().items():
            assert rows_of(overview, model)[0][k].startswith(f"{100 * summary.mean:.1f} ±")
    assert rows_of(overview, "gfgn-pair")[0][0] == ""  # did not run on the first dataset
    assert rows_of(overview, "gfgn-pair")[0][2] == ""  # so it has no rank
    assert overview.count('class="bold"') >= 2
    assert both.count("<h2 id=") == 2


def test_a_tuned_comparison_shows_the_selected_configurations(both: str, tuned: Comparison) -> None:
    assert both.count("Selected configurations</h3>") == 1
    assert "All 10 configurations tried" in both
    selected = both.split("Selected configurations</h3>")[1].split("<details>")[0]
    for model in tuned.models:
        best = tuned.selections[model].candidates[0]
        score, words = rows_of(selected, model)[0]
        assert score == f"{100 * best.val:.1f} ± {100 * best.std:.1f}"
        assert f"learning rate {best.configuration['lr']:g}, " in words
        assert ("λ" in words) == (model != "mlp")  # an MLP has none
    assert "grid of 4 (learning rate 0.01 or 0.05; λ 1 or 2)" in both


def test_shared_settings_are_shown_once(comparison: Comparison, tuned: Comparison, tmp_path: Path) -> None:
    assert write(tmp_path, comparison, with_record(comparison, name="other")).count("Every network: ") == 1
    assert write(tmp_path, comparison, tuned).count("Every network: ") == 2


def test_a_single_split_has_no_interval(tmp_path: Path) -> None:
    page = Page(write(tmp_path, explained(dimensions(120, degree=8, splits=2), ["mlp", "gfgn-graph"], splits=1)))
    assert page.wrong == []
    assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page.text, flags=re.S).lower()


def test_the_log_loss_is_no_percentage(tmp_path: Path) -> None:
    data = dataclasses.replace(dimensions(120, degree=8, splits=2), metric="log_loss")
    comparison = explained(data, ["majority", "gfgn-graph"])
    page = write(tmp_path, comparison)
    assert Page(page).wrong == []
    assert rows_of(page, "majority")[0][0].startswith(f"−{-comparison.summary()['majority'].mean:.3f} ± ")
    assert "importance, points" not in page
    assert "log loss, %" not in page


def without(comparison: Comparison, *keys: str) -> Comparison:
    """The comparison without some runs."""
    runs = [row for row in comparison.runs if row.key not in keys]
    return dataclasses.replace(comparison, runs=runs, explanation=None)


def test_missing_parts_are_named(comparison: Comparison, tmp_path: Path) -> None:
    changed = without(comparison, comparison.rows["gfgn-graph"][0].key)
    page = write(tmp_path, with_record(changed, standin=True))
    assert "gfgn-graph, 1 of 2 runs" in page
    assert "This is a stand-in" in page
    assert 'class="explorer"' not in page
    assert Page(page).wrong == []
    assert not (tmp_path / "deep" / "gates.csv").exists()


def test_a_comparison_without_finished_models(comparison: Comparison, tmp_path: Path) -> None:
    left = comparison.rows["gfgn-graph"][1].key
    empty = without(comparison, *(row.key for row in comparison.runs if row.key != left))
    assert "mlp, 0 of 2 runs; gfgn-graph, 1 of 2 runs" in write(tmp_path, empty)
    assert "<h1>2 models on 2 datasets</h1>" in write(tmp_path, empty, comparison)
    with pytest.raises(ValueError, match="comparisons must not be empty, got none"):
        write_report([], tmp_path / "none.html")


# --- the explained run ------------------------------------------------------------------------------------------------


def test_gates_of_trained_models(comparison: Comparison, tmp_path: Path) -> None:
    gates = [{"min": 0.1, "mean": mean, "max": 1.5, "std": 0.2, "below_055": 0.641} for mean in (0.2, 0.4)]
    learned = {row.key: each for row, each in zip(comparison.rows["gfgn-graph"], gates, strict=True)}
    rows = [dataclasses.replace(row, gates=learned.get(row.key, row.gates)) for row in comparison.runs]
    known = dataclasses.replace(comparison, runs=rows)
    section = write(tmp_path, known).split("What the gates learned</h2>")[1]
    assert rows_of(section, "gfgn-graph")[0] == ["0.10", "0.30", "1.50", "0.20", "64"]


def test_without_a_gfgn_there_are_no_gates(tmp_path: Path) -> None:
    page = write(tmp_path, explained(dimensions(120, degree=8, splits=2), ["mlp"]))
    assert "What the gates learned" not in page
    assert "gate" not in page.split("Features</h2>")[1].split("</table>")[0]
    assert "against" not in page.split("Results</h2>")[1].split("</table>")[0]
    assert Page(page).wrong == []
    assert not (tmp_path / "deep" / "gates.csv").exists()


def test_classes_and_confusion_matrix(comparison: Comparison, tmp_path: Path) -> None:
    page = write(tmp_path, with_classes(comparison, ["cat", "dog", "a bird"]))
    scores = page.split("Scores by class</h2>")[1]
    assert rows_of(scores, "dog")[0] == ["80.0%", "80.0%", "80.0%", "10"]
    matrix = page.split('<table class="matrix">')[1].split("</table>")[0]
    assert rows_of(matrix, "cat")[0] == ["8<small>80%</small>", "2<small>20%</small>", ""]
    assert rows_of(matrix, "a bird")[0] == ["2<small>20%</small>", "", "8<small>80%</small>"]
    assert matrix.count('class="correct"') == 3
    assert re.findall(r'<th scope="col">(.*?)</th>', matrix)[1:] == ["cat", "dog", "a bird"]
    assert "Expected calibration error: " in page


@pytest.mark.parametrize("classes", [30, 51, 201])
def test_many_classes(classes: int, comparison: Comparison, tmp_path: Path) -> None:
    text = write(tmp_path, with_classes(comparison, [f"class number {k}" for k in range(classes)]))
    assert Page(text).wrong == []
    mistakes = text.split("Most frequent mistakes</caption>")[1].split("</table>")[0]
    assert mistakes.count("<tr") == 16
    assert rows_of(mistakes, "class number 3")[0] == ["class number 4", "2", "20"]
    assert ('<table class="matrix">' in text) == (classes <= 200)
    assert (f"Confusion matrix of {classes} classes" in text) == (classes == 51)  # folded
    assert len(text) < 1_000_000


def test_curves_and_the_run(page: str, comparison: Comparison) -> None:
    assert comparison.explanation is not None
    run = comparison.explanation["run"]
    assert f"One run of {run['model']}</h2>" in page
    assert f"best epoch: {run['epoch']}" in page
    assert f"test accuracy is {100 * run['test']:.1f}%" in page
    lines = re.findall(
        r'<polyline points="(.*?)"', page.split(f"One run of {run['model']}</h2>")[1].split("</figure>")[0]
    )
    assert [len(line.split()) for line in lines] == [5, 5, 5]


def test_another_score_than_in_the_store_is_told(comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.explanation is not None
    run = comparison.explanation["run"] | {"test": 0.5, "stored_test": 0.25}
    assert "In the store it is 25.0%" in write(tmp_path, with_explanation(comparison, run=run))


def test_a_diverged_run(comparison: Comparison, tmp_path: Path) -> None:
    history: dict[str, Any] = {"epoch": [0, 1, 2], "train_loss": [1.0, None, 2.0], "val_loss": [None] * 3}
    changed = with_explanation(comparison, history=history | {"val": [0.1, 0.2, None]})
    assert changed.explanation is not None
    unknown = {"gates": {"graph": [None] * 36}, "importance": [None] * 36}
    text = write(tmp_path, with_explanation(changed, features=changed.explanation["features"] | unknown))
    assert Page(text).wrong == []
    assert rows_of(text, "own 1, no. 1")[0][0] == "–"


def test_the_table_of_features(page: str, comparison: Comparison) -> None:
    assert comparison.explanation is not None
    features = comparison.explanation["features"]
    table = page.split('class="explorer"')[1].split("</table>")[0]
    for k in (0, 20, 35):
        gates = [f"{values[k]:.2f}" for values in features["gates"].values()]
        numbers = [f"{features['smoothness'][k]:.2f}", f"{100 * features['importance'][k]:.2f}".replace("-", "−")]
        truth = "follows the graph" if features["follows"][k] else "does not"
        assert rows_of(table, features["names"][k])[0] == [*gates, *numbers, truth]
    order = re.findall(r'<th scope="row">(.*?)</th>', table)
    gates = dict(zip(features["names"], features["gates"]["graph"], strict=True))
    assert [gates[name] for name in order] == sorted(gates.values(), reverse=True)
    assert "Scatter plot of importance against the gate of 36 features" in page


@pytest.mark.parametrize("features", [41, 20_000])
def test_many_features(features: int, comparison: Comparison, tmp_path: Path) -> None:
    text = write(tmp_path, with_features(comparison, [f"word {k}" for k in range(features)]))
    assert Page(text).wrong == []
    table = text.split('class="explorer"')[1].split("</table>")[0]
    shown = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert shown == [f"word {k}" for k in [*range(20), *range(features - 1, features - 21, -1)]]
    assert rows_of(table, "word 3")[0] == [f"{1 - 3 / features:.2f}", f"{3 / features:.2f}", f"{30 / features:.2f}"]
    assert rows_of(table, "word 4")[0][2] == "–"
    assert text.count("<circle") < 400
    lines = (tmp_path / "deep" / "gates.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == features + 1
    assert lines[0] == "feature,gate_graph,smoothness,importance,importance_std"
    assert lines[2].split(",")[3] == ""  # not computed


def test_files_of_gates(comparison: Comparison, tuned: Comparison, tmp_path: Path) -> None:
    twin = with_record(comparison, name="a/b c")
    page = write(tmp_path, comparison, tuned, twin, with_record(comparison, name="a b/c"))
    folder = tmp_path / "deep"
    names = ["gates-a-b-c-3.csv", "gates-a-b-c.csv", "gates-dimensions.csv", "gates-second.csv"]
    assert sorted(path.name for path in folder.glob("*.csv")) == names
    assert all(f"<code>{name}</code>" in page for name in names)
    write(tmp_path, comparison, tuned)  # may replace its own files
    (folder / "gates.csv").write_text("a,b\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"gates\.csv gfgn may overwrite, but .* is something else"):
        write(tmp_path, comparison)
    assert (folder / "gates.csv").read_text(encoding="utf-8") == "a,b\n"


def test_extreme_edges(both: str, tuned: Comparison) -> None:
    assert tuned.explanation is not None
    extremes = tuned.explanation["extremes"]
    section = both.split("Edges with the lowest gates</h4>")[1]
    source, target = extremes["least"][0]["nodes"]
    row = [target["id"], f"{extremes['least'][0]['gate']:.3f}", source["class"], target["class"]]
    assert [*row, str(source["degree"]), str(target["degree"])] in rows_of(section, source["id"])


def test_multilabel_data(tmp_path: Path) -> None:
    data = dimensions(120, degree=8, splits=2)
    labels = torch.stack([data.y % 2 == 0, data.y > 2], 1)
    several = dataclasses.replace(data, y=labels, num_classes=2, metric="micro_f1", class_names=["even", "large"])
    page = write(tmp_path, explained(several, ["gfgn-neighbor"]))
    assert Page(page).wrong == []
    assert "Scores by label" in page
    assert "Confusion matrix" not in page
    assert len(rows_of(page.split("Scores by label</h2>")[1], "even")[0]) == 4
    assert "Nodes with the highest gates" in page
