"""The options of commands that read a graph of the user's own, and how they open it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gfgn.cli.app import echo, user_errors

if TYPE_CHECKING:
    from rich.console import Console

    from gfgn.data import NodeDataset, Reading
    from gfgn.data.raw import RawGraph
    from gfgn.data.raw import ReadOptions as Options

PANEL = "A graph of your own"
Scale = StrEnum("Scale", ["standard", "row", "none"])


def _option(help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=PANEL)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a graph; each field is an option of the commands that `takes_graph` decorates."""

    id: Annotated[str | None, _option("Column of ids in the node table.", "--id")] = None
    label: Annotated[str | None, _option("Column of labels.", "--label")] = None
    split: Annotated[str | None, _option("Column with train, val or test.", "--split")] = None
    drop: Annotated[list[str], _option("Column to leave out; repeat it for several.", "--drop")] = field(
        default_factory=list
    )
    source: Annotated[str | None, _option("Column of sources in the edge table.", "--source")] = None
    target: Annotated[str | None, _option("Column of targets in the edge table.", "--target")] = None
    sep: Annotated[str | None, _option("Separator of CSV files; guessed by default.", "--sep")] = None
    encoding: Annotated[str | None, _option("Encoding of CSV files; guessed by default.", "--encoding")] = None
    skip_unknown: Annotated[bool, _option("Leave out edges with an unknown id.", "--skip-unknown")] = False
    directed: Annotated[bool, _option("Keep the direction of edges.", "--directed")] = False
    scale: Annotated[
        Scale | None,
        _option("Scale of the features: standard (by default), row or none.", "--scale"),
    ] = None
    normalize: Annotated[bool, _option("Short for --scale row.", "--normalize")] = False
    stratify: Annotated[bool, _option("Random splits keep the proportions of the classes.", "--stratify")] = False
    metric: Annotated[str | None, _option("What to measure, such as accuracy or roc_auc.", "--metric")] = None

    def arguments(self) -> Options:
        """The options of `gfgn.data.read`."""
        from gfgn.data.raw import ReadOptions as Options

        if self.normalize and self.scale not in (None, Scale.row):
            raise ValueError(f"--normalize is short for --scale row, got it with --scale {self.scale}")
        return Options(
            **self.columns(),
            undirected=not self.directed,
            scale="row" if self.normalize else str(self.scale or "standard"),
            stratify=self.stratify,
            metric=self.metric,
        )

    def columns(self) -> dict[str, Any]:
        """The arguments of `gfgn.data.read` that say what is where in the tables."""
        return {
            "id": self.id,
            "label": self.label,
            "split": self.split,
            "drop": self.drop,
            "source_column": self.source,
            "target_column": self.target,
            "sep": self.sep and self.sep.encode().decode("unicode_escape"),  # a shell has no tab
            "encoding": self.encoding,
            "skip_unknown": self.skip_unknown,
        }


def takes_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `ReadOptions`, which it receives as its argument `reading`."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = inspect.signature(command, eval_str=True).parameters.values()
    hints, defaults = get_type_hints(ReadOptions, include_extras=True), asdict(ReadOptions())
    parameters = [parameter.replace(kind=keyword) for parameter in own if parameter.name != "reading"]
    parameters += [
        inspect.Parameter(name, keyword, default=defaults[name], annotation=hints[name]) for name in defaults
    ]

    def run(**arguments: Any) -> None:
        options = ReadOptions(**{name: arguments.pop(name) for name in defaults})
        if not arguments.get("write_config") and not arguments.get("stream"):
            given = arguments["data"] or ()
            read_early([given] if isinstance(given, str) else given, options)
        command(**arguments, reading=options)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


_early: dict[tuple[str, str], RawGraph] = {}


def read_early(sources: Sequence[str], options: ReadOptions) -> None:
    """Reads tables before a command imports PyTorch and models, so that what is wrong with them is said at once."""
    from gfgn.data.named.catalog import DATASETS
    from gfgn.data.reading import read_raw

    with user_errors():
        for source in sources:
            path = Path(source)
            if source.lower() not in DATASETS and path.exists() and not is_store(path):
                _early[source, repr(options)] = read_raw(source, options.arguments())


def open_data(
    source: str,
    options: ReadOptions,
    console: Console,
    check: bool = False,
    num_splits: int = 10,
    fractions: tuple[float, float] = (0.48, 0.32),
) -> Reading:
    """Loads the dataset of that name or reads the graph at that path; with `check`, prints how it was read.

    `num_splits` and `fractions` are those of random splits, which do not matter to a dataset with a name.
    """
    from gfgn.data import DATASETS, Reading, describe_reading
    from gfgn.data.assemble import assemble
    from gfgn.data.reading import read_raw
    from gfgn.literal import literal

    path = Path(source)
    if source.lower() in DATASETS or not path.exists():
        if path.name != source:
            raise ValueError(f"DATA must be the name of a dataset or the path of a graph, got {source!r}: no such file")
        return Reading(_load_named(source, options, check), [])
    if is_store(path):
        return Reading(_open_store(path, options, check, num_splits, fractions), [])
    with console.status(literal(f"reading {source}")):
        chosen = replace(options.arguments(), num_splits=num_splits, fractions=fractions)
        early = _early.pop((source, repr(options)), None)
        reading = assemble(read_raw(source, chosen) if early is None else early, chosen)
    if check:
        echo(describe_reading(reading))
    else:
        print_notes(source, reading.notes, console)
    return reading


def print_notes(source: str, notes: Sequence[str], console: Console) -> None:
    from gfgn.literal import literal

    for note in notes:
        console.print(literal(f"{source}: {note}"), soft_wrap=True)


def is_store(path: Path) -> bool:
    """Whether `gfgn datasets pack` has written a folder."""
    return (path / "store.json").is_file()


def _open_store(
    path: Path, options: ReadOptions, check: bool, num_splits: int, fractions: tuple[float, float]
) -> NodeDataset:
    """A graph on disk; without splits it gets random ones."""
    from gfgn.data import OnDiskGraph
    from gfgn.data.mapped import mapped
    from gfgn.data.splits import labelled_splits

    for option in _used(options):
        raise ValueError(f"{option} is for tables, got the graph store {str(path)!r}")
    store = OnDiskGraph.open(path)
    if check:
        echo(str(store))
    splits = None
    if not len(store.parts) and store.num_classes:
        splits = labelled_splits(mapped(store.y), num_splits, fractions)
    dataset = store.dataset(splits)
    return dataset if options.metric is None else replace(dataset, metric=options.metric)


def _used(options: ReadOptions) -> list[str]:
    """The options that were given, but for the metric, which every dataset takes."""
    return [f"--{name.replace('_', '-')}" for name, value in asdict(options).items() if value and name != "metric"]


def _load_named(name: str, options: ReadOptions, check: bool) -> NodeDataset:
    """A dataset of the registry, of which only the metric can be chosen."""
    from gfgn.data import load

    for option in ["--check"] * check + _used(options):
        raise ValueError(f"{option} is for a graph of your own, got the name {name!r}")
    dataset = load(name)
    return dataset if options.metric is None else replace(dataset, metric=options.metric)
