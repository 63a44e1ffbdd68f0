"""Cornell as downloaded against Cornell corrected: evidence from the files, and what changes in the ranking of models.

The node file of Cornell that everybody downloads is that of Texas. If features and labels belong to the links, linked
nodes agree, or disagree, more than nodes do after a random permutation; if they do not, the graph cannot tell. Models
are compared with the MLP, which does not see the links: a difference to it is what links add.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata, spearmanr
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from gfgn.data import load
from gfgn.data.dataset import NodeDataset
from gfgn.data.named.catalog import DATASETS
from gfgn.data.named.download import checksums
from gfgn.data.named.registry import data_folder
from gfgn.data.streams import Stream
from gfgn.paper.pages import group_by, read_csv, title_of, write_csv, write_page
from gfgn.paper.spectral import dense_adjacency
from gfgn.paper.studies import load_study
from gfgn.report.style import FAINT, PAGE_WIDTH, RED, label_panels, model_style, save_svg, styled
from gfgn.runs.record import is_gfgn
from gfgn.runs.results import Results
from gfgn.runs.study import Cell
from gfgn.runs.study_files import RUNS
from gfgn.runs.table import read_runs
from gfgn.train.statistics import Summary, difference, split_means, summarize

Floats = NDArray[np.float64]
GRAPHS = {"texas": "Texas", "cornell": "Cornell as downloaded", "cornell-corrected": "Cornell corrected"}
COLUMNS = ("cornell", "cornell-corrected")
STUDIES = ("cornell", "table1-open")  # studies with both graphs
BASELINE = "mlp"
LEAST = 4  # models for a ranking
PERMUTATIONS = 10_000
PERMUTED = 104  # key of the stream of permutations
BINS = 40
MEASURES = {"homophily": "edge homophily", "similarity": "similarity", "excess": "excess similarity"}


# --- evidence from the files ------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A mean over the edges of a graph, and its values after random permutations of the nodes."""

    value: float
    permuted: Floats

    def summary(self) -> dict[str, float]:
        """The value, mean and standard deviation of the permutations, its z-score and two-sided p-value."""
        center, std = float(self.permuted.mean()), float(self.permuted.std(ddof=1))
        extreme = int((np.abs(self.permuted - center) >= abs(self.value - center) - 1e-12).sum())
        p = (extreme + 1) / (self.permuted.size + 1)
        return {"": self.value, "_permuted": center, "_std": std, "_z": (self.value - center) / std, "_p": p}


def measure(dataset: NodeDataset, permutations: int = PERMUTATIONS) -> dict[str, Measured]:
    """Means over the links by the names of `MEASURES`: whether classes are the same, the cosine similarity of features,
    and what of it exceeds the mean similarity of both nodes to all others. All with the same permutations of the nodes,
    which keep features and labels together and the links as they are."""
    source, target = dataset.graph.edge_index.cpu().numpy()
    labels, similarity = dataset.y.cpu().numpy(), cosine_similarity(dataset.x.to_dense().double().cpu().numpy())
    others = (similarity.sum(axis=1) - similarity.diagonal()) / (dataset.num_nodes - 1)
    tables = {
        "homophily": (labels[:, None] == labels[None, :]).astype(np.float64),
        "similarity": similarity,
        "excess": similarity - others[:, None] - others[None, :] + others.mean(),
    }
    stream = Stream(0, PERMUTED)
    orders = [stream.permutation(dataset.num_nodes) for _ in range(permutations)]
    return {
        name: Measured(
            float(table[source, target].mean()),
            np.array([table[order[source], order[target]].mean() for order in orders]),
        )
        for name, table in tables.items()
    }


def same_links(one: NodeDataset, other: NodeDataset) -> bool:
    """Whether two graphs have equal degrees and equal spectra, as two numberings of one graph have."""
    first, second = (dense_adjacency(dataset.graph) for dataset in (one, other))
    if not np.array_equal(np.sort(first.sum(axis=1)), np.sort(second.sum(axis=1))):
        return False
    return bool(np.abs(np.linalg.eigvalsh(first) - np.linalg.eigvalsh(second)).max() < 1e-8)


