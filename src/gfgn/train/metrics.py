"""Losses and scores of all kinds of training.

Those of many replicas take `logits` of shape `[R, N, C]` and a weight or a mask of shape `[R, N]`. A higher score is
better. Scores are those of scikit-learn, but of all replicas at once and without waiting for the device: validation is
captured as a CUDA graph. A score that is not defined is NaN; `gfgn.train.task.check_splits` refuses such a split.
"""

from __future__ import annotations

from collections.abc import Callable

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


SCORES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "macro_f1": macro_f1,
    "roc_auc": roc_auc,
    "average_precision": average_precision,
    "log_loss": log_loss,
    "micro_f1": micro_f1,
}


def evaluate(metric: str, logits: Tensor, y: Tensor, mask: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`[R]` scores of the nodes in `mask`, and `[R]` losses, weighted as in `loss`."""
    return SCORES[metric](logits, y, mask), loss(logits, y, weight)
