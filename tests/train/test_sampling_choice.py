"""The choice between the whole graph and samples, from measured memory."""

import resource
from pathlib import Path

import pytest
import torch

from gfgn.data import NodeDataset
from gfgn.data.generators.dimensions import dimensions
from gfgn.estimator import GFGNClassifier, members
from gfgn.train import Replica, memory

LINUX = Path("/proc/self/status").exists()


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(3000, degree=6, splits=1)


def test_memory_of_tensors() -> None:
    allocated = memory._Allocated()
    with allocated:
        a = torch.zeros(1000)
        (a + 1).sum()  # one more at a time
        b = a.view(10, 100)  # none
        del a, b
        torch.zeros(500)
    assert 8000 <= allocated.peak < 8100
    assert allocated.live == 0


@pytest.mark.parametrize("model", ["gfgn-graph", "gfgn-neighbor", "gfgn-pair"])
def test_parts_predict_the_memory_of_the_whole(model: str, data: NodeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MEASURED_NODES", 500)
    whole = memory._measure(model, data, Replica(), "cpu")
    assert memory.epoch_memory(model, data, Replica(), "cpu") == pytest.approx(whole, rel=0.15)
    assert whole > 6 * 4 * 64 * data.num_nodes  # layers keep several hidden vectors per node


def test_the_way_and_its_reason(data: NodeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    way = memory.choose_sampling("gfgn-pair", data, Replica(), "cpu")
    assert (way.sampled, way.reason) == (False, f"{data.name}: every step takes the whole graph, which is small")
    monkeypatch.setattr(memory, "MEASURED_NODES", 500)
    needed = memory.epoch_memory("gfgn-pair", data, Replica(), "cpu")
    for free, sampled in ((2 * needed, False), (needed, True)):
        monkeypatch.setattr(memory, "free_memory", lambda _, free=free: free)
        way = memory.choose_sampling("gfgn-pair", data, Replica(), "cpu")
        assert way.sampled == sampled
        expected = "does not fit" if sampled else "takes the whole graph"
        assert expected in way.reason
        sizes = f"{needed / 2**20:.0f} MiB, measured on parts of it, and {free / 2**20:.0f} MiB are free on cpu"
        assert sizes in way.reason
    assert memory.choose_sampling("gfgn-pair", data, Replica(), "cpu", together=3).sampled


@pytest.mark.skipif(not LINUX, reason="needs /proc")
def test_a_limit_of_the_process() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit = memory._table(Path("/proc/self/status"))["VmData"] + 2**28
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        assert memory.free_memory("cpu") <= 2**28
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_a_classifier_trains_on_samples_where_memory_is_short(
    data: NodeDataset, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory, "MEASURED_NODES", 500)
    monkeypatch.setattr(memory, "free_memory", lambda _: 2**20)
    options = {"random_state": 0, "replicas": 1, "max_epochs": 15, "device": "cpu"}
    with caplog.at_level("INFO", "gfgn"):
        sampled = GFGNClassifier("graph", **options).fit(data)
    assert "steps take samples, as the whole graph does not fit" in caplog.text
    monkeypatch.undo()
    whole = GFGNClassifier("graph", **options).fit(data)
    assert sampled.val_score_ > whole.val_score_ - 0.05
    assert sampled.smoothing_scores_.shape == whole.smoothing_scores_.shape
    for name, value in (("trials", 4), ("class_weights", True)):
        with pytest.raises(ValueError, match=f"{name} must be .* for training on samples, got {value}"):
            GFGNClassifier("graph", batch_size=64, **{name: value}).fit(data)


@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_large_graphs_are_predicted_layer_by_layer(
    level: str, data: NodeDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = GFGNClassifier(level, 2, max_epochs=2, device="cpu").fit(data)
    expected = fitted.predict_proba(data)
    monkeypatch.setattr(members, "LARGE", 5000)
    torch.testing.assert_close(torch.from_numpy(fitted.predict_proba(data)), torch.from_numpy(expected))
    assert (fitted.predict_proba(data) != expected).any()  # another way
