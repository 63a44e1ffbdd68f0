"""What gates learn: the smoothing scores of the first layer, dimension by dimension, of trained networks.

At graph level a dimension has one score, at neighbour and pair level one a node or an edge, of which quantiles are
kept. Networks are trained at the configuration that Table 1 chose, or at one that validation chooses here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn.data.dataset import Dataset
from gfgn.experiments.outputs import markdown_table, read_csv, write_csv, write_text
from gfgn.experiments.study import PAPER_GRID, Configuration, make_replica, make_replicas, select
from gfgn.nn import GFGN
from gfgn.train.loop import train_replicas
from gfgn.train.models import find_model
from gfgn.train.replica import Replica, Run
from gfgn.train.task import with_sparse_features

Floats = NDArray[np.float64]
EIGHT = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")
FOUR = ("blogcatalog", "flickr", "texas", "cora")
FIGURES = {"gfgn-graph": EIGHT, "gfgn-neighbor": EIGHT, "gfgn-pair": FOUR}
"""The datasets that the paper's figures show of each level."""
SPLITS = 10
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
COLUMNS = ("min", "q05", "q25", "median", "q75", "q95", "max")
LOW = 0.55
"""The score that the paper divides low from high by."""


@dataclass(frozen=True)
class Scores:
    """The first-layer scores of one trained network.

    Attributes:
        dataset: Name of the dataset.
        model: Name of the model.
        replica: The run.
        val: Its best validation score.
        test: Its test score.
        quantiles: `[D, 7]`, of every dimension over graphs, nodes or edges, see `QUANTILES`.
        mean: `[D]`, the mean of every dimension.
        std: `[D]`, the standard deviation within every dimension; 0 at graph level.
        below: Share of all scores under `LOW`.
    """

    dataset: str
    model: str
    replica: Replica
    val: float
    test: float
    quantiles: Floats
    mean: Floats
    std: Floats
    below: float

    @property
    def spread(self) -> float:
        """Standard deviation over dimensions of their mean scores: how differently dimensions are treated."""
        return float(self.mean.std())

    @property
    def box(self) -> float:
        """Mean height of the dimensions' boxes, from the lower to the upper quartile: how differently nodes or pairs
        are treated within a dimension."""
        low, high = COLUMNS.index("q25"), COLUMNS.index("q75")
        return float((self.quantiles[:, high] - self.quantiles[:, low]).mean())


# --- training and reading ---------------------------------------------------------------------------------------------


def first_layer_scores(dataset: Dataset, run: Run) -> Tensor:
    """The first-layer scores of a trained GFGN: `[1, D]`, `[N, D]` or `[E, D]`, edges in the order of
    `dataset.graph.edge_index`.

    Args:
        dataset: What it was trained on.
        run: The run, with its state.
    """
    entry = find_model(run.model)
    if not entry.gated:
        raise ValueError(f"run must be of a model with gates, got {run.model!r}")
    if run.state is None:
        raise ValueError("run must have its state: train with keep_state=True")
    replica = run.replica
    settings = entry.settings(run.model, replica, {"num_nodes": dataset.num_nodes})
    model = cast(GFGN, entry.build(dataset.num_features, dataset.num_classes, replica.dropout, replica.lam, settings))
    model.load_state_dict(run.state)
    model.to(dataset.x.device).eval()
    with torch.no_grad():
        _, scores = model(dataset.x, dataset.graph, return_scores=True)
    first: Tensor = scores[0]
    if model.convs[0].level != "pair":
        return first
    # One row an edge of the graph: given edges may repeat, and given self-loops are no edges of the layer.
    slot = dataset.graph.slot
    kept = first.new_empty(dataset.graph.num_edges, first.size(1))
    kept[slot[slot >= 0]] = first[slot >= 0]
    return kept


def summarise(dataset: Dataset, run: Run) -> Scores:
    """The scores of a trained GFGN, dimension by dimension; arguments as for `first_layer_scores`."""
    values = first_layer_scores(dataset, run).double().cpu().numpy()
    return Scores(
        dataset=dataset.name,
        model=run.model,
        replica=run.replica,
        val=run.val,
        test=run.test,
        quantiles=np.quantile(values, QUANTILES, axis=0).T,
        mean=values.mean(axis=0),
        std=values.std(axis=0),
        below=float((values < LOW).mean()),
    )


