"""Reading a large Parquet graph with string ids: gfgn compared with pandas + NetworkX, time and peak memory.

    python benchmarks/read.py [--edges 10000000 2000000] [--networkx-up-to 2000000]

The files are generated in a temporary folder, with and without edge weights; NetworkX runs without weights only. Every
contender runs in a separate process, so that peaks are independent; `imports_mib` is the peak after importing the
packages. `cpu_seconds` is processor time, which depends less on other programs than `seconds`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FEATURES, CLASSES, CHUNK = 16, 5, 2**20


def make(folder: Path, num_nodes: int, num_edges: int, weighted: bool, seed: int = 0) -> None:
    """Writes `nodes.parquet` and `edges.parquet`, the edges chunk by chunk."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(seed)
    ids = pa.array([f"user-{k:08x}" for k in generator.permutation(num_nodes)])
    nodes = {"id": ids, "label": pa.array(generator.integers(CLASSES, size=num_nodes))}
    nodes |= {f"f{k}": pa.array(generator.normal(size=num_nodes).astype(np.float32)) for k in range(FEATURES)}
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    columns = {"source": pa.string(), "target": pa.string()} | ({"weight": pa.float32()} if weighted else {})
    schema = pa.schema(columns)
    with pq.ParquetWriter(folder / "edges.parquet", schema) as writer:
        for start in range(0, num_edges, CHUNK):
            size = min(CHUNK, num_edges - start)
            pairs = generator.integers(num_nodes, size=(2, size))
            if weighted:
                pairs.sort(axis=0)  # in one direction: the opposite of an edge has its weight
            ends = [ids.take(pa.array(rows)) for rows in pairs]
            weight = [pa.array(generator.random(size, dtype=np.float32) + np.float32(0.5))] if weighted else []
            writer.write_table(pa.table([*ends, *weight], schema=schema))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def with_gfgn(folder: Path) -> dict[str, object]:
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    from gfgn.data.reading import read

    before, start, worked = peak_mib(), time.perf_counter(), cpu_seconds()
    dataset = read(folder)
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - worked}
    facts = {"nodes": dataset.num_nodes, "directed_edges": dataset.graph.num_edges}
    return {**spent, "imports_mib": before, "peak_mib": peak_mib(), **facts}


def with_networkx(folder: Path) -> dict[str, object]:
    import networkx
    import pandas
    import pyarrow.parquet  # noqa: F401

    before, start, worked = peak_mib(), time.perf_counter(), cpu_seconds()
    nodes, edges = (pandas.read_parquet(folder / f"{name}.parquet") for name in ("nodes", "edges"))
    graph = networkx.from_pandas_edgelist(edges)
    graph.add_nodes_from(nodes["id"])
    graph.remove_edges_from(list(networkx.selfloop_edges(graph)))
    features = nodes.drop(columns=["id", "label"]).to_numpy()
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": cpu_seconds() - worked}
    facts = {"nodes": len(features), "directed_edges": 2 * graph.number_of_edges()}
    return {**spent, "imports_mib": before, "peak_mib": peak_mib(), **facts}


CONTENDERS = {"gfgn": with_gfgn, "pandas + NetworkX": with_networkx}


def problem(num_edges: int, weighted: bool, with_peer: bool) -> dict[str, object]:
    num_nodes, title = num_edges // 10, f"{num_edges:,} edges{' with weights' if weighted else ''}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Also in a separate process: the peak of a child starts from that of its parent.
        call = [sys.executable, __file__]
        weights = ["--weights"] if weighted else []
        subprocess.run([*call, "--make", name, "--edges", str(num_edges), *weights], check=True)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(f"{title}, {num_nodes:,} nodes, files of {size:.0f} MiB", flush=True)
        rows = []
        for contender in CONTENDERS if with_peer else ("gfgn",):
            done = subprocess.run([*call, "--child", contender, name], check=True, capture_output=True, text=True)
            row = {"contender": contender, **json.loads(done.stdout.splitlines()[-1])}
            row["over_files_mib"] = row["peak_mib"] - size
            print(
                f"  {contender:<18} {row['seconds']:7.1f} s ({row['cpu_seconds']:.1f} of CPU time)  "
                f"peak {row['peak_mib']:7.0f} MiB, of that {row['imports_mib']:.0f} for imports; "
                f"{row['over_files_mib']:.0f} MiB over the files",
                flush=True,
            )
            rows.append(row)
    facts = {"nodes": num_nodes, "edges": num_edges, "features": FEATURES, "files_mib": size}
    return {"title": title, **facts, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[10_000_000], help="edges of each graph; it has a tenth as many nodes"
    )
    parser.add_argument("--networkx-up-to", type=int, default=10**12, help="skip NetworkX on larger graphs")
    parser.add_argument("--make", help=argparse.SUPPRESS)
    parser.add_argument("--weights", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        make(Path(options.make), options.edges[0] // 10, options.edges[0], options.weights)
    elif options.child:
        print(json.dumps(CONTENDERS[options.child[0]](Path(options.child[1]))))
    else:
        problems = [
            problem(edges, weighted, not weighted and edges <= options.networkx_up_to)
            for edges in options.edges
            for weighted in (False, True)
        ]
        import common  # imports PyTorch; only after the children, whose peak starts from that of their parent

        common.write("read", "cpu", problems)


if __name__ == "__main__":
    main()
