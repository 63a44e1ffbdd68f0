"""Custom models as programs: `CustomProgram` is a batch of runs, `PlainLoop` a single one; see `gfgn.train.trial`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gfgn.data.dataset import NodeDataset
from gfgn.nn.custom import forward_arguments
from gfgn.nn.entry import Model
from gfgn.ops.features import is_smaller_sparse
from gfgn.ops.random import NoRandomFunctions, computed, keyed, keyed_functions
from gfgn.ops.surroundings import Streams, unchanged_settings
from gfgn.ops.torch_internals import backward
from gfgn.train.constants import Constants
from gfgn.train.given import Given
from gfgn.train.program import Program, State, seeded_module
from gfgn.train.task import Part, Task


@dataclass(frozen=True)
class TrainingMode:
    """How the runs of a custom model train.

    Attributes:
        batched: Whether together, or one at a time in a plain loop.
        draws: Whether the model draws from `random` or `numpy.random`.
        resumable: Whether parameters and buffers are all that a run has from one step to the next.
    """

    batched: bool
    draws: bool = False
    resumable: bool = True


class CustomProgram(Program):
    """Runs of a custom model in a batch, each called with the random numbers of its key; see `Program`.

    A batch has a program of its own, with a module whose values are exchanged for those of the runs.
    """

    def __init__(
        self,
        model: Model,
        settings: Mapping[str, Any],
        data: NodeDataset,
        device: torch.device,
        rates: Mapping[str, float],
        given: Given,
        mode: TrainingMode,
    ) -> None:
        self.model, self.given, self.resumable = model, given, mode.resumable
        self._settings, self._data, self._device = dict(settings), data, device
        self._rates = dict(rates)  # of dropout
        self._draws = mode.draws
        self._by_feature = mode.batched and is_smaller_sparse(data.x)
        if mode.batched:
            self._use(self._build(0))
            self._called, self._constants = _Called(self.module), Constants()

    def _use(self, module: nn.Module) -> None:
        self.module, self._names = module.to(self._device), forward_arguments(module)
        self.call = f"forward of {type(module).__name__}"  # for messages

    def _build(self, seed: int) -> nn.Module:
        """The module of a seed, on the CPU."""
        return seeded_module(self.model, self._data, self._settings, seed, **self._rates).to(self._data.x.dtype)

    def initial(self, seed: int) -> State:
        return _state_of(self._build(seed))

    def is_by_feature(self, shape: Sequence[int]) -> bool:
        return self._by_feature and len(shape) == 2 and shape[1] == self._data.num_features

    def __call__(
        self, state: State, own: dict[str, Tensor], part: Part, training: bool, scores: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self._called.train(training)
        inputs = self.given.of(part, self._names)

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], key: Tensor) -> Any:
            values = {f"module.{name}": value for name, value in (parameters | buffers).items()}
            with unchanged_settings(self.call), keyed(key), keyed_functions():
                out, after = computed(functional_call(self._called, values, inputs))
            self._check_output(out, part)
            return out, {name: after[name] for name in buffers}

        # Copies, because a module may change its buffers in place.
        buffers = {name: value.clone() for name, value in state.buffers.items()}
        with self._constants.of(inputs):
            return torch.vmap(one)(state.parameters, buffers, own["key"])  # type: ignore[no-any-return]

    def why_not_captured(self, state: State, own: dict[str, Tensor], parts: Sequence[Part]) -> str:
        # One training step without an update, and one evaluation, on each part: nothing stays of them.
        leaves = {name: value.detach().requires_grad_() for name, value in state.parameters.items()}
        try:
            with _errors_where_waiting(parts[0].x.device):
                for part in parts:
                    out, _ = self(State(leaves, state.buffers), own, part, training=True)
                    torch.autograd.grad(out.sum(), list(leaves.values()), allow_unused=True)
                    with torch.no_grad():
                        self(State(leaves, state.buffers), own, part, training=False)
        except RuntimeError as error:
            return str(error)
        return ""

    def check_given(self) -> None:
        """Raises an error if the module has changed what it was called with."""
        self.given.check(type(self.module).__name__)

    def _check_output(self, out: Any, part: Part) -> None:
        expected = [part.graph.num_nodes, self._data.num_classes]
        if not isinstance(out, Tensor):
            raise TypeError(f"{self.call} must return a tensor of shape {expected}, got {type(out).__name__}")
        if list(out.shape) != expected:
            raise ValueError(f"{self.call} must return shape {expected}, nodes by classes, got {list(out.shape)}")


class PlainLoop(CustomProgram):
    """One run of a custom model with a module of its own, which remembers what it does in a loop that trains it alone.

    Each epoch calls `forward` once per step in training, and once in evaluation, whose logits of the best epoch also
    give the test score. Only for data of several graphs is the module of the best epoch copied, and the copy called
    with those of the test.
    """

    evaluation_changes = True

    def initial(self, seed: int) -> State:
        self._random = Streams(seed) if self._draws else None
        with self._numbers():
            module = self._build(seed)
        self._use(module)
        self.learned: dict[str, Tensor] = {
            name: value for name, value in self.module.named_parameters() if value.requires_grad
        }
        self._loaded = False
        self._best: Tensor | nn.Module | None = None  # logits of the test, or the module that computes them
        return _state_of(self.module)

    @torch.no_grad()
    def _load(self, state: State) -> None:
        """Sets the parameters that the optimizer has changed, and at first the buffers, those of a checkpoint."""
        for name, parameter in self.learned.items():
            parameter.copy_(state.parameters[name][0])
        values = {} if self._loaded else _values(self.module)
        for name in values.keys() & state.buffers.keys():
            values[name].copy_(state.buffers[name][0])
        self._loaded = True

    def __call__(
        self, state: State, own: dict[str, Tensor], part: Part, training: bool, scores: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self._load(state)
        self.module.train(training)
        inputs = self.given.of(part, self._names)
        if training:
            for parameter in self.learned.values():
                parameter.grad = None
        with unchanged_settings(self.call), self._numbers(), keyed(own["key"][0]), keyed_functions(generators=True):
            out = computed(self.module(*inputs))
        self._check_output(out, part)
        for name, parameter in self.learned.items():  # which the module may have changed
            state.parameters[name].detach()[0].copy_(parameter.detach())
        values = _values(self.module)
        for name, value in state.buffers.items():
            if values[name].shape != value.shape[1:]:
                shapes = f"{list(value.shape[1:])}, got {list(values[name].shape)}"
                raise ValueError(f"{self.call} must keep the shape of {name}, {shapes}")
        return out.unsqueeze(0), {name: values[name].detach().unsqueeze(0) for name in state.buffers}

    @contextmanager
    def _numbers(self) -> Iterator[None]:
        """`random` and `numpy.random` have the run's numbers, if the model draws from them."""
        with nullcontext() if self._random is None else self._random.used():
            yield

    def gradients(self, loss: Tensor, leaves: dict[str, Tensor]) -> list[Tensor | None]:
        with unchanged_settings(self.call), self._numbers(), NoRandomFunctions():
            backward(loss)
        grads = (parameter.grad for parameter in self.learned.values())
        return [None if grad is None else grad.unsqueeze(0) for grad in grads]

    def keep(self, better: Tensor, logits: Tensor, task: Task) -> None:
        if not bool(better[0]):
            return
        if task.test.x is task.val.x and task.test.graph is task.val.graph:
            self._best = logits.clone()
            return
        try:
            self._best = copy.deepcopy(self.module)
        except Exception as error:  # whatever an attribute raises that cannot be copied
            raise ValueError(
                f"{self.call} remembers what cannot be copied, for a test on other graphs: {error}"
            ) from error

    def test(self, state: State, own: dict[str, Tensor], task: Task) -> Tensor:
        if isinstance(self._best, Tensor):
            return self._best
        if self._best is None:  # after a checkpoint
            self._loaded = False
        else:
            self._use(self._best)
            self.learned = {name: _values(self.module)[name] for name in self.learned}
        return super().test(state, own, task)

    def why_not_captured(self, state: State, own: dict[str, Tensor], parts: Sequence[Part]) -> str:
        return "it trains one run at a time"


def _values(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _state_of(module: nn.Module) -> State:
    """The learned parameters of a module; frozen ones and buffers."""
    learned = {name for name, value in module.named_parameters() if value.requires_grad}
    values = {name: value.detach() for name, value in _values(module).items()}
    return State(
        {name: value for name, value in values.items() if name in learned},
        {name: value for name, value in values.items() if name not in learned},
    )


class _Called(nn.Module):
    """Calls a module and returns its output and its buffers and frozen parameters afterwards."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> tuple[Any, dict[str, Tensor]]:
        out = self.module(*inputs)
        return out, _values(self.module)


@contextmanager
def _errors_where_waiting(device: torch.device) -> Iterator[None]:
    """Raises a `RuntimeError` where the CPU waits for the GPU, which cannot be captured."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
