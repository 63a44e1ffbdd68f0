"""Seeded cases that the tests of the stress suite share: damaged bytes and texts, and the command in this process.

`GFGN_STRESS` multiplies the number of cases: 1 in `make test`, 20 in `make stress`. A case is a seed, so that a failure
is repeated by its number alone.
"""

import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FACTOR = int(os.environ.get("GFGN_STRESS", "1"))
ODD_WORDS = (
    *(
        "0",
        "-1",
        "1e400",
        "nan",
        "-inf",
        "1000000000000",
        "0x7f",
        "null",
        "true",
        "[]",
        "{}",
        '""',
        "''",
        "~",
        "!!int x",
    ),
    *("&a [*a]", "*b", "!!python/object/apply:os.system [exit 3]", "2020-02-30", "? ", ": ", "- -", "\x00", "\x1b[31m"),
    *("[/x]", "=1+1", "é", "\ud7ff", "\ufeff", "\u202e", "../../etc/passwd", "%s%n", "<script>", "9" * 400, "a" * 5000),
)

LEAVES = (None, -1, 0, 1e300, 10**30, "x", [], {}, [[]], {"a": None}, True, float("nan"))


class Cases:
    """The seeds of `count` cases, times `GFGN_STRESS`; those that a test has run are counted for the summary."""

    run = 0  # in the current test

    def __init__(self, count: int) -> None:
        self._seeds = range(count * FACTOR)

    def __len__(self) -> int:
        return len(self._seeds)

    def __iter__(self) -> Iterator[int]:
        for seed in self._seeds:
            yield seed
            Cases.run += 1  # when the test asks for the next one


def cases(count: int) -> Cases:
    """The seeds of `count` cases, times `GFGN_STRESS`."""
    return Cases(count)


def damaged(content: bytes, seed: int) -> bytes:
    """The content with a few bytes changed, cut, repeated or replaced; a fixed function of the seed."""
    draw, data = random.Random(seed), bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice((1, 1, 2, 8, 64, 1024)))
        match draw.randrange(7):
            case 0:  # truncated
                del data[start:]
            case 1:
                del data[start:end]
            case 2:
                data[start:end] = bytes(draw.randrange(256) for _ in range(end - start))
            case 3:
                data[start:end] = bytes(end - start)
            case 4:
                data[start:start] = data[start:end] * draw.choice((1, 2, 50))
            case 5 if start < len(data):  # one bit
                data[start] ^= 1 << draw.randrange(8)
            case _:
                data[start:start] = draw.choice(ODD_WORDS).encode("utf-8", "surrogatepass")
    return bytes(data)


def damaged_text(text: str, seed: int) -> str:
    """The text with some of its words, numbers or lines exchanged for odd ones; a fixed function of the seed."""
    draw = random.Random(seed)
    for _ in range(draw.choice((1, 1, 2, 3))):
        lines = text.splitlines(keepends=True) or [""]
        at = draw.randrange(len(lines))
        match draw.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[draw.randrange(len(lines))])
            case 2:
                lines[at] = " " * draw.choice((1, 2, 7)) + lines[at]
            case _:
                words = list(re.finditer(r"[^\s,:{}\[\]]+", lines[at]))
                if words:
                    word = draw.choice(words)
                    lines[at] = lines[at][: word.start()] + draw.choice(ODD_WORDS) + lines[at][word.end() :]
        text = "".join(lines)
    return text


def change(content: Any, draw: random.Random) -> None:
    """Replaces or removes one value somewhere inside a JSON object."""
    while True:
        keys = list(content) if isinstance(content, dict) else range(len(content))
        key = draw.choice(keys)
        inner = content[key]
        if isinstance(inner, dict | list) and inner and draw.random() < 0.8:
            content = inner
        elif isinstance(content, dict) and draw.random() < 0.3:
            del content[key]
            return
        else:
            content[key] = draw.choice(LEAVES)
            return


class Result(NamedTuple):
    """How a call of the command ended, with what it wrote."""

    code: int
    out: str
    err: str


def gfgn(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Result:
    """Runs the command in this process; any exception but `SystemExit` would be a traceback."""
    from gfgn.cli import main

    capsys.readouterr()  # not of this call
    before, sys.argv = sys.argv, ["gfgn", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        return Result(int(end.code or 0), *capsys.readouterr())
    finally:
        sys.argv = before
    raise AssertionError("main returned without an exit code")


def assert_refused(result: Result, *words: str | Path) -> None:
    """Checks that a call ended with exit code 2 and one line on stderr that has all of `words`."""
    lines = result.err.strip().splitlines()
    assert result.code == 2, result
    assert len(lines) == 1, result.err
    assert lines[0].startswith("gfgn: "), result.err
    for word in words:
        assert str(word) in lines[0], (word, lines[0])
