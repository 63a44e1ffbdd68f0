"""The Typer application and what all commands share: one-line errors, log messages on stderr, output for a terminal."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeAlias

import typer

import gfgn
from gfgn.literal import visible

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Graph Feature Gating Networks: learn, for every feature dimension, how much a node takes from its neighbors.",
)
HINTS = {  # of errors with files, by number
    errno.ENOSPC: "free some space, or write to another folder",
    errno.EDQUOT: "free some space, or write to another folder",
    errno.EROFS: "name a folder that can be written",
    errno.EACCES: "change its permissions, or name another one",
    errno.EPERM: "change its permissions, or name another one",
}
COMPILER_LOGGER = (
    "gfgn.ops.cpu"  # whose warnings say that kernels are being compiled, which a library has to say out loud
)
Settings: TypeAlias = dict[str, Any]  # arguments by name, as options give them


def main() -> None:
    """Entry point of the command. Usage errors are one line on stderr, with exit code 2."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except OSError as error:  # of a command's own files, or of what its output goes to
        _discard_stdout()
        if error.errno != errno.EPIPE:
            print(f"gfgn: {visible(explain(error))}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        # Usage errors of Typer and Click have `format_message`; any other exception is a bug and keeps its traceback.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        message = " ".join(format_message().split())
        if message:
            print(f"gfgn: {visible(message)}", file=sys.stderr)
        sys.exit(getattr(error, "exit_code", 2))
    sys.exit(code if isinstance(code, int) else 0)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gfgn {gfgn.__version__}")
        raise typer.Exit


@app.callback()
def _set_up(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    logger = logging.getLogger("gfgn")
    logger.addHandler(_STDERR)  # adding it a second time has no effect
    logger.setLevel(logging.INFO)
    _STDERR.quiet = False  # of an earlier call in this process
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


class _StderrHandler(logging.Handler):
    """Prints log messages to whatever `sys.stderr` is at the time; with `quiet`, warnings only."""

    quiet = False

    def emit(self, record: logging.LogRecord) -> None:
        warning = record.levelno >= logging.WARNING and not record.name.startswith(COMPILER_LOGGER)
        if warning or not self.quiet:
            prefix = f"{record.levelname.lower()}: " if warning else ""
            print(prefix + visible(record.getMessage()), file=sys.stderr, flush=True)


_STDERR = _StderrHandler()


def notes(quiet: bool) -> Console:
    """The console for progress and notes, on stderr; with `quiet`, only warnings and errors are shown."""
    from rich.console import Console

    _STDERR.quiet = quiet
    return Console(stderr=True, quiet=quiet)


@contextmanager
def user_errors(*more: type[Exception]) -> Iterator[None]:
    """Reports errors that the user can fix as one line with exit code 2: `ValueError`, `OSError` and the given ones."""
    expected: tuple[type[Exception], ...] = (ValueError, OSError, *more)
    try:
        yield
    except expected as error:
        fail(explain(error))
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)):
            raise
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        fail(f"not enough memory ({first}); use fewer seeds or trials, a smaller model or a smaller graph")


@contextmanager
def requires(extra: str, *modules: str) -> Iterator[None]:
    """Says in one sentence which extra has a module that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not any((error.name or "").startswith(module) for module in modules):
            raise
        fail(f"this needs {error.name}, which is not installed: pip install 'gfgn[{extra}]'")


def explain(error: Exception) -> str:
    """The message of an error; for a file that cannot be written or read, with what to do about it."""
    if not isinstance(error, OSError) or error.errno not in HINTS:
        return str(error)
    where = "the output" if error.filename is None else error.filename
    return f"{where}: {(error.strerror or '').lower()}; {HINTS[error.errno]}"


def _discard_stdout() -> None:
    """Sends what is left in the buffer of stdout nowhere: Python would try to write it once more at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # stdout is not a file
        sys.stdout = None


def fail(message: str, code: int = 2) -> NoReturn:
    """Prints one line on stderr and exits."""
    echo(f"gfgn: {' '.join(message.split())}", err=True)
    raise typer.Exit(code)


def echo(text: str = "", err: bool = False) -> None:
    """Prints text; what a terminal would act on, such as an escape sequence in a name, is shown instead."""
    typer.echo(visible(text), err=err)


def find_modules_here() -> None:
    """Lets `--models my_module:Net` find `my_module.py` in the current folder. Without such a name nothing there is
    imported: the folder may hold somebody's data, and libraries look for modules that are not installed."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def split_names(text: str) -> list[str]:
    """Splits names separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def stdout() -> Console:
    """A console for tables, 100 columns wide where there is no terminal."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=100)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Prints a table without lines whose first column does not wrap; the columns in `right` are right-aligned."""
    from rich.table import Table

    from gfgn.literal import literal

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading == headings[0], justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*map(literal, row))
    stdout().print(table)
