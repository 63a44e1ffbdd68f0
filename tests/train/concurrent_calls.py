"""Calls of training for the tests with several threads, and the comparison of their results with those alone."""

import threading
from collections.abc import Callable

import torch
from nets import Branching, Net, Normalized
from torch import nn

from gfgn.data import NodeDataset
from gfgn.ops.thread_count import num_threads
from gfgn.train import Replica, Run, train_replicas
from gfgn.train.config import TrainConfig
from gfgn.train.loop import train_runs

Call = Callable[[], list[Run]]


def make_calls(data: NodeDataset, count: int, device: str = "cpu") -> dict[str, Call]:
    """Calls with `count` of PyTorch's threads.

    Registered models, one that trains on samples, one without a network, and models of the user's own.
    """
    replicas = [Replica(split=seed % 2, seed=seed) for seed in range(3)]
    config = TrainConfig(6, 3)

    def together(model: str | type[nn.Module]) -> Call:
        return lambda: with_threads(count, lambda: train_replicas(model, data, replicas, 6, 3, device))

    def dispatched(model: str) -> Call:
        return lambda: with_threads(count, lambda: train_runs(model, data, replicas[:2], config, device, history=True))

    registered = {name: together(name) for name in ("gfgn-pair", "gat", "mlp")}
    sampled = {name: dispatched(name) for name in ("graphsaint", "logistic-regression")}
    own = {model.__name__: together(model) for model in (Net, Normalized, Branching, Seeding)}
    return registered | sampled | own


def with_threads(count: int, call: Call) -> list[Run]:
    with num_threads(count):
        return call()


class Seeding(Net):
    """Seeds PyTorch, as tutorials do."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        torch.manual_seed(12345)
        super().__init__(in_channels, out_channels)


def facts(runs: list[Run]) -> list[object]:
    return [(run.replica, run.val, run.test, run.epoch, run.history) for run in runs]


def assert_results_of_calls_alone(calls: dict[str, Call], threads: int, rounds: int) -> None:
    """Every thread makes all calls, each in another order."""
    expected = {name: facts(call()) for name, call in calls.items()}
    names, different, finished = list(calls), [], []
    barrier = threading.Barrier(threads)

    def work(number: int) -> None:
        barrier.wait()
        for turn in range(rounds):
            for k in range(len(names)):
                name = names[(k + 5 * number + turn) % len(names)]
                if facts(calls[name]()) != expected[name]:
                    different.append(name)
        finished.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not different
    assert sorted(finished) == list(range(threads))
