"""`train_replicas`: trains one model for every replica of a list, many at a time."""

from __future__ import annotations

import gc
import itertools
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gfgn.data.dataset import Dataset
from gfgn.nn.registry import HIDDEN, Model, find_model
from gfgn.train.batch import Batch, Program
from gfgn.train.checkpoint import Checkpoint
from gfgn.train.config import TrainConfig, precision
from gfgn.train.memory import kept_memory
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.task import Task, make_task, with_sparse_features

CHECK = {"cpu": 1, "cuda": 20}
"""Epochs between two looks at who has come to an end: an answer of a GPU has to be waited for."""
FEW_LEFT = {"cpu": 0.9, "cuda": 0.6}
"""Share of replicas alive below which the others leave: a GPU's program has to be captured anew."""
CACHE = 1 << 22
"""Bytes of hidden units of a batch on the CPU: about what a cache holds."""
SMALL = 2**23
"""Values in an edge-wise tensor below which one thread is the better choice."""

Prune = Callable[[int, list[Replica], list[float]], Sequence[bool]]


def train_replicas(
    model: str,
    data: Dataset,
    replicas: Sequence[Replica],
    max_epochs: int = 400,
    patience: int = 100,
    device: torch.device | str = "cpu",
    *,
    clip: float | None = None,
    schedule: str = "constant",
    class_weights: bool = False,
    graphs_per_step: int | None = None,
    best: str = "score",
    tf32: bool = False,
    progress: Callable[[Run], None] | None = None,
    status: Callable[[Status], None] | None = None,
    history: bool = True,
    keep_state: bool = False,
    gates: bool = True,
    batch_size: int | None = None,
    rungs: Sequence[int] = (),
    prune: Prune | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 50,
) -> list[Run]:
    """Trains `model` for every replica and returns one `Run` a replica, in order.

    Adam on the cross-entropy of the training nodes, validation after every epoch. The best epoch is the one
    with the best validation score, the lower validation loss breaking ties, unless `best` says otherwise; training
    ends `patience` epochs after it. The test score is read once, at the best epoch. A replica's result depends on
    nothing but itself: not on the others in the list, nor on the global random state, which is left as it was.

    Args:
        model: Name of the model, see `gfgn.train.MODELS`.
        data: The dataset.
        replicas: The runs to make.
        max_epochs: Largest number of epochs.
        patience: Epochs without improvement after which a run ends.
        device: Where to train: `"cpu"`, `"cuda"` or `"mps"`.
        clip: Largest norm of a run's gradient, or `None`.
        schedule: Of the learning rate: `"constant"`, `"cosine"` or `"step"`, see `gfgn.train.TrainConfig`.
        class_weights: Whether every class has the same weight in the loss, however many nodes it has.
        graphs_per_step: If every graph of `data` belongs to one part of the split, how many training graphs make up a
            step; `None` for all of them.
        best: What the best epoch goes by: `"score"`, `"loss"` or `"last"`, see `gfgn.train.TrainConfig`.
        tf32: Whether a GPU may multiply float32 matrices in TF32, see `gfgn.train.TrainConfig`.
        progress: Called with each run as it finishes, in the caller's thread.
        status: Called now and then with how far the runs are, likewise.
        history: Whether runs keep their losses and scores of every epoch.
        keep_state: Whether runs keep the parameters of their best epoch.
        gates: Whether runs of a model with gates keep a summary of those.
        batch_size: How many replicas train at a time; as many as fit if `None`.
        rungs: Epochs at which `prune` is asked.
        prune: Given the epoch, all replicas still in training and their best validation scores so far, says which go
            on. One that does not is `dropped`, and its test score is not read.
        checkpoint: Folder in which training is saved now and then, and from which the same call goes on after it was
            interrupted; `None` to save nothing.
        checkpoint_every: Epochs between two saves.
    """
    entry = find_model(model)
    if not entry.replicas:
        raise ValueError(f"model must be one that trains in batches of replicas, got {model!r}, which does not")
    if data.inductive and not entry.inductive:
        raise ValueError(f"model must run on graphs it has not seen for {data.name!r}, got {model!r}, which does not")
    config = TrainConfig(max_epochs, patience, clip, schedule, class_weights, graphs_per_step, best, tf32)
    _check(data, replicas, config, batch_size, rungs, prune)
    if not replicas:
        return []
    options = {"history": history, "keep_state": keep_state, "gates": gates}
    training = _Training(
        model, entry, with_sparse_features(data.to(device)), replicas, config, options, progress, status
    )
    if checkpoint is not None:
        training.saves = Checkpoint(Path(checkpoint), model, data, replicas, config, checkpoint_every)
    with kept_memory(training.device.type), precision(config, training.device):
        training.train(batch_size, sorted(set(rungs)), prune)
    return [training.runs[place] for place in range(len(replicas))]


