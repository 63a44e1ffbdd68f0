"""Inference layer by layer: the output of the whole graph, from chunks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gfgn import GFGN, Graph
from gfgn.sampling import NeighborSampler
from gfgn.train import infer_layerwise, layerwise

NODES = 60


def graph_of(weighted: bool = False) -> Graph:
    """A directed graph with a hub and isolated nodes."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES - 3, (2, 400), generator=generator)
    edges[1, :50] = 0
    return Graph.from_edge_index(edges, NODES, torch.rand(400, generator=generator) if weighted else None)


def features(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(NODES, 6, generator=torch.Generator().manual_seed(1)).to(dtype)


@settings(max_examples=40, deadline=None)
@given(
    level=st.sampled_from(["graph", "neighbor", "pair"]),
    edges_per_chunk=st.sampled_from([1, 7, 64, 10**6]),
    weighted=st.booleans(),
    options=st.fixed_dictionaries(
        {},
        optional={
            "jk": st.sampled_from(["last", "cat", "max", "lstm"]),
            "norm": st.sampled_from(["BatchNorm", "LayerNorm", "PairNorm"]),
            "residual": st.just(True),
            "gate_bias": st.just(0.5),
            "gate_form": st.just("scalar"),
            "momentum": st.just(0.1),
            "num_layers": st.sampled_from([1, 3]),
            "out_channels": st.just(None),
        },
    ),
)
def test_the_output_of_the_whole_graph(
    level: str, edges_per_chunk: int, weighted: bool, options: dict[str, Any]
) -> None:
    graph, x = graph_of(weighted), features()
    torch.manual_seed(0)
    model = GFGN(6, 8, **({"num_layers": 2, "out_channels": 3} | options), level=level, heads=2)
    out = infer_layerwise(model, x, graph, edges_per_chunk=edges_per_chunk)
    assert model.training
    with torch.no_grad():
        assert torch.allclose(out, model.eval()(x, graph), atol=1e-5)


def test_sparse_and_mapped_features_a_sampler_and_files(tmp_path: Path) -> None:
    graph, x = graph_of(True), features()
    model = GFGN(6, 8, 2, 3, heads=2).eval()
    expected = model(x, graph)
    np.save(tmp_path / "x.npy", x.numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    sampler = NeighborSampler.from_graph(graph, [2, 2], replace=True)
    for given_x in (x.to_sparse_csr(), mapped):
        out = infer_layerwise(model, given_x, sampler, edges_per_chunk=40, scratch=tmp_path / "scratch")
        assert torch.allclose(out, expected, atol=1e-5)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert sampler.fanouts == (2, 2)


def test_a_chunk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No block has more edges than a chunk, but for a node with more edges of its own."""
    graph, sizes = graph_of(), []
    build = layerwise._Chunks.block

    def measured(self: Any, rows: slice, dtype: torch.dtype) -> Any:
        node, block = build(self, rows, dtype)
        sizes.append((block.num_edges, block.num_seeds))
        return node, block

    monkeypatch.setattr(layerwise._Chunks, "block", measured)
    infer_layerwise(GFGN(6, 8, 2, 3, heads=2), features(), graph, edges_per_chunk=30)
    assert all(edges <= 30 or targets == 1 for edges, targets in sizes)
    assert sum(edges for edges, _ in sizes) == 2 * graph.num_edges


def test_bad_arguments_are_named() -> None:
    model, x = GFGN(6, 8, 2, 3, heads=2), features()
    with pytest.raises(ValueError, match=r"graph must be one graph without batch"):
        infer_layerwise(
            model, x, Graph.from_edge_index(torch.zeros(2, 0).long(), NODES, batch=torch.zeros(NODES).long())
        )
    with pytest.raises(ValueError, match="edges_per_chunk must be 1 or larger, got 0"):
        infer_layerwise(model, x, graph_of(), edges_per_chunk=0)
    with pytest.raises(ValueError, match="x has 3 rows, but the graph has 60 nodes"):
        infer_layerwise(model, x[:3], graph_of())
