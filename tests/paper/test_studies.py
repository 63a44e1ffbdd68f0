"""Study files: all of them load, name what exists and carry the paper's numbers; what is wrong with one is said."""

import copy
import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gfgn.data.datasets.registry import DATASETS
from gfgn.nn.registry import MODELS
from gfgn.paper.page import make_page
from gfgn.runs import PAPER_GRID
from gfgn.runs.plan import HYPER
from gfgn.runs.record import is_standin
from gfgn.runs.results import Results
from gfgn.runs.study import Cell, StudyError, load_study, make_study, study_names
from gfgn.runs.views import View, data_name
from gfgn.train import TrainConfig, average_ranks
from gfgn.train.minibatch import SAMPLING

RESULTS = Path(__file__).parents[2] / "results"
LEVELS = ["gfgn-graph", "gfgn-neighbor", "gfgn-pair"]
COLUMNS = [
    "blogcatalog",
    "flickr",
    "texas",
    "wisconsin",
    "cornell",
    "actor",
    "cora",
    "citeseer",
    "pubmed",
    "ogbn-arxiv",
]
TABLE_1 = """
gcn           79.07 66.65 64.00 61.55 58.00 30.53 87.04 76.44 86.94 71.74 6.4
gat           77.30 61.18 58.46 60.67 59.27 29.41 86.88 76.86 86.04 71.46 7.6
sgc           75.82 45.68 58.81 59.45 58.86 30.36 86.90 75.38 81.47 71.36 8.5
arma          93.00 90.78 74.19 73.45 67.43 32.44 85.83 75.91 86.62 71.25 6.2
ggnn          92.95 89.91 71.73 71.14 70.27 34.51 85.28 74.74 88.93 71.47 6.2
appnp         96.06 91.63 60.76 63.06 65.81 34.45 85.11 75.95 86.65 71.84 5.9
geom-gcn      N/A   N/A   67.57 64.12 60.81 31.63 85.27 77.99 90.05 N/A   5.0
gfgn-graph    95.95 90.97 83.30 85.29 82.24 34.87 87.04 76.30 88.12 72.20 2.8
gfgn-neighbor 95.90 90.85 82.84 84.29 82.35 34.97 86.90 76.85 88.15 72.21 2.4
gfgn-pair     96.25 91.89 82.65 83.63 82.27 34.95 86.74 76.79 88.12 72.43 2.7
"""
TABLE_2 = {
    "graphsage": 61.2,
    "vr-gcn": 97.8,
    "gaan": 98.71,
    "gat": 97.3,
    "geniepath": 98.5,
    "graphsaint": 98.1,
    "gfgn-graph": 99.27,
    "gfgn-neighbor": 99.32,
    "gfgn-pair": 98.40,
}


# --- the files --------------------------------------------------------------------------------------------------------


def test_the_studies_of_the_paper() -> None:
    paper = {"table1", "table2", "arxiv", "noise", "lambda", "scores"}
    assert set(study_names()) == paper | {"ablations", "geom-gcn", "geom-gcn-pubmed", "table2-longer"}


@pytest.mark.parametrize("name", study_names())
def test_everything_a_file_names_exists(name: str) -> None:
    study = load_study(name)
    assert study.title
    assert set(study.datasets) <= set(DATASETS)
    assert study.all_cells()
    for model, configurations in study.models.items():
        entry = MODELS[model]
        known = {*HYPER, *entry.parameters, *SAMPLING.get(model, ())}
        assert all(set(configuration) <= known for configuration in configurations)
        assert all("lam" not in configuration or entry.gated for configuration in configurations)
        if any(DATASETS[dataset].graphs > 1 for dataset in study.datasets):
            assert entry.inductive
    for cell in study.all_cells():
        assert study.count(cell) >= study.splits * study.seeds
        tuning = study.tuning(cell)
        assert DATASETS[cell.dataset].directed or study.variant(cell).view.edges == "undirected"
        assert len(tuning) == len(study.configurations(cell)) * study.splits or not tuning
    assert study.published.source or all(DATASETS[dataset].standin for dataset in study.datasets)


def test_table_1_is_the_papers() -> None:
    study, published = load_study("table1"), load_study("table1").published
    arxiv = load_study("arxiv").published
    for line in TABLE_1.strip().splitlines():
        model, *scores, rank = line.split()
        expected = {name: float(score) for name, score in zip(COLUMNS, scores, strict=True) if score != "N/A"}
        assert published.scores[model] == expected
        assert published.ranks[model] == float(rank)
        assert arxiv.score("ogbn-arxiv", model) == expected.get("ogbn-arxiv")
    assert len(published.scores) == len(published.ranks) == 10
    assert set(study.datasets) == set(COLUMNS) - {"ogbn-arxiv"}
    assert set(study.models) == {*published.scores, "mlp"}
    for level in LEVELS:
        assert sorted(map(str, study.models[level])) == sorted(
            str({name: configuration[name] for name in ("lr", "weight_decay", "dropout", "lam")})
            for configuration in PAPER_GRID
        )
    assert (study.splits, study.seeds, study.config) == (10, 10, TrainConfig(400, 100))


