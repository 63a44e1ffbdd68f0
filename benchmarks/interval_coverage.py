"""How often the 95% intervals that gfgn prints contain the truth, measured by simulation.

    python benchmarks/interval_coverage.py

Draws many data sets from one distribution, trains cheap classifiers, and networks on smaller ones, on random 48/32/20
splits of each, and counts how often the intervals of scores and of paired differences contain the expected score over
all data sets and splits. Takes about an hour of one core, and uses all there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import common
import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from gfgn.data import contextual_sbm
from gfgn.train import Replica, difference, summarize, train_replicas
from gfgn.train.statistics import standard_error

Floats = NDArray[np.float64]
Row = dict[str, Any]

SPLITS = (2, 4, 10)
SEED = 2  # intervals of differences were designed on the draws of earlier seeds
DATA_SETS = 2000
RESAMPLES = 2000
PENALTIES = (1.0, 10.0, 100.0)  # of ridge regression, chosen on the validation nodes
DEGREE = 4


class Setting(NamedTuple):
    """A distribution of data sets: Gaussian classes on a graph with homophilous edges."""

    nodes: int
    classes: int
    features: int
    distance: float  # of class means, in standard deviations of a node
    homophily: float = 0.6


# Of the size of Texas and Wisconsin, of a thousand nodes, of Cora and of BlogCatalog: 40 to 1,000 test nodes.
SETTINGS = (Setting(200, 5, 20, 3.0), Setting(1000, 5, 30, 3.0), Setting(2700, 7, 50, 3.5), Setting(5000, 6, 50, 3.0))
# What is estimated: the scores of three models, and the differences of two pairs of them.
MODELS = ("ridge on features", "ridge on neighbors' features", "nearest mean on features")
PAIRS = {"neighbors − features": (1, 0), "nearest mean − ridge": (2, 0)}
NETWORKS, NETWORK_NODES, NETWORK_DATA_SETS = ("mlp", "gcn", "gfgn-graph"), 500, 200
NETWORK_PAIRS = {"gcn − mlp": (1, 0), "gfgn-graph − gcn": (2, 1)}


def simulate(setting: Setting, data_sets: int, splits: int = max(SPLITS), seed: int = SEED) -> Floats:
    """`[models, data sets, splits]`: test accuracies."""
    draw = np.random.default_rng([seed, *setting[:3]])
    means = draw.normal(size=(setting.classes, setting.features)) * setting.distance / np.sqrt(2 * setting.features)
    scores = np.empty((len(MODELS), data_sets, splits))
    first, second = round(0.48 * setting.nodes), round(0.8 * setting.nodes)
    for k in range(data_sets):
        y = draw.integers(setting.classes, size=setting.nodes)
        x = means[y] + draw.normal(size=(setting.nodes, setting.features))
        averaged = average_over_neighbors(x, y, setting, draw)
        for split in range(splits):
            parts = np.split(draw.permutation(setting.nodes), [first, second])
            scores[:, k, split] = (
                ridge(x, y, parts, setting.classes),
                ridge(averaged, y, parts, setting.classes),
                nearest_mean(x, y, parts, setting.classes),
            )
    return scores


def average_over_neighbors(x: Floats, y: NDArray[np.int64], setting: Setting, draw: np.random.Generator) -> Floats:
    """The mean of each node's own features and those of `DEGREE` others, of the same class at the rate of homophily."""
    order = np.argsort(y, kind="stable")
    sizes = np.bincount(y, minlength=setting.classes)
    start = np.cumsum(sizes) - sizes
    total = x.copy()
    for _ in range(DEGREE):
        same = order[start[y] + (draw.random(y.size) * sizes[y]).astype(np.int64)]
        other = draw.integers(y.size, size=y.size)
        total += x[np.where(draw.random(y.size) < setting.homophily, same, other)]
    return total / (DEGREE + 1)


def ridge(x: Floats, y: NDArray[np.int64], parts: list[NDArray[np.int64]], classes: int) -> float:
    """Test accuracy of ridge regression on the classes, with the penalty that is best on the validation nodes."""
    train, val, test = parts
    targets = np.eye(classes)[y[train]]
    center, offset = x[train].mean(0), targets.mean(0)
    a = x[train] - center
    values, vectors = np.linalg.eigh(a.T @ a)
    projected = vectors.T @ (a.T @ (targets - offset))
    rotated = (x - center) @ vectors
    best = (-1.0, 0.0)
    for penalty in PENALTIES:
        right = (rotated @ (projected / (values + penalty)[:, None]) + offset).argmax(1) == y
        best = max(best, (right[val].mean(), right[test].mean()), key=lambda pair: pair[0])
    return float(best[1])


def nearest_mean(x: Floats, y: NDArray[np.int64], parts: list[NDArray[np.int64]], classes: int) -> float:
    """Test accuracy of the nearest class mean of the training nodes."""
    train, _, test = parts
    targets = np.eye(classes)[y[train]]
    means = targets.T @ x[train] / np.maximum(targets.sum(0), 1)[:, None]
    return float(((x[test] @ means.T - (means**2).sum(1) / 2).argmax(1) == y[test]).mean())


