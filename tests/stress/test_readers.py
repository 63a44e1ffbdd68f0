"""Every reader on damaged files: a dataset or one line, never a traceback. A case is a valid file damaged by a seed."""

from __future__ import annotations

import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from stress.cases import cases, damaged, damaged_text

from gfgn.data import NodeDataset, OnDiskGraph, contextual_sbm, pack, read
from gfgn.data.named.cache import DAMAGED, read_cache, write_cache
from gfgn.data.named.cache import pack as pack_cache
from gfgn.data.named.loaders import RawData

SIZE = 24
TEXTS = (".csv", ".json")  # damaged as text, so that most of a file stays readable


def tables() -> dict[str, pd.DataFrame]:
    draw, place = np.random.default_rng(0), np.arange(SIZE)
    nodes = {"id": [f"n{k}" for k in place], "label": np.array(["a", "b", "c"])[place % 3]}
    nodes |= {"age": draw.normal(40, 10, SIZE).round(2), "color": np.array(["red", "tan"])[place % 2]}
    nodes |= {"price": ["1,5", "2", "?"] * (SIZE // 3), "joined": [f"{k + 1:02d}.05.2024" for k in place]}
    ends = draw.integers(0, SIZE, (2, 60))
    edges = {"source": [f"n{k}" for k in ends[0]], "target": [f"n{k}" for k in ends[1]]}
    return {"nodes": pd.DataFrame(nodes), "edges": pd.DataFrame(edges)}


def write_csv(folder: Path, encoding: str = "utf-8") -> None:
    for name, frame in tables().items():
        (folder / f"{name}.csv").write_bytes(frame.to_csv(index=False, sep=";").encode(encoding))


def write_utf16(folder: Path) -> None:
    write_csv(folder, "utf-16")


def write_parquet(folder: Path) -> None:
    for name, frame in tables().items():
        frame.to_parquet(folder / f"{name}.parquet")


def write_excel(folder: Path) -> None:
    for name, frame in tables().items():
        frame.to_excel(folder / f"{name}.xlsx", index=False)


def write_zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "graph.zip", "w") as archive:
        for name, frame in tables().items():
            archive.writestr(f"{name}.csv", frame.to_csv(index=False))


def write_npz(folder: Path) -> None:
    draw = np.random.default_rng(1)
    matrix = scipy.sparse.csr_array(draw.poisson(0.3, (SIZE, 9)).astype(np.float32))
    parts = {f"x_{part}": np.asarray(getattr(matrix, part)) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "graph.npz", edge_index=draw.integers(0, SIZE, (2, 60)), y=np.arange(SIZE) % 3, **parts)


def write_store(folder: Path) -> None:
    pack(contextual_sbm(60), folder / "store")


def write_cached(folder: Path) -> None:
    data = contextual_sbm(60)
    arrays = pack_cache(RawData(data.graph, data.x, data.y, data.splits), sparse=True)
    write_cache(folder / "graph.npz", arrays | {"stamp": np.array("now")})


def read_only_file(folder: Path) -> NodeDataset:
    (path,) = folder.iterdir()
    return read(path)


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], object]]] = {
    "csv": (write_csv, read),
    "csv in UTF-16": (write_utf16, read),
    "parquet": (write_parquet, read),
    "excel": (write_excel, read),
    "zip": (write_zip, read_only_file),
    "npz": (write_npz, read_only_file),
    "store": (write_store, lambda folder: OnDiskGraph.open(folder / "store").dataset()),
    "cache": (write_cached, lambda folder: read_cache(folder / "graph.npz")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str, tmp_path: Path) -> None:
    """The valid file is read; of the damaged ones, some are refused in one line, and nothing else happens."""
    write, load = KINDS[kind]
    write(tmp_path)
    valid = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    load(tmp_path)
    refused = 0
    for seed in cases(15):
        victim = random.Random(seed).choice(sorted(valid))
        for path, content in valid.items():
            path.write_bytes(content)
        if victim.suffix in TEXTS and kind != "csv in UTF-16":
            text = damaged_text(valid[victim].decode(), seed)
            victim.write_bytes(text.encode("utf-8", "surrogatepass"))
        else:
            victim.write_bytes(damaged(valid[victim], seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                load(tmp_path)
                message = ""
            except (ValueError, *DAMAGED) as error:
                message = str(error)
                refused += 1
        assert kind == "cache" or len(message.splitlines()) <= 1, message
    assert refused
