"""What the runs of a study must satisfy without training anything: forged numbers rarely do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gfgn.data.dataset import NodeDataset
from gfgn.runs.record import Row, is_standin
from gfgn.runs.results import Results
from gfgn.runs.store import Store
from gfgn.runs.study_files import RUNS, STORE
from gfgn.train.catalog import CLASSICAL

SHOWN = 3  # lines per rule


class Facts(NamedTuple):
    """What runs are compared with: fingerprints, the metric, and the numbers of nodes of each split."""

    name: str
    fingerprint: str
    metric: str
    splits: tuple[str, ...]
    val: tuple[int, ...]
    test: tuple[int, ...]

    @classmethod
    def of(cls, data: NodeDataset) -> Facts:
        """The facts about a dataset."""
        splits = tuple(data.split_fingerprint(k) for k in range(len(data.splits)))
        val, test = (tuple(int(mask.sum()) for mask in masks) for masks in list(zip(*data.splits, strict=True))[1:])
        return cls(data.name, data.fingerprint, data.metric, splits, val, test)

    def is_of(self, row: Row) -> bool:
        """Whether a run was made with the same graph and split."""
        split, fingerprints = row.replica.split, (row.dataset_fingerprint, row.split_fingerprint)
        return split < len(self.splits) and fingerprints == (self.fingerprint, self.splits[split])


def check_consistency(results: Results, facts: Mapping[str, Facts], out: Path) -> list[str]:
    """One line per problem, of each rule the first `SHOWN` and the number of others.

    Args:
        facts: Of the datasets that could be loaded, by their name in the runs.
        out: The folder of the study.
    """
    rules: list[Iterable[str]] = [
        _unplanned(results),
        _duplicates(results.rows),
        _incomplete(results),
        (f"{describe(row)}: {fault}" for row in results.rows for fault in _faults_of_training(row)),
        (f"{describe(row)}: {fault}" for row in results.rows for fault in _faults_of_record(row)),
        (
            f"{describe(row)}: {fault}"
            for row in results.rows
            if row.dataset in facts
            for fault in _faults_of_data(row, facts[row.dataset])
        ),
        _parameters(results.rows),
        _other_in_store(results, out / STORE),
    ]
    problems = []
    for rule in rules:
        found = list(rule)
        problems += found[:SHOWN] + [f"… and {len(found) - SHOWN:,} more like the last"] * (len(found) > SHOWN)
    return problems


def describe(row: Row) -> str:
    """A run in words: dataset, model, split and seed."""
    return f"{row.dataset} {row.model} split {row.replica.split} seed {row.replica.seed}"


def _unplanned(results: Results) -> Iterator[str]:
    """Runs that the study does not make: another seed, split, configuration, model or dataset."""
    study, planned = results.study, set()
    for cell in study.all_cells():
        plan, selection = study.plan(cell), results[cell].selection
        final = plan.final(selection.best if selection else plan.configurations[0])
        first, *others = ((name, cell.model) for name in study.data_names(cell))
        planned |= {(*first, replica, plan.config) for replica in (*plan.tuning(), *final)}
        planned |= {(*other, replica, plan.config) for other in others for replica in final}
    for row in results.rows:
        if (row.dataset, row.model, row.replica, row.config) not in planned:
            yield f"{describe(row)}: not a run of the study: {row.replica.configuration}"


def _duplicates(rows: Sequence[Row]) -> Iterator[str]:
    counts = Counter((row.dataset, row.model, row.replica, row.config, row.search) for row in rows)
    for (dataset, model, replica, *_), count in counts.items():
        if count > 1:
            yield f"{dataset} {model} split {replica.split} seed {replica.seed}: recorded {count} times"


def _incomplete(results: Results) -> Iterator[str]:
    """Cells with some of their runs; one without any is not measured, and the page says so."""
    for cell in results.study.all_cells():
        if 0 < results[cell].have < results[cell].need:
            at = "" if cell.at is None else f" at {cell.at}"
            yield f"{cell.dataset} {cell.model}{at}: {results[cell].have} of {results[cell].need} runs"


def _faults_of_training(row: Row) -> Iterator[str]:
    """Training ends `patience` epochs after the best epoch, or at the last one."""
    length = row.config.max_epochs
    if row.diverged:
        if row.epoch != -1 or not math.isnan(row.test):
            yield f"a run that diverged has no best epoch and no test score, got {row.epoch} and {row.test}"
    elif not 0 <= row.epoch < row.epochs <= length:
        yield f"epoch must be below epochs, and epochs at most {length}, got {row.epoch} and {row.epochs}"
    elif row.model not in CLASSICAL and not row.dropped:
        expected = min(length, row.epoch + 1 + row.config.patience)
        if row.epochs != expected:
            yield f"a run with its best epoch at {row.epoch} trains {expected} epochs, got {row.epochs}"
    if row.gates and not row.diverged:
        low, mean, high = (row.gates.get(name, math.nan) for name in ("min", "mean", "max"))
        slack = 1e-5 * max(1.0, row.replica.lam)  # six digits are kept
        if not -slack <= low <= mean + slack <= high + 2 * slack <= row.replica.lam + 3 * slack:
            yield f"gates must lie between 0 and λ = {row.replica.lam:g}, got {low}, {mean} and {high}"


def _faults_of_record(row: Row) -> Iterator[str]:
    if missing := [name for name, version in row.versions.items() if not version]:
        yield f"versions of {', '.join(missing)} are not recorded"
    if not row.device:
        yield "the device is not recorded"
    if not (math.isfinite(row.seconds) and row.seconds >= 0 and row.num_parameters >= 0):
        yield f"seconds and num_parameters must be 0 or larger, got {row.seconds} and {row.num_parameters}"
    try:
        datetime.fromisoformat(row.date)
    except ValueError:
        yield f"date must be a date, got {row.date!r}"


def _faults_of_data(row: Row, facts: Facts) -> Iterator[str]:
    split = row.replica.split
    if row.dataset_fingerprint != facts.fingerprint:
        yield f"the graph differs from that of {RUNS}"
    elif split >= len(facts.splits) or row.split_fingerprint != facts.splits[split]:
        yield f"split {split} differs from that of {RUNS}"
    elif row.metric != facts.metric or row.standin != is_standin(facts.name):
        expected = f"{facts.metric} and {is_standin(facts.name)}"
        yield f"metric and stand-in must be {expected}, got {row.metric} and {row.standin}"
    elif not row.diverged:
        yield from _faults_of_score("validation", row.val, facts.val[split], row.metric)
        if not row.dropped:
            yield from _faults_of_score("test", row.test, facts.test[split], row.metric)


def _faults_of_score(name: str, score: float, nodes: int, metric: str) -> Iterator[str]:
    """An accuracy is a number of nodes over the number of nodes, in single precision, to the last bit."""
    possible = score <= 0 if metric == "log_loss" else 0 <= score <= 1
    if possible and metric == "accuracy":
        possible = float(np.float32(round(score * nodes)) / np.float32(nodes)) == score
    if not possible:
        fraction = f" of {nodes:,} nodes" if metric == "accuracy" else ""
        yield f"the {name} score {score!r} is no {metric.replace('_', ' ')}{fraction}"


def _parameters(rows: Sequence[Row]) -> Iterator[str]:
    """Runs of a model with the same options on a dataset have the same number of parameters."""
    numbers: dict[tuple[str, str, object], set[int]] = {}
    for row in rows:
        numbers.setdefault((row.dataset, row.model, row.replica.options), set()).add(row.num_parameters)
    for (dataset, model, _), found in numbers.items():
        if len(found) > 1:
            yield f"{dataset} {model}: the same network with {', '.join(map(str, sorted(found)))} parameters"


def _other_in_store(results: Results, path: Path) -> Iterator[str]:
    """Differences of the store, where there is one, from the table. It may lack runs: it is made from the table."""
    if not path.is_file():
        return
    with Store(path, read_only=True) as store:
        kept = {row.key: row for row in store.rows(dropped=True)}
    for row in results.rows:
        other = kept.get(row.key)
        if other is not None:
            for name in ("val", "test", "epoch", "epochs", "num_parameters", "gates"):
                one, two = getattr(row, name), getattr(other, name)
                if one != two and not (one != one and two != two):  # NaN
                    yield f"{describe(row)}: {name} is {one} in {RUNS} and {two} in {STORE}"
    study = results.study
    wanted = {(name, cell.model) for cell in study.all_cells() for name in study.data_names(cell)}
    recorded, configs = {row.key for row in results.rows}, {row.config for row in results.rows}
    for row in kept.values():
        if row.key not in recorded and (row.dataset, row.model) in wanted and row.config in configs:
            yield f"{describe(row)}: in {STORE}, not in {RUNS}"
