"""`OwnProgram`: a model of the user's own as a `Program`, batched if that works, else one run at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves

from gfgn.data.dataset import NodeDataset
from gfgn.graph import Graph
from gfgn.nn.entry import Model
from gfgn.nn.own import forward_arguments
from gfgn.ops.csr import per_graph
from gfgn.ops.features import is_smaller_sparse
from gfgn.ops.random import computed, keyed, keyed_functions
from gfgn.ops.torch_internals import is_wrapped
from gfgn.train.constants import Constants
from gfgn.train.messages import log_once, shorten
from gfgn.train.program import Program, State, seeded_module
from gfgn.train.task import Part

LOGGER = logging.getLogger(__name__)
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of a batched run, relative to the largest value


class Mode(Enum):
    """How the runs of a model train: together, what is constant computed once or at every step, or one at a time."""

    CONSTANTS = "constants"
    BATCHED = "batched"
    SEQUENTIAL = "sequential"


class OwnProgram(Program):
    """A module of the user's own, called with the random numbers of each replica's key; see `Program`.

    A batch has a program of its own: what the module remembers from step to step belongs to that batch.
    """

    def __init__(
        self,
        model: Model,
        settings: Mapping[str, Any],
        data: NodeDataset,
        device: torch.device,
        rates: Mapping[str, float],
        mode: Mode,
    ) -> None:
        self.model, self.mode = model, mode
        self._settings, self._data, self._rates = dict(settings), data, dict(rates)  # rates of dropout
        self.module = seeded_module(model, data, settings, 0, **self._rates).to(device, data.x.dtype)
        self._called, self._names = _Called(self.module), forward_arguments(self.module)
        self._constants = Constants() if mode is Mode.CONSTANTS else None
        self._by_feature = mode is Mode.CONSTANTS and is_smaller_sparse(data.x)

    @property
    def num_parameters(self) -> int:
        """Number of learned values."""
        return sum(value.numel() for value in self.module.parameters() if value.requires_grad)

    def initial(self, seed: int) -> State:
        module = seeded_module(self.model, self._data, self._settings, seed, **self._rates).to(self._data.x.dtype)
        learned = {name: value.detach() for name, value in module.named_parameters() if value.requires_grad}
        frozen = {name: value.detach() for name, value in module.named_parameters() if not value.requires_grad}
        return State(learned, frozen | {name: value.detach() for name, value in module.named_buffers()})

    def is_by_feature(self, shape: Sequence[int]) -> bool:
        return self._by_feature and len(shape) == 2 and shape[1] == self._data.num_features

    def __call__(
        self, state: State, own: dict[str, Tensor], part: Part, training: bool, scores: bool = False
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self._called.train(training)
        inputs = _inputs(self._names, part)

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], key: Tensor) -> Any:
            values = {f"module.{name}": value for name, value in (parameters | buffers).items()}
            with keyed(key), keyed_functions():
                out, after = computed(functional_call(self._called, values, inputs))
            self._check_output(out, part)
            return out, {name: after[name] for name in buffers}

        if self.mode is Mode.SEQUENTIAL:
            parameters, buffers = ({name: value[0].clone() for name, value in each.items()} for each in state)
            out, after = one(parameters, buffers, own["key"][0])
            return out.unsqueeze(0), {name: value.unsqueeze(0) for name, value in after.items()}
        # Copies, because a module may change its buffers in place.
        arguments = (state.parameters, {name: value.clone() for name, value in state.buffers.items()}, own["key"])
        if self._constants is None:
            return torch.vmap(one)(*arguments)  # type: ignore[no-any-return]
        with self._constants.of(inputs):
            return torch.vmap(one)(*arguments)  # type: ignore[no-any-return]

    def why_not_captured(self, state: State, own: dict[str, Tensor], parts: Sequence[Part]) -> str:
        # A program of its own is tried: this one, and what its module remembers, stays as it is.
        tried = OwnProgram(self.model, self._settings, self._data, parts[0].x.device, self._rates, self.mode)
        tried._try(state, own, parts)
        before = tried._remembered()
        try:
            with _errors_where_waiting(parts[0].x.device):
                tried._try(state, own, parts)
        except RuntimeError as error:
            return str(error)
        return "" if tried._remembered() == before else "its attributes change from step to step"

    def _try(self, state: State, own: dict[str, Tensor], parts: Sequence[Part]) -> None:
        """One training step without an update, and one evaluation, on each part."""
        leaves = {name: value.detach().requires_grad_() for name, value in state.parameters.items()}
        for part in parts:
            out, _ = self(State(leaves, state.buffers), own, part, training=True)
            torch.autograd.grad(out.sum(), list(leaves.values()), allow_unused=True)
            with torch.no_grad():
                self(State(leaves, state.buffers), own, part, training=False)

    def _remembered(self) -> dict[tuple[str, str], Any]:
        """The attributes of all modules: numbers and text, all else by identity."""
        return {
            (path, name): value if isinstance(value, (int, float, str)) else id(value)
            for path, module in self.module.named_modules()
            for name, value in vars(module).items()
            if name not in ("training", "_parameters", "_buffers", "_modules")
        }

    def remembers_replicas(self) -> str:
        """Which tensors of the last step the module has kept that have one value per replica; empty if none."""
        names = [
            f"{type(module).__name__}.{name}"
            for module in self.module.modules()
            for name, value in vars(module).items()
            if any(isinstance(each, Tensor) and is_wrapped(each) for each in tree_leaves(value))
        ]
        return f"it keeps {', '.join(names)} from step to step" if names else ""

    def _check_output(self, out: Any, part: Part) -> None:
        expected, kind = [part.graph.num_nodes, self._data.num_classes], type(self.module).__name__
        if not isinstance(out, Tensor):
            raise TypeError(f"forward of {kind} must return a tensor of shape {expected}, got {type(out).__name__}")
        if list(out.shape) != expected:
            raise ValueError(f"forward of {kind} must return shape {expected}, nodes by classes, got {list(out.shape)}")


class _Called(nn.Module):
    """Calls a module and returns its output and its buffers and frozen parameters afterwards."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> tuple[Any, dict[str, Tensor]]:
        out = self.module(*inputs)
        return out, {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}


