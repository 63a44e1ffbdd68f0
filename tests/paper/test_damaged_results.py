"""Damaged files in the folder of a study: its page, or one line."""

import random
from pathlib import Path

from runs.small_studies import write_study
from stress.cases import cases
from stress.readers import damage_mixed, study_folder

from gfgn.paper.reproduce import render
from gfgn.paper.studies import load_study


def test_the_page_is_written_or_refused(tmp_path: Path) -> None:
    study, files, ends = load_study(write_study(tmp_path)), study_folder(), set()
    for seed in cases(60):
        for name, content in damage_mixed(files, random.Random(seed)).items():
            (tmp_path / name).write_bytes(content)
        message = ""
        try:
            render(study, tmp_path)
        except ValueError as error:
            message = str(error)
        assert not message or (str(tmp_path) in message and "\n" not in message), seed
        ends.add(bool(message))
    assert ends == {True, False}
