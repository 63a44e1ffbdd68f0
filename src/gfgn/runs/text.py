"""Numbers as text, the same in the terminal, in the HTML report and on the pages of studies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gfgn.metrics import METRICS
from gfgn.nn.registry import known_model
from gfgn.runs.grid import Configuration
from gfgn.runs.record import further_settings
from gfgn.train.catalog import CLASSICAL
from gfgn.train.statistics import Summary

if TYPE_CHECKING:
    from gfgn.runs.results import Gap
    from gfgn.runs.study import Study

WORDS = {"lr": "learning rate", "weight_decay": "weight decay", "dropout": "dropout", "lam": "λ"}
WORDS |= {"input_dropout": "input dropout", "gate_decay": "decay of gates"}
NONE = "–"  # where there is no value


def unit(metric: str) -> str:
    """What follows a score: scores are shown in percent, except for the log loss."""
    return "%" if METRICS[metric].percent else ""


def scale(metric: str) -> float:
    """What a score is multiplied with to be shown."""
    return 100.0 if unit(metric) else 1.0


def heading(metric: str) -> str:
    """The name of a metric with its unit."""
    return f"{METRICS[metric].title}, %" if unit(metric) else METRICS[metric].title


def score(value: float, metric: str, digits: int | None = None, sign: str = "") -> str:
    """A score in percent, or the log loss as it is; with one digit, or three for the log loss."""
    if math.isnan(value):
        return NONE
    digits = digits if digits is not None else 1 if unit(metric) else 3
    return f"{scale(metric) * value:{sign}.{digits}f}".replace("-", "−")


def mean_and_std(mean: float, std: float, runs: int, metric: str, digits: int | None = None) -> str:
    """Mean ± standard deviation; the mean only for a single run."""
    return score(mean, metric, digits) + (f" ± {score(std, metric, digits)}" if runs > 1 else "")


def percent(summary: Summary, metric: str) -> str:
    """Mean ± standard deviation."""
    return mean_and_std(summary.mean, summary.std, summary.runs, metric)


def divergence(model: str, diverged: int, runs: int) -> str:
    """`gcn: 2 of 4 runs diverged (no epoch with a finite loss), so it has no score`."""
    return f"{model}: {diverged:,} of {count(runs, 'run')} diverged (no epoch with a finite loss), so it has no score"


def bounds(summary: Summary, metric: str) -> tuple[float, float]:
    """The 95% interval of a mean score without what lies outside of the possible scores; NaN if there is none."""
    lowest, highest = (0.0, 1.0) if unit(metric) else (-math.inf, 0.0)
    return max(summary.low, lowest), min(summary.high, highest)


def interval(summary: Summary, metric: str, digits: int | None = None) -> str:
    """The 95% interval of a mean score; a dash if there is none, with a single split or equal scores on all."""
    low, high = (score(bound, metric, digits) for bound in bounds(summary, metric))
    return NONE if math.isnan(summary.low) or summary.low == summary.high else f"[{low}, {high}]"


def gain(difference: Summary | Gap, metric: str) -> str:
    """A difference in percentage points, or of the log loss, with its 95% interval if there is one; `equal` if the
    scores are the same on every split."""
    if difference.mean == difference.low == difference.high == 0:
        return "equal"
    mean, low, high = (score(value, metric, sign="+") for value in (difference.mean, difference.low, difference.high))
    return mean if math.isnan(difference.low) or difference.low == difference.high else f"{mean} [{low}, {high}]"


def p_value(value: float | None) -> str:
    """A p-value with three digits; empty if there is none."""
    if value is None or math.isnan(value):
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def short_names(models: Iterable[str], longest: int = 24) -> dict[str, str]:
    """The names of models in tables: of a long `package.module:Class` the class, if no other model is called so."""
    short = {model: model.rpartition(":")[2] if len(model) > longest else model for model in models}
    names = list(short.values())
    return {model: name if names.count(name) == 1 else model for model, name in short.items()}


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def edges_in_words(number: int, directed: bool | None) -> str:
    """The edges of a graph that stores an undirected one in both directions; `directed` is `None` if not known."""
    if directed is None:
        return f"{number:,} edges, those of an undirected graph counted twice"
    return f"{number:,} directed edges" if directed else count(number // 2, "edge")


def duration(seconds: float) -> str:
    """`12 s`, `3 min 20 s` or `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


# --- how runs were trained --------------------------------------------------------------------------------------------


def in_words(configuration: Configuration, model: str | None = None) -> str:
    """A configuration as text, without what the model ignores."""
    entry = known_model(model) if model else None
    names = [name for name in _ordered(configuration) if entry is None or name not in entry.ignored]
    return ", ".join(f"{WORDS.get(name, name)} {_short(configuration[name])}" for name in names)


def describe_training(study: Study) -> str:
    """How the runs of a study of one dataset are trained, as text."""
    config, networks = study.config, [model for model in study.models if model not in CLASSICAL]
    length = f"at most {config.max_epochs} epochs, early stopping after {config.patience} epochs"
    if config.best == "last":
        length = f"{config.max_epochs} epochs, the last of which counts"
    further = further_settings(replace(config, best="score") if config.best == "last" else config)
    length += "".join(f", {name} {_short(value)}" for name, value in further.items())
    shared, sizes = study.shared, _sizes(study, networks)
    if not shared and all(len(study.models[model]) == 1 for model in networks):  # what they have in common
        first, *others = [study.models[model][0] for model in networks] or [{}]
        shared = ({k: v for k, v in first.items() if all(k in each and each[k] == v for each in others)},)
    details = "".join(_differences(model, study, shared) for model in networks)
    if len(shared) == 1:
        return f"{sizes}, Adam with {in_words(shared[0])}, {length}{details}"
    names = _ordered({name for configuration in shared for name in configuration})
    if study.search is not None:
        drawn = ", ".join(WORDS.get(name, name) for name in names or study.search.space)
        count = f"{study.search.configurations} random ones ({drawn})"
        halved = study.search.rungs != ()
        source = f"{count}, the worse ones stopped early by successive halving" if halved else count
    elif shared:
        source = f"a grid of {len(shared)} ({_listed({name: [each.get(name) for each in shared] for name in names})})"
    else:
        source = "its grid (" + ", ".join(f"{model}: {len(study.models[model])}" for model in networks) + ")"
    return (
        f"{sizes}, Adam, {length}; its configuration is the one with the best mean validation score of {source}"
        f"{details}"
    )


def _sizes(study: Study, networks: Sequence[str]) -> str:
    """`2 layers and 64 hidden units (sgc: no hidden units)`: what most networks have, and the exceptions."""
    sizes: dict[str, list[str]] = {}
    for model, name in short_names(networks).items():
        entry, words = known_model(model), list[str]()
        for option in ("layers", "hidden"):
            if entry is not None and (parameter := entry.parameters.get(option)):
                values = dict.fromkeys(str(each.get(option, parameter.default)) for each in study.models[model])
                words.append(f"{' or '.join(values)} {'layers' if option == 'layers' else parameter.meaning}")
        custom = entry is None or entry.custom
        sizes.setdefault("the sizes it sets" if custom else " and ".join(words) or "no hidden units", []).append(name)
    common = max(sizes, key=lambda words: len(sizes[words]), default="no networks")
    others = [f"{', '.join(names)}: {words}" for words, names in sizes.items() if words != common]
    return f"{common} ({'; '.join(others)})" if others else common


def _differences(model: str, study: Study, shared: Sequence[Configuration]) -> str:
    """What the configurations of a model have beside those of all models."""
    if not shared:
        return ""
    given = {name: dict.fromkeys(each.get(name) for each in study.models[model]) for name in study.models[model][0]}
    same = {name: dict.fromkeys(each[name] for each in shared if name in each) for name in given}
    differ = {name: list(values) for name, values in given.items() if values != same[name]}
    text = ""
    if fixed := {name: values[0] for name, values in differ.items() if len(values) == 1}:
        text += f"; {model} with {in_words(fixed, model)}"
    if varied := {name: values for name, values in differ.items() if len(values) > 1 and name not in WORDS}:
        text += f"; {model} with the best {_listed(varied)} on validation"
    return text


def _listed(values: Mapping[str, Iterable[object]]) -> str:
    """Hyperparameters and options with their values, as text: `dropout 0.5 or 0.8; layers 1 or 12`."""
    return "; ".join(
        f"{WORDS.get(name, name)} {' or '.join(dict.fromkeys(map(_short, each)))}" for name, each in values.items()
    )


def _ordered(names: Iterable[str]) -> list[str]:
    """The hyperparameters that every model has, then the options of models in alphabetical order."""
    names = set(names)
    return [name for name in WORDS if name in names] + sorted(names - WORDS.keys())


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
