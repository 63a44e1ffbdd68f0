"""MkDocs hook: shows the figures in `results/`, so that the repository holds every figure once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent


def on_files(files: Files, config: Any) -> Files:
    for path in sorted((ROOT / "results").glob("*/*.svg")):
        uri = path.relative_to(ROOT).as_posix()
        files.append(File(uri, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that work in the repository (`../results/…`) become links of the site."""
    return markdown.replace("](../results/", "](results/")
