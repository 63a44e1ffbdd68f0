"""`DataError`, and the words that messages about a user's data share."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gfgn.literal import one_line, visible


class DataError(ValueError):
    """A user's data cannot be read; the message names the file and position, the value and what is expected.

    It is one line without characters that a terminal would act on, whatever names it quotes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 edge`, `2,000 edges`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(items: Sequence[object], limit: int = 5) -> str:
    """The first few items, and the number of the others."""
    shown = ", ".join(one_line(str(item)) for item in items[:limit])
    return shown if len(items) <= limit else f"{shown} and {len(items) - limit:,} more"


def shown(value: object) -> str:
    """`repr` of what somebody gave, cut short: a few nested lists of YAML can stand for more than memory holds."""
    short = reprlib.Repr()
    short.maxlevel, short.maxlist, short.maxdict, short.maxstring, short.maxlong, short.maxother = 3, 8, 8, 100, 60, 100
    return short.repr(value)


def reason(error: Exception) -> str:
    """The first line of the message of an exception."""
    text = visible((str(error).strip() or type(error).__name__).splitlines()[0])
    return text if len(text) <= 300 else f"{text[:299]}…"


@contextmanager
def reading(label: str, kind: str) -> Iterator[None]:
    """Turns the exceptions of a parser, which are nearly any on a damaged file, into a `DataError`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{label} cannot be read as {kind} ({reason(error)})") from error
