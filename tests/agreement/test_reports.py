"""Numbers that stand in several places agree, and what is said to have been chosen was chosen."""

import csv
import io
import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from gfgn import GFGNClassifier
from gfgn.data import NodeDataset, contextual_sbm, random_splits
from gfgn.estimator.evaluation import Evaluation
from gfgn.estimator.training import LEVELS
from gfgn.report import write_report
from gfgn.report.model import write_model
from gfgn.report.terminal import print_comparisons
from gfgn.runs import Store, compare, explain, read_comparisons
from gfgn.runs.comparison import comparison_study
from gfgn.runs.gates import gates_by_dimension
from gfgn.runs.text import describe_training, score
from gfgn.runs.verdict import headline as compared

QUICK: dict[str, Any] = {"max_epochs": 5, "hidden_channels": 8, "heads": 2, "device": "cpu", "random_state": 0}


def graph(metric: str = "accuracy") -> NodeDataset:
    """60 nodes with features whose means are far from 0, so that their gates are far from λ / 2."""
    data = contextual_sbm(60, classes=2, features=6, degree=4, homophily=0.9, signal=3.0, splits=1, seed=3)
    return replace(data, metric=metric, class_names=["a", "b"])


class Trained(NamedTuple):
    """A classifier written as `gfgn train` does, its card, its page, what `--json` prints, and its scores."""

    classifier: GFGNClassifier
    card: str
    page: str
    result: dict[str, Any]
    evaluation: Evaluation


def train(folder: Path, data: NodeDataset | None = None, **parameters: Any) -> Trained:
    data = data or graph()
    classifier = GFGNClassifier(**QUICK | {"metric": data.metric} | parameters)
    result, evaluation = write_model(classifier.fit(data), data, folder)
    card, page = ((folder / name).read_text(encoding="utf-8") for name in ("README.md", "report.html"))
    return Trained(classifier, card, unescape(page), result, evaluation)


def read_page(page: str) -> dict[str, list[float]]:
    """The columns of the table of features."""
    explorers = re.findall(r'<script type="application/json">(.*?)</script>', page)
    (content,) = (found for each in explorers if "names" in (found := json.loads(each)))
    return {column["label"]: column["values"] for column in content["columns"]}


