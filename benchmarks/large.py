"""A graph on disk that is larger than what a process may use: packed, trained on and predicted within a limit.

    python benchmarks/large.py --folder DIR [--nodes 10000000] [--edges 100000000] [--gib 8] [--levels pair …]

Tables are generated in DIR, which needs about 30 GB at the default sizes; the graph has about `--edges` edges, both
directions counted. Every stage is a process of its own under `RLIMIT_DATA`: the kernel refuses it more private memory
than `--gib`; training has a worker process, and each of the two gets half. Files are mapped and shared, so that the
kernel can take their pages back. `peak_private_mib` is the largest private memory that was resident, of the process and
its worker together; `peak_resident_mib` counts pages of files too, of the larger of the two. Every stage runs once,
training and prediction once per level.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

CLASSES, CHUNK, HIDDEN, HEADS, FANOUTS, BATCH = 8, 2**20, 64, 8, [10, 5], 1024
STAGES, LEVELS = ("pack", "train", "predict"), ("graph", "neighbor", "pair")


def make(folder: Path, nodes: int, edges: int, features: int, train: float) -> None:
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

    store = pack_tables(folder / "nodes.parquet", folder / "edges.parquet", folder / "store")
    size = sum(path.stat().st_size for path in (folder / "store").iterdir())
    return {"nodes": store.num_nodes, "edges": store.num_edges, "store_gib": size / 2**30}


def network(folder: Path, level: str):  # type: ignore[no-untyped-def]
    import torch

    from gfgn import GFGN
    from gfgn.data import GraphStore

    torch.manual_seed(0)
    store = GraphStore.open(folder / "store")
    options = {"level": level, "heads": HEADS, "momentum": 0.1}
    return store, GFGN(store.num_features, HIDDEN, 2, store.num_classes, **options)


def train(folder: Path, level: str) -> dict[str, object]:
    import torch

    from gfgn import Graph
    from gfgn.sampling import NeighborLoader

    store, model = network(folder, level)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = {"batch_size": BATCH, "shuffle": True, "num_workers": 1}
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
    torch.save(model.state_dict(), folder / "model.pt")
    facts = {"epoch_seconds": time.perf_counter() - start, "batches": len(losses), "edges": edges}
    return facts | {"first_loss": losses[0], "last_loss": losses[-1]}


def predict(folder: Path, level: str) -> dict[str, object]:
    import torch

    from gfgn.sampling import NeighborSampler
    from gfgn.train import infer_layerwise

    store, model = network(folder, level)
    model.load_state_dict(torch.load(folder / "model.pt", weights_only=True))
    out = infer_layerwise(model, store.x, NeighborSampler.from_store(store, [-1]), scratch=folder / "scratch")
    test, right = store.parts[0] == 2, 0
    for low in range(0, store.num_nodes, CHUNK):
        rows = slice(low, low + CHUNK)
        right += int(((out[rows].argmax(1).numpy() == store.y[rows]) & test[rows]).sum())
    return {"test_accuracy": right / int(test.sum())}


def private_mib() -> float:
    """Resident private memory of this process and its children."""
    pid, total = os.getpid(), 0
    children = [line for task in Path("/proc/self/task").iterdir() for line in (task / "children").read_text().split()]
    for process in (pid, *children):
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
    return total / 1024


def run_stage(name: str, folder: Path, level: str, gib: float) -> None:
    """In a process of its own: sets the limit, runs the stage and prints the result."""
    processes = 2 if name == "train" else 1
    resource.setrlimit(resource.RLIMIT_DATA, (int(gib * 2**30 / processes),) * 2)
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], private_mib())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    start = time.perf_counter()
    facts = {"pack": pack, "train": train, "predict": predict}[name](folder, level)
    facts |= {"seconds": time.perf_counter() - start, "peak_private_mib": peak[0]}
    done.set()
    every = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    facts["peak_resident_mib"] = max(resource.getrusage(who).ru_maxrss for who in every) / 1024
    print(json.dumps({"stage": name, "level": level, **facts}))


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

    if not (folder / "edges.parquet").exists():
        make(folder, arguments.nodes, arguments.edges, arguments.features, arguments.train)
    stages = [] if (folder / "store" / "store.json").exists() else [("pack", arguments.levels[0])]
    stages += [(stage, level) for level in arguments.levels for stage in ("train", "predict")]
    rows = []
    for stage, level in stages:
        command = [sys.executable, __file__, "--folder", str(folder), "--levels", level, "--gib", str(gib)]
        done = subprocess.run([*command, "--stage", stage], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{stage} at level {level} ended with {done.returncode}")
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
    common.write("large", "cpu", rows, gib=gib, features=arguments.features, fanouts=FANOUTS, batch=BATCH)


if __name__ == "__main__":
    main()
