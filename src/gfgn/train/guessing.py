"""What guessing scores: the floor that a model must be shown to be above before anything is said in its favor."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def guess_score(metric: str, y: Tensor, num_classes: int) -> float:
    """The expected score of guesses on nodes with the labels `y`, `[N]` or, for multi-label data, `[N, L]` of bool.

    A guess knows the classes and the metric but nothing of the nodes: each class with the same probability, all labels
    of a node, or a ranking at random. What also knows that some classes are more frequent is the model `majority`.
    """
    if y.dim() == 2:
        return MULTILABEL[metric](y.sum(0).double(), y.size(0))
    return GUESSES[metric](torch.bincount(y, minlength=num_classes).double(), y.numel())


def _uniform(counts: Tensor, size: int) -> float:
    return 1 / counts.numel()


def _of_those_that_occur(counts: Tensor, size: int) -> float:
    """Recall and F1 are averages over these classes. With fractions `p` of the predictions and `q` of the nodes, the
    sum of the expected F1, `2 p q / (p + q)`, is at most that of `(p + q) / 2`, which is 1."""
    return 1 / max(1, int((counts > 0).sum()))


def _random_ranking(counts: Tensor, size: int) -> float:
    """The expected average precision of a random ranking, which is above the fraction of positive nodes.

    Of `n` nodes, of which `m` are positive, a positive one at rank `k` has `1 + (k − 1) (m − 1) / (n − 1)` positive
    ones up to its rank. The mean precision over all ranks follows from `Σ 1/k`.
    """
    counts = counts[1:] if counts.numel() == 2 else counts[(counts > 0) & (counts < size)]
    if size < 2 or not counts.numel():
        return math.nan  # the score is not defined either
    harmonic = float(torch.arange(1, size + 1, dtype=torch.float64).reciprocal().sum())
    return float(((counts - 1) / (size - 1) * (size - harmonic) + harmonic).mean()) / size


def _every_label(counts: Tensor, size: int) -> float:
    """Micro-F1 if each node is given the most frequent labels; the best number of them."""
    given = torch.arange(1, counts.numel() + 1)
    return float((2 * counts.sort(descending=True).values.cumsum(0) / (given * size + counts.sum())).max())


GUESSES: dict[str, Callable[[Tensor, int], float]] = {
    "accuracy": _uniform,
    "balanced_accuracy": _of_those_that_occur,
    "macro_f1": _of_those_that_occur,
    "roc_auc": lambda counts, size: 0.5,
    "average_precision": _random_ranking,
    "log_loss": lambda counts, size: -math.log(counts.numel()),
}
MULTILABEL: dict[str, Callable[[Tensor, int], float]] = {
    "micro_f1": _every_label,
    "macro_f1": lambda counts, size: float((2 * counts / (size + counts)).mean()),
    "log_loss": lambda counts, size: -math.log(2),
}
