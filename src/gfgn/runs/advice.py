"""`advise`: should a graph model be used on this data? Trivial, tabular and graph models, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from gfgn.data.dataset import NodeDataset
from gfgn.data.diagnosis import Description, describe
from gfgn.runs.comparison import Settings, compare
from gfgn.runs.engine import ProgressCallback
from gfgn.runs.results import Results
from gfgn.runs.store import Store
from gfgn.runs.verdict import Verdict, judge
from gfgn.train.catalog import CLASSICAL

GRAPH_MODELS = ("gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair")
MODELS = (*CLASSICAL, "mlp", *GRAPH_MODELS)
SPLITS = 10


@dataclass(frozen=True)
class Advice:
    """The comparison, the verdict it leads to, and the statistics of the graph."""

    comparison: Results
    verdict: Verdict
    description: Description

    def to_json(self) -> dict[str, Any]:
        """The advice as JSON values."""
        found, verdict = self.description, self.verdict
        statistics = {
            "edge_homophily": found.edge_homophily,
            "adjusted_homophily": found.adjusted_homophily,
            "smoothness": found.smoothness.double().quantile(0.5).item() if found.num_features else None,
        }
        gaps = {name: {"mean": gap.mean, "low": gap.low, "high": gap.high} for name, gap in verdict.gaps.items()}
        own = {"verdict": verdict.kind, "sentence": verdict.sentence, "models_by_kind": verdict.models, "gaps": gaps}
        own["guessing"] = {"name": verdict.floor.name, "mean": verdict.floor.mean}
        return {**own, "statistics": statistics, "comparison": self.comparison.to_json()}


def suited_models(dataset: NodeDataset, graph_models: Sequence[str] = GRAPH_MODELS) -> tuple[str, ...]:
    """Those of the models without a graph, and of the given ones with it, that are for this kind of data."""
    suited = []
    for model in (*CLASSICAL, "mlp", *graph_models):
        entry = CLASSICAL.get(model)
        if entry is None or (
            (entry.multilabel or not dataset.multilabel) and (entry.inductive or not dataset.inductive)
        ):
            suited.append(model)
    return tuple(suited)


def advise(
    dataset: NodeDataset,
    splits: int | None = None,
    graph_models: Sequence[str] = GRAPH_MODELS,
    seeds: int = 1,
    *,
    store: Store | None = None,
    device: str = "cpu",
    callback: ProgressCallback | None = None,
    **settings: Unpack[Settings],
) -> Advice:
    """Trains the models over splits, except runs that the store has, and judges whether the graph is worth it.

    Args:
        splits: Number of splits; by default 10, or all if there are fewer.
        graph_models: The models that read features and edges, see `gfgn.nn.find_model`.
        **settings: Those of `gfgn.runs.compare`.
    """
    count = min(SPLITS, max(1, len(dataset.splits))) if splits is None else splits
    models = suited_models(dataset, graph_models)
    results = compare(dataset, models, count, seeds, store=store, device=device, callback=callback, **settings)
    return make_advice(dataset, results)


def make_advice(dataset: NodeDataset, comparison: Results) -> Advice:
    """The advice from a finished comparison of `suited_models`."""
    return Advice(comparison, judge(comparison), describe(dataset))
