"""Saved models: what is written, and what is refused when read."""

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


def edit(name: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / "model.json").read_text())
        target = content
        *path, last = name.split(".")
        for part in path:
            target = target[part]
        target[last] = value
        (folder / "model.json").write_text(json.dumps(content))

    return change


def other_tensors(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value + 1 for name, value in tensors.items()}, folder / "model.safetensors")


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no tensors": (lambda folder: (folder / "model.safetensors").unlink(), "got none with model.safetensors"),
    "no settings": (lambda folder: (folder / "model.json").unlink(), "got none with model.json"),
    "not JSON": (lambda folder: (folder / "model.json").write_text("{"), "must be JSON"),
    "other format": (edit("format", "other"), "must have the format 'gfgn-classifier'"),
    "newer": (edit("version", 2), "must be of version 1, got version 2; update gfgn to read it"),
    "no version": (edit("version", None), "must be of version 1, got version None"),
    "unknown entry": (edit("extra", 1), "differs in: extra"),
    "unknown parameter": (edit("parameters.depth", 1), "does not understand.*depth"),
    "unknown model": (edit("network.model", "gfgn-edge"), "must name a model of gfgn, got.*gfgn-edge"),
    "code as a model": (edit("network.model", "os:system"), "must name a model of gfgn, got.*os:system"),
    "other width": (edit("network.in_channels", 3), "must hold the parameters"),
    "bad encoder": (edit("encoder.scale", "max"), "does not understand.*max"),
    "other tensors": (other_tensors, "does not belong to model.json"),
    "cut tensors": (lambda folder: (folder / "model.safetensors").write_bytes(b"123"), "does not belong"),
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