def test_half_of_the_published_ranks_are_those_of_the_published_scores() -> None:
    """Ties have the better rank. The other ranks in the paper are not those of its own scores, by 0.1 to 0.6."""
    published = load_study("table1").published
    found = average_ranks(published.scores, ties="min")
    same = {model for model, rank in published.ranks.items() if found[model] == pytest.approx(rank)}
    assert same == {"gcn", "gat", "sgc", "gfgn-graph", "gfgn-pair"}
    assert all(abs(found[model] - rank) < 0.61 for model, rank in published.ranks.items())
    assert sorted(found, key=lambda model: found[model])[:3] == ["gfgn-neighbor", "gfgn-pair", "gfgn-graph"]


def test_improvements_over_gcn_follow_from_the_published_scores() -> None:
    published = load_study("table1").published
    assert len(published.facts) == 9
    for fact in published.facts:
        base = published.scores["gcn"][fact.dataset]
        best = max(published.scores[level][fact.dataset] for level in LEVELS)
        assert 100 * (best - base) / base == pytest.approx(fact.value, abs=0.06), fact


def test_table_2_is_the_papers() -> None:
    published = load_study("table2").published
    assert {model: scores["ppi"] for model, scores in published.scores.items()} == TABLE_2
    assert {model: spread["ppi"] for model, spread in published.spreads.items()} == dict(
        zip(LEVELS, (0.02, 0.01, 0.04), strict=True)
    )


def test_the_papers_settings_of_the_large_graphs() -> None:
    for name, (layers, heads, units, lr) in {"arxiv": (4, 16, 16, 0.003), "table2": (6, 32, 64, 5e-4)}.items():
        for level in LEVELS:
            for configuration in load_study(name).models[level]:
                assert configuration["layers"] == layers
                assert configuration["heads"] == heads
                assert configuration["hidden"] == heads * units
                assert configuration["lr"] == lr


def test_facts_of_the_figures() -> None:
    noise = {(fact.dataset, fact.at): fact.value for fact in load_study("noise").published.facts}
    assert noise == {("cora", 1.0): 3.5, ("citeseer", 1.0): 4.8, ("pubmed", 1.0): 8.1}
    scores = {(fact.dataset, fact.measure): fact.value for fact in load_study("scores").published.facts}
    assert scores == {
        ("blogcatalog", "gate_min"): 0.06,
        ("blogcatalog", "gate_max"): 1.66,
        ("cora", "gate_min"): 0.55,
        ("cora", "gate_max"): 0.87,
        ("blogcatalog", "gate_below_055"): 64.1,
        ("cora", "gate_below_055"): 0.0,
    }


def test_noise_and_lambda_have_a_cell_a_value() -> None:
    noise, lam = load_study("noise"), load_study("lambda")
    assert [cell.at for cell in noise.cells("cora", "gcn")] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert [noise.data_name(cell) for cell in noise.cells("cora", "gcn")][:2] == ["cora", "cora+20%"]
    assert lam.cells("cora", "mlp") == [Cell("cora", "mlp")]
    values = [cell.at for cell in lam.cells("cora", "gfgn-pair")]
    assert values[0] == 0
    assert values[-1] == 10
    cell = lam.cells("cora", "gfgn-pair")[3]
    assert {configuration["lam"] for configuration in lam.configurations(cell)} == {cell.at}
    assert {replica.lam for replica in lam.tuning(cell)} == {cell.at}
    assert lam.data_name(cell) == "cora"


def test_ablations_are_table_1_but_for_one_change() -> None:
    study, table = load_study("ablations"), load_study("table1")
    standard = study.variant(study.cells("texas", "gfgn-pair")[0])
    assert (standard.view, standard.config) == (View(), table.config)
    assert (study.splits, study.seeds) == (table.splits, table.seeds)
    for level in LEVELS:
        assert standard.models[level] == table.models[level]
        assert study.published.scores[level].items() <= table.published.scores[level].items()
    kinds = []
    for variant in list(study.variants.values())[1:]:
        changed = (variant.view != standard.view, variant.config != standard.config)
        kinds.append((*changed, variant.models != standard.models))
        assert sum(kinds[-1]) == 1
        assert variant.about
    assert {kind.index(True) for kind in kinds} == {0, 1, 2}
    assert {variant.view.edges for variant in study.variants.values()} == {"undirected", "directed", "reversed"}
    assert {variant.config.best for variant in study.variants.values()} == {"score", "loss", "last"}


