"""`Program`: a model as a function of the stacked parameters and hyperparameters of many replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gfgn.data.dataset import NodeDataset
from gfgn.nn.registry import Model
from gfgn.ops.random import keyed
from gfgn.ops.seeded import seeded
from gfgn.train.task import Part, Task


def seeded_module(
    model: Model,
    data: NodeDataset,
    settings: Mapping[str, Any],
    seed: int,
    dropout: float = 0.0,
    lam: float = 1.0,
    input_dropout: float | None = None,
) -> nn.Module:
    """The model with the initial parameters of a seed; PyTorch's global generator is neither read nor changed."""
    with seeded(seed):
        return model.build(data.num_features, data.num_classes, dropout, lam, settings, input_dropout)


class State(NamedTuple):
    """Values of a replica by name, or of many replicas, stacked: those that are learned, and buffers."""

    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]


def is_running(name: str) -> bool:
    """Whether a buffer is a statistic that training updates, such as the mean of a batch norm."""
    return name.rpartition(".")[2].startswith("running_")


class Program:
    """A model with its own parameters `settings`, vectorized over replicas; `data` has its sizes.

    Attributes:
        resumable: Whether parameters and buffers are all that a checkpoint must hold.
        evaluation_changes: Whether buffers may change in evaluation, too.
    """

    resumable = True
    evaluation_changes = False

    def __init__(self, model: Model, settings: dict[str, Any], data: NodeDataset, device: torch.device) -> None:
        self.model = model
        self._settings, self._data = settings, data
        # Wherever a submodule keeps one of these as an attribute, each replica's own value is set instead.
        own = {"dropout": torch.zeros(()), "input_dropout": torch.zeros(()), "lam": torch.ones(())}
        with seeded(0):
            module = model.build(data.num_features, data.num_classes, settings=settings, **own)
        self.module = module.to(device, data.x.dtype).eval()  # the first step so calls `train` for all submodules
        self._own_places = [
            (vars(child), name, key)
            for key, placeholder in own.items()
            for child in self.module.modules()
            for name, value in vars(child).items()
            if value is placeholder
        ]
        # Where a module keeps each value, as `functional_call` would set it: at every call, that takes longer.
        names = {id(value): name for name, value in _named_values(self.module)}
        self._state_places = [
            (values, name, names[id(value)])
            for child in self.module.modules()
            for values in (child._parameters, child._buffers)
            for name, value in values.items()
            if value is not None
        ]

    def initial(self, seed: int) -> State:
        """The initial values of a replica, on the CPU."""
        module = seeded_module(self.model, self._data, self._settings, seed).to(self._data.x.dtype)
        return State(
            {name: value.detach() for name, value in module.named_parameters()},
            {name: value for name, value in module.named_buffers() if is_running(name)},
        )

    def is_by_feature(self, shape: Sequence[int]) -> bool:
        """Whether a weight multiplies sparse features: that product reads it feature by feature."""
        sparse = self._data.x.layout == torch.sparse_csr
        return sparse and len(shape) == 2 and shape[1] == self._data.num_features

    def is_gate(self, name: str) -> bool:
        """Whether a parameter belongs to the gates of a gated model: its name starts with `gate` there."""
        return self.model.gated and name.rpartition(".")[2].startswith("gate")

    def __call__(
        self, state: State, own: dict[str, Tensor], part: Part, training: bool, scores: bool = False
    ) -> tuple[Any, dict[str, Tensor]]:
        """`[R, N, C]` logits, with `scores` also the gates of the first layer, and the buffers afterwards.

        Values of `state` are `[R, …]`; `own` has each replica's `"key"` of random numbers, `"dropout"`,
        `"input_dropout"` and `"lam"`.
        """
        if self.module.training != training:
            self.module.train(training)
        options = {"return_scores": True} if scores else {}

        buffers = {name: value.clone() for name, value in state.buffers.items()}  # training changes them in place

        def one(values: dict[str, Tensor], own: dict[str, Tensor]) -> Any:
            with _set(self._state_places, values), _set(self._own_places, own), keyed(own["key"]):
                out = self.module(part.x, part.graph, **options)
            return (out[0], out[1][0]) if scores else out

        return torch.vmap(one)(state.parameters | buffers, own), buffers

    def gradients(self, loss: Tensor, leaves: dict[str, Tensor]) -> list[Tensor | None]:
        """The gradient of the parameters that the last call in training got, `None` for those it has not used."""
        return list(torch.autograd.grad(loss, list(leaves.values()), allow_unused=True))

    def keep(self, better: Tensor, logits: Tensor, task: Task) -> None:
        """Called after each validation, with which replicas have their best epoch now."""

    def test(self, state: State, own: dict[str, Tensor], task: Task) -> Tensor:
        """The logits of the test nodes at the best epoch, whose values `state` has."""
        logits: Tensor = self(state, own, task.test, training=False)[0]
        return logits

    def why_not_captured(self, state: State, own: dict[str, Tensor], parts: Sequence[Part]) -> str:
        """Why steps on these parts cannot be captured as CUDA graphs; empty if they can."""
        return ""


@contextmanager
def _set(places: Sequence[tuple[dict[str, Any], str, str]], values: dict[str, Tensor]) -> Iterator[None]:
    """Sets `owner[name]` to the value of `key`, if there is one, for every `(owner, name, key)`."""
    places = [place for place in places if place[2] in values]
    before = [owner[name] for owner, name, _ in places]
    for owner, name, key in places:
        owner[name] = values[key]
    try:
        yield
    finally:
        for (owner, name, _), value in zip(places, before, strict=True):
            owner[name] = value


def _named_values(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
