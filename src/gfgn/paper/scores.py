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
from gfgn.nn import GFGN
from gfgn.nn.registry import find_model
from gfgn.paper.outputs import markdown_table, read_csv, write_csv, write_text
from gfgn.runs.grid import PAPER_GRID, Configuration, make_replica, make_replicas
from gfgn.runs.selection import select
from gfgn.train.loop import train_replicas
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
RAW = {"gfgn-graph": ("blogcatalog", "cora")}
"""Where the paper gives numbers, networks are trained on features as they come too: what the gates see of a graph is a
mean over its nodes, whose size depends on how features are scaled."""
IDLE = 0.1
"""Share of the largest norm below which a dimension's weights count as vanished: weight decay drives those of
dimensions that are not needed towards 0, orders of magnitude below the others."""
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
        weight: `[D]`, the norm of every dimension's weights `W`, as a share of the largest.
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
    weight: Floats

    @property
    def idle(self) -> float:
        """Share of dimensions whose weights have vanished, see `IDLE`; their scores stay at λ/2 and mean nothing."""
        return float((self.weight < IDLE).mean())

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
    settings = entry.settings(run.model, replica.options, {"num_nodes": dataset.num_nodes})
    model = cast(GFGN, entry.build(dataset.num_features, dataset.num_classes, replica.dropout, replica.lam, settings))
    model.load_state_dict(run.state)
    model.to(dataset.x.device).eval()
    with torch.no_grad():
        _, scores = model(dataset.x, dataset.graph, return_scores=True)
    first: Tensor = scores[0]
    if model.convs[0].level != "pair":
        return first
    # One row an edge of the graph: given edges may repeat, and given self-loops are no edges of the layer.
    slot = dataset.graph.edge_position
    kept = first.new_empty(dataset.graph.num_edges, first.size(1))
    kept[slot[slot >= 0]] = first[slot >= 0]
    return kept


def summarise(dataset: Dataset, run: Run) -> Scores:
    """The scores of a trained GFGN, dimension by dimension; arguments as for `first_layer_scores`."""
    values = first_layer_scores(dataset, run).double().cpu().numpy()
    assert run.state is not None
    norms = run.state["convs.0.lin.weight"].double().norm(dim=1).cpu().numpy()
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
        weight=norms / norms.max(),
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
RAW_FILE = "raw.csv"
"""Summaries of networks trained on features as they come, rows not normalised."""
HYPER = ("lr", "weight_decay", "dropout", "lam")
SUMMARY = (
    *("dataset", "model", "split", "seed", *HYPER, "val", "test"),
    *("min", "mean", "max", "spread", "box", "below_055", "idle"),
)
DIMENSIONS = ("dataset", "model", "split", "dimension", "weight", "mean", "std", *COLUMNS)
Lines = list[dict[str, str]]
"""Rows of a table by column, as they are read."""


