"""Odd YAML, as a study and as options of a command: read, or refused in one line that names the file."""

from pathlib import Path

import pytest
from runs.small_studies import STUDY
from stress.cases import assert_refused, cases, damaged, damaged_text, gfgn

from gfgn.runs.study_file import read_study

VARIED = STUDY + "vary:\n  variant:\n    first: {}\n    second: {about: x, data: {noise: 0.5}, training: {clip: 1.0}}\n"
CONFIG = """
data: [karate]
models: [mlp, gcn]
splits: 1
seeds: 2
epochs: 3
class-weights: true
minutes: null
set: {lr: 0.01, gcn: {hidden: 16}, patience: 5}
"""
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("original", [STUDY, VARIED])
def test_studies(tmp_path: Path, original: str) -> None:
    path, read, refused = tmp_path / "odd.yaml", 0, 0
    for seed in cases(120):
        if seed % 4:
            path.write_text(damaged_text(original, seed), encoding="utf-8", errors="surrogatepass")
        else:
            path.write_bytes(damaged(original.encode(), seed))
        try:
            read_study(path)
            read += 1
        except ValueError as error:
            refused += "odd" in str(error)
            message = str(error)
            assert "odd" in message, (seed, message)
            assert len(message) < 5000, seed
    assert read
    assert refused


def test_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, written = tmp_path / "odd.yaml", tmp_path / "written.yaml"
    for seed in cases(80):
        if seed % 4:
            path.write_text(damaged_text(CONFIG, seed), encoding="utf-8", errors="surrogatepass")
        else:
            path.write_bytes(damaged(CONFIG.encode(), seed))
        result = gfgn(capsys, "compare", "--config", path, "--write-config", written)
        if result.code:
            assert_refused(result)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "[" * 1500,
        "{" * 1500,
        "a: " + "9" * 5000,
        "splits: !!timestamp 2020-02-30",
        "? [1, 2]\n: 3",
        "!!python/object/apply:os.system [exit 3]",
        "&a [*a]",
        "\x00",
        "- 1",
        "datasets: &d [karate, *d]",
    ],
)
def test_hostile_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    assert_refused(gfgn(capsys, "reproduce", path), "odd")
    assert_refused(gfgn(capsys, "compare", "--config", path), "odd.yaml")
