"""Losses and scores of all kinds of training.

Those of many replicas take `logits` of shape `[R, N, C]` and a weight or a mask of shape `[R, N]`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, log_softmax


def node_losses(logits: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy of each node, or, for multi-label `y` (`[N, C]` of bool), its mean over the labels."""
    if y.dim() == 2:
        target = y.to(logits.dtype).expand_as(logits)
        return binary_cross_entropy_with_logits(logits, target, reduction="none").mean(-1)
    return cross_entropy(logits, y, reduction="none")


def loss(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """`[R]`: the weighted sum of the nodes' losses; the weight of a node without a label (−1) must be 0."""
    if y.dim() == 2:
        losses = node_losses(logits, y)
    else:
        # Nodes last: on a CPU a sum over a few adjacent numbers per node takes seven times as long.
        index = y.clamp(min=0).view(1, 1, -1).expand(logits.size(0), 1, -1)
        losses = -log_softmax(logits.transpose(1, 2).contiguous(), 1).gather(1, index).squeeze(1)
    return (losses * weight).sum(1)


def accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: the fraction of the nodes in `mask` whose largest logit is that of their class."""
    return ((logits.argmax(-1) == y) & mask).sum(1) / mask.sum(1)


def roc_auc(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: how often a node of class 1 scores above one of class 0; a tie counts half."""
    score = logits[..., 1] - logits[..., 0]
    positive, negative = mask & (y == 1), mask & (y == 0)
    infinity = torch.full((), torch.inf, dtype=score.dtype, device=score.device)
    ranked = torch.where(negative, score, infinity).sort(1).values
    queries = score.clamp(max=torch.finfo(score.dtype).max).contiguous()
    below = torch.searchsorted(ranked, queries) + torch.searchsorted(ranked, queries, right=True)
    pairs = positive.sum(1) * negative.sum(1)
    return (below * positive).sum(1) / (2 * pairs)


def micro_f1(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: `2 TP / (2 TP + FP + FN)` over all pairs of a node in `mask` and a label.

    A positive logit predicts the label. The score is 1 if no node has a label and none is predicted.
    """
    predicted, counted = logits > 0, mask.unsqueeze(-1)
    hits = (predicted & y & counted).sum((1, 2))
    wrong = ((predicted != y) & counted).sum((1, 2))
    return torch.where(wrong == 0, 1.0, 2 * hits / (2 * hits + wrong).clamp(min=1))


SCORES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
    "micro_f1": micro_f1,
}


def evaluate(metric: str, logits: Tensor, y: Tensor, mask: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`[R]` scores of the nodes in `mask`, and `[R]` losses, weighted as in `loss`."""
    return SCORES[metric](logits, y, mask), loss(logits, y, weight)
