"""Losses and scores of many replicas at once: `logits` are `[R, N, C]`; what counts is a weight or a mask `[R, N]`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax


def loss(logits: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """`[R]`: the weighted sum over nodes of the cross-entropy, or, for many labels, of its mean over the labels.

    Args:
        logits: `[R, N, C]`.
        y: `[N]` of int64, not negative where a weight is not 0, or `[N, C]` of bool.
        weight: `[R, N]`.
    """
    if y.dim() == 2:
        target = y.to(logits.dtype).expand_as(logits)
        each = binary_cross_entropy_with_logits(logits, target, reduction="none").mean(-1)
    else:
        # Nodes last: a sum over a few neighbouring numbers, node by node, takes a CPU seven times as long.
        place = y.clamp(min=0).view(1, 1, -1).expand(logits.size(0), 1, -1)
        each = -log_softmax(logits.transpose(1, 2).contiguous(), 1).gather(1, place).squeeze(1)
    return (each * weight).sum(1)


def accuracy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: share of the nodes in `mask` whose largest logit is that of their class."""
    return ((logits.argmax(-1) == y) & mask).sum(1) / mask.sum(1)


def roc_auc(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: how often a node of class 1 scores above one of class 0, a tie counting half."""
    score = logits[..., 1] - logits[..., 0]
    positive, negative = mask & (y == 1), mask & (y == 0)
    beyond = torch.full((), torch.inf, dtype=score.dtype, device=score.device)
    ranked = torch.where(negative, score, beyond).sort(1).values
    asked = score.clamp(max=torch.finfo(score.dtype).max).contiguous()
    below = torch.searchsorted(ranked, asked) + torch.searchsorted(ranked, asked, right=True)
    pairs = positive.sum(1) * negative.sum(1)
    return (below * positive).sum(1) / (2 * pairs)


def micro_f1(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """`[R]`: F1 over all pairs of a node in `mask` and a label, a positive logit being a prediction; 1 if there is
    nothing to find and nothing was found."""
    predicted, counted = logits > 0, mask.unsqueeze(-1)
    hits = (predicted & y & counted).sum((1, 2))
    wrong = ((predicted != y) & counted).sum((1, 2))
    return torch.where(wrong == 0, 1.0, 2 * hits / (2 * hits + wrong).clamp(min=1))


SCORES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "accuracy": accuracy,
    "roc_auc": roc_auc,
    "micro_f1": micro_f1,
}
