"""One store for several calls: the report has everything in it, and tells graphs of the same name apart."""

from dataclasses import replace
from pathlib import Path

import pytest

from gfgn.data import NodeDataset, dimensions
from gfgn.report import write_report
from gfgn.runs import Store, compare, read_comparisons

QUICK = {"splits": 2, "max_epochs": 3}


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60, degree=6, splits=2)


def test_models_of_an_earlier_call_are_in_the_report(data: NodeDataset, tmp_path: Path) -> None:
    with Store(":memory:") as store:
        compare(data, ["mlp"], options={"mlp": {"hidden": 8}}, store=store, **QUICK)
        second = compare(data, ["gcn"], store=store, **QUICK)
        [everything] = read_comparisons(store)
        assert second.models == ("gcn",)
        assert everything.models == ("gcn", "mlp")
        assert everything.rows["mlp"][0].replica.options == (("hidden", 8),)
        assert everything.others == {}
        page = write_report([everything], tmp_path / "report.html").read_text()
    assert ">mlp<" in page


def test_runs_with_other_settings_are_named(data: NodeDataset, tmp_path: Path) -> None:
    with Store(":memory:") as store:
        compare(data, ["mlp", "gcn"], store=store, **QUICK)
        compare(data, ["gcn"], store=store, **QUICK | {"max_epochs": 4})
        [last] = read_comparisons(store)
        assert last.others == {"gcn": 2, "mlp": 2}
        page = write_report([last], tmp_path / "report.html").read_text()
    assert "Also in the store, trained with other settings: gcn (2 runs), mlp (2 runs)." in page


def test_two_graphs_of_one_name_are_told_apart(data: NodeDataset, tmp_path: Path) -> None:
    other = replace(data, x=data.x + 1)
    with Store(tmp_path / "runs.sqlite") as store:
        for graph in (data, other, data):
            compare(graph, ["mlp"], store=store, **QUICK)
        compare(other, ["gcn"], store=store, **QUICK)
        first, second = read_comparisons(store)
        table = store.to_pandas()
    assert first.dataset.name == f"{data.name} ({data.fingerprint[:8]})"
    assert second.dataset.name == f"{data.name} ({other.fingerprint[:8]})"
    assert first.models == ("mlp",)
    assert second.models == ("gcn", "mlp")
    assert table.groupby("dataset_fingerprint").size().to_dict() == {data.fingerprint: 2, other.fingerprint: 4}
    page = write_report([first, second], tmp_path / "report.html").read_text()
    assert data.fingerprint[:8] in page
    assert other.fingerprint[:8] in page
