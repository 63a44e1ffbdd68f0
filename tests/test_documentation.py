"""Every code block of README.md and docs/*.md runs, and the pages name only commands, options and models that exist.

Training is cut to two epochs. Nothing is downloaded: a page is skipped from the first dataset on that GFGN_DATA lacks.
"""

import ast
import os
import re
import shlex
import shutil
import tomllib
import webbrowser
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from estimator.tables import write_tables
from torch.distributed.run import parse_args
from torch_geometric.datasets import Planetoid
from typer.testing import CliRunner

import gfgn.runs.advice
import gfgn.runs.explanation
import gfgn.runs.record
from gfgn.cli import app
from gfgn.data.named import registry
from gfgn.nn.registry import MODELS
from gfgn.runs.study_file import make_study
from gfgn.train import TrainConfig
from gfgn.train.catalog import CLASSICAL

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EPOCHS = 2  # that training takes at most
PARSED_ONLY = (
    "gfgn compare my-graph/ --minutes 10",  # takes ten minutes; tests/runs/test_budget.py
    "gfgn compare cora --track",  # needs packages of extras; tests/runs/test_tracking.py
    "gfgn compare cora --on ray",  # needs a cluster; tests/runs/test_cluster.py
    "gfgn reproduce table1",  # takes minutes to hours; tests/paper
)
REST_OF_STUDY: dict[str, Any] = {
    "title": "What a YAML block that shows a part of a study leaves out",
    "datasets": ["texas", "wisconsin"],
    "models": {"gfgn-pair": {}},
    "grid": {"lr": [0.01]},
    "splits": 1,
    "seeds": 1,
    "training": {"max_epochs": 10, "patience": 10},
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SHAPE = re.compile(r"(?:([\w.]+(?:\[\d+\])?): )?\[(\w[\w ]*(?:, \w[\w ]*)*)\]")


def run_python(code: str, names: dict[str, Any], where: str) -> None:
    """Executes statement by statement, and checks shapes (`# [4, 32]`, `# s: [E, 32]`) and values in comments."""
    code = re.sub(r"(for epoch in range)\(\d+\)", rf"\1({EPOCHS})", code)
    lines = code.splitlines()
    if name := re.fullmatch(r"# (\w+\.py)", lines[0]):  # a file that commands of the page import
        Path(name[1]).write_text(code, encoding="utf-8")
    for statement in ast.parse(code).body:
        exec(compile(ast.Module([statement], []), where, "exec"), names)
        comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")[2]
        expression, shapes = ast.unparse(statement), SHAPE.findall(comment)
        for name, shape in shapes:
            found = eval(name or expression.partition(" = ")[0], names).shape
            stated = [int(size.split()[0]) if size[0].isdigit() else None for size in shape.split(", ")]
            assert len(found) == len(stated), f"{where}: {statement}"
            assert all(size in (None, true) for size, true in zip(stated, found, strict=True)), f"{where}: {comment}"
        if isinstance(statement, ast.Expr) and not shapes:
            with suppress(SyntaxError, ValueError):  # a comment in words
                np.testing.assert_equal(eval(expression, names), ast.literal_eval(comment))


def run_console(text: str) -> None:
    for line in text.splitlines():
        assert line.startswith("$ "), f"{line!r} must be a command after `$ `"
        words = shlex.split(line[2:], comments=True)
        command, *filters = ([*part] for pipe, part in groupby(words, "|".__ne__) if pipe)
        printed = PROGRAMS[command[0]](command)
        for program in filters if printed else []:
            missing = {key for key in re.findall(r"\.(\w+)", program[-1]) if f'"{key}":' not in printed}
            assert program[0] == "jq", line
            assert not missing, f"{line}: the JSON has no {', '.join(missing)}"


def run_gfgn(command: list[str]) -> str:
    """Runs a command and returns what it prints. One of `PARSED_ONLY`, or without its data, is parsed completely."""
    if not " ".join(command).startswith(PARSED_ONLY):
        try:
            result = CliRunner().invoke(app, command[1:])
        except pytest.skip.Exception:
            parse(command)
            raise
        assert result.exit_code == 0, f"{' '.join(command)}: {result.output or result.exception!r}"
        return result.stdout
    parse(command)
    return ""


def find_command(command: list[str]) -> tuple[Any, list[str]]:
    """The parser of a command, and the arguments and options for it."""
    parser: Any = typer.main.get_command(app)
    arguments = command[1:]
    while arguments and arguments[0] in getattr(parser, "commands", {}):
        parser, arguments = parser.commands[arguments[0]], arguments[1:]
    return parser, arguments


def parse(command: list[str]) -> None:
    parser, arguments = find_command(command)
    assert not (arguments and hasattr(parser, "commands")), f"{' '.join(command)}: there is no such command"
    parser.make_context(command[0], arguments)


def recipes(command: list[str]) -> str:
    """The recipes of the targets of a `make` command."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = [re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", makefile, re.M) for target in command[1:]]
    assert all(found), f"the Makefile lacks a target of {' '.join(command)}"
    return "".join(match[1] for match in found if match)


def check_torchrun(command: list[str]) -> None:
    """Checks the options of `torchrun` and of the command that it starts; tests/cli/test_torchrun.py runs one."""
    given = parse_args(command[1:])
    assert (given.module, given.training_script) == (True, "gfgn")
    parse(["gfgn", *given.training_script_args])


def check_extras(command: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    match = re.fullmatch(r"pip install gfgn\[(\w+)\]", " ".join(command))
    assert match is not None, command
    assert match[1] in extras


PROGRAMS: dict[str, Any] = {"gfgn": run_gfgn, "make": recipes, "pip": check_extras, "torchrun": check_torchrun}


def run_yaml(text: str) -> None:
    """Reads a study, or a part of one."""
    content = yaml.safe_load(text)
    rest = {name: value for name, value in REST_OF_STUDY.items() if name != "grid" or "search" not in content}
    if "search" in content:  # training is as short as `EPOCHS`
        content["search"]["rungs"] = [1]
    make_study(rest | content, "page", trust_code=True)


def table_format(text: str) -> list[list[str]]:
    """The cells of a table with numbers as `#`. Which rows have a difference, and to what, depends on the numbers."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    table = [row[:4] if number == 0 else row[:3] for number, row in enumerate(row for row in rows if len(row) > 2)]
    return [
        [re.sub(r"against .*", "against", re.sub(r"[+−]?\d[\d.,]*\d|\d", "#", cell)) for cell in row] for row in table
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages speak of, where training is short and nothing is downloaded."""
    check = TrainConfig.__post_init__

    def shorten(config: TrainConfig) -> None:
        check(config)
        object.__setattr__(config, "max_epochs", min(config.max_epochs, EPOCHS))

    def skip(*_: Any) -> None:
        pytest.skip("GFGN_DATA does not name a folder with the datasets of this page")

    monkeypatch.setattr(TrainConfig, "__post_init__", shorten)
    monkeypatch.setitem(vars(gfgn.runs.record.DEFAULT_CONFIG), "max_epochs", EPOCHS)
    monkeypatch.setattr(gfgn.runs, "PAPER_GRID", gfgn.runs.PAPER_GRID[:2])
    monkeypatch.setattr(gfgn.runs.advice, "SPLITS", 2)
    monkeypatch.setattr(gfgn.runs.explanation, "IMPORTANCE_WORK", 0)  # of two features
    monkeypatch.setattr(registry, "fetch", skip)
    monkeypatch.setattr(Planetoid, "download", skip)
    monkeypatch.setattr(webbrowser, "open", lambda url: True)
    monkeypatch.setenv("GFGN_DATA", os.environ.get("GFGN_DATA") or str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path / "my-graph")
    write_tables(tmp_path / "new-graph", seed=1)
    frame = (
        write_tables(tmp_path / "customers").drop(columns="truth").rename(columns={"id": "customer", "label": "plan"})
    )
    frame.assign(comment=[f"comment {k}" for k in range(len(frame))]).to_csv("customers/nodes.csv", index=False)
    large = shutil.ignore_patterns("*.svg", "*.sqlite*", "ablations", "noise", "table1")
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=large)
    (tmp_path / "my-study.yaml").write_text(yaml.safe_dump(REST_OF_STUDY), encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(re.findall("^ *```", text, re.M)) == 2 * len(BLOCK.findall(text))
    names: dict[str, Any] = {"__name__": "page"}
    for match in BLOCK.finditer(text):
        language, code = match.groups()
        where = f"{page.name}:{text[: match.start()].count(chr(10)) + 1}"
        if language == "python":
            run_python(code, names, where)
        elif language == "console":
            run_console(code)
        elif language == "yaml":
            run_yaml(code)
        else:  # a table of the command that is named last before it
            assert language == "text", where
            command = re.findall(r"`((?:make|gfgn) [^`]+)`", text[: match.start()])[-1].split()
            lines = re.findall(r"^\t\$\(BIN\)/(gfgn .*)$", recipes(command), re.M)
            assert table_format(code) == table_format("".join(run_gfgn(shlex.split(line)) for line in lines))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    """Of inline code: `gfgn COMMAND --option …` has that command and option, and `--option` is one of some command."""
    parsers = [typer.main.get_command(app)]
    for parser in parsers:
        parsers += getattr(parser, "commands", {}).values()
    for code in re.findall(r"`([^`\n]+)`", BLOCK.sub("", page.read_text(encoding="utf-8"))):
        words = code.split()
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        if words[0] == "make":
            recipes(words[:2])
        elif words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).is_file(), code
        elif words[0] == "gfgn" and len(words) > 1:
            parser, rest = find_command(words)
            assert rest != words[1:] or rest[0].startswith("-") or rest[0].isupper(), f"{code}: no such command"
            assert options <= options_of(parser), code
        elif words[0].startswith("--"):
            assert options <= set().union(*map(options_of, parsers)), code


def options_of(parser: Any) -> set[str]:
    own = {name for parameter in parser.params for name in parameter.opts + parameter.secondary_opts}
    return own | {"--help", "--install-completion", "--show-completion"}


def test_links_lead_to_files_and_headings() -> None:
    anchors: dict[Path, set[str]] = {}
    for page in [*PAGES, *ROOT.glob("*.md"), ROOT / "benchmarks" / "results" / "README.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text(encoding="utf-8"))):
            path, _, heading = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if "://" in target:
                continue
            assert file.exists(), f"{page.name}: {target}"
            if heading:
                text = BLOCK.sub("", file.read_text(encoding="utf-8"))
                titles = re.findall(r"^#+ (.*)$", text, re.M)
                slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
                anchors.setdefault(file, slugs | set(re.findall(r'<a id="([\w-]+)">', text)))
                assert heading in anchors[file], f"{page.name}: {target}"


def test_the_architecture_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = (ROOT / "docs" / "assets" / "architecture.svg").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+(?:\.py|\.ya?ml|/))`", page) + re.findall(r">([\w/]+(?:\.py|/))<", drawing)
    assert len(named) > 40
    assert [name for name in named if not ((ROOT / "src" / "gfgn" / name).exists() or (ROOT / name).exists())] == []


def test_the_models_page_lists_the_registry() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    cells = {name: row[1:] for row in rows for name in re.findall(r"`([^`]+)`", row[0])}
    plus = page.partition("## GFGN+")[2].partition("## Custom models")[0]
    for name, entry in MODELS.items():
        options = {key: value for key, value in entry.parameters.items() if (key, value.default) not in COMMON}
        authors, *_, published = entry.reference.split(", ")
        assert cells[name][0].startswith(authors), name
        assert cells[name][0].endswith(published), name
        if name.startswith("gfgn-plus"):
            assert set(options) <= set(re.findall(r"`(\w+)`", plus)), name
        else:
            expected = "<br>".join(f"`{key}` {value.default}: {value.meaning}" for key, value in options.items())
            assert "".join(cells[name][1:]).strip() == expected, name
    for name, model in CLASSICAL.items():
        assert cells[name][1] == model.description
    assert f"any of {len(MODELS)} networks" in (ROOT / "README.md").read_text(encoding="utf-8")


COMMON = {("hidden", 64), ("layers", 2)}
"""Options that most models have."""
