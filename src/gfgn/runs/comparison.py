"""`compare`: trains several models on one dataset over splits and seeds and keeps every run in a store.

Either all models share one configuration, or each model is tuned, on a grid or by a random search with successive
halving, on validation nodes only. The store keeps the plan too, so that a comparison can be reported from it alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypedDict, Unpack

from gfgn.data.dataset import NodeDataset
from gfgn.nn.entry import SHARED as SHARED_OPTIONS
from gfgn.nn.registry import MODELS, known_model
from gfgn.runs.engine import Engine, Job, ProgressCallback
from gfgn.runs.grid import MAX_CONFIGURATIONS, SPACE, Choice, Configuration, Space, distinct, make_replica, sample
from gfgn.runs.plan import run_plans
from gfgn.runs.record import DatasetRecord, is_gfgn
from gfgn.runs.results import Results
from gfgn.runs.store import Store, damaged
from gfgn.runs.study import Search, Study
from gfgn.train.catalog import CLASSICAL
from gfgn.train.classical import check_classical, find_network
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING, check_sampled

Comparison = Results  # what `compare` returns: the results of a study of one dataset
EXPLANATION = "explanation"  # the kind of note that `gfgn.runs.explain` keeps
DEFAULT_MODELS = ("majority", "mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
DEFAULTS: Configuration = {"lr": 0.02, "weight_decay": 5e-4, "dropout": 0.5, "lam": 1.0}  # of models not tuned


class Further(TypedDict, total=False):
    """Settings of all models of a comparison that are rarely given: hyperparameters with their own defaults, see
    `Replica` and `gfgn.nn.entry.SHARED`; `space`, what trials are drawn from; and the fields of `TrainConfig`."""

    input_dropout: float | None
    gate_decay: float | None
    features: str | None
    space: Space
    max_epochs: int
    patience: int
    clip: float | None
    schedule: str
    class_weights: bool
    graphs_per_step: int | None
    best: str
    tf32: bool


class Settings(Further, total=False):
    """How the models of a comparison are configured and trained, see `compare`."""

    lr: float | None
    weight_decay: float | None
    dropout: float | None
    lam: float | None
    options: Mapping[str, Configuration] | None
    grid: Sequence[Configuration] | None
    trials: int | None
    baseline: str | None


def compare(
    dataset: NodeDataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    lr: float | None = None,
    weight_decay: float | None = None,
    dropout: float | None = None,
    lam: float | None = None,
    options: Mapping[str, Configuration] | None = None,
    grid: Sequence[Configuration] | None = None,
    trials: int | None = None,
    baseline: str | None = None,
    store: Store | None = None,
    device: str = "cpu",
    callback: ProgressCallback | None = None,
    **further: Unpack[Further],
) -> Results:
    """Trains every model on the first `splits` splits with seeds 0 … `seeds` − 1, except runs that the store has.

    Args:
        models: Names of the models, see `gfgn.nn.find_model`; custom ones are `package.module:Class`.
        lr: Learning rate of all models; by default 0.02, or tuned with `grid` or `trials`. So are the next three.
        weight_decay: By default 5e-4.
        dropout: By default 0.5.
        lam: λ, by default 1.
        options: Hyperparameters and options of single models, by model. GFGNs have `gate_bias` 0 by default if
            features were centered.
        grid: Configurations to tune each model on, such as `gfgn.runs.PAPER_GRID`; all of them are trained to the end.
        trials: Number of random configurations to tune each model on, the same for all models. They train on every
            split with seed 0; successive halving stops the worse ones early, except for models that train on samples
            of the graph. The one with the best mean validation score is trained with all seeds. For a model with
            variants (GFGN+: its depth), one of these is part of each; without trials, all of them are tried.
        baseline: The model that all others are compared with; by default GFGNs are compared with the best other model.
        store: Where runs are kept; in memory by default.
        **further: See `Further`.
    """
    study = comparison_study(
        dataset, models, splits, seeds, lr=lr, weight_decay=weight_decay, dropout=dropout, lam=lam, options=options,
        grid=grid, trials=trials, baseline=baseline, **further,
    )  # fmt: skip
    if store is not None:
        return run_comparison(store, dataset, study, device, callback)
    with Store(":memory:") as temporary:
        return run_comparison(temporary, dataset, study, device, callback)


def comparison_study(
    dataset: NodeDataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    lr: float | None = None,
    weight_decay: float | None = None,
    dropout: float | None = None,
    lam: float | None = None,
    input_dropout: float | None = None,
    gate_decay: float | None = None,
    features: str | None = None,
    options: Mapping[str, Configuration] | None = None,
    grid: Sequence[Configuration] | None = None,
    trials: int | None = None,
    space: Space = SPACE,
    baseline: str | None = None,
    **training: Any,
) -> Study:
    """The study of a comparison, after checking its arguments; see `compare`."""
    models, options, config = tuple(models), options or {}, TrainConfig(**training)
    check_request(dataset, models, splits, seeds, config)
    _check_options(dataset, models, options)
    if grid is not None and trials is not None:
        raise ValueError(f"trials must not be given together with grid, got {trials}")
    if grid is not None and not grid:
        raise ValueError("grid must hold at least one configuration, got none")
    if trials is not None and not 1 <= trials <= MAX_CONFIGURATIONS:
        raise ValueError(f"trials must be 1 to {MAX_CONFIGURATIONS:,}, got {trials:,}")
    if features not in (None, *SHARED_OPTIONS["features"].values):
        expected = " or ".join(map(repr, SHARED_OPTIONS["features"].values))
        raise ValueError(f"features must be {expected}, got {features!r}")
    if baseline not in (None, *models):
        raise ValueError(f"baseline must be one of {', '.join(models)}, got {baseline!r}")
    if trials is not None:
        grid = sample(space, trials)
    given: Configuration = {"lr": lr, "weight_decay": weight_decay, "dropout": dropout, "lam": lam}
    given |= {"input_dropout": input_dropout, "gate_decay": gate_decay, "features": features}
    given = {name: value for name, value in given.items() if value is not None}
    shared = [make_replica(DEFAULTS | given).configuration]
    shared = shared if grid is None else distinct([configuration | given for configuration in grid])
    configurations: dict[str, tuple[Configuration, ...]] = {}
    # The gates read means of features, which tell nothing if all are 0.
    centered = dataset.encoder is not None and dataset.encoder.centered
    for model in models:
        fixed = {"gate_bias": 0.0} if centered and is_gfgn(model) else {}
        fixed |= options.get(model, {}) | ({} if model in CLASSICAL else find_network(model).fixed)
        entry, choices = known_model(model), shared
        if entry is not None and entry.variants and (grid is None or trials is not None):
            choices = variant_configurations(entry.variants, shared, given | fixed, trials is not None)
        configurations[model] = tuple(each | fixed for each in choices)
    study = _study(dataset.name, configurations, splits, seeds, config, trials, shared, baseline)
    for cell in study.all_cells():
        study.plan(cell)  # checks the number of runs
    return study


def variant_configurations(
    variants: Iterable[Mapping[str, Any]], configurations: Sequence[Configuration], given: Configuration, drawn: bool
) -> list[Configuration]:
    """The configurations of a model with variants: each of those of all models with every variant or, if `drawn`, with
    the options of one at random. What is `given` does not vary."""
    free = distinct({name: value for name, value in each.items() if name not in given} for each in variants)
    if not drawn:
        return [configuration | each for configuration in configurations for each in free]
    draws = sample({"variant": Choice(tuple(range(len(free))))}, len(configurations))
    return [free[draw["variant"]] | shared for shared, draw in zip(configurations, draws, strict=True)]


def _study(
    name: str,
    models: Mapping[str, tuple[Configuration, ...]],
    splits: int,
    seeds: int,
    config: TrainConfig,
    trials: int | None,
    shared: Sequence[Configuration],
    baseline: str | None,
) -> Study:
    return Study(
        name=name,
        title=f"{len(models)} models on {name}",
        about="",
        datasets=(name,),
        models=models,
        splits=splits,
        seeds=seeds,
        config=config,
        search=None if trials is None else Search(trials, 0, {}, rungs=None),
        shared=tuple(shared),
        baseline=baseline,
    )


def run_comparison(
    store: Store,
    dataset: NodeDataset,
    study: Study,
    device: str = "cpu",
    callback: ProgressCallback | None = None,
    engine: Engine = Job.run,
) -> Results:
    """Trains the runs of a comparison that the store lacks; `study` belongs to `dataset`."""
    record = DatasetRecord.of(dataset)
    keep_study(store, study, record)
    plans = [study.plan(cell) for cell in study.all_cells()]
    run_plans(store, dataset, plans, device, callback=callback, engine=engine)
    return read_comparison(store, study, record)


def keep_study(store: Store, study: Study, record: DatasetRecord) -> None:
    """Keeps a comparison in the store, with the models of an earlier call that differs from it in these alone. Another
    graph of the same name keeps its own."""
    name, notes = record.name, store.notes("comparison")
    if name in notes and _from_note(store, name, notes[name])[1].fingerprint != record.fingerprint:
        name = f"{name} {record.fingerprint}"
    parts = {part: getattr(study, part) for part in ("splits", "seeds", "shared")}
    parts |= {"models": list(study.models.items()), "config": asdict(study.config), "dataset": asdict(record)}
    parts |= {"trials": None if study.search is None else study.search.configurations}
    parts |= {} if study.baseline is None else {"baseline": study.baseline}
    note = json.loads(json.dumps(parts))
    same = [
        each | {"models": [], "dataset": each["dataset"] | {"directed": None}} for each in (note, notes.get(name, note))
    ]
    if name in notes and same[0] == same[1]:  # earlier releases did not keep whether a graph is directed
        note["models"] += [each for each in notes[name]["models"] if each[0] not in study.models]
    store.note("comparison", name, note)


def _from_note(store: Store, name: str, content: dict[str, Any]) -> tuple[Study, DatasetRecord]:
    """The comparison of a note; a damaged one is an error that names the store."""
    try:
        by_split = {part: tuple(content["dataset"][part]) for part in ("split_fingerprints", "guesses")}
        record = DatasetRecord(**{**content["dataset"], **by_split})
        models = {model: tuple(configurations) for model, configurations in content["models"]}
        config, baseline = TrainConfig(**content["config"]), content.get("baseline")
        rest = (content["splits"], content["seeds"], config, content["trials"], content["shared"], baseline)
        return _study(record.name, models, *rest), record
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise damaged(store.path, f"comparison {name!r}", error) from error


def read_comparison(store: Store, study: Study, record: DatasetRecord) -> Results:
    """A comparison with the runs that the store has."""
    stored = store.rows(dropped=True, dataset=record.name, dataset_fingerprint=record.fingerprint)
    own = [row for row in stored if row.config == study.config and row.model in study.models]
    splits = dict(enumerate(record.split_fingerprints))
    same = [row for row in own if (row.metric, row.split_fingerprint) == (record.metric, splits.get(row.split))]
    others = Counter(row.model for row in stored if not row.dropped)
    others -= Counter(row.model for row in own if not row.dropped)
    results = Results(study, same, {record.name: record}, others=dict(others))
    explanation = store.notes(EXPLANATION).get(record.name)
    keys = {row.key for rows in results.rows.values() for row in rows}
    run = (explanation or {}).get("run")
    if not isinstance(run, dict) or str(run.get("key")) not in keys:
        return results  # of another graph with the same name, or of a model that is not compared any more
    return replace(results, explanation=explanation)


def read_comparisons(store: Store) -> list[Results]:
    """All comparisons of a store, one per graph, in the order in which they were made. Of several graphs with the same
    name, the names end with the fingerprint."""
    kept = [_from_note(store, name, content) for name, content in store.notes("comparison").items()]
    names, comparisons = [record.name for _, record in kept], []
    for study, record in kept:
        comparison = read_comparison(store, study, record)
        if names.count(record.name) > 1:
            renamed = replace(record, name=f"{record.name} ({record.fingerprint[:8]})")
            comparison = replace(comparison, records={record.name: renamed})
        comparisons.append(comparison)
    return comparisons


def _check_options(dataset: NodeDataset, models: tuple[str, ...], options: Mapping[str, Configuration]) -> None:
    """Raises an error for options of models that are not compared, unknown options, and values of the wrong type."""
    for model, given in options.items():
        if model not in models or model in CLASSICAL:
            networks = ", ".join(each for each in models if each not in CLASSICAL) or "none"
            raise ValueError(f"options must be of the compared networks ({networks}), got some of {model!r}")
        replica = make_replica(given)
        further = [(name, value) for name, value in replica.options if name not in SAMPLING.get(model, ())]
        entry = find_network(model)
        settings = entry.settings(model, further, {"num_nodes": dataset.num_nodes})
        entry.check(model, dataset.num_features, dataset.num_classes, settings)


def check_request(dataset: NodeDataset, models: tuple[str, ...], splits: int, seeds: int, config: TrainConfig) -> None:
    """Raises an error for models, splits or seeds that cannot be trained on a dataset."""
    if not models:
        raise ValueError(f"models must name at least one of {', '.join((*MODELS, *CLASSICAL))}, got none")
    if len(set(models)) < len(models):
        raise ValueError(f"models must be different from each other, got {', '.join(models)}")
    for model in models:
        if model in CLASSICAL:
            check_classical(model, dataset)
            continue
        entry = find_network(model)
        if not entry.batchable:
            check_sampled(model, config)
        if dataset.inductive and not entry.inductive:
            raise ValueError(f"models must run on unseen graphs for {dataset.name!r}, got {model}, which does not")
    if not dataset.splits:
        raise ValueError(f"dataset must have labels to train on, {dataset.name!r} has none")
    if not 1 <= splits <= len(dataset.splits):
        raise ValueError(f"splits must be 1 to {len(dataset.splits)} for {dataset.name!r}, got {splits}")
    if config.class_weights and dataset.multilabel:
        raise ValueError(f"class_weights must be False for multi-label data, got True for {dataset.name!r}")
    if seeds < 1:
        raise ValueError(f"seeds must be 1 or larger, got {seeds}")
