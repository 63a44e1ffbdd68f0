"""An ensemble of twenty against a single network: time, accuracy and calibration of `GFGNClassifier`.

    python benchmarks/ensemble.py [--dataset cora] [--splits 5] [--level auto]

Both fit the training and validation nodes of the same splits in alternation, in one process; scores are those of the
test nodes.
"""

from __future__ import annotations

import argparse
import statistics
import time

import common
import numpy as np
import scipy.sparse
import torch

from gfgn import GFGNClassifier
from gfgn.data import load
from gfgn.train import keep_freed_memory
from gfgn.train.evaluation import evaluate_classes

NETWORKS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--level", default="auto")
    arguments = parser.parse_args()
    data = load(arguments.dataset)
    dense = data.x.to_dense() if data.x.layout != torch.strided else data.x
    x = scipy.sparse.csr_array(dense.numpy())
    names = [str(k) for k in range(data.num_classes)]
    rows = []
    with keep_freed_memory():
        GFGNClassifier(arguments.level, max_epochs=2, random_state=0).fit(x, data.y, data.graph)  # compiles kernels
        for split in data.splits[: arguments.splits]:
            y = np.where(split.test.numpy(), -1, data.y.numpy())
            for networks in (1, NETWORKS):
                clf = GFGNClassifier(arguments.level, networks, random_state=0)
                start = time.perf_counter()
                clf.fit(x, y, edge_index=data.graph, val_mask=split.val.numpy())
                seconds = time.perf_counter() - start
                p = clf.predict_proba(x, edge_index=data.graph)[split.test.numpy()]
                truth = data.y[split.test].numpy()
                error = evaluate_classes(p, truth, names).calibration_error
                row = {"networks": networks, "seconds": round(seconds, 3), "level": clf.level_}
                row |= {"accuracy": float((p.argmax(1) == truth).mean()), "calibration_error": error}
                row["temperature"] = round(clf.temperature_, 4)
                rows.append(row)
                print(row, flush=True)
    by_size = {n: [row for row in rows if row["networks"] == n] for n in (1, NETWORKS)}
    ratios = [b["seconds"] / a["seconds"] for a, b in zip(*by_size.values(), strict=True)]
    summary = {"time_ratio": round(statistics.median(ratios), 3)}
    for name in ("accuracy", "calibration_error"):
        summary |= {f"{name}_{n}": round(statistics.fmean(row[name] for row in own), 5) for n, own in by_size.items()}
    print(summary)
    content = {"dataset": data.name, "level": arguments.level, **summary, "rows": rows}
    common.write("ensemble", "cpu", [content])


if __name__ == "__main__":
    main()
