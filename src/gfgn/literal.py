"""Names from files as harmless text: shown as they are by a terminal, and not run by a spreadsheet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

# Control characters without line feed and tab, marks that change the direction of text, and lone surrogates.
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
FORMULA = re.compile(r"\s*(=|[+\-@].*[(|!])", re.DOTALL)


def visible(text: str) -> str:
    """The text with escape sequences instead of characters that a terminal would act on."""
    return INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """`visible`, with line feeds and tabs as escape sequences too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def literal(text: str) -> Text:
    """Text for a terminal that is shown as it is: no markup, no emoji, and no character that it would act on."""
    from rich.text import Text

    return Text(visible(text))


def csv_cell(value: object) -> object:
    """A value for a CSV file: text that a spreadsheet would run as a formula begins with an apostrophe.

    Numbers and names such as `@user` or `-low` cannot run anything and are left as they are.
    """
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value
