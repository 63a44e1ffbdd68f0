"""What all commands share: version, one-line errors, log messages, and a fast start."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gfgn
from gfgn.cli import app, main


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.strip() == f"gfgn {gfgn.__version__}"
    citation = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {gfgn.__version__}\n" in citation


def test_a_usage_error_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["gfgn", "compare", "--splits", "many"])
    with pytest.raises(SystemExit) as exit_info:
        main()
    assert exit_info.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("gfgn: Invalid value for '--splits'")
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("--help", "Graph Feature Gating Networks"),
        ("models --help", "List the models"),
        ("compare --help", "Train models"),
        ("models", "gfgn-pair"),
        ("datasets", "citeseer"),
    ],
)
def test_help_and_lists_do_not_import_what_is_slow_to_import(command: str, shown: str) -> None:
    check_imports_of_command(command, shown)


def check_imports_of_command(command: str, shown: str) -> None:
    """A command prints `shown`, and nothing that is slow to import has been imported."""
    slow = ("torch", "torch_geometric", "numba", "numpy", "scipy", "pandas", "sklearn", "matplotlib")
    code = (
        f"import sys; from gfgn.cli import main; sys.argv = ['gfgn', *{command.split()}]\n"
        "try: main()\n"
        f"except SystemExit as end: print(end.code, [name for name in {slow} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown in done.stdout
    assert done.stdout.splitlines()[-1] == "0 []"


def test_log_messages_of_the_library_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import gfgn.data

    def log(name: str) -> None:
        logging.getLogger("gfgn.ops.cpu.threads").warning("compiling kernels")  # news rather than a warning
        logging.getLogger("gfgn.ops").warning("falling back")
        raise ValueError("enough")

    monkeypatch.setattr(gfgn.data, "load", log)
    for _ in range(2):
        result = CliRunner().invoke(app, ["datasets", "describe", "karate"])
        assert result.stderr == "compiling kernels\nwarning: falling back\ngfgn: enough\n"
