"""The command: its table, its files, and one line for whatever goes wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gfgn
from gfgn.cli import app

QUICK = ["--splits", "2", "--epochs", "3"]


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"gfgn {gfgn.__version__}"


def test_compare_prints_the_table_and_writes_the_files(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp, gfgn-graph", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "±" in lines["mlp"]
    assert "[" in lines["gfgn-graph"]
    assert "against mlp" in lines["model"]
    assert "4 runs" in result.stdout
    assert " s in all" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 5
    assert "mlp: 2 runs" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dimension"], "did you mean 'dimensions'?"),
        (["--models", "gfgn-pear"], "did you mean 'gfgn-pair'?"),
        (["--models", ","], "models must name at least one"),
        (["--splits", "99"], "splits must be 1 to 10 for 'dimensions', got 99"),
        (["--seeds", "0"], "seeds must be 1 or larger, got 0"),
        (["--epochs", "0"], "max_epochs must be 1 or larger, got 0"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["compare", *QUICK, "--models", "mlp", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "file" in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_interruption_says_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gfgn.train.loop as loop

    evaluate, calls = loop._evaluate, []

    def third_run_is_interrupted(*arguments: object) -> tuple[float, float]:
        calls.append(arguments)
        if len(calls) > 2 * 4:  # three epochs and the test, twice
            raise KeyboardInterrupt
        return evaluate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "_evaluate", third_run_is_interrupted)
    arguments = ["compare", "--splits", "3", "--epochs", "3", "--models", "mlp", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 130
    assert f"2 finished runs are kept in {tmp_path / 'runs.csv'}" in result.stderr
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3


def test_as_a_process(tmp_path: Path) -> None:
    """Usage errors too are one line, which only a process can show; and no heavy import precedes them."""
    done = subprocess.run(
        [sys.executable, "-m", "gfgn", "compare", "--splits", "many"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("gfgn: Invalid value for '--splits'")
    assert done.stderr.count("\n") == 1
    code = "import sys, gfgn.cli; print([m for m in ('torch', 'pandas', 'matplotlib', 'numpy') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_training_and_data_need_nothing_that_only_the_command_needs() -> None:
    code = (
        "import sys, gfgn.data, gfgn.train; before = set(sys.modules)\n"
        "print([m for m in ('typer', 'rich', 'matplotlib', 'gfgn.report', 'gfgn.cli') if m in before])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
