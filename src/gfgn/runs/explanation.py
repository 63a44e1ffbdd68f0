"""`explain`: what the best run of a comparison shows beyond its score, computed once and kept in the store.

The explained run is trained again to have its parameters; a run's result does not depend on its company, so it is the
run of the store. What is said about gates needs a GFGN: the best one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from gfgn.data.dataset import NodeDataset
from gfgn.data.diagnosis import smoothness
from gfgn.metrics import METRICS
from gfgn.nn.registry import MODELS, find_model
from gfgn.runs.comparison import EXPLANATION, Comparison
from gfgn.runs.gates import LEVELS, MAX_DIMENSIONS, gates_by_dimension
from gfgn.runs.importance import permutation_importance
from gfgn.runs.record import RunRecord, digest, is_gfgn
from gfgn.runs.store import Store
from gfgn.train.evaluation import evaluate_classes
from gfgn.train.loop import train_replicas
from gfgn.train.minibatch import is_sampled
from gfgn.train.program import seeded_module
from gfgn.train.replica import Run
from gfgn.train.settings import threads_for
from gfgn.train.task import Part, Task, make_task, with_features, with_sparse_features

log = logging.getLogger(__name__)

FORMAT = 2  # of the note; a note of another format is computed again
POINTS = 200  # of a training curve
EXTREMES = 10  # nodes or edges at each end
LOCAL = ("neighbor", "pair")  # the levels with one gate per node or edge
REPEATS = (3, 10)  # fewest and most permutations per feature
CANDIDATES = 100  # features of wide data whose importance is computed
# Multiplications: of an epoch of a neighbor or pair gate by dimension, and of all predictions for the importance.
GATE_WORK, IMPORTANCE_WORK = 4 * 10**7, 6 * 10**10


@dataclass(frozen=True, eq=False)
class Explained:
    """A trained network of a model, its λ and the level of its gates, how it is scored, and on which nodes."""

    model: str
    level: str
    lam: float
    metric: str
    network: nn.Module
    task: Task

    @torch.no_grad()
    def logits(self, part: Part, x: Tensor | None = None) -> Tensor:
        """`[N, C]`: the predictions of a part, with other features if `x` is given."""
        logits: Tensor = self.network(part.x if x is None else x, part.graph)
        return logits

    def score(self, part: Part, x: Tensor | None = None) -> float:
        """The score of a part."""
        logits = self.logits(part, x).unsqueeze(0)
        return float(METRICS[self.metric].score(logits, part.y, part.masks))


@dataclass(frozen=True, eq=False)
class Again(Explained):
    """A run of a store trained again: its row, and the result."""

    row: RunRecord
    run: Run

    @classmethod
    def of(cls, row: RunRecord, dataset: NodeDataset, device: torch.device | str) -> Again:
        """Trains the run of a row again."""
        (run,) = train_replicas(row.model, dataset, [row.replica], **asdict(row.config), device=device, keep_state=True)
        if not math.isclose(run.test, row.test, abs_tol=1e-3):
            log.warning(
                f"{row.model} on {dataset.name} has a test score of {run.test:.4f}, {row.test:.4f} in the store"
            )
        entry = find_model(row.model)
        data = with_sparse_features(dataset.to(device))
        data = with_features(data, entry.applied(row.replica.options).get("features", "given"))
        settings = entry.settings(row.model, row.replica.options, {"num_nodes": data.num_nodes})
        network = seeded_module(entry, data, settings, 0, row.replica.dropout, row.replica.lam)
        assert run.state is not None
        network.load_state_dict(run.state, strict=False)  # buffers are no parameters
        network = network.to(device, data.x.dtype).eval()
        level = entry.gate_level(row.replica.options)
        task = make_task(data, [row.replica.split])
        return cls(row.model, level, row.replica.lam, row.metric, network, task, row, run)


def explain(
    store: Store, dataset: NodeDataset, comparison: Comparison, device: torch.device | str = "cpu"
) -> dict[str, Any] | None:
    """What the report shows beyond scores, from the store or computed now and kept there.

    The run explained is that of the model with the best mean validation score, on the first split with the first seed.
    Test scores play no part in the choice. The result can be kept as JSON; its entries:

    - `"run"`: model, configuration, split, seed, scores, epochs and key of the run explained;
    - `"history"`: losses and validation score at up to 200 epochs;
    - `"classes"`: `ClassReport.to_json()` of the test nodes;
    - `"features"`: by feature, gates, smoothness and importance, see `explain_features`;
    - `"gated"`: as `"run"`, of the best GFGN, or `None`;
    - `"extremes"`: nodes or edges with the highest and lowest gates, see `find_extremes`, or `None`.

    Returns:
        A dictionary, see above, or `None` if no model of the comparison can be explained: models that train on samples
        of the graph or have no network cannot.
    """
    best, gated, local = (choose_run(comparison, levels) for levels in (None, LEVELS, LOCAL))
    if best is None:
        return None
    ids = () if dataset.node_ids is None else dataset.node_ids
    names = [dataset.feature_names, _class_names(dataset), [str(each) for each in ids]]
    runs = [row.key for row in (best, gated, local) if row is not None]
    identity = {"format": FORMAT, "fingerprint": dataset.fingerprint, "names": digest(names), "runs": runs}
    kept = store.notes(EXPLANATION).get(dataset.name)
    if kept is not None and kept.get("identity") == identity:
        return kept
    with threads_for(dataset):
        note = {"identity": identity} | _explanation(best, gated, local, dataset, device)
    store.note(EXPLANATION, dataset.name, note)
    return store.notes(EXPLANATION)[dataset.name]


def choose_run(comparison: Comparison, levels: Sequence[str] | None = None) -> RunRecord | None:
    """The first run of the model with the best mean validation score, among those that can be explained; with `levels`,
    among those with gates of one of these."""
    able = [
        rows
        for model, rows in comparison.rows.items()
        if model in MODELS
        and (levels is None or MODELS[model].gate_level(rows[0].replica.options) in levels)
        and not is_sampled(model, rows[0].replica)
        and not any(row.diverged for row in rows)
    ]
    best = max(able, key=lambda rows: _or_low(fmean(row.val for row in rows)), default=None)
    return None if best is None else min(best, key=lambda row: (row.replica.split, row.replica.seed))


def _explanation(
    best: RunRecord, gated: RunRecord | None, local: RunRecord | None, dataset: NodeDataset, device: torch.device | str
) -> dict[str, Any]:
    start = time.perf_counter()
    rows = {row.key: row for row in (best, gated, local) if row is not None}
    again = {key: Again.of(row, dataset, device) for key, row in rows.items()}
    explained = again[best.key]
    note = {
        "run": _describe(explained),
        "history": thinned(explained.run.history, explained.run.epoch),
        "classes": _classes(explained, dataset),
        "gated": None if gated is None else _describe(again[gated.key]),
        "features": explain_features(again[(gated or best).key], dataset),
        "extremes": None if local is None else find_extremes(again[local.key], dataset),
    }
    return note | {"seconds": round(time.perf_counter() - start, 1)}


def _describe(explained: Again) -> dict[str, Any]:
    row, run = explained.row, explained.run
    scores = {"val": run.val, "test": run.test, "stored_test": row.test}
    return {
        "model": row.model,
        "key": row.key,
        "split": row.replica.split,
        "seed": row.replica.seed,
        "configuration": row.replica.configuration,
        "epoch": run.epoch,
        "epochs": run.epochs,
    } | {name: _finite(value) for name, value in scores.items()}


def thinned(history: Mapping[str, list[float]], best: int) -> dict[str, list[Any]]:
    """The training curves at up to `POINTS` epochs, the best one among them."""
    count = len(history["val"])
    epochs = (
        {round(k * (count - 1) / max(1, POINTS - 2)) for k in range(POINTS - 1)} if count > POINTS else range(count)
    )
    shown = sorted({*epochs, best})
    curves = {name: [_finite(values[epoch]) for epoch in shown] for name, values in history.items()}
    return {"epoch": shown} | curves


def _classes(explained: Explained, dataset: NodeDataset) -> dict[str, Any]:
    """The report by class on the test nodes."""
    part = explained.task.test
    nodes = part.masks[0]
    logits = explained.logits(part)[nodes].double().nan_to_num()  # of a run that diverged
    probabilities = logits.sigmoid() if dataset.multilabel else logits.softmax(-1)
    return evaluate_classes(probabilities, part.y[nodes], _class_names(dataset)).to_json()


# --- features ---------------------------------------------------------------------------------------------------------


def explain_features(
    explained: Explained, dataset: NodeDataset, known: Mapping[str, Tensor] | None = None
) -> dict[str, Any]:
    """Gates, smoothness and permutation importance of every feature, as lists in the order of the features.

    Gates are by level, see `gates_by_dimension`: of all levels for narrow data, else of the graph level; those that are
    `known` are not computed again. They have the λ of the explained network. The importance
    is the mean drop of the validation score: test nodes stay unseen by whoever chooses features from it. It is
    `None` for features that are no candidates, see `_candidates`. Features from one column of a table are permuted
    together and share their importance; `"source"` has the names of these columns.
    """
    gates = dict(known or {})
    for level in _levels(explained.model, dataset):
        if level not in gates:
            gates[level] = gates_by_dimension(dataset, level, lam=explained.lam)
    groups, source = _groups(dataset)
    work = _work(explained)
    count = len(groups) if dataset.num_features <= MAX_DIMENSIONS else min(len(groups), CANDIDATES)
    count = min(count, max(2, IMPORTANCE_WORK // (work * REPEATS[0])))
    repeats = min(max(REPEATS[0], IMPORTANCE_WORK // (work * count)), REPEATS[1])
    chosen = _candidates(explained, groups, gates.get(explained.level, gates.get(LEVELS[0])), count)
    part = explained.task.val
    drops = permutation_importance(lambda x: explained.score(part, x), part.x, [groups[k] for k in chosen], repeats)
    importance: list[float | None] = [None] * dataset.num_features
    spread = list(importance)
    for k, each in zip(chosen, drops, strict=True):
        for feature in groups[k]:
            importance[feature], spread[feature] = _finite(float(each.mean())), _finite(float(each.std()))
    truth = dataset.smooth_dimensions
    return {
        "model": explained.model,
        "level": explained.level,
        "lam": explained.lam,
        "names": list(dataset.feature_names),
        "source": source,
        "gates": {level: _rounded(values) for level, values in gates.items()},
        "smoothness": _rounded(smoothness(dataset)),
        "follows": None if truth is None else truth.tolist(),
        "importance": importance,
        "importance_std": spread,
        "repeats": repeats,
    }


def _levels(model: str, dataset: NodeDataset) -> Sequence[str]:
    """The levels whose gates are read: none without a GFGN, the graph level only where others cost too much."""
    if not is_gfgn(model):
        return ()
    features = dataset.num_features
    work = dataset.num_nodes * features**2 + dataset.graph.num_edges * features
    return LEVELS if features <= MAX_DIMENSIONS and work <= GATE_WORK else LEVELS[:1]


def _groups(dataset: NodeDataset) -> tuple[list[list[int]], list[str] | None]:
    """The features that are permuted together, and the name of the column that each feature is from, if known."""
    encoder = dataset.encoder
    if encoder is None:
        return [[feature] for feature in range(dataset.num_features)], None
    groups: dict[int, list[int]] = {}
    for feature, column in enumerate(encoder.sources):
        groups.setdefault(column, []).append(feature)
    return list(groups.values()), [encoder.columns[column].name for column in encoder.sources]


def _work(explained: Explained) -> int:
    """Multiplications of one prediction, roughly; a sparse matrix with a permuted column is built again."""
    part, width = explained.task.val, 64
    stored = 8 * part.x.values().numel() if part.x.layout == torch.sparse_csr else part.x.numel()
    return width * (stored + part.graph.num_edges + width * part.graph.num_nodes)


def _candidates(explained: Explained, groups: list[list[int]], gates: Tensor | None, count: int) -> list[int]:
    """`count` groups of features: up to 20 with the highest gates, up to 20 with the lowest, the others with the
    largest weights of the first layer, times the features' standard deviation."""
    if count >= len(groups):
        return list(range(len(groups)))
    x = explained.task.val.x
    squares = [each.square().sum(0) for each in explained.network.parameters() if _reads_features(each, x)]
    weights = (torch.stack(squares).sum(0) if squares else x.new_zeros(x.size(1))) * _variance(x)
    scores = [weights] if gates is None else [gates.to(x.device), -gates.to(x.device), weights]
    chosen: dict[int, None] = {}
    for number, values in enumerate(scores, 1):
        of_group = [max(values[group].tolist()) for group in groups]
        ranked = sorted(range(len(groups)), key=lambda k: -of_group[k])  # stable: ties in the order of the features
        share = count if number == len(scores) else number * min(20, count // 3)
        chosen |= dict.fromkeys([k for k in ranked if k not in chosen][: share - len(chosen)])
    return sorted(chosen)


def _reads_features(parameter: Tensor, x: Tensor) -> bool:
    return parameter.dim() == 2 and parameter.size(1) == x.size(1)


def _variance(x: Tensor) -> Tensor:
    """`[F]`: the variance of each feature."""
    if x.layout == torch.strided:
        return x.var(0, correction=0)
    columns, values = x.col_indices(), x.values()
    mean, square = (values.new_zeros(x.size(1)).index_add(0, columns, each) / x.size(0) for each in (values, values**2))
    return square - mean**2


# --- nodes and edges --------------------------------------------------------------------------------------------------


@torch.no_grad()
def find_extremes(explained: Explained, dataset: NodeDataset) -> dict[str, Any]:
    """The nodes (neighbor level) or edges (pair level) with the highest and the lowest first-layer gate, averaged over
    hidden units. Nodes without neighbors do not count."""
    pairs = explained.level == "pair"
    data = with_sparse_features(dataset.to(explained.task.val.y.device))
    _, scores = explained.network(data.x, data.graph, return_scores=True)
    gates, graph = scores[0].mean(1), data.graph
    if pairs:
        position = graph.edge_position
        kept = position >= 0  # given self-loops are no edges; repeated edges share a gate
        gates = gates.new_zeros(graph.num_edges).index_copy(0, position[kept], gates[kept])
        nodes = graph.edge_index.t()
    else:
        nodes = (graph.row_lengths > 0).nonzero()
        gates = gates[nodes[:, 0]]
    order = gates.sort(descending=True, stable=True).indices
    count = min(EXTREMES, order.numel() // 2)

    def describe(chosen: Tensor) -> list[dict[str, Any]]:
        rows = zip(gates[chosen].tolist(), nodes[chosen].tolist(), strict=True)
        return [{"gate": round(gate, 4), "nodes": [_node(dataset, node) for node in ends]} for gate, ends in rows]

    ends = {"most": describe(order[:count]), "least": describe(order.flip(0)[:count])}
    return {"model": explained.model, "kind": "edges" if pairs else "nodes", "total": order.numel()} | ends


def _node(dataset: NodeDataset, node: int) -> dict[str, Any]:
    """Id, class and number of neighbors of a node; the class is `None` if unknown or one of several."""
    label = -1 if dataset.multilabel else int(dataset.y[node])
    return {
        "id": str(node if dataset.node_ids is None else dataset.node_ids[node]),
        "class": None if label < 0 else _class_names(dataset)[label],
        "degree": int(dataset.graph.row_lengths[node]),
    }


def _class_names(dataset: NodeDataset) -> list[str]:
    return dataset.class_names or [str(k) for k in range(dataset.num_classes)]


def _rounded(values: Tensor) -> list[float | None]:
    return [_finite(round(value, 4)) for value in values.double().tolist()]


def _finite(value: float) -> float | None:
    """The value with six digits, or `None`, which JSON has, for NaN and infinity, which it has not."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _or_low(value: float) -> float:
    return -math.inf if math.isnan(value) else value