def test_what_may_explain_geom_gcn_is_table_1_but_for_one_change() -> None:
    study, table = load_study("geom-gcn"), load_study("table1")
    cells = study.cells("citeseer", "geom-gcn")
    assert sorted(map(str, study.configurations(cells[0]))) == sorted(map(str, table.models["geom-gcn"]))
    assert study.variant(cells[0])[::2] == (View(), table.config)
    assert len({(study.data_name(c), str(study.configurations(c)), study.variant(c).config) for c in cells}) == 14


@pytest.mark.parametrize(("name", "chosen_by"), [("table2-longer", "table2"), ("geom-gcn-pubmed", "table1")])
def test_what_another_study_chose_is_taken(name: str, chosen_by: str) -> None:
    study, other, shared = load_study(name), load_study(chosen_by), ("lr", "weight_decay", "dropout")
    with (RESULTS / chosen_by / "chosen.csv").open(encoding="utf-8") as file:
        best = {(row["dataset"], row["model"]): row for row in csv.DictReader(file) if row["chosen"] == "1"}
    for model, (configuration,) in study.models.items():
        assert configuration in other.models[model]
        chosen = best[study.datasets[0], model]
        assert [configuration[key] for key in shared] == [float(chosen[key]) for key in shared]
    limits = {"max_epochs": other.config.max_epochs, "patience": other.config.patience}
    assert replace(study.config, **limits) == other.config


def test_scores_of_pairs_are_on_four_graphs() -> None:
    study = load_study("scores")
    found = [name for name in study.datasets if study.cells(name, "gfgn-pair")]
    assert found == ["blogcatalog", "flickr", "texas", "cora"]
    assert len(study.all_cells()) == 8 + 8 + 4


def test_names_in_results() -> None:
    assert data_name("cora") == "cora"
    assert data_name("cora", View(noise=0.2)) == "cora+20%"
    assert data_name("ppi-relabelled") == "ppi-relabelled (stand-in)"
    assert data_name("ppi-relabelled", View(features="raw")) == "ppi-relabelled (stand-in) raw"
    view = View(features="raw", edges="reversed", shares=(0.6, 0.2), nodes="largest part")
    assert data_name("texas", view) == "texas raw reversed largest part 60/20/20"
    standins = [data_name("ppi-relabelled", view) for view in (View(), View(features="raw"), View(noise=0.2))]
    for name in ("ppi-relabelled", *standins):
        assert is_standin(name)
    assert not is_standin("ppi")
    assert not is_standin("cora+20%")


# --- what is wrong with a file ----------------------------------------------------------------------------------------

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
    """The content with something else at a place."""
    content = copy.deepcopy(CONTENT)
    *folders, last = path.split("/")
    inner = content
    for folder in folders:
        inner = inner.setdefault(folder, {})
    inner[last] = value
    return content


def test_what_is_well_described() -> None:
    study = make_study(CONTENT, "small")
    assert len(study.models["gfgn-graph"]) == 4
    assert study.models["gcn"] == ({"lr": 0.05, "dropout": 0.5}, {"lr": 0.05, "dropout": 0.8})
    cell = Cell("karate", "gfgn-graph")
    assert len(study.tuning(cell)) == 8
    assert study.count(cell) == 8
    single = make_study(changed("models", {"gcn": {"dropout": [0.5]}}), "single")
    assert single.tuning(Cell("karate", "gcn")) == []
    assert single.count(Cell("karate", "gcn")) == 2


def test_a_model_may_be_trained_in_another_way() -> None:
    content = changed("training_of", {"gcn": {"max_epochs": 2}})
    study = make_study(content, "small")
    configs = [study.variant(Cell("karate", model)).config for model in ("gcn", "gfgn-graph")]
    assert [config.max_epochs for config in configs] == [2, 5]
    assert configs[0].patience == configs[1].patience
    assert "- gcn: at most 2 epochs, ending 5 after the best one." in make_page(Results(study, []))
    page = make_page(Results(load_study("table2"), []))
    assert "- graphsage and vr-gcn: at most 34 epochs, ending 7 after the best one." in page
    assert "- Products of float32 matrices in TF32: eleven binary digits of each number." in page
    assert "reached the last epoch" not in page
    with pytest.raises(StudyError, match="training_of must not be given with vary, got them for gcn"):
        make_study(content | {"vary": {"noise": [0.0, 0.5]}}, "small")


