"""The analyses that `gfgn reproduce` runs in addition to the studies, by name.

Every analysis is a module with a function `analyze(out, *, root, device, progress)`, which writes its files into the
folder `out` and returns their paths. It expects the folders of the studies (`table1`, `noise`, …) next to `out`, the
datasets in `root` (see `gfgn.data.load`), trains on `device`, and calls `progress` with one line per step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gfgn.lazy import Lazy
from gfgn.paper.studies import study_names

ANALYSES: dict[str, Callable[..., list[Path]]] = {
    "spectral": Lazy("gfgn.paper.spectral", "analyze"),  # filters over Cora's spectrum
    "motivation": Lazy("gfgn.paper.motivation", "analyze"),  # the paper's two motivations
    "parameters": Lazy("gfgn.paper.parameters", "analyze"),  # parameter counts
    "scores": Lazy("gfgn.paper.scores", "analyze"),  # learned smoothing scores
    "mechanism": Lazy("gfgn.paper.mechanism", "analyze"),  # gates against the smoothness of dimensions
    "cornell": Lazy("gfgn.paper.cornell", "analyze"),  # Cornell as downloaded and corrected
    "claims": Lazy("gfgn.paper.claims", "analyze"),  # verdicts on the statements of the paper
}
PARTS = ("mechanism",)  # analyses that take `models` and `datasets` as well, to be run in parts
FOLDERS = {"mechanism": "thesis"}  # of analyses that belong to a study of another name
SECTIONS: dict[str, Callable[..., str]] = {  # further sections of a study's page, of its results and its folder
    "thesis": Lazy("gfgn.paper.thesis", "sections"),
}


def names() -> list[str]:
    """Everything that can be reproduced: the studies and the analyses."""
    return list(dict.fromkeys([*study_names(), *ANALYSES]))


def redraw(name: str, out: Path) -> list[Path]:
    """Draws the figures of an analysis with a function `draw` again, from the tables in its folder."""
    paths: list[Path] = Lazy(f"gfgn.paper.{name}", "draw")(out)
    return paths
