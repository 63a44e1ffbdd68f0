"""A fuzzer of everything that reads files: each case is a valid file, damaged by a seed, and must be read or refused.

    python -m stress.readers FIRST LAST [KIND …]     # in the folder tests; prints one JSON object

It runs as a process of its own with limited memory, so that an abort, a hang or a killed process is a failure of one
case. The file `current` in its folder names the case.
"""

import faulthandler
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse
from stress.cases import damaged, damaged_text

from gfgn.data import Dataset, load, read
from gfgn.data.named.cache import DAMAGED, pack, read_cache, unpack, write_cache
from gfgn.data.named.loaders import RawData
from gfgn.data.named.unpickle import unpickle
from gfgn.data.encoder import FeatureEncoder
from gfgn.runs.table import read_runs

MEMORY = 12 * 2**30  # bytes of address space, of which PyTorch alone takes a good part
HANG = 120  # seconds
FORBIDDEN = ("os.system", "subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "pty.spawn", "socket.connect")
HUGE = (0, -1, 1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63), 10**400, 1e39, 1e308, 5e-324, float("inf"), float("nan"))
ENCODINGS = ("utf-16", "utf-16-be", "utf-32", "latin-1", "utf-8-sig", "cp037")

Files = dict[str, bytes]
Kind = tuple[Callable[[], Files], Callable[[Files, random.Random], Files], Callable[[Path], Any]]


# --- valid files -----------------------------------------------------------------------------------------------------


def nodes_and_edges() -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    draw, size = np.random.default_rng(0), 24
    nodes: dict[str, list[Any]] = {
        "id": [f"n{k}" for k in range(size)],
        "label": [("a", "b", "c")[k % 3] for k in range(size)],
    }
    nodes |= {"age": draw.normal(40, 10, size).round(2).tolist(), "count": draw.integers(0, 9, size).tolist()}
    nodes |= {"color": [("red", "blue")[k % 2] for k in range(size)], "paid": [bool(k % 2) for k in range(size)]}
    nodes |= {"joined": [f"2024-05-{k + 1:02d}" for k in range(size)]}
    nodes |= {
        "split": [
            ("train", "val", "test")[k % 3] if k % 2 else ("train", "val", "test")[k // 2 % 3] for k in range(size)
        ]
    }
    ends = draw.integers(0, size, (2, 60))
    edges = {"source": [f"n{k}" for k in ends[0]], "target": [f"n{k}" for k in ends[1]]}
    return nodes, edges | {"weight": draw.random(60).round(3).tolist()}


def as_csv(table: dict[str, list[Any]]) -> bytes:
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    return ("\n".join(lines) + "\n").encode()


def as_parquet(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), out)
    return out.getvalue()


def csv_files() -> Files:
    nodes, edges = nodes_and_edges()
    return {"nodes.csv": as_csv(nodes), "edges.csv": as_csv(edges)}


def parquet_files() -> Files:
    nodes, edges = nodes_and_edges()
    return {"nodes.parquet": as_parquet(nodes), "edges.parquet": as_parquet(edges)}


def packed(files: Files) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def array_files(**arrays: Any) -> Files:
    """The members of a `.npz` file; `damage_arrays` puts them together."""
    members = {}
    for name, array in arrays.items():
        out = io.BytesIO()
        np.save(out, array)
        members[f"{name}.npy"] = out.getvalue()
    return members


def pyg(sparse: bool) -> Files:
    draw, size = np.random.default_rng(0), 18
    x, part = draw.random((size, 5)), np.arange(size) % 3
    arrays = {"edge_index": draw.integers(0, size, (2, 40)), "y": part.copy(), "edge_weight": draw.random(40)}
    arrays |= {f"{name}_mask": part == (k + 1) % 3 for k, name in enumerate(("train", "val", "test"))}
    if not sparse:
        return array_files(x=x, **arrays)
    words = scipy.sparse.csr_array(x * (x > 0.5))
    parts = {"x_data": words.data, "x_indices": words.indices, "x_indptr": words.indptr}
    return array_files(**parts, x_shape=np.array(words.shape), **arrays)


