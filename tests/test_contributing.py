"""The example in CONTRIBUTING.md of how to add a model runs as written."""

import re
from pathlib import Path

import pytest

from gfgn.data.generators.dimensions import dimensions
from gfgn.nn import MODELS
from gfgn.train import Replica, train_replicas

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_example_of_a_model_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    file, line = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    names: dict[str, object] = {"MODELS": {}}
    exec(compile(file, "CONTRIBUTING.md", "exec"), names)
    exec(compile(line, "CONTRIBUTING.md", "exec"), names)
    registry = names["MODELS"]
    assert isinstance(registry, dict)
    assert list(registry) == ["mean"]
    monkeypatch.setitem(MODELS, "mean", registry["mean"])
    data = dimensions(120, degree=8, splits=2)
    replicas = [Replica(split=k % 2, seed=k, dropout=0.2 * k, options=(("hidden", 16),)) for k in range(3)]
    together = train_replicas("mean", data, replicas, max_epochs=15)
    [alone] = train_replicas("mean", data, [replicas[1]], max_epochs=15)
    assert together[1].history["val_loss"] == pytest.approx(alone.history["val_loss"], rel=1e-3)
    assert together[0].history["train_loss"][-1] < together[0].history["train_loss"][0]
