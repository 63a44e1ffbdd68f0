"""Study files: valid ones are read, and errors name the problem."""

import copy
from pathlib import Path
from typing import Any

import pytest

from gfgn.runs.study import Cell, StudyError
from gfgn.runs.study_file import make_study, read_study

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
        ("datasets", [], "datasets must be a list of one or more distinct names"),
        ("datasets", ["karate", "karate"], "datasets must be a list of one or more distinct names"),
        ("models", {}, "models must name at least one of"),
        ("models/gfgn", {}, "models must be one of .*, got 'gfgn'"),
        (
            "models/gcn",
            {"alpha": [1]},
            "models.gcn must be one of lr, .*, input_dropout, hidden, layers, features, got 'alpha'",
        ),
        ("models/gcn", {"lam": [1.0]}, "models.gcn must be one of .*, got 'lam'"),
        ("models/gcn", {"lr": ["5e-4"]}, "models.gcn.lr must be a finite number, got '5e-4'; YAML needs a point"),
        ("models/gcn", {"lr": [-1.0]}, "models.gcn: lr must be a finite number above 0, got -1.0"),
        ("models/gcn", {"hidden": ["many"]}, "models.gcn: option 'hidden' of gcn must be of type int, got 'many'"),
        ("models/gcn", {"hidden": 64}, r"models.gcn.hidden must be a list of one or more values, got 64"),
        ("models/gcn", {"lr": [0.1, 0.1]}, "models.gcn: lr must be one or more distinct values"),
        ("grid/alpha", [0.5], "grid must be one of lr, .*, lam, input_dropout, gate_decay, features, got 'alpha'"),
        ("splits", 0, "splits must be a whole number, 1 or larger, got 0"),
        ("seeds", "ten", "seeds must be a whole number, 1 or larger, got 'ten'"),
        ("training", {"max_epochs": 5}, "training must have patience, got max_epochs"),
        ("training/patience", 0, "training: patience must be 1 or larger, got 0"),
        ("training/warmup", 3, "training must have keys among .*, got 'warmup'"),
        ("training_of", {"gnc": {}}, "training_of must be one of gcn, .*, got 'gnc'; did you mean 'gcn'"),
        ("training_of", {"gcn": 5}, "training_of.gcn must be a mapping, got 5"),
        ("training_of", {"gcn": {"max_epochs": 0}}, "training_of.gcn: max_epochs must be 1 or larger, got 0"),
        ("vary", {"seed": [1]}, "vary must be one of noise, lam, variant, got 'seed'"),
        ("vary", {"lam": []}, "vary.lam must be a list of one or more values"),
        ("vary", {"lam": [1.0, 1.0]}, "vary.lam must be distinct values of 0 or larger"),
        ("vary", {"noise": [-0.5]}, "vary.noise must be distinct values of 0 or larger"),
        ("vary", {"variant": ["raw"]}, "vary.variant must be a mapping"),
        ("vary", {"variant": {"a": {}}}, "vary.variant must be two or more, the first to compare with, got a"),
        ("vary", {"variant": {"a": {}, "b": {"model": {}}}}, "vary.variant.b must have keys among .*, got 'model'"),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"features": "scaled"}}}},
            "vary.variant.b.data: features must be one of 'normalized', 'raw', got 'scaled'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"x": 1}}}},
            "vary.variant.b.data must have keys among .*, got 'x'",
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
        ("only", {"mlp": ["karate"]}, "only must be one of gcn, gfgn-graph, geom-gcn, got 'mlp'"),
        ("only", {"gcn": ["cora"]}, "only.gcn must be one of karate, got 'cora'"),
        ("published", {"score": {}}, "published must have keys among .*, got 'score'"),
        ("published/scores", {"gcn": {"karate": "high"}}, "published.scores.gcn.karate must be a finite number"),
        ("published/ranks", {"gnc": 1.0}, "published.ranks must be one of .*, got 'gnc'"),
        ("published/facts", [{"measure": "luck", "dataset": "karate", "value": 1}], "facts.measure must be one of"),
        ("published/facts", [{"measure": "gate_min", "dataset": "karate"}], "published.facts must have value"),
        ("titel", "Small", "the study must have keys among .*, got 'titel'"),
        ("title", 3, "title must be text, got 3"),
    ],
)
def test_errors_name_the_problem(path: str, value: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"study small: .*{message}"):
        make_study(changed(path, value), "small")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="must be a mapping with"):
        make_study(None, "small")
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(StudyError, match="must be a YAML file, got one that cannot be read"):
        read_study(tmp_path / "bad.yaml")
