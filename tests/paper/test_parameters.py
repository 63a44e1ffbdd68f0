"""Counts of parameters: formulas against modules, and against numbers computed by hand."""

from pathlib import Path

import pytest

from gfgn.nn import GFGN
from gfgn.paper.outputs import read_csv
from gfgn.paper.parameters import (
    USUAL,
    Shape,
    analyze,
    count_all,
    count_layer,
    count_network,
    gate_parameters,
    gcn_layer,
    size_of,
    widths,
)


@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
@pytest.mark.parametrize(("width", "heads"), [(16, 1), (64, 8), (12, 3)])
def test_formula_and_module_agree_on_a_layer(level: str, width: int, heads: int) -> None:
    formula, module = count_layer(level, 30, width, heads)
    assert formula == module


def test_counts_by_hand() -> None:
    assert gcn_layer(10, 4) == 44
    assert gcn_layer(10, 4, bias=False) == 40
    assert gate_parameters("graph", 64, 8) == 8 * 8 * 8 == 64**1.5
    assert gate_parameters("pair", 64, 8) == 2 * 64**1.5
    assert gate_parameters("neighbor", 64) == 2 * 64**2
    # Cora: 1433 → 64 → 7, gates 8 · 8² and 7²
    count = count_network("cora", "graph", 1433, 7, USUAL)
    assert count.gcn == 1433 * 64 + 64 + 64 * 7 + 7
    assert count.formula == count.module == count.gcn + 512 + 49
    assert count.added == pytest.approx(561 / count.gcn)


def test_formula_and_module_agree_on_a_network() -> None:
    shape = Shape(4, 2, 3)
    for level in ("graph", "neighbor", "pair"):
        network = GFGN(11, 3, 4, 5, level=level, heads=2)
        assert size_of(network) == count_network("toy", level, 11, 5, shape).formula == network.num_parameters


def test_widths_of_a_network() -> None:
    assert widths(100, 7, Shape(3, 4, 2)) == [(100, 8, 4), (8, 8, 4), (8, 7, 1)]


def test_every_network_of_the_paper_agrees() -> None:
    counts = count_all()
    assert len(counts) == 33
    assert all(count.formula == count.module for count in counts)
    shapes = {count.dataset: count.shape for count in counts}
    assert shapes["ogbn-arxiv"] == (4, 16, 16)
    assert shapes["ppi"] == (6, 32, 64)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"heads must divide width \(10\), got 3"):
        gate_parameters("graph", 10, 3)
    with pytest.raises(ValueError, match="level must be one of 'graph', 'neighbor', 'pair', got 'edge'"):
        gate_parameters("edge", 10)


def test_files(tmp_path: Path) -> None:
    paths = analyze(tmp_path, root=None, device="cpu", progress=lambda line: None)
    assert {path.name for path in paths} >= {"layers.csv", "networks.csv", "parameters.svg", "README.md"}
    rows = read_csv(tmp_path / "networks.csv")
    assert all(row["formula"] == row["module"] for row in rows)
    assert "1.22%" in (tmp_path / "README.md").read_text(encoding="utf-8")  # Cora, neighbor and pair level
