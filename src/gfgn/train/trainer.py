"""`Trainer`: one call of `train_replicas`. It groups replicas into batches and trains these."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.nn.registry import HIDDEN, Model
from gfgn.train.batch import Batch
from gfgn.train.checkpoint import Checkpoint
from gfgn.train.config import TrainConfig
from gfgn.train.custom import CustomProgram, PlainLoop, TrainingMode
from gfgn.train.given import Given
from gfgn.train.program import Program
from gfgn.train.progress import Progress
from gfgn.train.replica import Replica, Run
from gfgn.train.settings import ONE_THREAD_VALUES, edge_values, num_threads, threads_for
from gfgn.train.task import Task, make_task, with_features
from gfgn.train.trial import choose_training_mode

EPOCHS_PER_CHECK = {"cpu": 1, "cuda": 20}  # for finished replicas: a check waits for the GPU
# Fraction of unfinished replicas below which finished ones are removed: a GPU's program is then captured again.
COMPACT_BELOW = {"cpu": 0.95, "cuda": 0.6}
# Values of an edge-wise tensor below which replicas train as one batch: batches in several threads would mostly wait
# for each other, because Python itself runs in one thread at a time.
ONE_BATCH_VALUES = 0.8 * ONE_THREAD_VALUES
ONE_CUSTOM_BATCH_VALUES = ONE_BATCH_VALUES / 4  # its steps are longer: 20 replicas of Texas, not 80
MAX_MEMORY_SHARE = 0.7  # fraction of the free memory that a batch may need
MIN_FREE_SHARE = 0.8  # fraction of all memory of a GPU that is free before a batch continues
CACHE_BYTES = 1 << 23  # hidden units of a batch on the CPU: about the size of a cache

Prune = Callable[[int, list[Replica], list[float]], Sequence[bool]]


@dataclass(frozen=True)
class Group:
    """Replicas that share a program."""

    program: Program
    task: Task
    splits: list[int]  # of the task's masks
    indices: list[int]  # of the replicas


@dataclass
class Trainer:
    """Trains all replicas of one call, see `train_replicas` for the attributes; `progress` has the finished runs."""

    name: str
    model: Model
    data: NodeDataset
    replicas: Sequence[Replica]
    config: TrainConfig
    progress: Progress
    history: bool
    keep_state: bool
    gates: bool
    batch_size: int | None
    checkpoint: Checkpoint | None

    def __post_init__(self) -> None:
        self.device = self.data.y.device
        self.seconds = [0.0] * len(self.replicas)
        self._modes: dict[Any, TrainingMode] = {}  # of a custom model, by its options
        self._data: dict[str, NodeDataset] = {}  # by the option `features`
        self._tasks: dict[Any, Task] = {}
        self._given = Given()

    def train(self, rungs: list[int], prune: Prune | None) -> None:
        """Trains all replicas; with `prune`, batches wait for each other at every rung."""
        if prune is None and self.device.type == "cpu" and len(self.replicas) > 1 and torch.get_num_threads() > 1:
            self._train_in_threads(torch.get_num_threads())
            return
        with threads_for(self.data, len(self.replicas)):
            groups = map(self._group, self._same_program())
            if prune is not None:
                self._train_in_rungs(list(groups), rungs, prune)
            else:
                for group in groups:
                    self._train_group(group)

    # --- groups and batches -----------------------------------------------------------------------

    def _same_program(self) -> list[list[int]]:
        """Indices of replicas that can share a program: the same options and, for inductive data, the same split.

        A custom model has its dropout rates as numbers, and so these are the same, too.
        """
        groups: dict[Any, list[int]] = {}
        for index, replica in enumerate(self.replicas):
            rates = tuple(self._rates(replica).values()) if self.model.custom else ()
            key = (replica.options, rates, self.data.inductive and replica.split)
            groups.setdefault(key, []).append(index)
        return list(groups.values())

    def _group(self, indices: list[int]) -> Group:
        splits, first = sorted({self.replicas[index].split for index in indices}), self.replicas[indices[0]]
        task = self._task(first, splits)
        return Group(self._program(first, task), task, splits, indices)

    def _task(self, replica: Replica, splits: list[int]) -> Task:
        key = self._features(replica), *splits
        if key in self._tasks:
            return self._tasks[key]
        task = make_task(self._prepared(replica), splits, self.config.graphs_per_step)
        # One for all threads, so that what custom modules are called with is copied once.
        return self._tasks.setdefault(key, task) if self.model.custom else task

    def _features(self, replica: Replica) -> str:
        return str(self.model.applied(replica.options).get("features", "given"))

    def _prepared(self, replica: Replica) -> NodeDataset:
        """The dataset with the features that the options of a replica ask for."""
        features = self._features(replica)
        if features not in self._data:
            self._data[features] = with_features(self.data, features)
        return self._data[features]

    def _rates(self, replica: Replica) -> dict[str, float]:
        """The dropout rates that a custom model takes."""
        dropout = {"dropout": replica.dropout} if self.model.takes_dropout else {}
        return dropout | ({"input_dropout": replica.input_rate} if self.model.takes_input_dropout else {})

    def _program(self, replica: Replica, task: Task) -> Program:
        settings = self.model.settings(self.name, replica.options, {"num_nodes": self.data.num_nodes})
        if not self.model.custom:
            return Program(self.model, settings, self.data, self.device)
        given = (self.model, settings, self.data, self.device, self._rates(replica), self._given)

        def make(mode: TrainingMode) -> CustomProgram:
            return (CustomProgram if mode.batched else PlainLoop)(*given, mode)

        if replica.options not in self._modes:
            seeds = [each.seed for each in self.replicas if each.options == replica.options]
            self._modes[replica.options] = choose_training_mode(make, task, self.name, seeds)
        return make(self._modes[replica.options])

    def _batch(self, group: Group, indices: Sequence[int]) -> Batch:
        replicas = [self.replicas[index] for index in indices]
        splits = [group.splits.index(replica.split) for replica in replicas]
        program = self._program(replicas[0], group.task) if self.model.custom else group.program
        return Batch(program, group.task, self.data, replicas, splits, self.config)

    def _train_group(self, group: Group) -> None:
        """Trains a group batch by batch, in smaller batches after the memory was not enough."""
        size = self._size(group)
        left = group.indices
        while left:
            subset = left[:size]
            try:
                self._train_batch(self._batch(group, subset), subset, self.config.max_epochs)
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                size = max(1, min(size, len(left)) // 2)
                gc.collect()
            left = [index for index in left if index not in self.progress.runs]
            if left and self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _train_in_rungs(self, groups: list[Group], rungs: list[int], prune: Prune) -> None:
        """Trains all batches up to a rung, then all up to the next."""
        batches = [
            (self._batch(group, subset), subset)
            for group in groups
            for subset in _chunks(group.indices, self._size(group))
        ]
        for rung in [*rungs, self.config.max_epochs]:
            for batch, indices in batches:
                self._train_batch(batch, indices, rung)
                if self._is_memory_scarce():
                    batch.release()
            if rung < self.config.max_epochs:
                self._prune(batches, rung, prune)

    def _is_memory_scarce(self) -> bool:
        """Whether what batches keep between rungs could leave too little memory for the next one, see `_fitting`."""
        if self.device.type != "cuda":
            return False
        free, total = torch.cuda.mem_get_info(self.device)
        return free < MIN_FREE_SHARE * total

    def _train_in_threads(self, threads: int) -> None:
        """Trains one batch per thread: threads that divide the work of one batch would often wait for each other."""
        jobs = []
        for group in self._same_program():
            if self._is_sequential(group):
                subsets = _chunks(group, 1)
            elif self.batch_size:
                subsets = _chunks(group, self.batch_size)
            elif edge_values(self.data, len(group)) < (
                ONE_CUSTOM_BATCH_VALUES if self.model.custom else ONE_BATCH_VALUES
            ):
                subsets = [group]
            else:
                subsets = _even_chunks(group, self._fitting_the_cache(), threads)
            jobs += [partial(self._train_subset, group, subset) for subset in subsets]
        self.progress.run_in_threads(jobs, threads)

    def _is_sequential(self, group: list[int]) -> bool:
        if not self.model.custom:
            return False
        return isinstance(self._group(group).program, PlainLoop)

    def _train_subset(self, group: list[int], indices: list[int]) -> None:
        """Trains some replicas of a group, with their own program."""
        with num_threads(1):
            self._train_batch(self._batch(self._group(group), indices), indices, self.config.max_epochs)

    # --- batch sizes ------------------------------------------------------------------------------

    def _size(self, group: Group) -> int:
        """Number of replicas to train at a time."""
        if isinstance(group.program, PlainLoop):
            return 1
        return self.batch_size or self._fitting(group)

    def _fitting(self, group: Group) -> int:
        """Number of replicas that fit into the memory, on a CPU into its cache."""
        count = len(group.indices)
        if self.device.type == "cpu":
            return min(count, self._fitting_the_cache())
        if self.device.type != "cuda":
            return min(count, 16)
        free, _ = torch.cuda.mem_get_info(self.device)
        # Upper estimate of a replica's memory: parameters, Adam's state, and what layers keep per node and edge.
        parameters = sum(parameter.numel() for parameter in group.program.module.parameters())
        values = 8 * parameters + HIDDEN * (32 * self.data.num_nodes + 12 * self.data.graph.num_edges)
        if 4 * values * count < 0.1 * free:
            return count
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        probe = group.indices[:2]
        batch = self._batch(group, probe)
        batch.train_step(0)
        batch.validate()
        each = (torch.cuda.max_memory_allocated(self.device) - before) / len(probe)
        del batch
        torch.cuda.empty_cache()
        return max(1, min(count, int(MAX_MEMORY_SHARE * free / each)))

    def _fitting_the_cache(self) -> int:
        """Number of replicas whose hidden units fit into a CPU's cache together; at least one."""
        return max(1, CACHE_BYTES // (4 * HIDDEN * (self.data.num_nodes + 1)))

    # --- one batch --------------------------------------------------------------------------------

    def _train_batch(self, batch: Batch, indices: list[int], until: int) -> None:
        """Trains a batch up to an epoch; finished replicas are removed from it and from `indices`."""
        if self.checkpoint is not None and batch.epoch == 0:
            with self.progress.lock:
                for index, run in self.checkpoint.resume(batch, indices).items():
                    self.progress.finish(index, run)
        every, few = EPOCHS_PER_CHECK.get(self.device.type, 10), COMPACT_BELOW.get(self.device.type, 0.6)
        while indices and batch.epoch < until and not self.progress.stopped:
            start, epoch = time.perf_counter(), batch.epoch
            batch.run(min(every, until - batch.epoch))
            alive = batch.alive()
            self.progress.add_epochs((batch.epoch - epoch) * len(indices))
            seconds = (time.perf_counter() - start) / len(indices)
            for index in indices:
                self.seconds[index] += seconds
            if sum(alive) <= few * len(indices) or batch.epoch >= until:
                self._remove(batch, indices, alive)
            with self.progress.lock:
                self.progress.report(batch.epoch, batch.scores)
                if self.checkpoint is not None and (batch.program.resumable or not indices):
                    self.checkpoint.save(batch, indices, self.progress.runs)

    def _remove(self, batch: Batch, indices: list[int], kept: Sequence[bool], dropped: bool = False) -> None:
        """Finishes the replicas that are not `kept` and removes them."""
        gone = [k for k, stays in enumerate(kept) if not stays]
        if not gone:
            return
        removed = [indices[k] for k in gone]
        for index, run in zip(removed, self._results(batch.take(gone), removed, dropped), strict=True):
            self.progress.finish(index, run)
        left = _fill(kept)
        batch.keep(left)
        indices[:] = [indices[k] for k in left]

    def _results(self, batch: Batch, indices: list[int], dropped: bool) -> list[Run]:
        """The runs of a batch all of whose replicas have finished."""
        start, count = time.perf_counter(), len(indices)
        tests = [math.nan] * count if dropped else batch.test_scores()
        gates = batch.gates() if self.gates and not dropped else [None] * count
        states = batch.states() if self.keep_state else [None] * count
        if isinstance(batch.program, CustomProgram):
            batch.program.check_given()
        scores, best, histories = batch.scores(), batch.tensors["best_epoch"].tolist(), batch.histories()
        seconds = (time.perf_counter() - start) / count
        runs = []
        for k, index in enumerate(indices):
            epochs = min(batch.epoch, best[k] + self.config.patience + 1)
            runs.append(
                Run(
                    replica=self.replicas[index],
                    model=self.name,
                    val=scores[k],
                    test=tests[k],
                    epoch=best[k],
                    epochs=epochs,
                    history={key: values[:epochs] for key, values in histories[k].items()} if self.history else {},
                    seconds=self.seconds[index] + seconds,
                    num_parameters=batch.num_parameters,
                    state=states[k],
                    gates=gates[k] if best[k] >= 0 else None,
                    dropped=dropped,
                )
            )
        return runs

    def _prune(self, batches: list[tuple[Batch, list[int]]], epoch: int, prune: Prune) -> None:
        """Calls `prune` for the replicas of all batches together, and removes those that do not continue."""
        asked = [index for _, indices in batches for index in indices]
        if not asked:
            return
        scores = [score for batch, _ in batches for score in batch.scores()]
        answers = prune(epoch, [self.replicas[index] for index in asked], scores)
        if len(answers) != len(asked):
            raise ValueError(f"prune must answer for each of {len(asked)} replicas, got {len(answers)} answers")
        kept = dict(zip(asked, map(bool, answers), strict=True))
        for batch, indices in batches:
            self._remove(batch, indices, [kept[index] for index in indices], dropped=True)


def _fill(kept: Sequence[bool]) -> list[int]:
    """The indices of what is kept, the last of them where others leave: few move."""
    count = sum(kept)
    last = [k for k in range(count, len(kept)) if kept[k]]
    return [k if kept[k] else last.pop() for k in range(count)]


def _chunks(indices: list[int], size: int) -> list[list[int]]:
    return [indices[first : first + size] for first in range(0, len(indices), size)]


def _even_chunks(indices: list[int], size: int, threads: int) -> list[list[int]]:
    """Batches of at most `size`: the same number for every thread, and as even as possible."""
    rounds = -(-len(indices) // (size * threads))
    count = min(len(indices), rounds * threads)
    ends = [len(indices) * k // count for k in range(count + 1)]
    return [indices[first:last] for first, last in itertools.pairwise(ends)]
