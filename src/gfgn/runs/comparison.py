"""`compare`: trains several models on one dataset over splits and seeds, and keeps every run in a store.

Either all models share one configuration, stated with the result, and nothing but the epoch is selected; or each model
is tuned on a grid. Both choices are made on validation nodes only. What a comparison consists of is kept in the store
too, so that it can be read back, and reported, from there alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gfgn.data.dataset import Dataset
from gfgn.nn.registry import HIDDEN, MODELS, find_model
from gfgn.runs.plan import Configuration, Selection, make_replica, make_replicas, run_study, select
from gfgn.runs.record import DatasetRecord, Row, is_gfgn
from gfgn.runs.store import Store
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import check_sampled
from gfgn.train.replica import Replica, Status
from gfgn.train.statistics import PairedTest, Summary, average_ranks, difference, paired_test, summarize

DEFAULT_MODELS = ("mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
WORDS = {"lr": "learning rate", "weight_decay": "weight decay", "dropout": "dropout", "lam": "λ"}
TUNING_SEED = 0
"""The seed of the runs that a configuration is chosen by."""


class ProgressCallback:
    """Is told how a comparison goes; this one does nothing with it."""

    def begin(self, dataset: str, model: str, runs: int, kept: int) -> None:
        """A model begins: how many runs it needs, and how many of these the store had already."""

    def finished(self, row: Row) -> None:
        """A run has finished and is in the store."""

    def status(self, status: Status) -> None:
        """How far training is; now and then."""

    def end(self, dataset: str, model: str) -> None:
        """A model has all its runs."""


@dataclass(frozen=True)
class Plan:
    """What a comparison consists of.

    Attributes:
        dataset: What is compared on.
        models: Names of the models.
        splits: Number of splits, the first ones of the dataset.
        seeds: Number of seeds, from 0 on.
        configurations: One that all models share, or several of which the best is chosen for each model.
        config: How runs are trained.
    """

    dataset: DatasetRecord
    models: tuple[str, ...]
    splits: int
    seeds: int
    configurations: tuple[Configuration, ...]
    config: TrainConfig

    @property
    def tuned(self) -> bool:
        """Whether there is a configuration to choose."""
        return len(self.configurations) > 1

    def tuning(self, model: str) -> list[Replica]:
        """The runs that a model's configuration is chosen by: every one on every split, with one seed."""
        return make_replicas(model, self.configurations, range(self.splits), [TUNING_SEED]) if self.tuned else []

    def final(self, model: str, configuration: Configuration) -> list[Replica]:
        """The runs of the chosen configuration: every split with every seed."""
        return make_replicas(model, [configuration], range(self.splits), range(self.seeds))

    def count(self, model: str) -> int:
        """Number of different runs of a model; the chosen configuration has some of its runs from tuning."""
        final = self.splits * self.seeds
        return len(self.tuning(model)) + final - self.splits if self.tuned else final

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Plan:
        """The plan that `to_json` has written down."""
        record = dict(content["dataset"])
        record["split_fingerprints"] = tuple(record["split_fingerprints"])
        return cls(
            dataset=DatasetRecord(**record),
            models=tuple(content["models"]),
            splits=content["splits"],
            seeds=content["seeds"],
            configurations=tuple(content["configurations"]),
            config=TrainConfig(**content["config"]),
        )


