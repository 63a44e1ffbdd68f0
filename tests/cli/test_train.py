"""`gfgn train` and `gfgn predict`: from tables to predictions with the ids and classes of the user's files."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimator.tables import CLASSES, write_tables
from safetensors.torch import load_file
from typer.testing import CliRunner

from gfgn import GFGNClassifier
from gfgn.cli import app
from gfgn.data import read, read_with_notes

QUICK = ["--level", "neighbor", "--replicas", "2", "--epochs", "60", "--device", "cpu"]


def run(*arguments: object, code: int = 0) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the graph `own` and the model `model`, trained on it."""
    folder = tmp_path_factory.mktemp("train")
    write_tables(folder / "own").to_pickle(folder / "truth.pkl")
    result = run("train", folder / "own", "--out", folder / "model", *QUICK)
    (folder / "stdout.txt").write_text(result.stdout)
    return folder


def test_training_says_how_good_the_model_is(folder: Path) -> None:
    text = (folder / "stdout.txt").read_text()
    assert "gfgn-neighbor, 2 networks: accuracy" in text
    assert "test nodes, expected calibration error" in text
    assert all(name in text for name in CLASSES)
    assert f"next: gfgn predict {folder / 'model'} {folder / 'own'} --out predictions.csv" in text
    assert {path.name for path in (folder / "model").iterdir()} >= {
        "model.json",
        "model.safetensors",
        "README.md",
        "report.html",
    }


