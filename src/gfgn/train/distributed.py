"""`train_distributed`: trains one run on samples of the graph in all processes that `torchrun` has started."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from gfgn.data.dataset import NodeDataset
from gfgn.data.files import atomic_write
from gfgn.data.messages import reason
from gfgn.nn.registry import find_model
from gfgn.ops.seeded import seeded_dropout
from gfgn.sampling.counter import key_of
from gfgn.train.batch import HISTORY
from gfgn.train.checkpoint import CheckpointError
from gfgn.train.code import code_version
from gfgn.train.config import TrainConfig, initial_best, update_best_
from gfgn.train.minibatch.batches import NodeBatches
from gfgn.train.minibatch.levels import LevelBatches
from gfgn.train.minibatch.loop import METHODS, check_sampled, evaluate, make_run, prepare, set_rate
from gfgn.train.replica import Replica, Run, Status
from gfgn.train.settings import choose_device
from gfgn.train.task import check_splits, make_task, with_features, with_sparse_features

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Processes:
    """The processes that train together.

    Attributes:
        rank, count: The number of this process, from 0 on, and of all.
        device: The device of this process.
    """

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    def from_first(self, value: Any) -> Any:
        """The value that the first process has."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device(self.device))
        return box[0]

    def add(self, value: float) -> float:
        """The sum of the values of all processes."""
        if self.count == 1:
            return value
        total = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.item()


@contextmanager
def processes(device: str = "auto") -> Iterator[Processes]:
    """The processes that `torchrun` has started, connected by NCCL on GPUs, one each, and by Gloo elsewhere.

    Without `torchrun` there is one process.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    device = choose_device(device)
    if count == 1:
        yield Processes(device=device)
        return
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # Restarted processes would find the addresses of those that have died, and wait for these.
        _logger.warning("processes may fail to restart: set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for torchrun")
    gpu = device.startswith("cuda")
    device = f"cuda:{os.environ['LOCAL_RANK']}" if gpu else device
    dist.init_process_group("nccl" if gpu else "gloo", device_id=torch.device(device) if gpu else None)
    try:
        yield Processes(dist.get_rank(), count, device)
    finally:
        dist.destroy_process_group()


def train_distributed(
    model: str,
    data: NodeDataset,
    replica: Replica,
    config: TrainConfig | None = None,
    group: Processes | None = None,
    *,
    blocks_per_step: int = 1,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    status: Callable[[Status], None] | None = None,
) -> Run:
    """Trains one run on samples of the graph with `DistributedDataParallel`; every process returns it.

    The training nodes of an epoch, in a random order that all processes share, are divided into blocks of the method's
    `batch_size`. A step takes `blocks_per_step` of them, which the processes divide among them. A block has its own
    seed of samples and dropout, so that one process and several, with the same `blocks_per_step`, compute the same
    losses up to rounding. Buffers that a block changes, such as the running mean of a graph gate, become their mean
    over the blocks of a step. Validation and test see the whole graph, in the first process. The data of a GFGN stay in
    main memory: a GPU holds the blocks of a step, and in validation one chunk of one layer.

    Args:
        model: A model that trains on samples of nodes: `"gfgn-graph"`, `"gfgn-neighbor"`, `"gfgn-pair"` or
            `"graphsage"`.
        data: The dataset.
        replica: The run to train.
        config: How to train, see `train_minibatch`.
        group: This process, from `processes`; by default it is alone.
        blocks_per_step: Blocks of a step, at least one per process.
        checkpoint: Folder for checkpoints, from which the same call resumes, also with another number of processes.
            The first process reads and writes it.
        checkpoint_every: Epochs between two checkpoints.
        status: Called in every process after every epoch.
    """
    group, config = group or Processes(), config or TrainConfig()
    method = METHODS.get(model)
    if method is None or not issubclass(method, NodeBatches) or method.keeps_state:
        raise ValueError(f"model must be one whose steps are independent samples of nodes, got {model!r}")
    check_sampled(model, config)
    check_splits(data, [replica.split])
    if blocks_per_step < group.count:
        raise ValueError(f"blocks_per_step must be at least {group.count}, one per process, got {blocks_per_step}")
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be 1 or larger, got {checkpoint_every}")
    start = time.perf_counter()
    identity = _identity(model, data, replica, config, blocks_per_step)
    stays = issubclass(method, LevelBatches) and data.graph.batch is None
    data = with_sparse_features(data.to("cpu" if stays else group.device))
    data = with_features(data, find_model(model).applied(replica.options)["features"])
    training = _Training(model, data, replica, config, group, blocks_per_step)
    path = None if checkpoint is None else Path(checkpoint) / f"run-{identity}.pt"
    training.restore(group.from_first(_read(path) if group.rank == 0 else None), path)
    while training.is_running():
        training.run_epoch()
        saved = training.epoch % checkpoint_every == 0 or not training.is_running()
        if path is not None and group.rank == 0 and saved:
            training.save(path)
        if status is not None:
            status(training.status(time.perf_counter() - start))
    return training.finish(time.perf_counter() - start)


class _Blocks(nn.Module):
    """A net whose forward pass is the loss of a block, as `DistributedDataParallel` needs it."""

    def __init__(self, net: nn.Module, batches: NodeBatches) -> None:
        super().__init__()
        self.net, self.batches = net, batches

    def forward(self, nodes: Tensor, epoch: int, block: int) -> Tensor:
        return self.batches.loss(self.batches.batch(nodes, epoch, block))


class _Buffers:
    """The buffers of a net in a step: every block starts with the same ones, and the next step with their mean."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.before = net, {name: value.clone() for name, value in net.named_buffers()}
        self.mean = {name: torch.zeros_like(value, dtype=torch.float64) for name, value in self.before.items()}

    def reset(self) -> None:
        """Before a block."""
        self._set(self.before)

    def add(self, weight: float) -> None:
        """After a block, whose weights sum to 1 in a step."""
        for name, value in self.net.named_buffers():
            self.mean[name] += weight * value.detach().double()

    def finish(self, group: Processes) -> None:
        """After the last block of this process."""
        for value in self.mean.values() if group.count > 1 else ():
            dist.all_reduce(value)
        self._set({name: _rounded(value, self.before[name].dtype) for name, value in self.mean.items()})

    @torch.no_grad()
    def _set(self, values: dict[str, Tensor]) -> None:
        for name, value in self.net.named_buffers():
            value.copy_(values[name])


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    return (value if dtype.is_floating_point else value.round()).to(dtype)


