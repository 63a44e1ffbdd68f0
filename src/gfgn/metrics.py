"""Losses and metrics: `METRICS` has one entry per metric, with all that the rest of the package knows about it.

Scores of many replicas take `logits` of shape `[R, N, C]` and a weight or a mask of shape `[R, N]`. A higher score is
better. Scores are those of scikit-learn, but of all replicas at once and without waiting for the device: validation is
captured as a CUDA graph. A score that is not defined is NaN; `gfgn.train.task.check_splits` refuses such a split.

A guess is the floor that a model must be shown to be above. It knows the classes and the metric but nothing of the
nodes: each class with the same probability, all labels of a node, or a ranking at random. What also knows that some
classes are more frequent is the model `majority`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from gfgn.ops.invariant import activate_op, sum_rows_op


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of each node, or, for multi-label `y` (`[N, C]` of bool), its mean over the labels."""
    if y.dim() == 2:
        softplus: Tensor = activate_op(logits.contiguous(), "softplus")
        return (softplus - logits * y.to(logits.dtype)).mean(-1)
    return cross_entropy(logits, y, reduction="none")


def loss(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """`[R]`: the weighted sum of the nodes' losses; the weight of a node without a label (−1) must be 0."""
    if y.dim() == 2:
        losses = node_losses(logits, y)
    else:
        # Nodes last: on a CPU a sum over a few adjacent numbers per node takes seven times as long.
        index = y.clamp(min=0).view(1, 1, -1).expand(logits.size(0), 1, -1)
        losses = -log_softmax(logits.transpose(1, 2).contiguous(), 1).gather(1, index).squeeze(1)
    # Adjacent numbers of one replica would be added in an order that depends on how many replicas there are.
    total: Tensor = sum_rows_op((losses * weight).t().contiguous())
    return total.squeeze(0)


def _largest(logits: Tensor) -> Tensor:
    """`[R, N]`: the class with the largest logit."""
    # On a CPU, among numbers that are not adjacent the search takes twenty times as long.
    return (logits if logits.stride(-1) == 1 else logits.contiguous()).argmax(-1)


def accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: the fraction of the nodes in `mask` whose largest logit is that of their class."""
    return ((_largest(logits) == y) & mask).sum(1) / mask.sum(1)


def balanced_accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: the recall of each class that occurs in `mask`, averaged over these classes."""
    classes, right = logits.size(-1), (_largest(logits) == y) & mask
    support = _count(y, mask, classes)
    return _mean(_count(y, right, classes) / support, support > 0)


def macro_f1(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: `2 TP / (2 TP + FP + FN)` of each class, averaged over the classes that occur in `mask` or are predicted.

    For multi-label `y` the average is over all labels. As in scikit-learn, a label that no node has and that is
    predicted for none counts as 0.
    """
    if y.dim() == 2:
        predicted, counted = logits > 0, mask.unsqueeze(-1)
        hits = (predicted & y & counted).sum(1)
        total = (predicted & counted).sum(1) + (y & counted).sum(1)
        return (2 * hits / total.clamp(min=1)).mean(1)
    classes, predicted = logits.size(-1), _largest(logits)
    hits = _count(y, (predicted == y) & mask, classes)
    total = _count(predicted, mask, classes) + _count(y, mask, classes)
    return _mean(2 * hits / total, total > 0)


def roc_auc(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: how often a node of a class scores above one of another class; a tie counts half.

    Of two classes, that of class 1; of more, the average over the classes that occur in `mask`.
    """
    return _ranking(_area, logits, y, mask)


def average_precision(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: the precision among the nodes that score at least as high as a node of a class, averaged over its nodes.

    Of two classes, that of class 1; of more, the average over the classes that occur in `mask`.
    """
    return _ranking(_precision, logits, y, mask)


def _ranking(score_of: Callable[[Tensor, Tensor], Tensor], logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """A score of class 1 against class 0, or of each of many classes against the rest, averaged."""
    if logits.size(-1) == 2:
        columns = {1: logits[..., 1] - logits[..., 0]}
    else:
        columns = dict(enumerate(log_softmax(logits, -1).unbind(-1)))
    scores, defined = [], []
    for k, column in columns.items():
        positive, negative = mask & (y == k), mask & (y != k)
        scores.append(score_of(*_by_score(column, positive, negative)))
        defined.append(positive.any(1) & negative.any(1))
    return _mean(torch.stack(scores, 1), torch.stack(defined, 1))


def _by_score(score: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """`[R, N]` numbers of positive and of negative nodes at each distinct score, in ascending order; then zeros.

    The shape must not depend on the values, so nodes that do not count come last. NaN is the lowest score.
    """
    score = torch.where(score.isnan(), -torch.inf, score)
    ranked, order = torch.where(positive | negative, score, torch.inf).sort(1)
    rises = torch.nn.functional.pad(ranked[:, 1:] != ranked[:, :-1], (1, 0))
    group = rises.cumsum(1)
    empty = torch.zeros_like(order)
    first, second = (empty.scatter_add(1, group, part.gather(1, order).long()) for part in (positive, negative))
    return first, second


def _area(positives: Tensor, negatives: Tensor) -> Tensor:
    """The area under the ROC curve: twice the pairs in the right order plus the tied ones, over twice all pairs."""
    wins = positives * (2 * negatives.cumsum(1) - negatives)
    return wins.sum(1) / (2 * positives.sum(1) * negatives.sum(1))


def _precision(positives: Tensor, negatives: Tensor) -> Tensor:
    hits, others = (counts.flip(1).cumsum(1).flip(1) for counts in (positives, negatives))
    return (positives * hits / (hits + others).clamp(min=1)).sum(1) / positives.sum(1)


def log_loss(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: the cross-entropy, averaged over the nodes in `mask`, times −1, so that a higher score is better.

    For multi-label `y`, the binary cross-entropy, averaged over the labels too.
    """
    return -loss(logits, y, mask / mask.sum(1, keepdim=True).to(logits.dtype))


def micro_f1(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: `2 TP / (2 TP + FP + FN)` over all pairs of a node in `mask` and a label.

    A positive logit predicts the label. The score is 1 if no node has a label and none is predicted.
    """
    predicted, counted = logits > 0, mask.unsqueeze(-1)
    hits = (predicted & y & counted).sum((1, 2))
    wrong = ((predicted != y) & counted).sum((1, 2))
    return torch.where(wrong == 0, 1.0, 2 * hits / (2 * hits + wrong).clamp(min=1))


def _count(classes: Tensor, counted: Tensor, num_classes: int) -> Tensor:
    """`[R, C]`: the number of counted nodes of each class; `classes` is `[N]` or `[R, N]`, and −1 is never counted."""
    counts = torch.zeros(counted.size(0), num_classes, dtype=torch.int64, device=counted.device)
    return counts.scatter_add_(1, classes.clamp(min=0).expand_as(counted), counted.long())


def _mean(values: Tensor, defined: Tensor) -> Tensor:
    """`[R]`: the mean of the defined values of each row of `[R, C]`; NaN if there are none."""
    return torch.where(defined, values, 0.0).sum(1) / defined.sum(1)


# --- guesses ----------------------------------------------------------------------------------------------------------


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


# --- the table --------------------------------------------------------------------------------------------------------

Guess = Callable[[Tensor, int], float]  # of the numbers of nodes by class or label, and of all nodes


@dataclass(frozen=True)
class Metric:
    """A metric; a higher score is better.

    Attributes:
        title: Its name in tables and reports.
        score: `[R]` scores of `[R, N, C]` logits, labels and an `[R, N]` mask.
        guess: The expected score of guesses; `None` if the metric is not for one class per node.
        guess_labels: The same for multi-label data.
        ranks: Whether it compares nodes of different classes, and so needs two of them.
        percent: Whether scores are from 0 to 1 and shown in percent.
    """

    title: str
    score: Callable[[Tensor, Tensor, Tensor], Tensor]
    guess: Guess | None = None
    guess_labels: Guess | None = None
    ranks: bool = False
    percent: bool = True


METRICS: dict[str, Metric] = {
    "accuracy": Metric("accuracy", accuracy, _uniform),
    "balanced_accuracy": Metric("balanced accuracy", balanced_accuracy, _of_those_that_occur),
    "macro_f1": Metric(
        "macro-F1",
        macro_f1,
        _of_those_that_occur,
        lambda counts, size: float((2 * counts / (size + counts)).mean()),
    ),
    "roc_auc": Metric("ROC AUC", roc_auc, lambda counts, size: 0.5, ranks=True),
    "average_precision": Metric("average precision", average_precision, _random_ranking, ranks=True),
    "log_loss": Metric(
        "negative log loss",
        log_loss,
        lambda counts, size: -math.log(counts.numel()),
        lambda counts, size: -math.log(2),
        percent=False,
    ),
    "micro_f1": Metric("micro-F1", micro_f1, guess_labels=_every_label),
}


def metrics_for(multilabel: bool) -> list[str]:
    """The metrics of multi-label data, or of data with one class per node."""
    return [name for name, metric in METRICS.items() if (metric.guess_labels if multilabel else metric.guess)]


def guess_score(metric: str, y: Tensor, num_classes: int) -> float:
    """The expected score of guesses on nodes with the labels `y`, `[N]` or, for multi-label data, `[N, L]` of bool."""
    known = METRICS[metric]
    if y.dim() == 2:
        assert known.guess_labels is not None
        return known.guess_labels(y.sum(0).double(), y.size(0))
    assert known.guess is not None
    return known.guess(torch.bincount(y, minlength=num_classes).double(), y.numel())


def evaluate(metric: str, logits: Tensor, y: Tensor, mask: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`[R]` scores of the nodes in `mask`, and `[R]` losses, weighted as in `loss`."""
    return METRICS[metric].score(logits, y, mask), loss(logits, y, weight)
