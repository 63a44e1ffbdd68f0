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

from gfgn.data.dataset import NodeDataset
from gfgn.nn import GFGN
from gfgn.nn.registry import find_model
from gfgn.paper.outputs import markdown_table, read_csv, write_csv, write_text
from gfgn.runs.grid import PAPER_GRID, Configuration, make_replica, make_replicas
from gfgn.runs.selection import select
from gfgn.train.loop import train_replicas
from gfgn.train.replica import Run
from gfgn.train.task import with_sparse_features

Floats = NDArray[np.float64]
Lines = list[dict[str, str]]  # rows of a CSV file

EIGHT = ("blogcatalog", "flickr", "texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")
FOUR = ("blogcatalog", "flickr", "texas", "cora")
FIGURES = {"gfgn-graph": EIGHT, "gfgn-neighbor": EIGHT, "gfgn-pair": FOUR}  # as in the paper
RAW = {"gfgn-graph": ("blogcatalog", "cora")}  # where the paper gives numbers, also without row normalization
SPLITS = 10
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
COLUMNS = ("min", "q05", "q25", "median", "q75", "q95", "max")
IDLE = 0.1  # a dimension is idle if the norm of its weights, after weight decay, is below this fraction of the largest
UNDECIDED = 0.01  # a dimension is undecided if 90% of its scores are at most this far from λ/2, where they begin
LOW = 0.55  # the score that separates low from high scores in the paper

SUMMARY_FILE, DIMENSIONS_FILE, RAW_FILE, PAGE_FILE = "summary.csv", "dimensions.csv", "raw.csv", "dimensions.md"
HYPER = ("lr", "weight_decay", "dropout", "lam")
SUMMARY = (
    *("dataset", "model", "split", "seed", *HYPER, "val", "test"),
    *("min", "mean", "max", "spread", "box", "below_055", "idle"),
)
DIMENSIONS = ("dataset", "model", "split", "dimension", "weight", "mean", "std", *COLUMNS)


@dataclass(frozen=True)
class Scores:
    """The first-layer scores of one trained network; arrays have one row per dimension."""

    dataset: str
    run: Run
    quantiles: Floats  # over graphs, nodes or edges, see `QUANTILES`
    mean: Floats
    std: Floats  # 0 at graph level
    below: float  # fraction of all scores below `LOW`
    weight: Floats  # norm of the weights `W` as a fraction of the largest

    @property
    def idle(self) -> float:
        """Fraction of idle dimensions, see `IDLE`; their scores stay at λ/2 and mean nothing."""
        return float((self.weight < IDLE).mean())

    @property
    def box(self) -> float:
        """Mean interquartile range within a dimension."""
        return float((self.quantiles[:, COLUMNS.index("q75")] - self.quantiles[:, COLUMNS.index("q25")]).mean())

    def summary_row(self) -> tuple[Any, ...]:
        """Returns the row of this network in `summary.csv`."""
        hyper = (getattr(self.run.replica, name) for name in ("split", "seed", *HYPER))
        scores = (self.quantiles.min(), self.mean.mean(), self.quantiles.max(), self.mean.std())
        numbers = (*map(float, scores), self.box, self.below, self.idle)
        return (self.dataset, self.run.model, *hyper, self.run.val, self.run.test, *numbers)

    def dimension_rows(self) -> list[tuple[Any, ...]]:
        """Returns the rows of this network in `dimensions.csv`."""
        rows = np.column_stack([self.weight, self.mean, self.std, self.quantiles]).tolist()
        first = (self.dataset, self.run.model, self.run.replica.split)
        return [(*first, dimension, *row) for dimension, row in enumerate(rows)]


# --- training ---------------------------------------------------------------------------------------------------------


def first_layer_scores(dataset: NodeDataset, run: Run) -> Tensor:
    """Returns the first-layer scores of a GFGN, given the dataset that it was trained on and the run with its state:
    `[1, D]`, `[N, D]` or `[E, D]`, edges in the order of `dataset.graph.edge_index`."""
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


def summarize(dataset: NodeDataset, run: Run) -> Scores:
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
    dataset: NodeDataset,
    configuration: Configuration | None = None,
    *,
    splits: int = SPLITS,
    device: str = "cpu",
    grid: Sequence[Configuration] = tuple(PAPER_GRID),
    max_epochs: int = 400,
    patience: int = 100,
) -> list[Scores]:
    """Trains a GFGN with seed 0 on the first splits of a dataset and returns its scores on each; without a
    `configuration`, the one of `grid` with the best mean validation score over the splits is used."""
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