def test_the_unlabelled_nodes_are_predicted_by_id_and_name(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "predictions.csv"
    result = run("predict", folder / "model", folder / "own", "--out", out)
    truth, found = pd.read_pickle(folder / "truth.pkl"), pd.read_csv(out)
    unlabelled = truth[truth["label"] == ""]
    assert list(found.columns) == ["id", "prediction", "confidence", "p_basic", "p_family", "p_premium", "uncertainty"]
    assert list(found["id"]) == list(unlabelled["id"])
    assert (found["prediction"].to_numpy() == unlabelled["truth"].to_numpy()).mean() > 0.75
    p = found[["p_basic", "p_family", "p_premium"]].to_numpy()
    np.testing.assert_allclose(p.sum(1), 1, atol=1e-4)
    np.testing.assert_allclose(p.max(1), found["confidence"], atol=1e-5)
    assert (CLASSES[p.argmax(1)] == found["prediction"]).all()
    assert f"{len(unlabelled)} nodes predicted" in result.stdout


def test_all_nodes_as_parquet(folder: Path, tmp_path: Path) -> None:
    run("predict", folder / "model", folder / "own", "--all", "--out", tmp_path / "p.parquet")
    assert len(pd.read_parquet(tmp_path / "p.parquet")) == 240


def test_predictions_agree_with_python(folder: Path, tmp_path: Path) -> None:
    run("predict", folder / "model", folder / "own", "--all", "--out", tmp_path / "p.parquet")
    clf = GFGNClassifier.load(folder / "model")
    data = read(folder / "own", encoder=clf.encoder_, class_names=clf.classes_.tolist())
    expected = clf.predict_proba(data)
    found = pd.read_parquet(tmp_path / "p.parquet")[["p_basic", "p_family", "p_premium"]].to_numpy()
    np.testing.assert_allclose(found, expected)
    frame = pd.read_csv(folder / "own" / "nodes.csv", index_col="id", parse_dates=["joined"]).drop(columns="label")
    edges = pd.read_csv(folder / "own" / "edges.csv")
    np.testing.assert_allclose(clf.predict_proba(frame, edges), expected, rtol=1e-3, atol=1e-5)


def test_a_new_graph_without_labels(folder: Path, tmp_path: Path) -> None:
    truth = write_tables(tmp_path / "new", seed=9)
    frame = pd.read_csv(tmp_path / "new" / "nodes.csv").drop(columns="label")
    frame.to_csv(tmp_path / "new" / "nodes.csv", index=False)
    run("predict", folder / "model", tmp_path / "new", "--out", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    assert (found["prediction"].to_numpy() == truth["truth"].to_numpy()).mean() > 0.7


def change(folder: Path, target: Path, **columns: Any) -> Path:
    """A copy of the graph with other columns; `None` removes one."""
    frame = pd.read_csv(folder / "own" / "nodes.csv", keep_default_na=False)
    for name, value in columns.items():
        frame = frame.drop(columns=name) if value is None else frame.assign(**{name: value})
    target.mkdir()
    frame.to_csv(target / "nodes.csv", index=False)
    (target / "edges.csv").write_bytes((folder / "own" / "edges.csv").read_bytes())
    return target


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "missing": ({"age": None}, "no column 'age'"),
    "unexpected": ({"height": 1.8}, "unexpected column 'height'"),
    "kind": ({"visits": "often"}, "column 'visits' holds text ('often' at row 1), expected numbers"),
    "class": ({"label": "gold"}, "gold"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_from_the_model_is_said(folder: Path, tmp_path: Path, case: str) -> None:
    columns, message = DIFFERENT[case]
    other = change(folder, tmp_path / "other", **columns)
    result = run("predict", folder / "model", other, "--out", tmp_path / "p.csv", code=2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "p.csv").exists()


def test_unknown_categories_are_noted(folder: Path, tmp_path: Path) -> None:
    other = change(folder, tmp_path / "other", region="west")
    result = run("predict", folder / "model", other, "--out", tmp_path / "p.csv")
    assert "unknown categories read as none: 'west' (240)" in result.stderr.replace("\n", " ")


def test_json_is_all_there_is_on_stdout(folder: Path, tmp_path: Path) -> None:
    trained = json.loads(run("train", folder / "own", "--out", tmp_path / "m", *QUICK, "--json", "--quiet").stdout)
    assert trained["scores"]["accuracy"] > 0.6
    assert trained["part"] == "test"
    assert len(trained["classes"]["confusion"]) == 3
    arguments = ("predict", tmp_path / "m", folder / "own", "--out", tmp_path / "p.csv", "--json")
    predicted = json.loads(run(*arguments).stdout)
    assert sum(predicted["predictions"].values()) == predicted["nodes"]


def test_all_labels_for_training(folder: Path, tmp_path: Path) -> None:
    result = json.loads(run("train", folder / "own", "--out", tmp_path / "m", "--test", "0", *QUICK, "--json").stdout)
    assert result["part"] == "validation"
    labelled = int((pd.read_pickle(folder / "truth.pkl")["label"] != "").sum())
    facts = json.loads((tmp_path / "m" / "model.json").read_text())["facts"]["labelled"]
    assert facts["train"] + facts["val"] == labelled
    assert facts["test"] == 0


def test_settings_reach_the_classifier(folder: Path, tmp_path: Path) -> None:
    given = ["--set", "lr=0.01", "--set", "hidden_channels=32", "--set", "heads=4", "--trials", "2", "--seed", "3"]
    run("train", folder / "own", "--out", tmp_path / "m", *QUICK, *given, "--class-weights")
    clf = GFGNClassifier.load(tmp_path / "m")
    assert (clf.lr, clf.hidden_channels, clf.heads, clf.trials, clf.random_state) == (0.01, 32, 4, 2, 3)
    assert clf.class_weights


BAD: dict[str, tuple[list[str], str]] = {
    "setting": (["--set", "depth=3"], "--set must be NAME=VALUE with one of hidden_channels, num_layers"),
    "test": (["--test", "1"], "--test must be at least 0 and below 1, got 1.0"),
    "budget": (["--trials", "2", "--minutes", "1"], "--minutes must not be given together with --trials"),
    "replicas": (["--replicas", "0"], "replicas must be an integer, 1 or larger, got 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_one_line(folder: Path, tmp_path: Path, case: str) -> None:
    given, message = BAD[case]
    result = run("train", folder / "own", "--out", tmp_path / "m", *given, code=2)
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "m").exists()


def test_a_named_dataset(tmp_path: Path) -> None:
    run("train", "karate", "--out", tmp_path / "m", *QUICK)
    run("predict", tmp_path / "m", "karate", "--out", tmp_path / "p.csv")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 34
    other = run("predict", tmp_path / "m", "digits", "--out", tmp_path / "p.csv", code=2)
    assert "must have the features of the model (34, such as" in other.stderr


# --- the command and Python ---------------------------------------------------------------------------------------


def tensors(folder: Path) -> dict[str, Any]:
    return {name: value.tolist() for name, value in load_file(folder / "model.safetensors").items()}


@pytest.mark.parametrize("level", ["pair", "auto"])
def test_the_command_trains_the_model_of_fit(level: str, folder: Path, tmp_path: Path) -> None:
    """From the tables, from data frames and from a `Reading`: the same bits."""
    options = ["--level", level, "--replicas", "3", "--epochs", "8", "--seed", "5", "--set", "lr=0.05", "--test", "0"]
    run("train", folder / "own", "--out", tmp_path / "command", *options, "--device", "cpu")
    nodes = pd.read_csv(folder / "own" / "nodes.csv", index_col="id")
    edges, labels = pd.read_csv(folder / "own" / "edges.csv"), nodes.pop("label")
    clf = GFGNClassifier(level, 3, max_epochs=8, lr=0.05, device="cpu", random_state=5)
    clf.fit(nodes, labels, edge_index=edges).save(tmp_path / "frames")
    clf.fit(read_with_notes(folder / "own", num_splits=1, fractions=(1.0, 0.0))).save(tmp_path / "reading")
    found = [json.loads((tmp_path / name / "model.json").read_text()) for name in ("command", "frames", "reading")]
    for name, content in zip(("frames", "reading"), found[1:], strict=True):
        assert tensors(tmp_path / name) == tensors(tmp_path / "command")
        assert content["fitted"] == found[0]["fitted"]
        for key in ("constructor", "classes", "encoder", "network"):
            assert content[key] == found[0][key], key


def test_test_nodes_are_held_out_of_fit(folder: Path, tmp_path: Path) -> None:
    run("train", folder / "own", "--out", tmp_path / "model", *QUICK)
    reading = read_with_notes(folder / "own", num_splits=1, fractions=(0.8, 0.0))
    labels = np.where(reading.dataset.splits[0].test, None, pd.read_csv(folder / "own" / "nodes.csv")["label"])
    nodes = pd.read_csv(folder / "own" / "nodes.csv", index_col="id").drop(columns="label")
    clf = GFGNClassifier("neighbor", 2, max_epochs=60, device="cpu", random_state=0)
    clf.fit(nodes, labels, edge_index=pd.read_csv(folder / "own" / "edges.csv")).save(tmp_path / "same")
    assert tensors(tmp_path / "same") == tensors(tmp_path / "model")


def test_a_model_is_not_replaced_by_accident(folder: Path, tmp_path: Path) -> None:
    out = shutil.copytree(folder / "model", tmp_path / "model")
    quick = ["--level", "graph", "--replicas", "1", "--epochs", "2", "--device", "cpu", "--out", out]
    assert "--overwrite" in run("train", folder / "own", *quick, code=2).stderr
    assert tensors(out) == tensors(folder / "model")
    run("train", folder / "own", *quick, "--overwrite")
    assert tensors(out) != tensors(folder / "model")
