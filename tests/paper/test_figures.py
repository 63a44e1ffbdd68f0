"""Figures: they are reproducible and small, and show the given data."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams
from matplotlib.figure import Figure
from scipy.stats import t

from gfgn.data import DATASETS
from gfgn.paper.figures.motivation import embedding_figure, neighbors_figure
from gfgn.paper.figures.parameters import parameters_figure
from gfgn.paper.figures.scores import scores_figure
from gfgn.paper.figures.spectral import spectral_figure
from gfgn.paper.figures.studies import (
    DIFFERENCES,
    Point,
    draw_study,
    lambda_figure,
    noise_figure,
    study_points,
    table_figure,
)
from gfgn.paper.studies import load_study
from gfgn.report.style import MODEL_STYLES, save_svg
from gfgn.runs.record import DatasetRecord, Row
from gfgn.runs.results import Results
from gfgn.train import Replica
from gfgn.train.statistics import TEST_SHARE

MODELS = ("gfgn-graph", "gfgn-neighbor", "gfgn-pair", "gcn", "mlp")


def points(xs: tuple[float, ...], datasets: tuple[str, ...] = ("cora", "citeseer")) -> list[Point]:
    return [
        Point(x, model, dataset, split, 0, 80 + index - (0 if math.isnan(x) else x) + split)
        for dataset in datasets
        for index, model in enumerate(MODELS)
        for x in xs
        for split in range(3)
    ]


def quantiles(seed: int, dimensions: int = 64) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).uniform(0, 2, (dimensions, 7)), axis=1)


def dots(low: float, high: float) -> np.ndarray:
    """Quantiles of 64 dimensions with one score each."""
    return np.tile(np.linspace(low, high, 64)[:, None], 7)


FIGURES: dict[str, Callable[[], Figure]] = {
    "spectral": lambda: spectral_figure(np.linspace(0, 2, 30), (0.1, 0.5, 0.9), (1, 2), "Cora"),
    "neighbors": lambda: neighbors_figure(np.random.default_rng(0).uniform(size=(4, 2))),
    "embedding": lambda: embedding_figure(
        np.linspace(0, 9, 40), np.linspace(0, 9, 40), np.random.default_rng(0).uniform(0.1, 1, (40, 5)), "Cora"
    ),
    "parameters": lambda: parameters_figure(
        [(level, width, 2 * width**2) for level in ("graph", "neighbor", "pair") for width in (16, 64)],
        {level: {"cora": 0.01, "ppi": 0.05} for level in ("graph", "neighbor", "pair")},
    ),
    "noise": lambda: noise_figure(points((0.0, 1.0))),
    "lambda": lambda: lambda_figure(points((0.0, 1.0))),
    "table": lambda: table_figure(points((math.nan,)), {"gcn": {"cora": 81.0}}),
    "values": lambda: scores_figure({"cora": dots(0.5, 0.9)}, {"cora": np.arange(64) % 3 == 0}, "gfgn-graph", 0.55),
    "boxes": lambda: scores_figure(
        {"cora": quantiles(0, 9), "texas": quantiles(1, 9)},
        {name: np.arange(9) % 3 == 0 for name in ("cora", "texas")},
        "gfgn-neighbor",
        0.55,
    ),
}


@pytest.mark.parametrize("name", list(FIGURES))
def test_figures_are_the_same_to_the_byte_and_small(name: str, tmp_path: Path) -> None:
    first, again = (save_svg(FIGURES[name](), tmp_path / folder / f"{name}.svg") for folder in ("a", "b"))
    assert first.read_bytes() == again.read_bytes()
    assert first.stat().st_size < 300_000
    svg = first.read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    assert "<dc:creator>" not in svg


def test_drawing_leaves_the_settings_of_matplotlib_alone() -> None:
    before = dict(rcParams)
    FIGURES["noise"]()
    assert dict(rcParams) == before


def test_lines_are_means_with_intervals() -> None:
    figure = lambda_figure(points((0.0, 1.0)))
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert list(lines) == ["GFGN-graph", "GFGN-neighbor", "GFGN-pair", "GCN", "MLP"]
    assert list(lines["GCN"].get_xdata()) == [0, 1]
    assert list(lines["GCN"].get_ydata()) == pytest.approx([84, 83])  # 80 + 3 − x + the mean of 0, 1, 2
    band = axes.collections[3].get_paths()[0].vertices
    half = t.ppf(0.975, 2) * math.sqrt(1 / 3 + TEST_SHARE)  # three splits with a standard deviation of 1
    assert band[:, 1].min() == pytest.approx(83 - half)
    assert band[:, 1].max() == pytest.approx(84 + half)
    assert [one.get_title(loc="left") for one in figure.axes] == ["(a) Cora", "(b) Citeseer"]
    assert {one.get_xscale() for one in figure.axes} == {"symlog"}


def test_a_model_without_gates_is_a_horizontal_line() -> None:
    runs = [p for p in points((0.0, 5.0)) if p.model == "gfgn-graph"]
    runs += [p._replace(x=math.nan) for p in points((0.0,)) if p.model == "mlp"]
    (mlp,) = [line for line in lambda_figure(runs).axes[1].get_lines() if line.get_label() == "MLP"]
    assert list(mlp.get_ydata()) == pytest.approx([85, 85])


def test_noise_has_one_panel_per_graph_and_family() -> None:
    figure = noise_figure(points((0.0, 1.0)))
    assert [one.get_title(loc="left") for one in figure.axes] == ["(a) Cora", "(b) Citeseer", "", "", "", ""]
    named = [[line.get_label() for line in one.get_lines() if line.get_label()[0] != "_"] for one in figure.axes[::2]]
    assert named == [["GFGN-graph", "GFGN-neighbor", "GFGN-pair"], ["GCN"], ["MLP"]]
    assert {len(one.get_lines()) for one in figure.axes} == {5}  # the others are gray
    assert [len(one.collections) for one in figure.axes[::2]] == [3, 1, 1]
    half = t.ppf(0.975, 2) * math.sqrt(1 / 3 + TEST_SHARE)
    band = figure.axes[2].collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(83 - half)


def test_draws_are_bands() -> None:
    """With several draws, a band reaches from the lowest to the highest, however much splits differ."""
    runs = [p for p in points((0.0, 1.0)) if p.model == "gcn"]
    runs += [p._replace(draw=draw, score=p.score + 0.1 * draw) for p in runs if p.x for draw in (1, 2)]
    figure = noise_figure(runs)
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert sorted(set(band[:, 1].round(6))) == pytest.approx([83, 83.2, 84])
    (line,) = figure.axes[0].get_lines()
    assert list(line.get_ydata()) == pytest.approx([84, 83.1])


def test_a_table_is_drawn_as_differences_to_the_best_baseline() -> None:
    published = {"gcn": {"cora": 81.0}, "mlp": {"cora": 79.0}, "gfgn-pair": {"cora": 84.0}}
    figure = table_figure(points((math.nan,)), published)
    left, right = figure.axes[:2]
    assert left.get_title(loc="left") == "(a) Cora: MLP 85.0"
    diamonds = [
        [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "D" and len(line.get_xdata())]
        for axes in (left, right)
    ]
    assert diamonds == [[3.0, 0.0, -2.0], []]  # the best published baseline is another one
    dots = [line.get_xdata()[0] for line in left.get_lines() if line.get_marker() == "o" and len(line.get_xdata())]
    assert dots == pytest.approx([-4, -3, -2, -1, 0])
    assert [label.get_text() for label in left.get_yticklabels()][3:] == ["GCN", "MLP"]
    assert [label.get_text() for label in left.get_xticklabels()] == [str(x).replace("-", "−") for x in DIFFERENCES]


def test_intervals_of_differences_are_paired() -> None:
    """Splits that are hard for both models cancel."""
    noise = np.random.default_rng(0).normal(size=3)
    runs = [p for p in points((math.nan,), ("cora",)) if p.model in ("gcn", "gfgn-pair")]
    runs = [p._replace(score=p.score + (0.1 * noise[p.split] if p.model == "gcn" else 0)) for p in runs]
    (pair, gcn) = [
        line.get_xdata() for line in table_figure(runs, {}).axes[0].get_lines() if len(line.get_xdata()) == 2
    ][1:3]
    assert 0 < pair[1] - pair[0] < 1
    assert list(gcn) == [0, 0]


def test_a_table_of_levels_alone_is_a_forest_of_scores() -> None:
    runs = [p for p in points((math.nan,), ("cora",)) if p.model.startswith("gfgn")]
    (axes,) = table_figure(runs, {"gfgn-pair": {"cora": 81.0}}).axes
    dots = [line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "o" and len(line.get_xdata())]
    assert dots == pytest.approx([81, 82, 83])
    (diamond,) = [line for line in axes.get_lines() if line.get_marker() == "D" and len(line.get_xdata())]
    assert list(diamond.get_xdata()) == [81.0]


def test_boxes_reach_from_quartile_to_quartile() -> None:
    values = quantiles(0)
    axes = scores_figure({"cora": values}, {"cora": np.zeros(64, dtype=bool)}, "gfgn-pair", 0.55).axes[0]
    (boxes,) = axes.patches
    corners = boxes.get_path().vertices.reshape(64, 4, 2)
    assert corners[:, :, 1].min(axis=1) == pytest.approx(values[:, 2])
    assert corners[:, :, 1].max(axis=1) == pytest.approx(values[:, 4])
    assert corners[:, :, 0].mean(axis=1) == pytest.approx(np.arange(64))


def test_panels_share_their_axis_and_undecided_dimensions_are_gray() -> None:
    low, high = dots(0.1, 0.2), dots(0.1, 1.9)
    idle = np.arange(64) < 10
    figure = scores_figure({"cora": low, "texas": high}, {"cora": idle, "texas": ~idle}, "gfgn-graph", 0.55)
    assert figure.axes[1].get_ylim()[0] == 0
    assert figure.axes[1].get_ylim()[1] > 1.9  # though the first panel needs less
    gray, colored = (line for line in figure.axes[0].get_lines() if line.get_marker() == "o")
    assert list(gray.get_xdata()) == list(range(10))
    assert list(colored.get_ydata()) == pytest.approx(low[10:, 0])
    assert gray.get_color() != colored.get_color()


def test_models_look_different() -> None:
    styles = [(style["color"], style["marker"], style.get("linestyle")) for style in MODEL_STYLES.values()]
    assert len(set(styles)) == len(styles)
    assert len({marker for _, marker, _ in styles}) == len(styles)  # distinct without color, too


def test_nothing_to_draw() -> None:
    with pytest.raises(ValueError, match="points must hold at least one run, got none"):
        noise_figure([])
    with pytest.raises(ValueError, match="undecided must hold at least one dataset, got none"):
        scores_figure({}, {}, "gfgn-pair", 0.55)


# --- studies ----------------------------------------------------------------------------------------------------------


def results(name: str, models: Sequence[str] = ()) -> Results:
    """Returns a study with all runs of some models, or of all."""
    study = load_study(name)
    rows = []
    for cell in study.all_cells():
        if models and cell.model not in models:
            continue
        standin = DATASETS[cell.dataset].standin
        record = DatasetRecord(study.data_name(cell), "f", ("s",) * 10, standin, "accuracy", "", 1, 1, 1, 2)
        plan = study.plan(cell)
        final = plan.final(plan.configurations[0])
        for replica in dict.fromkeys([*plan.tuning(), *final]):
            row = _row(record, cell.model, replica, study.variant(cell).config, 0.8 + 0.01 * replica.split)
            rows.append(replace(row, val=0.6) if replica in final else row)
    return Results(study, rows)


def _row(record: DatasetRecord, model: str, replica: Replica, config: object, test: float) -> Row:
    names = {"search": "", "val": 0.5, "test": test, "epoch": 1, "epochs": 2, "seconds": 0.1, "num_parameters": 3}
    return Row(
        key=f"{record.name} {model} {replica}",
        dataset=record.name,
        dataset_fingerprint="f",
        standin=record.standin,
        metric="accuracy",
        model=model,
        replica=replica,
        split_fingerprint="s",
        config=config,
        **names,
    )


def test_a_study_with_an_axis(tmp_path: Path) -> None:
    study = results("lambda", models=("gfgn-pair", "mlp"))
    runs = study_points(study)
    assert {point.dataset for point in runs} == {"blogcatalog", "cora"}
    assert {point.x for point in runs if point.model == "gfgn-pair"} == set(study.study.vary.values)
    assert all(math.isnan(point.x) for point in runs if point.model == "mlp")
    assert runs[0].score == pytest.approx(80)
    assert draw_study(study, tmp_path) == [tmp_path / "lambda.svg"]
    assert (tmp_path / "lambda.svg").is_file()


def test_a_study_without_runs_or_of_gates_has_no_figure(tmp_path: Path) -> None:
    assert draw_study(Results(load_study("table1"), []), tmp_path) == []
    gates = results("scores", models=("gfgn-pair",))
    assert study_points(gates)
    assert draw_study(gates, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_one_dataset() -> None:
    figure = table_figure(points((math.nan,), ("cora",)), {})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Cora: MLP 85.0"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["measured, with 95% interval"]


def test_a_table_of_one_split_and_a_stand_in() -> None:
    """There are single runs instead of intervals, and nothing published."""
    study = results("table2")
    points = study_points(study)
    assert {point.dataset for point in points} == {"ppi", "ppi-relabelled (stand-in)"}
    figure = table_figure([p for p in points if p.dataset != "ppi"], study.study.published.scores)
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "ppi-relabelled (stand-in)"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["measured, mean", "single runs"]
    runs = [list(line.get_xdata()) for line in axes.get_lines() if line.get_marker() == "|" and len(line.get_xdata())]
    assert len(runs) == len(study.study.models)
    assert {len(scores) for scores in runs} == {study.study.seeds}
