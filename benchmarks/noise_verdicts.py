"""How often does `gfgn advise` find something in noise, and does it still find what is there, with every metric?

    python benchmarks/noise_verdicts.py

600 small graphs whose labels know nothing of features and edges: each verdict on them but "nothing" and "undecided" is
wrong. 20 graphs for each of three truths: edges alone, features alone, or both. The models of a graph are trained once,
by the validation loss, on ten splits; epochs aside, every metric then chooses models, and judges, by itself. From the
first four splits, the default of `gfgn compare`, the same for its sentence. Takes about 20 minutes of one core.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import common
import torch
from scipy.stats import binomtest
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.func import functional_call

from gfgn import Graph
from gfgn.data import NodeDataset, random_splits
from gfgn.data.generators.contextual_sbm import contextual_sbm
from gfgn.metrics import METRICS, metrics_for
from gfgn.ops import propagate
from gfgn.runs.advice import suited_models
from gfgn.runs.comparison import comparison_study
from gfgn.runs.record import DatasetRecord, RunRecord
from gfgn.runs.results import Results
from gfgn.runs.verdict import headline, judge
from gfgn.train import Replica, Run, TrainConfig, keep_freed_memory, train_replicas
from gfgn.train.catalog import CLASSICAL
from gfgn.train.classical import SMALLEST, find_network

GRAPHS, CLEAR = 200, 20  # of noise for each kind of labels, and of each truth
SPLITS, FEW = 10, 4
GRAPH_MODELS = ("gcn", "gfgn-graph")
FEATURES, DEGREE = 8, 6
BINARY, FOUR, SEVERAL = "15% positives", "four classes", "several labels"
CLAIMS = {"above guessing": r"\](?: points)? above ", "the graph helps": "; the graph helps: "}  # and what shows them
SIGNAL = {"edges": (0.8, 0.0), "features": (0.25, 3.0)}  # homophily and distance of the classes' mean features


# --- graphs -----------------------------------------------------------------------------------------------------------


def noise(labels: str, seed: int) -> NodeDataset:
    """200 to 400 nodes whose labels are independent of features and edges."""
    draw = torch.Generator().manual_seed(seed)
    n = int(torch.randint(200, 401, (), generator=draw))
    if labels == SEVERAL:
        y = torch.rand(n, 4, generator=draw) < torch.tensor([0.1, 0.2, 0.3, 0.4])
    else:
        y = classes(labels, torch.rand(n, generator=draw))
    return dataset(*random_graph(n, draw), y, seed)


def clear(labels: str, truth: str, seed: int) -> NodeDataset:
    """Nodes whose labels follow from edges, from features, or, with `"graph"`, from a feature of the neighbors."""
    if truth == "graph":
        graph, x = random_graph(1000, torch.Generator().manual_seed(seed))
        return dataset(graph, 4 * x, classes(labels, propagate(x, graph)[:, 0]), seed)
    homophily, signal = SIGNAL[truth]
    data = contextual_sbm(
        400, classes=4, features=2 * FEATURES, degree=10, homophily=homophily, signal=signal, seed=seed
    )
    return dataset(data.graph, data.x, (data.y == 0).long() if labels == BINARY else data.y, seed)


def classes(labels: str, values: Tensor) -> Tensor:
    """The 15% largest values against the others, or quarters of the values."""
    rank = values.argsort().argsort() / len(values)
    return (rank >= 0.85).long() if labels == BINARY else (4 * rank).long()


def random_graph(n: int, draw: torch.Generator) -> tuple[Graph, Tensor]:
    """Edges and features drawn at random."""
    ends = torch.randint(n, (2, DEGREE * n // 2), generator=draw).numpy()
    return Graph.from_undirected(*ends, n), torch.randn(n, FEATURES, generator=draw)


def dataset(graph: Graph, x: Tensor, y: Tensor, seed: int) -> NodeDataset:
    """Splits are drawn again where a part has one class only, for which rankings are refused."""
    names, splits, draw = [f"x{k}" for k in range(x.size(1))], random_splits(len(y), SPLITS, seed), seed
    while y.dim() == 1 and any(y[mask].unique().numel() < 2 for split in splits for mask in split):
        draw += 10**6
        splits = random_splits(len(y), SPLITS, draw)
    count = y.size(1) if y.dim() == 2 else int(y.max()) + 1
    return NodeDataset("graph", graph, x, y, count, "log_loss", names, splits)


# --- models -----------------------------------------------------------------------------------------------------------


def train(data: NodeDataset, model: str, config: TrainConfig) -> list[Tensor]:
    """By split, `[K, N, C]` logits of the fitted model with each value of its hyperparameter; of a network, one."""
    if model in CLASSICAL:
        fits = [[p for p, _ in CLASSICAL[model].candidates(data, split, False)] for split in data.splits]
        kept = [torch.stack(fit).clamp(SMALLEST, 1 - SMALLEST) for fit in fits]
        return [p.logit() if data.multilabel else p.log() for p in kept]
    replicas = [Replica(split) for split in range(SPLITS)]
    runs = train_replicas(
        model, data, replicas, config.max_epochs, config.patience, best="loss", keep_state=True, gates=False
    )
    entry = find_network(model)
    module = entry.build(data.num_features, data.num_classes, 0.0, settings=entry.settings(model, (), {})).eval()
    with torch.no_grad():
        return [functional_call(module, run.state or {}, (data.x, data.graph))[None] for run in runs]


def score(
    data: NodeDataset, logits: list[Tensor], record: DatasetRecord, model: str, config: TrainConfig
) -> list[RunRecord]:
    """The runs of a model, each of its fit with the best validation score."""
    runs = []
    for k, (split, fits) in enumerate(zip(data.splits, logits, strict=True)):
        val, test = (
            METRICS[record.metric].score(fits, data.y, mask.expand(len(fits), -1)) for mask in (split.val, split.test)
        )
        best = int(val.argmax())
        run = Run(Replica(k), model, float(val[best]), float(test[best]), 0, 0, {}, 1.0, 0)
        runs.append(RunRecord.of(run, record, config))
    return runs


def judgments(data: NodeDataset, epochs: int) -> Iterator[tuple[str, str, str]]:
    """Metric, verdict of `advise`, and sentence of `compare`."""
    config = TrainConfig(epochs, epochs)
    logits = {model: train(data, model, config) for model in suited_models(data, GRAPH_MODELS)}
    few = [model for model in logits if model == "majority" or model not in CLASSICAL]
    for metric in metrics_for(data.multilabel):
        record = DatasetRecord.of(replace(data, metric=metric))
        runs = [run for model in logits for run in score(data, logits[model], record, model, config)]
        whole = comparison_study(data, tuple(logits), SPLITS, max_epochs=epochs, patience=epochs)
        part = comparison_study(data, tuple(few), FEW, max_epochs=epochs, patience=epochs)
        records = {record.name: record}
        yield metric, judge(Results(whole, runs, records)).kind, headline(Results(part, runs, records))


# --- counts -----------------------------------------------------------------------------------------------------------


def count(
    make: Callable[[int], NodeDataset], labels: str, truth: str, graphs: int, epochs: int
) -> list[dict[str, Any]]:
    """One row per metric: the number of verdicts of each kind."""
    kinds: dict[str, Counter[str]] = {}
    said: dict[str, Counter[str]] = {}
    for seed in range(graphs):
        found = list(judgments(make(seed), epochs))
        print(labels, truth, seed, *(kind for _, kind, _ in found), flush=True)
        for metric, kind, sentence in found:
            kinds.setdefault(metric, Counter())[kind] += 1
            said.setdefault(metric, Counter()).update(
                claim for claim, text in CLAIMS.items() if re.search(text, sentence)
            )
    rows = []
    for metric, verdicts in kinds.items():
        number = graphs - verdicts["nothing"] - verdicts["undecided"] if truth == "nothing" else verdicts[truth]
        row = {"labels": labels, "truth": truth, "metric": metric, "graphs": graphs, "verdicts": dict(verdicts)}
        row |= {"found": number, "interval": interval(number, graphs)}
        row["compare"] = {
            claim: {"said": (n := said[metric][claim]), "interval": interval(n, graphs)} for claim in CLAIMS
        }
        rows.append(row)
    return rows


def interval(number: int, of: int) -> list[float]:
    """The exact 95% interval of a proportion (Clopper and Pearson, 1934)."""
    ends = binomtest(number, of).proportion_ci(0.95, "exact")
    return [round(ends.low, 4), round(ends.high, 4)]


def noisy(labels: str) -> list[dict[str, Any]]:
    return count(partial(noise, labels), labels, "nothing", GRAPHS, 20)


def known(labels: str) -> list[dict[str, Any]]:
    return [
        row for truth in (*SIGNAL, "graph") for row in count(partial(clear, labels, truth), labels, truth, CLEAR, 60)
    ]


PARTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    f"{name}-{number}": partial(make, labels)
    for name, make, kinds in (("noise", noisy, (BINARY, FOUR, SEVERAL)), ("clear", known, (BINARY, FOUR)))
    for number, labels in enumerate(kinds, 1)
}


if __name__ == "__main__":
    for part in common.parser(__doc__ or "", 1, PARTS).parse_args().parts or PARTS:
        with keep_freed_memory(), common.threads(1), threadpool_limits(1):
            rows = PARTS[part]()
        known = {each["part"]: each for each in common.read("noise_verdicts", "cpu")} | {
            part: {"part": part, "rows": rows}
        }
        problems = [known[name] for name in PARTS if name in known]
        common.write("noise_verdicts", "cpu", problems, splits=SPLITS)
