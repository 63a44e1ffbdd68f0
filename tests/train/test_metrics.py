"""Losses and scores of many replicas, each against PyTorch and scikit-learn."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from gfgn import metrics
from gfgn.metrics import METRICS, metrics_for


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


@st.composite
def predictions(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits with ties, labels of which some may not occur or be unknown, and masks of any size from 1 on."""
    replicas, nodes, classes = draw(st.integers(1, 3)), draw(st.integers(1, 40)), draw(st.integers(2, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    logits = torch.randn(replicas, nodes, classes, generator=generator, dtype=torch.float64).mul(3)
    step = draw(st.sampled_from([0, 1, 4]))
    logits = logits.div(step).round().mul(step) if step else logits
    occurring = draw(st.lists(st.integers(0, classes - 1), min_size=1, unique=True))
    y = torch.tensor(occurring)[torch.randint(len(occurring), (nodes,), generator=generator)]
    mask = torch.rand(replicas, nodes, generator=generator) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    mask[:, 0] = True
    y[~mask.any(0)] = -1
    return logits, y, mask


def one_vs_rest(logits: torch.Tensor, y: torch.Tensor, score: type[roc_auc_score]) -> float:
    """scikit-learn's score of class 1 of two, or its mean over the classes that occur; NaN where it is not defined."""
    if y.unique().numel() < 2:
        return math.nan
    if logits.size(1) == 2:
        return float(score(y, logits[:, 1] - logits[:, 0]))
    ranked = logits.log_softmax(1)
    return float(np.mean([score(y == k, ranked[:, k]) for k in y.unique().tolist()]))


def reference(metric: str, logits: torch.Tensor, y: torch.Tensor) -> float:
    predicted = logits.argmax(1)
    if metric in ("roc_auc", "average_precision"):
        return one_vs_rest(logits, y, roc_auc_score if metric == "roc_auc" else average_precision_score)
    if metric == "log_loss":
        return -float(log_loss(y, logits.softmax(1), labels=range(logits.size(1))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that are predicted but do not occur
        if metric == "macro_f1":
            return float(f1_score(y, predicted, average="macro"))
        return float((accuracy_score if metric == "accuracy" else balanced_accuracy_score)(y, predicted))


@pytest.mark.parametrize("metric", metrics_for(multilabel=False))
@settings(max_examples=60)
@given(case=predictions())
def test_every_metric_against_scikit_learn(metric: str, case: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    logits, y, mask = case
    scores = METRICS[metric].score(logits, y, mask)
    assert scores.shape == (mask.size(0),)
    for k, chosen in enumerate(mask):
        expected = reference(metric, logits[k, chosen], y[chosen])
        assert float(scores[k]) == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision"])
def test_scores_that_are_not_numbers_are_ties(metric: str) -> None:
    """A diverged run is no better than chance."""
    y, mask = torch.tensor([0, 1, 1, 0, 1]), torch.ones(1, 5, dtype=torch.bool)
    expected = {"roc_auc": 0.5, "average_precision": 0.6}[metric]
    assert float(METRICS[metric].score(torch.full((1, 5, 2), torch.nan), y, mask)) == pytest.approx(expected)


@settings(max_examples=40)
@given(st.integers(0, 1000))
def test_multilabel_metrics(seed: int) -> None:
    logits, mask = case(3, 12, 5, seed)
    mask[:, 0] = True
    y = torch.rand(12, 5, generator=torch.Generator().manual_seed(seed)) < torch.tensor([0.4, 0.1, 0.0, 0.9, 0.4])
    f1, entropy = metrics.macro_f1(logits, y, mask), metrics.log_loss(logits, y, mask)
    for k, chosen in enumerate(mask):
        expected = f1_score(y[chosen], logits[k][chosen] > 0, average="macro", zero_division=0.0)
        assert float(f1[k]) == pytest.approx(expected, abs=1e-6)
        probabilities = logits[k][chosen].double().sigmoid()
        losses = [log_loss(y[chosen][:, j], probabilities[:, j], labels=[False, True]) for j in range(5)]
        assert float(entropy[k]) == pytest.approx(-np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_do_not_read_values(metric: str) -> None:
    """On the meta device, where nothing can be computed, anything that waits for a value is an error."""
    y = torch.empty(9, 3, dtype=torch.bool) if metric == "micro_f1" else torch.empty(9, dtype=torch.int64)
    mask = torch.empty(2, 9, dtype=torch.bool, device="meta")
    scores = METRICS[metric].score(torch.empty(2, 9, 3, device="meta"), y.to("meta"), mask)
    assert scores.shape == (2,)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_are_captured_as_a_cuda_graph(metric: str) -> None:
    generator = torch.Generator().manual_seed(0)

    def draw() -> list[torch.Tensor]:
        labels, classes = torch.rand(50, 4, generator=generator) < 0.4, torch.randint(4, (50,), generator=generator)
        mask = torch.rand(3, 50, generator=generator) < 0.7
        return [torch.randn(3, 50, 4, generator=generator), labels if metric == "micro_f1" else classes, mask]

    score, inputs = METRICS[metric].score, [each.cuda() for each in draw()]
    score(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = score(*inputs)
    for _ in range(3):
        there = draw()
        for mine, other in zip(inputs, there, strict=True):
            mine.copy_(other)
        graph.replay()
        torch.testing.assert_close(captured.cpu(), score(*there))


def test_unlabeled_nodes_do_not_count() -> None:
    logits, y = torch.tensor([[[2.0, 0.0], [0.0, 5.0]]]), torch.tensor([0, -1])
    mask = torch.tensor([[True, False]])
    assert float(metrics.accuracy(logits, y, mask)) == 1
    assert float(metrics.loss(logits, y, mask.float())) == pytest.approx(float(cross_entropy(logits[0, :1], y[:1])))
