"""Learned smoothing scores: the scores of the first layer of trained networks, by dimension.

At graph level a dimension has one score; at neighbor and pair level it has one per node or edge, of which quantiles are
kept. Networks are trained with the configuration selected for Table 1, or with one selected here by validation.
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
from gfgn.train.replica import Run
from gfgn.train.task import with_sparse_features

Floats = NDArray[np.float64]
Lines = list[dict[str, str]]
"""Rows of a CSV file."""

EIGHT = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")
FOUR = ("blogcatalog", "flickr", "texas", "cora")
FIGURES = {"gfgn-graph": EIGHT, "gfgn-neighbor": EIGHT, "gfgn-pair": FOUR}
"""The datasets in the paper's figures of each level."""
RAW = {"gfgn-graph": ("blogcatalog", "cora")}
"""Where the paper gives numbers, networks are also trained on features that are not row-normalized: a graph-level gate
reads a mean over nodes, whose scale depends on that of the features."""
SPLITS = 10
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
COLUMNS = ("min", "q05", "q25", "median", "q75", "q95", "max")
IDLE = 0.1
"""A dimension is idle if the norm of its weights is below this fraction of the largest: weight decay has driven its
weights to almost 0."""
LOW = 0.55
"""The score that separates low from high scores in the paper."""

SUMMARY_FILE, DIMENSIONS_FILE, RAW_FILE, PAGE_FILE = "summary.csv", "dimensions.csv", "raw.csv", "dimensions.md"
HYPER = ("lr", "weight_decay", "dropout", "lam")
SUMMARY = (
    *("dataset", "model", "split", "seed", *HYPER, "val", "test"),
    *("min", "mean", "max", "spread", "box", "below_055", "idle"),
)
DIMENSIONS = ("dataset", "model", "split", "dimension", "weight", "mean", "std", *COLUMNS)


@dataclass(frozen=True)
class Scores:
    """The first-layer scores of one trained network.

    Attributes:
        dataset: Name of the dataset.
        run: The run.
        quantiles: `[D, 7]`, quantiles of every dimension over graphs, nodes or edges, see `QUANTILES`.
        mean: `[D]`, the mean of every dimension.
        std: `[D]`, the standard deviation within every dimension; 0 at graph level.
        below: Fraction of all scores below `LOW`.
        weight: `[D]`, the norm of every dimension's weights `W`, as a fraction of the largest.
    """

    dataset: str
    run: Run
    quantiles: Floats
    mean: Floats
    std: Floats
    below: float
    weight: Floats

    @property
    def idle(self) -> float:
        """Fraction of idle dimensions, see `IDLE`; their scores stay at λ/2 and mean nothing."""
        return float((self.weight < IDLE).mean())

    @property
    def spread(self) -> float:
        """Standard deviation of the dimensions' mean scores."""
        return float(self.mean.std())

    @property
    def box(self) -> float:
        """Mean interquartile range within a dimension."""
        low, high = COLUMNS.index("q25"), COLUMNS.index("q75")
        return float((self.quantiles[:, high] - self.quantiles[:, low]).mean())

    def summary_row(self) -> tuple[Any, ...]:
        """Returns the row of this network in `summary.csv`."""
        run, replica = self.run, self.run.replica
        hyper = (getattr(replica, name) for name in ("split", "seed", *HYPER))
        low, high = float(self.quantiles[:, 0].min()), float(self.quantiles[:, -1].max())
        numbers = (low, float(self.mean.mean()), high, self.spread, self.box, self.below, self.idle)
        return (self.dataset, run.model, *hyper, run.val, run.test, *numbers)

    def dimension_rows(self) -> list[tuple[Any, ...]]:
        """Returns the rows of this network in `dimensions.csv`."""
        columns = (self.weight, self.mean, self.std, self.quantiles)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [
            (self.dataset, self.run.model, self.run.replica.split, dimension, weight, mean, std, *quantiles)
            for dimension, (weight, mean, std, quantiles) in enumerate(rows)
        ]


# --- training ---------------------------------------------------------------------------------------------------------


