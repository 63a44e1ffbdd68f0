"""`gfgn datasets` and `gfgn models`."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gfgn.cli import app
from gfgn.data import DATASETS, OnDiskGraph
from gfgn.nn.registry import MODELS
from gfgn.train.catalog import CLASSICAL


def rows_of(*arguments: str) -> dict[str, str]:
    """The printed rows by their first word, without lines that continue one."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return {line.split()[0]: line for line in result.stdout.splitlines() if line and not line.startswith(" ")}


def test_datasets_are_listed() -> None:
    rows = rows_of("datasets")
    assert [name for name in rows if name != "name"] == list(DATASETS)
    assert rows["karate"].split()[-3:] == ["34", "4", "embedded"]
    assert rows["cora"].split()[-3:] == ["2,708", "7", "download"]
    assert "a stand-in, not ogbn-arxiv" in rows["ogbn-arxiv-structure"]
    assert rows["ogbn-arxiv-structure"].split()[-1] == "stand-in"


def test_models_are_listed() -> None:
    rows = rows_of("models")
    assert [name for name in rows if name not in ("name", "without")] == [*MODELS, *CLASSICAL]
    assert "Wu et al., Simplifying Graph" in rows["sgc"]
    assert "hops 2" in rows["sgc"]


def test_describe() -> None:
    result = CliRunner().invoke(app, ["datasets", "describe", "Karate"])
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert lines["karate:"].startswith("karate: members of a karate club")
    assert lines["edges"].split()[1] == "78"
    assert "edge 0.756, node " in lines["homophily"]
    assert "mean 4.6, quartiles 2, 3 and 5, from 1 to 17; 0 nodes" in lines["degree"]
    assert lines["16–31"].split()[-1] == "2"
    assert "█" in lines["2–3"]
    assert result.stdout.count("█") > 50
    assert "in-degree" not in result.stdout
    assert "feature dimensions by smoothness" in result.stdout
    assert "in the paper" not in result.stdout


def test_describe_draws_the_histograms(tmp_path: Path) -> None:
    picture = tmp_path / "karate.png"
    result = CliRunner().invoke(app, ["datasets", "describe", "karate", "--png", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in result.stdout
    assert "█" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["karat"], "did you mean 'karate'?"),
        (["karate", "--png", "."], "a file was expected"),
        (["ogbn-arxiv-structure"], "a stand-in in the raw layout of ogbn-arxiv"),
    ],
)
def test_describe_fails_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GFGN_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["datasets", "describe", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.startswith("gfgn: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize("stream", [False, True])
def test_pack_writes_a_store(tmp_path: Path, stream: bool) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "nodes.csv").write_text("id,label,f\n" + "".join(f"{k},{k % 3},{k}.5\n" for k in range(9)))
    (tmp_path / "given" / "edges.csv").write_text("source,target\n0,1\n1,2\n2,0\n2,2\n")
    arguments = ["datasets", "pack", str(tmp_path / "given"), str(tmp_path / "store")]
    result = CliRunner().invoke(app, [*arguments, *(["--stream", "--memory", "100MB"] if stream else [])])
    assert result.exit_code == 0, result.output
    assert "num_nodes=9, num_edges=6, num_features=1, num_classes=3" in result.output
    assert "1 self-loop dropped" in result.output
    assert "3 opposite edges added" in result.output
    assert OnDiskGraph.open(tmp_path / "store").idx.tolist() == [1, 2, 0, 2, 0, 1]
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 2
    assert "expected a new or an empty folder" in again.output.replace("\n", " ")
