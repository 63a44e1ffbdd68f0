"""Study files: valid ones are read, errors name the entry and the value, and a study can be written as a file."""

import copy
from pathlib import Path
from typing import Any

import pytest

from gfgn.data import dimensions
from gfgn.runs.comparison import comparison_study
from gfgn.runs.study import Cell, StudyError
from gfgn.runs.study_file import StudyFile, make_study, read_study, study_yaml

CONTENT: dict[str, Any] = {
    "title": "Small",
    "datasets": ["karate"],
    "grid": {"lr": [0.05], "dropout": [0.5, 0.8]},
    "models": {"gcn": {}, "gfgn-graph": {"lam": [1.0, 2.0]}, "geom-gcn": {"hidden": [16]}},
    "splits": 2,
    "seeds": 1,
    "training": {"max_epochs": 5, "patience": 5},
}
TWO = {"a": {}, "b": {}}  # variants


def changed(path: str, value: Any) -> dict[str, Any]:
    """The content with another value at a path."""
    content = copy.deepcopy(CONTENT)
    *folders, last = path.split("/")
    inner = content
    for folder in folders:
        inner = inner.setdefault(folder, {})
    inner[last] = value
    return content


def test_a_valid_study() -> None:
    study = make_study(CONTENT, "small")
    assert len(study.models["gfgn-graph"]) == 4
    assert study.models["gcn"] == ({"lr": 0.05, "dropout": 0.5}, {"lr": 0.05, "dropout": 0.8})
    plan = study.plan(Cell("karate", "gfgn-graph"))
    assert len(plan.tuning()) == plan.count == 8
    single = make_study(changed("models", {"gcn": {"dropout": [0.5]}}), "single").plan(Cell("karate", "gcn"))
    assert (single.tuning(), single.count) == ([], 2)


def test_models_may_have_their_own_training_and_lists_of_configurations() -> None:
    content = changed("training_of", {"gcn": {"max_epochs": 2}})
    content["models"] = {"gcn": [{"lr": "5e-4"}, {"lr": 0.1}], "majority": [], "mlp": {}}
    study = make_study(content, "small")
    configs = [study.variant(Cell("karate", model)).config for model in ("gcn", "mlp")]
    assert [config.max_epochs for config in configs] == [2, 5]
    assert configs[0].patience == configs[1].patience
    assert study.models["gcn"] == ({"lr": 5e-4}, {"lr": 0.1})  # YAML reads 5e-4 as text
    assert study.plan(Cell("karate", "majority")).count == 2
    with pytest.raises(StudyError, match="training_of must not be given with vary, got it for gcn"):
        make_study(content | {"vary": {"noise": [0.0, 0.5]}}, "small")
    del content["training_of"]
    with pytest.raises(StudyError, match=r"vary.variant.b.grid must not be given for listed configurations, .* gcn"):
        make_study(content | {"vary": {"variant": {"a": {}, "b": {"grid": {"lr": [0.5]}}}}}, "small")
    study = make_study(content | {"vary": {"lam": [1.0, 2.0]}}, "small")
    assert study.cells("karate", "majority") == [Cell("karate", "majority")]  # it has no gates


