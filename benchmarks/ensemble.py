"""An ensemble of twenty networks against a single one: time, accuracy and calibration of `GFGNClassifier`.

    python benchmarks/ensemble.py [--device cpu] [--splits 3] [--seeds 1]

For every split of Cora, both fit all nodes but the test nodes, in alternation and in one process; scores are those of
the test nodes. The calibration error has a floor: the error of perfectly calibrated probabilities, measured with labels
drawn from the classifier's own probabilities. Over the test nodes of all splits together, it is lower.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import common
import numpy as np
import scipy.sparse
import torch

from gfgn import GFGNClassifier
from gfgn.data import NodeDataset, load
from gfgn.data.splits import Split
from gfgn.train import keep_freed_memory
from gfgn.train.evaluation import evaluate_classes

NETWORKS = 20
DRAWS = 50  # of labels, for the floor


def measure(
    data: NodeDataset, x: Any, split: Split, networks: int, seed: int, device: str, pool: dict[int, list[Any]]
) -> dict[str, Any]:
    """One fit; its probabilities and the true classes are added to `pool`."""
    test, truth = split.test.numpy(), data.y[split.test].numpy()
    clf = GFGNClassifier(replicas=networks, device=device, random_state=seed)
    start = time.perf_counter()
    clf.fit(x, np.where(test, -1, data.y.numpy()), edge_index=data.graph)
    row: dict[str, Any] = {"networks": networks, "seed": seed, "seconds": round(time.perf_counter() - start, 3)}
    p = clf.predict_proba(x, edge_index=data.graph)[test]
    names = [str(k) for k in range(data.num_classes)]
    pool.setdefault(networks, []).append((p, truth))
    row |= {"level": clf.level_, "accuracy": float((p.argmax(1) == truth).mean())}
    row["log_loss"] = float(-np.log(p[np.arange(len(truth)), truth].clip(1e-12)).mean())
    row["calibration_error"] = evaluate_classes(p, truth, names).calibration_error
    random = np.random.default_rng(seed)
    drawn = (p.cumsum(1)[None] > random.random((DRAWS, len(p), 1))).argmax(2)
    row["floor"] = statistics.fmean(evaluate_classes(p, labels, names).calibration_error for labels in drawn)
    temperature, clf.temperature_, clf.confidence_ = clf.temperature_, 1.0, None
    raw = clf.predict_proba(x, edge_index=data.graph)[test]
    row |= {"temperature": temperature, "uncalibrated_error": evaluate_classes(raw, truth, names).calibration_error}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    data = load("cora")
    x = scipy.sparse.csr_array((data.x.to_dense() if data.x.layout != torch.strided else data.x).numpy())
    rows: list[dict[str, Any]] = []
    pool: dict[int, list[Any]] = {}
    with keep_freed_memory():
        # The first fit compiles kernels.
        GFGNClassifier(max_epochs=2, device=arguments.device, random_state=0).fit(x, data.y, edge_index=data.graph)
        for index, split in enumerate(data.splits[: arguments.splits]):
            for seed in range(arguments.seeds):
                for networks in (1, NETWORKS):
                    rows.append({"split": index} | measure(data, x, split, networks, seed, arguments.device, pool))
                    print(rows[-1], flush=True)
    single, ensemble = ([row for row in rows if row["networks"] == n] for n in (1, NETWORKS))
    ratios = [large["seconds"] / small["seconds"] for small, large in zip(single, ensemble, strict=True)]
    summary: dict[str, object] = {"dataset": data.name, "time_ratio": round(statistics.median(ratios), 3)}
    for name in ("accuracy", "log_loss", "calibration_error", "uncalibrated_error", "floor"):
        means = [round(statistics.fmean(row[name] for row in own), 5) for own in (single, ensemble)]
        summary[name] = {"single": means[0], "ensemble": means[1]}
    together = [tuple(map(np.concatenate, zip(*pool[n], strict=True))) for n in (1, NETWORKS)]
    names = [str(k) for k in range(data.num_classes)]
    errors = [round(evaluate_classes(*each, names).calibration_error, 5) for each in together]
    summary["calibration_error_of_all_splits"] = {"single": errors[0], "ensemble": errors[1]}
    print(summary)
    common.write("ensemble", arguments.device, [summary | {"rows": rows}])


if __name__ == "__main__":
    main()
