"""Pages from the package's Jinja2 templates: HTML, which is escaped, and Markdown, which is not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape


def render(template: str, **context: object) -> str:
    """The text of a template, named by its path in the package, such as `"report/templates/page.html.j2"`."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}  # lists of features are long
    return environment
