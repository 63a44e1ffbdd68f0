"""`compare`: trains several models on one dataset over splits and seeds and keeps every run in a store.

Either all models share one configuration, or each model is tuned, on a grid or by a random search with successive
halving, on validation nodes only. The store keeps the plan too, so that a comparison can be reported from it alone.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gfgn.data.dataset import NodeDataset
from gfgn.nn.custom import is_import_name
from gfgn.nn.entry import SHARED as SHARED_OPTIONS
from gfgn.nn.registry import HIDDEN, MODELS, known_model
from gfgn.runs.engine import Engine, Job, ProgressCallback
from gfgn.runs.grid import MAX_CONFIGURATIONS, Configuration, make_replica
from gfgn.runs.plan import read_from_store, run_plans
from gfgn.runs.record import DatasetRecord, RunRecord, further_settings, is_gfgn
from gfgn.runs.search import SPACE, Choice, Space, sample
from gfgn.runs.selection import Selection
from gfgn.runs.store import Store, damaged
from gfgn.runs.study import Search, Study
from gfgn.train.catalog import CLASSICAL
from gfgn.train.classical import check_classical, find_network
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING, check_sampled
from gfgn.train.statistics import PairedTest, Summary, average_ranks, difference, paired_test, summarize

EXPLANATION = "explanation"  # the kind of note that `gfgn.runs.explain` keeps
DEFAULT_MODELS = ("majority", "mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
SHARED = {"lr": 0.02, "weight_decay": 5e-4, "dropout": 0.5, "lam": 1.0}  # the configuration of models not tuned
WORDS = {"lr": "learning rate", "weight_decay": "weight decay", "dropout": "dropout", "lam": "λ"}
WORDS |= {"input_dropout": "input dropout", "gate_decay": "decay of gates"}


@dataclass(frozen=True)
class Comparison:
    """A comparison with its runs: a study of one dataset.

    Attributes:
        dataset: What the store knows about the dataset.
        rows: By model, the runs of the chosen configuration; models that lack runs are left out.
        selections: By model, how the configuration was chosen; empty if there was nothing to choose.
        incomplete: By model that lacks runs, how many it has and how many it needs.
        explanation: What `gfgn.runs.explain` returned; `None` if it has not been computed for these runs.
        others: By model, the number of further runs on this graph in the store, which were trained otherwise.
    """

    study: Study
    dataset: DatasetRecord
    rows: dict[str, list[RunRecord]]
    selections: dict[str, Selection] = field(default_factory=dict)
    incomplete: dict[str, tuple[int, int]] = field(default_factory=dict)
    explanation: dict[str, Any] | None = None
    others: dict[str, int] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that have all their runs, in the given order."""
        return tuple(self.rows)

    def summary(self) -> dict[str, Summary]:
        """Mean, standard deviation and 95% interval of the test score by model."""
        return {model: summarize(rows, self.dataset.test_share) for model, rows in self.rows.items()}

    @property
    def best_baseline(self) -> str | None:
        """The model other than GFGN with the best mean test score. Choosing it by test score favors the baseline."""
        summary = {model: value for model, value in self.summary().items() if not is_gfgn(model)}
        summary = {model: value for model, value in summary.items() if not math.isnan(value.mean)}
        return max(summary, key=lambda model: summary[model].mean, default=None)

    @property
    def diverged(self) -> dict[str, int]:
        """By model with runs that diverged, their number; such a model has no mean score."""
        counts = {model: sum(row.diverged for row in rows) for model, rows in self.rows.items()}
        return {model: number for model, number in counts.items() if number}

    @property
    def scored(self) -> tuple[str, ...]:
        """The models that have a mean test score: all their runs, none of which diverged."""
        return tuple(model for model, summary in self.summary().items() if not math.isnan(summary.mean))

    def gain(self, model: str) -> Summary | None:
        """The test score of a GFGN minus that of the best baseline, paired by split and seed."""
        baseline = self.best_baseline
        if baseline is None or not is_gfgn(model) or model not in self.scored:
            return None
        return difference(self.rows[model], self.rows[baseline], self.dataset.test_share)

    def significance(self, model: str) -> PairedTest | None:
        """The paired test of a GFGN against the best baseline."""
        baseline = self.best_baseline
        if baseline is None or not is_gfgn(model) or model not in self.scored:
            return None
        return paired_test(self.rows[model], self.rows[baseline], self.dataset.test_share)

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON values: one entry per model, scores as fractions, `None` for what is not known."""
        models = []
        for model, summary in self.summary().items():
            rows, chosen = self.rows[model], self.selections.get(model)
            entry: dict[str, Any] = {
                "model": model,
                **{name: _finite(value) for name, value in summary._asdict().items()},
            }
            entry["val"] = _finite(math.fsum(row.val for row in rows) / len(rows))
            entry["diverged"] = self.diverged.get(model, 0)
            entry["seconds"] = math.fsum(row.seconds for row in rows) / len(rows)
            entry["parameters"] = rows[0].num_parameters
            entry["configuration"] = None if model in CLASSICAL else rows[0].replica.configuration
            entry["tried"] = len(chosen.candidates) if chosen else 1
            models.append(entry)
        by_split = ("split_fingerprints", "guesses")
        dataset = {name: value for name, value in asdict(self.dataset).items() if name not in by_split}
        study, trials = self.study, None if self.study.search is None else self.study.search.configurations
        plan = {"splits": study.splits, "seeds": study.seeds, "trials": trials}
        incomplete = {model: list(counts) for model, counts in self.incomplete.items()}
        return {"dataset": dataset, **plan, "settings": self.settings, "models": models, "incomplete": incomplete}

    @property
    def settings(self) -> str:
        """How runs were trained, as text."""
        return describe_training(self.study)


def describe_training(study: Study) -> str:
    """How the runs of a comparison are trained, as text."""
    config, shared = study.config, study.shared
    networks = [model for model in study.models if model not in CLASSICAL]
    sizes = f"two layers and {HIDDEN} hidden units unless its paper says otherwise"
    if any(is_import_name(model) for model in networks):
        sizes += ", a custom one with those that it sets"
    length = f"at most {config.max_epochs} epochs, early stopping after {config.patience} epochs"
    if config.best == "last":
        length = f"{config.max_epochs} epochs, the last of which counts"
    further = further_settings(replace(config, best="score") if config.best == "last" else config)
    length += "".join(f", {name} {_short(value)}" for name, value in further.items())
    also = ""
    for model in networks:
        given = {name: dict.fromkeys(each.get(name) for each in study.models[model]) for name in study.models[model][0]}
        same = {name: dict.fromkeys(each[name] for each in shared if name in each) for name in given}
        own = {name: list(values) for name, values in given.items() if values != same[name]}
        if fixed := {name: values[0] for name, values in own.items() if len(values) == 1}:
            length += f"; {model} with {in_words(fixed, model)}"
        if varied := {name: values for name, values in own.items() if len(values) > 1 and name not in WORDS}:
            also += f"; {model} with the best {_listed(varied)} on validation"
    if len(shared) == 1:
        return f"{sizes}, Adam with {in_words(shared[0])}, {length}{also}"
    names = _ordered({name for configuration in shared for name in configuration})
    if study.search is not None:
        drawn = ", ".join(WORDS.get(name, name) for name in names)
        source = (
            f"{study.search.configurations} random ones ({drawn}), the worse ones stopped early by successive halving"
        )
    else:
        source = f"a grid of {len(shared)} ({_listed({name: [each.get(name) for each in shared] for name in names})})"
    return (
        f"{sizes}, Adam, {length}; its configuration is the one with the best mean validation score of {source}{also}"
    )


def comparison_study(
    dataset: NodeDataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    grid: Sequence[Configuration] | None = None,
    trials: int | None = None,
    space: Space = SPACE,
    lr: float | None = None,
    weight_decay: float | None = None,
    dropout: float | None = None,
    lam: float | None = None,
    input_dropout: float | None = None,
    gate_decay: float | None = None,
    features: str | None = None,
    options: Mapping[str, Configuration] | None = None,
    **training: Any,
) -> Study:
    """The study of a comparison, after checking its arguments; see `compare`."""
    models, options, config = tuple(models), options or {}, TrainConfig(**training)
    _check(dataset, models, splits, seeds, config)
    _check_options(dataset, models, options)
    if dataset.encoder is not None and dataset.encoder.centered:
        # The gates read means of features, which tell nothing if all are 0.
        biased: dict[str, Configuration] = {model: {"gate_bias": 0.0} for model in models if is_gfgn(model)}
        options = {model: biased.get(model, {}) | options.get(model, {}) for model in {**biased, **options}}
    own = {model: entry.fixed for model in models if model not in CLASSICAL and (entry := find_network(model)).custom}
    options = {model: options.get(model, {}) | own.get(model, {}) for model in {**options, **own}}
    if grid is not None and trials is not None:
        raise ValueError(f"trials must not be given together with grid, got {trials}")
    if grid is not None and not grid:
        raise ValueError("grid must hold at least one configuration, got none")
    if trials is not None and trials < 1:
        raise ValueError(f"trials must be 1 or larger, got {trials}")
    if trials is not None and trials > MAX_CONFIGURATIONS:
        raise ValueError(f"trials must be at most {MAX_CONFIGURATIONS:,}, got {trials:,}")
    if features not in (None, *SHARED_OPTIONS["features"].values):
        expected = " or ".join(map(repr, SHARED_OPTIONS["features"].values))
        raise ValueError(f"features must be {expected}, got {features!r}")
    if trials is not None:
        grid = sample(space, trials)
    given: Configuration = {"lr": lr, "weight_decay": weight_decay, "dropout": dropout, "lam": lam}
    given |= {"input_dropout": input_dropout, "gate_decay": gate_decay, "features": features}
    fixed = {name: value for name, value in given.items() if value is not None}
    shared = [make_replica(SHARED | fixed).configuration]
    configurations = shared if grid is None else _distinct([configuration | fixed for configuration in grid])
    networks = {model: known_model(model) for model in models}
    varied = {
        model: own_configurations(network.variants, configurations, fixed | options.get(model, {}), trials is not None)
        for model, network in networks.items()
        if network is not None and network.variants and (grid is None or trials is not None)
    }
    study = Study(
        name=dataset.name,
        title=f"{len(models)} models on {dataset.name}",
        about="",
        datasets=(dataset.name,),
        models={
            model: tuple(each | options.get(model, {}) for each in varied.get(model, configurations))
            for model in models
        },
        splits=splits,
        seeds=seeds,
        config=config,
        search=None if trials is None else Search(trials, 0, {}, rungs=None),
        shared=tuple(configurations),
    )
    for cell in study.all_cells():
        study.plan(cell)  # checks the number of runs
    return study


def own_configurations(
    variants: Iterable[Mapping[str, Any]], configurations: Sequence[Configuration], given: Configuration, drawn: bool
) -> list[Configuration]:
    """The configurations of a model with variants: each of those of all models with every variant or, if `drawn`, with
    the options of one at random. What is `given` does not vary."""
    own = _distinct({name: value for name, value in each.items() if name not in given} for each in variants)
    if not drawn:
        return [configuration | each for configuration in configurations for each in own]
    draws = sample({"variant": Choice(tuple(range(len(own))))}, len(configurations))
    return [own[draw["variant"]] | shared for shared, draw in zip(configurations, draws, strict=True)]


def compare(
    dataset: NodeDataset,
    models: Sequence[str] = DEFAULT_MODELS,
    splits: int = 4,
    seeds: int = 1,
    *,
    trials: int | None = None,
    grid: Sequence[Configuration] | None = None,
    store: Store | None = None,
    device: str = "cpu",
    callback: ProgressCallback | None = None,
    **settings: Any,
) -> Comparison:
    """Trains every model on the first `splits` splits with seeds 0 … `seeds` − 1, except runs that the store has.

    Args:
        models: Names of the models, see `gfgn.nn.find_model`; of one's own: `package.module:Class`.
        trials: Number of random configurations to tune each model on, the same for all models. They train on every
            split with seed 0; successive halving stops the worse ones early, except for models that train on samples
            of the graph. The one with the best mean validation score is trained with all seeds. For a model with
            variants (GFGN+: its depth), one of these is part of each; without trials, all of them are tried.
        grid: Configurations to tune each model on, such as `gfgn.runs.PAPER_GRID`; all of them are trained to the end.
        store: Where runs are kept; in memory by default.
        **settings: `lr`, `weight_decay`, `dropout` and `lam`, which all models share; those that are not given are
            0.02, 5e-4, 0.5 and 1, or tuned with `grid` or `trials`. `input_dropout`, `gate_decay` and `features`, by
            default `dropout`, `weight_decay` and `"given"`, see `Replica` and `gfgn.nn.entry.SHARED`. `options`,
            hyperparameters and options of single models, by model; GFGNs have `gate_bias` 0 by default if features
            were centered. `space`, what `trials` are drawn from. The arguments of `TrainConfig`, such as
            `max_epochs`, `patience` and `class_weights`.
    """
    study = comparison_study(dataset, models, splits, seeds, trials=trials, grid=grid, **settings)
    if store is not None:
        return run_comparison(store, dataset, study, device, callback)
    with Store(":memory:") as temporary:
        return run_comparison(temporary, dataset, study, device, callback)


def run_comparison(
    store: Store,
    dataset: NodeDataset,
    study: Study,
    device: str = "cpu",
    callback: ProgressCallback | None = None,
    engine: Engine = Job.run,
) -> Comparison:
    """Trains the runs of a comparison that the store lacks; `study` belongs to `dataset`."""
    record = DatasetRecord.of(dataset)
    _keep_study(store, study, record)
    run_plans(
        store, dataset, [study.plan(cell) for cell in study.all_cells()], device, callback=callback, engine=engine
    )
    return read_comparison(store, study, record)


def _keep_study(store: Store, study: Study, record: DatasetRecord) -> None:
    """Keeps a comparison in the store, with the models of an earlier call that differs from it in these alone. Another
    graph of the same name keeps its own."""
    name, notes = record.name, store.notes("comparison")
    if name in notes and _from_note(store, name, notes[name])[1].fingerprint != record.fingerprint:
        name = f"{name} {record.fingerprint}"
    note = json.loads(json.dumps(_to_note(study, record)))
    if name in notes and {**notes[name], "models": []} == {**note, "models": []}:
        note["models"] += [each for each in notes[name]["models"] if each[0] not in study.models]
    store.note("comparison", name, note)


def _to_note(study: Study, record: DatasetRecord) -> dict[str, Any]:
    """A comparison as the store keeps it."""
    parts = {name: getattr(study, name) for name in ("models", "splits", "seeds", "shared")}
    trials = None if study.search is None else study.search.configurations
    return {**parts, "models": list(study.models.items()), "config": asdict(study.config), "trials": trials} | {
        "dataset": asdict(record)
    }


def _from_note(store: Store, name: str, content: dict[str, Any]) -> tuple[Study, DatasetRecord]:
    """The comparison of a note; a damaged one is an error that names the store."""
    try:
        by_split = {name: tuple(content["dataset"][name]) for name in ("split_fingerprints", "guesses")}
        record = DatasetRecord(**{**content["dataset"], **by_split})
        study = Study(
            name=record.name,
            title=f"{len(content['models'])} models on {record.name}",
            about="",
            datasets=(record.name,),
            models={model: tuple(configurations) for model, configurations in content["models"]},
            splits=content["splits"],
            seeds=content["seeds"],
            config=TrainConfig(**content["config"]),
            search=None if content["trials"] is None else Search(content["trials"], 0, {}, rungs=None),
            shared=tuple(content["shared"]),
        )
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise damaged(store.path, f"comparison {name!r}", error) from error
    return study, record


def read_comparison(store: Store, study: Study, record: DatasetRecord) -> Comparison:
    """A comparison with the runs that the store has."""
    results = {cell.model: read_from_store(study.plan(cell), store, record) for cell in study.all_cells()}
    complete = {model: result for model, result in results.items() if result.rows}
    explanation = store.notes(EXPLANATION).get(record.name)
    keys = {row.key for result in complete.values() for row in result.rows}
    stored = store.rows(dataset=record.name, dataset_fingerprint=record.fingerprint)
    own = [row for row in stored if row.config == study.config and row.model in study.models]
    if explanation is not None and _explained_key(explanation) not in keys:
        explanation = None  # of another graph with the same name, or of a model that is not compared any more
    return Comparison(
        study,
        record,
        rows={model: list(result.rows) for model, result in complete.items()},
        selections={
            model: result.selection
            for model, result in complete.items()
            if len(study.models[model]) > 1 and result.selection and model not in CLASSICAL
        },
        incomplete={model: (result.have, result.need) for model, result in results.items() if not result.rows},
        explanation=explanation,
        others=dict(Counter(row.model for row in stored) - Counter(row.model for row in own)),
    )


def _explained_key(explanation: dict[str, Any]) -> object:
    run = explanation.get("run")
    return str(run.get("key")) if isinstance(run, dict) else None


def read_comparisons(store: Store) -> list[Comparison]:
    """All comparisons of a store, one per graph, in the order in which they were made. Of several graphs with the same
    name, the names end with the fingerprint."""
    kept = [_from_note(store, name, content) for name, content in store.notes("comparison").items()]
    names = [record.name for _, record in kept]
    return [_renamed(read_comparison(store, *each), names.count(each[1].name) > 1) for each in kept]


def _renamed(comparison: Comparison, ambiguous: bool) -> Comparison:
    data = comparison.dataset
    if not ambiguous:
        return comparison
    return replace(comparison, dataset=replace(data, name=f"{data.name} ({data.fingerprint[:8]})"))


def rank_models(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """The average rank by test score, over datasets, of the models that all comparisons have; ties are averaged."""
    common = [model for model in comparisons[0].scored if all(model in other.scored for other in comparisons)]
    summaries = {comparison.dataset.name: comparison.summary() for comparison in comparisons}
    means = {model: {name: summary[model].mean for name, summary in summaries.items()} for model in common}
    return average_ranks(means)


def in_words(configuration: Configuration, model: str | None = None) -> str:
    """A configuration as text, without what the model ignores."""
    entry = known_model(model) if model else None
    names = [name for name in _ordered(configuration) if entry is None or name not in entry.ignored]
    return ", ".join(f"{WORDS.get(name, name)} {_short(configuration[name])}" for name in names)


def _listed(values: Mapping[str, Iterable[Any]]) -> str:
    """Hyperparameters and options with their values, as text: `dropout 0.5 or 0.8; layers 1 or 12`."""
    return "; ".join(
        f"{WORDS.get(name, name)} {' or '.join(dict.fromkeys(map(_short, each)))}" for name, each in values.items()
    )


def _ordered(names: Iterable[str]) -> list[str]:
    """The hyperparameters that every model has, then the options of models in alphabetical order."""
    names = set(names)
    return [name for name in WORDS if name in names] + sorted(names - WORDS.keys())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _distinct(configurations: Iterable[Configuration]) -> list[Configuration]:
    return list({tuple(sorted(each.items())): each for each in configurations}.values())


def _check_options(dataset: NodeDataset, models: tuple[str, ...], options: Mapping[str, Configuration]) -> None:
    """Raises an error for options of models that are not compared, unknown options, and values of the wrong type."""
    for model, own in options.items():
        if model not in models or model in CLASSICAL:
            networks = ", ".join(each for each in models if each not in CLASSICAL) or "none"
            raise ValueError(f"options must be of the compared networks ({networks}), got some of {model!r}")
        replica = make_replica(own)
        further = [(name, value) for name, value in replica.options if name not in SAMPLING.get(model, ())]
        entry = find_network(model)
        settings = entry.settings(model, further, {"num_nodes": dataset.num_nodes})
        entry.check(model, dataset.num_features, dataset.num_classes, settings)


def _check(dataset: NodeDataset, models: tuple[str, ...], splits: int, seeds: int, config: TrainConfig) -> None:
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
