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
from gfgn.train import Replica, Run, TrainConfig

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


def test_a_contender_that_fails_does_not_end_the_others(benchmarks: Benchmarks) -> None:
    race = benchmarks.race

    def fail() -> None:
        raise RuntimeError("no kernel\nfor this")

    problem = race.problem("test", [race.Contender("a", list, ours=True), race.Contender("b", fail)], "cpu", rounds=3)
    ours, failed = problem["rows"]
    assert ours["rounds"] == 3
    assert ours["total_ms"] > 0
    assert failed["error"] == "RuntimeError: no kernel"
    assert failed["total_ms"] is None
    assert problem["best_peer"] is None


def test_a_pass_computes_gradients(benchmarks: Benchmarks) -> None:
    x = torch.ones(3, requires_grad=True)
    [contender] = benchmarks.race.backprop("square", lambda: x * x, [x])
    contender.run()
    contender.run()  # gradients do not add up
    torch.testing.assert_close(x.grad, 2 * contender.run.gradient)


@pytest.mark.parametrize("factor", [0.5, 2.0, math.nan])
def test_a_forged_ratio_is_caught(benchmarks: Benchmarks, factor: float) -> None:
    check = benchmarks.check
    measured = {"layer": 0.5, "propagate": 0.8}
    assert check.compare(measured, measured) == {}
    assert check.compare({"layer": 0.5 * 1.5, "propagate": 0.8 / 1.5}, measured) == {}
    wrong = check.compare(measured | {"layer": 0.5 * factor}, measured)
    assert list(wrong) == ["layer"]


def test_ratios_that_one_side_lacks_are_caught(benchmarks: Benchmarks) -> None:
    wrong = benchmarks.check.compare({"old": 1.0}, {"new": 1.0})
    assert wrong == {"old": "committed, but not measured", "new": "measured, but not committed"}


def test_committed_ratios(benchmarks: Benchmarks) -> None:
    content = json.loads((ROOT / "benchmarks" / "results" / "check-cpu.json").read_text())
    committed = {problem["name"]: problem["ratio"] for problem in content["problems"]}
    assert content["band"] == benchmarks.check.BAND
    assert {name.split(", GFGN")[0].split(", gfgn")[0] for name in committed} == {
        *(part for part in benchmarks.check.PARTS if part != "building"),
        "building a Graph",
    }
    assert all(ratio > 0 for ratio in committed.values())


def test_exponents(benchmarks: Benchmarks) -> None:
    problems = [
        {"axis": "edges", "at": at, "rows": [{"contender": "a", "total_ms": 3 * at**0.5, "peak_mib": 7.0}]}
        for at in (10, 20, 40)
    ]
    [entry] = benchmarks.growth.exponents(problems)
    assert entry["time"] == pytest.approx(0.5)
    assert entry["memory"] == pytest.approx(0, abs=1e-12)


def test_tables_of_pages_are_those_of_the_results(benchmarks: Benchmarks) -> None:
    shown = []
    for page in benchmarks.tables.PAGES:
        text = page.read_text(encoding="utf-8")
        assert benchmarks.tables.fill(text) == text, f"python benchmarks/plot.py fills the tables of {page}"
        for match in benchmarks.tables.BLOCK.finditer(text):
            assert len(match[0].splitlines()) > 4, f"the table {match[2]} has no row; its benchmark has no results"
            shown.append(match[2])
    assert sorted(shown) == sorted(benchmarks.tables.TABLES)


def test_samplers_of_peers_draw_as_many_edges(benchmarks: Benchmarks, graph: Graph) -> None:
    sampler, seeds = benchmarks.sampler, torch.arange(0, 60, 2)
    expected = int(graph.row_lengths[seeds].clamp(max=3).sum())
    assert sampler.with_gfgn(graph, [3])(seeds, 0) == sampler.with_scipy(graph, [3])(seeds, 0) == expected
    connected = int((graph.row_lengths[seeds] > 0).sum())
    assert sampler.with_numpy(graph, [3])(seeds, 0) == 3 * connected


