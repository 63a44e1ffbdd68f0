"""Views: datasets with other features, edges or splits, and their names."""

import os
from pathlib import Path

import pytest
import torch

from gfgn.data import Split, load
from gfgn.data.diagnosis import connected_components
from gfgn.data.named.catalog import DATASETS
from gfgn.runs.record import DatasetRecord, is_standin, measure_test_share
from gfgn.runs.study import View, data_name, known_test_share, load_view


@pytest.mark.parametrize("fractions", [None, (0.6, 0.2)])
def test_splits_of_the_largest_component(
    fractions: tuple[float, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load("dimensions")
    component = torch.from_numpy(connected_components(loaded.graph)).clone()
    component[:100] = 99  # as if a hundred nodes were another component
    monkeypatch.setattr("gfgn.runs.study.connected_components", lambda graph: component.numpy())
    data = load_view("dimensions", View(nodes="largest part", fractions=fractions))
    for split, whole in zip(data.splits, loaded.splits, strict=True):
        assert not any(mask[:100].any() for mask in split)
        assert all(mask.any() for mask in split)
        if fractions is None:
            assert all(torch.equal(mask[100:], own[100:]) for mask, own in zip(split, whole, strict=True))
        else:
            assert int(sum(mask.sum() for mask in split)) == loaded.num_nodes - 100


def test_edges_and_features_of_the_web_graphs(tmp_path: Path) -> None:
    try:
        given, back, raw = (
            load_view("texas", view) for view in (View(edges="directed"), View(edges="reversed"), View(features="raw"))
        )
    except FileNotFoundError:
        pytest.skip("the raw files of texas are missing")
    assert [data.name for data in (given, back, raw)] == ["texas directed", "texas reversed", "texas raw"]
    assert torch.equal(given.graph.edge_index.flip(0)[:, given.graph.transpose], back.graph.edge_index)
    assert len({data.fingerprint for data in (given, back, raw, load("texas"))}) == 4
    assert len({data.split_fingerprint(3) for data in (given, back, raw, load("texas"))}) == 1
    assert DATASETS["texas"].paper is not None
    assert given.graph.num_edges == DATASETS["texas"].paper.edges


def test_bad_views() -> None:
    for options, message in (
        ({"edges": "both"}, "edges must be one of 'undirected', 'directed', 'reversed', got 'both'"),
        ({"nodes": "some"}, "nodes must be one of 'all', 'largest part', got 'some'"),
        ({"noise": 0.5, "edges": "directed"}, "noise must be 0 where edges are directed, got 0.5"),
        ({"fractions": (0.5, 0.5)}, "fractions must be two positive numbers with a sum below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            View(**options)
    assert data_name("karate", View(noise=0.5)) == "karate+50%"


def test_names_in_results() -> None:
    assert data_name("cora") == "cora"
    assert data_name("cora", View(noise=0.2)) == "cora+20%"
    assert data_name("ppi-relabelled") == "ppi-relabelled (stand-in)"
    assert data_name("ppi-relabelled", View(features="raw")) == "ppi-relabelled (stand-in) raw"
    view = View(features="raw", edges="reversed", fractions=(0.6, 0.2), nodes="largest part")
    assert data_name("texas", view) == "texas raw reversed largest part 60/20/20"
    standins = [data_name("ppi-relabelled", view) for view in (View(), View(features="raw"), View(noise=0.2))]
    for name in ("ppi-relabelled", *standins):
        assert is_standin(name)
    assert not is_standin("ppi")
    assert not is_standin("cora+20%")


# --- test nodes per other node ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DATASETS)
def test_known_shares_of_test_nodes(name: str) -> None:
    """What studies know of the splits without loading the data, against the data; rounding matters on small graphs."""
    if DATASETS[name].files and not is_available(name):
        pytest.skip(f"GFGN_DATA does not name a folder with {name}")
    assert DatasetRecord.of(load(name)).test_share == pytest.approx(known_test_share(name), abs=0.01)


def is_available(name: str) -> bool:
    root = Path(os.environ.get("GFGN_DATA") or "missing")
    return all((root / file).is_file() for file in DATASETS[name].files)


def test_share_of_test_nodes() -> None:
    """Splits are independent only if no two of them share a node."""
    node = torch.arange(20)
    first = Split(node < 4, (node >= 4) & (node < 8), (node >= 8) & (node < 10))
    second = Split(*(mask.roll(10) for mask in first))
    third = Split(*(mask.roll(9) for mask in first))
    assert measure_test_share([first]) == measure_test_share([first, third]) == 2 / 8
    assert measure_test_share([first, second]) == 0
    assert measure_test_share([]) is None
