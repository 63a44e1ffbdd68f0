"""MkDocs hook: README.md is the home page, and pages and figures of results stay where they are made."""

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent


def on_files(files: Files, config: Any) -> Files:
    made = [*ROOT.glob("results/*/*.md"), *ROOT.glob("results/*/*.svg"), ROOT / "benchmarks" / "results" / "README.md"]
    for path in sorted(made):
        uri = path.relative_to(ROOT).as_posix()
        files.append(File(uri, str(ROOT), config["site_dir"], config["use_directory_urls"]))
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace('src="docs/', 'src="')
    files.append(File.generated(config, "index.md", content=readme))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Links that work in the repository become links of the site, or text if the site does not have their target."""
    uri = page.file.src_uri
    outside = uri == "index.md" or uri.startswith(("results/", "benchmarks/"))
    folder = dirname(uri) if outside else "docs"

    def link(match: re.Match[str]) -> str:
        text, path, heading = match.groups()
        target = normpath(join(folder, path)).removeprefix("docs/")
        found = files.get_file_from_path(target) is not None
        return f"[{text}]({relpath(target, dirname(uri) or '.')}{heading})" if found else text

    return re.sub(r"\[([^\]]*)\]\((?!https?:)([^)\s#]+)(#[^)\s]*|)\)", link, markdown)
