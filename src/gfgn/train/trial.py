"""`choose_way`: how the runs of a custom model train, from its first steps and what they change."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gfgn.nn.own import factory_of
from gfgn.ops.surroundings import global_state, notice_seeding
from gfgn.train.contents import NONE, Contents, Leaf, difference, digest, find_hooks, shared_contents
from gfgn.train.messages import log_once, shorten
from gfgn.train.own import RANDOM, Mode, OwnProgram, PlainLoop, Way
from gfgn.train.program import State
from gfgn.train.task import Task

LOGGER = logging.getLogger(__name__)
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of a batched run, relative to the largest value
STEPS = 2  # of training; then comes an evaluation

Make = Callable[[Way], OwnProgram]


class Trial(NamedTuple):
    """The first steps of some replicas: logits, gradients and buffers, `[R, …]` each. Also, before them and after each,
    hashes of parameters and buffers, and what else a plain loop holds."""

    results: list[Tensor]
    values: list[dict[str, str]]
    held: list[Contents]


def choose_way(make: Make, task: Task, name: str, seeds: Sequence[int]) -> Way:
    """Together, if a batch has the results that each run has in a plain loop, and if nothing says that it may not have
    them later; why not is logged once.

    `make` returns a new program. An error that a run has alone is the model's own, and is raised. A model whose runs
    could not be independent even in plain loops is refused.
    """
    state, way = global_state(), Way(Mode.SEQUENTIAL)
    first, trial = _alone(make, way, 0, task)
    way = Way(Mode.SEQUENTIAL, draws=global_state() != state)
    if way.draws:
        first, trial = _alone(make, way, 0, task)
    shared = shared_contents(first.module, factory_of(first.model))
    second, other = _alone(make, way, 1, task)
    for changed in difference(shared, shared_contents(second.module, factory_of(second.model))):
        raise ValueError(f"{name} must not change {changed}, which all runs share: keep it in self")

    changes = _changes(first, trial) or _changes(second, other)
    reason = changes or _differs(make, way, other.held[0], seeds)  # the first of all modules may set up its class
    for mode in () if reason else (Mode.CONSTANTS, Mode.BATCHED):
        expected = [torch.cat(values) for values in zip(trial.results, other.results, strict=True)]
        try:
            program = make(Way(mode, way.draws))
            different = (
                _difference(_try(program, {seed: program.initial(seed) for seed in range(2)}, task).results, expected)
                or program.remembers_replicas()
            )
        except Exception as error:  # whatever a module raises under `vmap`
            different = f"{type(error).__name__}: {error}"
        if not different:
            return program.way
        LOGGER.debug("%s does not run as %s: %s", name, mode.value, different)
        reason = different
    log_once(f"{name} trains one run at a time, because it cannot be batched: {shorten(reason)}")
    return Way(Mode.SEQUENTIAL, way.draws, remembers=bool(changes) or trial.held[0] != trial.held[-1])


def _changes(program: PlainLoop, trial: Trial) -> str:
    """What a run does that a batch may not do, or not in time; empty if nothing."""
    for name in find_hooks(program.module):
        return f"it has {name}"
    for name, (kind, value) in trial.held[-1].items():
        if kind == "opaque":
            return f"{name}, a {value}, may change"
    for k, (before, after) in enumerate(itertools.pairwise(trial.held)):
        for name in difference(before, after):
            if k > 0 or not _is_cache(before.get(name, NONE), after.get(name, NONE)):
                return f"{name} changes from step to step"
    for k, (old, new) in enumerate(itertools.pairwise(trial.values)):
        for name, value in new.items():
            if value != old[name] and (name in program.learned or k == STEPS):
                return f"forward changes {name}" + ("" if name in program.learned else " in evaluation")
    return ""


def _is_cache(before: Leaf, after: Leaf) -> bool:
    """Whether what was empty is a tensor now, or a container: it is the same for all runs if it does not change."""
    return before in (NONE, ("items", 0)) and after[0] in ("tensor", "items")


def _differs(make: Make, way: Way, held: Contents, seeds: Sequence[int]) -> str:
    """What a module has from its constructor that a batch has not for each run; empty if nothing."""
    for name, (kind, _) in held.items():
        if kind == "state":
            return f"{name} is a parameter or buffer, or a part of one"
    for seed in sorted({0, *seeds}):
        program = make(way)
        assert isinstance(program, PlainLoop)
        program.initial(seed)
        for name in difference(held, program.contents()):
            if name != RANDOM:
                return f"{name} differs between seeds, and is no parameter or buffer"
    return ""


def _alone(make: Make, way: Way, seed: int, task: Task) -> tuple[PlainLoop, Trial]:
    program = make(way)
    assert isinstance(program, PlainLoop)
    initial = program.initial(seed)
    try:
        return program, _try(program, {seed: initial}, task)
    finally:  # such a change may be the cause of an error
        program.check_given()


def _try(program: OwnProgram, initial: Mapping[int, State], task: Task) -> Trial:
    """Training steps without updates, then an evaluation, of the seeds whose initial values are given."""
    device, trial, first = task.val.y.device, Trial([], [], []), next(iter(initial.values()))
    parameters, buffers = (
        {name: torch.stack([each[kind][name] for each in initial.values()]).to(device) for name in first[kind]}
        for kind in range(2)
    )
    with notice_seeding() as seeding:
        trial.held.append(program.contents())
        trial.values.append({name: digest(value) for name, value in (parameters | buffers).items()})
        for step in range(STEPS + 1):
            training = step < STEPS
            leaves = {name: value.detach().requires_grad_(training) for name, value in parameters.items()}
            own = {"key": torch.tensor([1000 * seed + step + 1 for seed in initial], device=device)}
            with torch.set_grad_enabled(training):
                out, after = program(State(leaves, buffers), own, task.steps[0] if training else task.val, training)
            trial.results.append(out.detach().clone())
            if training:
                weight = torch.linspace(-1, 1, out[0].numel(), dtype=out.dtype, device=device).view(out.shape[1:])
                grads = program.gradients((out * weight).sum(), leaves)
                # Together, because some gradients are 0 but for rounding, such as that of a bias before batch norm.
                used = [grad.flatten(1) for grad in grads if grad is not None]
                trial.results.extend([torch.cat(used, 1)] if used else [])
                buffers = {name: value.detach().clone() for name, value in after.items()}
            trial.held.append(program.contents())
            trial.values.append({name: digest(value) for name, value in (leaves | after).items()})
    if seeding:
        raise ValueError(
            f"{program.call} must not seed PyTorch, got a call of {seeding[0]}: its numbers are those of the run's "
            "seed; for others, draw from a torch.Generator that the constructor makes"
        )
    trial.results.extend(buffers.values())
    return trial


def _difference(given: list[Tensor], expected: list[Tensor]) -> str:
    """What differs by more than rounding; empty if nothing does."""
    for value, other in zip(given, expected, strict=True):
        if value.shape != other.shape:
            return "a replica has other shapes among several than alone"
        tolerance = TOLERANCE.get(other.dtype, 0.0) * (1 + float(other.abs().max()) if other.numel() else 1.0)
        if not torch.allclose(value.double(), other.double(), rtol=0, atol=tolerance, equal_nan=True):
            return "a replica has other results among several than alone"
    return ""
