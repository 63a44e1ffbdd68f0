"""Every code block of README.md and docs/*.md runs, and the pages name only what exists.

Training is cut to two epochs, and nothing is downloaded: pages that need a dataset which the folder GFGN_DATA lacks are
skipped from there on.
"""

import ast
import json
import os
import re
import shlex
import shutil
import tomllib
import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

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
from gfgn.runs.study_file import StudyFile, make_study
from gfgn.train import TrainConfig
from gfgn.train.catalog import CLASSICAL

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EPOCHS = 2  # that training takes at most
NOT_RUN = {
    "gfgn compare my-graph/ --minutes 10": "takes ten minutes; tests/runs/test_budget.py covers it",
    "gfgn compare cora --track": "needs packages of extras; tests/runs/test_tracking.py covers it",
    "gfgn compare cora --on ray": "needs a cluster; tests/runs/test_cluster.py covers it",
    "gfgn reproduce table1": "trains or reruns for minutes to hours; tests/paper covers it",
    "gfgn reproduce thesis": "trains for an hour; tests/paper/test_thesis.py covers its page",
    "gfgn reproduce mechanism": "trains for minutes; tests/paper/test_mechanism.py covers it",
}
"""Commands, by their beginning, that are parsed but not run, and why."""
STUDY = {
    "title": "A study to add to",
    "datasets": ["texas", "wisconsin"],
    "models": {"gfgn-pair": {}},
    "grid": {"lr": [0.01]},
    "splits": 1,
    "seeds": 1,
    "training": {"max_epochs": 10, "patience": 10},
}
"""What a YAML block that shows a part of a study leaves out."""


class Block(NamedTuple):
    """A fenced block of a page; `line` is that of its fence, and `before` the text since the last block."""

    page: str
    line: int
    language: str
    text: str
    before: str = ""