@pytest.mark.parametrize("limit", ["memory.max", "memory.limit_in_bytes"])
def test_a_stage_has_a_control_group_of_its_own_with_the_limit(
    benchmarks: Benchmarks, tmp_path: Path, limit: str
) -> None:
    large = benchmarks.large
    (tmp_path / limit).write_text("max")
    with large.group_below(tmp_path, 0.5) as group:
        assert group.parent == tmp_path
        assert (group / limit).read_text() == str(2**29)
        assert large.limit_name(group) == limit
        (group / limit).unlink()  # the kernel's files go with their folder
    assert not group.exists()
    with large.group_below(None, 0.5) as group:
        assert group is None
    (tmp_path / limit).unlink()
    with pytest.raises(SystemExit, match="--group must be a memory control group"):
        large.limit_name(tmp_path)


def test_tables_of_other_sizes_are_not_taken(benchmarks: Benchmarks, tmp_path: Path) -> None:
    sizes = {"nodes": 200, "edges": 1000, "features": 3, "train": 0.2}
    benchmarks.large.prepare(tmp_path, sizes)
    written = (tmp_path / "nodes.parquet").stat().st_mtime_ns
    benchmarks.large.prepare(tmp_path, sizes)
    assert (tmp_path / "nodes.parquet").stat().st_mtime_ns == written
    with pytest.raises(SystemExit, match="--folder must be new or have tables of"):
        benchmarks.large.prepare(tmp_path, sizes | {"nodes": 300})


def test_a_learning_rate_is_chosen_by_validation(benchmarks: Benchmarks) -> None:
    def run(lr: float, val: float) -> Run:
        return Run(Replica(lr=lr), "gfgn-pair", val, 1 - val, 3, 5, {}, 1.0, 10)

    best_rate, difference = benchmarks.sampled.best_rate, benchmarks.sampled.difference
    assert best_rate([run(0.01, 0.5), run(0.02, 0.7), run(0.05, 0.6), run(0.1, math.nan)]) == 0.02
    assert best_rate([run(0.02, 0.7), run(0.01, 0.7)]) == 0.01
    beyond = benchmarks.sampled.rates_beyond
    assert beyond([0.02, 0.01, 0.05], 0.02) == []
    assert beyond([0.02, 0.01, 0.05], 0.01) == [0.005]
    assert beyond([0.02, 0.01, 0.05], 0.05) == [0.1]
    assert beyond([0.02], 0.02) == []  # a single rate is not searched
    assert difference([80.0, 82.0], [81.0, 81.0]) == {"difference": 0.0, "error": pytest.approx(1.0)}
    assert difference([80.0], [81.0]) == {"difference": 1.0, "error": None}


def test_noise_is_scored_as_advise_scores_it(benchmarks: Benchmarks) -> None:
    """With epochs by the validation loss; models without a network choose among the same candidates."""
    study = benchmarks.noise_verdicts
    data, config = replace(study.noise(study.FOUR, 0), metric="accuracy"), TrainConfig(3, 3, best="loss")
    for model in ("majority", "logistic-regression", "gcn"):
        rows = compare(data, [model], study.SPLITS, max_epochs=3, patience=3, best="loss").rows[model]
        found = study.score(data, study.train(data, model, config), "accuracy", model)
        assert [run.test for run in found] == pytest.approx([row.test for row in rows])
        assert [run.val for run in found] == pytest.approx([row.val for row in rows])


def test_the_table_of_verdicts_on_noise_is_in_the_docs(benchmarks: Benchmarks) -> None:
    study = benchmarks.noise_verdicts
    problems = json.loads((ROOT / "benchmarks" / "results" / "noise_verdicts-cpu.json").read_text())["problems"]
    rows = [row for problem in problems for row in problem["rows"]]
    assert [problem["part"] for problem in problems] == list(study.PARTS)
    assert all(row["interval"] == study.interval(row["found"], row["graphs"]) for row in rows)
    assert all(row["found"] <= 0.05 * row["graphs"] for row in rows if row["truth"] == "nothing")
    for part in study.table(problems).split("\n\n"):
        assert part in (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
