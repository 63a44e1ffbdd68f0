"""The effect on geom-gcn on Citeseer of neighbor relations that follow the classes.

    python benchmarks/geom_gcn_relations.py [--device cuda] [--file outf_nodes_space_relation_citeseer_MDS.txt]

Geom-GCN sorts a node's neighbors by their direction in a plane that is embedded without labels. The authors' program
reads these relations from a file; for Isomap on Citeseer it is `outf_nodes_space_relation_citeseer_MDS.txt` in the
folder `structural_neighborhood/` of their repository. `COUNTS` has the relations of its first 570 edges of the graph,
for edges between and within classes; `--file` counts a whole file. Three kinds of relations are compared, with the
configuration of Table 1: directions in the plane; random relations at the rates of the file; and random relations at
the rates of the file for edges between and within classes. The last kind uses the labels of all nodes. It explains a
published number and is not part of any study.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import common
import numpy as np
import numpy.typing as npt
import torch

from gfgn.data import NodeDataset, load
from gfgn.nn.baselines import geom_gcn
from gfgn.train import Replica, summarize, train_replicas

COUNTS = np.array([[12, 14, 16, 100], [36, 41, 321, 30]])
"""Edges between classes and edges within a class, by relation."""
SETTINGS: dict[str, Any] = {"lr": 0.05, "weight_decay": 5e-5, "dropout": 0.5, "options": (("hidden", 48),)}
"""The configuration that validation selects in Table 1."""
Integers = npt.NDArray[np.int64]


def counted(file: Path, data: NodeDataset) -> npt.NDArray[np.int64]:
    """`COUNTS` for a whole file."""
    y, counts = data.y.numpy(), np.zeros((2, geom_gcn.DIRECTIONS), dtype=np.int64)
    for line in file.read_text().splitlines()[1:]:
        pair, space, relation = line.split("\t")
        if space == "graph":
            source, target = map(int, pair.split(","))
            counts[int(y[source] == y[target]), int(relation)] += 1
    return counts


def drawn(data: NodeDataset, rates: npt.NDArray[np.float64]) -> Integers:
    """A random relation for every edge, at the rates for edges between and within classes."""
    source, target = data.graph.edge_index.numpy()
    same = (data.y.numpy()[source] == data.y.numpy()[target]).astype(np.int64)
    bounds = (rates / rates.sum(1, keepdims=True)).cumsum(1)[same]
    relation: Integers = (np.random.default_rng(0).random((same.size, 1)) > bounds[:, :-1]).sum(1)
    return relation


def measure(kind: str, relations: Integers | None, seeds: int, device: str) -> dict[str, object]:
    """Trains on all splits, with the given relations instead of directions for the edges of the graph."""
    data, plain = load("citeseer"), geom_gcn.direction

    def direction(places: Integers, source: Integers, target: Integers) -> Integers:
        result = plain(places, source, target)
        if relations is not None:
            result[: relations.size] = relations  # the edges of the graph come first
        return result

    geom_gcn.direction = direction
    try:
        replicas = [Replica(split, seed, **SETTINGS) for split in range(10) for seed in range(seeds)]
        runs = train_replicas("geom-gcn", data, replicas, device=device, history=False)
    finally:
        geom_gcn.direction = plain
    mean, std, low, high, count = summarize(runs)
    print(f"{kind:<40} {100 * mean:.2f} [{100 * low:.2f}, {100 * high:.2f}], {count} runs", flush=True)
    return {"relations": kind, "test": mean, "std": std, "low": low, "high": high, "runs": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--file", type=Path, help="count the authors' whole file")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    data = load("citeseer")
    counts = COUNTS if args.file is None else counted(args.file, data)
    fraction = counts[1] / counts.sum(0)
    print("edges within a class, by relation: " + ", ".join(f"{100 * value:.0f}%" for value in fraction))
    kinds = {
        "directions in the plane": None,
        "random, rates of the file": drawn(data, np.tile(counts.sum(0), (2, 1)).astype(float)),
        "random, rates of the file by agreement of labels": drawn(data, counts.astype(float)),
    }
    problems = [measure(kind, relations, args.seeds, args.device) for kind, relations in kinds.items()]
    facts = {"counts": counts.tolist(), "published": 0.7799, "settings": str(SETTINGS)}
    common.write("geom_gcn_relations", args.device, problems, **facts)


if __name__ == "__main__":
    main()
