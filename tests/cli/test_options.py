"""`--set`, `--config`, `--json` and `--quiet`, which several commands share."""

import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gfgn.cli import app, options
from gfgn.cli.options import parse_settings
from gfgn.runs import Store

MODELS = ["majority", "mlp", "gfgn-pair", "graphsage"]
QUICK = ["--splits", "2", "--epochs", "3", "--models", "majority,mlp,gfgn-pair"]


def invoke(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def test_settings() -> None:
    given = ["lr=1e-3", "gfgn-pair.heads=16", "gfgn-pair.gate_bias=-2", "gfgn-pair.lr=0.1", "mlp.layers = 3"]
    given += ["max_epochs=9", "max_epochs=7", "clip=none", "schedule=cosine", "tf32=true", "graphsage.batch_size=64"]
    settings = parse_settings(given, MODELS)
    expected = {"gfgn-pair": {"heads": 16, "gate_bias": -2.0, "lr": 0.1}, "mlp": {"layers": 3}}
    assert settings.pop("options") == expected | {"graphsage": {"batch_size": 64}}
    assert settings == {"lr": 0.001, "max_epochs": 7, "clip": None, "schedule": "cosine", "tf32": True}
    shared = parse_settings(["input_dropout=0.2", "features=normalized", "mlp.features=given"], MODELS)
    assert shared == {"input_dropout": 0.2, "features": "normalized", "options": {"mlp": {"features": "given"}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "--set must be NAME=VALUE or MODEL.NAME=VALUE, got 'lr'"),
        (
            "lrr=1",
            "--set must name one of lr, .*, gate_decay, features, max_epochs, .*, or MODEL.OPTION, got 'lrr=1'",
        ),
        ("gcn.hidden=8", "--set must name one of the networks mlp, gfgn-pair, graphsage, got 'gcn.hidden=8'"),
        ("majority.x=8", "--set must name one of the networks"),
        (
            "mlp.heads=8",
            "--set must name one of hidden, layers, features, lr, .*, input_dropout, gate_decay, got 'mlp.heads=8'",
        ),
        ("mlp.hidden=many", "--set must have an integer there, got 'mlp.hidden=many'"),
        ("clip=much", "--set must have a number or none there, got 'clip=much'"),
        ("class_weights=2", "--set must have true or false there, got 'class_weights=2'"),
    ],
)
def test_bad_settings(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_settings([text], MODELS)


def test_settings_reach_the_runs(tmp_path: Path) -> None:
    given = ["--set", "lr=0.03", "--set", "gfgn-pair.heads=16", "--set", "max_epochs=2", "--class-weights"]
    result = invoke("compare", "karate", *QUICK, *given, "--out", str(tmp_path))
    assert "learning rate 0.03" in result.stdout
    assert "gfgn-pair with heads 16" in result.stdout
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        rows = store.rows()
    assert {row.replica.lr for row in rows if row.model != "majority"} == {0.03}
    assert {row.replica.options for row in rows if row.model == "gfgn-pair"} == {(("heads", 16),)}
    assert {(row.config.max_epochs, row.config.class_weights) for row in rows} == {(2, True)}
    for bad in ("dropout=2", "max_epochs=0", "gfgn-pair.heads=7"):
        result = invoke("compare", "karate", *QUICK, "--set", bad, "--out", str(tmp_path / "bad"), code=2)
        assert result.stderr.startswith("gfgn: ")
        assert "must" in result.stderr


def test_settings_are_fixed_in_a_search(tmp_path: Path) -> None:
    invoke("compare", "karate", *QUICK, "--trials", "3", "--set", "lr=0.03", "--out", str(tmp_path))
    with Store(tmp_path / "runs.sqlite", read_only=True) as store:
        rows = [row for row in store.rows(dropped=True) if row.model != "majority"]
    assert {row.replica.lr for row in rows} == {0.03}
    assert len({row.replica.dropout for row in rows}) == 3


# --- output -----------------------------------------------------------------------------------------------------------


def test_json_and_quiet(tmp_path: Path) -> None:
    result = invoke("compare", "karate", *QUICK, "--json", "--quiet", "--out", str(tmp_path))
    assert result.stderr == ""
    content = json.loads(result.stdout)
    (comparison,) = content["comparisons"]
    assert [entry["model"] for entry in comparison["models"]] == ["majority", "mlp", "gfgn-pair"]
    assert comparison["models"][0]["configuration"] is None
    assert comparison["models"][1]["configuration"]["lr"] == 0.02
    assert "chosen on validation" in comparison["headline"]
    assert content["trained"] == 6
    assert Path(content["files"]["report"]).exists()
    one = json.loads(invoke("compare", "karate", *QUICK, "--splits", "1", "--json", "--out", str(tmp_path)).stdout)
    assert one["trained"] == 0


def test_minutes(tmp_path: Path) -> None:
    result = invoke("compare", "karate", *QUICK, "--minutes", "0.0001", "--out", str(tmp_path))
    assert "karate: 1 configuration per model, at most " in result.stderr
    assert "more than the 0 s that --minutes allows" in result.stderr
    result = invoke("compare", "karate", *QUICK, "--minutes", "1", "--trials", "2", "--out", str(tmp_path), code=2)
    assert "--minutes must not be given together with --grid or --trials" in result.stderr


def test_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or False)
    result = invoke("compare", "karate", *QUICK, "--models", "majority", "--open", "--out", str(tmp_path))
    assert opened == [(tmp_path / "report.html").as_uri()]
    assert "no browser could be opened" in result.stderr


def test_completion_is_offered() -> None:
    assert "--install-completion" in invoke("--help").stdout


def test_advise(tmp_path: Path) -> None:
    given = ["advise", "karate", "--splits", "2", "--epochs", "3", "--out", str(tmp_path)]
    result = invoke(*given)
    for text in ("label-propagation", "Edges within a class: 76%", "Smoothness of the features", "suffice|worth|beat"):
        assert any(part in result.stdout for part in text.split("|"))
    assert (tmp_path / "report.html").exists()
    content = json.loads(invoke(*given, "--json").stdout)
    assert content["verdict"] in ("graph", "edges", "features", "nothing")
    assert content["sentence"] in result.stdout
    assert (content["trained"], content["kept"]) == (0, 18)
    assert content["statistics"]["edge_homophily"] == pytest.approx(0.756, abs=1e-3)
    assert "splits must be 1 to 10" in invoke("advise", "karate", "--splits", "99", code=2).stderr
    more = json.loads(invoke(*given, "--models", "sgc", "--json").stdout)  # the models of the first call count as well
    assert unescape((tmp_path / "report.html").read_text(encoding="utf-8")).count(more["sentence"]) == 1


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    options.print_json({"a": [float("nan"), 1.0], "b": {"c": float("inf")}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, 1.0], "b": {"c": None}}
