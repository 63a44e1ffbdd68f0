"""The paper's motivations: components, similarities, the choice of a user, and spectral embeddings."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from gfgn.data.generators.dimensions import dimensions
from gfgn.graph import Graph
from gfgn.paper.motivation import (
    User,
    analyze,
    contrasts,
    list_users,
    median_user,
    principal_components,
    similarities,
    spectral_embedding,
)
from gfgn.paper.outputs import read_csv


@pytest.mark.filterwarnings("ignore:Sparse")
def test_principal_components_agree_with_singular_values() -> None:
    x = torch.randn(40, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[x < 0] = 0
    centered = x.numpy() - x.numpy().mean(axis=0)
    left, singular, _ = np.linalg.svd(centered, full_matrices=False)
    for given in (x, x.to_sparse_csr()):
        components, variance = principal_components(given)
        expected = left[:, :2] * singular[:2]
        assert np.abs(components) == pytest.approx(np.abs(expected), abs=1e-9)
        assert variance == pytest.approx((singular**2 / (singular**2).sum())[:2])
        largest = components[np.abs(components).argmax(axis=0), [0, 1]]
        assert (largest > 0).all()
    with pytest.raises(ValueError, match="count must be 1 to 39, one less than there are rows of x, got 40"):
        principal_components(x, 40)


def test_similarity_is_one_for_equal_values_and_falls_with_distance() -> None:
    graph = Graph.from_edge_index(torch.tensor([[1, 2, 3], [0, 0, 0]]), 4)
    values = np.array([[0.0], [0.0], [1.0], [2.0]])
    similarity = similarities(values, graph)[:, 0]
    assert similarity[0] == 1
    assert similarity[1] == pytest.approx(np.exp(-1 / values.std()))
    assert similarity[0] > similarity[1] > similarity[2]


def test_rank_correlations_of_users() -> None:
    edges = torch.tensor([[1, 2, 3, 4, 5, 0], [0, 0, 0, 0, 0, 1]])
    graph = Graph.from_edge_index(edges, 6)
    source = graph.edge_index[0].numpy()
    together = np.stack([source / 10, source / 5], axis=1)
    (user,) = list_users(graph, together)
    assert (user.node, user.correlation) == (0, pytest.approx(1.0))
    assert user.neighbors.tolist() == [1, 2, 3, 4, 5]
    (user,) = list_users(graph, np.stack([source / 10, -source / 5], axis=1))
    assert user.correlation == pytest.approx(-1.0)
    assert list_users(graph, np.stack([source / 10, np.ones(6)], axis=1)) == []  # constant in one dimension
    assert list_users(graph, together, min_neighbors=6) == []


def test_median_user() -> None:
    def user(node: int, count: int, correlation: float) -> User:
        return User(node, np.arange(count), np.zeros((count, 2)), correlation)

    candidates = [user(0, 3, 0.9), user(1, 3, -0.5), user(2, 3, 0.1), user(3, 4, 0.0)]
    assert median_user(candidates, 3).node == 2
    with pytest.raises(ValueError, match="neighbors must be a number that some user has, got 7"):
        median_user(candidates, 7)


def test_contrasts() -> None:
    rows = contrasts(np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.6]]))
    assert rows == [(2, 0.9, 0.1), (3, 0.2, 0.6)]


def test_smoothness_of_a_spectral_embedding_is_its_eigenvalue() -> None:
    graph = dimensions(80, degree=6).graph
    embedding = spectral_embedding(graph, dimensions=10)
    assert embedding.smoothness == pytest.approx(embedding.eigenvalues, abs=1e-10)
    assert embedding.eigenvalues[0] == pytest.approx(0, abs=1e-10)
    assert embedding.eigenvalues[1] > 1e-6  # one component only
    assert embedding.local.shape == (embedding.eigenvalues.size, 10)
    # summed over nodes, weighted by degree, every edge counts twice
    degree = graph.row_lengths.double().numpy()
    assert embedding.eigenvalues.size == graph.num_nodes
    total = (embedding.local * degree[:, None]).sum(axis=0) / graph.num_nodes
    assert total == pytest.approx(2 * embedding.eigenvalues[1:11])


def test_only_the_largest_component_is_embedded() -> None:
    half = torch.tensor([[0, 1, 2, 4], [1, 2, 3, 5]])
    graph = Graph.from_edge_index(torch.cat([half, half.flip(0)], dim=1), 7)
    embedding = spectral_embedding(graph)
    assert embedding.eigenvalues.size == 4
    assert embedding.local.shape == (4, 3)


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dimensions(120, degree=18)
    wide = dataclasses.replace(data, name="blogcatalog")
    monkeypatch.setattr("gfgn.data.load", lambda name, root: wide)
    paths = analyze(tmp_path, root=None, device="cpu", progress=lambda line: None)
    assert len({path.name for path in paths}) == len(paths) == 6
    assert len(read_csv(tmp_path / "neighbors.csv")) == 18
    summary = {row["measure"]: float(row["value"]) for row in read_csv(tmp_path / "summary.csv")}
    assert -1 <= summary["motivation: rank correlation, median"] <= 1
    assert summary["motivation: smoothness minus eigenvalue"] < 1e-8
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "neighbors.svg" in page
    assert "embedding.svg" in page