def read_chosen(path: Path, variant: str | None = None) -> dict[tuple[str, str], Configuration]:
    """Returns the selected configurations of a study's `chosen.csv` by dataset and model, of one `variant` if the study
    has several; none without a file."""
    chosen: dict[tuple[str, str], Configuration] = {}
    for row in read_csv(path):
        if row.get("chosen") == "1" and row.get("variant") == variant:
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
        out, root, device, progress: See `gfgn.paper.analyses`.
        figures: The datasets of each model.
        raw: The datasets of each model to also train on without row normalization, with a configuration selected here.
        splits: Number of splits.
        **settings: Further arguments of `train_scores`.
    """
    from gfgn.data import load

    table1 = out.parent / "table1" / "chosen.csv"
    chosen = read_chosen(table1) | read_chosen(out / "chosen.csv")
    if table1.is_file():
        progress(f"scores: configurations that {out / 'chosen.csv'} lacks are taken from {table1}")
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
    """Replaces the rows of one model on one dataset in a table, whose first columns are dataset and model."""
    models = list(FIGURES)
    others = [line for line in read_csv(path) if (line["dataset"], line["model"]) != rows[0][:2]]
    lines = [tuple(line[name] for name in header) for line in others] + list(rows)
    lines.sort(key=lambda line: (models.index(line[1]), _order(line[0]), line[0]))
    write_csv(path, header, lines, digits=5)


def _order(dataset: str) -> int:
    return EIGHT.index(dataset) if dataset in EIGHT else len(EIGHT)


def draw(out: Path) -> list[Path]:
    """Draws the figures and writes the page from the tables of a folder: only the page without matplotlib."""
    if not (out / SUMMARY_FILE).is_file():
        return []
    summary, lines = read_csv(out / SUMMARY_FILE), read_csv(out / DIMENSIONS_FILE)
    lams = {(line["dataset"], line["model"]): float(line["lam"]) for line in summary}
    quantiles = {
        model: {name: _numbers(panel, *COLUMNS) for name, panel in _group(own, "dataset").items()}
        for model, own in _group(lines, "model").items()
    }
    gray = {
        model: {name: undecided(scores, lams[name, model]) for name, scores in own.items()}
        for model, own in quantiles.items()
    }
    paths = []
    if find_spec("matplotlib") is not None:
        from gfgn.paper.figures.scores import scores_figure
        from gfgn.report.style import save_svg

        for model, own in quantiles.items():
            paths.append(save_svg(scores_figure(own, gray[model], model, LOW), out / f"{model}.svg"))
    return [*paths, write_text(out / PAGE_FILE, page(summary, read_csv(out / RAW_FILE), gray))]


def undecided(quantiles: Floats, lam: float) -> NDArray[np.bool_]:
    """Which dimensions are undecided, see `UNDECIDED`, from their `[D, 7]` quantiles and λ."""
    middle = quantiles[:, COLUMNS.index("q05") : COLUMNS.index("q95") + 1]
    return np.asarray((np.abs(middle - lam / 2) <= UNDECIDED).all(axis=1))


def _group(lines: Lines, column: str) -> dict[str, Lines]:
    groups: dict[str, Lines] = {}
    for line in lines:
        groups.setdefault(line[column], []).append(line)
    return groups


def _numbers(lines: Lines, *columns: str) -> Floats:
    return np.array([[float(line[column]) for column in columns] for line in lines])


ABOUT = """Scores of the 64 dimensions of the first layer, at the epoch with the best validation score. The figures show
split 0, the tables all splits, with seed 0. Scores are between 0 and λ: with a score of 0 a node keeps its own value,
with a score of 1 it takes that of its neighbors. Columns, averaged over splits:

- *below 0.55*: fraction of all scores below the line in the figures;
- *spread*: standard deviation of the dimensions' mean scores, how differently dimensions are treated;
- *box*: mean interquartile range within a dimension, how differently nodes or pairs are treated (0 at graph level);
- *idle*: fraction of dimensions whose weights in `W` have vanished (a norm of less than a tenth of the largest). Their
  values are 0 and their scores stay at λ/2, where they are initialized.

The figures show in gray every dimension that is undecided: 90% of its scores, from the 5% to the 95% quantile, are
within 0.01 of λ/2, where they began. Such a score says nothing about the dimension. *Undecided* is their fraction in
split 0.

[summary.csv](summary.csv) has these numbers for every split, [dimensions.csv](dimensions.csv) the scores of every
dimension."""
RAW_ABOUT = """A graph-level gate reads the mean of `H W` over all nodes. Row normalization makes this mean smaller, so
the scale of the features decides how far scores can move from λ/2, where they are initialized. The paper does not say
how it scales features. The features of this table, unlike those of the other tables, are not normalized; its
configurations are selected by validation in the same way ([raw.csv](raw.csv))."""


def page(lines: Lines, raw: Lines, gray: Mapping[str, Mapping[str, NDArray[np.bool_]]] | None = None) -> str:
    """Returns the page on scores in Markdown, from the rows of `summary.csv` and `raw.csv`, and which dimensions are
    undecided, by model and dataset."""
    parts = ["# Smoothing scores of the first layer, by dimension", "", ABOUT]
    for model, own in _group(lines, "model").items():
        parts += ["", f"## {model}", "", f"![{model}]({model}.svg)", "", _table(own, (gray or {}).get(model, {}))]
    for model, own in _group(raw, "model").items():
        parts += ["", f"## {model}, without row normalization", "", RAW_ABOUT, "", _table(own)]
    return "\n".join(parts)


def _table(lines: Lines, gray: Mapping[str, NDArray[np.bool_]] | None = None) -> str:
    header = ["dataset", "λ", "range, split 0", "range, all splits", "below 0.55", "spread", "box", "idle"]
    header += ["undecided", "test"] if gray else ["test"]
    rows = []
    for name, own in _group(lines, "dataset").items():
        low, high = _numbers(own, "min", "max").T
        ranges = f"[{low[0]:.2f}, {high[0]:.2f}]", f"[{low.min():.2f}, {high.max():.2f}]"
        below, spread, box, idle, test = _numbers(own, "below_055", "spread", "box", "idle", "test").T.mean(axis=1)
        fractions = [f"{100 * below:.1f}%", f"{spread:.3f}", f"{box:.3f}", f"{100 * idle:.0f}%"]
        if gray:
            fractions.append(f"{100 * gray[name].mean():.0f}%" if name in gray else "–")
        rows.append((name, f"{float(own[0]['lam']):g}", *ranges, *fractions, f"{100 * test:.1f}%"))
    return markdown_table(header, rows)
