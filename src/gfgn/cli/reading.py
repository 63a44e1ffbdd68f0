"""The options of commands that read a graph of the user's own, and `Reader`, which opens graphs with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from gfgn.cli.app import Settings, echo, user_errors

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import Reading, ReadOptions
    from gfgn.data.raw import RawGraph

Scale = StrEnum("Scale", ["standard", "row", "none"])


def _option(kind: object, help: str, flag: str) -> object:
    return Annotated[kind, typer.Option(flag, help=help, rich_help_panel="A graph of your own")]


COLUMNS = {  # what is where in the tables: options that a model remembers, by keyword of `gfgn.data.read`
    "id": _option(str | None, "Column of ids in the node table.", "--id"),
    "label": _option(str | None, "Column of labels.", "--label"),
    "split": _option(str | None, "Column with train, val or test.", "--split"),
    "drop": _option(list[str] | None, "Column to leave out; repeat it for several.", "--drop"),
    "source_column": _option(str | None, "Column of sources in the edge table.", "--source"),
    "target_column": _option(str | None, "Column of targets in the edge table.", "--target"),
    "sep": _option(str | None, "Separator of CSV files; guessed by default.", "--sep"),
    "encoding": _option(str | None, "Encoding of CSV files; guessed by default.", "--encoding"),
    "skip_unknown": _option(bool, "Leave out edges with an unknown id.", "--skip-unknown"),
}
OPTIONS = COLUMNS | {
    "directed": _option(bool, "Keep the direction of edges.", "--directed"),
    "scale": _option(Scale | None, "Scale of the features: standard (by default), row or none.", "--scale"),
    "normalize": _option(bool, "Short for --scale row.", "--normalize"),
    "stratify": _option(bool, "Random splits keep the proportions of the classes.", "--stratify"),
    "metric": _option(str | None, "What to measure, such as accuracy or roc_auc.", "--metric"),
}


def read_options(given: Settings) -> ReadOptions:
    """The options of `gfgn.data.read`."""
    from gfgn.data import ReadOptions

    keywords = {name: value for name, value in given.items() if value and name in COLUMNS}
    if "sep" in keywords:
        keywords["sep"] = keywords["sep"].encode().decode("unicode_escape")  # a shell has no tab
    scale = given.get("scale")
    if given.get("normalize") and scale not in (None, Scale.row):
        raise ValueError(f"--normalize is short for --scale row, got it with --scale {scale}")
    return ReadOptions(
        **keywords,
        undirected=not given.get("directed"),
        scale="row" if given.get("normalize") else str(scale or "standard"),
        stratify=bool(given.get("stratify")),
        metric=given.get("metric"),
    )


@dataclass
class Reader:
    """Opens datasets by name, graph stores and tables.

    Attributes:
        early: Tables that have been read before PyTorch was imported, so that what is wrong with them is said at once.
    """

    given: Settings
    early: dict[str, RawGraph] = field(default_factory=dict)

    @property
    def options(self) -> ReadOptions:
        return read_options(self.given)

    @property
    def columns(self) -> Settings:
        """What a model remembers of how its tables were read."""
        known = {name: value for name, value in self.given.items() if value and name in COLUMNS}
        return known | ({"sep": self.options.sep} if "sep" in known else {})

    def read_early(self, sources: Sequence[str]) -> None:
        from gfgn.data.named.catalog import find_dataset
        from gfgn.data.reading import read_raw

        for source in sources:
            if is_tables(source):
                self.early[source] = read_raw(source, self.options)
            elif not is_store(source):
                find_dataset(source)

    def open(
        self,
        source: str,
        console: Console,
        check: bool = False,
        num_splits: int = 10,
        fractions: tuple[float, float] = (0.48, 0.32),
    ) -> Reading:
        """Loads the dataset of that name or reads the graph at that path; with `check`, prints how it was read.

        `num_splits` and `fractions` are those of random splits, which do not matter to a dataset with a name.
        """
        from gfgn.data import OnDiskGraph, Reading, load
        from gfgn.data.assemble import assemble, describe_reading
        from gfgn.data.mapped import mapped
        from gfgn.data.reading import read_raw
        from gfgn.data.splits import labelled_splits
        from gfgn.literal import literal

        if is_tables(source):
            with console.status(literal(f"reading {source}")):
                options = replace(self.options, num_splits=num_splits, fractions=fractions)
                raw = self.early.pop(source, None) or read_raw(source, options)
                reading = assemble(raw, options)
            if check:
                echo(describe_reading(reading))
            else:
                print_notes(source, reading.notes, console)
            return reading
        store = is_store(source)
        for name in [*(["check"] * (check and not store)), *(name for name, value in self.given.items() if value)]:
            if name != "metric":  # which every dataset has
                flag = "--" + name.removesuffix("_column").replace("_", "-")
                kind = f"the graph store {source!r}" if store else f"the name {source!r}"
                raise ValueError(f"{flag} is for tables of your own, got {kind}")
        if store:
            graph = OnDiskGraph.open(source)
            if check:
                echo(str(graph))
            drawn = not len(graph.parts) and graph.num_classes
            dataset = graph.dataset(labelled_splits(mapped(graph.y), num_splits, fractions) if drawn else None)
        else:
            dataset = load(source)
        metric = self.given.get("metric")
        return Reading(dataset if metric is None else replace(dataset, metric=metric), [])


Command = Callable[..., None]


def takes_graph(names: Iterable[str] = tuple(OPTIONS), early: bool = True) -> Callable[[Command], Command]:
    """Gives a command some of `OPTIONS`, which it receives as its argument `reader`; with `early`, tables are read
    before the command imports PyTorch and models."""

    def decorate(command: Command) -> Command:
        keyword = inspect.Parameter.KEYWORD_ONLY
        own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [parameter.replace(kind=keyword) for parameter in own if parameter.name != "reader"]
        for name in names:
            default = False if get_args(OPTIONS[name])[0] is bool else None
            parameters.append(inspect.Parameter(name, keyword, default=default, annotation=OPTIONS[name]))

        def run(**arguments: Any) -> None:
            reader = Reader({name: arguments.pop(name) for name in names})
            data = arguments["data"] or ()
            if early and not arguments.get("stream"):  # which reads tables in batches
                with user_errors():
                    reader.read_early([data] if isinstance(data, str) else data)
            command(**arguments, reader=reader)

        run.__doc__, run.__name__ = command.__doc__, command.__name__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def print_notes(source: str, notes: Sequence[str], console: Console) -> None:
    from gfgn.literal import literal

    for note in notes:
        console.print(literal(f"{source}: {note}"), soft_wrap=True)


def is_store(source: str) -> bool:
    """Whether `gfgn datasets pack` has written a folder."""
    return (Path(source) / "store.json").is_file()


def is_tables(source: str) -> bool:
    """Whether it is the path of a graph in files; a path that does not exist is an error."""
    from gfgn.data.named.catalog import DATASETS

    path = Path(source)
    if source.lower() in DATASETS or is_store(source):
        return False
    if path.name != source and not path.exists():
        raise ValueError(f"DATA must be the name of a dataset or the path of a graph, got {source!r}: no such file")
    return path.exists()
