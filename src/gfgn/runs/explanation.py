"""`explain`: what the best run of a comparison shows beyond its score, computed once and kept in the store.

The explained run is trained again to have its parameters; a run's result does not depend on its company, so it is the
run of the store. What is said about gates needs a GFGN: the best one.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor, nn
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from gfgn.data.dataset import NodeDataset
from gfgn.data.diagnosis import smoothness
from gfgn.data.streams import Stream
from gfgn.metrics import METRICS
from gfgn.nn.registry import MODELS, find_model
from gfgn.ops.features import sparse_csr
from gfgn.runs.comparison import EXPLANATION, Comparison
from gfgn.runs.gates import LEVELS, MAX_DIMENSIONS, gates_by_dimension
from gfgn.runs.grid import Configuration
from gfgn.runs.record import RunRecord, digest, is_gfgn
from gfgn.runs.store import Store
from gfgn.train.evaluation import ClassReport, evaluate_classes
from gfgn.train.loop import train_replicas
from gfgn.train.minibatch import is_sampled
from gfgn.train.program import seeded_module
from gfgn.train.replica import Run
from gfgn.train.settings import threads_for
from gfgn.train.task import Part, Task, make_task, with_features, with_sparse_features

log = logging.getLogger(__name__)

FORMAT = 3  # of the note; a note of another format is computed again
POINTS = 200  # of a training curve
EXTREMES = 10  # nodes or edges at each end
LOCAL = ("neighbor", "pair")  # the levels with one gate per node or edge
MIN_REPEATS, MAX_REPEATS = 3, 10  # permutations per feature
CANDIDATES = 100  # features of wide data whose importance is computed
# Multiplications: of an epoch of a neighbor or pair gate by dimension, and of all predictions for the importance.
GATE_WORK, IMPORTANCE_WORK = 4 * 10**7, 6 * 10**10

Values = list[float | None]  # `None` for what is not known or not finite
Node = TypedDict("Node", {"id": str, "class": str | None, "degree": int})  # the class of a node with several is `None`


@dataclass(frozen=True)
class RunSummary:
    """A run that was trained again; `test` is its score now and `stored_test` that in the store."""

    model: str
    key: str
    split: int
    seed: int
    configuration: Configuration
    epoch: int
    epochs: int
    val: float | None
    test: float | None
    stored_test: float | None


@dataclass(frozen=True)
class Features:
    """What is known about the features, in their order.

    Attributes:
        model, level, lam: The explained model, the level of its gates and its λ, which the gates have too.
        source: The column of a table that each feature is from, if known.
        gates: By level, see `gfgn.runs.gates_by_dimension`.
        follows: Whether a feature follows the graph, known for generated graphs.
        importance, importance_std: Mean drop of the validation score under permutation; `None` if not computed.
    """

    model: str
    level: str
    lam: float
    names: list[str]
    source: list[str] | None
    gates: dict[str, Values]
    smoothness: Values
    follows: list[bool] | None
    importance: Values
    importance_std: Values
    repeats: int


@dataclass(frozen=True)
class Gate:
    """The mean first-layer gate of a node, or of an edge with its source and target."""

    gate: float
    nodes: list[Node]


@dataclass(frozen=True)
class Extremes:
    """The nodes or edges with the highest and the lowest gates, among `total` of them."""

    model: str
    kind: str
    total: int
    most: list[Gate]
    least: list[Gate]
    directed: bool


@dataclass(frozen=True)
class Explanation:
    """What the report shows beyond scores.

    Attributes:
        run: The run that is explained; `gated`: the same of the best GFGN.
        history: Its losses and validation score at up to 200 epochs.
        classes: How well it predicts each class of the test nodes.
        extremes: Of the best GFGN with one gate per node or edge.
        seconds: How long all this took.
    """

    identity: dict[str, object]
    run: RunSummary
    history: dict[str, Values]
    classes: ClassReport
    gated: RunSummary | None
    features: Features
    extremes: Extremes | None
    seconds: float

    def to_json(self) -> dict[str, object]:
        """The explanation in types that JSON has."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, object]) -> Explanation:
        """The explanation from what `to_json` returned and the store kept; a `ValueError` if it is damaged."""
        return TypeAdapter(cls).validate_python(content)


