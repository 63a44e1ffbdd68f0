"""What a person reads while and after models train."""

import io
import re

import pytest
from rich.console import Console

import gfgn.report.terminal as terminal
from gfgn.data.generators import dimensions
from gfgn.report.terminal import Lines, duration, in_numbers, show_comparisons, watching
from gfgn.runs import comparison as compare
from gfgn.runs import grid
from gfgn.runs.comparison import WORDS
from gfgn.train import Status

STATUS = Status(replicas=160, finished=40, alive=120, epoch=200, best_val=0.8472, seconds=10.0, seconds_left=75.4)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3599, "59 min 59 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_status_in_numbers() -> None:
    assert in_numbers(STATUS) == "120 training, epoch 200, best validation 84.7%, 1 min 15 s left"
    early = Status(160, 0, 160, 0, float("-inf"), 0.0, None)
    assert in_numbers(early) == "160 training, epoch 0"


def test_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    callback = Lines()
    callback.begin("texas", "gfgn-pair", 160, 80)
    callback.status(STATUS)  # too early for a line
    monkeypatch.setattr(terminal, "LINE_EVERY", 0.0)
    callback.status(STATUS)
    callback.finished(None)  # type: ignore[arg-type]
    callback.end("texas", "gfgn-pair")
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("texas gfgn-pair: 40 of 160 runs, 120 training, epoch 200, best validation 84.7%")
    assert re.fullmatch(r"texas gfgn-pair: 160 runs, 80 of them there already, \d+\.\d s", second)
    assert (callback.made, callback.kept) == (1, 80)


def test_bars() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=140)
    with watching(console, 200) as callback:
        callback.begin("texas", "gfgn-pair", 160, 80)
        callback.status(STATUS)
        callback.finished(None)  # type: ignore[arg-type]
        callback._progress.refresh()  # type: ignore[attr-defined]
        callback.end("texas", "gfgn-pair")
        callback.begin("texas", "mlp", 40, 0)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert "texas gfgn-pair" in text
    assert " 81/160" in text
    assert " 81/200" in text
    assert "best validation 84.7%, 1 min 15 s left" in text
    with watching(Console(file=io.StringIO()), 200) as plain:
        assert isinstance(plain, Lines)


def test_tables() -> None:
    data = dimensions(100, degree=8, splits=2)
    console = Console(file=io.StringIO(), width=100)
    one = compare(data, ["mlp", "gfgn-graph"], splits=2, max_epochs=3)
    two = compare(data, ["mlp", "gfgn-graph"], splits=2, max_epochs=3, grid=grid(lr=(0.01, 0.02), lam=(1.0, 2.0)))
    show_comparisons(console, [one, two])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("against mlp") == 2
    assert re.search(r"average rank: (mlp|gfgn-graph) \d\.\d\d, (mlp|gfgn-graph) \d\.\d\d", text)
    best = two.selections["gfgn-graph"].candidates[0]
    words = ", ".join(f"{name} {best.configuration[key]:g}" for key, name in WORDS.items())
    assert f"  gfgn-graph: {words} (validation {100 * best.val:.1f}%)" in text
    best = two.selections["mlp"].candidates[0].configuration
    assert f"  mlp: learning rate {best['lr']:g}, weight decay 0.0005, dropout 0.5 (validation " in text
    assert text.count("Every model: ") == 2
    again = Console(file=io.StringIO(), width=100)
    show_comparisons(again, [one, one])
    assert again.file.getvalue().count("Every model: ") == 1  # type: ignore[attr-defined]
