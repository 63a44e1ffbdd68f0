"""Studies as YAML files: `read_study` reads and checks one.

Numbers with an exponent need a point (`5.0e-4`), because YAML reads `5e-4` as text.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn

import torch

from gfgn.data.datasets.registry import DATASETS
from gfgn.nn.registry import MODELS
from gfgn.runs.grid import Configuration, grid, make_replicas
from gfgn.runs.record import HYPER
from gfgn.runs.study import AXES, MEASURES, At, Axis, Fact, Published, Study, StudyError, Variant
from gfgn.runs.views import View
from gfgn.train.config import TrainConfig
from gfgn.train.minibatch import SAMPLING


def read_study(path: Path) -> Study:
    """Reads a study from a YAML file and checks that everything it names exists."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise StudyError(f"{path} must be a YAML file, got one that cannot be read: {error}") from None
    return make_study(content, path.stem)


def make_study(content: Any, name: str) -> Study:
    """Makes a study from the content of a YAML file and checks it."""
    reader = _Reader(name)
    required = {"title", "datasets", "models", "grid", "splits", "seeds", "training"}
    reader.keys("the study", content, required, {"about", "training_of", "vary", "only", "published"})
    datasets = reader.datasets("datasets", content["datasets"])
    models = reader.models(content["models"], content["grid"])
    config = reader.config("training", content["training"])
    vary = reader.axis(content.get("vary"))
    return Study(
        name=name,
        title=reader.text("title", content["title"]),
        about=reader.text("about", content.get("about", "")),
        datasets=datasets,
        models=models,
        splits=reader.count("splits", content["splits"]),
        seeds=reader.count("seeds", content["seeds"]),
        config=config,
        configs=reader.configs(content.get("training_of", {}), models, config, vary),
        vary=vary,
        variants={} if vary is None else reader.variants(vary, content, Variant(View(), models, config)),
        only=reader.only(content.get("only", {}), models, datasets),
        published=reader.published(content.get("published", {})),
    )