@dataclass(frozen=True, eq=False)
class TrainedModel:
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
        return float(METRICS[self.metric].score(self.logits(part, x).unsqueeze(0), part.y, part.masks))


@dataclass(frozen=True, eq=False)
class RetrainedRun(TrainedModel):
    """A run of a store trained again: its row, and the result."""

    row: RunRecord
    run: Run

    @classmethod
    def of(cls, row: RunRecord, dataset: NodeDataset, device: torch.device | str) -> RetrainedRun:
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

    def summary(self) -> RunSummary:
        """What the explanation keeps of the run."""
        row, run = self.row, self.run
        return RunSummary(
            model=row.model,
            key=row.key,
            split=row.replica.split,
            seed=row.replica.seed,
            configuration=row.replica.configuration,
            epoch=run.epoch,
            epochs=run.epochs,
            val=_finite(run.val),
            test=_finite(run.test),
            stored_test=_finite(row.test),
        )


def explain(
    store: Store, dataset: NodeDataset, comparison: Comparison, device: torch.device | str = "cpu"
) -> Explanation | None:
    """What the report shows beyond scores, from the store or computed now and kept there.

    The run explained is that of the model with the best mean validation score, on the first split with the first seed.
    Test scores play no part in the choice. Returns `None` if no model of the comparison can be explained: models that
    train on samples of the graph or have no network cannot.
    """
    best, gated, local = (choose_run(comparison, levels) for levels in (None, LEVELS, LOCAL))
    if best is None:
        return None
    ids = () if dataset.node_ids is None else dataset.node_ids
    names = [dataset.feature_names, _class_names(dataset), [str(each) for each in ids]]
    runs = {row.key: row for row in (best, gated, local) if row is not None}
    keys = [row.key for row in (best, gated, local) if row is not None]
    identity = {"format": FORMAT, "fingerprint": dataset.fingerprint, "names": digest(names), "runs": keys}
    kept = store.notes(EXPLANATION).get(dataset.name)
    if kept is None or kept.get("identity") != identity:
        start = time.perf_counter()
        with threads_for(dataset):
            again = {key: RetrainedRun.of(row, dataset, device) for key, row in runs.items()}
            explained = again[best.key]
            explanation = Explanation(
                identity,
                run=explained.summary(),
                history=thinned(explained.run.history, explained.run.epoch),
                classes=_classes(explained, dataset),
                gated=None if gated is None else again[gated.key].summary(),
                features=explain_features(again[(gated or best).key], dataset),
                extremes=None if local is None else find_extremes(again[local.key], dataset),
                seconds=round(time.perf_counter() - start, 1),
            )
        store.note(EXPLANATION, dataset.name, explanation.to_json())
        kept = store.notes(EXPLANATION)[dataset.name]
    return Explanation.from_json(kept)


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
    best = max(able, key=lambda rows: np.nan_to_num(fmean(row.val for row in rows), nan=-math.inf), default=None)
    return None if best is None else min(best, key=lambda row: (row.replica.split, row.replica.seed))


def thinned(history: Mapping[str, list[float]], best: int) -> dict[str, Values]:
    """The training curves at up to `POINTS` epochs, the best one among them."""
    count = len(history["val"])
    epochs = {round(k * (count - 1) / max(1, POINTS - 2)) for k in range(POINTS - 1)} if count > POINTS else set()
    shown = sorted({*(epochs or range(count)), best})
    return {"epoch": list(shown)} | {name: [_finite(values[k]) for k in shown] for name, values in history.items()}


def _classes(explained: TrainedModel, dataset: NodeDataset) -> ClassReport:
    """The report by class on the test nodes."""
    part = explained.task.test
    nodes = part.masks[0]
    logits = explained.logits(part)[nodes].double().nan_to_num()  # of a run that diverged
    probabilities = logits.sigmoid() if dataset.multilabel else logits.softmax(-1)
    return evaluate_classes(probabilities, part.y[nodes], _class_names(dataset))


