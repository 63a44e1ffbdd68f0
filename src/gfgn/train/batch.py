"""`Batch`: replicas that train together as one program.

The parameters of all replicas are stacked, the forward pass is `vmap`ped over the stack, and everything that differs
between replicas (split, learning rate, dropout, λ, best epoch) is a vector. An epoch needs no answer from the device,
so that on CUDA it is captured once and replayed.

A replica does not know its neighbours: it starts from a generator of its own, its dropout is a hash of its seed, the
step, the layer and the place, and all else is arithmetic on its own numbers. Alone or among many, in any order, it gets
the same result up to rounding.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gfgn.data.dataset import Dataset
from gfgn.data.streams import Stream
from gfgn.graph import Graph
from gfgn.nn.registry import Model
from gfgn.ops.adam import BETAS, adam_, copy_where_
from gfgn.ops.random import GOLDEN, keyed, mix, rate_dtype
from gfgn.train import metrics
from gfgn.train.config import BEST, TrainConfig
from gfgn.train.replica import Replica
from gfgn.train.task import Part, Task

GATES = ("min", "mean", "max", "std", "below_055")
SCORE_BYTES = 1 << 30
"""How much memory the gates of several replicas may take at a time."""


class Program:
    """The model as a function of the parameters and of what differs between replicas.

    Args:
        model: Entry of the registry.
        settings: The model's own parameters.
        data: The dataset, for its sizes.
        device: Where to train.
    """

    def __init__(self, model: Model, settings: dict[str, Any], data: Dataset, device: torch.device) -> None:
        self.model = model
        self._sizes = (data.num_features, data.num_classes)
        self._settings = settings
        self._dtype = data.x.dtype
        # Wherever a module of the model keeps one of these two as an attribute, a replica's own value goes.
        dropout, lam = torch.zeros(()), torch.ones(())
        with torch.random.fork_rng(devices=[]):
            self.module = model.build(*self._sizes, dropout, lam, settings).to(device, self._dtype)
        self._dropouts = list(_attributes(self.module, dropout))
        self._lams = list(_attributes(self.module, lam))
        self.sparse = data.x.layout == torch.sparse_csr

    def initial(self, seed: int) -> dict[str, Tensor]:
        """The parameters a replica starts from, on the CPU."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.model.build(*self._sizes, 0.0, 1.0, self._settings)
        return {name: value.detach().to(self._dtype) for name, value in module.named_parameters()}

    def is_by_feature(self, shape: Sequence[int]) -> bool:
        """Whether a weight meets the sparse features, whose product wants it by feature."""
        return self.sparse and len(shape) == 2 and shape[1] == self._sizes[0]

    def __call__(
        self, parameters: dict[str, Tensor], own: dict[str, Tensor], part: Part, training: bool, scores: bool = False
    ) -> Any:
        """`[R, N, C]` logits, and with `scores` the gates of the first layer.

        Args:
            parameters: By name, `[R, …]`.
            own: `"key"`, `"dropout"` and `"lam"`, `[R]`.
            part: What to look at.
            training: Whether dropout is on.
            scores: Whether to return gates.
        """
        self.module.train(training)
        more = {"return_scores": True} if scores else {}

        def one(parameters: dict[str, Tensor], own: dict[str, Tensor]) -> Any:
            with self._set(own), keyed(own["key"]):
                out = functional_call(self.module, parameters, (part.x, part.graph), more)
            return (out[0], out[1][0]) if scores else out

        return torch.vmap(one)(parameters, own)

    @contextlib.contextmanager
    def _set(self, own: dict[str, Tensor]) -> Iterator[None]:
        before = [(module, name, getattr(module, name)) for module, name in (*self._dropouts, *self._lams)]
        for places, value in ((self._dropouts, own["dropout"]), (self._lams, own["lam"])):
            for module, name in places:
                setattr(module, name, value)
        try:
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


def _attributes(module: nn.Module, value: Tensor) -> Iterator[tuple[nn.Module, str]]:
    for child in module.modules():
        for name, held in vars(child).items():
            if held is value:
                yield child, name