def find_blocks(text: str, page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    start, fence, lines = 0, None, text.splitlines()
    for number, line in enumerate(lines, 1):
        if fence is None and (match := re.match(r"\s*(`{3,}|~{3,})\s*(.*)", line)):
            fence, language, opened = match[1], match[2].strip(), number
        elif fence is not None and line.strip() == fence:
            code = dedent("\n".join(lines[opened : number - 1])) + "\n"
            yield Block(page, opened, language, code, "\n".join(lines[start : opened - 1]))
            start, fence = number, None
    assert fence is None, f"{page}:{opened}: the block has no end"


class Reader:
    """Does what a page says, block by block: one namespace and one folder per page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": "page"}
        self.skipped: str | None = None
        self.followed: list[Block] = []

    def follow(self, block: Block) -> None:
        kinds = {"python": self.python, "console": self.console, "yaml": self.yaml, "text": self.output}
        where = f"{block.page}:{block.line}"
        assert block.language in kinds, f"{where}: a block must be one of {', '.join(kinds)}, got {block.language!r}"
        kinds[block.language](block)
        self.followed.append(block)

    def python(self, block: Block) -> None:
        """Executes statement by statement, and checks shapes (`# [4, 32]`, `# s: [E, 32]`) and values in comments."""
        code = re.sub(r"(for epoch in range)\(\d+\)", rf"\1({EPOCHS})", block.text)
        tree, lines = ast.parse(code, block.page), code.splitlines()
        if name := re.fullmatch(r"# (\w+\.py)", lines[0]):  # a file that commands of the page import
            (self.folder / name[1]).write_text(code, encoding="utf-8")
        for statement in tree.body:
            comment = lines[(statement.end_lineno or 1) - 1].partition("  # ")[2]
            ast.increment_lineno(statement, block.line)  # tracebacks show the line of the page
            exec(compile(ast.Module([statement], []), block.page, "exec"), self.names)
            expression, shapes, value = ast.unparse(statement), SHAPE.findall(comment), literal(comment)
            for name, shape in shapes:
                self.check_shape(name or expression.partition(" = ")[0], shape.split(", "))
            if isinstance(statement, ast.Expr) and not shapes and value is not None:
                np.testing.assert_equal(eval(expression, self.names), value)

    def check_shape(self, expression: str, stated: list[str]) -> None:
        shape = list(eval(expression, self.names).shape)
        sizes = [int(size.split()[0]) if size[0].isdigit() else None for size in stated]
        fits = len(shape) == len(sizes) and all(size in (None, true) for size, true in zip(sizes, shape, strict=True))
        assert fits, f"{expression} is {shape}, not [{', '.join(stated)}]"

    def console(self, block: Block) -> None:
        programs = {"gfgn": self.gfgn, "make": find_target, "pip": find_requirements, "torchrun": find_module}
        for number, line in enumerate(block.text.splitlines(), block.line + 1):
            where = f"{block.page}:{number}"
            assert line.startswith("$ "), f"{where}: a line must be a command after `$ `, got {line!r}"
            words = shlex.split(line[2:], comments=True)
            command, *filters = ([*part] for pipe, part in groupby(words, "|".__ne__) if pipe)
            assert command[0] in programs, f"{where}: a command must be of {', '.join(programs)}, got {command[0]}"
            printed = programs[command[0]](command)
            for each in filters if printed else []:
                check_filter(each, printed)

    def gfgn(self, command: list[str]) -> str:
        """Runs a command and returns what it prints. What `NOT_RUN` names or lacks data is parsed completely."""
        if any(" ".join(command).startswith(each) for each in NOT_RUN):
            parse(command)
            return ""
        try:
            result = CliRunner().invoke(app, command[1:])
        except pytest.skip.Exception as reason:
            parse(command)
            self.skipped = str(reason)
            return ""
        assert result.exit_code == 0, f"{' '.join(command)}: {result.output or result.exception!r}"
        return result.stdout

    def yaml(self, block: Block) -> None:
        """Reads a study, a part of one, or a file for `gfgn compare --config`."""
        content = yaml.safe_load(block.text)
        if content.keys() <= StudyFile.model_fields.keys():
            standard = {name: value for name, value in STUDY.items() if name != "grid" or "search" not in content}
            if "search" in content:  # training is as short as `EPOCHS`
                content["search"]["rungs"] = [1]
            make_study(standard | content, block.page, trust_code=True)
        else:
            path = self.folder / "options.yaml"
            path.write_text(block.text, encoding="utf-8")
            self.gfgn(["gfgn", "compare", "--config", path.name, "--check"])

    def output(self, block: Block) -> None:
        """Compares the headings, rows and formats of a table with what the command named before the block prints."""
        command = re.findall(r"`((?:make|gfgn) [^`]+)`", block.before)[-1].split()
        printed = "".join(map(self.gfgn, [command] if command[0] == "gfgn" else recipe(command[1])))
        assert table_format(block.text) == table_format(printed)


SHAPE = re.compile(r"(?:([\w.]+(?:\[\d+\])?): )?\[(\w[\w ]*(?:, \w[\w ]*)*)\]")


def literal(comment: str) -> Any:
    """The value that a comment states; `None` for a comment in words."""
    with suppress(SyntaxError, ValueError):
        return ast.literal_eval(comment)
    return None


def parse(command: list[str]) -> None:
    """Parses all arguments and options of a command as a call does."""
    parser, arguments = find_command(command)
    assert not (arguments and hasattr(parser, "commands")), f"{' '.join(command)}: there is no such command"
    parser.make_context(command[0], arguments)


def find_command(command: list[str]) -> tuple[Any, list[str]]:
    """The parser of a command, and the arguments and options for it."""
    parser: Any = typer.main.get_command(app)
    arguments = command[1:]
    while arguments and arguments[0] in getattr(parser, "commands", {}):
        parser, arguments = parser.commands[arguments[0]], arguments[1:]
    return parser, arguments


def find_target(command: list[str]) -> str:
    """Checks that the Makefile has the targets."""
    for target in command[1:]:
        recipe(target)
    return ""


def recipe(target: str) -> list[list[str]]:
    """The commands of gfgn that a target of the Makefile runs."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    rule = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", text, flags=re.M)
    assert rule is not None, f"the Makefile has no target {target}"
    return [shlex.split(line) for line in re.findall(r"^\t\$\(BIN\)/(gfgn .*)$", rule[1], flags=re.M)]


