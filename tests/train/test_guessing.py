"""What guessing scores: against predictions drawn at random."""

import pytest
import torch
from torch import Tensor

from gfgn.metrics import METRICS, guess_score, metrics_for

DRAWS = 2000
LABELS = {
    "rare": (torch.arange(40) < 6).long(),
    "equal": torch.arange(30) % 3,
    "unequal": torch.tensor([0] * 20 + [1] * 9 + [2]),
    "absent": torch.tensor([0, 0, 2, 2, 2, 3]),  # class 1 has no test node
}


def mean_score(metric: str, logits: Tensor, y: Tensor) -> float:
    mask = torch.ones(len(logits), len(y), dtype=torch.bool)
    return float(METRICS[metric].score(logits.expand(len(mask), -1, -1), y, mask).double().mean())


@pytest.mark.parametrize("metric", metrics_for(multilabel=False))
@pytest.mark.parametrize("labels", LABELS)
def test_nothing_that_knows_no_labels_scores_more(metric: str, labels: str) -> None:
    """Random logits, coarse ones with ties, and such that prefer a class, which `majority` is for."""
    y, draw = LABELS[labels], torch.Generator().manual_seed(0)
    classes = max(2, int(y.max()) + 1)
    logits = torch.randn(DRAWS, len(y), classes, generator=draw)
    guess = guess_score(metric, y, classes)
    constant = max(mean_score(metric, torch.eye(classes)[k].expand(1, len(y), -1), y) for k in range(classes))
    for prediction in (logits, logits.round(), logits / 100, logits + 2 * torch.eye(classes)[0]):
        assert mean_score(metric, prediction, y) < max(guess, constant) + 0.01


@pytest.mark.parametrize("labels", LABELS)
def test_rankings_at_random(labels: str) -> None:
    y = LABELS[labels]
    classes = max(2, int(y.max()) + 1)
    logits = torch.randn(DRAWS, len(y), classes, generator=torch.Generator().manual_seed(1))
    for metric in ("roc_auc", "average_precision"):
        assert guess_score(metric, y, classes) == pytest.approx(mean_score(metric, logits, y), abs=0.01)


@pytest.mark.parametrize("metric", metrics_for(multilabel=True))
def test_nothing_that_knows_no_labels_of_several_per_node_scores_more(metric: str) -> None:
    draw = torch.Generator().manual_seed(0)
    y = torch.rand(50, 4, generator=draw) < torch.tensor([0.05, 0.2, 0.3, 0.6])
    logits, guess = torch.randn(DRAWS, 50, 4, generator=draw), guess_score(metric, y, 4)
    frequencies = mean_score(metric, y.double().mean(0).logit().expand(1, 50, -1), y)
    for shift in (-1.0, 0.0, 1.0, 9.0):
        assert mean_score(metric, logits / 10 + shift, y) < max(guess, frequencies) + 0.01