def simulate_networks(data_sets: int, splits: int = max(SPLITS)) -> Floats:
    """`[models, data sets, splits]`: test accuracies of networks on graphs of a contextual stochastic block model."""
    seeds = range(SEED * data_sets, (SEED + 1) * data_sets)
    with ProcessPoolExecutor(workers(), get_context("spawn"), single_thread) as pool:
        return np.stack(list(pool.map(partial(network_scores, splits), seeds)), 1)


def network_scores(splits: int, seed: int) -> Floats:
    """`[models, splits]`: test accuracies on the graph of one seed."""
    means = np.random.default_rng(0).normal(size=(4, 16))
    means *= 1.5 / np.linalg.norm(means, axis=1, keepdims=True)
    data = contextual_sbm(NETWORK_NODES, classes=4, degree=5, homophily=0.6, splits=splits, seed=seed)
    # The generator draws other class means for every seed: other distributions, with other expected scores.
    x = means[data.y] + np.random.default_rng([1, seed]).normal(size=data.x.shape)
    data = replace(data, x=torch.from_numpy(x).float())
    replicas = [Replica(split, 0, lr=0.02) for split in range(splits)]
    runs = [train_replicas(name, data, replicas, 100, 30, history=False, gates=False) for name in NETWORKS]
    return np.array([[run.test for run in of_model] for of_model in runs])


def workers() -> int:
    """Number of processes: one per core, but for two cores of a larger machine."""
    cores = len(os.sched_getaffinity(0))
    return cores - 2 if cores > 4 else cores


def single_thread() -> None:
    torch.set_num_threads(1)


# --- intervals --------------------------------------------------------------------------------------------------------


def printed(scores: Floats, others: Floats | None) -> tuple[float, float]:
    """The interval that gfgn prints, of `[splits]` scores or of their paired differences."""
    runs, rest = (
        [(k, 0, float(v)) for k, v in enumerate(each)] for each in (scores, scores if others is None else others)
    )
    summary = summarize(runs) if others is None else difference(runs, rest)
    return summary.low, summary.high


def bootstrap(values: Floats, seed: int = 0) -> tuple[Floats, Floats]:
    """Percentile bootstrap intervals of the mean of each row of `[data sets, splits]`."""
    picks = np.random.default_rng(seed).multinomial(
        values.shape[1], np.full(values.shape[1], 1 / values.shape[1]), RESAMPLES
    )
    low, high = np.quantile(values @ (picks.T / values.shape[1]), [0.025, 0.975], axis=1)
    return low, high


def coverage(scores: Floats, others: Floats | None = None) -> list[Row]:
    """For each number of splits, how often intervals contain the mean over all data sets and splits."""
    values = scores if others is None else scores - others
    truth, rows = values.mean(), []
    for count in SPLITS:
        means = values[:, :count].mean(1)
        bounds = {"bootstrap": bootstrap(values[:, :count])}
        pairs = [printed(scores[k, :count], None if others is None else others[k, :count]) for k in range(len(scores))]
        bounds["printed"] = tuple(np.array(pairs).T)
        for name, share in {"t": 0.0, "test over training nodes": 20 / 48}.items():
            half = stats.t.ppf(0.975, count - 1) * np.array([standard_error(row, share) for row in values[:, :count]])
            bounds[name] = (means - half, means + half)
        # rounding errors must not exclude the truth where all scores are equal
        covered = {
            name: np.mean((low - 1e-12 <= truth) & (truth <= high + 1e-12)) for name, (low, high) in bounds.items()
        }
        width = float(np.mean(bounds["printed"][1] - bounds["printed"][0]))
        row = {"splits": count, **{name: round(float(value), 4) for name, value in covered.items()}}
        rows.append(row | {"mean width": round(width, 4), "standard deviation": round(float(means.std()), 4)})
    return rows


def measure(scores: Floats, models: Sequence[str], pairs: Mapping[str, tuple[int, int]], nodes: int) -> list[Row]:
    """The coverage of the scores of all models and of the differences of pairs of them."""
    estimates: dict[str, tuple[Floats, Floats | None]] = {name: (scores[k], None) for k, name in enumerate(models)}
    estimates |= {name: (scores[first], scores[second]) for name, (first, second) in pairs.items()}
    rows = []
    for name, (own, others) in estimates.items():
        values = own if others is None else own - others
        covariance = np.cov(values.T)
        correlation = (covariance.sum() / np.trace(covariance) - 1) / (len(covariance) - 1)
        about = {
            "nodes": nodes,
            "test nodes": nodes - round(0.8 * nodes),
            "data sets": len(values),
            "estimate": name,
            "kind": "score" if others is None else "difference",
            "truth": round(float(values.mean()), 4),
            "correlation of splits": round(float(correlation), 3),
        }
        for row in coverage(own, others):
            rows.append(about | row)
            print(" ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    return rows


def main() -> None:
    rows: list[Row] = []
    with ProcessPoolExecutor(workers(), get_context("spawn"), single_thread) as pool:
        scores = list(pool.map(partial(simulate, data_sets=DATA_SETS), SETTINGS))
    for setting, of_setting in zip(SETTINGS, scores, strict=True):
        rows += measure(of_setting, MODELS, PAIRS, setting.nodes)
    rows += measure(simulate_networks(NETWORK_DATA_SETS), NETWORKS, NETWORK_PAIRS, NETWORK_NODES)
    common.write("interval_coverage", "cpu", rows)


if __name__ == "__main__":
    main()
