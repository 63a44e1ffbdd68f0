"""The report is one self-contained, valid and accessible file with all results; names of users cannot break it."""

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report.pages import Page, with_classes, with_explanation, with_features, with_record, write

from gfgn.data import NodeDataset, dimensions
from gfgn.report import write_report
from gfgn.report.charts import padded, stack, ticks
from gfgn.runs import Comparison, Store, compare, explain, grid, read_comparisons
from gfgn.runs.text import interval
from gfgn.runs.verdict import headline

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
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return write(tmp_path_factory.mktemp("report"), comparison)


@pytest.fixture(scope="module")
def both(comparison: Comparison, tuned: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return write(tmp_path_factory.mktemp("report"), comparison, tuned)


def section(page: Page, start: str, end: str = "</figure>") -> Page:
    """The part of a page between two texts."""
    return Page(page.text.split(start)[1].split(end)[0])


# --- the page as a whole ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["page", "both"])
def test_the_page_is_self_contained_and_accessible(name: str, request: pytest.FixtureRequest) -> None:
    page = request.getfixturevalue(name)
    addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page.text)
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"<(link|img|iframe)\b|@import|https?:|fetch\(", page.text)
    regions = [attributes for _, attributes in page.elements if attributes.get("role") == "region"]
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)
    assert page.elements[[tag for tag, _ in page.elements].index("a")][1]["href"] == "#main"  # the first link
    for media in ("prefers-color-scheme: dark", "prefers-reduced-motion", "print", 'name="viewport"'):
        assert media in page.text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(page: Page, scheme: str) -> None:
    """4.5 for text on the page and on the darkest cell of the confusion matrix, 3 for marks (WCAG 2.1, AA)."""
    blocks = re.findall(r":root \{(.*?)\}", page.text, re.S)
    colors = dict(re.findall(r"--(\w+): (#\w+)", blocks[0] + (blocks[1] if scheme == "dark" else "")))

    def rgb(name: str) -> list[float]:
        text = colors[name][1:]
        text = text if len(text) == 6 else "".join(2 * digit for digit in text)
        return [int(text[k : k + 2], 16) / 255 for k in (0, 2, 4)]

    def contrast(*pair: list[float]) -> float:
        linear = [[v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color] for color in pair]
        low, high = sorted(float(np.dot((0.2126, 0.7152, 0.0722), color)) for color in linear)
        return (high + 0.05) / (low + 0.05)

    for name, least in {"ink": 4.5, "soft": 4.5, "blue": 3, "orange": 3, "edge": 3}.items():
        assert contrast(rgb(name), rgb("paper")) >= least
    cell = [0.55 * paper + 0.45 * blue for paper, blue in zip(rgb("paper"), rgb("blue"), strict=True)]
    assert contrast(rgb("ink"), cell) >= 4.5


def test_names_of_users_are_escaped(comparison: Comparison, tmp_path: Path) -> None:
    names = [f"{HOSTILE} {k}" for k in range(50)]
    changed = with_record(comparison, name=HOSTILE, description="a < b & c")
    changed = with_features(with_classes(changed, names[:6]), names)
    extremes = {"model": "gfgn-pair", "kind": "edges", "total": 9, "directed": False}
    node = {"id": HOSTILE, "class": HOSTILE, "degree": 3}
    ends = {key: [{"gate": 0.5, "nodes": [node, node]}] for key in ("most", "least")}
    page = write(tmp_path, with_explanation(changed, extremes=extremes | ends))
    assert "alert(1)</script>" not in page.text
    assert [tag for tag, _ in page.elements].count("script") == 2  # the data and the page's own
    assert not any(tag == "b" for tag, _ in page.elements)
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page.text)
    assert json.loads(data)["names"] == names
    assert "<p>A &lt; b &amp; c.</p>" in page.text
    with (tmp_path / "deep" / "gates.csv").open(encoding="utf-8", newline="") as file:
        assert [row["feature"] for row in csv.DictReader(file)] == names