class _Training:
    """The state of a run."""

    def __init__(
        self,
        model: str,
        data: NodeDataset,
        replica: Replica,
        config: TrainConfig,
        group: Processes,
        blocks_per_step: int,
    ) -> None:
        self.model, self.data, self.replica, self.config, self.group = model, data, replica, config, group
        self.net, batches = prepare(model, data, replica)
        self.net.to(group.device)
        assert isinstance(batches, NodeBatches)
        self.batches, self.blocks_per_step = batches, blocks_per_step
        blocks = _Blocks(self.net, batches)
        self.shared = None if group.count == 1 else nn.parallel.DistributedDataParallel(blocks)
        self.loss: nn.Module = self.shared or blocks
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
        self.task = make_task(data, [replica.split])
        self.best, self.best_state = initial_best(1, torch.float64), _copy(self.net)
        self.history: dict[str, list[float]] = {name: [] for name in HISTORY}

    @property
    def epoch(self) -> int:
        """Number of epochs trained."""
        return len(self.history["val"])

    def is_running(self) -> bool:
        """Whether another epoch follows."""
        return self.epoch < self.config.max_epochs and bool(self.best["alive"])

    def run_epoch(self) -> None:
        """Trains and validates an epoch; the first process validates, so that all decide the same."""
        epoch, blocks = self.epoch, self.batches.blocks(self.epoch)
        set_rate(self.optimizer, self.replica.lr, self.config, epoch)
        self.net.train()
        total, steps = 0.0, range(0, len(blocks), self.blocks_per_step)
        for first in steps:
            total += self._step(epoch, first, blocks[first : first + self.blocks_per_step])
        train_loss = self.group.add(total) / len(steps)
        score, loss = self.group.from_first(self._evaluate(validation=True))
        for name, value in zip(HISTORY, (train_loss, loss.item(), score.item()), strict=True):
            self.history[name].append(value)
        if update_best_(self.best, torch.tensor([epoch]), score, loss, self.config):
            self.best_state = _copy(self.net)

    def _step(self, epoch: int, first: int, blocks: tuple[Tensor, ...]) -> float:
        """One step; returns this process's part of its loss. Gradients are exchanged with its last block."""
        rank, count, nodes = self.group.rank, self.group.count, sum(block.numel() for block in blocks)
        # A process without a block of a shorter last step takes part with weight 0.
        mine = list(range(rank, len(blocks), count)) or [0]
        self.optimizer.zero_grad()
        total, buffers = 0.0, _Buffers(self.net)
        for number in mine:
            weight = blocks[number].numel() / nodes if rank < len(blocks) else 0.0
            buffers.reset()
            seed = int(key_of(self.replica.seed, epoch, first + number)) >> 1
            with nullcontext() if self.shared is None or number == mine[-1] else self.shared.no_sync():
                with seeded_dropout(seed):
                    loss = self.loss(blocks[number], epoch, first + number) * weight
                (loss * count).backward()  # the mean over processes is the sum over blocks
            buffers.add(weight)
            total += loss.item()
        buffers.finish(self.group)
        self.optimizer.step()
        return total

    def _evaluate(self, validation: bool) -> tuple[Tensor, Tensor] | None:
        part = self.task.val if validation else self.task.test
        return evaluate(self.net, part, self.data.metric) if self.group.rank == 0 else None

    def status(self, seconds: float) -> Status:
        """The progress of the run."""
        left = seconds / self.epoch * (self.config.max_epochs - self.epoch)
        running = self.is_running()
        return Status(1, int(not running), int(running), self.epoch, self.best["best_score"].item(), seconds, left)

    def finish(self, seconds: float) -> Run:
        """The run, with the parameters of its best epoch."""
        self.net.load_state_dict(self.best_state)
        tested = self.group.from_first(self._evaluate(validation=False))
        return make_run(self.model, self.net, self.replica, self.best, self.history, tested, seconds)

    def save(self, path: Path) -> None:
        """Writes a checkpoint."""
        content = {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "best": self.best}
        content |= {"best_state": self.best_state, "history": self.history, "buffers": dict(self.net.named_buffers())}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as unfinished:
            torch.save(content, unfinished)

    def restore(self, data: bytes | None, path: Path | None) -> None:
        """Continues from the content of a checkpoint, if there is one."""
        if data is None:
            return
        try:
            content = torch.load(io.BytesIO(data), map_location=self.group.device, weights_only=True)
            self.net.load_state_dict(content["net"])
            for name, value in self.net.named_buffers():  # those that are no part of the state, too
                value.copy_(content["buffers"][name])
            self.optimizer.load_state_dict(content["optimizer"])
            self.best = {name: content["best"][name].cpu() for name in self.best}
            self.best_state = {name: content["best_state"][name] for name in self.best_state}
            self.history = {name: list(map(float, content["history"][name])) for name in HISTORY}
        except Exception as error:  # `torch.load` raises many kinds
            raise CheckpointError(
                f"the checkpoint {path} cannot be read ({reason(error)}); delete it to train from the start"
            ) from error


def _copy(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in net.state_dict().items()}


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None and path.is_file() else None


def _identity(model: str, data: NodeDataset, replica: Replica, config: TrainConfig, blocks_per_step: int) -> str:
    """Hash of all that determines the training, which the number of processes does not."""
    facts = [code_version(), model, data.fingerprint, data.split_fingerprint(replica.split), asdict(replica)]
    content = json.dumps([*facts, asdict(config), blocks_per_step])
    return hashlib.blake2b(content.encode(), digest_size=10).hexdigest()
