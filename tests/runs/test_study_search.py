"""Studies that draw configurations: what is drawn, halving alike for all models, interruption, and what files keep."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs.small_studies import copy_study, read_csv, run
from runs.stores import DEFAULT_CONFIG, RECORD

from gfgn.runs import read_runs
from gfgn.runs.record import identify
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, Study, StudyError
from gfgn.runs.study_file import make_study, read_study
from gfgn.train import Replica

CONTENT: dict[str, Any] = {
    "title": "Small search",
    "datasets": ["karate"],
    "search": {
        "configurations": 4,
        "rungs": [2, 4],
        "space": {
            "features": ["given", "normalized"],
            "lr": {"log_uniform": [0.005, 0.1]},
            "weight_decay": {"log_uniform": [1.0e-5, 1.0e-2]},
            "dropout": {"uniform": [0.0, 0.8]},
            "input_dropout": {"uniform": [0.0, 0.8]},
        },
    },
    "models": {"gfgn-graph": {"lam": {"uniform": [0.5, 2.0]}}, "gcn": {"layers": [2, 3]}, "mlp": {}},
    "splits": 2,
    "seeds": 2,
    "training": {"max_epochs": 8, "patience": 8},
}
STOPPED = 3 * (4 - 1) * 2  # by model and split, all configurations but the best after two rungs
ALL_RUNS = 3 * (4 * 2 + 2)


def changed(path: str, value: Any) -> dict[str, Any]:
    content = copy.deepcopy(CONTENT)
    *folders, last = path.split("/")
    inner = content
    for folder in folders:
        inner = inner.setdefault(folder, {})
    inner[last] = value
    return content


def write(folder: Path, content: dict[str, Any] = CONTENT) -> Path:
    path = folder / "small-search.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_every_model_has_the_same_values_on_the_shared_axes() -> None:
    study = make_study(CONTENT, "small")
    shared = CONTENT["search"]["space"]
    drawn = {model: [{name: each[name] for name in shared} for each in own] for model, own in study.models.items()}
    assert drawn["gcn"] == drawn["mlp"] == drawn["gfgn-graph"]
    assert all(len(own) == 4 for own in study.models.values())
    assert {each["layers"] for each in study.models["gcn"]} <= {2, 3}
    assert all(0.5 <= each["lam"] <= 2 for each in study.models["gfgn-graph"])
    assert "lam" not in study.models["gcn"][0]
    more = make_study(changed("search/configurations", 9), "more").models
    assert {model: own[:4] for model, own in more.items()} == study.models  # a larger draw begins with the same ones
    assert make_study(changed("search/seed", 1), "other").models != study.models
    plan = study.plan(Cell("karate", "gcn"))
    assert plan.stops() == [2, 4]
    assert make_study(changed("search/rungs", []), "all").plan(Cell("karate", "gcn")).stops() == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("grid", {"lr": [0.1]}, "the study must have grid or search, got both"),
        ("search/rungs", [4, 2], r"search.rungs must be increasing and below max_epochs, 8, got \[4, 2\]"),
        ("search/rungs", [2, 8], r"search.rungs must be increasing and below max_epochs, 8, got \[2, 8\]"),
        ("search/rungs", [0], "search.rungs.0 must be greater than or equal to 1, got 0"),
        ("search/seed", -1, "search.seed must be greater than or equal to 0, got -1"),
        ("search/configurations", 0, "search.configurations must be greater than or equal to 1, got 0"),
        ("search/count", 3, "search.count is not an entry of a study"),
        (
            "search/space/hidden",
            [8],
            "search.space must be one of lr, .*, input_dropout, gate_decay, features, got 'hidden'",
        ),
        ("search/space/lr", 0.1, "search.space.lr must be a valid list, got 0.1"),
        ("search/space/lr", {"normal": [0, 1]}, "search.space.lr.uniform is missing"),
        ("search/space/lr", {"uniform": [0.1]}, "search.space.lr.uniform.1 is missing"),
        ("search/space/lr", {"uniform": [0.2, 0.1]}, "search.space.lr: low and high must be finite and low"),
        ("search/space/lr", {"log_uniform": [0.0, 0.1]}, "search.space.lr: low must be above 0, got 0.0"),
        ("search/space/dropout", {"uniform": [0.5, 1.5]}, "models.gfgn-graph: dropout must be at least 0 and below 1"),
        ("search/space/features", ["scaled"], "option 'features' of gfgn-graph must be 'given' or 'normalized'"),
        ("models/gcn/lr", [0.1], "models.gcn must not have lr, which all models share in search.space"),
        ("models/gcn/steps", [1], "models.gcn must be one of lr, .*, hidden, layers, features, got 'steps'"),
        ("models/gcn/lam", [1.0], "models.gcn must be one of .*, got 'lam'"),
        ("search/space", {"features": ["given"]}, "configurations must be at most the number of different ones that"),
        ("data", {"features": "scaled"}, "data: features must be one of 'normalized', 'raw', got 'scaled'"),
    ],
)
def test_errors_name_the_problem(path: str, value: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"study small: .*{message}"):
        make_study(changed(path, value), "small")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    outcome = run(write(folder), folder / "out")
    assert (outcome.made, outcome.missing) == (ALL_RUNS, [])
    return folder / "out"


def results_of(path: Path, folder: Path) -> Results:
    study: Study = read_study(path)
    return Results(study, read_runs(folder / "runs.csv.gz"))


def test_dropped_runs_are_recorded_as_such(done: Path) -> None:
    rows = read_runs(done / "runs.csv.gz")
    assert len(rows) == ALL_RUNS
    stopped = [each for each in rows if each.dropped]
    assert len(stopped) == STOPPED
    assert {each.epochs for each in stopped} == {2, 4}
    assert all(each.test != each.test for each in stopped)  # NaN: never evaluated
    chosen = read_csv(done / "chosen.csv")
    assert [line["chosen"] for line in chosen] == ["1"] * 3  # those that were stopped are left out
    assert all("input_dropout=" in line["own"] and "features=" in line["own"] for line in chosen)
    assert {each.replica.input_dropout for each in rows} == {
        each["input_dropout"] for each in make_study(CONTENT, "small").models["gcn"]
    }


def test_runs_that_another_search_stopped_do_not_count(done: Path, tmp_path: Path) -> None:
    """With one more configuration it is another search; completed runs are taken over, stopped ones are not."""
    path, copied = write(tmp_path, changed("search/configurations", 5)), copy_study(done, tmp_path / "copy")
    results = results_of(path, copied)
    assert len(results.runs) == ALL_RUNS - STOPPED
    assert len(results.missing()) == 3
    assert not run(path, copied).missing
    again = results_of(path, copied)
    assert again.missing() == []
    assert sum(each.dropped for each in again.runs) == 3 * 2 * 3


def test_the_identity_of_earlier_runs_has_not_changed() -> None:
    replica = Replica(2, 3, 0.01, 1e-3, 0.3, options=(("layers", 3),))
    assert identify(RECORD, "gcn", replica, DEFAULT_CONFIG) == "523c672398321a113de41d400b15e3f5"
    other = Replica(2, 3, 0.01, 1e-3, 0.3, options=(("layers", 3),), input_dropout=0.3)
    assert identify(RECORD, "gcn", other, DEFAULT_CONFIG) != identify(RECORD, "gcn", replica, DEFAULT_CONFIG)