def _hashes(name: str, dataset: NodeDataset, root: Path | None) -> dict[str, str]:
    """SHA-256 of the file with features and labels (its known hash if only the cache of the dataset is left), and of
    both as arrays: what a node file holds, whatever its format."""
    file = next(file for file in DATASETS[name].files if file.endswith(("out1_node_feature_label.txt", ".npz")))
    path = data_folder(root) / file
    arrays: dict[str, Tensor] = {"features": dataset.x.to_dense().float(), "labels": dataset.y.long()}
    hashes = {"file": hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else checksums()[file]}
    return hashes | {
        key: hashlib.sha256(each.contiguous().numpy().tobytes()).hexdigest() for key, each in arrays.items()
    }


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the evidence from the files, the ranks of models on both graphs, two figures and a page."""
    progress(f"cornell: {PERMUTATIONS:,} permutations of the nodes of {', '.join(GRAPHS)}")
    rows, bars = list[dict[str, object]](), list[tuple[object, ...]]()
    data = {name: load(name, root, normalize=False) for name in GRAPHS}
    for name, dataset in data.items():
        classes = "/".join(map(str, np.bincount(dataset.y.numpy()).tolist()))
        row: dict[str, object] = {"graph": name, **_hashes(name, dataset, root), "classes": classes}
        row |= {"links": dataset.graph.num_edges // 2}
        row |= {"links_of_cornell": "yes" if same_links(dataset, data["cornell"]) else "no"}
        for key, measured in measure(dataset).items():
            row |= {f"{key}{suffix}": value for suffix, value in measured.summary().items()}
            counts, edges = np.histogram(measured.permuted, BINS)
            bars += [
                (name, key, *bar) for bar in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
            ]
        rows.append(row)
    header = ["graph", "measure", "low", "high", "count"]
    tables = [
        write_csv(out / "graphs.csv", list(rows[0]), [list(row.values()) for row in rows]),
        write_csv(out / "permutations.csv", header, bars),
    ]
    return [*tables, *draw(out)]


# --- ranks ------------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """A model on one graph: score in %, rank (1 is the best), and difference to the MLP in points."""

    score: Summary
    rank: float
    gap: Summary


class Comparison(NamedTuple):
    """What a study shows about the models that have all runs on both graphs."""

    seeds: int
    models: dict[str, tuple[Place, Place]]  # as downloaded and corrected, in the order of the ranks on the latter
    missing: list[str]
    spearman: float  # rank correlations of the two columns
    kendall: float
    halves: list[float]  # of each graph with itself, see `halved_correlation`


def compare_columns(results: Results) -> Comparison | None:
    """Compares the columns of a study; `None` unless `LEAST` models, the MLP among them, have all runs on both."""
    study = results.study
    usable = [m for m in study.models if all(results[Cell(graph, m)].mean is not None for graph in COLUMNS)]
    if BASELINE not in usable or len(usable) < LEAST:
        return None
    places, halves = [], []
    for graph in COLUMNS:
        share = results.test_share(Cell(graph, BASELINE))
        runs = {
            m: [(r.replica.split, r.replica.seed, 100 * r.test) for r in results[Cell(graph, m)].rows] for m in usable
        }
        scores = {model: summarize(own, share) for model, own in runs.items()}
        ranks = dict(zip(usable, rankdata([-round(score.mean, 8) for score in scores.values()]).tolist(), strict=True))
        places.append({m: Place(scores[m], ranks[m], difference(runs[m], runs[BASELINE], share)) for m in usable})
        halves.append(halved_correlation([split_means(own) for own in runs.values()]))
    order = sorted(usable, key=lambda model: places[1][model].rank)
    first, second = ([column[model].score.mean for model in order] for column in places)
    return Comparison(
        study.seeds,
        {model: (places[0][model], places[1][model]) for model in order},
        [model for model in study.models if model not in usable],
        float(spearmanr(first, second).statistic),
        float(kendalltau(first, second).statistic),
        halves,
    )


def halved_correlation(scores: Sequence[Mapping[int, float]]) -> float:
    """Spearman's correlation of the ranking of models by one half of the splits of a graph with that by the other half,
    averaged over all ways to halve them: how well a ranking agrees with itself."""
    table = np.array([[own[split] for split in sorted(own)] for own in scores])
    splits, values = range(table.shape[1]), []
    for half in itertools.combinations(splits, len(splits) // 2):
        rest = [split for split in splits if split not in half]
        values.append(float(spearmanr(table[:, half].mean(axis=1), table[:, rest].mean(axis=1)).statistic))
    return float(np.mean(values))


def draw(out: Path) -> list[Path]:
    """Writes ranks, figures and the page from the tables of the folder and the runs of studies."""
    graphs, bars, columns = read_csv(out / "graphs.csv"), read_csv(out / "permutations.csv"), dict[str, Comparison]()
    for name in STUDIES:
        path = out.parent / name / RUNS
        compared = compare_columns(Results(load_study(name), read_runs(path))) if path.is_file() else None
        columns |= {name: compared} if compared is not None else {}
    gaps = (f"gap_{graph}{suffix}" for graph in ("downloaded", "corrected") for suffix in ("", "_low", "_high"))
    header = ["study", "model", "rank_downloaded", "rank_corrected", "downloaded", "corrected", *gaps]
    rows = [
        [
            study,
            model,
            *(p.rank for p in places),
            *(p.score.mean for p in places),
            *(x for p in places for x in (p.gap.mean, p.gap.low, p.gap.high)),
        ]
        for study, compared in columns.items()
        for model, places in compared.models.items()
    ]
    paths = [write_csv(out / "ranks.csv", header, rows)]
    with styled():
        if graphs:
            paths.append(save_svg(_draw_permutations(graphs, bars), out / "permutations.svg"))
        for name, compared in columns.items():
            paths.append(save_svg(_draw_ranks(compared), out / f"ranks-{name}.svg"))
    context = {"graphs": graphs, "columns": columns, "measures": MEASURES, "permutations": PERMUTATIONS}
    return [*paths, write_page(out / "evidence.md", "cornell", **context)]


def _draw_permutations(graphs: Sequence[Mapping[str, str]], bars: Sequence[Mapping[str, str]]) -> Figure:
    """The measured value of every graph and measure over a histogram of its permutations."""
    known, labels = group_by(bars, "graph", "measure"), MEASURES | {"similarity": "similarity of linked nodes"}
    figure = Figure(figsize=(PAGE_WIDTH, 0.5 + 1.45 * len(MEASURES)), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(graphs), squeeze=False, sharex="row", sharey="row")
    for row, measure in zip(grid, MEASURES, strict=True):
        for axes, line in zip(row, graphs, strict=True):
            low, high, count = np.array(
                [[float(bar[k]) for bar in known[line["graph"], measure]] for k in ("low", "high", "count")]
            )
            density = count / count.sum() / (high - low)
            axes.bar(low, density, width=high - low, align="edge", color=FAINT, alpha=0.6, label="permuted nodes")
            axes.axvline(float(line[measure]), color=RED, linewidth=1.6, label="measured")
            axes.set_xlabel(labels[measure])
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
    for axes, line in zip(grid[0], graphs, strict=True):
        axes.set_title(GRAPHS[line["graph"]], loc="left")
    label_panels(list(grid[0]))
    handles, words = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside upper left", ncols=2)
    return figure


def _draw_ranks(compared: Comparison) -> Figure:
    """One line per model from its rank as downloaded to its rank as corrected; 1 is on top."""
    ranks = {model: (first.rank, second.rank) for model, (first, second) in compared.models.items()}
    figure = Figure(figsize=(0.62 * PAGE_WIDTH, 0.8 + 0.19 * len(ranks)), layout="constrained")
    axes = figure.subplots()
    for model, both in ranks.items():
        named = is_gfgn(model) or model == BASELINE
        color, width = (model_style(model)["color"], 1.8) if named else (FAINT, 0.9)
        axes.plot([0, 1], both, "o-", color=color, linewidth=width, markersize=3.5)
    for x, align in ((0, "right"), (1, "left")):
        tied: dict[float, list[str]] = {}
        for model, both in ranks.items():
            tied.setdefault(both[x], []).append(title_of(model))
        for rank, names in tied.items():
            words, shift = ", ".join(names), -6 if x == 0 else 6
            axes.annotate(words, (x, rank), (shift, 0), textcoords="offset points", ha=align, va="center", fontsize=7)
    axes.set_xlim(-0.75, 1.75)
    axes.set_ylim(len(ranks) + 0.6, 0.4)
    axes.set_xticks([0, 1], ["Cornell as downloaded", "corrected"])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure
