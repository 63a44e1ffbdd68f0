"""Progress lines and bars, and the tables in the terminal."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from gfgn.data import dimensions
from gfgn.report import progress
from gfgn.report.progress import Remaining, RunProgress, describe_status
from gfgn.report.terminal import print_comparisons
from gfgn.runs import compare, grid
from gfgn.runs.text import duration
from gfgn.train import Status

STATUS = Status(replicas=160, finished=40, alive=120, epoch=200, best_val=0.8472, seconds=10.0, seconds_left=75.4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_status() -> None:
    assert describe_status(STATUS) == "120 training, epoch 200, best validation score 84.7%, 1 min 15 s left"
    assert "best validation score −0.412," in describe_status(dataclasses.replace(STATUS, best_val=-0.412))
    early = Status(160, 0, 160, 0, float("-inf"), 0.0, None)
    assert describe_status(early) == "160 training, epoch 0"


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    callback = RunProgress(Console(file=io.StringIO()), 200)
    with callback.bars:
        callback.on_model_begin("texas", "gfgn-pair", 160, 80)
        callback.on_status(STATUS)  # too early for a line
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
        callback.on_status(STATUS)
        callback.on_run_end(None)  # type: ignore[arg-type]
        callback.on_model_end("texas", "gfgn-pair")
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"texas gfgn-pair: 40 of 160 runs, {describe_status(STATUS)}"
    assert re.fullmatch(r"texas gfgn-pair: 160 runs, 80 of them from the store, \d+\.\d s", second)
    assert (callback.trained, callback.kept) == (1, 80)


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140)
    callback = RunProgress(console, 200)
    with callback.bars:
        callback.on_model_begin("texas", "gfgn-pair", 160, 80)
        callback.on_status(STATUS)
        callback.on_run_end(None)  # type: ignore[arg-type]
        callback.bars.refresh()
        callback.on_model_end("texas", "gfgn-pair")
        callback.on_model_begin("texas", "mlp", 40, 0)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    for part in ("texas gfgn-pair", " 81/160", " 81/200", "epoch 200, best 84.7%"):
        assert part in text
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_one_split_has_no_interval(metric: str) -> None:
    data = dataclasses.replace(dimensions(100, degree=8, splits=1), metric=metric)
    console = Console(file=io.StringIO(), width=100)
    print_comparisons(console, [compare(data, ["mlp", "gfgn-graph"], splits=1, max_epochs=3)])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "nan" not in text
    assert re.search(r"mlp +−?[\d.]+ +–", text)
    assert re.search(r"gfgn-graph +−?[\d.]+ +– +[+−][\d.]+ *$", text, flags=re.MULTILINE)


def test_no_time_left_until_it_is_known() -> None:
    assert "left" not in describe_status(dataclasses.replace(STATUS, seconds_left=None))
    loss = dataclasses.replace(STATUS, best_val=-0.51234)
    assert "best validation score −0.512, " in describe_status(loss)


def test_bars_fit_into_80_columns() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    callback = RunProgress(console, 12_000)
    with callback.bars:
        callback.on_model_begin("a graph with a very long name", "gfgn-neighbor", 6_000, 4_000)
        callback.on_status(dataclasses.replace(STATUS, epoch=1_200, best_val=1.0))
        callback.bars.refresh()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= 80
    assert any("4000/6000" in line and "epoch 1,200" in line for line in lines)


def test_the_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    remaining = Remaining({("d", "a"): 1.0, ("d", "b"): 2.0, ("d", "c"): 5.0})
    remaining.begin("d", "a", 1.0)
    assert remaining.seconds() is None
    now = 10.0
    remaining.end()
    assert remaining.seconds() is None  # an eighth of the work
    remaining.begin("d", "b", 0.5)  # half of it is in the store
    assert remaining.seconds() is None
    now = 16.0
    remaining.end()
    assert remaining.seconds() == pytest.approx(16 / 2 * 5)
    remaining.begin("d", "c", 1.0)
    now = 26.0
    assert remaining.seconds() == pytest.approx(30)  # counts down
    now = 100.0
    assert remaining.seconds() == 0.0  # takes longer than expected
    remaining.end()
    assert remaining.seconds() == 0.0
    assert Remaining({}).seconds() is None


@pytest.mark.parametrize(("seconds", "text"), [(1, "5 s"), (23, "25 s"), (59, "1 min"), (130, "2 min"), (7300, "2 h")])
def test_estimates_are_rounded(seconds: float, text: str) -> None:
    assert progress._rounded(seconds) == text


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    callback = RunProgress(Console(stderr=True, quiet=True), 2)
    with callback.bars:
        callback.on_model_begin("texas", "mlp", 2, 0)
        callback.on_model_end("texas", "mlp")
    assert capsys.readouterr().err == ""


def test_tables() -> None:
    data = dimensions(100, degree=8, splits=2)
    one = compare(data, ["mlp", "gfgn-graph"], splits=2, max_epochs=3)
    two = compare(data, ["mlp", "gfgn-graph"], splits=2, max_epochs=3, grid=grid(lr=(0.01, 0.02), lam=(1.0, 2.0)))
    console = Console(file=io.StringIO(), width=100)
    print_comparisons(console, [one, one, two])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("against mlp") == 3
    assert text.count("Every network: ") == 2  # not repeated for the second
    assert re.search(r"average rank: (mlp|gfgn-graph) \d\.\d\d, (mlp|gfgn-graph) \d\.\d\d", text)
    for model, lam in (("gfgn-graph", True), ("mlp", False)):
        best = two.selections[model].candidates[0]
        setting = f"learning rate {best.configuration['lr']:g}, weight decay 0.0005, dropout 0.5"
        setting += f", λ {best.configuration['lam']:g}" if lam else ""
        assert f"  {model}: {setting} (validation {100 * best.val:.1f}%)" in text
