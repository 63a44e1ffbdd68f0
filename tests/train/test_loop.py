"""`train_replicas`: against a plain loop, independence of replicas, callbacks, batches, and bad input."""

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import LambdaLR

from gfgn import Graph
from gfgn.data import NodeDataset, Split, dimensions
from gfgn.metrics import metrics_for
from gfgn.nn.registry import MODELS, find_model
from gfgn.ops.keys import GOLDEN, keyed, mix
from gfgn.train import Replica, Run, Status, train_minibatch, train_replicas
from gfgn.train.batch import Batch
from gfgn.train.settings import num_threads

BATCHED = [name for name, model in MODELS.items() if model.batchable]


@pytest.fixture(scope="module")
def data() -> NodeDataset:
    return dimensions(150, degree=10, splits=3, seed=1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Batches one after the other, in the order of the replicas."""
    with num_threads(1):
        yield


def precise(data: NodeDataset) -> NodeDataset:
    """The dataset in float64, where rounding errors stay small over the epochs of a test."""
    return dataclasses.replace(data, x=data.x.double(), graph=data.graph.to(torch.float64))


def key_of(replica: Replica, step: int) -> torch.Tensor:
    seed = mix(torch.tensor(replica.seed ^ 0x5EED))
    return mix(seed + mix(torch.tensor(step + 1)) * GOLDEN)


def plain_loop(model: str, data: NodeDataset, replica: Replica, max_epochs: int, patience: int,
               clip: float | None = None, schedule: Any = None) -> dict[str, Any]:  # fmt: skip
    """What `train_replicas` must do, for one run: all epochs are trained and scored on all parts, and the stopping rule
    is applied to the complete record."""
    split = data.splits[replica.split]
    entry = find_model(model)
    torch.manual_seed(replica.seed)
    settings = entry.settings(model, replica.options, {"num_nodes": data.num_nodes})
    net = entry.build(data.num_features, data.num_classes, replica.dropout, replica.lam, settings).to(data.x.dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
    scheduler = LambdaLR(optimizer, schedule or (lambda epoch: 1.0))
    val, val_loss, test, states = [], [], [], []
    for epoch in range(max_epochs):
        net.train()
        with keyed(key_of(replica, epoch)):
            loss = cross_entropy(net(data.x, data.graph)[split.train], data.y[split.train])
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        scheduler.step()
        net.eval()
        with torch.no_grad():
            logits = net(data.x, data.graph)
        val.append((logits.argmax(1) == data.y)[split.val].double().mean().item())
        val_loss.append(cross_entropy(logits[split.val], data.y[split.val]).item())
        test.append((logits.argmax(1) == data.y)[split.test].double().mean().item())
        states.append(copy.deepcopy(dict(net.named_parameters())))

    def best_of(count: int) -> int:
        return max(range(count), key=lambda epoch: (val[epoch], -val_loss[epoch], -epoch))

    length = next((n for n in range(1, max_epochs) if n - 1 - best_of(n) >= patience), max_epochs)
    best = best_of(length)
    record = {"length": length, "epoch": best, "val": val[:length], "val_loss": val_loss[:length]}
    return record | {"test": test[best], "state": states[best]}


def check_against_plain(run: Run, expected: dict[str, Any]) -> None:
    assert run.epochs == len(run.history["val"]) == expected["length"]
    assert run.epoch == expected["epoch"]
    assert run.history["val"] == pytest.approx(expected["val"])
    assert run.history["val_loss"] == pytest.approx(expected["val_loss"], rel=1e-6)
    assert run.val == run.history["val"][run.epoch]
    assert run.test == pytest.approx(expected["test"])
    if run.state is not None:
        for name, value in expected["state"].items():
            torch.testing.assert_close(run.state[name], value.detach(), rtol=1e-5, atol=1e-8)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("model", ["mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair"])
def test_against_a_plain_loop(data: NodeDataset, model: str) -> None:
    """Early stopping, the best epoch, its parameters and its test score; with dropout, for replicas that stop at
    different times and are removed from the batch."""
    replicas = [Replica(split=1, seed=4, lr=0.02), Replica(seed=5, lr=0.1, dropout=0.2, lam=0.5, weight_decay=0.01)]
    runs = train_replicas(model, precise(data), replicas, max_epochs=30, patience=4, keep_state=True)
    for run, replica in zip(runs, replicas, strict=True):
        check_against_plain(run, plain_loop(model, precise(data), replica, 30, 4))
    assert runs[0].epochs != runs[1].epochs


@pytest.mark.usefixtures("one_thread")
def test_clipping_and_schedules_against_a_plain_loop(data: NodeDataset) -> None:
    replica = Replica(lr=0.05)
    cosine = lambda epoch: (1 + math.cos(math.pi * epoch / 20)) / 2  # noqa: E731
    thirds = lambda epoch: 0.1 ** math.floor(epoch / 20 * 3)  # noqa: E731
    for name, schedule, clip in (("cosine", cosine, None), ("step", thirds, None), ("constant", None, 0.05)):
        [run] = train_replicas("gfgn-graph", precise(data), [replica], 20, schedule=name, clip=clip)
        check_against_plain(run, plain_loop("gfgn-graph", precise(data), replica, 20, 100, clip, schedule))


def test_criteria_of_the_best_epoch(data: NodeDataset) -> None:
    replicas = [Replica(seed=seed, lr=0.1) for seed in range(3)]
    for best, patience in (("score", 10), ("loss", 10), ("last", 1)):
        for run in train_replicas("gfgn-graph", data, replicas, max_epochs=40, patience=patience, best=best):
            val, loss = run.history["val"], run.history["val_loss"]
            expected = {
                "score": max(range(run.epochs), key=lambda epoch: (val[epoch], -loss[epoch], -epoch)),
                "loss": min(range(run.epochs), key=lambda epoch: (loss[epoch], epoch)),
                "last": 39,
            }
            assert run.epoch == expected[best]
            assert run.val == pytest.approx(val[run.epoch])
            assert run.epochs == (40 if best == "last" else min(40, run.epoch + 1 + patience))
    with pytest.raises(ValueError, match="best must be one of 'score', 'loss', 'last', got 'luck'"):
        train_replicas("mlp", data, replicas, best="luck")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("model", BATCHED)
def test_replicas_are_independent(model: str) -> None:
    """Alone, on two threads, in a batch of 5 and in a batch of 40 in another order: the same bits."""
    data = dimensions(48, degree=4, splits=3, seed=1)
    options = (("layers", 4),) if model == "gcnii" else ()  # instead of 64
    inputs = [None, 0.0, 0.3, None, 0.8]  # a rate of its own for the features, or that of the layers
    subset = [
        Replica(k % 3, k, 0.01 * (k + 1), dropout=0.1 * k, lam=0.3 * k, options=options, input_dropout=inputs[k])
        for k in range(5)
    ]
    others = [Replica(split=k % 3, seed=100 + k, lr=0.02, dropout=0.5, options=options) for k in range(35)]
    order = np.random.default_rng(0).permutation(40)
    few = train_replicas(model, data, subset, max_epochs=3, batch_size=5, keep_state=True)
    reordered = [(subset + others)[k] for k in order]
    many = train_replicas(model, data, reordered, max_epochs=3, batch_size=40, keep_state=True)
    torch.manual_seed(99)  # the global state must not matter
    for k in (0, 4):
        [alone] = train_replicas(model, data, [subset[k]], max_epochs=3, keep_state=True)
        with num_threads(2):
            [on_two] = train_replicas(model, data, [subset[k]], max_epochs=3, keep_state=True)
        for run in (few[k], many[int(np.flatnonzero(order == k)[0])], on_two):
            assert run.replica == alone.replica
            assert (run.history, run.gates) == (alone.history, alone.gates)
            assert (run.val, run.test, run.epoch) == (alone.val, alone.test, alone.epoch)
            assert run.state.keys() == alone.state.keys()
            assert all(torch.equal(value, alone.state[name]) for name, value in run.state.items())
    assert len({tuple(run.history["val_loss"]) for run in few}) == 5


@pytest.mark.parametrize(
    "field", ["lr", "weight_decay", "dropout", "input_dropout", "lam", "gate_decay", "split", "seed"]
)
def test_every_field_of_a_replica_has_an_effect(data: NodeDataset, field: str) -> None:
    changed = dataclasses.replace(Replica(), **{field: {"dropout": 0.1, "split": 1, "seed": 1}.get(field, 0.3)})
    runs = train_replicas("gfgn-pair", data, [Replica(), changed], max_epochs=3)
    assert runs[0].history["val_loss"] != runs[1].history["val_loss"]


def test_options_are_grouped_into_batches(data: NodeDataset) -> None:
    replicas = [
        Replica(options=(("hidden", 16),)),
        Replica(),
        Replica(options=(("hidden", 16), ("layers", 3)), split=2),
        Replica(seed=1),
    ]
    runs = train_replicas("gfgn-neighbor", data, replicas, max_epochs=3)
    alone = [train_replicas("gfgn-neighbor", data, [replica], max_epochs=3)[0] for replica in replicas]
    assert [run.replica for run in runs] == replicas
    assert [run.num_parameters for run in runs] == [run.num_parameters for run in alone]
    assert runs[0].num_parameters < runs[1].num_parameters
    for run, single in zip(runs, alone, strict=True):
        assert run.history == single.history


@pytest.mark.usefixtures("one_thread")
def test_batches_get_smaller_when_memory_runs_out(data: NodeDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def run(self: Batch, epochs: int) -> None:
        sizes.append(len(self.replicas))
        if len(self.replicas) > 2:
            raise torch.OutOfMemoryError("not enough")
        original(self, epochs)

    original = Batch.run
    monkeypatch.setattr(Batch, "run", run)
    replicas = [Replica(seed=k) for k in range(7)]
    runs = train_replicas("mlp", data, replicas, max_epochs=1, batch_size=7)
    assert [run.replica for run in runs] == replicas
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]
    monkeypatch.setattr(Batch, "run", lambda self, epochs: (_ for _ in ()).throw(torch.OutOfMemoryError("never")))
    with pytest.raises(torch.OutOfMemoryError, match="never"):
        train_replicas("mlp", data, replicas, max_epochs=1)


def test_test_labels_do_not_affect_training(data: NodeDataset) -> None:
    y = torch.where(data.splits[0].test, (data.y + 1) % data.num_classes, data.y)
    [run] = train_replicas("gfgn-graph", data, [Replica()], max_epochs=10)
    [other] = train_replicas("gfgn-graph", dataclasses.replace(data, y=y), [Replica()], max_epochs=10)
    assert (run.history, run.epoch, run.val) == (other.history, other.epoch, other.val)
    assert run.test != other.test


@pytest.mark.parametrize("model", ["mlp", "gcn", "gfgn-graph", "gfgn-neighbor", "gfgn-pair"])
def test_sparse_features_give_the_dense_result(data: NodeDataset, model: str) -> None:
    x = data.x.repeat(1, 4) * (torch.arange(4 * data.num_features) % 7 == 0)
    names = [str(k) for k in range(x.size(1))]
    dense = dataclasses.replace(data, x=x, feature_names=names, smooth_dimensions=None)
    sparse = dataclasses.replace(dense, x=x.to_sparse_csr())
    runs = [train_replicas(model, each, [Replica(dropout=0.5)], max_epochs=3)[0] for each in (dense, sparse)]
    assert runs[0].history["val_loss"] == runs[1].history["val_loss"]  # mostly-zero features become sparse


@pytest.mark.usefixtures("one_thread")
def test_progress_and_status(data: NodeDataset) -> None:
    seen: list[Run] = []
    statuses: list[Status] = []
    replicas = [Replica(seed=2), Replica(seed=1), Replica(seed=3)]
    runs = train_replicas(
        "mlp", data, replicas, max_epochs=4, batch_size=2, history=False, progress=seen.append, status=statuses.append
    )
    assert seen == runs
    assert [run.replica.seed for run in seen] == [2, 1, 3]
    assert runs[0].state is None
    assert runs[0].history == {}
    assert [status.finished for status in statuses] == [0, 0, 0, 2, 2, 2, 2, 3]
    assert [status.alive for status in statuses] == [2, 2, 2, 0, 1, 1, 1, 0]
    assert statuses[-1].best_val == max(run.val for run in runs)
    assert statuses[0].seconds_left is None  # no run has finished
    assert statuses[-1].seconds_left == 0
    assert all(status.replicas == 3 for status in statuses)


def test_gates_are_summarized_at_the_best_epoch(data: NodeDataset) -> None:
    from gfgn.nn import GFGN

    loops = torch.arange(data.num_nodes).expand(2, -1)
    graph = Graph.from_edge_index(torch.cat([loops, data.graph.edge_index], 1), data.num_nodes)
    data = dataclasses.replace(data, graph=graph)
    for level in ("graph", "neighbor", "pair"):
        [run] = train_replicas(f"gfgn-{level}", data, [Replica(lam=2.0)], max_epochs=12, keep_state=True)
        model = GFGN(data.num_features, 64, 2, data.num_classes, level=level, lam=2.0).eval()
        model.load_state_dict(run.state)
        scores = model(data.x, data.graph, return_scores=True)[1][0]
        scores = scores[data.num_nodes :] if level == "pair" else scores  # self-loops were given first
        assert run.gates is not None
        expected = (scores.min(), scores.mean(), scores.max(), scores.std(correction=0), (scores < 0.55).float().mean())
        for name, value in zip(("min", "mean", "max", "std", "below_055"), expected, strict=True):
            assert run.gates[name] == pytest.approx(float(value.detach()), abs=1e-5), (level, name)
    assert train_replicas("mlp", data, [Replica()], max_epochs=1)[0].gates is None


def test_pruning(data: NodeDataset) -> None:
    asked: list[tuple[int, int]] = []

    def prune(epoch: int, replicas: list[Replica], scores: list[float]) -> list[bool]:
        assert len(replicas) == len(scores)
        asked.append((epoch, len(replicas)))
        middle = sorted(scores)[len(scores) // 2]
        return [score >= middle for score in scores]

    replicas = [Replica(seed=k, lr=0.001 * 4**k) for k in range(6)]
    runs = train_replicas("mlp", data, replicas, 20, batch_size=4, rungs=(3, 8), prune=prune)
    assert asked[0] == (3, 6)
    assert asked[1][0] == 8
    assert asked[1][1] < 6
    full = train_replicas("mlp", data, replicas, 20, batch_size=4)
    for run, whole in zip(runs, full, strict=True):
        assert run.dropped == math.isnan(run.test) == (run.epochs < 20)
        expected = whole.history["val_loss"][: run.epochs]
        assert run.history["val_loss"] == pytest.approx(expected, rel=1e-4)
        assert run.dropped or run.test == whole.test
    assert 0 < sum(run.dropped for run in runs) < 6
    with pytest.raises(ValueError, match="prune must answer for each of 6 replicas, got 1 answers"):
        train_replicas("mlp", data, replicas, 5, rungs=(1,), prune=lambda *_: [True])
    with pytest.raises(ValueError, match="rungs and prune must be given together"):
        train_replicas("mlp", data, replicas, 5, rungs=(1,))


def test_class_weights_balance_the_loss(data: NodeDataset) -> None:
    rare = dataclasses.replace(data, y=(data.y == 0).long(), num_classes=2)
    [plain] = train_replicas("mlp", rare, [Replica()], max_epochs=1)
    [balanced] = train_replicas("mlp", rare, [Replica()], max_epochs=1, class_weights=True)
    entry = find_model("mlp")
    torch.manual_seed(0)
    net = entry.build(rare.num_features, 2, 0.5, 1.0, entry.settings("mlp", (), {}))
    with keyed(key_of(Replica(), 0)):
        logits, y = net(rare.x, rare.graph)[rare.splits[0].train], rare.y[rare.splits[0].train]
    weight = 1 / torch.bincount(y, minlength=2)
    expected = cross_entropy(logits, y, weight=weight.float())
    assert balanced.history["train_loss"][0] == pytest.approx(float(expected), rel=1e-5)
    assert plain.history["train_loss"][0] == pytest.approx(float(cross_entropy(logits, y)), rel=1e-5)


def many_graphs(labels: int = 4) -> NodeDataset:
    """Six small graphs with multi-label nodes, four of them for training; labels follow from features."""
    generator = torch.Generator().manual_seed(0)
    nodes, batch = 90, torch.arange(90) // 15
    edges = torch.randint(15, (2, 240), generator=generator) + 15 * torch.randint(6, (240,), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], 1)
    x = torch.randn(nodes, 8, generator=generator)
    graph = Graph.from_edge_index(edges, nodes, batch=batch)
    y = (x[:, :labels] > 0.3) | (x[:, 4 : 4 + labels] > 1)
    split = Split(batch < 4, batch == 4, batch == 5)
    return NodeDataset("graphs", graph, x, y, labels, "micro_f1", [str(k) for k in range(8)], [split])


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("model", "graphs_per_step"),
    [("mlp", None), ("gcn", 1), ("gfgn-graph", 3), ("gfgn-neighbor", None), ("gfgn-pair", 1), ("gfgn-pair", None)],
)
def test_many_graphs_and_many_labels(model: str, graphs_per_step: int | None) -> None:
    data = many_graphs()
    replicas = [Replica(lr=0.05, dropout=0.1, seed=k) for k in range(2)]
    runs = train_replicas(model, data, replicas, max_epochs=30, graphs_per_step=graphs_per_step)
    assert all(run.val > 0.55 for run in runs)
    assert all(0 < run.test < 1 for run in runs)
    shuffled = dataclasses.replace(data, x=torch.where(data.splits[0].test.unsqueeze(1), data.x.flip(1), data.x))
    again = train_replicas(model, shuffled, replicas, max_epochs=30, graphs_per_step=graphs_per_step)
    assert [run.history for run in runs] == [run.history for run in again]  # training does not see test graphs


@pytest.mark.parametrize("model", BATCHED)
def test_every_inductive_model_trains_on_many_graphs(model: str) -> None:
    data, options = many_graphs(), (("layers", 4),) if model == "gcnii" else ()
    if not MODELS[model].inductive:
        with pytest.raises(ValueError, match="model must run on graphs it has not seen"):
            train_replicas(model, data, [Replica()])
        return
    [run] = train_replicas(model, data, [Replica(options=options)], max_epochs=2, keep_state=True)
    assert all(math.isfinite(value) for values in run.history.values() for value in values)
    assert run.state is not None
    assert all(torch.isfinite(value).all() for value in run.state.values())


def test_one_graph_per_step_makes_several_steps() -> None:
    data = many_graphs()
    [whole] = train_replicas("gcn", data, [Replica(dropout=0.0)], max_epochs=2)
    [steps] = train_replicas("gcn", data, [Replica(dropout=0.0)], max_epochs=2, graphs_per_step=1)
    assert steps.history["val_loss"][1] != whole.history["val_loss"][1]
    with pytest.raises(ValueError, match="graphs_per_step must be None for 'dimensions'"):
        train_replicas("mlp", dimensions(60, splits=1), [Replica()], graphs_per_step=1)


@pytest.mark.parametrize("class_weights", [False, True])
@pytest.mark.parametrize("metric", metrics_for(multilabel=False))
def test_validation_by_every_metric(data: NodeDataset, metric: str, class_weights: bool) -> None:
    measured = dataclasses.replace(data, metric=metric)
    replicas = [Replica(split) for split in (0, 1)]
    for run in train_replicas("gfgn-graph", measured, replicas, max_epochs=20, class_weights=class_weights):
        assert run.val == max(run.history["val"]) > run.history["val"][0]
        assert math.isfinite(run.test)
        assert run.history["val"][run.epoch] == run.val


@pytest.mark.parametrize("metric", ["roc_auc", "average_precision"])
def test_a_split_on_which_the_metric_is_not_defined(data: NodeDataset, metric: str) -> None:
    one_sided = dataclasses.replace(data, y=torch.where(data.splits[0].test, 0, data.y), metric=metric)
    message = f"split 0 of 'dimensions' must have test nodes of two or more classes for {metric}, got 30 of one class"
    with pytest.raises(ValueError, match=message):
        train_replicas("mlp", one_sided, [Replica()])
    with pytest.raises(ValueError, match=message):
        train_minibatch("graphsage", one_sided, [Replica()])
    train_replicas("mlp", dataclasses.replace(one_sided, metric="balanced_accuracy"), [Replica()], max_epochs=1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lr": 0.0}, "lr must be a finite number above 0, got 0.0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number, 0 or larger, got -1.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"lam": -0.5}, "lam must be a finite number, 0 or larger, got -0.5"),
        ({"split": -1}, "split must be 0 or larger, got -1"),
        ({"seed": -3}, "seed must be 0 or larger, got -3"),
        ({"options": (("a", 1), ("a", 2))}, "options must name each parameter once"),
    ],
)
def test_bad_replicas(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replica(**fields)


def test_bad_arguments(data: NodeDataset) -> None:
    for options, message in (
        ({"patience": 0}, "patience must be 1 or larger, got 0"),
        ({"max_epochs": 0}, "max_epochs must be 1 or larger, got 0"),
        ({"clip": 0.0}, r"clip must be above 0, got 0\.0"),
        ({"schedule": "linear"}, "schedule must be one of 'constant', 'cosine', 'step', got 'linear'"),
        ({"batch_size": 0}, "batch_size must be 1 or larger, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            train_replicas("mlp", data, [Replica()], **options)
    with pytest.raises(ValueError, match=r"model must be one of .*, got 'gfgn-pairs'; did you mean 'gfgn-pair'\?"):
        train_replicas("gfgn-pairs", data, [Replica()])
    with pytest.raises(ValueError, match=r"split must be below 3, .* got 3"):
        train_replicas("mlp", data, [Replica(split=3)])
    with pytest.raises(ValueError, match="options of mlp must be among hidden, layers, features, got 'heads'"):
        train_replicas("mlp", data, [Replica(options=(("heads", 2),))])
    with pytest.raises(ValueError, match="option 'hidden' of mlp must be of type int, got '64'"):
        train_replicas("mlp", data, [Replica(options=(("hidden", "64"),))])
    no_nodes = torch.zeros(data.num_nodes, dtype=torch.bool)
    empty = dataclasses.replace(data, splits=[Split(no_nodes, *data.splits[0][1:])])
    with pytest.raises(ValueError, match="split 0 of 'dimensions' must have train nodes, got an empty mask"):
        train_replicas("mlp", empty, [Replica()])
    assert train_replicas("mlp", data, []) == []
