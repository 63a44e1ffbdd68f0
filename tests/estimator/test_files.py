"""Saved models: what is written, and what is refused when read."""

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimator.graphs import make_graph
from safetensors.torch import load_file, save_file

from gfgn import GFGNClassifier
from gfgn.estimator.files import ModelError

X, Y, EDGES = make_graph(60)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clf = GFGNClassifier("graph", 2, max_epochs=5, device="cpu", random_state=np.int64(3))
    return clf.fit(X, np.array(["a", "b", "c"])[Y], EDGES).save(tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    for path in saved.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_the_card_says_what_the_model_is(saved: Path) -> None:
    card = (saved / "README.md").read_text(encoding="utf-8")
    assert "`gfgn-graph`, an ensemble of 2 networks" in card
    assert "`a`, `b`, `c`" in card
    assert "60 nodes" in card
    assert "## What the graph smooths" in card


@pytest.mark.parametrize(
    "classes", [[3, 5, 9], ["x", "y", "z"], [False, True, True], [1.0, 2.0, 4.0], [2**40, 7, 8]], ids=str
)
def test_classes_keep_their_type(classes: list[Any], tmp_path: Path) -> None:
    y = np.array(classes)[Y]
    clf = GFGNClassifier("graph", max_epochs=2, device="cpu").fit(X, y, EDGES)
    again = GFGNClassifier.load(clf.save(tmp_path))
    assert again.classes_.dtype.kind == y.dtype.kind
    assert (again.predict(X, EDGES) == clf.predict(X, EDGES)).all()


def edit(name: str, value: Any, signed: bool = True) -> Callable[[Path], None]:
    """Changes an entry of `model.json`, by default with a digest to match."""

    def change(folder: Path) -> None:
        content = json.loads((folder / "model.json").read_text())
        *path, last = name.split(".")
        functools.reduce(lambda part, key: part[key], path, content)[last] = value
        if signed:
            known = json.dumps({key: each for key, each in content.items() if key != "sha256"}, sort_keys=True)
            tensors = (folder / "model.safetensors").read_bytes()
            content["sha256"] = hashlib.sha256(known.encode() + tensors).hexdigest()
        (folder / "model.json").write_text(json.dumps(content))

    return change


def other_tensors(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value + 1 for name, value in tensors.items()}, folder / "model.safetensors")


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no tensors": (lambda folder: (folder / "model.safetensors").unlink(), "none with model.safetensors"),
    "no settings": (lambda folder: (folder / "model.json").unlink(), "none with model.json"),
    "not JSON": (lambda folder: (folder / "model.json").write_text("{"), "JSON"),
    "other format": (edit("format", "other"), "format 'gfgn-classifier'"),
    "newer": (edit("version", 3), "version 2, got version 3; update gfgn"),
    "older": (edit("version", 1), "version 2, got version 1; train the model again"),
    "classes in another order": (edit("classes.values", ["c", "b", "a"], signed=False), "was changed or damaged"),
    "another temperature": (edit("fitted.temperature_", 2.0, signed=False), "was changed or damaged"),
    "other tensors": (other_tensors, "was changed or damaged"),
    "cut tensors": (lambda folder: (folder / "model.safetensors").write_bytes(b"123"), "was changed or damaged"),
    "unknown entry": (edit("extra", 1), "extra"),
    "unknown parameter": (edit("constructor.depth", 1), "depth"),
    "code as a model": (edit("network.model", "os:system"), "model of gfgn, got.*os:system"),
    "other width": (edit("network.in_channels", 3), "must hold the parameters"),
    "bad encoder": (edit("encoder.scale", "max"), "max"),
    "calibration": (edit("fitted.confidence_", [1, 2]), "finite calibration"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_not_understood_is_refused(copy: Path, case: str) -> None:
    damage, message = DAMAGE[case]
    damage(copy)
    with pytest.raises(ModelError, match=message):
        GFGNClassifier.load(copy)


def test_nothing_but_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="must be a folder"):
        GFGNClassifier.load(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    clf = GFGNClassifier("graph", max_epochs=2, device="cpu").fit(X, Y, EDGES)
    with pytest.raises(ModelError, match="path must be a folder, got the file"):
        clf.save(tmp_path / "file")
