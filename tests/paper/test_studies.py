"""The studies of the paper load, name what exists, and hold the published numbers."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from gfgn.data.named.catalog import DATASETS
from gfgn.nn.registry import MODELS
from gfgn.paper.studies import load_study, study_names
from gfgn.runs import PAPER_GRID
from gfgn.runs.grid import COMMON_PARAMS, OPTIONAL_PARAMS
from gfgn.runs.study import Cell, StudyError, View
from gfgn.train import TrainConfig
from gfgn.train.minibatch import SAMPLING

RESULTS = Path(__file__).parents[2] / "results"
LEVELS = ["gfgn-graph", "gfgn-neighbor", "gfgn-pair"]
COLUMNS = (*load_study("table1").datasets, "ogbn-arxiv")  # in the order of the table
# Studies that the paper has no numbers for.
BEYOND = {"table1-open", "thesis", "cornell", "noise-draws", "plus-ablation", "plus-deep", "plus-tolokers"}
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


def test_the_studies_of_the_paper() -> None:
    paper = {"table1", "table2", "arxiv", "noise", "lambda", "scores"}
    assert set(study_names()) == paper | {"ablations", "geom-gcn", "geom-gcn-pubmed", "table2-longer"} | BEYOND


@pytest.mark.parametrize("name", study_names())
def test_everything_a_file_names_exists(name: str) -> None:
    study = load_study(name)
    assert study.title
    assert set(study.datasets) <= set(DATASETS)
    assert study.all_cells()
    for model, configurations in study.models.items():
        entry = MODELS[model]
        known = {*COMMON_PARAMS, *OPTIONAL_PARAMS, *entry.options, *SAMPLING.get(model, ())}
        assert all(set(configuration) <= known for configuration in configurations)
        assert all("lam" not in configuration or entry.gated for configuration in configurations)
        if any(DATASETS[dataset].graphs > 1 for dataset in study.datasets):
            assert entry.inductive
    for cell in study.all_cells():
        plan = study.plan(cell)
        assert plan.count >= study.splits * study.seeds
        assert DATASETS[cell.dataset].directed or study.variant(cell).view.edges == "undirected"
        assert len(plan.tuning()) == len(plan.configurations) * study.splits or not plan.tuning()
    assert study.published.source or name in BEYOND or all(DATASETS[dataset].standin for dataset in study.datasets)


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


def test_ablations_differ_from_table_1_in_one_change() -> None:
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


@pytest.mark.parametrize(("name", "chosen_by"), [("table2-longer", "table2"), ("geom-gcn-pubmed", "table1")])
def test_configurations_chosen_by_another_study(name: str, chosen_by: str) -> None:
    study, other, shared = load_study(name), load_study(chosen_by), ("lr", "weight_decay", "dropout")
    with (RESULTS / chosen_by / "chosen.csv").open(encoding="utf-8") as file:
        best = {(row["dataset"], row["model"]): row for row in csv.DictReader(file) if row["chosen"] == "1"}
    for model, (configuration,) in study.models.items():
        assert configuration in other.models[model]
        chosen = best[study.datasets[0], model]
        assert [configuration[key] for key in shared] == [float(chosen[key]) for key in shared]
    limits = {"max_epochs": other.config.max_epochs, "patience": other.config.patience}
    assert replace(study.config, **limits) == other.config


def test_studies_that_tune_all_models_alike() -> None:
    """A larger grid would be an advantage, see the page of Table 1."""
    for name in ("noise-draws", "cornell", "thesis"):
        study = load_study(name)
        grids = [own for variant in study.variants.values() for own in variant.models.values()]
        assert {len(own) for own in (*grids, *study.models.values())} == {16}
    study, first = load_study("noise-draws"), load_study("noise")
    assert (study.draws, study.seeds, study.splits) == (5, 3, 10)
    assert (study.datasets, study.vary, list(study.models)) == (first.datasets, first.vary, list(first.models))


def test_the_open_protocol_treats_all_models_alike() -> None:
    study = load_study("table1-open")
    assert study.search is not None
    assert {"features", "lr", "weight_decay", "input_dropout", "dropout"} == set(study.search.space)
    drawn = {tuple(tuple(each[name] for name in study.search.space) for each in own) for own in study.models.values()}
    assert len(drawn) == 1
    assert {len(own) for own in study.models.values()} == {32}
    assert {study.plan(cell).stops()[0] for cell in study.all_cells()} == {30}


def test_the_form_of_the_paper_in_the_thesis_is_that_of_table_1() -> None:
    """So that its runs are those of Table 1."""
    study, table = load_study("thesis"), load_study("table1")
    for model in study.models:
        for dataset in table.datasets:
            assert study.plan(Cell(dataset, model, "dimension")) == table.plan(Cell(dataset, model))


def test_an_unknown_study() -> None:
    with pytest.raises(StudyError, match=r"name must be one of ablations, .* or a YAML file, got 'table'; did you"):
        load_study("table")