def analyse(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Trains the networks of the paper's figures of scores and writes the scores, figures and a page; see
    `gfgn.paper.analyses` for the arguments.

    Configurations are those of `chosen.csv` in `out`, else of that in `table1` beside it; what neither has waits until
    one has it. Without such a file, configurations are chosen here by the paper's grid. What the folder has already, at
    that configuration, is not trained again. Figures need matplotlib; without it they are drawn by the next call where
    there is one.
    """
    return run(out, root=root, device=device, progress=progress)


def run(
    out: Path,
    *,
    root: Path | None,
    device: str,
    progress: Callable[[str], None],
    figures: Mapping[str, Sequence[str]] = FIGURES,
    raw: Mapping[str, Sequence[str]] = RAW,
    splits: int = SPLITS,
    **settings: Any,
) -> list[Path]:
    """As `analyse`, for some datasets or with other settings of `train_scores`.

    Args:
        out: See `gfgn.paper.analyses`, and so on.
        figures: The datasets of each model.
        raw: The datasets of each model that it is trained on with features as they come too, at a configuration that
            validation chooses.
        splits: Number of splits.
        **settings: Handed on to `train_scores`.
    """
    from gfgn.data import load

    chosen = read_chosen(out.parent / "table1" / "chosen.csv") | read_chosen(out / "chosen.csv")
    wanted = [(SUMMARY_FILE, model, name) for model, names in figures.items() for name in names]
    wanted += [(RAW_FILE, model, name) for model, names in raw.items() for name in names]
    waiting = [name for file, model, name in wanted if chosen and (name, model) not in chosen]
    if waiting:
        progress(f"scores: waiting until all configurations are chosen on {', '.join(dict.fromkeys(waiting))}")
        wanted = [place for place in wanted if (place[2], place[1]) in chosen]
    for file, model, name in sorted(wanted, key=lambda place: _order(place[2])):
        configuration = chosen.get((name, model)) if file == SUMMARY_FILE else None
        if _has(read_csv(out / file), name, model, configuration, splits):
            continue
        source = "the configuration that was chosen" if configuration else "a configuration chosen by validation"
        as_is = ", features as they come" if file == RAW_FILE else ""
        progress(f"scores: {model} on {name}{as_is}, {source}")
        dataset = load(name, root, normalize=file == SUMMARY_FILE)
        found = train_scores(model, dataset, configuration, splits=splits, device=device, **settings)
        put(out / file, SUMMARY, [_summary_row(scores) for scores in found])
        if file == SUMMARY_FILE:
            put(out / DIMENSIONS_FILE, DIMENSIONS, _dimension_rows(found[0]))
    written = [out / file for file in (SUMMARY_FILE, DIMENSIONS_FILE, RAW_FILE) if (out / file).is_file()]
    return [*written, *draw(out)]


def _has(lines: Lines, dataset: str, model: str, configuration: Configuration | None, splits: int) -> bool:
    """Whether a summary has all splits of a model on a dataset, at a configuration if one is given."""
    there = [line for line in lines if (line["dataset"], line["model"]) == (dataset, model)]
    wanted = configuration or {}
    same = all(float(line[name]) == wanted[name] for line in there for name in HYPER if name in wanted)
    return same and {int(line["split"]) for line in there} == set(range(splits))


def put(path: Path, header: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Puts rows of one model on one dataset into a table, in place of what it had of them.

    Args:
        path: The table.
        header: Its columns, dataset and model first.
        rows: The rows.
    """
    order = list(FIGURES)
    others = [line for line in read_csv(path) if (line["dataset"], line["model"]) != rows[0][:2]]
    lines = [tuple(line[name] for name in header) for line in others] + list(rows)
    lines.sort(key=lambda line: (order.index(line[1]), _order(line[0]), line[0]))
    write_csv(path, header, lines, digits=5)


def _order(dataset: str) -> int:
    return EIGHT.index(dataset) if dataset in EIGHT else len(EIGHT)


def _summary_row(scores: Scores) -> tuple[Any, ...]:
    replica = scores.replica
    hyper = (replica.split, replica.seed, replica.lr, replica.weight_decay, replica.dropout, replica.lam)
    low, high = float(scores.quantiles[:, 0].min()), float(scores.quantiles[:, -1].max())
    numbers = (low, float(scores.mean.mean()), high, scores.spread, scores.box, scores.below, scores.idle)
    return (scores.dataset, scores.model, *hyper, scores.val, scores.test, *numbers)


def _dimension_rows(scores: Scores) -> list[tuple[Any, ...]]:
    columns = (scores.weight, scores.mean, scores.std, scores.quantiles)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        (scores.dataset, scores.model, scores.replica.split, dimension, weight, mean, std, *quantiles)
        for dimension, (weight, mean, std, quantiles) in enumerate(rows)
    ]