def test_files_of_others_are_not_replaced(comparison: Comparison, tuned: Comparison, tmp_path: Path) -> None:
    twins = [with_record(comparison, name=name) for name in ("a/b c", "a b/c")]
    page, folder = write(tmp_path, comparison, tuned, *twins), tmp_path / "deep"
    names = ["gates-a-b-c-3.csv", "gates-a-b-c.csv", "gates-dimensions.csv", "gates-second.csv"]
    assert sorted(path.name for path in folder.glob("*.csv")) == names
    assert all(f"<code>{name}</code>" in page.text for name in names)
    write(tmp_path, comparison, tuned)  # may replace its own files
    for name in ("gates.csv", "report.html"):
        (folder / name).write_text("a,b\n", encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(name)):
            write(tmp_path, comparison)
        assert (folder / name).read_text(encoding="utf-8") == "a,b\n"


# --- results ----------------------------------------------------------------------------------------------------------


def test_results(page: Page, comparison: Comparison) -> None:
    for model, summary in comparison.summary().items():
        cells = page.row(model)
        assert cells[0] == f"{100 * summary.mean:.1f} ± {100 * summary.std:.1f}"
        assert cells[1] == interval(summary, "accuracy")
    first = page.elements.index(("p", {"class": "headline"}))
    assert page.content(first) == headline(comparison)
    for text in ("2 models on dimensions", "against mlp", "at most 5 epochs", comparison.dataset.description):
        assert text in page.text
    assert f"{comparison.dataset.num_edges // 2:,} edges" in page.text
    assert "4 runs, all of them in the store" in page.text
    chart = section(page, "All runs</h2>").text.split("</ul>")[1]
    assert chart.count("<circle") == 2  # runs of gfgn-graph
    assert chart.count("<rect") == 2  # of the MLP: another shape, not only another color


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_one_split_has_no_interval(metric: str, tmp_path: Path) -> None:
    data = dataclasses.replace(dimensions(120, degree=8, splits=2), metric=metric)
    page = write(tmp_path, explained(data, ["majority", "gfgn-graph"], splits=1))
    assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", page.text, flags=re.S).lower()
    assert page.row("majority")[1] == "–"
    assert page.row("majority")[0].startswith("−") == (metric == "log_loss")
    for text in ("importance, points", "accuracy, %"):
        assert (text in page.text) == (metric == "accuracy")


def test_several_datasets_have_an_overview_with_ranks(both: Page, comparison: Comparison, tuned: Comparison) -> None:
    head, *rows = both.rows[:4]
    assert head == ["model", "dimensions", "second", "rank"]
    assert [row[0] for row in rows] == ["mlp", "gfgn-graph", "gfgn-pair"]
    for k, each in enumerate((comparison, tuned)):
        for model, summary in each.summary().items():
            assert both.row(model)[k].startswith(f"{100 * summary.mean:.1f} ±")
    assert both.row("gfgn-pair")[::2] == ["", ""]  # did not run on the first dataset, so it has no rank
    assert both.text.split("</tbody>")[0].count('class="bold"') >= 2
    assert [both.content(k) for k, (tag, _) in enumerate(both.elements) if tag == "h2"] == ["dimensions", "second"]


def test_a_tuned_comparison_shows_the_selected_configurations(both: Page, tuned: Comparison) -> None:
    assert "All 10 configurations tried" in both.text
    assert "grid of 4 (learning rate 0.01 or 0.05; λ 1 or 2)" in both.text
    selected = section(both, "Selected configurations</h3>", "<details>")
    for model in tuned.models:
        best = tuned.selections[model].candidates[0]
        score, words = selected.row(model)
        assert score == f"{100 * best.val:.1f} ± {100 * best.std:.1f}"
        assert f"learning rate {best.configuration['lr']:g}, " in words
        assert ("λ" in words) == (model != "mlp")  # an MLP has none


def test_shared_settings_are_shown_once(comparison: Comparison, tuned: Comparison, tmp_path: Path) -> None:
    for other, times in ((with_record(comparison, name="other"), 1), (tuned, 2)):
        assert write(tmp_path, comparison, other).text.count("Every network: ") == times


def without(comparison: Comparison, *keys: str) -> Comparison:
    """The comparison without some runs."""
    runs = [row for row in comparison.runs if row.key not in keys]
    return dataclasses.replace(comparison, runs=runs, explanation=None)


