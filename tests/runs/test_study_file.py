"""Study files: valid ones are read, and errors name the problem."""

import copy
from pathlib import Path
from typing import Any

import pytest

from gfgn.runs.study import Cell, StudyError
from gfgn.runs.study_file import StudyFile, make_study, read_study

CONTENT: dict[str, Any] = {
    "title": "Small",
    "datasets": ["karate"],
    "grid": {"lr": [0.05], "dropout": [0.5, 0.8]},
    "models": {"gcn": {}, "gfgn-graph": {"lam": [1.0, 2.0]}, "geom-gcn": {"hidden": [16]}},
    "splits": 2,
    "seeds": 1,
    "training": {"max_epochs": 5, "patience": 5},
}


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
    assert len(plan.tuning()) == 8
    assert plan.count == 8
    single = make_study(changed("models", {"gcn": {"dropout": [0.5]}}), "single").plan(Cell("karate", "gcn"))
    assert single.tuning() == []
    assert single.count == 2


def test_a_model_may_have_its_own_training_configuration() -> None:
    content = changed("training_of", {"gcn": {"max_epochs": 2}})
    study = make_study(content, "small")
    configs = [study.variant(Cell("karate", model)).config for model in ("gcn", "gfgn-graph")]
    assert [config.max_epochs for config in configs] == [2, 5]
    assert configs[0].patience == configs[1].patience
    with pytest.raises(StudyError, match="training_of must not be given with vary, got it for gcn"):
        make_study(content | {"vary": {"noise": [0.0, 0.5]}}, "small")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("datasets", ["karat"], r"datasets must be one of .*, got 'karat'; did you mean 'karate'\?"),
        ("datasets", [], "datasets must have at least 1 item, got"),
        ("datasets", ["karate", "karate"], "datasets must be distinct, got 'karate' twice"),
        ("models", {}, "models must have at least 1 item"),
        ("models/gfgn", {}, "models: model must be one of .*, got 'gfgn'"),
        (
            "models/gcn",
            {"alpha": [1]},
            "models.gcn must be one of lr, .*, input_dropout, hidden, layers, features, got 'alpha'",
        ),
        ("models/gcn", {"lam": [1.0]}, "models.gcn must be one of .*, got 'lam'"),
        ("models/gcn", {"lr": ["5e-4"]}, "models.gcn.lr must be a finite number, got '5e-4'; YAML needs a point"),
        ("models/gcn", {"lr": [-1.0]}, "models.gcn: lr must be a finite number above 0, got -1.0"),
        ("models/gcn", {"hidden": ["many"]}, "models.gcn: option 'hidden' of gcn must be of type int, got 'many'"),
        ("models/gcn", {"hidden": 64}, "models.gcn.hidden must be a valid list, got 64"),
        ("models/gcn", {"lr": [0.1, 0.1]}, "models.gcn: lr must be one or more distinct values"),
        ("grid/alpha", [0.5], "grid must be one of lr, .*, lam, input_dropout, gate_decay, features, got 'alpha'"),
        ("splits", 0, "splits must be greater than or equal to 1, got 0"),
        ("seeds", "ten", "seeds must be a valid integer, got 'ten'"),
        ("training/patience", 0, "training: patience must be 1 or larger, got 0"),
        ("training/warmup", 3, "training: an entry must be one of .*, got 'warmup'"),
        ("training_of", {"gnc": {}}, "training_of must be one of .*, got 'gnc'; did you mean 'gcn'"),
        ("training_of", {"gcn": 5}, "training_of.gcn must be a valid dictionary, got 5"),
        ("training_of", {"gcn": {"max_epochs": 0}}, "training_of.gcn: max_epochs must be 1 or larger, got 0"),
        ("vary", {"seed": [1]}, "vary.seed is not an entry of a study"),
        ("vary", {"lam": []}, "vary.lam must have at least 1 item"),
        ("vary", {"lam": [1.0, 1.0]}, r"vary must be of distinct values, got \[1.0, 1.0\]"),
        ("vary", {"noise": [-0.5]}, "vary.noise.0 must be greater than or equal to 0, got -0.5"),
        ("vary", {"variant": ["raw"]}, "vary.variant must be a valid dictionary"),
        ("vary", {"variant": {"a": {}}}, "vary.variant must have at least 2 items"),
        ("vary", {"variant": {"a": {}, "b": {"model": {}}}}, "vary.variant.b.model is not an entry of a study"),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"features": "scaled"}}}},
            "vary.variant.b.data: features must be one of 'normalized', 'raw', got 'scaled'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"x": 1}}}},
            "vary.variant.b.data: an entry must be one of .*, got 'x'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"fractions": [0.9, 0.2]}}}},
            "vary.variant.b.data: fractions must",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"fractions": [0.9]}}}},
            "vary.variant.b.data: fractions must be two",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"grid": {"activation": ["elu"]}}}},
            "vary.variant.b.models.gcn must be one of .*, got 'activation'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"training": {"best": "luck"}}}},
            "vary.variant.b.training: best must be one of",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"edges": "directed"}}}},
            "b.data: edges must be undirected for karate, whose files have no directions",
        ),
        ("models", {"gfgn-graph": {"activation": ["reloo"]}}, "models.gfgn-graph: .*'reloo'"),
        ("models", {"gfgn-graph": {"gate_bias": ["low"]}}, "option 'gate_bias' of gfgn-graph must be of type float"),
        ("baseline", "mlp", "baseline must be one of gcn, gfgn-graph, geom-gcn, got 'mlp'"),
        ("only", {"mlp": ["karate"]}, "only must be one of gcn, gfgn-graph, geom-gcn, got 'mlp'"),
        ("only", {"gcn": ["cora"]}, "only.gcn must be one of karate, got 'cora'"),
        ("published", {"score": {}}, "published.score is not an entry of a study"),
        ("published/scores", {"gcn": {"karate": "high"}}, "published.scores.gcn.karate must be a valid number"),
        ("published/ranks", {"gnc": 1.0}, "published.ranks must be one of .*, got 'gnc'"),
        ("published/facts", [{"measure": "luck", "dataset": "karate", "value": 1}], "facts.measure must be one of"),
        ("published/facts", [{"measure": "gate_min", "dataset": "karate"}], "published.facts.0.value is missing"),
        ("titel", "Small", "titel is not an entry of a study; did you mean 'title'"),
        ("title", 3, "title must be a valid string, got 3"),
    ],
)
def test_errors_name_the_problem(path: str, value: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"study small: .*{message}"):
        make_study(changed(path, value), "small")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="the study must be a valid dictionary"):
        make_study(None, "small")
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(StudyError, match="must be a YAML file, got one that cannot be read"):
        read_study(tmp_path / "bad.yaml")


def test_the_json_schema_accepts_the_file(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = StudyFile.model_json_schema()
    jsonschema.validate(CONTENT, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(CONTENT | {"titel": ""}, schema)