@dataclass(frozen=True)
class Comparison:
    """A comparison with its runs.

    Attributes:
        plan: What it consists of.
        rows: By model, the runs that its results are made of: those of the chosen configuration.
        selections: By model, how the configuration was chosen; empty where there was nothing to choose.
        incomplete: By model that has not all its runs yet, how many it has and how many it needs.
        gates: By level, the mean gate of each feature dimension, with what is known of the dimensions, see
            `gfgn.runs.gates`; `None` where it has not been worked out.
    """

    plan: Plan
    rows: dict[str, list[Row]]
    selections: dict[str, Selection]
    incomplete: dict[str, tuple[int, int]] = field(default_factory=dict)
    gates: dict[str, Any] | None = None

    @property
    def dataset(self) -> DatasetRecord:
        """What was compared on."""
        return self.plan.dataset

    @property
    def models(self) -> tuple[str, ...]:
        """The models that have all their runs, in the order given."""
        return tuple(self.rows)

    @property
    def runs(self) -> list[Row]:
        """The runs that the results are made of."""
        return [row for rows in self.rows.values() for row in rows]

    def of(self, model: str) -> list[Row]:
        """The runs of one model at its configuration."""
        return self.rows[model]

    def configuration(self, model: str) -> Configuration:
        """The configuration of a model."""
        return self.rows[model][0].replica.configuration

    def summary(self) -> dict[str, Summary]:
        """Mean, standard deviation and 95% interval of the test score, by model."""
        return {model: summarize(rows) for model, rows in self.rows.items()}

    @property
    def best_baseline(self) -> str | None:
        """The model other than GFGN with the best mean test score. Choosing it by the test score favours the
        baseline."""
        summary = {model: value for model, value in self.summary().items() if not is_gfgn(model)}
        return max(summary, key=lambda model: summary[model].mean, default=None)

    def gain(self, model: str) -> Summary | None:
        """The test score of a GFGN less that of the best baseline, paired by split and seed."""
        baseline = self.best_baseline
        if baseline is None or not is_gfgn(model):
            return None
        return difference(self.of(model), self.of(baseline))

    def significance(self, model: str) -> PairedTest | None:
        """The paired tests of a GFGN against the best baseline."""
        baseline = self.best_baseline
        if baseline is None or not is_gfgn(model):
            return None
        return paired_test(self.of(model), self.of(baseline))

    @property
    def settings(self) -> str:
        """How runs were trained, in words."""
        plan, config = self.plan, self.plan.config
        each = f"two layers and {HIDDEN} hidden units unless its paper says otherwise, Adam"
        length = f"at most {config.max_epochs} epochs, ending {config.patience} epochs after the best one"
        if not plan.tuned:
            return f"{each} with {in_words(plan.configurations[0])}, {length}"
        names = _ordered({name for configuration in plan.configurations for name in configuration})
        choices = {name: dict.fromkeys(each.get(name) for each in plan.configurations) for name in names}
        grid = "; ".join(f"{WORDS.get(name, name)} {' or '.join(map(_short, some))}" for name, some in choices.items())
        return (
            f"{each}, {length}; its configuration is the one with the best mean validation score over splits of a grid "
            f"of {len(plan.configurations)} ({grid})"
        )


def make_plan(
    dataset: Dataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    grid: Sequence[Configuration] | None = None,
    lr: float = 0.02,
    weight_decay: float = 5e-4,
    dropout: float = 0.5,
    lam: float = 1.0,
    max_epochs: int = 400,
    patience: int = 100,
) -> Plan:
    """What to train for a comparison, checked; see `compare` for the arguments."""
    models = tuple(models)
    _check(dataset, models, splits, seeds)
    shared = {"lr": lr, "weight_decay": weight_decay, "dropout": dropout, "lam": lam}
    configurations = tuple(grid) if grid is not None else (make_replica(shared).configuration,)
    if not configurations:
        raise ValueError("grid must hold at least one configuration, got none")
    return Plan(DatasetRecord.of(dataset), models, splits, seeds, configurations, TrainConfig(max_epochs, patience))


def compare(
    dataset: Dataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    store: Store | None = None,
    device: str = "cpu",
    callback: ProgressCallback | None = None,
    **settings: Any,
) -> Comparison:
    """Trains every model on the first `splits` splits with seeds 0 … `seeds` − 1. What the store has already is not
    trained again.

    Args:
        dataset: The dataset.
        models: Names of the models, see `gfgn.train.MODELS`.
        splits: Number of splits.
        seeds: Number of seeds for each split.
        store: Where runs are kept; in memory if not given.
        device: Where to train.
        callback: Is told how it goes.
        **settings: `grid`, the configurations to choose from for each model, such as `gfgn.runs.PAPER_GRID`: all
            are trained on every split with seed 0, and the one with the best mean validation score with the other seeds
            too. Without it all models share one configuration, of `lr`, `weight_decay`, `dropout` and `lam`. Also
            `max_epochs`, the largest number of epochs, and `patience`, epochs without improvement after which a run
            ends.
    """
    plan = make_plan(dataset, models, splits, seeds, **settings)
    if store is not None:
        return run_comparison(store, dataset, plan, device, callback)
    with Store(":memory:") as passing:
        return run_comparison(passing, dataset, plan, device, callback)


def run_comparison(
    store: Store, dataset: Dataset, plan: Plan, device: str = "cpu", callback: ProgressCallback | None = None
) -> Comparison:
    """Trains what the store lacks of a comparison.

    Args:
        store: Where runs are kept.
        dataset: What to train on, the one of the plan.
        plan: What to train.
        device: Where.
        callback: Is told how it goes.
    """
    callback = callback or ProgressCallback()
    store.note("comparison", dataset.name, plan.to_json())
    for model in plan.models:
        callback.begin(dataset.name, model, plan.count(model), count_runs(store, plan, model))
        chosen = plan.configurations[0]
        if plan.tuned:
            chosen = select(_study(store, dataset, model, plan.tuning(model), plan, device, callback)).best
        _study(store, dataset, model, plan.final(model, chosen), plan, device, callback)
        callback.end(dataset.name, model)
    return read_comparison(store, plan)


