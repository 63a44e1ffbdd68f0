"""Losses and scores of many replicas, each against PyTorch and scikit-learn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gfgn.train import metrics


def case(replicas: int, nodes: int, classes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(replicas, nodes, classes, generator=generator).mul(2).round().div(2)  # with ties
    return logits, torch.rand(replicas, nodes, generator=generator) < 0.7


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_accuracy_and_loss(seed: int) -> None:
    logits, mask = case(3, 20, 4, seed)
    mask[:, 0] = True
    y = torch.randint(4, (20,), generator=torch.Generator().manual_seed(seed))
    weight = mask / mask.sum(1, keepdim=True)
    scores, losses = metrics.accuracy(logits, y, mask), metrics.loss(logits, y, weight)
    for k in range(3):
        chosen = mask[k]
        assert float(scores[k]) == pytest.approx(accuracy_score(y[chosen], logits[k].argmax(1)[chosen]))
        torch.testing.assert_close(losses[k], cross_entropy(logits[k][chosen], y[chosen]))


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_roc_auc(seed: int) -> None:
    logits, mask = case(3, 30, 2, seed)
    y = torch.randint(2, (30,), generator=torch.Generator().manual_seed(seed))
    y[:2], mask[:, :2] = torch.tensor([0, 1]), True
    scores = metrics.roc_auc(logits, y, mask)
    for k in range(3):
        score = (logits[k, :, 1] - logits[k, :, 0])[mask[k]]
        assert float(scores[k]) == pytest.approx(roc_auc_score(y[mask[k]], score))


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_micro_f1_and_its_loss(seed: int) -> None:
    logits, mask = case(3, 12, 5, seed)
    mask[:, 0] = True
    y = torch.rand(12, 5, generator=torch.Generator().manual_seed(seed)) < 0.4
    weight = mask / mask.sum(1, keepdim=True)
    scores, losses = metrics.micro_f1(logits, y, mask), metrics.loss(logits, y, weight)
    for k in range(3):
        chosen = mask[k]
        expected = f1_score(y[chosen], logits[k][chosen] > 0, average="micro", zero_division=1.0)
        assert float(scores[k]) == pytest.approx(expected)
        torch.testing.assert_close(losses[k], binary_cross_entropy_with_logits(logits[k][chosen], y[chosen].float()))


def test_micro_f1_of_nothing_is_1() -> None:
    logits, y = -torch.ones(1, 2, 3), torch.zeros(2, 3, dtype=torch.bool)
    assert float(metrics.micro_f1(logits, y, torch.ones(1, 2, dtype=torch.bool))) == 1
    assert float(metrics.micro_f1(-logits, y, torch.ones(1, 2, dtype=torch.bool))) == 0


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_evaluation_of_one_model(seed: int) -> None:
    """`node_losses` of one model, and `evaluate` with the same weight for every node, are mean loss and score."""
    logits, mask = case(1, 20, 4, seed)
    mask[:, 0] = True
    generator = torch.Generator().manual_seed(seed)
    for metric, y in (
        ("accuracy", torch.randint(4, (20,), generator=generator)),
        ("micro_f1", torch.rand(20, 4, generator=generator) < 0.4),
    ):
        score, loss = metrics.evaluate(metric, logits, y, mask, mask / mask.sum(1, keepdim=True))
        torch.testing.assert_close(loss[0], metrics.node_losses(logits[0], y)[mask[0]].mean())
        assert float(score) == float(metrics.SCORES[metric](logits, y, mask))


def test_unlabeled_nodes_do_not_count() -> None:
    logits, y = torch.tensor([[[2.0, 0.0], [0.0, 5.0]]]), torch.tensor([0, -1])
    mask = torch.tensor([[True, False]])
    assert float(metrics.accuracy(logits, y, mask)) == 1
    assert float(metrics.loss(logits, y, mask.float())) == pytest.approx(float(cross_entropy(logits[0, :1], y[:1])))