def test_what_is_varied_on_a_stand_in_is_told() -> None:
    content = changed("datasets", ["ppi-relabelled"]) | {"models": {"gcn": {}}}
    noisy = make_page(Results(make_study(content | {"vary": {"noise": [0.0, 0.5]}}, "small"), []))
    assert "| model | added edges | measured |" in noisy
    assert "| gcn | 50% | missing |" in noisy
    by_lam = content | {"models": {"mlp": {}, "gfgn-graph": {}}, "vary": {"lam": [0.5, 2.0]}}
    page = make_page(Results(make_study(by_lam, "small"), []))
    assert "| mlp | – | missing |" in page
    assert "| gfgn-graph | 0.5 | missing |" in page
    variants = {"variant": {"standard": {}, "longer": {"training": {"max_epochs": 9}}}}
    varied = make_page(Results(make_study(content | {"vary": variants}, "small"), []))
    assert "| gcn | longer | missing |" in varied


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("datasets", ["karat"], r"datasets must be one of .*, got 'karat'; did you mean 'karate'\?"),
        ("datasets", [], "datasets must be a list of one or more names"),
        ("datasets", ["karate", "karate"], "each of them once"),
        ("models", {}, "models must name at least one of"),
        ("models/gfgn", {}, "models must be one of .*, got 'gfgn'"),
        (
            "models/gcn",
            {"alpha": [1]},
            "models.gcn must be one of lr, weight_decay, dropout, hidden, layers, got 'alpha'",
        ),
        ("models/gcn", {"lam": [1.0]}, "models.gcn must be one of .*, got 'lam'"),
        ("models/gcn", {"lr": ["5e-4"]}, "models.gcn.lr must be a finite number, got '5e-4'; YAML needs a point"),
        ("models/gcn", {"lr": [-1.0]}, "models.gcn: lr must be a finite number above 0, got -1.0"),
        ("models/gcn", {"hidden": ["many"]}, "models.gcn: option 'hidden' of gcn must be of type int, got 'many'"),
        ("models/gcn", {"hidden": 64}, r"models.gcn.hidden must be a list of one or more values, got 64"),
        ("models/gcn", {"lr": [0.1, 0.1]}, "models.gcn: lr must be one or more values, each of them once"),
        ("grid/alpha", [0.5], "grid must be one of lr, weight_decay, dropout, lam, got 'alpha'"),
        ("splits", 0, "splits must be a whole number, 1 or larger, got 0"),
        ("seeds", "ten", "seeds must be a whole number, 1 or larger, got 'ten'"),
        ("training", {"max_epochs": 5}, "training must have patience, got max_epochs"),
        ("protocol/patience", 0, "protocol: patience must be 1 or larger, got 0"),
        ("protocol/warmup", 3, "training must have keys among .*, got 'warmup'"),
        ("training_of", {"gnc": {}}, "training_of must be one of gcn, .*, got 'gnc'; did you mean 'gcn'"),
        ("training_of", {"gcn": 5}, "training_of.gcn must be a mapping, got 5"),
        ("training_of", {"gcn": {"max_epochs": 0}}, "training_of.gcn: max_epochs must be 1 or larger, got 0"),
        ("vary", {"seed": [1]}, "vary must be one of noise, lam, variant, got 'seed'"),
        ("vary", {"lam": []}, "vary.lam must be a list of one or more values"),
        ("vary", {"lam": [1.0, 1.0]}, "vary.lam must be values of 0 or larger, each of them once"),
        ("vary", {"noise": [-0.5]}, "vary.noise must be values of 0 or larger"),
        ("vary", {"variant": ["raw"]}, "vary.variant must be a mapping"),
        ("vary", {"variant": {"a": {}}}, "vary.variant must be two or more, the first to compare with, got a"),
        ("vary", {"variant": {"a": {}, "b": {"model": {}}}}, "vary.variant.b must have keys among .*, got 'model'"),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"features": "scaled"}}}},
            "vary.variant.b.data: features must be one of 'normalised', 'raw', got 'scaled'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"x": 1}}}},
            "vary.variant.b.data must have keys among .*, got 'x'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"data": {"shares": [0.9, 0.2]}}}},
            "vary.variant.b.data: train and val must",
        ),
        ("vary", {"variant": {"a": {}, "b": {"data": {"shares": [0.9]}}}}, "vary.variant.b.data: shares must be two"),
        (
            "vary",
            {"variant": {"a": {}, "b": {"grid": {"activation": ["elu"]}}}},
            "vary.variant.b.models.gcn must be one of .*, got 'activation'",
        ),
        (
            "vary",
            {"variant": {"a": {}, "b": {"training": {"best": "luck"}}}},
            "vary.variant.b.config: best must be one of",
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
def test_what_is_wrong_is_said(path: str, value: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"study small: .*{message}"):
        make_study(changed(path, value), "small")


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"name must be one of ablations, .* or a YAML file, got 'table'; did you"):
        load_study("table")
    with pytest.raises(StudyError, match="must be a mapping with"):
        make_study(None, "small")
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(StudyError, match="must be a YAML file, got one that cannot be read"):
        load_study(tmp_path / "bad.yaml")