def test_missing_parts_are_named(comparison: Comparison, tmp_path: Path) -> None:
    changed = without(comparison, comparison.rows["gfgn-graph"][0].key)
    page = write(tmp_path, with_record(changed, standin=True)).text
    assert "gfgn-graph, 1 of 2 runs" in page
    assert "This is a stand-in" in page
    assert 'class="explorer"' not in page
    assert not (tmp_path / "deep" / "gates.csv").exists()
    left = comparison.rows["gfgn-graph"][1].key
    empty = without(comparison, *(row.key for row in comparison.runs if row.key != left))
    assert "mlp, 0 of 2 runs; gfgn-graph, 1 of 2 runs" in write(tmp_path, empty).text
    assert "<h1>2 models on 2 datasets</h1>" in write(tmp_path, empty, comparison).text
    with pytest.raises(ValueError, match="comparisons"):
        write_report([], tmp_path / "none.html")


# --- the explained run ------------------------------------------------------------------------------------------------


def test_gates_of_trained_models(comparison: Comparison, tmp_path: Path) -> None:
    gates = [{"min": 0.1, "mean": mean, "max": 1.5, "std": 0.2, "below_055": 0.641} for mean in (0.2, 0.4)]
    learned = {row.key: each for row, each in zip(comparison.rows["gfgn-graph"], gates, strict=True)}
    runs = [dataclasses.replace(row, gates=learned.get(row.key, row.gates)) for row in comparison.runs]
    known = dataclasses.replace(comparison, runs=runs)
    page = section(write(tmp_path, known), "What the gates learned</h2>", "</table>")
    assert page.row("gfgn-graph") == ["0.10", "0.30", "1.50", "0.20", "64"]


def test_without_a_gfgn_there_are_no_gates(tmp_path: Path) -> None:
    page = write(tmp_path, explained(dimensions(120, degree=8, splits=2), ["mlp"]))
    assert "What the gates learned" not in page.text
    assert not any("gate" in head or "against" in head for row in page.rows for head in row)
    assert not (tmp_path / "deep" / "gates.csv").exists()


def test_classes_and_confusion_matrix(comparison: Comparison, tmp_path: Path) -> None:
    page = write(tmp_path, with_classes(comparison, ["cat", "dog", "a bird"]))
    assert page.row("dog") == ["80.0%", "80.0%", "80.0%", "10"]
    matrix = section(page, '<table class="matrix">', "</table>")
    assert matrix.rows[0][1:] == ["cat", "dog", "a bird"]
    assert matrix.row("cat") == ["880%", "220%", ""]  # the number of nodes and the percentage of the row
    assert matrix.row("a bird") == ["220%", "", "880%"]
    assert matrix.text.count('class="correct"') == 3
    assert "Expected calibration error: " in page.text


@pytest.mark.parametrize("classes", [30, 51, 201])
def test_many_classes(classes: int, comparison: Comparison, tmp_path: Path) -> None:
    page = write(tmp_path, with_classes(comparison, [f"class number {k}" for k in range(classes)]))
    mistakes = section(page, "Most frequent mistakes</caption>", "</table>")
    assert len(mistakes.rows) == 16
    assert mistakes.row("class number 3") == ["class number 4", "2", "20"]
    assert ('<table class="matrix">' in page.text) == (classes <= 200)
    assert (f"Confusion matrix of {classes} classes" in page.text) == (classes == 51)  # folded
    assert len(page.text) < 1_000_000


def test_curves_and_the_run(page: Page, comparison: Comparison, tmp_path: Path) -> None:
    assert comparison.explanation is not None
    run = comparison.explanation["run"]
    assert f"best epoch: {run['epoch']}" in page.text
    assert f"test accuracy is {100 * run['test']:.1f}%" in page.text
    lines = re.findall(r'<polyline points="(.*?)"', section(page, f"One run of {run['model']}</h2>").text)
    assert [len(line.split()) for line in lines] == [5, 5, 5]
    other = with_explanation(comparison, run=run | {"test": 0.5, "stored_test": 0.25})
    assert "In the store it is 25.0%" in write(tmp_path, other).text


def test_a_diverged_run(comparison: Comparison, tmp_path: Path) -> None:
    history: dict[str, Any] = {"epoch": [0, 1, 2], "train_loss": [1.0, None, 2.0], "val_loss": [None] * 3}
    assert comparison.explanation is not None
    unknown = {"gates": {"graph": [None] * 36}, "importance": [None] * 36}
    features = comparison.explanation["features"] | unknown
    changed = with_explanation(comparison, history=history | {"val": [0.1, 0.2, None]}, features=features)
    assert write(tmp_path, changed).row("own 1, no. 1")[0] == "–"


