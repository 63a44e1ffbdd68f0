"""Named datasets: published counts and splits, the cache, and the errors for missing files.

Real files are expected in the folder named by GFGN_DATA; tests that need them are skipped without it.
"""

import dataclasses
import gzip
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric
from torch import Tensor

from gfgn import Graph
from gfgn.data import DATASETS, NodeDataset, load, random_splits
from gfgn.data.named import loaders
from gfgn.data.named.download import checksums
from gfgn.ops.features import row_normalize

GEOM_GCN = ("actor", "cornell", "texas", "wisconsin", "cora", "citeseer", "pubmed")
AVAILABLE = (
    *("karate", "digits", "dimensions", "blogcatalog", "flickr", "cornell-corrected", "minesweeper", "tolokers"),
    *(*GEOM_GCN, "ogbn-arxiv-structure", "ppi-relabelled"),
)
STANDINS = {"ogbn-arxiv-structure": "ogbn-arxiv", "ppi-relabelled": "ppi"}


def stage(name: str, root: Path) -> None:
    """Links the raw files of a dataset into `root`, which has no cache."""
    given = os.environ.get("GFGN_DATA", "")
    if DATASETS[name].files and not given:
        pytest.skip("GFGN_DATA does not name a folder with the raw files")
    for file in DATASETS[name].files:
        source, link = Path(given).resolve() / file, root / file
        if not source.is_file():
            pytest.skip(f"the folder GFGN_DATA has no {file}")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Path]:
    """Records the calls of the loader of `name`."""
    calls: list[Path] = []
    entry = DATASETS[name]

    def loader(root: Path) -> Any:
        calls.append(root)
        return entry.loader(root)

    monkeypatch.setitem(DATASETS, name, dataclasses.replace(entry, loader=loader))
    return calls


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every download fail."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("requests.get", refuse)


def stored(x: Tensor) -> tuple[Tensor, ...]:
    return (x,) if x.layout == torch.strided else (x.values(), x.col_indices(), x.crow_indices())


def assert_same(one: NodeDataset, other: NodeDataset) -> None:
    assert (one.name, one.metric, one.num_classes) == (other.name, other.metric, other.num_classes)
    assert one.feature_names == other.feature_names
    assert one.x.layout == other.x.layout
    assert all(map(torch.equal, stored(one.x), stored(other.x)))
    assert torch.equal(one.y, other.y)
    for first, second in zip(one.splits, other.splits, strict=True):
        assert all(map(torch.equal, first, second))
    for field in dataclasses.fields(one.graph):
        a, b = getattr(one.graph, field.name), getattr(other.graph, field.name)
        pairs = zip(a, b, strict=True) if isinstance(a, tuple) and not isinstance(a, Tensor) else [(a, b)]
        assert all(torch.equal(p, q) if isinstance(p, Tensor) else p == q for p, q in pairs), field.name


