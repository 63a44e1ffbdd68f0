"""`Minibatches`: how a method divides an epoch into steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from gfgn.data.dataset import NodeDataset
from gfgn.sampling.counter import key_of
from gfgn.sampling.subgraphs import check_positive


class Minibatches(ABC):
    """The steps of an epoch, and the loss of each; `train` is the mask of the training nodes, `[N]`."""

    options: ClassVar[tuple[str, ...]] = ()  # keyword arguments that the `options` of a `Replica` can set
    requires: ClassVar[tuple[str, ...]] = ()  # attributes of the model that the method uses

    def __init__(self, net: Any, data: NodeDataset, train: Tensor, seed: int) -> None:
        missing = [name for name in self.requires if not hasattr(net, name)]
        if missing:
            raise TypeError(
                f"net must have {', '.join(self.requires)} for {type(self).__name__}, got {type(net).__name__} without "
                f"{', '.join(missing)}"
            )
        if train.size(0) != data.num_nodes:
            raise ValueError(f"train must have {data.num_nodes} rows, one per node, got {train.size(0)}")
        if not bool(train.any()):
            raise ValueError("train must select at least one node, got an empty mask")
        self.net, self.x, self.y, self.train, self.seed = net, data.x, data.y, train, seed

    @abstractmethod
    def steps(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, a function of the seed and the epoch."""

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """The loss of a batch."""


class NodeBatches(Minibatches):
    """Training nodes in random batches of `batch_size`."""

    options: ClassVar[tuple[str, ...]] = ("batch_size",)
    keeps_state: ClassVar[bool] = False  # whether a batch depends on earlier ones, so that all are of one process

    def __init__(self, net: Any, data: NodeDataset, train: Tensor, batch_size: int, seed: int) -> None:
        super().__init__(net, data, train, seed)
        check_positive(batch_size=batch_size)
        self.nodes = torch.nonzero(train).view(-1)
        self.batch_size = batch_size

    def steps(self, epoch: int) -> Iterator[Any]:
        for step, nodes in enumerate(self.blocks(epoch)):
            yield self.batch(nodes, epoch, step)

    def blocks(self, epoch: int) -> tuple[Tensor, ...]:
        """The training nodes of every batch of an epoch, a function of the seed and the epoch."""
        generator = torch.Generator().manual_seed(key_of(self.seed, epoch) >> 1)
        order = torch.randperm(self.nodes.numel(), generator=generator).to(self.nodes.device)
        return tuple(self.nodes[order].split(self.batch_size))

    @abstractmethod
    def batch(self, nodes: Tensor, epoch: int, step: int) -> Any:
        """The batch of the given training nodes."""