# --- gates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", LEVELS)
def test_card_table_and_page_have_the_same_gates(tmp_path: Path, level: str, lam: float) -> None:
    classifier, card, page, *_ = train(tmp_path, level=level, lam=lam)
    saved = json.loads((tmp_path / "model.json").read_text())["fitted"]["smoothing_scores_"]
    assert saved == pytest.approx(classifier.smoothing_scores_.tolist())
    shown = dict(re.findall(r"^\| `(feature \d+)` \| ([\d.]+) \|$", card, re.MULTILINE))
    with (tmp_path / "gates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [f"{score:.2f}" for score in saved] == [shown[row["feature"]] for row in rows]
    assert [float(row["gate_graph"]) for row in rows] == pytest.approx(saved, abs=1e-4)
    columns = read_page(page)
    for each in LEVELS:
        values = [float(row[f"gate_{each}"]) for row in rows]
        assert columns[f"gate, {each}"] == values
        assert 0 <= min(values) < max(values) <= lam
        assert max(abs(value - lam / 2) for value in values) > 0.01 * lam  # they are of this λ


def test_gates_of_a_comparison_have_its_λ() -> None:
    data = graph()
    with Store(":memory:") as store:
        note = explain(store, data, compare(data, ["gfgn-pair"], 1, store=store, max_epochs=3, lam=2.0))
    assert note is not None
    for level, gates in note.features.gates.items():
        assert gates == pytest.approx(gates_by_dimension(data, level, lam=2.0).tolist(), abs=1e-4)


def gates_of_weights(folder: Path, data: NodeDataset) -> Tensor:
    """`[N]` or `[E]`: the gates of the first layer of the first network, by their formula from what is saved."""
    content = json.loads((folder / "model.json").read_text())["network"]
    state = {name: value[0].double() for name, value in load_file(folder / "model.safetensors").items()}
    weight, gate, bias = (state[f"convs.0.{name}"] for name in ("lin.weight", "gate", "gate_bias"))
    heads, d, lam = *gate.shape[::2], content["lam"]
    z = (data.x.double() @ weight.t()).view(-1, heads, d)
    source, target = data.graph.edge_index
    if content["model"] == "gfgn-pair":
        mine, other = z[target], z[source]
    else:
        total = torch.zeros_like(z).index_add(0, target, z[source])
        mine, other = z, total / data.graph.row_lengths.clamp(min=1).view(-1, 1, 1)
    logits = torch.einsum("nhi,hio->nho", torch.cat([mine, other], -1), gate) + bias.view(heads, d)
    return lam * logits.sigmoid().mean((1, 2))


@pytest.mark.parametrize("lam", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", ["neighbor", "pair"])
def test_extreme_gates_are_those_of_the_saved_weights(tmp_path: Path, level: str, lam: float) -> None:
    data = graph()
    page = train(tmp_path, data, level=level, lam=lam).page
    gates = gates_of_weights(tmp_path, data)
    rows = re.findall(r"<tr>.*?</tr>", page.split('id="extremes-0"')[1])
    cells = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in rows]
    ends = 2 if level == "pair" else 1
    found = {tuple(map(int, row[:ends])): float(row[ends]) for row in cells if row[0].isdigit()}
    assert len(found) == 20
    names = data.graph.edge_index.t() if level == "pair" else torch.arange(data.num_nodes).unsqueeze(1)
    expected = {tuple(name): gate for name, gate in zip(names.tolist(), gates.tolist(), strict=True)}
    assert {name: expected[name] for name in found} == pytest.approx(found, abs=1e-3)
    assert max(found.values()) == pytest.approx(float(gates.max()), abs=1e-3)


# --- choices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["pair", "auto"])
def test_a_given_level_was_not_chosen(tmp_path: Path, level: str) -> None:
    classifier, card, page, *_ = train(tmp_path, level=level)
    for text in (card, page):
        assert ("The level was chosen by the validation accuracy" in text) == (level == "auto")
        assert f"{100 * classifier.level_scores_[classifier.level_]:.1f}%" in text


def settings(**training: Any) -> str:
    return describe_training(comparison_study(graph(), ["gcn", "gfgn-plus"], 1, **training))


def test_settings_name_only_what_varies() -> None:
    assert "; gfgn-plus with the best layers 1 or 8 on validation" in settings()
    given = {"gfgn-plus": {"layers": 2}}
    assert settings(options=given).endswith("early stopping after 100 epochs; gfgn-plus with layers 2")
    assert "gfgn-plus with the best" not in settings(options=given, trials=2)
    assert "; gfgn-plus with the best layers 1 or 8 on validation" in settings(trials=2)


def test_the_last_epoch_is_not_chosen(tmp_path: Path) -> None:
    data = graph()
    for best, said in (("score", "The best epoch is chosen on the validation nodes"), ("last", "")):
        comparison = compare(data, ["mlp"], 1, max_epochs=3, best=best)
        page = unescape(write_report([comparison], tmp_path / "report.html").read_text(encoding="utf-8"))
        assert ("early stopping" in page) == ("best epoch is chosen on" in page) == bool(said)
        assert "3 epochs" in page


def test_a_single_model_was_not_chosen(tmp_path: Path) -> None:
    for models in (["gcn"], ["gcn", "mlp"]):
        data = graph()
        with Store(":memory:") as store:
            explain(store, data, compare(data, models, 1, store=store, max_epochs=3))
            (comparison,) = read_comparisons(store)
        page = unescape(write_report([comparison], tmp_path / "report.html").read_text(encoding="utf-8"))
        assert ("chosen on validation" in compared(comparison)) == (len(models) == 2)
        assert ("the model with the best mean validation score" in page) == (len(models) == 2)


def test_scores_of_nodes_that_chose_the_epoch_are_called_optimistic(tmp_path: Path) -> None:
    data = graph()
    (split,) = data.splits
    untested = replace(data, splits=[split._replace(train=split.train | split.test, test=torch.zeros_like(split.test))])
    for known, test in ((True, data), (False, untested)):
        _, card, page, _, evaluation = train(tmp_path / str(known), test, level="graph")
        for text in (evaluation.headline, card, page):
            assert ("optimistic" in text) is not known


# --- scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["log_loss", "roc_auc"])
def test_scores_of_a_model_are_the_same_everywhere(tmp_path: Path, metric: str) -> None:
    classifier, card, page, result, evaluation = train(tmp_path, graph(metric), level="graph")
    test, val = result["scores"][metric], result["validation"]["graph"]
    assert test > 0 < val == abs(classifier.level_scores_["graph"])
    texts = [f"{value:.3f}" if metric == "log_loss" else f"{100 * value:.1f}%" for value in (test, val)]
    name = "log loss" if metric == "log_loss" else "ROC AUC"
    assert f", {name} {texts[0]}, expected" in evaluation.headline
    assert f'<th scope="row">{name}</th><td>{texts[0]}</td>' in page
    assert f" nodes) | {name} | {test:.4f} |" in card
    given = f"The level was given; validation {name}: graph {texts[1]}."
    assert given in card
    assert given in page


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_scores_of_a_comparison_are_the_same_everywhere(tmp_path: Path, metric: str) -> None:
    """The terminal, the page, `--json` and the table of all runs."""
    data, models = replace(graph(metric), splits=random_splits(60, 3)), ["majority", "gcn", "gfgn-graph"]
    with Store(tmp_path / "runs.sqlite") as store:
        comparison = compare(data, models, 3, 2, store=store, max_epochs=3)
        runs = pd.read_csv(store.to_csv(tmp_path / "runs.csv"))
    console = Console(record=True, width=200, file=io.StringIO())
    print_comparisons(console, [comparison])
    page = unescape(write_report([comparison], tmp_path / "report.html").read_text(encoding="utf-8"))
    terminal, percent = console.export_text(), metric == "accuracy"
    rows = dict(
        re.findall(r"<th scope=\"row\">([\w-]+)</th>(.*?)</tr>", page.split('id="results-0"')[1].split("</table>")[0])
    )
    for entry in comparison.to_json()["models"]:
        model, scores = entry["model"], runs[runs["model"] == entry["model"]]
        assert entry["mean"] == pytest.approx(scores["test"].mean())
        assert entry["val"] == pytest.approx(scores["val"].mean())
        assert (entry["runs"], entry["std"]) == (6, pytest.approx(scores["test"].std()))
        text = " ± ".join(f"{100 * x:.1f}" if percent else f"{x:.3f}" for x in (entry["mean"], entry["std"]))
        ends = score(entry["low"], metric), score(entry["high"], metric)
        shown = re.search(r"\[(\S+), (\S+)\]", rows[model])
        assert f">{text.replace('-', '−')}<" in rows[model]
        assert re.search(rf"^{model} +{re.escape(text.replace('-', '−'))} ", terminal, re.MULTILINE)
        if entry["low"] == entry["high"]:  # the same score on every split
            assert shown is None
            continue
        assert shown is not None
        assert shown[0] in terminal
        assert percent or shown.groups() == ends
    assert compared(comparison) in page
    assert compared(comparison) in terminal