def test_a_damaged_explanation_is_one_sentence(comparison: Comparison, tmp_path: Path) -> None:
    for part, content in {"run": {}, "features": {"names": 3}, "classes": None}.items():
        with pytest.raises(ValueError, match=r"explanation of dimensions .* damaged"):
            write(tmp_path, with_explanation(comparison, **{part: content}))


def test_the_table_of_features(page: Page, comparison: Comparison) -> None:
    assert comparison.explanation is not None
    features = comparison.explanation["features"]
    for k in (0, 20, 35):
        gates = [f"{values[k]:.2f}" for values in features["gates"].values()]
        numbers = [f"{features['smoothness'][k]:.2f}", f"{100 * features['importance'][k]:.2f}".replace("-", "−")]
        truth = "follows the graph" if features["follows"][k] else "does not"
        assert page.row(features["names"][k]) == [*gates, *numbers, truth]
    gates = dict(zip(features["names"], features["gates"]["graph"], strict=True))
    order = [row[0] for row in page.rows if row[0] in gates]
    assert [gates[name] for name in order] == sorted(gates.values(), reverse=True)
    assert "Scatter plot of importance against the gate of 36 features" in page.text


@pytest.mark.parametrize("features", [41, 20_000])
def test_many_features(features: int, comparison: Comparison, tmp_path: Path) -> None:
    page = write(tmp_path, with_features(comparison, [f"word {k}" for k in range(features)]))
    shown = [row[0] for row in page.rows if row[0].startswith("word")]
    assert shown == [f"word {k}" for k in [*range(20), *range(features - 1, features - 21, -1)]]
    assert page.row("word 3") == [f"{1 - 3 / features:.2f}", f"{3 / features:.2f}", f"{30 / features:.2f}"]
    assert page.row("word 4")[2] == "–"
    assert page.text.count("<circle") < 400
    lines = (tmp_path / "deep" / "gates.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == features + 1
    assert lines[0] == "feature,gate_graph,smoothness,importance,importance_std"
    assert lines[2].split(",")[3] == ""  # not computed


def test_extreme_edges(both: Page, tuned: Comparison, tmp_path: Path) -> None:
    assert tuned.explanation is not None
    extremes = tuned.explanation["extremes"]
    source, target = extremes["least"][0]["nodes"]
    row = [source["id"], target["id"], f"{extremes['least'][0]['gate']:.3f}", source["class"], target["class"]]
    degrees = [str(source["degree"]), str(target["degree"])]
    assert [*row, *degrees] in section(both, "Edges with the lowest gates</h4>", "</table>").rows
    assert "in-degree" not in both.text
    directed = write(tmp_path, with_explanation(tuned, extremes=extremes | {"directed": True}))
    assert ["source in-degree", "target in-degree"] in [cells[-2:] for cells in directed.rows]


def test_multilabel_data(tmp_path: Path) -> None:
    data = dimensions(120, degree=8, splits=2)
    labels = torch.stack([data.y % 2 == 0, data.y > 2], 1)
    several = dataclasses.replace(data, y=labels, num_classes=2, metric="micro_f1", class_names=["even", "large"])
    page = write(tmp_path, explained(several, ["gfgn-neighbor"]))
    assert "Confusion matrix" not in page.text
    assert len(section(page, "Scores by label</h2>", "</table>").row("even")) == 4
    assert "Nodes with the highest gates" in page.text


# --- charts -----------------------------------------------------------------------------------------------------------


def test_axes_and_marks() -> None:
    assert ticks((0.0, 1.0)) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks((41.3, 92.0)) == [50, 60, 70, 80, 90]
    assert ticks((-0.002, 0.011), 3) == [0, 0.005, 0.01]
    assert padded([1.0, None, float("nan"), 3.0]) == pytest.approx((0.88, 3.12))
    assert padded([5.0])[0] < 5 < padded([5.0])[1]
    assert padded([], zero=True)[0] < 0 < padded([], zero=True)[1]
    assert stack([70.0, 80.0, 70.01, 70.0], step=0.1) == pytest.approx([0, 0, 0.1, 0.2])
    assert stack([70.0] * 4, step=0.1, height=3) == pytest.approx([0, 0.1, 0.2, 0])
