"""The stress suite: everything in this folder carries the marker `stress`; `make stress` runs its long form."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.stress)
