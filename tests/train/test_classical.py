"""Models without a network: what they predict, what they may see, and how they run in the engine."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from gfgn.data import NodeDataset, Split
from gfgn.data.generators.contextual_sbm import contextual_sbm
from gfgn.graph import Graph
from gfgn.train import Replica, TrainConfig, train_runs
from gfgn.train.catalog import CLASSICAL
from gfgn.train.classical import ALPHAS, PENALTIES, PRIOR, STEPS, fit_classical, score


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return contextual_sbm(200, classes=3, features=5, degree=6, splits=3)


def multilabel(data: NodeDataset) -> NodeDataset:
    labels = torch.stack([data.y == 0, data.y != 1, torch.ones_like(data.y) > 0], dim=1)
    return dataclasses.replace(data, y=labels, metric="micro_f1")


def inductive(data: NodeDataset) -> NodeDataset:
    """Three separate graphs: for training, validation and test."""
    part = torch.arange(data.num_nodes) * 3 // data.num_nodes
    edges = data.graph.edge_index
    graph = Graph.from_edge_index(edges[:, part[edges[0]] == part[edges[1]]], data.num_nodes, batch=part)
    return dataclasses.replace(data, graph=graph, splits=[Split(*(part == k for k in range(3)))])


@pytest.mark.parametrize("name", CLASSICAL)
def test_probabilities(name: str, data: NodeDataset) -> None:
    probabilities, parameters = fit_classical(name, data, data.splits[0])
    assert probabilities.shape == (200, 3)
    torch.testing.assert_close(probabilities.sum(1).double(), torch.ones(200).double())
    assert (probabilities >= 0).all()
    assert parameters >= 1


@pytest.mark.parametrize("name", CLASSICAL)
def test_labels_of_test_nodes_are_not_seen(name: str, data: NodeDataset) -> None:
    split = data.splits[0]
    changed = dataclasses.replace(data, y=torch.where(split.test, 0, data.y))
    for balanced in (False, True):
        one, two = (fit_classical(name, each, split, balanced)[0] for each in (data, changed))
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_majority(data: NodeDataset) -> None:
    split = data.splits[1]
    probabilities, _ = fit_classical("majority", data, split)
    counts = np.bincount(data.y[split.train].numpy(), minlength=3)
    np.testing.assert_allclose(probabilities[7].numpy(), counts / counts.sum())
    expected = (data.y[split.test] == int(counts.argmax())).double().mean().item()
    assert score(data, probabilities, split.test) == pytest.approx(expected)


def test_logistic_regression_is_scikit_learns(data: NodeDataset) -> None:
    split, y, scores = data.splits[0], data.y.numpy(), {}
    train = split.train.numpy()
    x = StandardScaler().fit(data.x.double().numpy()[train]).transform(data.x.double().numpy())
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=500).fit(x[train], y[train])
        scores[model.score(x[split.val.numpy()], y[split.val.numpy()])] = model  # ties: the last one
    found, parameters = fit_classical("logistic-regression", data, split)
    assert score(data, found, split.val) == pytest.approx(max(scores))
    assert parameters == 6 * 3
    # a factor of all features changes nothing, neither dense nor sparse
    scaled = dataclasses.replace(data, x=1000 * data.x)
    torch.testing.assert_close(fit_classical("logistic-regression", scaled, split)[0], found, rtol=1e-3, atol=1e-3)
    sparse = torch.nn.functional.one_hot(torch.arange(200) % 40).float()
    one, two = (dataclasses.replace(data, x=factor * sparse, feature_names=[""] * 40) for factor in (1, 50))
    left, right = (fit_classical("logistic-regression", each, split)[0] for each in (one, two))
    torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-3)


def test_gradient_boosting_learns_what_is_not_linear() -> None:
    data = contextual_sbm(600, features=2, splits=1)
    x = torch.rand(600, 2) - 0.5
    data = dataclasses.replace(data, x=x, y=(x[:, 0] * x[:, 1] > 0).long())
    boosted, linear = (
        fit_classical(name, data, data.splits[0])[0] for name in ("gradient-boosting", "logistic-regression")
    )
    assert score(data, boosted, data.splits[0].test) > 0.9 > 0.7 > score(data, linear, data.splits[0].test)


def test_label_propagation_is_the_loop(data: NodeDataset) -> None:
    split = data.splits[0]
    dense = np.zeros((200, 200))
    dense[data.graph.edge_index[1], data.graph.edge_index[0]] = 1
    degree = dense.sum(1)
    start = np.zeros((200, 3))
    for node in np.flatnonzero(split.train):
        start[node, data.y[node]] = 1
    prior, best = start.sum(0) / start.sum(), (-1.0, np.empty(0))
    for alpha in ALPHAS:
        y = start
        for _ in range(STEPS):
            new = (1 - alpha) * start
            for i, j in np.argwhere(dense):
                new[i] += alpha * y[j] / np.sqrt(degree[i] * degree[j])
            y = new
        y = (y + PRIOR * prior) / (y + PRIOR * prior).sum(1, keepdims=True)
        val = (y.argmax(1) == data.y.numpy())[split.val.numpy()].mean()
        best = max(best, (val, y), key=lambda pair: pair[0])
    found, _ = fit_classical("label-propagation", data, split)
    np.testing.assert_allclose(found.numpy(), best[1], rtol=1e-4, atol=1e-5)


def test_a_class_without_training_nodes(data: NodeDataset) -> None:
    split = data.splits[0]
    missing = split.train & (data.y == 2)
    few = Split(split.train & ~missing, split.val, split.test)
    one = Split(split.train & (data.y == 1), split.val, split.test)
    for name in CLASSICAL:
        assert (fit_classical(name, data, few)[0][:, 2] == 0).all()
        assert (fit_classical(name, data, one)[0].argmax(1) == 1).all()


def test_class_weights_help_a_rare_class() -> None:
    data = contextual_sbm(600, features=4, signal=0.7, splits=1)
    rare = (data.y == 1) & (torch.arange(600) % 6 > 0)
    data = dataclasses.replace(data, y=torch.where(rare, 0, data.y))
    for name in ("logistic-regression", "gradient-boosting"):
        first = (next(CLASSICAL[name].candidates(data, data.splits[0], weights)) for weights in (False, True))
        plain, balanced = (probabilities for probabilities, _ in first)
        assert balanced[:, 1].mean() > 2 * plain[:, 1].mean()


def test_multilabel(data: NodeDataset) -> None:
    data = multilabel(data)
    for name in ("majority", "logistic-regression"):
        (run,) = train_runs(name, data, [Replica()], TrainConfig())
        assert run.test > 0.7
    with pytest.raises(
        ValueError, match="must be among majority, logistic-regression for multi-label data, got label-"
    ):
        train_runs("label-propagation", data, [Replica()], TrainConfig())


def test_graphs_that_training_does_not_see(data: NodeDataset) -> None:
    data = inductive(data)
    assert data.inductive
    (run,) = train_runs("gradient-boosting", data, [Replica()], TrainConfig())
    assert run.test > 0.3
    with pytest.raises(ValueError, match="models must run on unseen graphs"):
        train_runs("label-propagation", data, [Replica()], TrainConfig())


# --- in the engine ----------------------------------------------------------------------------------------------------


def test_runs(data: NodeDataset) -> None:
    replicas = [Replica(1, 0), Replica(0, 0), Replica(1, 5)]
    events: list[int] = []
    runs = train_runs(
        "logistic-regression", data, replicas, TrainConfig(), progress=lambda run: events.append(run.replica.split)
    )
    assert events == [1, 0, 1]
    assert [run.replica for run in runs] == replicas
    assert (runs[0].val, runs[0].test, runs[0].seconds) == (runs[2].val, runs[2].test, runs[2].seconds)
    assert {(run.epoch, run.epochs, run.num_parameters) for run in runs} == {(0, 0, 18)}
    probabilities, _ = fit_classical("logistic-regression", data, data.splits[0])
    assert runs[1].test == score(data, probabilities, data.splits[0].test)
    with pytest.raises(ValueError, match=r"gatv2, majority, .* got 'major'; did you mean 'majority'\?"):
        train_runs("major", data, replicas, TrainConfig())
