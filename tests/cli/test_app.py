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


def test_help_does_not_import_what_is_slow_to_import() -> None:
    code = (
        "import sys; from gfgn.cli import main; sys.argv = ['gfgn', 'models', '--help']\n"
        "try: main()\n"
        "except SystemExit: print([name for name in ('torch', 'pandas', 'matplotlib', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "List the models" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


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