@pytest.mark.parametrize(
    ("path", "value", "parts"),
    [
        ("datasets", ["karat"], ["datasets", "'karat'", "did you mean 'karate'?"]),
        ("datasets", [], ["datasets", "at least 1 item"]),
        ("datasets", ["karate", "karate"], ["datasets", "'karate' twice"]),
        ("models", {}, ["models", "at least 1 item"]),
        ("models/gfgn", {}, ["models: ", "'gfgn'"]),
        ("models/gcn", {"alpha": [1]}, ["models.gcn ", "lr, ", "hidden, layers", "'alpha'"]),
        ("models/gcn", {"lam": [1.0]}, ["models.gcn ", "'lam'"]),
        ("models/gcn", {"lr": ["low"]}, ["models.gcn", "finite numbers", "'low'"]),
        ("models/gcn", {"lr": [-1.0]}, ["models.gcn: lr", "-1.0"]),
        ("models/gcn", {"hidden": ["many"]}, ["models.gcn: ", "'hidden' of gcn", "int", "'many'"]),
        ("models/gcn", {"hidden": 64}, ["models.gcn.hidden", "list", "64"]),
        ("models/gcn", {"lr": [0.1, 0.1]}, ["models.gcn: lr", "distinct"]),
        ("models", {"gfgn-graph": {"activation": ["reloo"]}}, ["models.gfgn-graph", "'reloo'"]),
        ("grid/alpha", [0.5], ["grid ", "lr, ", "'alpha'"]),
        ("splits", 0, ["splits", "1", "got 0"]),
        ("seeds", "ten", ["seeds", "integer", "'ten'"]),
        ("training/patience", 0, ["training: patience", "got 0"]),
        ("training/warmup", 3, ["training: ", "'warmup'"]),
        ("training_of", {"gnc": {}}, ["training_of", "'gnc'; did you mean 'gcn'"]),
        ("training_of", {"gcn": {"max_epochs": 0}}, ["training_of.gcn: max_epochs", "got 0"]),
        ("vary", {"seed": [1]}, ["vary.seed is not an entry"]),
        ("vary", {"lam": [1.0, 1.0]}, ["vary", "[1.0, 1.0]"]),
        ("vary", {"noise": [-0.5]}, ["vary.noise.0", "-0.5"]),
        ("vary", {"variant": {"a": {}}}, ["vary.variant", "2 items"]),
        ("vary", {"variant": TWO | {"b": {"model": {}}}}, ["vary.variant.b.model is not an entry"]),
        ("vary", {"variant": TWO | {"b": {"data": {"features": "scaled"}}}}, ["b.data: features", "'scaled'"]),
        ("vary", {"variant": TWO | {"b": {"data": {"fractions": [0.9, 0.2]}}}}, ["b.data: fractions", "(0.9, 0.2)"]),
        ("vary", {"variant": TWO | {"b": {"grid": {"activation": ["elu"]}}}}, ["b.models.gcn", "'activation'"]),
        ("vary", {"variant": TWO | {"b": {"training": {"best": "luck"}}}}, ["b.training: best", "'luck'"]),
        ("vary", {"variant": TWO | {"b": {"data": {"edges": "directed"}}}}, ["b.data: edges", "karate", "directed"]),
        ("data", {"noise": "much"}, ["data: noise", "'much'"]),
        ("data", {"noise": -1}, ["data: noise", "-1"]),
        ("models/gcn", [], ["models.gcn must hold at least one configuration"]),
        ("models/gcn", [{"lr": "low"}], ["models.gcn: ", "finite numbers", "'low'"]),
        ("models/gcn", [{"lr": True}], ["models.gcn: ", "finite numbers", "True"]),
        ("baseline", "mlp", ["baseline", "gcn, gfgn-graph, geom-gcn", "'mlp'"]),
        ("only", {"gcn": ["cora"]}, ["only.gcn", "karate", "'cora'"]),
        ("published", {"score": {}}, ["published.score is not an entry"]),
        ("published/scores", {"gcn": {"karate": "high"}}, ["published.scores.gcn.karate", "number"]),
        ("published/ranks", {"gnc": 1.0}, ["published models", "'gnc'"]),
        ("published/facts", [{"measure": "luck", "dataset": "karate", "value": 1}], ["facts.measure", "'luck'"]),
        ("titel", "Small", ["titel is not an entry of a study; did you mean 'title'"]),
    ],
)
def test_errors_name_the_entry_and_the_value(path: str, value: Any, parts: list[str]) -> None:
    with pytest.raises(StudyError) as caught:
        make_study(changed(path, value), "small")
    message = str(caught.value)
    assert message.startswith("study small: ")
    assert "\n" not in message
    assert [part for part in parts if part not in message] == [], message


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="the study must be a valid dictionary"):
        make_study(None, "small")
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(StudyError, match="must be a YAML file"):
        read_study(tmp_path / "bad.yaml")


def test_the_json_schema_accepts_the_file() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = StudyFile.model_json_schema()
    jsonschema.validate(CONTENT, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(CONTENT | {"titel": ""}, schema)


@pytest.mark.parametrize("settings", [{}, {"trials": 3}, {"lr": 0.1, "max_epochs": 7, "baseline": "mlp"}])
def test_the_study_of_a_comparison_as_a_file(settings: dict[str, Any], tmp_path: Path) -> None:
    study = comparison_study(dimensions(60, splits=2), ["majority", "mlp", "gfgn-plus"], 2, **settings)
    path = tmp_path / "dimensions.yaml"
    path.write_text(study_yaml(study), encoding="utf-8")
    again = read_study(path)
    assert again.models == study.models
    assert (again.config, again.baseline, again.datasets) == (study.config, study.baseline, study.datasets)
    plans = [each.plan(Cell("dimensions", "mlp")) for each in (again, study)]
    assert plans[0].tuning() == plans[1].tuning()
    assert plans[0].stops() == plans[1].stops()
