"""Cornell as downloaded against Cornell corrected: evidence from the files, and what changes in the ranking of models.

The node file of Cornell that everybody downloads is that of Texas. If features and labels belong to the links, linked
nodes agree, or disagree, more than nodes do after a random permutation; if they do not, the graph cannot tell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gfgn.data.dataset import NodeDataset
from gfgn.data.named.catalog import DATASETS
from gfgn.data.named.download import checksums
from gfgn.data.streams import Stream
from gfgn.paper.columns import BASELINE, Columns, Place, read_columns
from gfgn.paper.outputs import markdown_table, read_csv, write_csv, write_text
from gfgn.paper.spectral import dense_adjacency
from gfgn.train.statistics import Summary

Floats = NDArray[np.float64]
DOWNLOADED = "cornell"
GRAPHS = ("texas", DOWNLOADED, "cornell-corrected")
PERMUTATIONS = 10_000
PERMUTED = 104  # key of the stream of permutations
BINS = 40
MEASURES = {"homophily": "edge homophily", "similarity": "similarity", "excess": "excess similarity"}

GRAPHS_FILE, PERMUTATIONS_FILE, RANKS_FILE, PAGE_FILE = "graphs.csv", "permutations.csv", "ranks.csv", "evidence.md"


# --- evidence from the files ------------------------------------------------------------------------------------------


class Measured(NamedTuple):
    """A mean over the edges of a graph, and its values after random permutations of the nodes."""

    value: float
    permuted: Floats

    @property
    def z(self) -> float:
        """Deviation from the mean of the permutations, in their standard deviations."""
        return float((self.value - self.permuted.mean()) / self.permuted.std(ddof=1))

    @property
    def p(self) -> float:
        """Two-sided p-value of the permutation test."""
        center = self.permuted.mean()
        extreme = int((np.abs(self.permuted - center) >= abs(self.value - center) - 1e-12).sum())
        return (extreme + 1) / (self.permuted.size + 1)


def measure(dataset: NodeDataset, permutations: int = PERMUTATIONS) -> dict[str, Measured]:
    """Means over the links by the names of `MEASURES`: whether classes are the same, the cosine similarity of features,
    and what of it exceeds the mean similarity of both nodes to all others. All with the same permutations of the nodes,
    which keep features and labels together and the links as they are."""
    source, target = dataset.graph.edge_index.cpu().numpy()
    labels, similarity = dataset.y.cpu().numpy(), cosine(dataset.x.to_dense().double().cpu().numpy())
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


def cosine(x: Floats) -> Floats:
    """The `[N, N]` cosine similarities of the rows; 0 for a row of zeros."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = np.divide(x, length, out=np.zeros_like(x), where=length > 0)
    return np.asarray(unit @ unit.T)


def node_hashes(dataset: NodeDataset) -> tuple[str, str]:
    """SHA-256 of the features and of the labels, as arrays: what a node file holds, whatever its format."""
    x, y = dataset.x.to_dense().float().cpu().numpy(), dataset.y.long().cpu().numpy()
    first, second = (hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for array in (x, y))
    return first, second


def file_hash(name: str, root: Path) -> str:
    """SHA-256 of the file with the features and labels of a graph; if only the cache of a dataset is left, the known
    hash that its file had to have."""
    file = next(file for file in DATASETS[name].files if file.endswith(("out1_node_feature_label.txt", ".npz")))
    path = root / file
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else checksums()[file]


def same_links(one: NodeDataset, other: NodeDataset) -> bool:
    """Whether two graphs have equal degrees and equal spectra, as two numberings of one graph have."""
    matrices = [dense_adjacency(dataset.graph) for dataset in (one, other)]
    degrees = [np.sort(matrix.sum(axis=1)) for matrix in matrices]
    if not np.array_equal(degrees[0], degrees[1]):
        return False
    spectra = [np.linalg.eigvalsh(matrix) for matrix in matrices]
    return bool(np.abs(spectra[0] - spectra[1]).max() < 1e-8)


