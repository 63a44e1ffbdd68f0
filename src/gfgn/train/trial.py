"""`choose_training_mode`: how the runs of a custom model train, from its first steps and what they change."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gfgn.nn.custom import factory_of
from gfgn.ops.surroundings import global_state, notice_seeding
from gfgn.train import fingerprint
from gfgn.train.custom import CustomProgram, PlainLoop, TrainingMode
from gfgn.train.fingerprint import Fingerprints, difference, digest
from gfgn.train.messages import log_once, shorten
from gfgn.train.program import State
from gfgn.train.task import Task

LOGGER = logging.getLogger(__name__)
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}  # of a batched run, relative to the largest value
STEPS = 2  # of training; then comes an evaluation

Make = Callable[[TrainingMode], CustomProgram]


class Trial(NamedTuple):
    """The first steps of some replicas: logits, gradients and buffers, `[R, …]` each. Also, before them and after each,
    hashes of parameters and buffers, and of what else the module holds."""

    results: list[Tensor]
    values: list[dict[str, bytes]]
    held: list[Fingerprints]


def choose_training_mode(make: Make, task: Task, name: str, seeds: Sequence[int]) -> TrainingMode:
    """Batched, if a batch has the results that each run has in a plain loop, and if nothing says that it may not have
    them later; why not is logged once.

    `make` returns a new program. An error that a run has alone is the model's own, and is raised. A model whose runs
    could not be independent even in plain loops is refused.
    """
    before, mode = global_state(), TrainingMode(batched=False)
    make(mode).initial(0)  # the first of all modules may set up its class
    first, trial = _alone(make, mode, 0, task)
    draws = global_state() != before
    if draws:
        mode = TrainingMode(batched=False, draws=True)
        first, trial = _alone(make, mode, 0, task)
    shared = fingerprint.shared(first.module, factory_of(first.model))
    second, other = _alone(make, mode, 1, task)
    for changed in difference(shared, fingerprint.shared(second.module, factory_of(second.model))):
        raise ValueError(f"{name} must not change {changed}, which all runs share: keep it in self")

    changes = "it draws from random or numpy.random" if draws else _changes(first, trial) or _changes(second, other)
    reason = changes or _differs(make, mode, trial, other, seeds)
    if not reason:
        expected = [torch.cat(values) for values in zip(trial.results, other.results, strict=True)]
        batched = TrainingMode(batched=True)
        try:
            program = make(batched)
            together = _try(program, {seed: program.initial(seed) for seed in range(2)}, task)
            reason = _difference(together, expected) or _keeps(program)
        except Exception as error:  # whatever a module raises under `vmap`
            LOGGER.debug("%s cannot be batched", name, exc_info=True)
            reason = f"{type(error).__name__}: {error}"
        if not reason:
            return batched
    log_once(f"{name} trains one run at a time, because it cannot be batched: {shorten(reason)}")
    return TrainingMode(batched=False, draws=draws, resumable=not changes and trial.held[0] == trial.held[-1])


def _changes(program: PlainLoop, trial: Trial) -> str:
    """What a run does that a batch may not do, or not in time; empty if nothing."""
    for name in fingerprint.find_hooks(program.module):
        return f"it has {name}"
    for name, found in trial.held[-1].items():
        if found == fingerprint.UNKNOWN:
            return f"{name} may change from step to step"
    for before, after in itertools.pairwise(trial.held[1:]):  # a cache may be filled at the first step
        for name in difference(before, after):
            return f"{name} changes from step to step"
    for k, (old, new) in enumerate(itertools.pairwise(trial.values)):
        for name in difference(old, new):
            if name in program.learned or k == STEPS:
                return f"forward changes {name}" + ("" if name in program.learned else " in evaluation")
    return ""


def _differs(make: Make, mode: TrainingMode, trial: Trial, other: Trial, seeds: Sequence[int]) -> str:
    """What a module has that a batch has not for each run; empty if nothing."""
    for name in difference(trial.held[-1], other.held[-1]):
        return f"{name} differs between seeds, and is no parameter or buffer"
    for seed in sorted({0, *seeds}):
        program = make(mode)
        program.initial(seed)
        for name in difference(other.held[0], fingerprint.held(program.module)):
            return f"{name} differs between seeds, and is no parameter or buffer"
    return ""


def _keeps(program: CustomProgram) -> str:
    """What the module of a batch has kept that has one value per replica; empty if nothing."""
    found = fingerprint.held(program.module)
    names = [name for name in found if found[name] == fingerprint.UNKNOWN]  # alone, it has nothing of the kind
    return f"it keeps {', '.join(names)} from step to step" if names else ""


def _alone(make: Make, mode: TrainingMode, seed: int, task: Task) -> tuple[PlainLoop, Trial]:
    program = make(mode)
    assert isinstance(program, PlainLoop)
    initial = program.initial(seed)
    try:
        return program, _try(program, {seed: initial}, task)
    finally:  # such a change may be the cause of an error
        program.check_given()


def _try(program: CustomProgram, initial: Mapping[int, State], task: Task) -> Trial:
    """Training steps without updates, then an evaluation, of the seeds whose initial values are given."""
    device, trial, first = task.val.y.device, Trial([], [], []), next(iter(initial.values()))
    parameters, buffers = (
        {name: torch.stack([each[kind][name] for each in initial.values()]).to(device) for name in first[kind]}
        for kind in range(2)
    )

    def note(values: Mapping[str, Tensor]) -> None:
        trial.values.append({name: digest(value) for name, value in values.items()})
        trial.held.append(fingerprint.held(program.module) if isinstance(program, PlainLoop) else {})

    with notice_seeding() as seeding:
        note(parameters | buffers)
        for step in range(STEPS + 1):
            training = step < STEPS
            leaves = {name: value.detach().requires_grad_(training) for name, value in parameters.items()}
            keys = {"key": torch.tensor([1000 * seed + step + 1 for seed in initial], device=device)}
            with torch.set_grad_enabled(training):
                out, after = program(State(leaves, buffers), keys, task.steps[0] if training else task.val, training)
            trial.results.append(out.detach().clone())
            if training:
                weight = torch.linspace(-1, 1, out[0].numel(), dtype=out.dtype, device=device).view(out.shape[1:])
                grads = program.gradients((out * weight).sum(), leaves)
                # Together, because some gradients are 0 but for rounding, such as that of a bias before batch norm.
                used = [grad.flatten(1) for grad in grads if grad is not None]
                trial.results.extend([torch.cat(used, 1)] if used else [])
                buffers = {name: value.detach().clone() for name, value in after.items()}
            note(leaves | after)
    if seeding:
        raise ValueError(
            f"{program.call} must not seed PyTorch, got a call of {seeding[0]}: its numbers are those of the run's "
            "seed; for others, draw from a torch.Generator that the constructor makes"
        )
    trial.results.extend(buffers.values())
    return trial


def _difference(trial: Trial, expected: Sequence[Tensor]) -> str:
    """What differs by more than rounding; empty if nothing does."""
    for value, other in zip(trial.results, expected, strict=True):
        if value.shape != other.shape:
            return "a replica has other shapes among several than alone"
        tolerance = TOLERANCE.get(other.dtype, 0.0) * (1 + float(other.abs().max()) if other.numel() else 1.0)
        if not torch.allclose(value.double(), other.double(), rtol=0, atol=tolerance, equal_nan=True):
            return "a replica has other results among several than alone"
    return ""
