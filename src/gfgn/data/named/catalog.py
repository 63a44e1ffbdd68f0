"""The named datasets of `catalog.yaml`: what each is, how large, and where it comes from; listed without PyTorch."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from gfgn.lazy import Lazy


class Statistics(NamedTuple):
    """Sizes of a dataset; an edge is a pair of nodes, counted once."""

    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True, kw_only=True)
class Source:
    """Raw files of a dataset.

    Attributes:
        folder: Where they are, relative to the folder of all datasets.
        names: Their paths below it.
        url: Of the folder with these files. Without `url` and `archive`, there is no download.
        archive: URL of a zip archive with these files, in any folder of it.
    """

    folder: str
    names: tuple[str, ...]
    url: str = ""
    archive: str = ""

    @property
    def files(self) -> list[str]:
        """The raw files, relative to the folder of all datasets."""
        return [f"{self.folder}/{name}" for name in self.names]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One named dataset.

    Attributes:
        loader: Reads the dataset from the folder of all datasets, without normalizing the features: a `RawData`, or a
            `NodeDataset` if it is generated. In the catalog, the name of a function of `gfgn.data.named.loaders`.
        statistics: Sizes as loaded: undirected edges, no self-loops.
        paper: Sizes in the GFGN paper, which counts some edges before duplicates and self-loops are removed; `None` if
            the paper does not use the dataset.
        sources: The raw files; in the catalog, `files`.
        bag_of_words: Whether the features are word counts or weights, whose rows `load` normalizes.
        directed: Whether the raw files have directed edges and the loader accepts `directed`.
        standin: Whether this is a stand-in for a published dataset, with scores that must not be compared with it.
    """

    loader: Callable[..., Any]
    description: str
    source: str
    citation: str
    statistics: Statistics
    license: str = "see source"
    paper: Statistics | None = None
    sources: tuple[Source, ...] = ()
    bag_of_words: bool = False
    directed: bool = False
    metric: str = "accuracy"
    graphs: int = 1
    standin: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The raw files, relative to the folder of all datasets."""
        return tuple(file for source in self.sources for file in source.files)

    @property
    def kind(self) -> str:
        """`"embedded"`, `"download"` or `"stand-in"`."""
        return "stand-in" if self.standin else "download" if self.sources else "embedded"


def _expand(name: str) -> Iterator[str]:
    """`a_{0..9}.npz` stands for ten names."""
    low, high = re.findall(r"{(\d)\.\.(\d)}", name)[0] if "{" in name else (0, 0)
    return (re.sub("{.*}", str(k), name) for k in range(int(low), int(high) + 1))


def _entry(given: dict[str, Any]) -> Entry:
    loader = partial(Lazy("gfgn.data.named.loaders", given.pop("loader")), **given.pop("options", {}))
    sources = [
        Source(**each | {"names": tuple(full for name in each["names"] for full in _expand(name))})
        for each in given.pop("files", ())
    ]
    given |= {name: Statistics(*given[name]) for name in ("statistics", "paper") if name in given}
    return Entry(loader=loader, sources=tuple(sources), **given)


def _read_catalog() -> dict[str, Entry]:
    import yaml

    text = (files("gfgn.data.named") / "catalog.yaml").read_text("utf-8")
    content = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {name: _entry(fields) for name, fields in content.items()}


DATASETS: dict[str, Entry] = _read_catalog()


def find_dataset(name: str) -> Entry:
    """The entry of a dataset; an unknown name is an error."""
    if name.lower() not in DATASETS:
        close = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(map(repr, DATASETS))}, got {name!r}{hint}")
    return DATASETS[name.lower()]
