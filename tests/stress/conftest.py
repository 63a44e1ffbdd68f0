"""The stress suite: everything in this folder carries the marker `stress`; `make stress` runs its long form.

At the end it prints how many seeded cases each file has run.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stress.cases import Cases


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.stress)


@pytest.fixture(autouse=True)
def count_cases(request: pytest.FixtureRequest) -> Iterator[None]:
    Cases.run = 0
    yield
    request.node.user_properties.append(("cases", (request.path.stem.removeprefix("test_"), Cases.run)))