def examine(root: Path | None, permutations: int = PERMUTATIONS) -> tuple[list[list[object]], list[list[object]]]:
    """The rows of `graphs.csv`, one per graph, and of `permutations.csv`, one per bar of a histogram."""
    from gfgn.data import load
    from gfgn.data.named.registry import data_folder

    graphs, bars = [], []
    data = {name: load(name, root, normalize=False) for name in GRAPHS}
    for name, dataset in data.items():
        measured = measure(dataset, permutations)
        classes = "/".join(map(str, np.bincount(dataset.y.numpy()).tolist()))
        links = "yes" if same_links(dataset, data[DOWNLOADED]) else "no"
        numbers = [
            number
            for each in measured.values()
            for number in (each.value, float(each.permuted.mean()), float(each.permuted.std(ddof=1)), each.z, each.p)
        ]
        hashes = (file_hash(name, data_folder(root)), *node_hashes(dataset))
        graphs.append([name, *hashes, classes, dataset.graph.num_edges // 2, links, *numbers])
        for key, each in measured.items():
            counts, edges = np.histogram(each.permuted, BINS)
            rows = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
            bars += [[name, key, *row] for row in rows]
    return graphs, bars


GRAPHS_HEADER = (
    *("graph", "file", "features", "labels", "classes", "links", "links_of_cornell"),
    *(f"{name}{suffix}" for name in MEASURES for suffix in ("", "_permuted", "_std", "_z", "_p")),
)
BARS_HEADER = ("graph", "measure", "low", "high", "count")


# --- files ------------------------------------------------------------------------------------------------------------


def analyze(out: Path, *, root: Path | None, device: str, progress: Callable[[str], None]) -> list[Path]:
    """Writes the evidence from the files, the ranks of models on both graphs, two figures and a page."""
    progress(f"cornell: {PERMUTATIONS:,} permutations of the nodes of {', '.join(GRAPHS)}")
    graphs, bars = examine(root)
    tables = [
        write_csv(out / GRAPHS_FILE, GRAPHS_HEADER, graphs),
        write_csv(out / PERMUTATIONS_FILE, BARS_HEADER, bars),
    ]
    return [*tables, *draw(out)]


def draw(out: Path) -> list[Path]:
    """Writes ranks, figures and the page from the tables of the folder and the runs of studies: no figures without
    matplotlib."""
    graphs, bars, columns = read_csv(out / GRAPHS_FILE), read_csv(out / PERMUTATIONS_FILE), read_columns(out.parent)
    paths = [write_csv(out / RANKS_FILE, RANKS_HEADER, ranks_rows(columns))]
    if find_spec("matplotlib") is not None:
        from gfgn.paper.figures.cornell import permutations_figure, ranks_figure
        from gfgn.report.style import save_svg

        if graphs:
            values = {(line["graph"], name): float(line[name]) for line in graphs for name in MEASURES}
            paths.append(save_svg(permutations_figure(values, bars), out / "permutations.svg"))
        for own in columns:
            ranks = {model: (first.rank, second.rank) for model, (first, second) in own.models.items()}
            paths.append(save_svg(ranks_figure(ranks), out / f"ranks-{own.study}.svg"))
    return [*paths, write_text(out / PAGE_FILE, page(graphs, columns))]


RANKS_HEADER = (
    *("study", "model", "rank_downloaded", "rank_corrected", "downloaded", "corrected"),
    *(f"gap_{graph}{suffix}" for graph in ("downloaded", "corrected") for suffix in ("", "_low", "_high")),
)


def ranks_rows(columns: Sequence[Columns]) -> list[list[object]]:
    """The rows of `ranks.csv`."""
    rows: list[list[object]] = []
    for own in columns:
        for model, places in own.models.items():
            gaps = [value for place in places for value in (place.gap.mean, place.gap.low, place.gap.high)]
            scores = [place.score.mean for place in places]
            rows.append([own.study, model, *(place.rank for place in places), *scores, *gaps])
    return rows


HEAD = """# Cornell: the file that everybody downloads is that of Texas

Written by `gfgn reproduce cornell`. The repository of Geom-GCN has for every graph of web pages a file with the
features and labels of its nodes and a file with its links. Public loaders, PyG's `WebKB` among them, read these files.
The node file of Cornell is byte for byte that of Texas: pages of Texas on the links of Cornell. `cornell-corrected` is
the graph in the repository of Platonov et al. (2023), with Cornell's own features and labels."""
PERMUTED_ABOUT = """*Homophily* is the fraction of edges that join two nodes of one class, *similarity* the mean cosine
similarity of the features of two linked nodes, and *excess similarity* what of it exceeds the mean similarity of both
nodes to all other nodes: some pages are similar to most pages, and a few pages have most of the links, which hides what
links have to do with features. Each is compared with {count:,} random permutations of the nodes, which keep features
and labels together and the links as they are. *z* is the deviation from the mean of the permutations in their standard
deviations, *p* that of the two-sided permutation test. Features are not normalized."""
COLUMNS_ABOUT = """Ranks are by mean test score, 1 is the best. The last two columns are differences to the MLP, which
does not see the links, in points, paired over splits and seeds, with the 95% interval over splits corrected for their
overlap. The splits of the two graphs hold different nodes, so the columns are compared by ranks and not paired."""


def page(graphs: Sequence[Mapping[str, str]], columns: Sequence[Columns]) -> str:
    """The page in Markdown, from the rows of `graphs.csv` and the columns of studies."""
    parts = [HEAD, *(_evidence(graphs) if graphs else ["## Evidence\n\nNot measured yet."])]
    for own in columns:
        parts += _section(own)
    if not columns:
        parts.append("## Ranks\n\nNo study has all runs of three models and the MLP on both graphs yet.")
    return "\n\n".join(parts)


def _evidence(graphs: Sequence[Mapping[str, str]]) -> list[str]:
    by_name = {line["graph"]: line for line in graphs}
    files = [
        [
            *(name, f"`{line['file'][:16]}`", f"`{line['features'][:16]}`", f"`{line['labels'][:16]}`"),
            *(line["classes"], line["links"], line["links_of_cornell"]),
        ]
        for name, line in by_name.items()
    ]
    heads = ["graph", "SHA-256 of the node file", "of the features", "of the labels", "nodes by class", "links"]
    equal = by_name["texas"]["file"] == by_name[DOWNLOADED]["file"]
    words = "are the same file" if equal else "differ"
    rows = []
    for key, title in MEASURES.items():
        for name, line in by_name.items():
            value, mean, std, z, p = (float(line[f"{key}{suffix}"]) for suffix in ("", "_permuted", "_std", "_z", "_p"))
            rows.append([title, name, _number(value), f"{_number(mean)} ± {std:.3f}", _number(z, "+.1f"), _p(p)])
    return [
        "## Files",
        f"The node files of Texas and of Cornell as downloaded {words}. *Links of Cornell*: equal degrees and an equal "
        "spectrum of the adjacency matrix as Cornell as downloaded, as the same links with other numbers of the nodes "
        "have.",
        markdown_table([*heads, "links of Cornell"], files),
        "## Links against features and labels",
        PERMUTED_ABOUT.format(count=PERMUTATIONS),
        markdown_table(["measure", "graph", "measured", "permuted", "z", "p"], rows),
        "![Permutations](permutations.svg)",
        _reading(by_name),
    ]


def _reading(graphs: Mapping[str, Mapping[str, str]]) -> str:
    """What the permutations show, in one sentence per graph."""
    sentences = []
    for name, line in graphs.items():
        found = [title for key, title in MEASURES.items() if float(line[f"{key}_p"]) < 0.01]
        words = f"{' and '.join(found)} differ{'s' if len(found) == 1 else ''} from permuted nodes (p < 0.01)"
        none = "no measure can be told from permuted nodes (p ≥ 0.01), as if its links were those of other nodes"
        sentences.append(f"- **{name}**: {words if found else none}.")
    return "\n".join(sentences)


def _section(own: Columns) -> list[str]:
    heads = ["model", "as downloaded", "rank", "corrected", "rank", "places won", "minus MLP, as downloaded"]
    missing = f" Without all runs on both: {', '.join(own.missing)}." if own.missing else ""
    linked = [places for model, places in own.models.items() if model != BASELINE]
    counts = []
    for column in zip(*linked, strict=True):
        above, below = sum(place.gap.low > 0 for place in column), sum(place.gap.high < 0 for place in column)
        counts.append(f"{above} of {len(linked)} are above the MLP and {below} below it")
    return [
        f"## Ranks in the study `{own.study}`",
        f"{len(own.models)} models, ten splits with {own.seeds} seed{'s' if own.seeds > 1 else ''}.{missing} "
        f"{COLUMNS_ABOUT}",
        markdown_table([*heads, "minus MLP, corrected"], [_row(model, *both) for model, both in own.models.items()]),
        f"![Ranks](ranks-{own.study}.svg)",
        f"The rank correlation of the two columns is {own.spearman:.2f} (Spearman) or {own.kendall:.2f} (Kendall). For "
        "comparison, rankings by two halves of the splits of one graph have a mean Spearman correlation of "
        f"{own.halves[0]:.2f} as downloaded and {own.halves[1]:.2f} corrected; they have half as many splits, so the "
        "same ranking on both graphs would have more.",
        f"Of the other models, by intervals that exclude 0: as downloaded, {counts[0]}; corrected, {counts[1]}.",
    ]


def _row(model: str, first: Place, second: Place) -> list[str]:
    scores = [f"{p.score.mean:.2f} [{p.score.low:.2f}, {p.score.high:.2f}]" for p in (first, second)]
    moved = f"{first.rank - second.rank:+g}".replace("-", "−") if first.rank != second.rank else "0"
    gaps = ["–" if model == BASELINE else _gap(place.gap) for place in (first, second)]
    return [model, scores[0], f"{first.rank:g}", scores[1], f"{second.rank:g}", moved, *gaps]


def _gap(gap: Summary) -> str:
    return f"{gap.mean:+.2f} [{gap.low:+.2f}, {gap.high:+.2f}]".replace("-", "−")


def _number(value: float, form: str = ".3f") -> str:
    text = f"{value:{form}}".replace("-", "−")
    return text if any(digit in text for digit in "123456789") else text.lstrip("+−")


def _p(p: float) -> str:
    return f"{p:.4f}" if p >= 0.001 else f"{p:.1g}"
