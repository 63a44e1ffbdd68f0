"""Options that cannot be met, and outputs that cannot be written: one line, exit code 2, nothing left behind."""

import subprocess
import sys
from pathlib import Path

import pytest
from stress.cases import assert_refused, gfgn

DATA = ("karate", "--models", "mlp", "--splits", "1")
HUGE = "1000000000"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--device", "cpu:banana"), ("device", "cpu:banana")),
        (("--device", "cpu:7"), ("device", "cpu:7")),
        (("--device", "cuda:-1"), ("device", "cuda:-1")),
        (("--device", ""), ("device",)),
        (("--seeds", HUGE), ("seeds", "1,000,000,000")),
        (("--seeds", "0"), ("seeds",)),
        (("--seeds", "-3"), ("seeds",)),
        (("--epochs", HUGE), ("max_epochs", HUGE)),
        (("--epochs", "0"), ("max_epochs",)),
        (("--trials", HUGE), ("trials", "1,000,000,000")),
        (("--splits", HUGE), ("splits",)),
        (("--minutes", "nan"), ("minutes",)),
        (("--set", "lr=nan"), ("lr",)),
        (("--set", "lr=1e999"), ("lr",)),
        (("--set", f"patience=-{HUGE}"), ("patience",)),
        (("--set", "mlp.hidden=0"), ("hidden",)),
        (("--set", "mlp.hidden=9" + 30 * "9"), ("hidden",)),
        (("--set", "clip=nan"), ("clip",)),
        (("--set", f"mlp.layers={HUGE}"), ("layers", "at most 100,000")),
    ],
)
def test_odd_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert_refused(gfgn(capsys, "compare", *DATA, *options, "--quiet", "--out", tmp_path / "out"), *words)


def test_outputs_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("there is no /dev/full")
    file = tmp_path / "file"
    file.write_text("something")
    short = ("--epochs", "2", "--quiet")
    assert_refused(gfgn(capsys, "compare", *DATA, *short, "--out", full), full)
    assert_refused(gfgn(capsys, "compare", *DATA, *short, "--out", file), file)
    assert_refused(gfgn(capsys, "compare", *DATA, "--write-config", full), full, "no space left", "free some space")
    assert_refused(gfgn(capsys, "datasets", "describe", "karate", "--png", full), full, "free some space")
    assert full.is_char_device()
    assert file.read_text() == "something"


def test_stdout_that_is_full() -> None:
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("there is no /dev/full")
    with full.open("w") as stdout:
        command = [sys.executable, "-m", "gfgn", "--version"]
        result = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert "free some space" in result.stderr


def test_files_of_somebody_else_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("report.html", "runs.csv"):
        out = tmp_path / name
        out.mkdir()
        (out / name).write_text("<!doctype html><title>My thesis</title>")
        assert_refused(gfgn(capsys, "compare", *DATA, "--epochs", "2", "--quiet", "--out", out), out / name)
        assert "thesis" in (out / name).read_text()
        assert not (out / "runs.sqlite").exists()
    mine = tmp_path / "mine"
    for _ in range(2):  # the second time, it replaces its own report
        assert gfgn(capsys, "compare", *DATA, "--epochs", "2", "--quiet", "--out", mine).code == 0
    assert sorted(path.name for path in mine.iterdir()) == ["report.html", "runs.csv", "runs.sqlite"]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")])
def test_too_little_memory_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("gfgn.runs.comparison.run_plans", fail)
    assert_refused(gfgn(capsys, "compare", *DATA, "--quiet", "--out", tmp_path / "out"), "not enough memory")
