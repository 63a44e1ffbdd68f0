"""Models without a network: the majority class, two models of the features alone, and one of the edges alone.

They run in the same engine as all other models (`train_runs`, the store, comparisons). Each chooses its own
hyperparameter on the validation nodes, so those of a `Replica` do not apply, and none depends on the seed.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from gfgn import metrics
from gfgn.data.dataset import NodeDataset
from gfgn.data.splits import Split
from gfgn.nn.registry import Model, find_model
from gfgn.ops import propagate
from gfgn.train.catalog import CLASSICAL, COMPONENTS, WIDE
from gfgn.train.config import TrainConfig
from gfgn.train.progress import Progress
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.task import check_splits, with_sparse_features

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)  # C of the logistic regression, the inverse strength of its L2 penalty
ROUNDS, MAX_ROUNDS = 10, 200  # of boosting: added at a time, and in all
ALPHAS = (0.5, 0.8, 0.9, 0.95, 0.99)  # of label propagation: the weight of the neighbors
STEPS = 50  # of label propagation
PRIOR = 1e-3  # weight of the class frequencies in the scores of label propagation
SMALLEST = 1e-7  # probability: logarithms stay finite

_one_at_a_time = threading.Lock()  # the limit of threads and the filter of warnings are the process's

Floats = NDArray[np.float64]
Candidate = tuple[Tensor, int]  # `[N, C]` probabilities, and the number of fitted parameters


def find_network(name: str) -> Model:
    """Returns the network of that name; the message of the error names the models without one too."""
    return find_model(name, also=tuple(CLASSICAL))


def check_classical(name: str, data: NodeDataset) -> None:
    """Raises an error if the model is not for this kind of data."""
    entry = CLASSICAL[name]
    if data.multilabel and not entry.multilabel:
        suited = ", ".join(each for each, other in CLASSICAL.items() if other.multilabel)
        raise ValueError(f"models without a network must be among {suited} for multi-label data, got {name}")
    if data.inductive and not entry.inductive:
        raise ValueError(f"models must run on unseen graphs for {data.name!r}, got {name}, which does not")


def train_classical(
    name: str,
    data: NodeDataset,
    replicas: Sequence[Replica],
    config: TrainConfig,
    *,
    progress: Callable[[Run], None] | None = None,
    status: Callable[[Status], None] | None = None,
) -> list[Run]:
    """Fits a model of `CLASSICAL` on the split of every replica, once per split, and returns one run per replica.

    Of `config`, only `class_weights` has an effect. Works on the CPU.
    """
    check_classical(name, data)
    check_splits(data, (replica.split for replica in replicas))
    data = data.to("cpu")
    reports = Progress(len(replicas), progress, status)
    fits: dict[int, tuple[Tensor, int, float]] = {}
    for index, replica in enumerate(replicas):
        split = data.splits[replica.split]
        if replica.split not in fits:
            start = time.perf_counter()
            fits[replica.split] = (*fit_classical(name, data, split, config.class_weights), time.perf_counter() - start)
        probabilities, parameters, seconds = fits[replica.split]
        val, test = (score(data, probabilities, mask) for mask in (split.val, split.test))
        reports.finish(index, Run(replica, name, val, test, 0, 0, {}, seconds, parameters))
        reports.report(0, lambda: [run.val for run in reports.runs.values()])
    return [reports.runs[index] for index in range(len(replicas))]


def fit_classical(name: str, data: NodeDataset, split: Split, balanced: bool = False) -> Candidate:
    """`[N, C]` probabilities of all nodes by the model chosen on the validation nodes, and its number of parameters.

    Args:
        balanced: Whether every class has the same weight, however many nodes it has.
    """
    with _one_at_a_time, _one_thread_if_small(data):
        candidates: Iterator[Candidate] = CLASSICAL[name].candidates(data, split, balanced)
        return max(candidates, key=lambda candidate: score(data, candidate[0], split.val))  # the first of equal ones


def score(data: NodeDataset, probabilities: Tensor, mask: Tensor) -> float:
    """The score of `[N, C]` probabilities on the nodes of a mask."""
    kept = probabilities.clamp(SMALLEST, 1 - SMALLEST)
    logits = kept.logit() if data.multilabel else kept.log()
    return metrics.METRICS[data.metric].score(logits[None], data.y, mask[None]).item()


# --- the models -------------------------------------------------------------------------------------------------------


def majority(data: NodeDataset, split: Split, balanced: bool) -> Iterator[Candidate]:
    yield _frequencies(data, split.train).expand(data.num_nodes, -1), data.num_classes


def logistic_regression(data: NodeDataset, split: Split, balanced: bool) -> Iterator[Candidate]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import StandardScaler

    x, train = _features(data), split.train.numpy()
    if not isinstance(x, np.ndarray):  # one factor for all words: standardized, rare words would count most
        x = x / max(SMALLEST, np.sqrt(x[train].power(2).sum() / train.sum()))
    else:
        x = StandardScaler().fit(x[train]).transform(x)
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=500, class_weight="balanced" if balanced else None)
        yield _predict(OneVsRestClassifier(model) if data.multilabel else model, x, data, train), _linear_size(data)


def gradient_boosting(data: NodeDataset, split: Split, balanced: bool) -> Iterator[Candidate]:
    """Adds rounds as long as the validation score improves; no candidate comes after two without improvement."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.ensemble import HistGradientBoostingClassifier

    x, train = _features(data), split.train.numpy()
    if x.shape[1] > WIDE:
        x = TruncatedSVD(min(COMPONENTS, int(train.sum())), random_state=0).fit(x[train]).transform(x)
    x = x if isinstance(x, np.ndarray) else x.toarray()
    weight = "balanced" if balanced else None
    model = HistGradientBoostingClassifier(early_stopping=False, warm_start=True, random_state=0, class_weight=weight)
    scores: list[float] = []
    for rounds in range(ROUNDS, MAX_ROUNDS + 1, ROUNDS):
        probabilities = _predict(model.set_params(max_iter=rounds), x, data, train)
        trees = getattr(model, "n_trees_per_iteration_", 0)
        yield probabilities, rounds * trees * model.max_leaf_nodes  # at most one value per leaf
        scores.append(score(data, probabilities, split.val))
        if max(scores) > max(scores[-2:]):
            break