@contextmanager
def fitting_threads(data: Dataset, replicas: int = 1) -> Iterator[None]:
    """One thread for a small graph: its operations are too short to share, and on a busy machine threads that wait
    for each other make them many times slower."""
    before = torch.get_num_threads()
    if (data.graph.num_edges + data.num_nodes) * HIDDEN * replicas < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class _Group:
    """Replicas that can share a program."""

    program: Program
    task: Task
    splits: list[int]
    """The splits of the task's masks."""
    places: list[int]
    """The replicas, by their places in the list."""


class _Training:
    """One call of `train_replicas`."""

    def __init__(
        self,
        name: str,
        entry: Model,
        data: Dataset,
        replicas: Sequence[Replica],
        config: TrainConfig,
        options: dict[str, bool],
        progress: Callable[[Run], None] | None,
        status: Callable[[Status], None] | None,
    ) -> None:
        self.name, self.entry, self.data, self.replicas, self.config = name, entry, data, replicas, config
        self.options, self.progress, self.status = options, progress, status
        self.device = data.y.device
        self.runs: dict[int, Run] = {}
        self.saves: Checkpoint | None = None
        self.start = time.perf_counter()
        self.spent = [0.0] * len(replicas)
        self.work = 0
        """Epochs trained, summed over replicas."""
        self.lock = threading.RLock()
        """Held by whoever changes what batches in other threads see."""
        self.mail: queue.SimpleQueue[Any] | None = None
        """Where batches in other threads leave the calls they want to be made."""
        self.stopped = False

    # --- groups and batches -----------------------------------------------------------------------

    def train(self, batch_size: int | None, rungs: list[int], prune: Prune | None) -> None:
        if prune is not None:
            with fitting_threads(self.data, len(self.replicas)):
                self._train_in_step(batch_size, rungs, prune)
        elif self.device.type == "cpu" and len(self.replicas) > 1 and torch.get_num_threads() > 1:
            self._train_in_threads(batch_size)
        else:
            with fitting_threads(self.data, len(self.replicas)):
                for places in self._alike():
                    self._train_group(self._group(places), batch_size)

    def _train_in_step(self, batch_size: int | None, rungs: list[int], prune: Prune) -> None:
        """All batches up to a rung, then all up to the next."""
        batches = []
        for group in map(self._group, self._alike()):
            size = batch_size or self._fitting(group)
            batches += [(self._batch(group, some), some) for some in _cut(group.places, size)]
        for rung in [*rungs, self.config.max_epochs]:
            for batch, places in batches:
                self._run(batch, places, rung)
            if rung < self.config.max_epochs:
                self._prune(batches, rung, prune)

    def _train_in_threads(self, batch_size: int | None) -> None:
        """A batch in every thread: threads that share the work of one batch would wait for each other at every step
        of it, and on a busy machine for very long."""
        threads = torch.get_num_threads()
        batches = [
            (alike, some)
            for alike in self._alike()
            for some in (_cut(alike, batch_size) if batch_size else _share(alike, self._fitting_the_cache(), threads))
        ]
        torch.set_num_threads(1)  # for threads to come, too
        mail: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.mail = mail
        try:
            with ThreadPoolExecutor(min(threads, len(batches)), "gfgn-batch") as pool:
                for alike, some in batches:
                    pool.submit(self._train_batch, alike, some).add_done_callback(mail.put)
                try:
                    self._read_mail(mail, len(batches))
                except BaseException:
                    self.stopped = True  # batches in training end at their next look, the others do not begin
                    raise
        finally:
            self.mail = None
            torch.set_num_threads(threads)

    @staticmethod
    def _read_mail(mail: queue.SimpleQueue[Any], jobs: int) -> None:
        """Makes the calls that batches ask for, until all have ended: callers are called in their own thread."""
        while jobs:
            letter = mail.get()
            if isinstance(letter, Future):
                letter.result()
                jobs -= 1
            else:
                call, value = letter
                call(value)

    def _tell(self, call: Callable[[Any], None] | None, value: Any) -> None:
        if call is None:
            return
        if self.mail is None:
            call(value)
        else:
            self.mail.put((call, value))

    def _train_batch(self, alike: list[int], places: list[int]) -> None:
        """Trains some replicas of a group, with a program of its own."""
        if self.stopped:
            return
        with self.lock:  # initial parameters are drawn from PyTorch's own generator
            group = self._group(alike)
            batch = self._batch(group, places)
        self._run(batch, places, self.config.max_epochs)

    def _alike(self) -> list[list[int]]:
        """Replicas that can share a program: the same structure and, where parts are graphs, the same split."""
        groups: dict[Any, list[int]] = {}
        for place, replica in enumerate(self.replicas):
            groups.setdefault((replica.options, self.data.inductive and replica.split), []).append(place)
        return list(groups.values())

    def _group(self, places: list[int]) -> _Group:
        facts = {"num_nodes": self.data.num_nodes}
        settings = self.entry.settings(self.name, self.replicas[places[0]].options, facts)
        program = Program(self.entry, settings, self.data, self.device)
        splits = sorted({self.replicas[place].split for place in places})
        return _Group(program, make_task(self.data, splits, self.config.graphs_per_step), splits, places)

    def _batch(self, group: _Group, places: Sequence[int]) -> Batch:
        replicas = [self.replicas[place] for place in places]
        splits = [group.splits.index(replica.split) for replica in replicas]
        return Batch(group.program, group.task, self.data, replicas, splits, self.config)

    def _train_group(self, group: _Group, batch_size: int | None) -> None:
        """Trains replicas batch by batch, in smaller ones when the memory was not enough."""
        size = batch_size or self._fitting(group)
        left = group.places
        while left:
            some = left[:size]
            try:
                self._run(self._batch(group, some), some, self.config.max_epochs)
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                size = max(1, min(size, len(left)) // 2)
                gc.collect()
            left = [place for place in left if place not in self.runs]
            if left and self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _fitting(self, group: _Group) -> int:
        """How many replicas to train at a time."""
        count = len(group.places)
        if self.device.type == "cpu":
            return min(count, self._fitting_the_cache())
        if self.device.type != "cuda":
            return min(count, 16)
        free, _ = torch.cuda.mem_get_info(self.device)
        if self._guess(group) * count < 0.1 * free:
            return count
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        probe = group.places[:2]
        batch = self._batch(group, probe)
        batch.train_step(0)
        batch.validate()
        each = (torch.cuda.max_memory_allocated(self.device) - before) / len(probe)
        del batch
        torch.cuda.empty_cache()
        return max(1, min(count, int(0.7 * free / each)))

    def _fitting_the_cache(self) -> int:
        """How many replicas have their hidden units in a CPU's cache together; at least one."""
        return max(1, CACHE // (4 * HIDDEN * (self.data.num_nodes + 1)))

    def _guess(self, group: _Group) -> int:
        """Bytes that a replica takes, on the high side: its parameters with all that Adam and the best epoch add, and
        what the layers keep for every node and every edge."""
        parameters = sum(parameter.numel() for parameter in group.program.module.parameters())
        graph = self.data.graph
        return 4 * (8 * parameters + HIDDEN * (32 * graph.num_nodes + 12 * graph.num_edges))

    # --- one batch --------------------------------------------------------------------------------

    def _run(self, batch: Batch, places: list[int], until: int) -> None:
        """Trains a batch up to an epoch; who comes to an end leaves, and `places` with it."""
        if self.saves is not None and batch.epoch == 0:
            with self.lock:
                for place, run in self.saves.resume(batch, places).items():
                    self._finish(place, run)
        every, few = CHECK.get(self.device.type, 10), FEW_LEFT.get(self.device.type, 0.6)
        while places and batch.epoch < until and not self.stopped:
            start, epoch = time.perf_counter(), batch.epoch
            batch.run(min(every, until - batch.epoch))
            alive = batch.alive()
            self._count(places, batch.epoch - epoch, time.perf_counter() - start)
            if sum(alive) <= few * len(places) or batch.epoch >= until:
                self._leave(batch, places, [not lives for lives in alive])
            with self.lock:
                self._report(batch, places)
                if self.saves is not None:
                    self.saves.save(batch, places, self.runs)

    def _count(self, places: list[int], epochs: int, seconds: float) -> None:
        with self.lock:
            self.work += epochs * len(places)
        for place in places:
            self.spent[place] += seconds / len(places)

    def _leave(self, batch: Batch, places: list[int], leaving: Sequence[bool], dropped: bool = False) -> None:
        gone = [k for k, leaves in enumerate(leaving) if leaves]
        if not gone:
            return
        for k, run in zip(gone, self._results(batch.take(gone), [places[k] for k in gone], dropped), strict=True):
            self._finish(places[k], run)
        stay = [k for k, leaves in enumerate(leaving) if not leaves]
        batch.keep(stay)
        places[:] = [places[k] for k in stay]

    def _results(self, batch: Batch, places: list[int], dropped: bool) -> list[Run]:
        """The runs of a batch all of whose replicas have ended."""
        start, count = time.perf_counter(), len(places)
        tests = [math.nan] * count if dropped else batch.test_scores()
        gates = batch.gates() if self.options["gates"] and not dropped else [None] * count
        states = batch.states() if self.options["keep_state"] else [None] * count
        histories = batch.histories()
        scores, best = batch.scores(), batch.tensors["best_epoch"].tolist()
        share = (time.perf_counter() - start) / count
        runs = []
        for k, place in enumerate(places):
            epochs = min(batch.epoch, best[k] + self.config.patience + 1)
            kept = {name: values[:epochs] for name, values in histories[k].items()} if self.options["history"] else {}
            runs.append(
                Run(
                    replica=self.replicas[place],
                    model=self.name,
                    val=scores[k],
                    test=tests[k],
                    epoch=best[k],
                    epochs=epochs,
                    history=kept,
                    seconds=self.spent[place] + share,
                    num_parameters=batch.num_parameters,
                    state=states[k],
                    gates=gates[k],
                    dropped=dropped,
                )
            )
        return runs

    def _finish(self, place: int, run: Run) -> None:
        with self.lock:
            self.runs[place] = run
            self._tell(self.progress, run)

    def _prune(self, batches: list[tuple[Batch, list[int]]], epoch: int, prune: Prune) -> None:
        """Asks who goes on, over all batches at once."""
        asked = [(batch, places, k) for batch, places in batches for k in range(len(places))]
        if not asked:
            return
        scores = {id(batch): batch.scores() for batch, _ in batches}
        kept = prune(epoch, [self.replicas[p[k]] for _, p, k in asked], [scores[id(b)][k] for b, _, k in asked])
        if len(kept) != len(asked):
            raise ValueError(f"prune must answer for each of {len(asked)} replicas, got {len(kept)} answers")
        answer = {places[k]: bool(stays) for (_, places, k), stays in zip(asked, kept, strict=True)}
        for batch, places in batches:
            self._leave(batch, places, [not answer[place] for place in places], dropped=True)

    def _report(self, batch: Batch, places: list[int]) -> None:
        if self.status is None:
            return
        seconds = time.perf_counter() - self.start
        ended = [run.epochs for run in self.runs.values()]
        expected = sum(ended) / len(ended) if ended else self.config.max_epochs
        left = max(0.0, len(self.replicas) * max(expected, batch.epoch) - self.work)
        best = max([*(run.val for run in self.runs.values()), *(batch.scores() if places else [])])
        status = Status(
            replicas=len(self.replicas),
            finished=len(self.runs),
            alive=len(places),
            epoch=batch.epoch,
            best_val=best,
            seconds=seconds,
            seconds_left=left * seconds / self.work if self.work else None,
        )
        self._tell(self.status, status)


def _cut(places: list[int], size: int) -> list[list[int]]:
    return [places[first : first + size] for first in range(0, len(places), size)]


def _share(places: list[int], size: int, threads: int) -> list[list[int]]:
    """Batches of at most `size`, as many for every thread and as even as can be."""
    rounds = -(-len(places) // (size * threads))
    count = min(len(places), rounds * threads)
    ends = [len(places) * k // count for k in range(count + 1)]
    return [places[first:last] for first, last in itertools.pairwise(ends)]


def _check(
    data: Dataset,
    replicas: Sequence[Replica],
    config: TrainConfig,
    batch_size: int | None,
    rungs: Sequence[int],
    prune: Prune | None,
) -> None:
    for split in sorted({replica.split for replica in replicas}):
        _check_split(data, split)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be 1 or larger, got {batch_size}")
    if bool(rungs) != (prune is not None):
        raise ValueError(f"rungs and prune must be given together, got rungs={list(rungs)} and prune={prune}")
    if any(rung < 1 for rung in rungs):
        raise ValueError(f"rungs must be epochs from 1 on, got {list(rungs)}")
    if config.class_weights and data.multilabel:
        raise ValueError(f"class_weights must be False for data of many labels a node, such as {data.name!r}")
    if config.graphs_per_step is not None and not data.inductive:
        raise ValueError(
            f"graphs_per_step must be None for {data.name!r}, which is not made of graphs of one part each"
        )


def _check_split(data: Dataset, split: int) -> None:
    if split >= len(data.splits):
        raise ValueError(f"split must be below {len(data.splits)}, the number of splits of {data.name!r}, got {split}")
    for part, mask in data.splits[split]._asdict().items():
        if not mask.any():
            raise ValueError(f"split {split} of {data.name!r} must have {part} nodes, got an empty mask")
        if data.metric == "roc_auc" and part != "train" and data.y[mask].unique().numel() < 2:
            raise ValueError(f"split {split} of {data.name!r} must have {part} nodes of both classes for ROC AUC")
