"""Progress lines and bars, and the tables in the terminal."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from gfgn.data import dimensions
from gfgn.report import progress
from gfgn.report.progress import RunProgress, describe_status
from gfgn.report.terminal import print_comparisons
from gfgn.runs import compare, grid
from gfgn.runs.text import duration
from gfgn.train import Status

STATUS = Status(replicas=160, finished=40, alive=120, epoch=200, best_val=0.8472, seconds=10.0, seconds_left=75.4)


def written(console: Console) -> str:
    """What a console wrote, without control sequences."""
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_status() -> None:
    assert describe_status(STATUS) == "120 training, epoch 200, best validation score 84.7%, 1 min 15 s left"
    assert "score −0.412," in describe_status(dataclasses.replace(STATUS, best_val=-0.412))
    assert describe_status(Status(160, 0, 160, 0, float("-inf"), 0.0, None)) == "160 training, epoch 0"


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_become_rarer_without_a_terminal(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), quiet=quiet)
    callback = RunProgress(console, 200)
    with callback.bars:
        callback.on_model_begin("texas", "gfgn-pair", 160, 80)
        for clock[0] in range(300):
            callback.on_status(STATUS)
        callback.on_run_end(None)  # type: ignore[arg-type]
        callback.on_model_end("texas", "gfgn-pair")
    seconds = [20, 30, 45, 68, 102, 153, 230]
    line = f"runs after {{}}; texas gfgn-pair: {describe_status(STATUS)}"
    assert written(console).splitlines() == [
        f"80 of 200 {line.format(duration(second))}" for second in ([] if quiet else seconds)
    ]
    assert (callback.trained, callback.kept) == (1, 80)


def test_bars_fit_into_80_columns() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    callback = RunProgress(console, 12_000)
    with callback.bars:
        callback.on_model_begin("a graph with a very long name", "gfgn-neighbor", 6_000, 4_000)
        callback.on_status(dataclasses.replace(STATUS, epoch=1_200, best_val=1.0))
        callback.on_run_end(None)  # type: ignore[arg-type]
        callback.bars.refresh()
        callback.on_model_end("a graph with a very long name", "gfgn-neighbor")
    lines = written(console).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("4001/6000" in line and "epoch 1,200, best" in line for line in lines)
    assert any("4001/12000" in line for line in lines)


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_one_split_has_no_interval(metric: str) -> None:
    data = dataclasses.replace(dimensions(100, degree=8, splits=1), metric=metric)
    console = Console(file=io.StringIO(), width=100)
    print_comparisons(console, [compare(data, ["mlp", "gfgn-graph"], splits=1, max_epochs=3)])
    text = written(console)
    assert "nan" not in text
    assert re.search(r"mlp +−?[\d.]+ +–", text)
    assert re.search(r"gfgn-graph +−?[\d.]+ +– +[+−][\d.]+ *$", text, flags=re.MULTILINE)


def test_tables() -> None:
    data, models = dimensions(100, degree=8, splits=2), ["mlp", "gfgn-graph"]
    one = compare(data, models, splits=2, max_epochs=3)
    two = compare(data, models, splits=2, max_epochs=3, grid=grid(lr=(0.01, 0.02), lam=(1.0, 2.0)))
    console = Console(file=io.StringIO(), width=100)
    print_comparisons(console, [one, one, two])
    text = written(console)
    assert text.count("against mlp") == 3
    assert text.count("Every network: ") == 2  # not repeated for the second
    assert re.search(r"average rank: (mlp|gfgn-graph) \d\.\d\d, (mlp|gfgn-graph) \d\.\d\d", text)
    for model, gated in (("gfgn-graph", True), ("mlp", False)):
        best = two.selections[model].candidates[0]
        setting = f"learning rate {best.configuration['lr']:g}, weight decay 0.0005, dropout 0.5"
        setting += f", λ {best.configuration['lam']:g}" if gated else ""  # an MLP has no λ
        assert f"  {model}: {setting} (validation {100 * best.val:.1f}%)" in text
