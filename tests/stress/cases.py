"""Seeded damage of bytes and texts, and the command in this process.

`GFGN_STRESS` multiplies the number of cases: 1 in `make test`, 20 in `make stress`. A case is a seed, so that a failure
is repeated by its number alone.
"""

import os
import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gfgn.cli import main

ODD_WORDS = "0|-1|1e400|nan|-inf|1000000000000|null|true|[]|{}|''|~|!!int x|&a [*a]|*b|2020-02-30|? |: |- -|[/x]|=1+1"
ODD_WORDS += "|!!python/object/apply:os.system [exit 3]|\x00|\x1b[31m|é|\ud7ff|\ufeff|../../etc/passwd|" + "9" * 400


def cases(count: int) -> range:
    """The seeds of `count` cases, times `GFGN_STRESS`."""
    return range(count * int(os.environ.get("GFGN_STRESS", "1")))


def damaged(content: bytes, seed: int) -> bytes:
    """The content with a few bytes changed, cut, repeated or replaced."""
    draw, data = random.Random(seed), bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        start = draw.randrange(len(data) + 1)
        end = min(len(data), start + draw.choice((1, 1, 2, 8, 64, 1024)))
        match draw.randrange(6):
            case 0:
                del data[start:]
            case 1:
                del data[start:end]
            case 2:
                data[start:end] = draw.randbytes(end - start)
            case 3:
                data[start:end] = bytes(end - start)
            case 4:
                data[start:start] = data[start:end] * draw.choice((1, 2, 50))
            case _ if start < len(data):
                data[start] ^= 1 << draw.randrange(8)
    return bytes(data)


def damaged_text(text: str, seed: int) -> str:
    """The text with a line removed, repeated or indented, or a word exchanged for an odd one."""
    draw, lines = random.Random(seed), text.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    words = list(re.finditer(r"[^\s,:{}\[\]]+", lines[at]))
    if words and draw.random() < 0.6:
        word, odd = draw.choice(words), draw.choice(ODD_WORDS.split("|"))
        lines[at] = lines[at][: word.start()] + odd + lines[at][word.end() :]
    else:
        lines[at] = draw.choice(("", 2 * lines[at], "   " + lines[at]))
    return "".join(lines)


class Result(NamedTuple):
    """How a call of the command ended, with what it wrote."""

    code: int
    out: str
    err: str


def gfgn(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Result:
    """Runs the command in this process; any exception but `SystemExit` would be a traceback."""
    capsys.readouterr()  # not of this call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["gfgn", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
    return Result(int(end.value.code or 0), *capsys.readouterr())


def assert_refused(result: Result, *words: str | Path) -> None:
    """Checks that a call ended with exit code 2 and one line on stderr that has all of `words`."""
    assert result.code == 2, result
    assert len(result.err.strip().splitlines()) == 1, result.err
    assert all(str(word) in result.err for word in ("gfgn: ", *words)), result.err