def find_module(command: list[str]) -> str:
    """Checks the options of `torchrun` and of the command that it starts; tests/cli/test_torchrun.py runs one."""
    given = parse_args(command[1:])
    assert (given.module, given.training_script) == (True, "gfgn")
    parse(["gfgn", *given.training_script_args])
    return ""


def find_requirements(command: list[str]) -> str:
    """Checks that this repository is what `pip install` names, and that it has the extras."""
    assert command[1] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for name in [argument for argument in command[2:] if not argument.startswith("-")]:
        match = re.fullmatch(r"(?:\.|gfgn)(?:\[([\w,-]+)\])?", name)
        assert match is not None, f"pip install must name `.` or gfgn, got {name}"
        assert {*(match[1] or "").split(",")} - {""} <= extras.keys(), (
            f"{name}: gfgn has the extras {', '.join(extras)}"
        )
    return ""


def check_filter(command: list[str], printed: str) -> None:
    """The program after a pipe is jq with keys of the JSON that the command before it prints."""
    assert command[0] == "jq", f"the program after a pipe must be jq, got {command[0]}"
    keys = set(re.findall(r'"(\w+)":', json.dumps(json.loads(printed))))
    missing = set(re.findall(r"\.(\w+)", command[-1])) - keys
    assert not missing, f"{shlex.join(command)}: the JSON has no {', '.join(missing)}"


