"""The page of a study with several draws of random edges."""

from pathlib import Path

from runs.small_studies import run, write_study
from runs.test_draws import CLEAN, NOISY, STUDY

from gfgn.paper.check import check
from gfgn.paper.page import make_page
from gfgn.paper.reproduce import reproduce
from gfgn.paper.studies import load_study
from gfgn.runs import read_runs
from gfgn.runs.results import Results
from gfgn.runs.study_file import read_study


def test_the_page_says_what_draws_do_and_what_is_missing(tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY, "noisy")
    run(path, tmp_path / "noisy")
    study, rows = read_study(path), read_runs(tmp_path / "noisy" / "runs.csv.gz")
    page = make_page(Results(study, rows))
    assert "with the 95% interval of the mean over splits and draws" in page
    assert "### karate, draws" in page
    assert "There are 3 draws of random edges." in page
    part = make_page(Results(study, [row for row in rows if "draw" not in row.dataset]))
    assert f"missing ({NOISY - 8} of {NOISY} runs)" in part
    assert "| mlp | missing |" in part


def test_runs_of_every_draw_are_trained_again_on_it(tmp_path: Path) -> None:
    path = write_study(tmp_path, STUDY, "noisy")
    reproduce(path, tmp_path / "noisy", device="cpu")
    checked = check(path, tmp_path / "noisy", seed=1)
    assert checked.problems == []
    assert f"{2 * (CLEAN + NOISY)} runs on 4 graphs trained again (sample 1), {2 * (CLEAN + NOISY)} by bits" in str(
        checked.summary
    )


def test_every_model_has_the_same_number_of_configurations() -> None:
    """A larger grid would be an advantage, see the page of Table 1."""
    for name in ("noise-draws", "cornell"):
        assert {len(configurations) for configurations in load_study(name).models.values()} == {16}
    study, first = load_study("noise-draws"), load_study("noise")
    assert (study.draws, study.seeds, study.splits) == (5, 3, 10)
    assert (study.datasets, study.vary, list(study.models)) == (first.datasets, first.vary, list(first.models))
