"""Plans of runs: tune on every split with one seed, choose by validation, then train the choice with all seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from gfgn.data.dataset import NodeDataset
from gfgn.runs.engine import Engine, Job, ProgressCallback, search_key, successive_halving, train_missing
from gfgn.runs.grid import Configuration, import_custom, list_replicas
from gfgn.runs.record import DatasetRecord, RunRecord
from gfgn.runs.selection import Selection, default_rungs, select
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.draws import summarize_draws
from gfgn.train.minibatch import is_sampled
from gfgn.train.replica import Replica
from gfgn.train.statistics import Summary

MAX_RUNS = 1_000_000  # of a model on a dataset
TUNING_SEED = 0  # of the runs that a configuration is chosen by
Find = Callable[[Sequence[Replica]], Sequence[RunRecord | None]]  # the row of each replica, `None` where there is none


@dataclass(frozen=True)
class Plan:
    """The runs of one model on one dataset.

    Attributes:
        configurations: The configurations to choose from.
        splits: Number of splits, the first ones of the dataset.
        seeds: Number of seeds, from 0 on.
        config: How runs are trained.
        halving: Whether tuning stops poor configurations early, by successive halving.
        rungs: Epochs at which it does; by default see `default_rungs`.
        draws: Number of draws of random edges that the choice is trained on; it is chosen on the first.
    """

    model: str
    configurations: tuple[Configuration, ...]
    splits: int
    seeds: int
    config: TrainConfig
    halving: bool = False
    rungs: tuple[int, ...] | None = None
    draws: int = 1

    def __post_init__(self) -> None:
        runs = self.splits * (self.seeds * self.draws + len(self.configurations) - 1)
        if runs > MAX_RUNS:
            raise ValueError(
                f"splits × seeds and splits × configurations must be at most {MAX_RUNS:,} runs of a model, got "
                f"{self.splits:,} splits, {self.seeds:,} seeds and {len(self.configurations):,} configurations"
            )

    def tuning(self) -> list[Replica]:
        """The runs that the configuration is chosen by; none if there is nothing to choose."""
        replicas = list_replicas(self.model, self.configurations, range(self.splits), [TUNING_SEED])
        return replicas if len(replicas) > self.splits else []

    def final(self, configuration: Configuration) -> list[Replica]:
        """The runs of the chosen configuration: every split with every seed."""
        return list_replicas(self.model, [configuration], range(self.splits), range(self.seeds))

    @property
    def count(self) -> int:
        """Number of runs; those of the chosen configuration with the tuning seed count once."""
        tuning = len(self.tuning())
        return self.splits * self.seeds * self.draws + (tuning - self.splits if tuning else 0)

    def search(self, record: DatasetRecord) -> str:
        """Hash of the search that tunes the plan; empty without successive halving."""
        rungs, tuning = self.stops(), self.tuning()
        return search_key(record, self.model, tuning, self.config, rungs) if rungs else ""

    def stops(self) -> list[int]:
        """The epochs at which tuning stops the worse half of the configurations; none without successive halving."""
        tuning = self.tuning() if self.halving else []
        if not tuning or any(is_sampled(self.model, replica) for replica in tuning):  # these train one after the other
            return []
        count = len(tuning) // self.splits
        return default_rungs(count, self.config.max_epochs) if self.rungs is None else list(self.rungs)


@dataclass(frozen=True)
class Result:
    """The runs of a plan that there are.

    Attributes:
        selection: How the configuration was chosen; `None` while runs that it is chosen by are missing.
        rows: The runs of the chosen configuration; empty while any of them is missing.
        have: Number of runs of the plan that there are.
        test_share: Of the splits, see `gfgn.train.statistics.standard_error`.
    """

    plan: Plan
    selection: Selection | None
    rows: tuple[RunRecord, ...]
    have: int
    test_share: float | None = None

    @property
    def need(self) -> int:
        """Number of runs of the plan."""
        return self.plan.count

    @property
    def diverged(self) -> int:
        """Number of runs of the chosen configuration that diverged; with any, there is no score."""
        return sum(row.diverged for row in self.rows)

    @cached_property
    def summary(self) -> Summary | None:
        """Mean, standard deviation and 95% interval of the test score; `None` if runs are missing or diverged."""
        return summarize_draws(self.draws, self.test_share) if self.rows and not self.diverged else None

    @property
    def draws(self) -> list[tuple[RunRecord, ...]]:
        """The rows by draw of the random edges; all of them without noise."""
        names = dict.fromkeys(row.dataset for row in self.rows)
        return [tuple(row for row in self.rows if row.dataset == name) for name in names]

    @property
    def mean(self) -> float | None:
        """The mean test score in %."""
        return None if self.summary is None else 100 * self.summary.mean

    @property
    def configuration(self) -> Configuration | None:
        """The chosen configuration."""
        return None if self.selection is None else self.selection.best


def read_result(plan: Plan, find: Find, test_share: float | None = None, other_draws: Sequence[Find] = ()) -> Result:
    """The result of a plan from the runs that `find` finds; `other_draws` find those on other draws of random edges."""
    tuning = plan.tuning()
    tuned = [row for row in find(tuning) if row is not None]
    if len(tuned) < len(tuning):  # the final runs are not known yet
        return Result(plan, None, (), len(tuned), test_share)
    selection = select(tuned) if tuned else None
    final = plan.final(selection.best if selection else plan.configurations[0])
    rows = [row for each in (find, *other_draws) for row in each(final) if row is not None]
    have = len({row.key for row in (*tuned, *rows)})
    if len(rows) < len(final) * (1 + len(other_draws)):
        return Result(plan, selection, (), have, test_share)
    selection = selection or select([row for row in rows[: len(final)] if row.replica.seed == TUNING_SEED])
    return Result(plan, selection, tuple(rows), have, test_share)


def read_from_store(plan: Plan, store: Store, record: DatasetRecord) -> Result:
    """The result of a plan from the runs of a store."""
    search = plan.search(record)
    return read_result(
        plan, lambda replicas: store.find(record, plan.model, replicas, plan.config, search), record.test_share
    )


def run_plans(
    store: Store,
    dataset: NodeDataset,
    plans: Sequence[Plan],
    device: torch.device | str = "cpu",
    *,
    callback: ProgressCallback | None = None,
    batch_size: int | None = None,
    engine: Engine = Job.run,
) -> list[Result]:
    """Trains the runs that the store lacks of several plans on one dataset and returns one result per plan.

    Plans with the same model and training configuration are trained together, all their runs in one batch, or in
    batches of at most `batch_size` runs. `engine` trains them: this process, or a `gfgn.runs.cluster.Cluster`.
    """
    for plan in plans:
        import_custom(plan.model)
    callback, record = callback or ProgressCallback(), DatasetRecord.of(dataset)
    options: dict[str, Any] = {"device": device, "callback": callback, "batch_size": batch_size}
    options["engine"] = engine

    def train(plan: Plan, replicas: Iterable[Replica]) -> None:
        distinct = list(dict.fromkeys(replicas))
        if distinct:
            train_missing(store, dataset, plan.model, distinct, plan.config, **options)

    for group in group_plans(plans):
        model = group[0].model
        have = sum(read_from_store(plan, store, record).have for plan in group)
        callback.on_model_begin(dataset.name, model, sum(plan.count for plan in group), have)
        for plan in group:
            if rungs := plan.stops():
                search = (plan.configurations, range(plan.splits), [TUNING_SEED])
                successive_halving(store, dataset, model, *search, rungs=rungs, config=plan.config, **options)
        train(group[0], (run for plan in group if not plan.stops() for run in plan.tuning()))
        tuned = [(plan, read_from_store(plan, store, record).configuration) for plan in group]
        train(group[0], (run for plan, best in tuned for run in plan.final(best or plan.configurations[0])))
        callback.on_model_end(dataset.name, model)
    return [read_from_store(plan, store, record) for plan in plans]


def group_plans(plans: Iterable[Plan]) -> list[list[Plan]]:
    """Groups of plans that train together: those with the same model and training configuration."""
    groups: dict[tuple[str, TrainConfig], list[Plan]] = {}
    for plan in plans:
        groups.setdefault((plan.model, plan.config), []).append(plan)
    return list(groups.values())