def label_propagation(data: NodeDataset, split: Split, balanced: bool) -> Iterator[Candidate]:
    """`Y ← α Â Y + (1 − α) Y₀`, where `Y₀` has the classes of the training nodes."""
    known = torch.zeros(data.num_nodes, data.num_classes, dtype=data.graph.dtype)
    known[split.train, data.y[split.train]] = 1
    prior = _frequencies(data, split.train).to(known.dtype)
    for alpha in ALPHAS:
        y = known
        for _ in range(STEPS):
            y = alpha * propagate(y, data.graph) + (1 - alpha) * known
        y = y + PRIOR * prior  # the class frequencies where no label arrives
        yield y / y.sum(1, keepdim=True), 1


# --- parts ------------------------------------------------------------------------------------------------------------


def _frequencies(data: NodeDataset, train: Tensor) -> Tensor:
    """`[C]`: the fraction of the training nodes of each class, or with each label."""
    y = data.y[train]
    counts = y.sum(0) if data.multilabel else torch.bincount(y, minlength=data.num_classes)
    return counts.double() / y.size(0)


def _features(data: NodeDataset) -> Any:
    """The features as a NumPy array, or as a SciPy matrix if most are zero."""
    x = with_sparse_features(data).x
    if x.layout == torch.strided:
        return x.double().numpy()
    parts = (x.values().double(), x.col_indices(), x.crow_indices())
    return scipy.sparse.csr_array(tuple(part.numpy() for part in parts), shape=(x.size(0), x.size(1)))


def _predict(model: Any, x: Any, data: NodeDataset, train: NDArray[np.bool_]) -> Tensor:
    """Fits a model of scikit-learn; `[N, C]` probabilities, 0 for classes without training nodes."""
    y = data.y.numpy()
    if not data.multilabel and np.unique(y[train]).size < 2:
        return _frequencies(data, torch.from_numpy(train)).expand(data.num_nodes, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no convergence, or labels that no or every node has
        model.fit(x[train], y[train].astype(np.int64))
    found: Floats = model.predict_proba(x)
    if data.multilabel:
        return torch.from_numpy(found)
    probabilities = np.zeros((data.num_nodes, data.num_classes))
    probabilities[:, model.classes_] = found
    return torch.from_numpy(probabilities)


def _linear_size(data: NodeDataset) -> int:
    return (data.num_features + 1) * data.num_classes


def _one_thread_if_small(data: NodeDataset, values: int = 2**22) -> Any:
    """One thread for small data: threads that wait for each other make it many times slower on a busy machine."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    return threadpool_limits(1 if data.num_nodes * data.num_features < values else None)