def _study(
    store: Store,
    dataset: Dataset,
    model: str,
    replicas: list[Replica],
    plan: Plan,
    device: str,
    callback: ProgressCallback,
) -> list[Row]:
    return run_study(
        store, dataset, model, replicas, plan.config, device, progress=callback.finished, status=callback.status
    )


def count_runs(store: Store, plan: Plan, model: str) -> int:
    """How many of a model's runs the store has."""
    tuning = store.find(plan.dataset, model, plan.tuning(model), plan.config)
    if None in tuning:  # the configuration is still open, and so are runs with further seeds
        return sum(row is not None for row in tuning)
    configuration = _chosen(plan, model, [row for row in tuning if row is not None])
    final = store.find(plan.dataset, model, plan.final(model, configuration), plan.config)
    return len({row.key for row in [*tuning, *final] if row is not None})


def read_comparison(store: Store, plan: Plan) -> Comparison:
    """A comparison as far as the store has its runs."""
    rows: dict[str, list[Row]] = {}
    selections: dict[str, Selection] = {}
    incomplete: dict[str, tuple[int, int]] = {}
    for model in plan.models:
        have, need = count_runs(store, plan, model), plan.count(model)
        if have < need:
            incomplete[model] = (have, need)
            continue
        tuning = [row for row in store.find(plan.dataset, model, plan.tuning(model), plan.config) if row is not None]
        if plan.tuned:
            selections[model] = select(tuning)
        final = plan.final(model, _chosen(plan, model, tuning))
        rows[model] = [row for row in store.find(plan.dataset, model, final, plan.config) if row is not None]
    gates = store.notes("gates").get(plan.dataset.name)
    if gates is not None and gates["fingerprint"] != plan.dataset.fingerprint:
        gates = None  # of another graph of that name
    return Comparison(plan, rows, selections, incomplete, gates)


def read_comparisons(store: Store) -> list[Comparison]:
    """All comparisons of a store, one a dataset, in the order in which they were made."""
    return [read_comparison(store, Plan.from_json(content)) for content in store.notes("comparison").values()]


def rank_models(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """The average rank by test score of the models that all comparisons have, over their datasets; ties averaged."""
    common = [model for model in comparisons[0].models if all(model in other.models for other in comparisons)]
    summaries = {comparison.dataset.name: comparison.summary() for comparison in comparisons}
    return average_ranks({model: {name: found[model].mean for name, found in summaries.items()} for model in common})


def in_words(configuration: Configuration, model: str | None = None) -> str:
    """A configuration in words; for a model without gates, without λ."""
    entry = MODELS.get(model or "")
    names = [name for name in _ordered(configuration) if name != "lam" or entry is None or entry.gated]
    return ", ".join(f"{WORDS.get(name, name)} {_short(configuration[name])}" for name in names)


def _ordered(names: Iterable[str]) -> list[str]:
    """What every model has first, in the usual order, then what is a model's own."""
    names = set(names)
    return [name for name in WORDS if name in names] + sorted(names - WORDS.keys())


def _chosen(plan: Plan, model: str, tuning: Sequence[Row]) -> Configuration:
    return select(tuning).best if plan.tuned else plan.configurations[0]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _check(dataset: Dataset, models: tuple[str, ...], splits: int, seeds: int) -> None:
    if not models:
        raise ValueError(f"models must name at least one of {', '.join(MODELS)}, got none")
    if len(set(models)) < len(models):
        raise ValueError(f"models must be different from each other, got {', '.join(models)}")
    for model in models:
        entry = find_model(model)
        if not entry.replicas:
            check_sampled(model, dataset, TrainConfig())
        if dataset.inductive and not entry.inductive:
            raise ValueError(
                f"models must run on graphs they have not seen for {dataset.name!r}, got {model}, which does not"
            )
    if not dataset.splits:
        raise ValueError(f"dataset must have labels to train on, {dataset.name!r} has none")
    if not 1 <= splits <= len(dataset.splits):
        raise ValueError(f"splits must be 1 to {len(dataset.splits)} for {dataset.name!r}, got {splits}")
    if seeds < 1:
        raise ValueError(f"seeds must be 1 or larger, got {seeds}")
