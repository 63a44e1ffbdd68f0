"""Spectra of graphs whose eigenvalues are known, and filters over them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from gfgn.data.generators.dimensions import dimensions
from gfgn.graph import Graph
from gfgn.paper.outputs import read_csv
from gfgn.paper.spectral import (
    SCORES,
    analyze,
    dense_adjacency,
    filter_coefficients,
    filter_summary,
    normalized_laplacian,
    spectrum,
)


def undirected(pairs: list[tuple[int, int]], num_nodes: int) -> Graph:
    half = torch.tensor(pairs).t()
    return Graph.from_edge_index(torch.cat([half, half.flip(0)], dim=1), num_nodes)


def test_the_spectrum_of_a_cycle() -> None:
    size = 7
    found = spectrum(undirected([(k, (k + 1) % size) for k in range(size)], size))
    expected = sorted(1 - math.cos(2 * math.pi * k / size) for k in range(size))
    assert found == pytest.approx(expected, abs=1e-12)


def test_bipartite_graphs_reach_two_and_isolated_nodes_have_zero() -> None:
    found = spectrum(undirected([(0, 1), (2, 3)], 5))
    assert found == pytest.approx([0, 0, 0, 2, 2], abs=1e-12)
    laplacian = normalized_laplacian(undirected([(0, 1)], 3))
    assert np.array_equal(laplacian[2], [0, 0, 0])


def test_filtering_in_the_spectral_domain_is_aggregating() -> None:
    """`U (1 − sΛ)^K Uᵀ h` equals `K` gated aggregations without weights."""
    graph = dimensions(50, degree=6).graph
    laplacian = normalized_laplacian(graph)
    values, vectors = np.linalg.eigh(laplacian)
    h = np.random.default_rng(0).normal(size=graph.num_nodes)
    for score in (0.3, 1.0):
        (coefficients,) = filter_coefficients(values, [score], 3)
        filtered = vectors @ (coefficients * (vectors.T @ h))
        aggregated = h
        for _ in range(3):
            aggregated = (1 - score) * aggregated + score * (aggregated - laplacian @ aggregated)
        assert filtered == pytest.approx(aggregated, abs=1e-12)


def test_coefficients_by_hand() -> None:
    found = filter_coefficients(np.array([0.0, 1.0, 2.0]), [0.5, 1.0], 2)
    assert found == pytest.approx(np.array([[1, 0.25, 0], [1, 0, 1]]))
    with pytest.raises(ValueError, match="layers must be 1 or larger, got 0"):
        filter_coefficients(np.zeros(2), [0.5], 0)


def test_summary_of_filters() -> None:
    rows = filter_summary(np.array([0.0, 1.0, 2.0]))
    assert [row[0] for row in rows] == list(SCORES)
    assert rows[4] == pytest.approx((0.5, 0.0, 2.0, (1 + 0.25**2 + 0) / 3))


def test_graphs_that_have_no_real_spectrum() -> None:
    directed = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    with pytest.raises(ValueError, match="graph must be undirected"):
        dense_adjacency(directed)
    with pytest.raises(ValueError, match="at most 10000 nodes for a dense matrix, got 10001"):
        dense_adjacency(undirected([(0, 1)], 10_001))


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dimensions(60, degree=6)
    monkeypatch.setattr("gfgn.data.load", lambda name, root: data)
    lines: list[str] = []
    paths = analyze(tmp_path / "spectral", root=None, device="cpu", progress=lines.append)
    assert {path.name for path in paths} == {"coefficients.csv", "spectral.svg", "README.md"}
    assert all(path.is_file() for path in paths)
    rows = read_csv(tmp_path / "spectral" / "coefficients.csv")
    assert len(rows) == 60
    assert float(rows[-1]["K=2 s=0.5"]) == pytest.approx((1 - 0.5 * float(rows[-1]["eigenvalue"])) ** 2, abs=2e-3)
    assert lines