def table_format(text: str) -> list[list[str]]:
    """The cells of a table with numbers as `#`. Which rows have a difference, and to what, depends on the numbers."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    table = [row[:4] if number == 0 else row[:3] for number, row in enumerate(row for row in rows if len(row) > 2)]
    return [
        [re.sub(r"against .*", "against", re.sub(r"[+−]?\d[\d.,]*\d|\d", "#", cell)) for cell in row] for row in table
    ]


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """A reader in a folder with what the pages speak of, where training is short and nothing is downloaded."""
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
    write_graphs(tmp_path)
    large = shutil.ignore_patterns("*.svg", "*.sqlite*", "ablations", "noise", "table1")
    shutil.copytree(ROOT / "results", tmp_path / "results", ignore=large)
    raw = Path(os.environ["GFGN_DATA"]) / "Cora" / "geom-gcn" / "raw"
    if raw.is_dir():
        shutil.copytree(raw, tmp_path / "data" / "Cora" / "raw")
    return Reader(tmp_path)


def write_graphs(folder: Path) -> None:
    """Writes the graphs of the pages; `customers` has names of its own, and a column of text that must be dropped."""
    write_tables(folder / "my-graph")
    write_tables(folder / "new-graph", seed=1)
    frame = write_tables(folder / "customers").drop(columns="truth")
    frame["comment"] = [f"comment {k}" for k in range(len(frame))]
    frame = frame.rename(columns={"id": "customer", "label": "plan"})
    frame.to_csv(folder / "customers" / "nodes.csv", index=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, reader: Reader) -> None:
    blocks = list(find_blocks(page.read_text(encoding="utf-8"), page.name))
    for block in blocks:
        content = yaml.safe_load(block.text) if block.language == "yaml" else {}
        if content.keys() >= {"title", "datasets", "models", "grid"}:  # the study that commands of the page run
            text = yaml.safe_dump(content | {"splits": 1, "seeds": 1})
            (reader.folder / "my-study.yaml").write_text(text, encoding="utf-8")
    for block in blocks:
        reader.follow(block)
    fences = re.findall(r"^ *```\w", page.read_text(encoding="utf-8"), flags=re.M)
    assert len(reader.followed) == len(fences)
    if reader.skipped:
        pytest.skip(reader.skipped)


def test_the_security_page_names_tests_that_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", text)
    assert [name for name in named if not (ROOT / "tests" / name).is_file()] == []
    rows = re.findall(r"^\|(.*)\|$", text.partition("## Not trusted")[2], flags=re.M)
    lines = [row for row in rows if not row.startswith((" what |", "---", " event |"))]
    assert len(lines) > 10
    assert [line for line in lines if "test_" not in line] == []


def test_commands_that_are_not_run_are_on_a_page() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [command for command in NOT_RUN if f"$ {command}" not in text] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    """Of inline code: `gfgn COMMAND --option …` has that command and option, and `--option` is one of some command."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for code in re.findall(r"`([^`\n]+)`", text):
        words = code.split()
        if words[0] == "make":
            find_target(words[:2])
        elif words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).is_file(), code
        elif words[0] == "gfgn" and len(words) > 1:
            parser, rest = find_command(words)
            assert rest != words[1:] or rest[0].startswith("-") or rest[0].isupper(), f"{code}: no such command"
            assert options_in(rest) <= options_of(parser), code
        elif words[0].startswith("--"):
            assert options_in(words) <= all_options(), code


def options_in(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if word.startswith("--")}


def options_of(parser: Any) -> set[str]:
    own = {name for parameter in parser.params for name in parameter.opts + parameter.secondary_opts}
    return own | {"--help", "--install-completion", "--show-completion"}


def all_options() -> set[str]:
    parsers = [typer.main.get_command(app)]
    for parser in parsers:
        parsers += getattr(parser, "commands", {}).values()
    return set().union(*map(options_of, parsers))


def test_the_models_page_lists_the_registry() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    expected = []
    for name, entry in MODELS.items():
        options = "<br>".join(f"`{key}` {value.default}: {value.meaning}" for key, value in entry.parameters.items())
        expected.append(f"| `{name}` | {entry.reference} | {options} |")
    expected += [f"| `{name}` | {model.reference} | {model.description} |" for name, model in CLASSICAL.items()]
    assert sorted(rows) == sorted(expected)


# --- the test itself --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "text", "error"),
    [
        ("", "anything", "must be one of python, console"),
        ("bash", "gfgn compare", "must be one of python, console"),
        ("python", "x = 1\nx + unknown", "name 'unknown' is not defined"),
        ("python", "from gfgn import Unknown", "cannot import name"),
        ("python", "import torch\nx = torch.ones(2, 3)  # [2, 4]", r"x is \[2, 3\], not \[2, 4\]"),
        ("python", "import torch\nx, y = torch.ones(2, 3)  # x: [3]; y: [1, 3]", r"y is \[3\], not \[1, 3\]"),
        ("python", "1 + 1, (2, 0.5)  # 2, (2, 0.25)", "not equal"),
        ("console", "gfgn models", "must be a command after"),
        ("console", "$ unknown", "must be of gfgn, make, pip, torchrun, got unknown"),
        ("console", "$ torchrun -m gfgn train --unknown", "No such option"),
        ("console", "$ gfgn unknown", "No such command"),
        ("console", "$ gfgn compare --unknown", "No such option"),
        ("console", "$ gfgn compare --splits many", "valid integer"),
        ("console", "$ gfgn compare nothing/ --check", "nothing"),
        ("console", "$ gfgn models unknown", "unexpected extra argument"),
        ("console", "$ gfgn reproduce table1 --unknown", "No such option"),
        ("console", "$ make unknown", "no target unknown"),
        ("console", "$ pip install .[unknown]", "has the extras"),
        ("yaml", "models: {unknown: {}}", "models: model must be one of"),
        ("yaml", "data: [my-graph/]\nunknown: 1", "options in options.yaml must be among"),
        ("text", "model  accuracy  interval\nmlp  1.0 ± 0.1  [0.9, 1.1]", "assert "),
    ],
)
def test_a_broken_block_is_reported(language: str, text: str, error: str, reader: Reader) -> None:
    block = Block("page.md", 1, language, text + "\n", "As `gfgn datasets` prints:")
    with pytest.raises(Exception, match=error):
        reader.follow(block)


def test_all_blocks_are_found() -> None:
    page = "text\n```python\nx = 1\n```\n- item\n\n    ~~~ console\n    $ make test\n    ~~~\n"
    first, second = find_blocks(page, "page.md")
    assert first == ("page.md", 2, "python", "x = 1\n", "text")
    assert second == ("page.md", 7, "console", "$ make test\n", "- item\n")
    with pytest.raises(AssertionError, match=r"page\.md:1: the block has no end"):
        list(find_blocks("```python\nx = 1\n", "page.md"))
