"""Does `gfgn advise` give the right verdict where the truth is known? 20 seeds of five kinds of generated graphs.

In `dimensions` and in the block model with homophily and feature signal, a graph model is worth it; with one of them,
edges or features alone suffice; with neither, nothing beats the majority class. Takes about half an hour on
an idle core; `--seeds 2 3` for a part.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from common import write

from gfgn.data import NodeDataset, dimensions
from gfgn.data.generators.contextual_sbm import contextual_sbm
from gfgn.runs import Store
from gfgn.runs.advice import advise
from gfgn.train import keep_freed_memory

BLOCKS = partial(contextual_sbm, 800, classes=3, features=32, degree=10)
HOMOPHILY, SIGNAL = 0.6, 1.8
NONE = 1 / 3  # homophily of edges that know nothing of three classes
CASES: dict[str, tuple[str, Callable[..., NodeDataset]]] = {
    "dimensions": ("graph", partial(dimensions, 1000)),
    "block model, edges and features": ("graph", partial(BLOCKS, homophily=HOMOPHILY, signal=SIGNAL)),
    # With 16 features the means of two classes can be close by chance; then edges alone are almost as good.
    "block model, edges and weak features": ("graph", partial(BLOCKS, features=16, homophily=HOMOPHILY, signal=1.5)),
    "block model, edges only": ("edges", partial(BLOCKS, homophily=HOMOPHILY, signal=0.0)),
    "block model, features only": ("features", partial(BLOCKS, homophily=NONE, signal=SIGNAL)),
    "block model, neither": ("nothing", partial(BLOCKS, homophily=NONE, signal=0.0)),
}
TRAINING = {name: {"max_epochs": 100, "patience": 25} for name in CASES} | {
    "dimensions": {"max_epochs": 200, "patience": 50}  # six classes take longer to learn
}
GAPS = ("graph − features", "graph − edges", "edges − features", "graph − guessing", "edges − guessing")
GAPS += ("features − guessing",)


def run(name: str, seeds: list[int], store: Store) -> dict[str, object]:
    """The verdicts of one case, with the differences they rest on."""
    truth, make = CASES[name]
    rows, seconds = [], 0.0
    for seed in seeds:
        content = advise(make(seed=seed), store=store, **TRAINING[name]).to_json()
        models = content["comparison"]["models"]
        gaps = {
            key: " ".join(f"{gap[part]:+.4f}" for part in ("low", "mean", "high"))
            for key, gap in content["gaps"].items()
            if key in GAPS
        }
        scores = {model["model"]: round(model["mean"], 4) for model in models}
        rows.append({"seed": seed, "verdict": content["verdict"], "gaps": gaps, "test": scores})
        seconds += sum(model["seconds"] * model["runs"] for model in models)
        print(f"{name}, seed {seed}: {content['verdict']}", flush=True)
    right = sum(row["verdict"] == truth for row in rows)
    print(f"{name}: {right} of {len(rows)} right", flush=True)
    return {"dataset": name, "truth": truth, "right": right, "of": len(rows), "seconds": round(seconds), "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(20)))
    parser.add_argument("--store", default=":memory:", help="file that keeps the runs, to continue")
    arguments = parser.parse_args()
    with keep_freed_memory(), Store(arguments.store) as store:
        write("advice", "cpu", [run(name, arguments.seeds, store) for name in CASES], splits=10)