def heterophilous() -> Files:
    draw, size = np.random.default_rng(0), 18
    part = np.stack([np.arange(size) % 3, np.arange(size) // 3 % 3])
    masks = {f"{name}_masks": part == k for k, name in enumerate(("train", "val", "test"))}
    arrays = {"node_features": draw.random((size, 4), dtype=np.float32), "node_labels": np.arange(size) % 3}
    return array_files(**arrays, edges=draw.integers(0, size, (40, 2)), **masks)


def attributed() -> Files:
    draw, size = np.random.default_rng(0), 18
    adjacency = scipy.sparse.random_array((size, size), density=0.2, rng=0, format="csr")
    words = scipy.sparse.csr_array((draw.random((size, 6)) > 0.5).astype(np.float32))
    arrays = {f"adj_{part}": getattr(adjacency, part) for part in ("data", "indices", "indptr")}
    arrays |= {f"attr_{part}": getattr(words, part) for part in ("data", "indices", "indptr")}
    arrays |= {
        "adj_shape": np.array(adjacency.shape),
        "attr_shape": np.array(words.shape),
        "labels": np.arange(size) % 3,
    }
    names = {"class_names": np.array(["a", "b", "c"]), "attr_names": np.array([f"w{k}" for k in range(6)])}
    return array_files(**arrays, **names, node_names=np.array([f"p{k}" for k in range(size)]))


def cache() -> Files:
    karate = load("karate")
    raw = RawData(karate.graph, karate.x.to_dense(), karate.y, karate.splits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cache.npz"
        write_cache(path, pack(raw, True) | {"stamp": np.array("0")})
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def pickles() -> Files:
    matrix = scipy.sparse.csr_matrix(np.eye(5) * 2)
    graph = defaultdict(list, {k: [(k + 1) % 5, (k + 2) % 5] for k in range(5)})
    values = {"x": matrix, "y": np.eye(5, 3), "graph": graph, "ids": np.arange(9, dtype=">i4").reshape(3, 3)}
    return {name: pickle.dumps(value, protocol=2) for name, value in values.items()}


def encoders() -> Files:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in csv_files().items():
            (Path(folder) / name).write_bytes(content)
        encoder = read(folder).encoder
    assert encoder is not None
    return {"encoder.json": json.dumps(encoder.to_json(), indent=1).encode()}


def run_tables() -> Files:
    from gfgn.runs import Store, compare
    from gfgn.runs.table import write_runs

    with Store(":memory:") as store, tempfile.TemporaryDirectory() as folder:
        compare(load("karate"), ["majority", "mlp"], 2, max_epochs=2, store=store)
        return {"runs.csv.gz": write_runs(Path(folder) / "runs.csv.gz", store.rows()).read_bytes()}


def saved_model() -> Files:
    from gfgn import GFGNClassifier

    karate = load("karate")
    classifier = GFGNClassifier(level="graph", max_epochs=2, replicas=2)
    classifier.fit(karate.x.to_dense().numpy(), karate.y.numpy(), edge_index=karate.graph.edge_index)
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def study_folder() -> Files:
    from runs.small_studies import run, write_study

    from gfgn.runs.study_files import Time
    from gfgn.runs.table import write_runs

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "small"
        run(write_study(Path(folder)), out)
        rows = [replace(row, seconds=1.0, date="", device="") for row in read_runs(out / "runs.csv.gz")]
        times = ",".join(Time._fields) + "\nkarate,gcn,6,1.5,a CPU,2026-01-01\n"
        return {"runs.csv.gz": write_runs(out / "runs.csv.gz", rows).read_bytes(), "times.csv": times.encode()}


def ogb() -> Files:
    def table(rows: Any) -> bytes:
        return gzip.compress("".join(",".join(map(str, row)) + "\n" for row in rows).encode(), mtime=0)

    files = {"raw/edge.csv.gz": table([(0, 1), (1, 2), (5, 3), (6, 0)])}
    files |= {"raw/node-feat.csv.gz": table([(k, k / 2, -k) for k in range(7)])}
    files |= {"raw/node-label.csv.gz": table([(k % 3,) for k in range(7)])}
    parts = (("train", (6, 0)), ("valid", (1,)), ("test", (2, 3, 4, 5)))
    return files | {f"split/sales_ranking/{name}.csv.gz": table([(k,) for k in nodes]) for name, nodes in parts}


def ppi() -> Files:
    files: Files = {}
    for part, graphs in (("train", (1, 2)), ("valid", (3,)), ("test", (4,))):
        ids = np.repeat(graphs, 4)
        links = [
            {"source": 4 * k + a, "target": 4 * k + b} for k in range(len(graphs)) for a, b in ((0, 1), (1, 2), (2, 3))
        ]
        files |= {f"{part}_graph.json": json.dumps({"links": links}).encode()}
        arrays = {
            "graph_id": ids,
            "feats": np.random.default_rng(0).random((ids.size, 3)),
            "labels": np.eye(ids.size, 2),
        }
        files |= {f"{part}_{name}": content for name, content in array_files(**arrays).items()}
    return files


# --- damage ----------------------------------------------------------------------------------------------------------


def damage_bytes(files: Files, draw: random.Random) -> Files:
    name = draw.choice(list(files))
    return files | {name: damaged(files[name], draw.randrange(2**32))}


def damage_tables(files: Files, draw: random.Random) -> Files:
    """CSV files: odd words, other encodings, columns exchanged, renamed, repeated or cut."""
    name = draw.choice(list(files))
    text = files[name].decode()
    match draw.randrange(8):
        case 0:
            return damage_bytes(files, draw)
        case 1 | 2 | 3:
            return files | {name: damaged_text(text, draw.randrange(2**32)).encode("utf-8", "surrogatepass")}
        case 4:
            return files | {
                name: text.replace("red", "röd").replace("n1", "ñ1").encode(draw.choice(ENCODINGS), "replace")
            }
    rows = [line.split(",") for line in text.splitlines()]
    column, other = (draw.randrange(len(rows[0])) for _ in range(2))
    low = draw.choice((0, 1, draw.randrange(len(rows))))
    for row in rows[low:]:
        match draw.randrange(3) if low > 1 else draw.choice((3, 4, 5, 6)):
            case 0 | 3:
                row[column], row[other] = row[other], row[column]
            case 1 | 4:
                row[column] = str(draw.choice(HUGE))
            case 2 | 5:
                del row[column:]
            case _:
                row.insert(column, row[other])
    end = draw.choice(("\n", "\r\n", "\r", "\x00\n", "\n\n", '"\n'))
    return files | {name: end.join(",".join(row) for row in rows).encode()}


def damage_parquet(files: Files, draw: random.Random) -> Files:
    """Parquet files: bytes, or a column of another type."""
    if draw.randrange(3) == 0:
        return damage_bytes(files, draw)
    name = draw.choice(list(files))
    table = pq.read_table(io.BytesIO(files[name]))
    size, column = table.num_rows, draw.randrange(table.num_columns)
    numbers = [draw.choice((*HUGE[:3], 7)) for _ in range(size)]
    columns: list[Callable[[], Any]] = [
        lambda: pa.nulls(size),
        lambda: pa.array([None, *numbers[1:]], pa.int64()),
        lambda: pa.array([float(draw.choice(HUGE[:6] + HUGE[9:])) for _ in range(size)]),
        lambda: pa.array([2**64 - 1 - k for k in range(size)], pa.uint64()),
        lambda: pa.array(numbers, pa.int8()).dictionary_encode(),
        lambda: pa.array([[1, 2]] * size),
        lambda: pa.array([{"a": 1}] * size),
        lambda: pa.array([b"\xff\x00"] * size, pa.binary()),
        lambda: pa.array([b"ab"] * size, pa.binary(2)),
        lambda: pa.array(["x" * 10**5, *["\x00"] * (size - 1)]),
        lambda: pa.array([f"{k}" for k in range(size)], pa.large_string()),
        lambda: pa.array(numbers, pa.decimal128(38, 20)),
        lambda: pa.array([2**62 + k for k in range(size)], pa.timestamp("ns")),
        lambda: pa.array([2**52 + k for k in range(size)], pa.timestamp("s", "Europe/Berlin")),
        lambda: pa.array([2**31 - 1 - k for k in range(size)], pa.date32()),
        lambda: pa.array(list(range(size)), pa.time64("us")),
        lambda: pa.array([2**62 + k for k in range(size)], pa.duration("ns")),
        lambda: pa.array([k % 2 == 0 for k in range(size)]),
        lambda: pa.array([k / 7 for k in range(size)], pa.float16()),
    ]
    title = draw.choice((table.column_names[column], "id", "label", "source", "", "a\nb", "\x1b[0m", "é" * 500))
    table = table.set_column(column, title, draw.choice(columns)())
    if draw.randrange(4) == 0:
        table = table.slice(0, draw.choice((0, 1, 2)))
    return files | {name: as_parquet(table)}


def damage_zip(inner: Callable[[Files, random.Random], Files]) -> Callable[[Files, random.Random], Files]:
    """A zip of tables: damaged inside, outside, or with other entries."""

    def damage(files: Files, draw: random.Random) -> Files:
        match draw.randrange(4):
            case 0:
                files = inner(files, draw)
            case 1:
                name = draw.choice(list(files))
                prefix = draw.choice(("a/", "../", "/", "a/b/", "C:/", "__MACOSX/", "a\\", "./"))
                files = {prefix + key if key == name else key: content for key, content in files.items()}
            case 2:
                out = io.BytesIO(packed(files))
                with zipfile.ZipFile(out, "a") as archive, warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the name is there twice
                    archive.writestr(draw.choice(list(files)), draw.choice((b"", b"id\n", bytes(2**20))))
                return {"graph.zip": out.getvalue()}
            case _:
                return {"graph.zip": damaged(packed(files), draw.randrange(2**32))}
        return {"graph.zip": packed(files)}

    return damage


def damage_arrays(files: Files, draw: random.Random) -> Files:
    """A `.npz` file: bytes, headers, or an array of another type, shape or content."""
    name = draw.choice(list(files))
    match draw.randrange(5):
        case 0:
            return {"graph.npz": damaged(packed(files), draw.randrange(2**32))}
        case 1:
            files = files | {name: damaged(files[name], draw.randrange(2**32))}
        case 2:
            files = files | {name: other_header(files[name], draw)}
        case 3:
            files = {key: content for key, content in files.items() if key != name}
            files |= {
                draw.choice(("x.npy", "y.npy", "adj_data.npy", "edges.npy", "labels.npy", name)): other_array(b"", draw)
            }
        case _:
            files = files | {name: other_array(files[name], draw)}
    return {"graph.npz": packed(files)}


def other_header(content: bytes, draw: random.Random) -> bytes:
    start = content.index(b"{")
    end = content.index(b"\n", start)
    shape = draw.choice(("()", "(0,)", "(-1,)", "(1, 2000000000)", "(4611686018427387904, 4)", "(2, 9, 9)", "(True,)"))
    kind = draw.choice(
        ("<f8", ">f4", "|O", "<U1000000000", "|V8", "<M8[ns]", "|b1", "<c16", "|S0", "<f2", "f", "(2,)<i4")
    )
    text = f"{{'descr': {kind!r}, 'fortran_order': {draw.choice(('True', 'False', '1'))}, 'shape': {shape}}}"
    if draw.randrange(3) == 0:
        text = damaged_text(content[start:end].decode("latin1"), draw.randrange(2**32))
    header = text.encode("utf-8", "surrogatepass").ljust(end - start)
    return (
        content[:8] + (len(header) + 1).to_bytes(2, "little", signed=False) + header + content[end:]
        if len(header) < 60_000
        else content[:9]
    )


def other_array(content: bytes, draw: random.Random) -> bytes:
    out = io.BytesIO()
    array = (
        np.load(io.BytesIO(content))
        if content
        else np.arange(12).reshape(draw.choice(((12,), (2, 6), (6, 2), (3, 2, 2))))
    )
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        match draw.randrange(7):
            case 0 if array.dtype.kind != "U":
                array = array.astype(draw.choice(("i1", "u8", "f2", "f8", "?", "c16", ">i4", "M8[s]", "S3", "U2")))
            case 1:
                array = array[..., None] if draw.randrange(2) else array.reshape(-1)
            case 2:
                array = array.T if draw.randrange(2) else np.atleast_1d(array)[: draw.randrange(3)]
            case 3 if array.dtype.kind in "fiu" and array.size:
                kind = np.float64 if array.dtype.kind == "f" else np.int64
                array = array.astype(kind)
                limits = [
                    value for value in HUGE if kind is np.float64 or (isinstance(value, int) and abs(value) < 2**63)
                ]
                array.reshape(-1)[draw.randrange(array.size)] = min(draw.choice(limits), 1e308)
            case 4:
                array = np.array([f"{ESC}{k}" for k in range(array.size)])
            case 5:
                array = np.full(array.shape, draw.choice((0, -1, 1, 2**40)))
            case _:
                array = np.concatenate([array, array]) if array.ndim else array
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def damage_pickles(files: Files, draw: random.Random) -> Files:
    """Pickles: bytes, other names, and calls of what must never run."""
    name = draw.choice(list(files))
    content = files[name]
    match draw.randrange(4):
        case 0:
            calls = (
                b"cos\nmkdir\n",
                b"cposix\nsystem\n",
                b"cbuiltins\neval\n",
                b"cnumpy\nfromfile\n",
                b"ctorch\nload\n",
            )
            call = (
                draw.choice(calls) + b"U\x05traceU\x01b\x86R"
                if draw.randrange(2)
                else draw.choice(calls) + b"U\x05trace\x85R"
            )
            content = content[:2] + call + b"0" + content[2:]
        case 1:
            old = draw.choice((b"ndarray", b"csr_matrix", b"_reconstruct", b"dtype", b"list", b"numpy", b"scipy"))
            content = content.replace(
                old, draw.choice((b"system", b"memmap", b"fromfile", b"os", b"builtins", b"x" * 50))
            )
        case _:
            content = damaged(content, draw.randrange(2**32))
    return {"pickle": content}


def damage_json(files: Files, draw: random.Random) -> Files:
    name = draw.choice([name for name in files if name.endswith(".json")] or list(files))
    if draw.randrange(3) == 0:
        return damage_bytes(files, draw)
    text = damaged_text(files[name].decode(), draw.randrange(2**32))
    return files | {name: text.encode("utf-8", "surrogatepass")}


def damage_model(files: Files, draw: random.Random) -> Files:
    """A saved model: JSON, tensors, or tensors whose digest fits."""
    if draw.randrange(3):
        return damage_json(files, draw)
    tensors = damaged(files["model.safetensors"], draw.randrange(2**32))
    content = json.loads(files["model.json"]) | {"sha256": hashlib.sha256(tensors).hexdigest()}
    return files | {"model.safetensors": tensors, "model.json": json.dumps(content).encode()}


def damage_mixed(files: Files, draw: random.Random) -> Files:
    """Files of one dataset in several formats."""
    name = draw.choice(list(files))
    if name.endswith(".npy") and draw.randrange(2):
        changed = other_header(files[name], draw) if draw.randrange(2) else other_array(files[name], draw)
        return files | {name: changed}
    if name.endswith(".csv") and draw.randrange(3):
        text = damaged_text(files[name].decode(), draw.randrange(2**32))
        return files | {name: text.encode("utf-8", "surrogatepass")}
    if name.endswith(".gz") and draw.randrange(3):
        text = damaged_text(gzip.decompress(files[name]).decode(), draw.randrange(2**32))
        return files | {name: gzip.compress(text.encode("utf-8", "surrogatepass"), mtime=0)}
    return damage_json(files, draw) if name.endswith(".json") else damage_bytes(files, draw)


ESC = "\x1b]0;x\x07"


# --- readers ---------------------------------------------------------------------------------------------------------


def read_graph(path: Path) -> Dataset:
    source = next((path / name for name in ("graph.npz", "graph.zip") if (path / name).exists()), path)
    return read(source, stratify=False)


def read_named(name: str, folder: str) -> Callable[[Path], Dataset]:
    def load_files(path: Path) -> Dataset:
        target = path.parent / "root" / folder
        shutil.rmtree(path.parent / "root", ignore_errors=True)
        shutil.copytree(path, target)
        return load(name, path.parent / "root")

    return load_files


KINDS: dict[str, Kind] = {
    "csv": (csv_files, damage_tables, read_graph),
    "parquet": (parquet_files, damage_parquet, read_graph),
    "zip of csv": (csv_files, damage_zip(damage_tables), read_graph),
    "zip of parquet": (parquet_files, damage_zip(damage_parquet), read_graph),
    "npz": (lambda: pyg(False), damage_arrays, read_graph),
    "npz, sparse": (lambda: pyg(True), damage_arrays, read_graph),
    "npz, heterophilous": (heterophilous, damage_arrays, read_graph),
    "npz, attributed": (attributed, damage_arrays, read_graph),
    "cache": (cache, damage_arrays, lambda path: read_cached(path)),
    "pickle": (pickles, damage_pickles, lambda path: unpickle(path / "pickle")),
    "encoder": (
        encoders,
        damage_json,
        lambda path: FeatureEncoder.from_json(json.loads((path / "encoder.json").read_text())),
    ),
    "table of runs": (run_tables, damage_mixed, lambda path: read_runs(path / "runs.csv.gz")),
    "saved model": (saved_model, damage_model, lambda path: predict_with(path)),
    "study": (study_folder, damage_mixed, lambda path: read_results(path)),
    "named npz": (heterophilous, damage_arrays, lambda path: named_npz(path)),
    "ogb": (ogb, damage_mixed, read_named("ogbn-products", "ogbn_products")),
    "ppi": (ppi, damage_mixed, read_named("ppi-relabelled", "ppi-relabelled/raw")),
}


def named_npz(path: Path) -> Dataset:
    (path / "graph.npz").rename(path / "chameleon_filtered.npz")
    return read_named("chameleon-filtered", "chameleon_filtered/raw")(path)


def predict_with(path: Path) -> Any:
    from gfgn import GFGNClassifier

    karate = load("karate")
    return GFGNClassifier.load(path).predict_proba(karate.x.to_dense().numpy(), edge_index=karate.graph.edge_index)


def read_results(path: Path) -> Any:
    import yaml
    from runs.small_studies import STUDY

    from gfgn.runs.results import Results
    from gfgn.runs.study_file import make_study
    from gfgn.runs.study_files import chosen_csv, read_times

    results = Results(make_study(yaml.safe_load(STUDY), "small"), read_runs(path / "runs.csv.gz"))
    facts = [results.measure(fact) for fact in results.study.published.facts]
    return chosen_csv(results), read_times(path / "times.csv"), facts


def read_cached(path: Path) -> Any:
    try:
        return unpack(read_cache(path / "graph.npz"), True)
    except DAMAGED as error:  # which `load` takes as a reason to make the cache again
        raise ValueError(repr(error)) from error


def undamaged(damage: Any, valid: Files) -> Files:
    """The files as the reader finds them."""
    if damage is damage_arrays:
        return {"graph.npz": packed(valid)}
    if damage is damage_pickles:
        return {"pickle": valid["graph"]}
    return {"graph.zip": packed(valid)} if damage.__qualname__.startswith("damage_zip") else valid


def try_case(kind: Kind, valid: Files, seed: int, folder: Path) -> str:
    """How the case ended: "read", "refused", or what went wrong. A negative seed leaves the files as they are."""
    _, damage, reader = kind
    files = undamaged(damage, valid) if seed < 0 else damage(valid, random.Random(seed))
    path = folder / "files"
    shutil.rmtree(path, ignore_errors=True)
    for name, content in files.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    try:
        result = reader(path)
    except ValueError as error:
        text = str(error)
        return "refused" if text and "\n" not in text else f"message {text!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:500]
    if isinstance(result, Dataset):
        index = result.graph.by_target.idx
        if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < result.num_nodes:
            return "edges outside the graph"
    return "read"


def main(first: int, last: int, *names: str) -> dict[str, Any]:
    """Runs the cases of all kinds, or of those named; the result has the counts and the failures."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    calls: list[str] = []
    watching = [False]
    sys.addaudithook(lambda event, _: calls.append(event) if watching[0] and event in FORBIDDEN else None)
    folder = Path.cwd()
    counts: dict[str, Counter[str]] = {}
    failures = []
    for name in names or KINDS:
        kind, ends = KINDS[name], Counter[str]()
        valid = kind[0]()
        for seed in range(first, last):
            (folder / "current").write_text(f"{name} {seed}")
            faulthandler.dump_traceback_later(HANG, exit=True)
            watching[0] = True
            end = try_case(kind, valid, seed, folder)
            watching[0] = False
            faulthandler.cancel_dump_traceback_later()
            if calls or (folder / "trace").exists():
                end = f"executed {calls}"
                calls.clear()
            ends[end if end in ("read", "refused") else "failed"] += 1
            if end not in ("read", "refused"):
                failures.append(f"{name} {seed}: {end}")
        counts[name] = ends
    return {"counts": counts, "failures": failures, "mebibytes": peak_memory()}


def peak_memory() -> int:
    """Peak memory of this process in MiB. On Linux, `ru_maxrss` is at least what the parent had when it started us."""
    status = Path("/proc/self/status")
    if status.is_file():
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    os.environ["GFGN_DATA"] = "nowhere"
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