def first_layer_scores(dataset: Dataset, run: Run) -> Tensor:
    """Returns the first-layer scores of a trained GFGN: `[1, D]`, `[N, D]` or `[E, D]`, edges in the order of
    `dataset.graph.edge_index`.

    Args:
        dataset: The dataset that it was trained on.
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
    # Scores are in the order of the given edges, which may contain duplicates and self-loops: keep one row per edge.
    position = dataset.graph.edge_position
    kept = first.new_empty(dataset.graph.num_edges, first.size(1))
    kept[position[position >= 0]] = first[position >= 0]
    return kept


def summarize(dataset: Dataset, run: Run) -> Scores:
    """Returns the scores of a trained GFGN by dimension; arguments as for `first_layer_scores`."""
    values = first_layer_scores(dataset, run).double().cpu().numpy()
    assert run.state is not None
    norms = run.state["convs.0.lin.weight"].double().norm(dim=1).cpu().numpy()
    return Scores(
        dataset=dataset.name,
        run=run,
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
    """Trains a GFGN with seed 0 on the first splits of a dataset and returns its scores on each.

    Args:
        model: `"gfgn-graph"`, `"gfgn-neighbor"` or `"gfgn-pair"`.
        dataset: The dataset.
        configuration: Hyperparameters; `None` to select them from `grid` by the mean validation score over the splits.
        splits: Number of splits.
        device: Device for training.
        grid: Configurations to select from.
        max_epochs: Largest number of epochs.
        patience: Number of epochs without improvement after which a run stops.
    """
    if not find_model(model).gated:
        raise ValueError(f"model must be one with gates, got {model!r}")
    if not 1 <= splits <= len(dataset.splits):
        raise ValueError(f"splits must be 1 to {len(dataset.splits)} for {dataset.name!r}, got {splits}")
    data = with_sparse_features(dataset.to(device))
    settings: dict[str, Any] = {"max_epochs": max_epochs, "patience": patience, "device": device, "history": False}
    if configuration is None:
        tuning = train_replicas(model, data, make_replicas(model, grid, range(splits)), **settings, gates=False)
        configuration = select(tuning).best
    replicas = [make_replica(configuration, split) for split in range(splits)]
    runs = train_replicas(model, data, replicas, **settings, gates=False, keep_state=True)
    return [summarize(data, run) for run in runs]


def read_chosen(path: Path) -> dict[tuple[str, str], Configuration]:
    """Returns the selected configurations of a study's `chosen.csv` by dataset and model; none without a file."""
    chosen: dict[tuple[str, str], Configuration] = {}
    for row in read_csv(path):
        if row.get("chosen") == "1":
            own = (part.partition("=") for part in row.get("own", "").split())
            hyper: Configuration = {name: float(row[name]) for name in HYPER}
            chosen[row["dataset"], row["model"]] = hyper | {name: _value(text) for name, _, text in own}
    return chosen


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(
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
    """Trains the networks of the paper's figures of scores and writes the scores, figures and a page.

    Configurations come from `chosen.csv` in `out` or, for cells that it does not have, in `../table1`; cells without a
    selected configuration are skipped. If neither file exists, configurations are selected here from the paper's grid.
    Scores that the folder already has for the same configuration are not computed again.

    Args:
        out: Folder for the files, see `gfgn.paper.analyses` for it and the next three arguments.
        root: Folder of all datasets.
        device: Device for training.
        progress: Receives one line per step.
        figures: The datasets of each model.
        raw: The datasets of each model to also train on without row normalization, with a configuration selected here.
        splits: Number of splits.
        **settings: Further arguments of `train_scores`.
    """
    from gfgn.data import load

    chosen = read_chosen(out.parent / "table1" / "chosen.csv") | read_chosen(out / "chosen.csv")
    cells = [(SUMMARY_FILE, model, name) for model, names in figures.items() for name in names]
    cells += [(RAW_FILE, model, name) for model, names in raw.items() for name in names]
    skipped = [name for _, model, name in cells if chosen and (name, model) not in chosen]
    if skipped:
        progress(f"scores: skipping {', '.join(dict.fromkeys(skipped))}: a configuration is not selected yet")
        cells = [(file, model, name) for file, model, name in cells if (name, model) in chosen]
    for file, model, name in sorted(cells, key=lambda cell: _order(cell[2])):
        normalize = file == SUMMARY_FILE
        configuration = chosen.get((name, model)) if normalize else None
        if _has(read_csv(out / file), name, model, configuration, splits):
            continue
        source = "configuration of chosen.csv" if configuration else "configuration selected by validation"
        progress(f"scores: {model} on {name}{'' if normalize else ', without row normalization'}, {source}")
        dataset = load(name, root, normalize=normalize)
        scores = train_scores(model, dataset, configuration, splits=splits, device=device, **settings)
        replace_rows(out / file, SUMMARY, [each.summary_row() for each in scores])
        if normalize:
            replace_rows(out / DIMENSIONS_FILE, DIMENSIONS, scores[0].dimension_rows())
    written = [out / file for file in (SUMMARY_FILE, DIMENSIONS_FILE, RAW_FILE) if (out / file).is_file()]
    return [*written, *draw(out)]


def _has(lines: Lines, dataset: str, model: str, configuration: Configuration | None, splits: int) -> bool:
    """Returns whether a summary has all splits of a model on a dataset, with the configuration if one is given."""
    own = [line for line in lines if (line["dataset"], line["model"]) == (dataset, model)]
    wanted = configuration or {}
    same = all(float(line[name]) == wanted[name] for line in own for name in HYPER if name in wanted)
    return same and {int(line["split"]) for line in own} == set(range(splits))


def replace_rows(path: Path, header: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Replaces the rows of one model on one dataset in a table.

    Args:
        path: The table.
        header: Its columns, dataset and model first.
        rows: The new rows.
    """
    models = list(FIGURES)
    others = [line for line in read_csv(path) if (line["dataset"], line["model"]) != rows[0][:2]]
    lines = [tuple(line[name] for name in header) for line in others] + list(rows)
    lines.sort(key=lambda line: (models.index(line[1]), _order(line[0]), line[0]))
    write_csv(path, header, lines, digits=5)


def _order(dataset: str) -> int:
    return EIGHT.index(dataset) if dataset in EIGHT else len(EIGHT)


def draw(out: Path) -> list[Path]:
    """Draws the figures and writes the page from the tables of a folder and returns the paths: only the page without
    matplotlib, nothing without tables."""
    if not (out / SUMMARY_FILE).is_file():
        return []
    paths = []
    if find_spec("matplotlib") is not None:
        from gfgn.paper.figures.scores import boxes_figure, values_figure
        from gfgn.report.style import save_svg

        lines = read_csv(out / DIMENSIONS_FILE)
        quantiles, weights = _panels(lines, COLUMNS), _panels(lines, ("weight",))
        for model, panels in quantiles.items():
            idle = {name: values[:, 0] < IDLE for name, values in weights[model].items()}
            if model == "gfgn-graph":  # one score per dimension: all quantiles are the same
                figure = values_figure({name: values[:, 0] for name, values in panels.items()}, idle, model, LOW)
            else:
                figure = boxes_figure(panels, idle, model, LOW)
            paths.append(save_svg(figure, out / f"{model}.svg"))
    return [*paths, write_text(out / PAGE_FILE, page(read_csv(out / SUMMARY_FILE), read_csv(out / RAW_FILE)))]


def _panels(lines: Lines, columns: Sequence[str]) -> dict[str, dict[str, Floats]]:
    """Returns `[D, len(columns)]` by model and dataset."""
    panels: dict[str, dict[str, list[list[float]]]] = {}
    for line in lines:
        rows = panels.setdefault(line["model"], {}).setdefault(line["dataset"], [])
        rows.append([float(line[name]) for name in columns])
    return {model: {name: np.array(rows) for name, rows in named.items()} for model, named in panels.items()}


ABOUT = """Scores of the 64 dimensions of the first layer, at the epoch with the best validation score. The figures show
split 0, the tables all splits, with seed 0. Scores are between 0 and λ: with a score of 0 a node keeps its own value,
with a score of 1 it takes that of its neighbors. Columns, averaged over splits:

- *below 0.55*: fraction of all scores below the line in the figures;
- *spread*: standard deviation of the dimensions' mean scores, how differently dimensions are treated;
- *box*: mean interquartile range within a dimension, how differently nodes or pairs are treated (0 at graph level);
- *idle*: fraction of dimensions whose weights in `W` have vanished (a norm of less than a tenth of the largest). Their
  values are 0 and their scores stay at λ/2, where they are initialized; the figures show them in gray.

[summary.csv](summary.csv) has these numbers for every split, [dimensions.csv](dimensions.csv) the scores of every
dimension."""
RAW_ABOUT = """A graph-level gate reads the mean of `H W` over all nodes. Row normalization makes this mean smaller, so
the scale of the features decides how far scores can move from λ/2, where they are initialized. The paper does not say
how it scales features. The features of this table, unlike those of the other tables, are not normalized; its
configurations are selected by validation in the same way ([raw.csv](raw.csv))."""


def page(lines: Lines, raw: Lines) -> str:
    """Returns the page on scores in Markdown.

    Args:
        lines: The rows of `summary.csv`.
        raw: The rows of `raw.csv`.
    """
    parts = ["# Smoothing scores of the first layer, by dimension", "", ABOUT]
    for model, own in _group(lines, "model").items():
        parts += ["", f"## {model}", "", f"![{model}]({model}.svg)", "", _table(own)]
    for model, own in _group(raw, "model").items():
        parts += ["", f"## {model}, without row normalization", "", RAW_ABOUT, "", _table(own)]
    return "\n".join(parts)


def _group(lines: Lines, column: str) -> dict[str, Lines]:
    groups: dict[str, Lines] = {}
    for line in lines:
        groups.setdefault(line[column], []).append(line)
    return groups


def _table(lines: Lines) -> str:
    header = ["dataset", "λ", "range, split 0", "range, all splits", "below 0.55", "spread", "box", "idle", "test"]
    return markdown_table(header, [_page_row(name, own) for name, own in _group(lines, "dataset").items()])


def _page_row(name: str, lines: Lines) -> tuple[str, ...]:
    ranges = [(float(line["min"]), float(line["max"])) for line in lines]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    below, spread, box, idle, test = (
        float(np.mean([float(line[column]) for line in lines]))
        for column in ("below_055", "spread", "box", "idle", "test")
    )
    return (
        name,
        f"{float(lines[0]['lam']):g}",
        f"[{ranges[0][0]:.2f}, {ranges[0][1]:.2f}]",
        f"[{low:.2f}, {high:.2f}]",
        f"{100 * below:.1f}%",
        f"{spread:.3f}",
        f"{box:.3f}",
        f"{100 * idle:.0f}%",
        f"{100 * test:.1f}%",
    )
