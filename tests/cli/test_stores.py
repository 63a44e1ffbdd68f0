"""`gfgn train` and `gfgn predict` on a graph store: the model of the same graph in memory, from mapped files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from estimator.tables import write_tables
from typer.testing import CliRunner

from gfgn import GFGNClassifier
from gfgn.cli import app
from gfgn.data import NodeDataset, OnDiskGraph, dimensions, pack
from gfgn.data.mapped import MappedGraph, is_mapped

QUICK = ["--level", "pair", "--replicas", "2", "--epochs", "6", "--device", "cpu"]
SAMPLES = ["--set", "batch_size=64"]


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    given = dimensions(150, splits=1)
    y = given.y.clone()
    y[~(given.splits[0].train | given.splits[0].val | given.splits[0].test)] = -1
    return replace(given, y=y, class_names=[f"class {k}" for k in range(given.num_classes)])


@pytest.fixture(scope="module")
def folder(data: NodeDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the graph in `store` and the model `model`, trained on samples of it."""
    folder = tmp_path_factory.mktemp("stores")
    pack(data, folder / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MappedGraph, "whole", property(lambda _: pytest.fail("the whole graph was read")))
        result = run("train", folder / "store", "--out", folder / "model", *QUICK, *SAMPLES, "--json")
        run("predict", folder / "model", folder / "store", "--out", folder / "predictions.csv", "--all")
    (folder / "result.json").write_text(result.stdout)
    return folder


def fitted(data: NodeDataset, **options: Any) -> GFGNClassifier:
    """The model of the graph in memory."""
    classifier = GFGNClassifier(level="pair", replicas=2, max_epochs=6, device="cpu", random_state=0, **options)
    return classifier.fit(data)


def test_samples_of_a_store_train_the_model_of_the_graph_in_memory(data: NodeDataset, folder: Path) -> None:
    expected, found = fitted(data, batch_size=64), GFGNClassifier.load(folder / "model")
    for history, known in zip(found.history_, expected.history_, strict=True):
        assert history["train_loss"] == pytest.approx(known["train_loss"], rel=1e-5)
        assert history["val_loss"] == pytest.approx(known["val_loss"], rel=1e-4)
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-2)
    result = json.loads((folder / "result.json").read_text())
    assert result["part"] == "test"
    assert result["part_nodes"] == int(data.splits[0].test.sum())
    assert "Nodes and edges" not in (folder / "model" / "report.html").read_text()


def test_predictions_of_a_store_are_those_of_the_graph_in_memory(data: NodeDataset, folder: Path) -> None:
    found, classifier = pd.read_csv(folder / "predictions.csv"), GFGNClassifier.load(folder / "model")
    expected = classifier.predict_proba(data)
    assert found["id"].tolist() == list(range(data.num_nodes))
    np.testing.assert_allclose(found.filter(like="p_").to_numpy(), expected, atol=1e-5)
    assert found["prediction"].tolist() == classifier.predict(data).tolist()


def test_a_small_store_is_taken_whole(data: NodeDataset, folder: Path, tmp_path: Path) -> None:
    said = run("train", folder / "store", "--out", tmp_path / "model", *QUICK)
    assert "every step takes the whole graph" in said.stderr
    expected, found = fitted(data), GFGNClassifier.load(tmp_path / "model")
    assert [history["val_loss"] for history in found.history_] == [h["val_loss"] for h in expected.history_]


def test_gfgn_plus_reads_the_whole_of_a_store(folder: Path, tmp_path: Path) -> None:
    """It is not computed layer by layer."""
    run("train", folder / "store", "--model", "gfgn-plus", "--out", tmp_path / "model", *QUICK)
    run("predict", tmp_path / "model", folder / "store", "--out", tmp_path / "predictions.csv", "--all")
    store = OnDiskGraph.open(folder / "store").dataset()
    expected = GFGNClassifier.load(tmp_path / "model").predict_proba(replace(store, graph=store.graph.whole))
    found = pd.read_csv(tmp_path / "predictions.csv").filter(like="p_")
    np.testing.assert_allclose(found.to_numpy(), expected, atol=1e-5)


def test_a_store_without_splits_gets_one(data: NodeDataset, tmp_path: Path) -> None:
    pack(replace(data, splits=[]), tmp_path / "store")
    result = run("train", tmp_path / "store", "--out", tmp_path / "model", *QUICK, *SAMPLES, "--json")
    facts = json.loads(result.stdout)
    assert facts["part_nodes"] == pytest.approx(0.2 * int((data.y >= 0).sum()), abs=1)


def test_a_mapped_graph_is_the_graph(data: NodeDataset, folder: Path) -> None:
    from gfgn.data import OnDiskGraph

    dataset = OnDiskGraph.open(folder / "store").dataset()
    assert dataset.fingerprint == data.fingerprint
    assert is_mapped(dataset.graph)
    changed = replace(dataset.graph, num_seeds=3)
    assert not is_mapped(dataset.graph)
    for name in ("norm", "row_norm", "reverse_norm", "reverse_row_norm", "degree", "transpose"):
        assert torch.equal(getattr(changed, name), getattr(data.graph, name)), name
    assert torch.equal(dataset.graph.to(torch.float64).norm, data.graph.to(torch.float64).norm)


def test_what_does_not_fit_a_store_is_named(folder: Path, tmp_path: Path) -> None:
    error = run("train", folder / "store", "--label", "y", code=2).stderr
    assert "--label is for tables" in error
    assert "graph store" in error
    assert "OnDiskGraph('dimensions'" in run("train", folder / "store", "--check").stdout
    write_tables(tmp_path / "own")
    run("train", tmp_path / "own", "--out", tmp_path / "model", *QUICK)
    error = run("predict", tmp_path / "model", folder / "store", code=2).stderr
    assert "DATA must be tables, whose columns MODEL encodes, got the graph store" in " ".join(error.split())
    pack(dimensions(60, splits=1, reasons=3), tmp_path / "other")
    error = run("predict", folder / "model", tmp_path / "other", code=2).stderr
    assert "DATA must have the" in error