def _inputs(names: tuple[str, ...], part: Part) -> tuple[Any, ...]:
    """The arguments of `forward`: the same tensors at every step."""
    if names == ("graph",):
        return (part.x, part.graph)
    edge_index, weight = _edges(part.graph)
    return (part.x, edge_index, weight) if "edge_weight" in names and weight is not None else (part.x, edge_index)


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


@per_graph
def _edges(graph: Graph) -> tuple[Tensor, Tensor | None]:
    return graph.edge_index, graph.weight


# --- whether a model can be batched -----------------------------------------------------------------------------------


def choose_mode(make: Callable[[Mode], OwnProgram], part: Part, name: str) -> Mode:
    """The first mode in which two replicas have the results that each has alone; why not a faster one is logged once.

    `make` returns a new program. An error that a replica has alone is the model's own, and is raised.
    """
    alone = [_trial(make(Mode.SEQUENTIAL), [seed], part) for seed in range(2)]
    expected = [torch.cat(values) for values in zip(*alone, strict=True)]
    reason = ""
    for mode in (Mode.CONSTANTS, Mode.BATCHED):
        try:
            program = make(mode)
            different = _difference(_trial(program, [0, 1], part), expected) or program.remembers_replicas()
        except Exception as error:  # whatever a module raises under `vmap`
            different = f"{type(error).__name__}: {error}"
        if not different:
            return mode
        LOGGER.debug("%s does not run as %s: %s", name, mode.value, different)
        reason = different
    log_once(f"{name} trains one run at a time, because it cannot be batched: {shorten(reason)}")
    return Mode.SEQUENTIAL


def _trial(program: OwnProgram, seeds: Sequence[int], part: Part) -> list[Tensor]:
    """Two training steps without updates, then an evaluation: logits, gradients and buffers, `[R, …]` each."""
    device, initial, results = part.y.device, [program.initial(seed) for seed in seeds], []
    parameters, buffers = (
        {name: torch.stack([each[kind][name] for each in initial]).to(device) for name in initial[0][kind]}
        for kind in range(2)
    )
    for step in range(3):
        training = step < 2
        leaves = {name: value.detach().requires_grad_(training) for name, value in parameters.items()}
        own = {"key": torch.tensor([1000 * seed + step + 1 for seed in seeds], device=device)}
        out, after = program(State(leaves, buffers), own, part, training)
        results.append(out.detach())
        if training:
            weight = torch.linspace(-1, 1, out[0].numel(), dtype=out.dtype, device=device).view(out.shape[1:])
            grads = torch.autograd.grad((out * weight).sum(), list(leaves.values()), allow_unused=True)
            # Together, because some gradients are 0 but for rounding, such as that of a bias before batch norm.
            used = [grad.flatten(1) for grad in grads if grad is not None]
            results += [torch.cat(used, 1)] if used else []
            buffers = {name: value.detach() for name, value in after.items()}
    return results + list(buffers.values())


def _difference(given: list[Tensor], expected: list[Tensor]) -> str:
    """What differs by more than rounding; empty if nothing does."""
    for value, other in zip(given, expected, strict=True):
        if value.shape != other.shape:
            return "a replica has other shapes among several than alone"
        tolerance = TOLERANCE.get(other.dtype, 0.0) * (1 + float(other.abs().max()) if other.numel() else 1.0)
        if not torch.allclose(value.double(), other.double(), rtol=0, atol=tolerance, equal_nan=True):
            return "a replica has other results among several than alone"
    return ""
