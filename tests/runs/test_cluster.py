"""A study on a Ray cluster of two workers, one of which is killed: the store is that of a single process."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from runs.small_studies import ALL_RUNS, STUDY, run, write_study
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.data.generators.dimensions import dimensions
from gfgn.runs import ProgressCallback, RunRecord, Store, grid, make_replicas, successive_halving, train_missing
from gfgn.runs.cluster import Cluster, divide
from gfgn.train import Replica, TrainConfig

LONG = STUDY.replace("max_epochs: 3, patience: 3", "max_epochs: 150, patience: 150")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Any]]:
    """A head without CPUs and two workers with one each; the test's process is connected to them."""
    cluster_utils, ray = pytest.importorskip("ray.cluster_utils"), pytest.importorskip("ray")
    source = str(Path(__file__).parents[2] / "src")
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", paths)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        try:
            workers = [cluster.add_node(num_cpus=1) for _ in range(2)]
            ray.init(address=cluster.address, log_to_driver=False)
            yield workers
        finally:
            ray.shutdown()
            cluster.shutdown()


class Killer(ProgressCallback):
    """Kills a node of the cluster after the first run, while others train, and counts runs."""

    def __init__(self, node: Any) -> None:
        self.raylet = node.all_processes["raylet"][0].process.pid
        self.killed, self.keys = False, list[str]()

    def on_run_end(self, row: RunRecord) -> None:
        self.keys.append(row.key)
        if not self.killed:
            self.killed = True
            children = Path(f"/proc/{self.raylet}/task/{self.raylet}/children").read_text().split()
            for pid in (self.raylet, *map(int, children)):
                os.kill(pid, signal.SIGKILL)


def content(path: Path) -> list[dict[str, Any]]:
    """All rows of a store without times."""
    with Store(path, read_only=True) as store:
        records = [row.cells() for row in store.rows(dropped=True)]
    return [{name: each[name] for name in each if name not in ("seconds", "date")} for each in records]


@needs_ray
@pytest.mark.skipif(sys.platform != "linux", reason="the processes of a node are found in /proc")
def test_a_study_survives_the_loss_of_a_worker(nodes: list[Any], tmp_path: Path) -> None:
    study, killer = write_study(tmp_path, LONG), Killer(nodes[0])
    with Cluster(device="cpu") as cluster:
        assert cluster.workers("cpu") == 2
        outcome = run(study, tmp_path / "cluster", engine=cluster, callback=killer)
        assert killer.killed
        assert outcome.made == len(killer.keys) == len(set(killer.keys)) == ALL_RUNS
        assert run(study, tmp_path / "cluster", engine=cluster).made == 0
    run(study, tmp_path / "alone")
    assert content(tmp_path / "cluster" / "runs.sqlite") == content(tmp_path / "alone" / "runs.sqlite")


@needs_ray
def test_searches_and_errors(nodes: list[Any], tmp_path: Path) -> None:
    data, config = dimensions(60, degree=6, splits=2), TrainConfig(40, 40)
    configurations = grid(lr=(0.001, 0.01, 0.05, 0.2))
    with Cluster() as cluster:
        for name, options in (("cluster", {"engine": cluster}), ("alone", {})):
            with Store(tmp_path / f"{name}.sqlite") as store:
                successive_halving(store, data, "gfgn-graph", configurations, range(2), config=config, **options)
                train_missing(store, data, "majority", [Replica()], config, **options)
        with Store(":memory:") as store, pytest.raises(ValueError, match="clip"):
            train_missing(store, data, "vr-gcn", [Replica()], TrainConfig(4, 4, clip=1.0), engine=cluster)
    assert any(each["search"] for each in content(tmp_path / "alone.sqlite"))
    assert content(tmp_path / "cluster.sqlite") == content(tmp_path / "alone.sqlite")


@needs_ray
def test_ray_starts_with_the_first_run_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    data, replicas = dimensions(60, degree=6, splits=2), [Replica(0), Replica(1)]
    with Store(":memory:") as store:
        rows = train_missing(store, data, "mlp", replicas, TrainConfig(2, 2))
        with Cluster() as cluster:
            monkeypatch.setattr(cluster, "connect", lambda: pytest.fail("nothing is missing"))
            assert train_missing(store, data, "mlp", replicas, TrainConfig(2, 2), engine=cluster) == rows


def test_division_into_tasks() -> None:
    data = dimensions(60, degree=6, splits=2)
    whole = job(make_replicas("gcn", grid(lr=tuple(0.001 * k for k in range(1, 51))), range(2)), data)
    jobs = divide(whole, workers=3)
    assert tuple(each for part in jobs for each in part.replicas) == whole.replicas
    assert len(jobs) == 12
    assert divide(replace(whole, search="abc"), workers=3) == [replace(whole, search="abc")]
    assert len(divide(replace(whole, replicas=whole.replicas[:2]), workers=0)) == 2


def job(replicas: list[Replica], data: Any) -> Any:
    from gfgn.runs.engine import Job
    from gfgn.runs.record import DatasetRecord

    return Job("gcn", tuple(replicas), DatasetRecord.of(data), TrainConfig(4, 4))


def test_usage_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def message(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["compare", "--out", str(tmp_path), *arguments])
        assert result.exit_code == 2
        return " ".join(result.stderr.split())

    assert "--on must be ray or ray:ADDRESS, got 'slurm'" in message("--on", "slurm")
    assert "--minutes must not be given together with --on" in message("--on", "ray", "--minutes", "1")
    assert "address must be HOST:PORT, got 'ray://head:10001'" in message("--on", "ray:ray://head:10001")
    if find_spec("ray") is not None:
        assert "HOST:PORT of a cluster's head, got '127.0.0.1:1': " in message("--on", "ray:127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'gfgn[ray]'" in message("--on", "ray")