class _Reader:
    """Checks the parts of a study; messages begin with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fail(self, message: str) -> NoReturn:
        raise StudyError(f"study {self.name}: {message}")

    def keys(self, what: str, content: Any, required: Iterable[str], optional: Iterable[str] = ()) -> None:
        """Checks for a mapping with all required keys and no unknown ones."""
        required, known = set(required), [*sorted(required), *sorted(optional)]
        if not isinstance(content, dict):
            self.fail(f"{what} must be a mapping with {', '.join(known)}, got {content!r}")
        for key in content:
            if key not in known:
                self.fail(f"{what} must have keys among {', '.join(known)}, got {key!r}")
        missing = sorted(required - content.keys())
        if missing:
            self.fail(f"{what} must have {', '.join(missing)}, got {', '.join(content) or 'nothing'}")

    def text(self, what: str, value: Any) -> str:
        if not isinstance(value, str):
            self.fail(f"{what} must be text, got {value!r}")
        return " ".join(value.split())

    def count(self, what: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.fail(f"{what} must be a whole number, 1 or larger, got {value!r}")
        return value

    def number(self, what: str, value: Any) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            hint = "; YAML needs a point in numbers with an exponent: 5.0e-4" if isinstance(value, str) else ""
            self.fail(f"{what} must be a finite number, got {value!r}{hint}")
        return float(value)

    def mapping(self, what: str, content: Any) -> dict[str, Any]:
        if not isinstance(content, dict):
            self.fail(f"{what} must be a mapping, got {content!r}")
        return content

    def known(self, what: str, name: Any, names: Iterable[str]) -> str:
        names = list(names)
        if name not in names:
            self.fail(f"{what} must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}")
        return str(name)

    def datasets(self, what: str, names: Any, among: Iterable[str] = tuple(DATASETS)) -> tuple[str, ...]:
        if not isinstance(names, list) or not names or len(set(names)) < len(names):
            self.fail(f"{what} must be a list of one or more distinct names, got {names!r}")
        return tuple(self.known(what, name, among) for name in names)

    def models(
        self, content: Any, shared: Any, changes: Mapping[str, Any] | None = None, where: str = ""
    ) -> dict[str, tuple[Configuration, ...]]:
        """Each model's configurations: a model's own choices override the shared grid, a variant's override both."""
        shared = self.mapping("grid", shared)
        for name in shared:
            self.known("grid", name, HYPER)
        if not self.mapping("models", content):
            self.fail(f"models must name at least one of {', '.join(MODELS)}, got none")
        return {
            self.known("models", model, MODELS): self._grid(
                f"{where}models.{model}", model, self.mapping(f"models.{model}", own) | dict(changes or {}), shared
            )
            for model, own in content.items()
        }

    def _grid(self, where: str, model: str, own: dict[str, Any], shared: dict[str, Any]) -> tuple[Configuration, ...]:
        entry = MODELS[model]
        gated = [name for name in HYPER if name != "lam" or entry.gated]
        choices = {name: values for name, values in shared.items() if name in gated} | own
        for name, values in choices.items():
            what = f"{where}.{name}"
            self.known(where, name, [*gated, *entry.parameters, *SAMPLING.get(model, ())])
            if not isinstance(values, list) or not values:
                self.fail(f"{what} must be a list of one or more values, got {values!r}")
            if name in HYPER:
                choices[name] = [self.number(what, value) for value in values]
        try:
            configurations = grid(**choices)
            for replica in make_replicas(model, configurations, [0]):
                options = tuple((name, value) for name, value in replica.options if name in entry.parameters)
                settings = entry.settings(model, options, dict.fromkeys(entry.needs, 1))
                with torch.device("meta"):
                    entry.build(1, 2, 0.5, 1.0, settings)
        except (ValueError, TypeError) as error:
            self.fail(f"{where}: {error}")
        return tuple(configurations)

    def config(self, what: str, content: Any) -> TrainConfig:
        names = [setting.name for setting in fields(TrainConfig)]
        self.keys(what, content, names[:2], names[2:])
        try:
            return TrainConfig(**content)
        except (ValueError, TypeError) as error:
            self.fail(f"{what}: {error}")

    def configs(
        self, content: Any, models: Mapping[str, Any], standard: TrainConfig, vary: Axis | None
    ) -> dict[str, TrainConfig]:
        """How single models are trained: the standard with changes."""
        if self.mapping("training_of", content) and vary is not None:
            self.fail(f"training_of must not be given with vary, got it for {', '.join(content)}")
        return {
            self.known("training_of", model, models): self.config(
                f"training_of.{model}", asdict(standard) | self.mapping(f"training_of.{model}", changes)
            )
            for model, changes in content.items()
        }

    def axis(self, content: Any) -> Axis | None:
        if content is None:
            return None
        if len(self.mapping("vary", content)) != 1:
            self.fail(f"vary must name one of {', '.join(AXES)}, got {', '.join(content) or 'none'}")
        ((name, values),) = content.items()
        self.known("vary", name, AXES)
        if name == "variant":
            names = list(self.mapping("vary.variant", values))
            if len(names) < 2:
                self.fail(
                    f"vary.variant must be two or more, the first to compare with, got {', '.join(names) or 'none'}"
                )
            return Axis(name, tuple(self.text("vary.variant", each) for each in names))
        if not isinstance(values, list) or not values:
            self.fail(f"vary.{name} must be a list of one or more values, got {values!r}")
        numbers = tuple(self.number(f"vary.{name}", value) for value in values)
        if len(set(numbers)) < len(numbers) or min(numbers) < 0:
            self.fail(f"vary.{name} must be distinct values of 0 or larger, got {values}")
        return Axis(name, numbers)

    def variants(self, vary: Axis, content: dict[str, Any], standard: Variant) -> dict[At, Variant]:
        """The variant of each value of what is varied: the standard with one change."""
        if vary.name == "variant":
            given = content["vary"]["variant"].items()
            return {name: self._variant(f"vary.variant.{name}", changes, content, standard) for name, changes in given}
        if vary.name == "noise":
            return {value: standard._replace(view=View(noise=float(value))) for value in vary.values}
        return {value: standard._replace(models=_with_lam(standard.models, value)) for value in vary.values}

    def _variant(self, what: str, changes: Any, content: dict[str, Any], standard: Variant) -> Variant:
        self.keys(what, changes, (), ("about", "data", "grid", "training"))
        grid = self.mapping(f"{what}.grid", changes.get("grid", {}))
        config = self.mapping(f"{what}.training", changes.get("training", {}))
        return Variant(
            self._view(f"{what}.data", changes.get("data", {}), content["datasets"]),
            self.models(content["models"], content["grid"], grid, f"{what}.") if grid else standard.models,
            self.config(f"{what}.training", asdict(standard.config) | config),
            self.text(f"{what}.about", changes.get("about", "")),
        )

    def _view(self, what: str, content: Any, datasets: Iterable[str]) -> View:
        self.keys(what, content, (), [part.name for part in fields(View)])
        fractions = content.get("fractions")
        try:
            view = View(**{**content, "fractions": None if fractions is None else tuple(fractions)})
        except (ValueError, TypeError) as error:
            self.fail(f"{what}: {error}")
        if view.edges != "undirected" and not all(DATASETS[name].directed for name in datasets):
            names = ", ".join(name for name in datasets if not DATASETS[name].directed)
            self.fail(f"{what}: edges must be undirected for {names}, whose files have no directions, got {view.edges}")
        return view

    def only(self, content: Any, models: Mapping[str, Any], datasets: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        return {
            self.known("only", model, models): self.datasets(f"only.{model}", names, datasets)
            for model, names in self.mapping("only", content).items()
        }

    def published(self, content: Any) -> Published:
        names = [part.name for part in fields(Published)]
        self.keys("published", content, (), names)
        return Published(
            source=self.text("published.source", content.get("source", "")),
            scores=self._scores("published.scores", content.get("scores", {})),
            spreads=self._scores("published.spreads", content.get("spreads", {})),
            ranks=self._numbers("published.ranks", content.get("ranks", {}), MODELS),
            facts=tuple(self._fact(fact) for fact in content.get("facts", [])),
            notes=tuple(self.text("published.notes", note) for note in content.get("notes", [])),
        )

    def _scores(self, what: str, content: Any) -> dict[str, dict[str, float]]:
        return {
            self.known(what, model, MODELS): self._numbers(f"{what}.{model}", values, DATASETS)
            for model, values in self.mapping(what, content).items()
        }

    def _numbers(self, what: str, content: Any, names: Iterable[str]) -> dict[str, float]:
        return {
            self.known(what, name, names): self.number(f"{what}.{name}", value)
            for name, value in self.mapping(what, content).items()
        }

    def _fact(self, content: Any) -> Fact:
        what = "published.facts"
        self.keys(what, content, ("measure", "dataset", "value"), ("model", "at"))
        model, at = content.get("model"), content.get("at")
        return Fact(
            measure=self.known(f"{what}.measure", content["measure"], MEASURES),
            dataset=self.known(f"{what}.dataset", content["dataset"], DATASETS),
            value=self.number(f"{what}.value", content["value"]),
            model=None if model is None else self.known(f"{what}.model", model, MODELS),
            at=None if at is None else self.number(f"{what}.at", at),
        )


def _with_lam(models: Mapping[str, tuple[Configuration, ...]], lam: At) -> dict[str, tuple[Configuration, ...]]:
    return {model: tuple({**each, "lam": lam} for each in own) for model, own in models.items()}


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The end of an error message that suggests the most similar name; empty if none is similar."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
