"""`Batch`: replicas that train together as one program.

The parameters of all replicas are stacked, the forward pass is `vmap`ped over the stack, and everything that differs
between replicas (split, learning rate, dropout rates, λ, best epoch) is a vector. An epoch does not synchronize with
the device, so that on CUDA it is captured once and replayed.

Replicas are independent: alone or among many, in any order and on any number of threads, a replica has the same
result, bit for bit. Its dropout is a hash of its seed, the step, the layer and the position; PyTorch's functions whose
last bits depend on the shape of a batch are replaced by those of `gfgn.ops`.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gfgn import metrics
from gfgn.data.dataset import NodeDataset
from gfgn.data.streams import Stream
from gfgn.graph import Graph
from gfgn.ops.adam import BETAS, adam_, copy_where_
from gfgn.ops.invariant import sum_rows_op
from gfgn.ops.keys import GOLDEN, mix, rate_dtype
from gfgn.train.config import TrainConfig, initial_best, update_best_
from gfgn.train.messages import log_once, shorten
from gfgn.train.program import Program, State
from gfgn.train.replica import Replica
from gfgn.train.task import Task

TRAINING = ("parameter ", "first moment ", "second moment ", "buffer ")  # tensors that no result is read from
HISTORY = ("train_loss", "val_loss", "val")
GATES = ("min", "mean", "max", "std", "below_055")
GATE_BYTES = 1 << 30  # memory that the gates of several replicas may take at a time


@dataclass(frozen=True)
class Layout:
    """How a parameter of all replicas, `[R, …]`, is stored: as a contiguous `[outer, R, inner]`."""

    shape: torch.Size  # of one replica's parameter
    by_feature: bool  # whether a matrix is transposed, see `Program.is_by_feature`
    outer: bool = True  # whether such a matrix has features as the outer dimension; else replicas come first

    def view(self, flat: Tensor) -> Tensor:
        """The stored parameter as `[R, …]`."""
        if not self.by_feature:
            return flat.view(flat.size(1), *self.shape)
        return flat.permute(1, 2, 0) if self.outer else flat.view(-1, *reversed(self.shape)).transpose(1, 2)

    def store(self, value: Tensor) -> Tensor:
        """`[R, …]` as it is stored; a copy only if the order of the dimensions differs."""
        if self.by_feature and self.outer:
            return value.permute(2, 0, 1).contiguous()
        return (value.transpose(1, 2) if self.by_feature else value).reshape(1, value.size(0), -1)


class Batch:
    """Replicas in training, from their first epoch to their last; `splits` has their indices in the task's masks."""

    def __init__(
        self,
        program: Program,
        task: Task,
        data: NodeDataset,
        replicas: Sequence[Replica],
        splits: Sequence[int],
        config: TrainConfig,
    ) -> None:
        self.program, self.task, self.replicas, self.config = program, task, list(replicas), config
        self.metric = data.metric
        self.device = device = task.val.y.device
        self.dtype = data.x.dtype
        self.num_steps = len(task.steps)
        self.epoch = 0

        seeds = sorted({replica.seed for replica in self.replicas})
        initial = [program.initial(seed) for seed in seeds]
        which = torch.tensor([seeds.index(replica.seed) for replica in self.replicas], device=device)
        self.layouts: dict[str, Layout] = {}
        self.tensors = self._vectors(splits)
        for name, value in initial[0].parameters.items():
            self.layouts[name] = layout = Layout(value.shape, program.is_by_feature(value.shape), device.type != "cpu")
            values = torch.stack([each.parameters[name].to(device) for each in initial]).index_select(0, which)
            self.tensors[f"parameter {name}"] = flat = layout.store(values)
            for kind in ("first moment", "second moment", "best"):
                self.tensors[f"{kind} {name}"] = torch.zeros_like(flat)
        self.buffers: dict[str, Layout] = {}
        for name, value in initial[0].buffers.items():
            self.buffers[name] = layout = Layout(value.shape, by_feature=False)
            values = torch.stack([each.buffers[name].to(device) for each in initial]).index_select(0, which)
            self.tensors[f"buffer {name}"] = flat = layout.store(values)
            self.tensors[f"best buffer {name}"] = flat.clone()
        self.tables = self._adam_tables()
        self._train_weights = [part.weights(config.class_weights) for part in task.steps]
        self._val_weights = task.val.weights()
        self._captured: list[Any] = []
        self._eager = False  # whether epochs cannot be captured
        self._decays_gates = any(replica.gate_decay is not None for replica in self.replicas)

    def _vectors(self, splits: Sequence[int]) -> dict[str, Tensor]:
        """Hyperparameters and training state, one value per replica."""
        dtype, device, count = self.dtype, self.device, len(self.replicas)

        def vector(name: str, dtype: torch.dtype = dtype) -> Tensor:
            return torch.tensor([getattr(replica, name) for replica in self.replicas], dtype=dtype, device=device)

        seeds = torch.tensor([replica.seed % 2**63 for replica in self.replicas], device=device)
        return initial_best(count, dtype, device) | {
            "lr": vector("lr"),
            "weight_decay": vector("weight_decay"),
            "gate_decay": torch.tensor(
                [replica.gate_decay or 0.0 for replica in self.replicas], dtype=dtype, device=device
            ),
            "gate_penalty": torch.tensor(  # L2, unless gates have a decay of their own
                [replica.weight_decay if replica.gate_decay is None else 0.0 for replica in self.replicas],
                dtype=dtype,
                device=device,
            ),
            "dropout": vector("dropout", rate_dtype(device)),
            "input_dropout": vector("input_rate", rate_dtype(device)),
            "lam": vector("lam"),
            "seed": mix(seeds ^ (seeds >> 32) ^ 0x5EED),
            "split": torch.tensor(splits, device=device),
            "train_loss": torch.zeros(count, dtype=dtype, device=device),
            "step": torch.zeros(1, dtype=torch.int64, device=device),
            "finished_epochs": torch.zeros(1, dtype=torch.int64, device=device),
            "history": torch.full((self.config.max_epochs, 3, count), torch.nan, dtype=dtype, device=device),
        }

    def _adam_tables(self) -> dict[str, Tensor]:
        """The schedule of the learning rate, Adam's factor of it, and its bias correction at each step."""
        steps = self.config.max_epochs * self.num_steps
        time = torch.arange(1, steps + 1, dtype=torch.float64)
        schedule = self.config.learning_rates(steps)
        rate = schedule / (1 - BETAS[0] ** time)
        correction = (1 - BETAS[1] ** time).sqrt()
        tables = {"schedule": schedule, "rate": rate, "correction": correction}
        return {name: table.to(self.device, self.dtype) for name, table in tables.items()}

    # --- one epoch --------------------------------------------------------------------------------

    def train_step(self, number: int) -> None:
        """One step of every replica on part `number` of the task."""
        tensors, part = self.tensors, self.task.steps[number]
        own = self._own() | {"key": mix(tensors["seed"] + mix(tensors["step"] + 1) * GOLDEN)}
        parameters, buffers = self._state("parameter")
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        weight = self._train_weights[number].index_select(0, tensors["split"])
        logits, after = self.program(State(leaves, buffers), own, part, training=True)
        loss = metrics.loss(logits, part.y, weight)
        grads = self.program.gradients(loss.sum(), leaves)
        self._update(dict(zip(leaves, grads, strict=True)))
        self._store_buffers(after)
        tensors["train_loss"].add_(loss.detach() / self.num_steps)
        tensors["step"].add_(1)

    def _store_buffers(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self.tensors[f"buffer {name}"].copy_(self.buffers[name].store(value.detach()))

    @torch.no_grad()
    def _update(self, grads: dict[str, Tensor | None]) -> None:
        tensors, tables = self.tensors, self.tables
        rate = tensors["lr"] * tables["rate"].index_select(0, tensors["step"])
        correction = tables["correction"].index_select(0, tensors["step"])
        scale = self._clipping(grads)
        for name, grad in grads.items():
            if grad is None:  # a parameter that the model did not use
                continue
            moments = (tensors[f"first moment {name}"], tensors[f"second moment {name}"])
            stored = self.layouts[name].store(grad)
            is_gate, value = self.program.is_gate(name), tensors[f"parameter {name}"]
            adam_(
                value, stored, *moments, scale, tensors["gate_penalty" if is_gate else "weight_decay"], rate, correction
            )
            if is_gate and self._decays_gates:
                step = tables["schedule"].index_select(0, tensors["step"])
                value.div_((1 + tensors["lr"] * step * tensors["gate_decay"]).view(-1, 1))

    def _clipping(self, grads: dict[str, Tensor | None]) -> Tensor:
        """`[R]`: the factor of each replica's gradient that keeps its norm within `config.clip`."""
        limit = self.config.clip
        if limit is None:
            return torch.ones_like(self.tensors["lr"])
        squares = [grad.flatten(1).square().t() for grad in grads.values() if grad is not None]
        total: Tensor = sum_rows_op(torch.cat(squares))
        return (limit / (total[0].sqrt() + 1e-6)).clamp(max=1)

    @torch.no_grad()
    def validate(self) -> None:
        """Evaluates every replica on its validation nodes: history, best epoch and its parameters, early stopping."""
        tensors, epoch = self.tensors, self.tensors["finished_epochs"]
        logits, after = self.program(self._state("parameter"), self._own(), self.task.val, training=False)
        if self.program.evaluation_changes:
            self._store_buffers(after)
        weight = self._val_weights.index_select(0, tensors["split"])
        mask = self.task.val.masks.index_select(0, tensors["split"])
        score, loss = metrics.evaluate(self.metric, logits, self.task.val.y, mask, weight)
        score = score.to(self.dtype)
        tensors["history"].index_copy_(0, epoch, torch.stack([tensors["train_loss"], loss, score]).unsqueeze(0))
        better = update_best_(tensors, epoch, score, loss, self.config)
        for name in self.layouts:
            copy_where_(tensors[f"parameter {name}"], tensors[f"best {name}"], better)
        for name in self.buffers:
            current, best = tensors[f"buffer {name}"], tensors[f"best buffer {name}"]
            best.copy_(torch.where(better.view(-1, 1), current, best))
        self.program.keep(better, logits, self.task)
        tensors["train_loss"].zero_()
        epoch.add_(1)

    def _own(self) -> dict[str, Tensor]:
        return {"key": self.tensors["seed"]} | {
            name: self.tensors[name] for name in ("dropout", "input_dropout", "lam")
        }

    def _state(self, kind: str) -> State:
        buffer = "buffer" if kind == "parameter" else "best buffer"
        return State(
            {name: layout.view(self.tensors[f"{kind} {name}"]) for name, layout in self.layouts.items()},
            {name: layout.view(self.tensors[f"{buffer} {name}"]) for name, layout in self.buffers.items()},
        )

    # --- many epochs ------------------------------------------------------------------------------

    def run(self, epochs: int) -> None:
        """Trains `epochs` more epochs, at most up to `max_epochs`."""
        with _on_side_stream(self.device):
            for _ in range(min(epochs, self.config.max_epochs - self.epoch)):
                self._run_epoch()
                self.epoch += 1

    def _run_epoch(self) -> None:
        order = range(self.num_steps)
        if self.num_steps > 1:  # a new order every epoch, the same for every replica
            order = Stream(self.epoch).permutation(self.num_steps).tolist()
        if self._captured:
            for number in order:
                self._captured[number].replay()
            self._captured[-1].replay()
            return
        for number in order:
            self.train_step(number)
        self.validate()
        if self.device.type == "cuda" and not self._eager:  # after an eager epoch, which has compiled all kernels
            self._capture_if_possible()

    def _capture_if_possible(self) -> None:
        """Captures an epoch, unless a custom module does what cannot be captured: it then trains eagerly.

        Nothing runs during a capture, so that a failed one leaves the training as it was.
        """
        reason = self.program.why_not_captured(self._state("parameter"), self._own(), (*self.task.steps, self.task.val))
        try:
            if not reason:
                self._capture()
        except RuntimeError as error:
            if not self.program.model.custom:
                raise
            reason, self._captured = str(error), []
        self._eager = bool(reason)
        if reason:
            log_once(f"{type(self.program.module).__name__} trains without a CUDA graph: {shorten(reason)}")

    def _capture(self) -> None:
        """Captures the training steps and the validation as CUDA graphs."""
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # frees the eager epoch's memory for the pool of the graphs
        pool = torch.cuda.graph_pool_handle()
        steps: list[Callable[[], None]] = [partial(self.train_step, number) for number in range(self.num_steps)]
        for function in [*steps, self.validate]:
            graph = torch.cuda.CUDAGraph()
            # By default, a capture and other threads of the program that use the GPU make each other fail.
            with torch.cuda.graph(graph, pool, _side_stream(self.device), capture_error_mode="thread_local"):
                function()
            self._captured.append(graph)

    # --- results ----------------------------------------------------------------------------------

    def alive(self) -> list[bool]:
        """Which replicas train on."""
        if self.epoch >= self.config.max_epochs:
            return [False] * len(self.replicas)
        alive: list[bool] = self.tensors["alive"].tolist()
        return alive

    def scores(self) -> list[float]:
        """The best validation score of every replica so far; NaN for one without a finite epoch."""
        scores: list[float] = torch.where(
            self.tensors["best_epoch"] < 0, torch.nan, self.tensors["best_score"]
        ).tolist()
        return scores

    def release(self) -> None:
        """Frees the memory of captured epochs; the next one is captured again."""
        self._captured = []
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def keep(self, indices: Sequence[int]) -> None:
        """Removes all replicas but those at the given indices, whose order is the new one."""
        self._captured = []
        self.replicas = [self.replicas[k] for k in indices]
        index = torch.tensor(list(indices), dtype=torch.int64, device=self.device)
        select = _move_to_front if self.device.type == "cpu" and _only_fills(indices) else _select
        self.tensors = {name: select(name, value, index) for name, value in self.tensors.items()}

    def take(self, indices: Sequence[int]) -> Batch:
        """A batch of a subset of the replicas, for reading their results; this batch is not changed."""
        subset = copy.copy(self)
        subset._captured, subset.replicas = [], [self.replicas[k] for k in indices]
        index = torch.tensor(list(indices), dtype=torch.int64, device=self.device)
        results = {name: value for name, value in self.tensors.items() if not name.startswith(TRAINING)}
        subset.tensors = {name: _select(name, value, index) for name, value in results.items()}
        return subset

    @torch.no_grad()
    def test_scores(self) -> list[float]:
        """The test score of every replica at its best epoch, to be evaluated once, at the end; NaN if not finite."""
        logits = self.program.test(self._state("best"), self._own(), self.task)
        mask = self.task.test.masks.index_select(0, self.tensors["split"])
        finite = (logits.isfinite().all(-1) | ~mask).all(1) & (self.tensors["best_epoch"] >= 0)
        scores = metrics.METRICS[self.metric].score(logits, self.task.test.y, mask)
        kept: list[float] = torch.where(finite, scores, torch.nan).tolist()
        return kept

    def histories(self) -> list[dict[str, list[float]]]:
        """`"train_loss"`, `"val_loss"` and `"val"` of every replica, one entry per epoch."""
        values = self.tensors["history"][: self.epoch].permute(2, 1, 0).tolist()
        return [dict(zip(HISTORY, rows, strict=True)) for rows in values]

    def states(self) -> list[dict[str, Tensor]]:
        """The parameters and buffers of every replica at its best epoch, on the CPU."""
        state = self._state("best")
        best = {name: value.cpu() for name, value in (state.parameters | state.buffers).items()}
        return [{name: value[k].clone() for name, value in best.items()} for k in range(len(self.replicas))]

    @torch.no_grad()
    def gates(self) -> list[dict[str, float] | None]:
        """The distribution of the first layer's gates at the best epoch, for models that have gates."""
        count, graph = len(self.replicas), self.task.val.graph
        if not self.program.model.gated:
            return [None] * count
        width = next(iter(self.layouts.values())).shape[0]
        size = max(1, GATE_BYTES // max(1, 4 * max(graph.num_edges, graph.num_nodes) * width))
        summaries: list[dict[str, float] | None] = []
        for first in range(0, count, size):
            some = self.take(range(first, min(first + size, count)))
            (_, scores), _ = self.program(some._state("best"), some._own(), self.task.val, training=False, scores=True)
            summaries += _summaries(_without_self_loops(scores, graph).flatten(1))
        return summaries

    @property
    def num_parameters(self) -> int:
        """Number of learned values of one replica."""
        return sum(layout.shape.numel() for layout in self.layouts.values())


def _without_self_loops(scores: Tensor, graph: Graph) -> Tensor:
    """Gates without the zeros of given self-loops, which are no edges; `scores` with one row per node are returned."""
    kept = graph.edge_position >= 0
    if scores.size(1) != kept.numel() or bool(kept.all()):
        return scores
    return scores[:, kept]


def _summaries(scores: Tensor) -> list[dict[str, float] | None]:
    if scores.size(1) == 0:  # a graph without edges has no gates of pairs
        return [None] * scores.size(0)
    rows = []
    for each in scores:  # one by one: PyTorch's sums depend on how many there are
        std, mean = torch.std_mean(each, correction=0)
        low, high = each.aminmax()
        rows.append(torch.stack([low, mean, high, std, (each < 0.55).sum() / each.numel()]))
    return [dict(zip(GATES, row, strict=True)) for row in torch.stack(rows).tolist()]


def _select(name: str, value: Tensor, index: Tensor) -> Tensor:
    """A subset of the replicas of one of a batch's tensors."""
    if name in ("step", "finished_epochs"):
        return value.clone()
    if name == "history":
        return value.index_select(2, index)
    return value.index_select(1 if value.dim() == 3 else 0, index)


def _only_fills(indices: Sequence[int]) -> bool:
    """Whether replicas stay where they are or come from behind all that are kept."""
    return all(source == k or source >= len(indices) for k, source in enumerate(indices))


def _move_to_front(name: str, value: Tensor, index: Tensor) -> Tensor:
    """`_select` for `_only_fills`: stacked parameters stay in their memory, where few replicas move."""
    if value.dim() != 3 or value.size(0) != 1 or name == "history":
        return _select(name, value, index)
    moved = (index >= index.numel()).nonzero().view(-1)
    value.index_copy_(1, moved, value.index_select(1, index[moved]))
    return value[:, : index.numel()]


_streams: dict[torch.device, Any] = {}


def _side_stream(device: torch.device) -> Any:
    """The stream of all training on a device: the default stream cannot be captured."""
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)
    return _streams[device]


@contextlib.contextmanager
def _on_side_stream(device: torch.device) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    side, current = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)
