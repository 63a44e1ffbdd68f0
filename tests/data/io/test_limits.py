"""Small files that claim to be huge: an error that states the limit, and no memory for the claim."""

import io
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gfgn.data import DataError, limits, read

EDGES = np.array([[0, 1], [1, 2]])
LABELS = np.arange(6) % 2


def assert_refused(path: Path, message: str, megabytes: int = 50) -> None:
    """The file is refused with this message, within this memory."""
    assert_read_error(path, ".")  # imports
    tracemalloc.start()
    try:
        assert_read_error(path, message)
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def assert_read_error(path: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def npy(header: str, data: bytes = b"") -> bytes:
    """A file in NumPy's format with any header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def claims(path: Path, shape: str, dtype: str = "<f4") -> Path:
    """A graph whose `x` claims a shape and holds 24 bytes."""
    np.savez(path, edge_index=EDGES, y=LABELS)
    with zipfile.ZipFile(path, "a") as archive:
        header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}\n"
        archive.writestr("x.npy", npy(header, bytes(24)))
    return path


@pytest.mark.parametrize("columns", [2**20 + 1, 2_000_000_000])
def test_columns_of_a_sparse_matrix(columns: int, tmp_path: Path) -> None:
    parts = {"x_data": np.ones(6), "x_indices": np.arange(6), "x_indptr": np.arange(7)}
    np.savez(tmp_path / "a.npz", edge_index=EDGES, y=LABELS, x_shape=np.array([6, columns]), **parts)
    assert_refused(tmp_path / "a.npz", rf"a\.npz has {columns:,} features, expected at most 1,048,576")


def test_rows_of_an_adjacency_matrix(tmp_path: Path) -> None:
    parts = {"adj_data": np.ones(6), "adj_indices": np.arange(6), "adj_indptr": np.arange(7)}
    shape = np.array([2_000_000_000, 2_000_000_000])
    np.savez(tmp_path / "a.npz", attr_matrix=np.eye(6), labels=LABELS, adj_shape=shape, **parts)
    assert_refused(tmp_path / "a.npz", r"adj_indptr must be 2000000001 non-decreasing offsets")


@pytest.mark.parametrize("shape", ["(6, 2000000000)", "(-6, 1)", f"({2**62}, {2**62})", "(6, 2)"])
def test_shapes_that_arrays_do_not_have(shape: str, tmp_path: Path) -> None:
    assert_refused(claims(tmp_path / "a.npz", shape), r"a\.npz: x is damaged: .* takes -?[\d,]+ bytes, but has 24")


def test_types_that_arrays_do_not_have(tmp_path: Path) -> None:
    assert_refused(claims(tmp_path / "a.npz", "(6, 1)", "V2000000000"), r"a\.npz: x is damaged")
    assert_refused(claims(tmp_path / "b.npz", "(6, 1)", "O"), r"b\.npz: x is an array of Python objects")
    assert_refused(
        claims(tmp_path / "c.npz", "(" * 5000 + ")" * 5000), r"c\.npz: x is damaged or not in NumPy's format"
    )


def bomb(path: Path, write: Callable[[zipfile.ZipFile], Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        write(archive)
    return path


def test_zip_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB in 64 KiB, with a limit of 1 MiB instead of 1 GiB so that the test is fast."""
    monkeypatch.setattr(limits, "FREE", 2**20)

    def tables(archive: zipfile.ZipFile) -> None:
        archive.writestr("nodes.csv", b"id,label,x\n" + b"0" * 2**26)
        archive.writestr("edges.csv", b"source,target\n0,1\n")

    def arrays(archive: zipfile.ZipFile) -> None:
        for name, array in (("edge_index", EDGES), ("y", LABELS), ("x", np.zeros((6, 2**20), dtype=np.float64))):
            member = io.BytesIO()
            np.save(member, array)
            archive.writestr(f"{name}.npy", member.getvalue())

    message = r"unpacks to 0\.\d GiB from [\d,]+ bytes, expected at most 0\.0 GiB \(1 GiB, or 256 times its size\)"
    assert_refused(bomb(tmp_path / "a.zip", tables), rf"a\.zip {message}", 8)
    assert_refused(bomb(tmp_path / "a.npz", arrays), rf"a\.npz {message}", 8)


def test_many_arrays(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", lambda archive: [archive.writestr(f"{k}.npy", b"") for k in range(2_000)])
    assert_refused(path, r"a\.npz has 2,000 arrays, expected at most 1,000")


def test_rows_of_a_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million consecutive ids and a constant column take little space."""
    monkeypatch.setattr(limits, "FREE", 2**20)
    table = pa.table({"id": np.arange(10**6), "x": np.zeros(10**6, dtype=np.float32)})
    encoding = {"column_encoding": {"id": "DELTA_BINARY_PACKED"}, "use_dictionary": ["x"]}
    pq.write_table(table, tmp_path / "nodes.parquet", compression="zstd", **encoding)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    assert_refused(tmp_path, r"nodes\.parquet unpacks to 0\.0 GiB from [\d,]+ bytes")


def test_one_text_for_many_rows_of_a_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FREE", 2**24)
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 5_000, pa.int32()), pa.array(["a" * 10**4, "b" * 10**4]))
    pq.write_table(pa.table({"id": np.arange(10**4), "label": texts, "x": np.zeros(10**4)}), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    assert_refused(tmp_path, r"nodes\.parquet unpacks to 0\.1 GiB")
    assert pa.total_allocated_bytes() < 2**26


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_long_texts_of_a_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_dictionary: bool) -> None:
    """A text that takes more than a few bytes per row, and still much less than it unpacks to: because it is stored
    once for many rows, or by compression."""
    monkeypatch.setattr(limits, "FREE", 2**22)
    texts = pa.array([c * 10**4 for c in "abcdefghijklmnop"] * 100)
    table = pa.table({"id": np.arange(1600), "label": texts, "x": np.zeros(1600)})
    pq.write_table(table, tmp_path / "nodes.parquet", compression="zstd", use_dictionary=use_dictionary)
    chunk = pq.read_metadata(tmp_path / "nodes.parquet").row_group(0).column(1)
    assert chunk.total_uncompressed_size > 8 * chunk.num_values
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    before = pa.total_allocated_bytes()
    assert_refused(tmp_path, r"nodes\.parquet unpacks to 0\.0 GiB")
    assert pa.total_allocated_bytes() - before < 2**22


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_a_table(kind: str, tmp_path: Path) -> None:
    names = ["id", "label", *(f"c{k}" for k in range(40_000))]
    if kind == "csv":
        (tmp_path / "nodes.csv").write_text(",".join(names) + "\n")
    else:
        pq.write_table(pa.table([[0]] * len(names), names=names), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    assert_refused(
        tmp_path, rf"nodes\.{kind} has 40,002 columns, expected at most 32,768; put wide features into a \.npz"
    )


def test_a_header_without_end(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_bytes(b"x" * 2**25)
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    assert_refused(tmp_path, r"nodes\.csv has a header of 16,777,216 bytes or more")


def test_the_limits_leave_room_for_wide_features(tmp_path: Path) -> None:
    parts = {"x_data": np.ones(6), "x_indices": np.arange(6), "x_indptr": np.arange(7)}
    np.savez(tmp_path / "a.npz", edge_index=EDGES, y=LABELS, x_shape=np.array([6, 50_000]), **parts)
    assert read(tmp_path / "a.npz").num_features == 50_000


def test_weights_whose_sum_overflows(tmp_path: Path) -> None:
    weight = np.array([3e38, 3e38], dtype=np.float32)
    np.savez(tmp_path / "a.npz", edge_index=np.array([[0, 2], [1, 1]]), edge_weight=weight, y=LABELS, x=np.eye(6))
    assert_read_error(tmp_path / "a.npz", r"a\.npz: edge_weight must add up to 0, or .* got inf at node 1")
