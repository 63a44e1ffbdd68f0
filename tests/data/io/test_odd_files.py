"""Files that once ended in a traceback, or in a graph with wrong names."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gfgn.data import DataError, read


def attributed(path: Path, **names: Any) -> Path:
    eye = {
        "data": np.ones(6),
        "indices": np.array([1, 2, 3, 4, 5, 0]),
        "indptr": np.arange(7),
        "shape": np.array([6, 6]),
    }
    arrays = {f"{prefix}_{part}": value for prefix in ("adj", "attr") for part, value in eye.items()}
    np.savez(path, labels=np.arange(6) % 2, **arrays, **names)
    return path


def test_repeated_names_are_not_used(tmp_path: Path) -> None:
    words = [f"w{k}" for k in range(6)]
    path = attributed(tmp_path / "a.npz", attr_names=words * 2, class_names=["a", "a"], node_names=["n"] * 6)
    data = read(path)
    assert data.feature_names == [f"x{k}" for k in range(6)]
    assert data.class_names == ["0", "1"]
    assert data.node_ids is not None
    assert data.node_ids.tolist() == list(range(6))


def test_dates_that_python_does_not_have(tmp_path: Path) -> None:
    nodes = {"id": ["a", "b"], "label": ["x", "y"], "when": pa.array([date(2024, 5, 1)] * 2)}
    pq.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    edges = {"source": ["a"], "target": ["b"], "weight": pa.array([2**31 - 1], pa.date32())}
    pq.write_table(pa.table(edges), tmp_path / "edges.parquet")
    with pytest.raises(DataError, match=r"edges\.parquet row 1: weight is 2147483647, expected a finite number"):
        read(tmp_path)


def test_messages_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text('id,label,"a\nb\x1b"\n1,x,long\n2,y,text\n')
    (tmp_path / "edges.csv").write_text("source,target\n1,2\n")
    with pytest.raises(DataError, match=r"--drop a\\nb\\x1b\)") as caught:
        read(tmp_path)
    assert str(caught.value).isprintable()
