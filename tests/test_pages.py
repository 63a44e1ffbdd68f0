"""The documentation agrees with the registry, and the files it shows exist."""

import re
from pathlib import Path
from typing import Any

from gfgn.nn.registry import MODELS
from gfgn.train.classical import CLASSICAL

ROOT = Path(__file__).parents[1]


def test_the_models_page_lists_the_registry() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    expected = []
    for name, entry in MODELS.items():
        options = "<br>".join(f"`{key}` {value.default}: {value.meaning}" for key, value in entry.parameters.items())
        expected.append(f"| `{name}` | {entry.reference} | {options} |")
    expected += [f"| `{name}` | {model.reference} | {model.description} |" for name, model in CLASSICAL.items()]
    assert sorted(rows) == sorted(expected)


def test_the_examples_of_the_models_page_run() -> None:
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["run"].replica.options == (("alpha", 0.2), ("steps", 5))
    assert names["run"].val > 0.5
    assert names["logits"].shape == (names["dataset"].num_nodes, names["dataset"].num_classes)