@dataclass(frozen=True)
class Layout:
    """How one parameter of all replicas, `[R, …]`, lies in memory: `[outer, R, inner]`.

    Attributes:
        shape: Of one replica's parameter.
        by_feature: Whether the replicas lie inside of the features, see `Program.is_by_feature`.
    """

    shape: torch.Size
    by_feature: bool

    def view(self, flat: Tensor) -> Tensor:
        """`[R, …]` of what lies so."""
        return flat.permute(1, 2, 0) if self.by_feature else flat.view(flat.size(1), *self.shape)

    def lay(self, value: Tensor) -> Tensor:
        """`[R, …]` as it lies; without a copy where it lies so already."""
        if self.by_feature:
            return value.permute(2, 0, 1).contiguous()
        return value.reshape(1, value.size(0), -1)


class Batch:
    """Replicas in training, from their first epoch to their last.

    Args:
        program: The model.
        task: What to train, validate and test on.
        data: The dataset, for its metric.
        replicas: The replicas.
        splits: The place in the task's masks of every replica's split.
        config: How to train.
    """

    def __init__(
        self,
        program: Program,
        task: Task,
        data: Dataset,
        replicas: Sequence[Replica],
        splits: Sequence[int],
        config: TrainConfig,
    ) -> None:
        self.program, self.task, self.replicas, self.config = program, task, list(replicas), config
        self.score = metrics.SCORES[data.metric]
        self.device = device = task.val.y.device
        self.dtype = dtype = data.x.dtype
        self.num_steps = len(task.steps)
        self.epoch = 0
        count = len(self.replicas)

        seeds = sorted({replica.seed for replica in self.replicas})
        initial = [program.initial(seed) for seed in seeds]
        which = torch.tensor([seeds.index(replica.seed) for replica in self.replicas], device=device)
        self.layouts: dict[str, Layout] = {}
        self.tensors = self._start(replicas, splits, count, dtype, device)
        for name, value in initial[0].items():
            self.layouts[name] = layout = Layout(value.shape, program.is_by_feature(value.shape))
            values = torch.stack([each[name].to(device) for each in initial]).index_select(0, which)
            self.tensors[f"parameter {name}"] = flat = layout.lay(values)
            for kind in ("first moment", "second moment", "best"):
                self.tensors[f"{kind} {name}"] = torch.zeros_like(flat)
        self.tables = self._tables(config, dtype, device)
        self._train_weights = [part.weights(config.class_weights) for part in task.steps]
        self._val_weights = task.val.weights()
        self._captured: list[Any] = []

    def _start(
        self, replicas: Sequence[Replica], splits: Sequence[int], count: int, dtype: torch.dtype, device: torch.device
    ) -> dict[str, Tensor]:
        def vector(name: str, dtype: torch.dtype = dtype) -> Tensor:
            return torch.tensor([getattr(replica, name) for replica in replicas], dtype=dtype, device=device)

        worst = torch.full((count,), torch.inf, dtype=dtype, device=device)
        seeds = torch.tensor([replica.seed % 2**63 for replica in replicas], device=device)
        return {
            "lr": vector("lr"),
            "weight_decay": vector("weight_decay"),
            "dropout": vector("dropout", rate_dtype(device)),
            "lam": vector("lam"),
            "seed": mix(seeds ^ (seeds >> 32) ^ 0x5EED),
            "split": torch.tensor(splits, device=device),
            "best_score": -worst,
            "best_loss": worst,
            "best_epoch": torch.full((count,), -1, device=device),
            "alive": torch.ones(count, dtype=torch.bool, device=device),
            "train_loss": torch.zeros(count, dtype=dtype, device=device),
            "step": torch.zeros(1, dtype=torch.int64, device=device),
            "finished_epochs": torch.zeros(1, dtype=torch.int64, device=device),
            "history": torch.full((self.config.max_epochs, 3, count), torch.nan, dtype=dtype, device=device),
        }

    def _tables(self, config: TrainConfig, dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
        """What Adam needs to know of each step."""
        steps = config.max_epochs * self.num_steps
        time = torch.arange(1, steps + 1, dtype=torch.float64)
        rate = config.learning_rates(steps) / (1 - BETAS[0] ** time)
        return {"rate": rate.to(device, dtype), "correction": (1 - BETAS[1] ** time).sqrt().to(device, dtype)}

    # --- an epoch ---------------------------------------------------------------------------------

    def train_step(self, number: int) -> None:
        """One step of every replica on the `number`-th part."""
        tensors, part = self.tensors, self.task.steps[number]
        key = mix(tensors["seed"] + mix(tensors["step"] + 1) * GOLDEN)
        own = {"key": key, "dropout": tensors["dropout"], "lam": tensors["lam"]}
        leaves = {name: value.detach().requires_grad_() for name, value in self._parameters("parameter").items()}
        weight = self._train_weights[number].index_select(0, tensors["split"])
        loss = metrics.loss(self.program(leaves, own, part, training=True), part.y, weight)
        grads = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        self._update(dict(zip(leaves, grads, strict=True)))
        tensors["train_loss"].add_(loss.detach() / self.num_steps)
        tensors["step"].add_(1)

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
            laid = self.layouts[name].lay(grad)
            adam_(tensors[f"parameter {name}"], laid, *moments, scale, tensors["weight_decay"], rate, correction)

    def _clipping(self, grads: dict[str, Tensor | None]) -> Tensor:
        """What each replica's gradient is multiplied by so that its norm is no larger than allowed."""
        limit = self.config.clip
        if limit is None:
            return torch.ones_like(self.tensors["lr"])
        squares = [grad.flatten(1).square().sum(1) for grad in grads.values() if grad is not None]
        return (limit / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1)

    @torch.no_grad()
    def validate(self) -> None:
        """Validation of every replica: history, best epoch and its parameters, and who has come to an end."""
        tensors, epoch = self.tensors, self.tensors["finished_epochs"]
        logits = self._evaluate(self._parameters("parameter"), self.task.val)
        weight = self._val_weights.index_select(0, tensors["split"])
        mask = self.task.val.masks.index_select(0, tensors["split"])
        loss = metrics.loss(logits, self.task.val.y, weight)
        score = self.score(logits, self.task.val.y, mask).to(self.dtype)
        tensors["history"].index_copy_(0, epoch, torch.stack([tensors["train_loss"], loss, score]).unsqueeze(0))
        better = BEST[self.config.best](score, loss, tensors["best_score"], tensors["best_loss"])
        better = tensors["alive"] & (better | (epoch == 0))
        for name, value in (("best_score", score), ("best_loss", loss), ("best_epoch", epoch.expand_as(better))):
            tensors[name].copy_(torch.where(better, value, tensors[name]))
        for name in self.layouts:
            copy_where_(tensors[f"parameter {name}"], tensors[f"best {name}"], better)
        tensors["alive"].logical_and_(epoch - tensors["best_epoch"] < self.config.patience)
        tensors["train_loss"].zero_()
        epoch.add_(1)

    def _evaluate(self, parameters: dict[str, Tensor], part: Part, scores: bool = False) -> Any:
        own = {"key": self.tensors["seed"], "dropout": self.tensors["dropout"], "lam": self.tensors["lam"]}
        return self.program(parameters, own, part, training=False, scores=scores)

    def _parameters(self, kind: str) -> dict[str, Tensor]:
        return {name: layout.view(self.tensors[f"{kind} {name}"]) for name, layout in self.layouts.items()}

    # --- many epochs ------------------------------------------------------------------------------

    def run(self, epochs: int) -> None:
        """Trains so many epochs more, or as many as there are left."""
        with _on_side_stream(self.device):
            for _ in range(min(epochs, self.config.max_epochs - self.epoch)):
                self._run_epoch()
                self.epoch += 1

    def _run_epoch(self) -> None:
        order = range(self.num_steps)
        if self.num_steps > 1:  # another order every epoch, the same for every replica
            order = Stream(self.epoch).permutation(self.num_steps).tolist()
        if self._captured:
            for number in order:
                self._captured[number].replay()
            self._captured[-1].replay()
            return
        for number in order:
            self.train_step(number)
        self.validate()
        if self.device.type == "cuda":  # that epoch ran as it is written, which has compiled all kernels
            self._capture()

    def _capture(self) -> None:
        torch.cuda.synchronize(self.device)
        torch.cuda.empty_cache()  # what the epoch before left is wanted by the graphs' own pool
        pool = torch.cuda.graph_pool_handle()
        work: list[Callable[[], None]] = [
            *(lambda number=number: self.train_step(number) for number in range(self.num_steps)),
            self.validate,
        ]
        for function in work:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=_side_stream(self.device)):
                function()
            self._captured.append(graph)

    # --- who leaves, and with what ----------------------------------------------------------------

    def alive(self) -> list[bool]:
        """Which replicas have epochs left."""
        if self.epoch >= self.config.max_epochs:
            return [False] * len(self.replicas)
        alive: list[bool] = self.tensors["alive"].tolist()
        return alive

    def scores(self) -> list[float]:
        """The best validation score of every replica so far."""
        found: list[float] = self.tensors["best_score"].tolist()
        return found

    def keep(self, places: Sequence[int]) -> None:
        """Goes on with the replicas in these places alone."""
        self._captured = []
        self.replicas = [self.replicas[place] for place in places]
        index = torch.tensor(list(places), dtype=torch.int64, device=self.device)
        self.tensors = {name: _select(name, value, index) for name, value in self.tensors.items()}

    def take(self, places: Sequence[int]) -> Batch:
        """A batch of some of the replicas, for reading their results; this one keeps them too."""
        part = copy.copy(self)
        part.keep(places)
        return part

    @torch.no_grad()
    def test_scores(self) -> list[float]:
        """The test score of every replica at its best epoch: to be read once, at the end."""
        logits = self._evaluate(self._parameters("best"), self.task.test)
        mask = self.task.test.masks.index_select(0, self.tensors["split"])
        found: list[float] = self.score(logits, self.task.test.y, mask).tolist()
        return found

    def histories(self) -> list[dict[str, list[float]]]:
        """`"train_loss"`, `"val_loss"` and `"val"` of every replica, an entry an epoch."""
        values = self.tensors["history"][: self.epoch].permute(2, 1, 0).tolist()
        names = ("train_loss", "val_loss", "val")
        return [dict(zip(names, rows, strict=True)) for rows in values]

    def states(self) -> list[dict[str, Tensor]]:
        """The parameters of every replica at its best epoch, on the CPU."""
        best = {name: value.cpu() for name, value in self._parameters("best").items()}
        return [{name: value[k].clone() for name, value in best.items()} for k in range(len(self.replicas))]

    @torch.no_grad()
    def gates(self) -> list[dict[str, float] | None]:
        """How the gates of the first layer are distributed at the best epoch, for models that have gates."""
        if not self.program.model.gated:
            return [None] * len(self.replicas)
        rows = max(self.task.val.graph.num_edges, self.task.val.graph.num_nodes)
        width = next(iter(self.layouts.values())).shape[0]
        size = max(1, SCORE_BYTES // max(1, 4 * rows * width))
        found: list[dict[str, float] | None] = []
        for first in range(0, len(self.replicas), size):
            some = self.take(range(first, min(first + size, len(self.replicas))))
            _, scores = some._evaluate(some._parameters("best"), self.task.val, scores=True)
            found += _summaries(_of_edges(scores, self.task.val.graph).flatten(1))
        return found

    @property
    def num_parameters(self) -> int:
        """Learned values of one replica."""
        return sum(layout.shape.numel() for layout in self.layouts.values())


def _of_edges(scores: Tensor, graph: Graph) -> Tensor:
    """Without the zeros in the places of given self-loops, which are no edges, where there is a score an edge."""
    kept = graph.edge_position >= 0
    if scores.size(1) != kept.numel() or bool(kept.all()):
        return scores
    return scores[:, kept]


def _summaries(scores: Tensor) -> list[dict[str, float] | None]:
    low, high = scores.aminmax(dim=1)
    std, mean = torch.std_mean(scores, dim=1, correction=0)
    below = (scores < 0.55).to(scores.dtype).mean(1)
    rows = torch.stack([low, mean, high, std, below], 1).tolist()
    return [dict(zip(GATES, row, strict=True)) for row in rows]


def _select(name: str, value: Tensor, index: Tensor) -> Tensor:
    """Some of the replicas of a tensor of a batch."""
    if name in ("step", "finished_epochs"):
        return value.clone()
    if name == "history":
        return value.index_select(2, index)
    return value.index_select(1 if value.dim() == 3 else 0, index)


_streams: dict[torch.device, Any] = {}


def _side_stream(device: torch.device) -> Any:
    """The stream of all training on a device: what is captured must not be on the default one."""
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
