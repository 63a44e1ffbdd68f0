"""A metric is one entry of `METRICS`: everything else reads what it needs from there."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.metrics import METRICS, Metric


def worst_recall(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """The smallest recall of a class."""
    right, classes = logits.argmax(-1) == y, range(logits.size(-1))
    recalls = [(right & mask & (y == k)).sum(1) / (mask & (y == k)).sum(1).clamp(min=1) for k in classes]
    return torch.stack(recalls).amin(0)


@pytest.mark.parametrize("command", ["compare", "advise", "train"])
def test_an_entry_is_enough(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = Metric("worst recall", worst_recall, guess=lambda counts, size: 1 / counts.numel())
    monkeypatch.setitem(METRICS, "worst_recall", entry)
    arguments = ["karate", "--metric", "worst_recall", "--epochs", "10", "--out", str(tmp_path), "--json"]
    arguments += ["--replicas", "1"] if command == "train" else ["--splits", "2"]
    result = CliRunner().invoke(app, [command, *arguments])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    if command == "compare":
        assert answer["comparisons"][0]["dataset"]["metric"] == "worst_recall"
        assert "worst recall" in answer["comparisons"][0]["headline"]
    assert "worst recall" in (tmp_path / "report.html").read_text(encoding="utf-8")