def train_scores(
    model: str,
    dataset: Dataset,
    configuration: Configuration | None = None,
    *,
    splits: int = SPLITS,
    device: str = "cpu",
    grid: Sequence[Configuration] = tuple(PAPER_GRID),
    max_epochs: int = 400,
    patience: int = 100,
) -> list[Scores]:
    """Trains a GFGN on the first splits of a dataset, seed 0, and returns its scores on each.

    Args:
        model: `"gfgn-graph"`, `"gfgn-neighbor"` or `"gfgn-pair"`.
        dataset: The dataset.
        configuration: Hyper-parameters; `None` to choose from `grid` by the mean validation score over the splits.
        splits: Number of splits.
        device: Where to train.
        grid: What to choose from.
        max_epochs: Largest number of epochs.
        patience: Epochs without improvement after which a run ends.
    """
    if not find_model(model).gated:
        raise ValueError(f"model must be one with gates, got {model!r}")
    if not 1 <= splits <= len(dataset.splits):
        raise ValueError(f"splits must be 1 to {len(dataset.splits)} for {dataset.name!r}, got {splits}")
    data = with_sparse_features(dataset.to(device))
    settings: dict[str, Any] = {"max_epochs": max_epochs, "patience": patience, "device": device, "history": False}
    if configuration is None:
        tried = train_replicas(model, data, make_replicas(model, grid, range(splits)), **settings, gates=False)
        configuration = select(tried).best
    replicas = [make_replica(configuration, split) for split in range(splits)]
    runs = train_replicas(model, data, replicas, **settings, gates=False, keep_state=True)
    return [summarise(data, run) for run in runs]


def read_chosen(path: Path) -> dict[tuple[str, str], Configuration]:
    """The chosen configuration of every dataset and model of a study's `chosen.csv`; none where there is no file."""
    found: dict[tuple[str, str], Configuration] = {}
    for row in read_csv(path):
        if row.get("chosen") != "1":
            continue
        hyper: Configuration = {name: float(row[name]) for name in ("lr", "weight_decay", "dropout", "lam")}
        own = (part.partition("=") for part in row.get("own", "").split())
        found[row["dataset"], row["model"]] = hyper | {name: _value(text) for name, _, text in own}
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


# --- files ------------------------------------------------------------------------------------------------------------

SUMMARY_FILE, DIMENSIONS_FILE, PAGE_FILE = "summary.csv", "dimensions.csv", "dimensions.md"
HYPER = ("lr", "weight_decay", "dropout", "lam")
SUMMARY = (
    *("dataset", "model", "split", "seed", *HYPER, "val", "test"),
    *("min", "mean", "max", "spread", "box", "below_055"),
)
DIMENSIONS = ("dataset", "model", "split", "dimension", "mean", "std", *COLUMNS)
Lines = list[dict[str, str]]
"""Rows of a table by column, as they are read."""


