"""The benchmarks: their peers compute what ours compute, and they conclude the right thing from times."""

import importlib
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.nn import GCNConv

from gfgn import Graph, ops
from gfgn.graph import with_self_loops
from gfgn.runs import compare
from gfgn.runs.record import DatasetRecord
from gfgn.train import TrainConfig

ROOT = Path(__file__).parents[1]


class Benchmarks:
    """The modules of the folder `benchmarks`, by attribute."""

    def __getattr__(self, name: str) -> Any:
        return importlib.import_module(name)


@pytest.fixture(scope="module")
def benchmarks() -> Iterator[Benchmarks]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield Benchmarks()


@pytest.fixture(scope="module")
def graph(benchmarks: Benchmarks) -> Graph:
    """A directed graph."""
    edge_index, n = benchmarks.graphs.skewed(60, 400, 0.6)
    return Graph.from_edge_index(edge_index[:, 50:], n)


def gradient(forward: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The result, and the gradient of its product with fixed numbers."""
    x.grad = None
    out = forward()
    out.backward(torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out))
    assert x.grad is not None
    return out.detach(), x.grad


def test_sparse_products_of_peers(benchmarks: Benchmarks, graph: Graph) -> None:
    x = torch.randn(graph.num_nodes, 5, requires_grad=True)
    expected = gradient(lambda: ops.propagate(x, graph, "reference"), x)
    for forward in benchmarks.peers.products(x, graph).values():
        torch.testing.assert_close(gradient(forward, x), expected)
    product, _ = benchmarks.peers.scipy_product(x, graph)()
    torch.testing.assert_close(torch.from_numpy(product), expected[0])


def test_every_form_of_gcn_is_gcn(benchmarks: Benchmarks, graph: Graph) -> None:
    torch.manual_seed(0)
    x = torch.randn(graph.num_nodes, 5, requires_grad=True)
    conv = GCNConv(5, 7)
    expected = gradient(lambda: conv(x, graph.edge_index), x)
    for peer in benchmarks.peers.gcn(x, with_self_loops(graph), 7, torch.float32).values():
        peer.module.load_state_dict(conv.state_dict())
        torch.testing.assert_close(gradient(peer.forward, x), expected)


def test_ratios_are_to_the_best_peer(benchmarks: Benchmarks) -> None:
    race = benchmarks.race
    rows = [
        race.Row("ours", "eager", True, total_ms=6.0),
        race.Row("slow", "eager", False, total_ms=12.0),
        race.Row("slow", "compiled", False, total_ms=3.0),
        race.Row("broken", "eager", False, error="out of memory"),
    ]
    assert race.compare(rows, floor=2.0) == "slow, compiled"
    assert [row.ratio for row in rows] == [2, 4, 1, None]
    assert [row.ratio_in_form for row in rows] == [0.5, 1, 1, None]
    assert [row.to_floor for row in rows] == [3, 6, 1.5, None]


@pytest.mark.parametrize("factor", [0.5, 2.0, math.nan])
def test_a_forged_ratio_is_caught(benchmarks: Benchmarks, factor: float) -> None:
    check = benchmarks.check
    measured = {"layer": 0.5, "propagate": 0.8}
    assert check.compare(measured, measured) == {}
    assert check.compare({"layer": 0.5 * 1.5, "propagate": 0.8 / 1.5}, measured) == {}
    wrong = check.compare(measured | {"layer": 0.5 * factor}, measured)
    assert list(wrong) == ["layer"]
    assert set(check.compare({"old": 1.0}, {"new": 1.0})) == {"old", "new"}


def test_committed_ratios(benchmarks: Benchmarks) -> None:
    content = json.loads((ROOT / "benchmarks" / "results" / "check-cpu.json").read_text())
    committed = {problem["name"]: problem["ratio"] for problem in content["problems"]}
    assert content["band"] == benchmarks.check.BAND
    assert {name.split(", GFGN")[0].split(", gfgn")[0] for name in committed} == {
        *(part for part in benchmarks.check.PARTS if part != "building"),
        "building a Graph",
    }
    assert all(ratio > 0 for ratio in committed.values())


def test_tables_of_pages_are_those_of_the_results(benchmarks: Benchmarks) -> None:
    shown = []
    for page in benchmarks.tables.PAGES:
        text = page.read_text(encoding="utf-8")
        assert benchmarks.tables.fill(text) == text, f"python benchmarks/plot.py fills the tables of {page}"
        for match in benchmarks.tables.BLOCK.finditer(text):
            assert len(match[0].splitlines()) > 4, f"the table {match[2]} has no row; its benchmark has no results"
            shown.append(match[2])
    assert sorted(shown) == sorted(benchmarks.tables.TABLES)


def test_noise_is_scored_as_advise_scores_it(benchmarks: Benchmarks) -> None:
    """With epochs by the validation loss; models without a network choose among the same candidates."""
    study = benchmarks.noise_verdicts
    data, config = replace(study.noise(study.FOUR, 0), metric="accuracy"), TrainConfig(3, 3, best="loss")
    for model in ("majority", "logistic-regression", "gcn"):
        rows = compare(data, [model], study.SPLITS, max_epochs=3, patience=3, best="loss").rows[model]
        found = study.score(data, study.train(data, model, config), DatasetRecord.of(data), model, config)
        assert [run.test for run in found] == pytest.approx([row.test for row in rows])
        assert [run.val for run in found] == pytest.approx([row.val for row in rows])


def test_few_verdicts_on_noise_are_wrong(benchmarks: Benchmarks) -> None:
    study = benchmarks.noise_verdicts
    problems = json.loads((ROOT / "benchmarks" / "results" / "noise_verdicts-cpu.json").read_text())["problems"]
    rows = [row for problem in problems for row in problem["rows"]]
    assert [problem["part"] for problem in problems] == list(study.PARTS)
    assert all(row["interval"] == study.interval(row["found"], row["graphs"]) for row in rows)
    assert all(row["found"] <= 0.05 * row["graphs"] for row in rows if row["truth"] == "nothing")
