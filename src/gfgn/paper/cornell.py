"""Cornell as downloaded against Cornell corrected: evidence from the files, and what changes in the ranking of models.

The node file of Cornell that everybody downloads is that of Texas. If features and labels belong to the links, linked
nodes agree, or disagree, more than nodes do after a random permutation; if they do not, the graph cannot tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor

from gfgn.data import load
from gfgn.data.dataset import NodeDataset
from gfgn.data.named.catalog import DATASETS
from gfgn.data.named.download import checksums
from gfgn.data.named.registry import data_folder
from gfgn.data.streams import Stream
from gfgn.paper.cornell_ranks import STUDIES, compare_columns, draw_ranks
from gfgn.paper.pages import group_by, read_csv, write_csv, write_page
from gfgn.paper.spectral import dense_adjacency
from gfgn.paper.studies import load_study
from gfgn.report.style import FAINT, PAGE_WIDTH, RED, label_panels, save_svg, styled
from gfgn.runs.results import Results
from gfgn.runs.study_files import RUNS
from gfgn.runs.table import read_runs

Floats = NDArray[np.float64]
GRAPHS = {"texas": "Texas", "cornell": "Cornell as downloaded", "cornell-corrected": "Cornell corrected"}
PERMUTATIONS = 10_000
PERMUTED = 104  # key of the stream of permutations
BINS = 40
MEASURES = {"homophily": "edge homophily", "similarity": "similarity", "excess": "excess similarity"}


def measure(dataset: NodeDataset, permutations: int = PERMUTATIONS) -> dict[str, tuple[float, Floats]]:
    """Means over the links by the names of `MEASURES`, and the same after random permutations of the nodes: whether
    classes are the same, the cosine similarity of features, and what of it exceeds the mean similarity of both nodes to
    all others. Permutations keep features and labels together and the links as they are."""
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
        name: (
            float(table[source, target].mean()),
            np.array([table[order[source], order[target]].mean() for order in orders]),
        )
        for name, table in tables.items()
    }


def compare_to_permuted(value: float, permuted: Floats) -> dict[str, float]:
    """A value with mean and standard deviation of the permutations, its z-score and two-sided p-value, by suffix."""
    center, std = float(permuted.mean()), float(permuted.std(ddof=1))
    extreme = int((np.abs(permuted - center) >= abs(value - center) - 1e-12).sum())
    p = (extreme + 1) / (permuted.size + 1)
    return {"": value, "_permuted": center, "_std": std, "_z": (value - center) / std, "_p": p}


def same_links(one: NodeDataset, other: NodeDataset) -> bool:
    """Whether two graphs have equal degrees and equal spectra, as two numberings of one graph have."""
    first, second = (dense_adjacency(dataset.graph) for dataset in (one, other))
    if not np.array_equal(np.sort(first.sum(axis=1)), np.sort(second.sum(axis=1))):
        return False
    return bool(np.abs(np.linalg.eigvalsh(first) - np.linalg.eigvalsh(second)).max() < 1e-8)


def hashes(name: str, dataset: NodeDataset, root: Path | None) -> dict[str, str]:
    """SHA-256 of the file with features and labels (its known hash if only the cache of the dataset is left), and of
    both as arrays: what a node file holds, whatever its format."""
    file = next(file for file in DATASETS[name].files if file.endswith(("out1_node_feature_label.txt", ".npz")))
    path = data_folder(root) / file
    arrays: dict[str, Tensor] = {"features": dataset.x.to_dense().float(), "labels": dataset.y.long()}
    known = {"file": hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else checksums()[file]}
    return known | {
        key: hashlib.sha256(each.contiguous().numpy().tobytes()).hexdigest() for key, each in arrays.items()
    }


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the evidence from the files, the ranks of models on both graphs, figures and a page."""
    progress(f"cornell: {PERMUTATIONS:,} permutations of the nodes of {', '.join(GRAPHS)}")
    rows, bars = list[dict[str, object]](), list[tuple[object, ...]]()
    data = {name: load(name, root, normalize=False) for name in GRAPHS}
    for name, dataset in data.items():
        row: dict[str, object] = {"graph": name, **hashes(name, dataset, root)}
        row |= {"classes": "/".join(map(str, dataset.y.bincount().tolist())), "links": dataset.graph.num_edges // 2}
        row |= {"links_of_cornell": "yes" if same_links(dataset, data["cornell"]) else "no"}
        for key, (value, permuted) in measure(dataset).items():
            row |= {f"{key}{suffix}": number for suffix, number in compare_to_permuted(value, permuted).items()}
            counts, edges = (each.tolist() for each in np.histogram(permuted, BINS))
            bars += [(name, key, *bar) for bar in zip(edges[:-1], edges[1:], counts, strict=True)]
        rows.append(row)
    header = ["graph", "measure", "low", "high", "count"]
    tables = [
        write_csv(out / "graphs.csv", list(rows[0]), [list(row.values()) for row in rows]),
        write_csv(out / "permutations.csv", header, bars),
    ]
    return [*tables, *draw(out)]


def draw(out: Path) -> list[Path]:
    """Writes ranks, figures and the page from the tables of the folder and the runs of studies."""
    graphs, bars = read_csv(out / "graphs.csv"), read_csv(out / "permutations.csv")
    studies = {name: out.parent / name / RUNS for name in STUDIES if (out.parent / name / RUNS).is_file()}
    compared = {name: compare_columns(Results(load_study(name), read_runs(path))) for name, path in studies.items()}
    columns = {name: known for name, known in compared.items() if known is not None}
    gaps = (f"gap_{graph}{suffix}" for graph in ("downloaded", "corrected") for suffix in ("", "_low", "_high"))
    header = ["study", "model", "rank_downloaded", "rank_corrected", "downloaded", "corrected", *gaps]
    rows = [
        [
            study,
            model,
            *(p.rank for p in places),
            *(p.score.mean for p in places),
            *(x for p in places for x in p.gap[:3]),
        ]
        for study, known in columns.items()
        for model, places in known.models.items()
    ]
    paths = [write_csv(out / "ranks.csv", header, rows)]
    with styled():
        if graphs:
            paths.append(save_svg(draw_permutations(graphs, bars), out / "permutations.svg"))
        paths += [save_svg(draw_ranks(known), out / f"ranks-{name}.svg") for name, known in columns.items()]
    context = {"graphs": graphs, "columns": columns, "measures": MEASURES, "permutations": PERMUTATIONS}
    return [*paths, write_page(out / "evidence.md", "cornell", **context)]


def draw_permutations(graphs: Sequence[Mapping[str, str]], bars: Sequence[Mapping[str, str]]) -> Figure:
    """The measured value of every graph and measure over a histogram of its permutations."""
    known, labels = group_by(bars, "graph", "measure"), MEASURES | {"similarity": "similarity of linked nodes"}
    figure = Figure(figsize=(PAGE_WIDTH, 0.5 + 1.45 * len(MEASURES)), layout="constrained")
    grid = figure.subplots(len(MEASURES), len(graphs), squeeze=False, sharex="row", sharey="row")
    for row, measured in zip(grid, MEASURES, strict=True):
        for axes, line in zip(row, graphs, strict=True):
            cells = known[line["graph"], measured]
            low, high, count = np.array([[float(bar[k]) for bar in cells] for k in ("low", "high", "count")])
            heights, edges = count / count.sum() / (high - low), [*low, high[-1]]
            axes.stairs(heights, edges, fill=True, color=FAINT, alpha=0.6, label="permuted nodes")
            axes.axvline(float(line[measured]), color=RED, linewidth=1.6, label="measured")
            axes.set_xlabel(labels[measured])
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
    for axes, line in zip(grid[0], graphs, strict=True):
        axes.set_title(GRAPHS[line["graph"]], loc="left")
    label_panels(list(grid[0]))
    handles, words = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, words, loc="outside upper left", ncols=2)
    return figure