def analyse(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Trains the networks of the paper's figures of scores and writes the scores, figures and a page; see
    `gfgn.experiments.analyses` for the arguments.

    Configurations are those of `chosen.csv` in `out`, else of that in `table1` beside it; what neither has is chosen
    here by the paper's grid. What the folder has already, at that configuration, is not trained again. Figures need
    matplotlib; without it they are drawn by the next call where there is one.
    """
    return run(out, root=root, device=device, progress=progress)


def run(
    out: Path,
    *,
    root: Path | None,
    device: str,
    progress: Callable[[str], None],
    figures: Mapping[str, Sequence[str]] = FIGURES,
    splits: int = SPLITS,
    **settings: Any,
) -> list[Path]:
    """As `analyse`, for some datasets or with other settings of `train_scores`.

    Args:
        out: See `gfgn.experiments.analyses`, and so on.
        figures: The datasets of each model.
        splits: Number of splits.
        **settings: Handed on to `train_scores`.
    """
    from gfgn.data import load

    chosen = read_chosen(out.parent / "table1" / "chosen.csv") | read_chosen(out / "chosen.csv")
    for name in dict.fromkeys(name for names in figures.values() for name in names):
        dataset: Dataset | None = None
        for model in (model for model, names in figures.items() if name in names):
            configuration = chosen.get((name, model))
            if _has(read_csv(out / SUMMARY_FILE), name, model, configuration, splits):
                continue
            dataset = dataset or load(name, root)
            source = "the configuration that was chosen" if configuration else "a configuration chosen by validation"
            progress(f"scores: {model} on {name}, {source}")
            keep(out, train_scores(model, dataset, configuration, splits=splits, device=device, **settings))
    return [out / SUMMARY_FILE, out / DIMENSIONS_FILE, *draw(out)]


def _has(lines: Lines, dataset: str, model: str, configuration: Configuration | None, splits: int) -> bool:
    """Whether a summary has all splits of a model on a dataset, at a configuration if one is given."""
    there = [line for line in lines if (line["dataset"], line["model"]) == (dataset, model)]
    wanted = configuration or {}
    same = all(float(line[name]) == wanted[name] for line in there for name in HYPER if name in wanted)
    return same and {int(line["split"]) for line in there} == set(range(splits))


def keep(out: Path, found: Sequence[Scores]) -> None:
    """Writes scores of one model on one dataset into the tables of a folder, in place of what these had of them: a
    summary of all, and the dimensions of the first."""
    first = found[0]
    own, order = (first.dataset, first.model), list(FIGURES)
    for file, header, rows in (
        (SUMMARY_FILE, SUMMARY, [_summary_row(scores) for scores in found]),
        (DIMENSIONS_FILE, DIMENSIONS, _dimension_rows(first)),
    ):
        others = [line for line in read_csv(out / file) if (line["dataset"], line["model"]) != own]
        lines = [tuple(line[name] for name in header) for line in others] + rows
        lines.sort(key=lambda line: (order.index(line[1]), _order(line[0]), line[0]))
        write_csv(out / file, header, lines, digits=5)


def _order(dataset: str) -> int:
    return EIGHT.index(dataset) if dataset in EIGHT else len(EIGHT)


def _summary_row(scores: Scores) -> tuple[Any, ...]:
    replica = scores.replica
    hyper = (replica.split, replica.seed, replica.lr, replica.weight_decay, replica.dropout, replica.lam)
    low, high = float(scores.quantiles[:, 0].min()), float(scores.quantiles[:, -1].max())
    numbers = (low, float(scores.mean.mean()), high, scores.spread, scores.box, scores.below)
    return (scores.dataset, scores.model, *hyper, scores.val, scores.test, *numbers)


def _dimension_rows(scores: Scores) -> list[tuple[Any, ...]]:
    rows = zip(scores.mean.tolist(), scores.std.tolist(), scores.quantiles.tolist(), strict=True)
    return [
        (scores.dataset, scores.model, scores.replica.split, dimension, mean, std, *quantiles)
        for dimension, (mean, std, quantiles) in enumerate(rows)
    ]


def draw(out: Path) -> list[Path]:
    """Draws the figures and writes the page from the tables of a folder; returns the paths. Without matplotlib, the
    page only."""
    paths = []
    if find_spec("matplotlib") is not None:
        from gfgn.report.plots.scores import boxes_figure, values_figure
        from gfgn.report.plots.style import save

        panels = _panels(read_csv(out / DIMENSIONS_FILE))
        for model, quantiles in panels.items():
            if model == "gfgn-graph":  # one score a dimension: all quantiles are the same
                figure = values_figure({name: values[:, 0] for name, values in quantiles.items()}, model, LOW)
            else:
                figure = boxes_figure(quantiles, model, LOW)
            paths += save(figure, out, model)
    return [*paths, write_text(out / PAGE_FILE, page(read_csv(out / SUMMARY_FILE)))]


def _panels(lines: Lines) -> dict[str, dict[str, Floats]]:
    """`[D, 7]`, the quantiles by model and dataset."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for line in lines:
        rows = found.setdefault(line["model"], {}).setdefault(line["dataset"], [])
        rows.append([float(line[name]) for name in COLUMNS])
    return {model: {name: np.array(rows) for name, rows in some.items()} for model, some in found.items()}


def page(lines: Lines) -> str:
    """The page on scores, in Markdown.

    Args:
        lines: The rows of `summary.csv`.
    """
    groups: dict[tuple[str, str], Lines] = {}
    for line in lines:
        groups.setdefault((line["model"], line["dataset"]), []).append(line)
    parts = ["# Smoothing scores of the first layer, by dimension", "", ABOUT]
    for model in dict.fromkeys(model for model, _ in groups):
        rows = [_page_row(name, some) for (of, name), some in groups.items() if of == model]
        header = ["dataset", "λ", "range, split 0", "range, all splits", "below 0.55", "spread", "box", "test"]
        parts += ["", f"## {model}", "", f"![{model}]({model}.svg)", "", markdown_table(header, rows)]
    return "\n".join(parts)


ABOUT = """The scores of the first layer, 64 dimensions, at the epoch with the best validation score; the figures show
split 0, seed 0, the tables all splits with seed 0. Scores lie between 0 and λ: 0 keeps a node's own value, 1 takes its
neighbours' instead. *Spread* is the standard deviation of the dimensions' mean scores: how differently dimensions are
treated. *Box* is the mean distance between the quartiles within a dimension: how differently nodes or pairs are treated
(at graph level 0). *Below 0.55* is the share of all scores under the line in the figures. Numbers are means over
splits. All of them are in [summary.csv](summary.csv), the scores of every dimension in
[dimensions.csv](dimensions.csv)."""


def _page_row(name: str, some: Lines) -> tuple[str, ...]:
    ranges = [(float(line["min"]), float(line["max"])) for line in some]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    mean = {key: float(np.mean([float(s[key]) for s in some])) for key in ("below_055", "spread", "box", "test")}
    return (
        name,
        f"{float(some[0]['lam']):g}",
        f"[{ranges[0][0]:.2f}, {ranges[0][1]:.2f}]",
        f"[{low:.2f}, {high:.2f}]",
        f"{100 * mean['below_055']:.1f}%",
        f"{mean['spread']:.3f}",
        f"{mean['box']:.3f}",
        f"{100 * mean['test']:.1f}%",
    )