# --- the loaded data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AVAILABLE)
def test_dataset_from_raw_files_and_from_the_cache(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test per dataset, so that its raw files are parsed once."""
    stage(name, tmp_path)
    calls = counted(monkeypatch, name)
    data = load(name, tmp_path)
    check_counts(name, data)
    check_masks(name, data)
    if DATASETS[name].bag_of_words:
        assert (data.x.layout == torch.sparse_csr) == (name != "pubmed")  # 89.98% zeros
        total = data.x @ torch.ones(data.num_features)
        assert (((total - 1).abs() < 1e-4) | (total == 0)).all()
    if name == "ppi-relabelled":
        check_ppi(data)
    if DATASETS[name].files:
        assert calls == [tmp_path]
        assert_same(data, load(name, tmp_path))
        assert calls == [tmp_path]
        assert [path.name for path in (tmp_path / "gfgn-cache").iterdir()] == [f"{name}-v1.npz"]


def check_counts(name: str, data: NodeDataset) -> None:
    entry = DATASETS[name]
    source, target = data.graph.edge_index
    sizes = (data.num_nodes, source.numel() / 2, data.num_features, data.num_classes)
    assert sizes == tuple(entry.statistics)
    assert (source != target).all()
    assert data.graph.by_source is data.graph.by_target
    assert len(data.splits) == (1 if entry.standin else 10)
    assert data.metric == entry.metric
    assert data.graph.num_graphs == entry.graphs
    if entry.standin:
        assert data.name == f"{name} (stand-in)"
        assert data.description.startswith(f"a stand-in, not {STANDINS[name]}: ")


def check_masks(name: str, data: NodeDataset) -> None:
    """Masks are disjoint and cover the nodes; published ones are those of the files."""
    masks = torch.stack([torch.stack(list(split)) for split in data.splits]).numpy()
    total = masks.sum(1)
    assert total.max() == 1
    assert masks.any(2).all()
    if name == "cora":  # the published splits cover the largest connected component
        assert set(total.sum(1)) == {2_485}
    elif name not in GEOM_GCN:
        assert total.min() == 1
    root, parts = Path(os.environ.get("GFGN_DATA", "")), ("train", "val", "test")
    if name in GEOM_GCN:
        files = [file for file in DATASETS[name].files if file.endswith(".npz")]
        assert [file[-6:] for file in files] == [f"_{k}.npz" for k in range(10)]
        for k, file in enumerate(files):
            with np.load(root / file) as published:
                assert np.array_equal(masks[k], [published[f"{part}_mask"] for part in parts])
    elif name in ("minesweeper", "tolokers"):
        with np.load(root / DATASETS[name].files[0]) as published:
            assert np.array_equal(masks.swapaxes(0, 1), [published[f"{part}_masks"] for part in parts])
    elif name == "ogbn-arxiv-structure":
        assert masks[0].sum(1).tolist() == [90_941, 29_799, 48_603]
    elif name in ("blogcatalog", "flickr"):
        expected = random_splits(data.num_nodes)
        assert np.array_equal(masks, torch.stack([torch.stack(list(split)) for split in expected]))


def check_ppi(data: NodeDataset) -> None:
    """24 graphs, split as wholes; features, labels and links are those of the files."""
    assert data.multilabel
    assert data.inductive
    assert data.graph.batch is not None
    graphs = [data.graph.batch[mask].unique().tolist() for mask in data.splits[0]]
    assert graphs == [list(range(20)), [20, 21], [22, 23]]
    folder = Path(os.environ["GFGN_DATA"]) / "ppi-relabelled" / "raw"
    for part, mask in zip(("train", "valid", "test"), data.splits[0], strict=True):
        assert np.array_equal(data.x[mask].numpy(), np.load(folder / f"{part}_feats.npy").astype(np.float32))
        assert np.array_equal(data.y[mask].numpy(), np.load(folder / f"{part}_labels.npy").astype(bool))
        graph = np.load(folder / f"{part}_graph_id.npy")
        assert np.array_equal(np.diff(graph) != 0, np.diff(data.graph.batch[mask].numpy()) != 0)
        start = int(mask.nonzero()[0])
        links = json.loads((folder / f"{part}_graph.json").read_text())["links"]
        given = {frozenset((link["source"], link["target"])) for link in links if link["source"] != link["target"]}
        edges = (data.graph.edge_index[:, mask[data.graph.edge_index[0]]] - start).t().tolist()
        assert set(map(frozenset, edges)) == given


@pytest.mark.parametrize(("name", "links"), [("cornell", 295), ("texas", 309), ("wisconsin", 499)])
def test_directed_edges(name: str, links: int, tmp_path: Path) -> None:
    """Their number is that of the paper; with both directions they are the edges that are loaded by default."""
    stage(name, tmp_path)
    both, given = load(name, tmp_path), load(name, tmp_path, directed=True)
    assert given.graph.num_edges == links == DATASETS[name].paper.edges  # type: ignore[union-attr]
    one_way = set(map(tuple, given.graph.edge_index.t().tolist()))
    opposite = {(target, source) for source, target in one_way}
    assert one_way | opposite == set(map(tuple, both.graph.edge_index.t().tolist()))
    assert torch.equal(given.x.to_dense(), both.x.to_dense())
    assert given.fingerprint != both.fingerprint
    assert [given.split_fingerprint(k) for k in range(10)] == [both.split_fingerprint(k) for k in range(10)]
    raw = load(name, tmp_path, normalize=False)
    assert set(raw.x.values().tolist()) == {1.0}
    assert torch.equal(row_normalize(raw.x).to_dense(), both.x.to_dense())


@pytest.mark.parametrize(
    ("name", "cls", "folder", "options"),
    [
        ("texas", "WebKB", "", {"name": "texas"}),
        ("actor", "Actor", "actor", {}),
    ],
)
def test_loaders_equal_those_of_pyg(name: str, cls: str, folder: str, options: dict[str, str], tmp_path: Path) -> None:
    stage(name, tmp_path)
    raw: Any = DATASETS[name].loader(tmp_path)
    data = getattr(torch_geometric.datasets, cls)(str(tmp_path / folder), **options)[0]
    assert torch.equal(raw.x, data.x)
    assert torch.equal(raw.y, data.y)
    for part in ("train", "val", "test"):
        assert torch.equal(torch.stack([getattr(split, part) for split in raw.splits], 1), data[f"{part}_mask"].bool())
    edge_index = torch_geometric.utils.to_undirected(data.edge_index)
    graph = Graph.from_edge_index(edge_index, data.num_nodes)
    assert torch.equal(raw.graph.edge_index, graph.edge_index)


def test_undirected_datasets_have_no_directed_edges() -> None:
    for name in ("cora", "karate"):
        with pytest.raises(ValueError, match=rf"unless name is one of 'actor', .* are directed, got '{name}'"):
            load(name, directed=True)


def test_embedded_datasets_need_no_folder(tmp_path: Path, offline: None) -> None:
    for name, entry in DATASETS.items():
        if entry.kind == "embedded":
            assert load(name, tmp_path / "none").name == name
    assert not (tmp_path / "none").exists()
    digits = load("digits")
    assert digits.feature_names[9] == "row 2, column 2"
    assert digits.graph.row_lengths.min() >= loaders.NEAREST


# --- the catalog -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STANDINS)
def test_a_stand_in_is_loaded_like_the_published_dataset(name: str) -> None:
    entry, real = DATASETS[name], DATASETS[STANDINS[name]]
    assert (entry.kind, entry.paper, real.kind) == ("stand-in", None, "download")
    assert not any(source.url or source.archive for source in entry.sources)
    assert (entry.metric, entry.graphs, entry.statistics) == (real.metric, real.graphs, real.statistics)
    assert [Path(file).name for file in entry.files] == [Path(file).name for file in real.files]


def test_every_entry_of_the_catalog() -> None:
    assert {name for name, entry in DATASETS.items() if entry.standin} == set(STANDINS)
    assert sum(entry.paper is not None for entry in DATASETS.values()) == 11
    for name, entry in DATASETS.items():
        assert name == name.lower()
        assert all((entry.description, entry.source, entry.citation, entry.license))
        assert len(set(entry.files)) == len(entry.files)
        addresses = [source.url or source.archive for source in entry.sources]
        assert entry.standin or all(address.startswith("http") for address in addresses)
    assert {"texas/raw/texas_split_0.6_0.2_9.npz"} < set(DATASETS["texas"].files)


def test_checksums_are_of_files_of_the_catalog() -> None:
    assert checksums().keys() <= {file for entry in DATASETS.values() for file in entry.files}
    root = Path(os.environ.get("GFGN_DATA", "/nowhere"))
    for file, value in checksums().items():
        assert not (root / file).is_file() or hashlib.sha256((root / file).read_bytes()).hexdigest() == value, file


# --- small files in the layout of datasets that are too large for tests ----------------------------------------------


def wikipedia(folder: Path, **changes: Any) -> Path:
    """A graph of six articles in the layout of chameleon_filtered.npz."""
    part = np.array([0, 0, 1, 1, 2, 2])
    masks = {f"{name}_masks": np.stack([part == k, part[::-1] == k]) for k, name in enumerate(("train", "val", "test"))}
    arrays = {
        "node_features": np.eye(6, 4, dtype=np.float32) * 2 + np.ones((6, 4), np.float32),
        "node_labels": np.array([0, 1, 2, 3, 4, 0]),
        "edges": np.array([[0, 1], [1, 0], [2, 2], [4, 3], [3, 5]]),
        **masks,
    }
    path = folder / "chameleon_filtered" / "raw" / "chameleon_filtered.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, **(arrays | changes))
    return path


def test_filtered_wikipedia(tmp_path: Path) -> None:
    path = wikipedia(tmp_path)
    data = load("chameleon-filtered", tmp_path)
    assert (data.num_nodes, data.graph.num_edges, data.num_features, data.num_classes) == (6, 6, 4, 5)
    assert data.graph.edge_index.t().tolist() == [[1, 0], [0, 1], [4, 3], [5, 3], [3, 4], [3, 5]]
    torch.testing.assert_close(data.x.to_dense().sum(1), torch.ones(6))
    assert data.splits[0].train.tolist() == [True, True, False, False, False, False]
    assert data.splits[1].train.tolist() == [False, False, False, False, True, True]
    path.unlink()
    path.parent.rmdir()
    wikipedia(tmp_path / "objects", node_labels=np.array([0, 1, None, 3, 4, 0], dtype=object))
    with pytest.raises(ValueError, match=r"could not be read .*allow_pickle=False"):
        load("chameleon-filtered", tmp_path / "objects")


def table(path: Path, rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def products(root: Path) -> Path:
    """Seven products in the raw layout of ogbn-products."""
    base = root / "ogbn_products"
    table(base / "raw" / "edge.csv.gz", [(0, 1), (1, 2), (2, 2), (5, 3), (6, 0), (1, 0)])
    table(base / "raw" / "node-feat.csv.gz", [(k, k / 2, -k) for k in range(7)])
    table(base / "raw" / "node-label.csv.gz", [(k % 3,) for k in range(7)])
    for part, nodes in (("train", (6, 0)), ("valid", (1,)), ("test", (2, 3, 4, 5))):
        table(base / "split" / "sales_ranking" / f"{part}.csv.gz", [(node,) for node in nodes])
    return base


@pytest.mark.parametrize("chunk", [2, 1000])
def test_products(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    products(tmp_path)
    monkeypatch.setattr(loaders, "CHUNK", chunk)
    data = load("ogbn-products", tmp_path)
    assert (data.num_nodes, data.num_features, data.num_classes, len(data.splits)) == (7, 3, 3, 1)
    expected = Graph.from_edge_index(torch.tensor([[0, 1, 5, 6, 1, 2, 3, 0], [1, 2, 3, 0, 0, 1, 5, 6]]), num_nodes=7)
    assert torch.equal(data.graph.edge_index, expected.edge_index)
    assert torch.equal(data.graph.norm, expected.norm)
    assert torch.equal(data.x, torch.arange(7.0)[:, None] * torch.tensor([1, 0.5, -1]))
    assert data.y.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert [mask.nonzero().view(-1).tolist() for mask in data.splits[0]] == [[0, 6], [1], [2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("raw/edge.csv.gz", [(0, 1), (1, 7)], "edge.csv.gz must hold nodes from 0 to 6, got 0 to 7"),
        ("raw/node-feat.csv.gz", [(1, 2)] * 8, "node-feat.csv.gz must hold one row for each of the 7 labels"),
        ("raw/node-label.csv.gz", [("a",)] * 7, "ogbn-products: the files in .* could not be read"),
    ],
)
def test_damaged_products(file: str, rows: list[Any], message: str, tmp_path: Path) -> None:
    table(products(tmp_path) / file, rows)
    with pytest.raises(ValueError, match=message):
        load("ogbn-products", tmp_path)


# --- the cache -------------------------------------------------------------------------------------------------------


def test_a_damaged_cache_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage("texas", tmp_path)
    calls = counted(monkeypatch, "texas")
    first, cache = load("texas", tmp_path), tmp_path / "gfgn-cache" / "texas-v1.npz"
    content = cache.read_bytes()
    middle = len(content) // 2
    for damaged in (b"", content[:-100], content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]):
        cache.write_bytes(damaged)
        assert_same(first, load("texas", tmp_path))
    np.savez(cache, y=np.zeros(3))
    assert_same(first, load("texas", tmp_path))
    assert len(calls) == 5
    load("texas", tmp_path)
    assert len(calls) == 5


def test_a_cache_older_than_the_files_is_rebuilt_and_outlives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None
) -> None:
    path = wikipedia(tmp_path)
    calls = counted(monkeypatch, "chameleon-filtered")
    load("chameleon-filtered", tmp_path)
    shutil.rmtree(path.parent)
    wikipedia(tmp_path, edges=np.array([[0, 1]]))
    second = load("chameleon-filtered", tmp_path)
    assert len(calls) == 2
    assert second.graph.num_edges == 2
    shutil.rmtree(path.parent)
    assert_same(second, load("chameleon-filtered", tmp_path))
    assert len(calls) == 2


# --- names, folders and missing files --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, entry in DATASETS.items() if entry.files])
def test_missing_files_error_names_files_source_and_folder(name: str, tmp_path: Path, offline: None) -> None:
    entry = DATASETS[name]
    with pytest.raises(FileNotFoundError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{name} needs {Path(entry.files[0]).name}")
    for words in (entry.source, str(tmp_path / entry.sources[0].folder), "GFGN_DATA"):
        assert words in message
    assert ("no network" in message) == (not entry.standin)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "a failed download leaves nothing behind"


def test_damaged_raw_files_error_names_the_folder(tmp_path: Path) -> None:
    wikipedia(tmp_path).write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"chameleon-filtered: the files in .*raw could not be read .*download them"):
        load("chameleon-filtered", tmp_path)


def test_known_files_are_verified_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage("cora", tmp_path)
    calls = counted(monkeypatch, "cora")
    path = tmp_path / "Cora" / "geom-gcn" / "raw" / "ind.cora.x"  # a pickle
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content + b" ")
    with pytest.raises(ValueError, match=r"ind.cora.x has the SHA-256 \w{64}, expected \w{64}; delete it"):
        load("cora", tmp_path)
    assert not calls
    path.write_bytes(content)
    assert load("cora", tmp_path).num_nodes == 2_708


def test_root_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> None:
    monkeypatch.setenv("GFGN_DATA", str(tmp_path / "named"))
    with pytest.raises(FileNotFoundError, match="named"):
        load("texas")
    monkeypatch.delenv("GFGN_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    with pytest.raises(FileNotFoundError, match="xdg" if sys.platform == "linux" else "gfgn"):
        load("texas")
