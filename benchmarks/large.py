"""A graph on disk that is larger than what a process may use: packed, trained on and predicted within a limit.

    python benchmarks/large.py --folder DIR [--nodes 10000000] [--edges 100000000] [--gib 8]

Tables are generated in DIR, which needs about 30 GB at the default sizes; the graph has about `--edges` edges, both
directions counted. Every stage is a process of its own, training and prediction one per level; each runs once. A stage
that is finished leaves its record in DIR: after an interruption the same command goes on with the next one.

The kernel enforces the limit, `RLIMIT_DATA`, of private memory: allocating more than `--gib` fails; training has a
worker process, and each of the two gets half. Pages of files that are mapped do not count, as the kernel can take them
back.

`peak_private_mib` and `peak_resident_mib` are the largest private memory and the largest memory with pages of files
that were resident in a process and its worker together, looked at 20 times per second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CLASSES, CHUNK, HIDDEN, HEADS, FANOUTS, BATCH = 8, 2**20, 64, 8, [10, 5], 1024
STAGES, LEVELS = ("pack", "train", "predict"), ("graph", "neighbor", "pair")
TABLES, RECORDS = "tables.json", "records"  # in the folder: the sizes of the tables, and what stages measured


def make(folder: Path, *, nodes: int, edges: int, features: int, train: float) -> None:
    """Writes `nodes.parquet` and `edges.parquet` chunk by chunk; 7 of 10 edges are within a class."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(CLASSES, features)).astype(np.float32) / 4
    kinds = {"id": pa.int64(), "label": pa.int64(), "split": pa.string()}
    schema = pa.schema(kinds | {f"f{k}": pa.float32() for k in range(features)})
    with pq.ParquetWriter(folder / "nodes.parquet", schema, compression="none", use_dictionary=["split"]) as writer:
        for low in range(0, nodes, 2**16):
            ids = np.arange(low, min(low + 2**16, nodes))
            x = generator.normal(size=(ids.size, features)).astype(np.float32) + centers[ids % CLASSES]
            split = np.array(["train", "val", "test"])[np.searchsorted([train, 2 * train], generator.random(ids.size))]
            columns = [ids, ids % CLASSES, split, *np.ascontiguousarray(x.T)]
            writer.write_table(pa.table([pa.array(column) for column in columns], schema=schema))
    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    with pq.ParquetWriter(folder / "edges.parquet", schema) as writer:
        for low in range(0, edges // 2, CHUNK):
            source, target = generator.integers(nodes, size=(2, min(CHUNK, edges // 2 - low)))
            alike = target - target % CLASSES + source % CLASSES
            target = np.where((generator.random(source.size) < 0.7) & (alike < nodes), alike, target)
            writer.write_table(pa.table([pa.array(source), pa.array(target)], schema=schema))


def pack(folder: Path, _: str) -> dict[str, object]:
    from gfgn.data import pack_tables

    shutil.rmtree(folder / "store", ignore_errors=True)  # of an interrupted call
    store = pack_tables(folder, folder / "store")
    size = sum(path.stat().st_size for path in (folder / "store").iterdir())
    return {"nodes": store.num_nodes, "edges": store.num_edges, "store_gib": size / 2**30}


def network(folder: Path, level: str):  # type: ignore[no-untyped-def]
    import torch

    from gfgn import GFGN
    from gfgn.data import OnDiskGraph

    torch.manual_seed(0)
    store = OnDiskGraph.open(folder / "store")
    options = {"level": level, "heads": HEADS, "momentum": 0.1}
    return store, GFGN(store.num_features, HIDDEN, 2, store.num_classes, **options)


def train(folder: Path, level: str) -> dict[str, object]:
    import torch

    from gfgn import Graph
    from gfgn.data.on_disk import release
    from gfgn.sampling import NeighborLoader

    def released(batch: Any) -> Any:  # in the worker, once the batch has its features
        release(store.x)
        return batch

    store, model = network(folder, level)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = {"batch_size": BATCH, "shuffle": True, "num_workers": 1, "transform": released}
    loader = NeighborLoader(store, FANOUTS, store.splits[0].train, **options)
    start, edges, losses = time.perf_counter(), 0, []
    for batch in loader:
        hops = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes}
        hops["num_sampled_edges_per_hop"] = batch.num_sampled_edges
        out = model(batch.x, Graph.from_sample(batch), **hops)[: batch.batch_size]
        loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        edges += batch.edge_index.size(1)
        losses.append(loss.item())
    torch.save(model.state_dict(), folder / f"model-{level}.pt")
    facts = {"epoch_seconds": time.perf_counter() - start, "batches": len(losses), "edges": edges}
    return facts | {"first_loss": losses[0], "last_loss": losses[-1]}


def predict(folder: Path, level: str) -> dict[str, object]:
    import torch

    from gfgn.sampling import NeighborSampler
    from gfgn.train import infer_layerwise, keep_freed_memory

    store, model = network(folder, level)
    model.load_state_dict(torch.load(folder / f"model-{level}.pt", weights_only=True))
    with keep_freed_memory():
        out = infer_layerwise(model, store.x, NeighborSampler.from_store(store, [-1]), scratch=folder / "scratch")
    test, right = store.parts[0] == 2, 0
    for low in range(0, store.num_nodes, CHUNK):
        rows = slice(low, low + CHUNK)
        right += int(((out[rows].argmax(1).numpy() == store.y[rows]) & test[rows]).sum())
    return {"test_accuracy": right / int(test.sum())}


# --- limits -----------------------------------------------------------------------------------------------------------


def resident() -> tuple[float, float]:
    """Resident memory of this process and its children in MiB: private, and with pages of files."""
    children = [line for task in Path("/proc/self/task").iterdir() for line in (task / "children").read_text().split()]
    totals = {"RssAnon:": 0.0, "VmRSS:": 0.0}
    for process in (os.getpid(), *children):
        with contextlib.suppress(OSError):  # it has ended
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.split(None, 1)[0] in totals:
                    totals[line.split()[0]] += int(line.split()[1]) / 1024
    return totals["RssAnon:"], totals["VmRSS:"]


# --- stages -----------------------------------------------------------------------------------------------------------


def run_stage(name: str, folder: Path, level: str, gib: float) -> None:
    """In a process of its own: sets the limit, runs the stage and writes its record."""
    processes = 2 if name == "train" else 1
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30 / processes),) * 2)
    peaks, done = [0.0, 0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peaks[:] = map(max, peaks, resident())

    threading.Thread(target=watch, daemon=True).start()
    start = time.perf_counter()
    facts = {"pack": pack, "train": train, "predict": predict}[name](folder, level)
    facts |= {"seconds": time.perf_counter() - start}
    done.set()
    facts |= {"peak_private_mib": peaks[0], "peak_resident_mib": peaks[1]}
    record = record_of(folder, name, level)
    record.with_suffix(".part").write_text(json.dumps({"stage": name, "level": level, "gib": gib, **facts}))
    record.with_suffix(".part").rename(record)


def record_of(folder: Path, stage: str, level: str) -> Path:
    return folder / RECORDS / (f"{stage}.json" if stage == "pack" else f"{stage}-{level}.json")


def prepare(folder: Path, sizes: dict[str, Any]) -> None:
    """Makes the tables, unless the folder has them."""
    path = folder / TABLES
    if not path.exists():
        make(folder, **sizes)
        path.write_text(json.dumps(sizes))
    if json.loads(path.read_text()) != sizes:
        raise SystemExit(f"--folder must be new or have tables of {sizes}, got {path.read_text()} in {folder}")
    (folder / RECORDS).mkdir(exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--features", type=int, default=208)
    parser.add_argument("--train", type=float, default=0.01, help="fraction of training nodes")
    parser.add_argument("--gib", type=float, default=8.0)
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder, gib = arguments.folder, arguments.gib
    if arguments.stage:
        run_stage(arguments.stage, folder, arguments.levels[0], gib)
        return
    import common

    prepare(folder, {name: getattr(arguments, name) for name in ("nodes", "edges", "features", "train")})
    stages = [("pack", LEVELS[0]), *((stage, level) for level in arguments.levels for stage in ("train", "predict"))]
    rows = []
    for stage, level in stages:
        record = record_of(folder, stage, level)
        if not record.exists():
            command = [sys.executable, __file__, "--folder", str(folder), "--levels", level, "--gib", str(gib)]
            subprocess.run([*command, "--stage", stage], check=True)
        rows.append(json.loads(record.read_text()))
        print(rows[-1], flush=True)
    common.write("large", "cpu", rows, features=arguments.features, fanouts=FANOUTS, batch=BATCH)


if __name__ == "__main__":
    main()
