"""The example in CONTRIBUTING.md of how to add a model trains as written, alone and in a batch."""

import re
from pathlib import Path
from typing import Any

import pytest

from gfgn.data.generators.dimensions import dimensions
from gfgn.nn import MODELS
from gfgn.train import Replica, train_replicas

PAGE = Path(__file__).parent.parent / "CONTRIBUTING.md"


def test_the_example_of_a_model_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"MODELS": {}}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    monkeypatch.setitem(MODELS, "mean", names["MODELS"]["mean"])
    data = dimensions(120, degree=8, splits=2)
    replicas = [Replica(split=k % 2, seed=k, dropout=0.2 * k, options=(("hidden", 16),)) for k in range(3)]
    together = train_replicas("mean", data, replicas, max_epochs=15)
    [alone] = train_replicas("mean", data, [replicas[1]], max_epochs=15)
    assert together[1].history["val_loss"] == pytest.approx(alone.history["val_loss"], rel=1e-3)
    assert together[0].history["train_loss"][-1] < together[0].history["train_loss"][0]