# --- features ---------------------------------------------------------------------------------------------------------


def explain_features(
    explained: TrainedModel, dataset: NodeDataset, known: Mapping[str, Tensor] | None = None
) -> Features:
    """Gates, smoothness and permutation importance of every feature.

    Gates are of all levels for narrow data, else of the graph level; those that are `known` are not computed again. The
    importance is the mean drop of the validation score: test nodes stay unseen by whoever chooses features from it. It
    is `None` for features that are no candidates, see `_candidates`. Features from one column of a table are permuted
    together and share their importance.
    """
    gates, encoder, width = dict(known or {}), dataset.encoder, dataset.num_features
    cheap = dataset.num_nodes * width**2 + dataset.graph.num_edges * width <= GATE_WORK
    for level in () if not is_gfgn(explained.model) else LEVELS if width <= MAX_DIMENSIONS and cheap else LEVELS[:1]:
        if level not in gates:
            gates[level] = gates_by_dimension(dataset, level, lam=explained.lam)
    by_column: dict[int, list[int]] = {}
    for feature, column in enumerate(range(width) if encoder is None else encoder.sources):
        by_column.setdefault(column, []).append(feature)
    groups, part = list(by_column.values()), explained.task.val
    work = _work(part)
    count = len(groups) if width <= MAX_DIMENSIONS else min(len(groups), CANDIDATES)
    count = min(count, max(2, IMPORTANCE_WORK // (work * MIN_REPEATS)))
    repeats = min(max(MIN_REPEATS, IMPORTANCE_WORK // (work * count)), MAX_REPEATS)
    chosen = _candidates(explained, groups, gates.get(explained.level, gates.get(LEVELS[0])), count)
    drops = permutation_importance(lambda x: explained.score(part, x), part.x, [groups[k] for k in chosen], repeats)
    importance: Values = [None] * width
    spread = list(importance)
    for k, each in zip(chosen, drops, strict=True):
        for feature in groups[k]:
            importance[feature], spread[feature] = _finite(float(each.mean())), _finite(float(each.std()))
    truth = dataset.smooth_dimensions
    return Features(
        model=explained.model,
        level=explained.level,
        lam=explained.lam,
        names=list(dataset.feature_names),
        source=None if encoder is None else [encoder.columns[column].name for column in encoder.sources],
        gates={level: _rounded(values) for level, values in gates.items()},
        smoothness=_rounded(smoothness(dataset)),
        follows=None if truth is None else truth.tolist(),
        importance=importance,
        importance_std=spread,
        repeats=repeats,
    )


def permutation_importance(
    score: Callable[[Tensor], float], x: Tensor, groups: Sequence[Sequence[int]], repeats: int = 5, seed: int = 0
) -> Tensor:
    """`[G, repeats]`: the score of `x` minus its score with the columns of a group permuted among the rows.

    The columns of a group keep their values together: one-hot columns of one category are permuted as one. The
    permutations depend on `seed` and the repeat alone, so that groups are compared under the same permutations.

    Args:
        score: Score of a matrix of features; higher is better.
        x: `[N, F]`, dense or sparse CSR; unchanged.
        groups: The columns of each group.
    """
    orders = [Stream(seed, repeat).permutation(x.size(0)) for repeat in range(repeats)]
    base = score(x)
    drops = [[base - score(permute_columns(x, columns, order)) for order in orders] for columns in groups]
    return torch.tensor(drops, dtype=torch.float64).view(len(groups), repeats)


def permute_columns(x: Tensor, columns: Sequence[int], order: NDArray[np.int64]) -> Tensor:
    """A copy of `x`, dense or sparse CSR, whose row `i` has the values of row `order[i]` in the given columns."""
    if x.layout == torch.strided:
        index, rows = torch.as_tensor(columns, device=x.device), torch.from_numpy(order).to(x.device)
        return x.index_copy(1, index, x.index_select(1, index).index_select(0, rows))
    parts = (part.cpu().numpy() for part in (x.values(), x.col_indices(), x.crow_indices()))
    matrix = scipy.sparse.csr_array(tuple(parts), shape=(x.size(0), x.size(1)))
    moved = scipy.sparse.diags_array(np.isin(np.arange(x.size(1)), columns).astype(matrix.dtype))
    matrix = (matrix - matrix @ moved + matrix[order] @ moved).tocsr()
    matrix.sort_indices()
    pointers, indices, values = (
        torch.from_numpy(part).to(x.device) for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    return sparse_csr(pointers.long(), indices.long(), values, x.shape)


def _work(part: Part, width: int = 64) -> int:
    """Multiplications of one prediction, roughly; a sparse matrix with a permuted column is built again."""
    stored = 8 * part.x.values().numel() if part.x.layout == torch.sparse_csr else part.x.numel()
    return width * (stored + part.graph.num_edges + width * part.graph.num_nodes)


def _candidates(explained: TrainedModel, groups: list[list[int]], gates: Tensor | None, count: int) -> list[int]:
    """`count` groups of features: up to 20 with the highest gates, up to 20 with the lowest, the others with the
    largest weights of the first layer, times the features' standard deviation."""
    if count >= len(groups):
        return list(range(len(groups)))
    x = explained.task.val.x
    readers = [each for each in explained.network.parameters() if each.dim() == 2 and each.size(1) == x.size(1)]
    zeros = torch.zeros(x.size(1), dtype=x.dtype, device=x.device)
    weights = sum((each.square().sum(0) for each in readers), zeros) * _variance(x)
    scores = [weights] if gates is None else [gates.to(x.device), -gates.to(x.device), weights]
    chosen: dict[int, None] = {}
    for number, values in enumerate(scores, 1):
        of_group = [max(values[group].tolist()) for group in groups]
        ranked = sorted(range(len(groups)), key=lambda k: -of_group[k])  # stable: ties in the order of the features
        share = count if number == len(scores) else number * min(20, count // 3)
        chosen |= dict.fromkeys([k for k in ranked if k not in chosen][: share - len(chosen)])
    return sorted(chosen)


def _variance(x: Tensor) -> Tensor:
    """`[F]`: the variance of each feature."""
    if x.layout == torch.strided:
        return x.var(0, correction=0)
    columns, values = x.col_indices(), x.values()
    mean, square = (values.new_zeros(x.size(1)).index_add(0, columns, each) / x.size(0) for each in (values, values**2))
    return square - mean**2


# --- nodes and edges --------------------------------------------------------------------------------------------------


@torch.no_grad()
def find_extremes(explained: TrainedModel, dataset: NodeDataset) -> Extremes:
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

    def describe(chosen: Tensor) -> list[Gate]:
        rows = zip(gates[chosen].tolist(), nodes[chosen].tolist(), strict=True)
        return [Gate(round(gate, 4), [_node(dataset, node) for node in ends]) for gate, ends in rows]

    return Extremes(
        model=explained.model,
        kind="edges" if pairs else "nodes",
        total=order.numel(),
        most=describe(order[:count]),
        least=describe(order.flip(0)[:count]),
        directed=not graph.by_source.same_pattern(graph.by_target),
    )


def _node(dataset: NodeDataset, node: int) -> Node:
    label = -1 if dataset.multilabel else int(dataset.y[node])
    return {
        "id": str(node if dataset.node_ids is None else dataset.node_ids[node]),
        "class": None if label < 0 else _class_names(dataset)[label],
        "degree": int(dataset.graph.row_lengths[node]),
    }


def _class_names(dataset: NodeDataset) -> list[str]:
    return dataset.class_names or [str(k) for k in range(dataset.num_classes)]


def _rounded(values: Tensor) -> Values:
    return [_finite(round(value, 4)) for value in values.double().tolist()]


def _finite(value: float) -> float | None:
    """The value with six digits, or `None`, which JSON has, for NaN and infinity, which it has not."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