def draw(out: Path) -> list[Path]:
    """Draws the figures and writes the page from the tables of a folder; returns the paths. Without matplotlib, the
    page only; without tables, nothing."""
    if not (out / SUMMARY_FILE).is_file():
        return []
    paths = []
    if find_spec("matplotlib") is not None:
        from gfgn.paper.figures.scores import boxes_figure, values_figure
        from gfgn.report.style import save

        lines = read_csv(out / DIMENSIONS_FILE)
        quantiles, weights = _panels(lines, COLUMNS), _panels(lines, ("weight",))
        for model, panels in quantiles.items():
            idle = {name: values[:, 0] < IDLE for name, values in weights[model].items()}
            if model == "gfgn-graph":  # one score a dimension: all quantiles are the same
                figure = values_figure({name: values[:, 0] for name, values in panels.items()}, idle, model, LOW)
            else:
                figure = boxes_figure(panels, idle, model, LOW)
            paths += save(figure, out, model)
    return [*paths, write_text(out / PAGE_FILE, page(read_csv(out / SUMMARY_FILE), read_csv(out / RAW_FILE)))]


def _panels(lines: Lines, columns: Sequence[str]) -> dict[str, dict[str, Floats]]:
    """`[D, len(columns)]` by model and dataset."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for line in lines:
        rows = found.setdefault(line["model"], {}).setdefault(line["dataset"], [])
        rows.append([float(line[name]) for name in columns])
    return {model: {name: np.array(rows) for name, rows in some.items()} for model, some in found.items()}


def page(lines: Lines, raw: Lines) -> str:
    """The page on scores, in Markdown.

    Args:
        lines: The rows of `summary.csv`.
        raw: The rows of `raw.csv`.
    """
    parts = ["# Smoothing scores of the first layer, by dimension", "", ABOUT]
    for model in dict.fromkeys(line["model"] for line in lines):
        own = [line for line in lines if line["model"] == model]
        parts += ["", f"## {model}", "", f"![{model}]({model}.svg)", "", _table(own)]
    for model in dict.fromkeys(line["model"] for line in raw):
        own = [line for line in raw if line["model"] == model]
        parts += ["", f"## {model}, features as they come", "", RAW_ABOUT, "", _table(own)]
    return "\n".join(parts)


def _table(lines: Lines) -> str:
    groups: dict[str, Lines] = {}
    for line in lines:
        groups.setdefault(line["dataset"], []).append(line)
    header = ["dataset", "λ", "range, split 0", "range, all splits", "below 0.55", "spread", "box", "idle", "test"]
    return markdown_table(header, [_page_row(name, some) for name, some in groups.items()])


RAW_ABOUT = """The gate sees the mean of `H W` over all nodes, which is smaller where rows of features are divided by
their sums: how features are scaled decides how far scores can move from λ/2, where they begin. The paper does not say
how it scales features. This table is beside the config of the others; its configurations are chosen by validation in
the same way ([raw.csv](raw.csv))."""
ABOUT = """The scores of the first layer, 64 dimensions, at the epoch with the best validation score; the figures show
split 0, seed 0, the tables all splits with seed 0. Scores lie between 0 and λ: 0 keeps a node's own value, 1 takes its
neighbours' instead. *Spread* is the standard deviation of the dimensions' mean scores: how differently dimensions are
treated. *Box* is the mean distance between the quartiles within a dimension: how differently nodes or pairs are treated
(at graph level 0). *Below 0.55* is the share of all scores under the line in the figures. *Idle* is the share of
dimensions whose weights in `W` have vanished, less than a tenth of the largest: what they carry is 0, and their scores
stay at λ/2, where they begin; the figures have them in grey. Numbers are means over splits. All of them are in
[summary.csv](summary.csv), the scores of every dimension in [dimensions.csv](dimensions.csv)."""


def _page_row(name: str, some: Lines) -> tuple[str, ...]:
    ranges = [(float(line["min"]), float(line["max"])) for line in some]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    names = ("below_055", "spread", "box", "idle", "test")
    mean = {key: float(np.mean([float(line[key]) for line in some])) for key in names}
    return (
        name,
        f"{float(some[0]['lam']):g}",
        f"[{ranges[0][0]:.2f}, {ranges[0][1]:.2f}]",
        f"[{low:.2f}, {high:.2f}]",
        f"{100 * mean['below_055']:.1f}%",
        f"{mean['spread']:.3f}",
        f"{mean['box']:.3f}",
        f"{100 * mean['idle']:.0f}%",
        f"{100 * mean['test']:.1f}%",
    )
