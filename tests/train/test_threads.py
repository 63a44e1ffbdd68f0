"""Calls of several threads at the same time: each has the results that it has alone, bit for bit."""

import logging
import threading
from collections.abc import Iterator

import pytest
import torch
from nets import Net, Normalized
from torch import Tensor, nn
from train.concurrent_calls import Seeding, assert_results_of_calls_alone, facts, make_calls

from gfgn.data import NodeDataset
from gfgn.data.generators import dimensions
from gfgn.nn import custom
from gfgn.nn.registry import find_model
from gfgn.train import Replica, train_replicas
from gfgn.train.program import seeded_module


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(60)


@pytest.fixture
def untouched() -> Iterator[None]:
    """The global generator and the number of threads are left as they were."""
    state, count = torch.get_rng_state(), torch.get_num_threads()
    yield
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == count


def test_threads_train_at_the_same_time(data: NodeDataset, untouched: None) -> None:
    assert_results_of_calls_alone(make_calls(data, 2), threads=3, rounds=1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_threads_share_a_gpu(data: NodeDataset, untouched: None) -> None:
    before = torch.cuda.get_rng_state()
    calls = make_calls(data, 1, "cuda")
    del calls["Branching"]  # not batched, and PyTorch's sums over edges have no fixed order on a GPU
    assert_results_of_calls_alone(calls, threads=3, rounds=2)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_another_thread_draws_and_seeds(data: NodeDataset) -> None:
    """A program may use PyTorch's global generator while this library trains."""
    calls = make_calls(data, 1)
    expected = {name: facts(calls[name]()) for name in ("gfgn-pair", "graphsaint", "Net")}
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            torch.manual_seed(1)
            torch.rand(10)

    other = threading.Thread(target=draw)
    other.start()
    try:
        for name, facts_alone in expected.items():
            assert facts(calls[name]()) == facts_alone
    finally:
        stop.set()
        other.join()


def initial(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()])


@pytest.mark.parametrize("model", ["gfgn-pair", "gat", Net, Normalized])
def test_initial_parameters_are_those_of_manual_seed(data: NodeDataset, model: str | type[nn.Module]) -> None:
    entry = find_model(model)
    settings = entry.settings("model", {"hidden_channels": 8}.items() if model is Normalized else (), {})
    module = seeded_module(entry, data, settings, seed=7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = entry.build(data.num_features, data.num_classes, 0.0, 1.0, settings)
    assert torch.equal(initial(module), initial(expected))


def test_a_constructor_that_seeds(data: NodeDataset, caplog: pytest.LogCaptureFixture, untouched: None) -> None:
    """Its seed has no effect, and it is said once: runs with other seeds start from other parameters."""
    custom._seeding.clear()
    replicas = [Replica(seed=0), Replica(seed=1)]
    with caplog.at_level(logging.WARNING, "gfgn"):
        runs = train_replicas(Seeding, data, replicas, 2, 1)
    assert runs[0].history["train_loss"][0] != runs[1].history["train_loss"][0]
    assert facts(runs) == facts(train_replicas(Net, data, replicas, 2, 1))
    (message,) = caplog.messages
    assert message.endswith("Seeding seeds PyTorch when it is built; the seed of each run is used instead")
