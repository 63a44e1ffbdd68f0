"""Graph stores: the same graph from memory and from tables, in bounded memory, and batches that are read from files."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gfgn import GFGN, Graph
from gfgn.data import (
    DataError,
    OnDiskGraph,
    ReadOptions,
    dimensions,
    pack,
    pack_tables,
    read,
    read_with_notes,
    tables,
)
from gfgn.data.on_disk import create, release
from gfgn.ops.features import sparse_if_smaller
from gfgn.sampling import NeighborLoader, NeighborSampler
from gfgn.train import infer_layerwise

NODES = 50


def write_tables(folder: Path, weighted: bool, strings: bool = False) -> Path:
    """Two tables with repeated edges, self-loops, missing labels and a split."""
    generator = np.random.default_rng(0)
    ids = generator.permutation(NODES)
    names = np.array([f"n{k}" for k in range(NODES)]) if strings else np.arange(NODES) * 3
    label = np.where(generator.random(NODES) < 0.2, None, np.array(["b", "a", "c"])[generator.integers(3, size=NODES)])
    split = np.where([name is None for name in label], "", generator.choice(["train", "val", "test"], NODES))
    nodes = {"id": names[ids], "label": label, "split": split}
    nodes |= {f"f{k}": generator.normal(size=NODES).astype(np.float32) for k in range(4)}
    source, target = generator.integers(NODES, size=400), generator.integers(20, size=400)
    if weighted:  # in one direction: the opposite of an edge has its weight
        source, target = np.maximum(source, target), np.minimum(source, target)
    edges = {"source": names[source], "target": names[target]}
    if weighted:
        edges["weight"] = generator.random(400).astype(np.float32)
    folder.mkdir(exist_ok=True)
    pd.DataFrame(nodes).to_parquet(folder / "nodes.parquet")
    pd.DataFrame(edges).to_parquet(folder / "edges.parquet", row_group_size=64)
    return folder


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize(("weighted", "strings"), [(False, False), (True, True)])
def test_tables_in_batches_are_what_read_gives(tmp_path: Path, undirected: bool, weighted: bool, strings: bool) -> None:
    folder = write_tables(tmp_path / "given", weighted, strings)
    data = read(folder, undirected=undirected, scale="none")
    expected = pack(data, tmp_path / "memory")
    notes: list[str] = []
    options, calls = ReadOptions(undirected=undirected), list[int]()
    store = pack_tables(folder, tmp_path / "stream", options, progress=calls.append, notes=notes)
    assert calls[-1] == 400
    expected_notes = [note for note in read_with_notes(folder, undirected=undirected).notes if "edge" in note]
    assert [note.partition(";")[0] for note in notes if "edge" in note] == [n.partition(";")[0] for n in expected_notes]
    assert any("self-loop" in note for note in notes)
    for name in ("ptr", "idx", "x", "y", "parts"):
        assert np.array_equal(getattr(store, name), getattr(expected, name)), name
    assert (store.weight is None) == (not weighted)
    if weighted:
        assert np.allclose(store.weight, expected.weight)
    assert (store.class_names, store.metric, store.num_classes) == (["a", "b", "c"], "accuracy", 3)
    assert torch.equal(store.splits[0].val, data.splits[0].val)
    assert sorted(path.suffix for path in (tmp_path / "stream").iterdir() if path.is_dir()) == []


@settings(max_examples=20)
@given(
    links=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from([0.0, 0.5, 2.0])), max_size=60),
    undirected=st.booleans(),
    weighted=st.booleans(),
)
def test_edges_are_those_of_a_sort_in_memory(
    tmp_path_factory: pytest.TempPathFactory, links: list[tuple[int, int, float]], undirected: bool, weighted: bool
) -> None:
    folder = tmp_path_factory.mktemp("graph")
    pd.DataFrame({"id": range(8), "f": 1.5}).to_csv(folder / "nodes.csv", index=False)
    names = ["source", "target", *["weight"] * weighted]
    pd.DataFrame([link[: 2 + weighted] for link in links], columns=names).to_csv(folder / "edges.csv", index=False)
    options = ReadOptions(undirected=undirected)
    try:
        graph = read(folder, undirected=undirected).graph
    except DataError as error:  # two weights for one undirected edge
        with pytest.raises(DataError, match=re.escape(str(error).partition("got")[0])):
            pack_tables(folder, folder / "store", options)
        return
    store = pack_tables(folder, folder / "store", options)
    assert np.array_equal(store.ptr, graph.by_target.ptr)
    assert np.array_equal(store.idx, graph.by_target.idx)
    if weighted and links:
        assert np.array_equal(store.weight, graph.weight)


def test_a_killed_packing_is_not_in_the_way_of_the_next(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "given", weighted=True)
    code = (
        "import os, sys; from gfgn.data import pack_tables\n"
        "pack_tables(sys.argv[1], sys.argv[2], progress=lambda *_: os.kill(os.getpid(), 9))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(folder), str(tmp_path / "store")], check=False)
    assert killed.returncode == -9
    assert not (tmp_path / "store").exists()
    assert len(list(tmp_path.glob(".store.*.part"))) == 1
    assert pack_tables(folder, tmp_path / "store").num_nodes == NODES
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "store"]
    with pytest.raises(DataError, match="new or an empty folder"):
        pack_tables(folder, tmp_path / "store")


def test_duckdb_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ImportError, match=r"pip install 'gfgn\[large\]'"):
        pack_tables(write_tables(tmp_path / "given", weighted=False), tmp_path / "store")


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_graph_in_memory(tmp_path: Path, workers: int) -> None:
    data = read(write_tables(tmp_path / "given", weighted=True))
    store = pack(data, tmp_path / "store")
    graph = data.graph
    whole = Data(x=data.x, y=data.y, edge_index=graph.edge_index, edge_weight=graph.weight)
    options = {"input_nodes": store.splits[0].train, "batch_size": 6, "shuffle": True, "num_workers": workers}
    pairs = zip(NeighborLoader(whole, [3, 2], **options), NeighborLoader(store, [3, 2], **options), strict=True)
    for expected, batch in pairs:
        for name in ("x", "y", "n_id", "edge_index", "norm", "row_norm"):
            assert torch.equal(batch[name], expected[name]), name


def test_inference_reads_the_store(tmp_path: Path) -> None:
    data = read(write_tables(tmp_path / "given", weighted=False))
    store = pack(replace(data, x=sparse_if_smaller(data.x)), tmp_path / "store")  # stored dense
    model = GFGN(4, 8, 2, 3, level="graph", heads=2).eval()
    out = infer_layerwise(model, store.x, NeighborSampler.from_store(store, [1]), edges_per_chunk=50)
    assert torch.allclose(out, model(data.x, Graph.from_edge_index(data.graph.edge_index, NODES)), atol=1e-5)


@pytest.mark.parametrize(("row", "column", "value"), [(3, "f1", None), (NODES - 1, "f2", 1e300), (40, "f3", "text")])
def test_values_that_training_refuses_are_named(tmp_path: Path, row: int, column: str, value: Any) -> None:
    folder = write_tables(tmp_path / "given", weighted=False)
    nodes = pd.read_parquet(folder / "nodes.parquet").astype({column: object if value == "text" else float})
    nodes.loc[row, column] = value
    (folder / "nodes.parquet").unlink()
    nodes.to_csv(folder / "nodes.csv", index=False)
    with pytest.raises(
        DataError, match=rf"nodes.csv row {row + 1}: column '{column}' holds '?{re.escape(str(value or ''))}"
    ) as caught:
        pack_tables(folder, tmp_path / "new")
    assert f"--drop {column}" in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_folders_that_are_no_store(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "given", weighted=False)
    with pytest.raises(DataError, match="new or an empty folder"):
        pack(read(folder), folder)
    with pytest.raises(DataError, match=r"expected a folder with store.json"):
        OnDiskGraph.open(folder)


def edit(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    return lambda folder: np.save(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "store.json").write_text("[1]"), "store.json"),
        (lambda folder: (folder / "store.json").write_text('{"format": 1}'), "store.json"),
        (lambda folder: (folder / "store.json").write_text('{"format": 2}'), "format, expected 1"),
        (lambda folder: (folder / "x.npy").write_bytes(b"\x93NUMPY"), "x.npy"),
        (edit("idx", lambda idx: idx.astype(np.int64)), "idx.npy .* int64"),
        (edit("idx", lambda idx: idx + 10**6), "idx.npy .* 0 to 59"),
        (edit("idx", lambda idx: idx[:-1]), "ptr.npy"),
        (edit("ptr", lambda ptr: np.where(ptr == ptr[3], ptr[-1], ptr)), "ptr.npy"),
        (edit("ptr", lambda ptr: ptr[:0]), "ptr.npy"),
        (edit("x", lambda x: x[:-1]), "x.npy .* 59 .* 60"),
        (edit("parts", lambda parts: parts[:, :-1]), "parts.npy .* 59 .* 60"),
    ],
)
def test_a_damaged_store(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    pack(dimensions(60), tmp_path / "store")
    damage(tmp_path / "store")
    with pytest.raises(DataError, match=words):
        OnDiskGraph.open(tmp_path / "store")


def test_reading_a_table_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been read of a Parquet file is freed, row group by row group."""
    rows, groups = 20_000, 40
    columns = {f"f{k}": np.random.default_rng(k).normal(size=rows) for k in range(5)}
    with pq.ParquetWriter(tmp_path / "nodes.parquet", pa.table(columns).schema) as writer:
        for _ in range(groups):
            writer.write_table(pa.table(columns))
    monkeypatch.setattr(tables, "BATCH", 10_000)
    size, before = (tmp_path / "nodes.parquet").stat().st_size, pa.total_allocated_bytes()
    table, most = tables.Table(tmp_path / "nodes.parquet", "nodes", ReadOptions(), []), 0
    for _ in table.chunks(list(columns)):
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < size / 4


def test_released_pages_keep_what_was_written(tmp_path: Path) -> None:
    with create(tmp_path, "x", (2**20,), np.int64) as array:
        array[:] = np.arange(2**20)
        before = resident_file_pages()
        release(array)
        assert resident_file_pages() < before - 6 * 1024  # of 8 MiB
        assert array[2**19] == 2**19
    release(np.arange(3))  # nothing to do
    release(None)


def resident_file_pages() -> int:
    """In KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile"))
