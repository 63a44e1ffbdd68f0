"""The installed wheel: the quick start of the README in a folder that has nothing but two tables, and every command."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from estimator.tables import CLASSES, write_tables
from golden import commands
from golden.test_commands import GOLDEN, assert_same

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package from its wheel; what it depends on is that of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *options, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("gfgn-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", folder / "site", wheel], check=True)
    return folder / "site"


def quick_start() -> list[list[str]]:
    """The commands of the README that read `my-graph/` and write predictions."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\$ (gfgn (?:train|predict) [^#\n]*)", text, flags=re.M)
    return [shlex.split(line)[1:] for line in lines]


def run(site: Path, folder: Path, *arguments: str) -> str:
    """The output of Python with the installed package, in another folder than the checkout."""
    environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_commands_lead_to_predictions_and_a_report(site: Path, tmp_path: Path) -> None:
    truth = write_tables(tmp_path / "my-graph")
    commands = quick_start()
    assert [command[0] for command in commands] == ["train", "predict"]
    for command in commands:
        run(site, tmp_path, "-m", "gfgn", *command)
    found = pd.read_csv(tmp_path / "predictions.csv")
    unlabelled = truth[truth["label"] == ""]
    assert list(found["id"]) == list(unlabelled["id"])
    assert set(found["prediction"]) <= set(CLASSES)
    assert (found["prediction"].to_numpy() == unlabelled["truth"].to_numpy()).mean() > 0.75
    page = (tmp_path / "my-model" / "report.html").read_text(encoding="utf-8")
    assert "my-graph" in page
    assert "premium" in page


@pytest.mark.slow
def test_every_command_answers_as_in_the_checkout(site: Path, tmp_path: Path) -> None:
    found = json.loads(run(site, tmp_path, commands.__file__, "karate", "study"))
    assert Path(found["package"]).is_relative_to(site)
    for name, answers in found["answers"].items():
        assert_same(answers, GOLDEN[name], name)
    assert "karate" in run(site, tmp_path, "-m", "gfgn", "datasets")
    assert "gfgn-pair" in run(site, tmp_path, "-m", "gfgn", "models")
