"""GFGN+: the layer against its equation, the models that are settings of it, its prior, and replicas."""

import itertools
from typing import Any

import pytest
import torch
from nn.baselines.tiny import CLASSES, FEATURES, NODES, edges, features, graph, randomize
from torch import Tensor, nn

from gfgn import GFGN, GFGNConv, Graph
from gfgn.data.generators.dimensions import dimensions
from gfgn.nn import GFGNPlus, GFGNPlusConv
from gfgn.nn.baselines.appnp import APPNP
from gfgn.nn.baselines.arma import ARMA
from gfgn.nn.baselines.gcn import GCN
from gfgn.nn.baselines.gprgnn import GPRGNN
from gfgn.nn.baselines.graphsage import GraphSAGE
from gfgn.nn.registry import MODELS
from gfgn.runs.grid import canonical
from gfgn.train import Replica, train_replicas
from gfgn.train.program import seeded_module

HEADS, WIDTH, LAM = 2, 3, 1.4
GATED = [  # every level, number of hops, range and form, but not all combinations
    ("graph", 1, "mix", "dimension"),
    ("graph", 2, "hops", "scalar"),
    ("graph", 0, "hops", "dimension"),
    ("neighbor", 1, "hops", "dimension"),
    ("neighbor", 2, "mix", "dimension"),
    ("neighbor", 3, "mix", "scalar"),
    ("neighbor", 2, "hops", "constant"),
    ("neighbor", 0, "mix", "dimension"),
    ("neighbor", 3, "free", "dimension"),
    ("pair", 1, "mix", "dimension"),
    ("pair", 1, "mix", "scalar"),
    ("pair", 1, "mix", "constant"),
]
PROPAGATIONS = list(itertools.product((False, True), ("symmetric", "row")))
every_gate = pytest.mark.parametrize(("level", "hops", "gate_range", "gate_form"), GATED)


def make(level: str, hops: int, gate_range: str, gate_form: str, **options: Any) -> GFGNPlusConv:
    options |= {"hops": hops, "gate_range": gate_range, "gate_form": gate_form}
    conv = GFGNPlusConv(FEATURES, WIDTH, level, HEADS, LAM, **options)
    randomize(conv, seed=hops)
    return conv.double()


def propagation(edge_index: Tensor, self_loops: bool, normalization: str) -> tuple[Tensor, Tensor]:
    """`P` and `D⁻¹A` as dense matrices, rows are targets."""
    A = torch.zeros(NODES, NODES, dtype=torch.float64)
    A[edge_index[1], edge_index[0]] = 1
    A = A + torch.eye(NODES, dtype=A.dtype) if self_loops else A
    inverse = torch.where(A.sum(1) > 0, 1 / A.sum(1).clamp(min=1), 0)
    row = inverse.unsqueeze(1) * A
    return (row if normalization == "row" else inverse.sqrt().unsqueeze(1) * A * inverse.sqrt()), row


def gate_logits(conv: GFGNPlusConv, inputs: Tensor, k: int) -> Tensor:
    """`inputs W_k`, `[…, heads·d or 2·heads·d]` to `[…, heads·d]`, head by head."""
    gates = conv.gates
    if gates.gate_form == "constant":
        return torch.zeros(*inputs.shape[:-1], HEADS * WIDTH, dtype=inputs.dtype)
    gate = gates.gate[k]
    bias = 0 if gates.gate_bias is None else gates.gate_bias[k]
    if gates.gate_form == "scalar":
        return (inputs @ gate[0] + bias).expand(*inputs.shape[:-1], HEADS * WIDTH)
    parts = inputs.unflatten(-1, (-1, HEADS, WIDTH))
    by_head = [parts[..., h, :].flatten(-2) @ gate[h] for h in range(HEADS)]
    return torch.cat(by_head, dim=-1) + bias


def equation(conv: GFGNPlusConv, x: Tensor, edge_index: Tensor) -> Tensor:
    """The layer from its equation, with dense matrices."""
    gates, K = conv.gates, conv.gates.hops
    P, row = propagation(edge_index, conv.self_loops, conv.normalization)
    parts = x @ conv.lin.weight.t()
    z, own = parts[:, : HEADS * WIDTH], parts[:, HEADS * WIDTH :]
    u = own if conv.own == "gated" else z
    count = (row > 0).to(z.dtype)
    mean = count / count.sum(1, keepdim=True).clamp(min=1) @ z
    if gates.level == "pair" and gates.gate_range == "mix" and K == 1:
        pairs = torch.cat([z.unsqueeze(1).expand(-1, NODES, -1), z.unsqueeze(0).expand(NODES, -1, -1)], dim=2)
        s = LAM * gate_logits(conv, pairs, 0).sigmoid()
        out = (1 - (s * row.unsqueeze(2)).sum(1)) * z + (s * P.unsqueeze(2) * z).sum(1)
    else:
        hops = [u, *(torch.linalg.matrix_power(P, k) @ z for k in range(1, K + 1))]
        inputs = u.mean(0, keepdim=True) if gates.level == "graph" else torch.cat([u, mean], dim=1)
        if gates.gate_range == "free":
            s = [0.5 + gates.gate[k] for k in range(K + 1)]
        elif gates.gate_range == "hops":
            s = [LAM * gate_logits(conv, inputs, k).sigmoid() for k in range(K + 1)]
        else:
            e = [gate_logits(conv, inputs, k).exp() for k in range(K)]
            s = [LAM * v / (1 + sum(e)) for v in e]
            s = [1 - sum(s), *s]
        out = sum(a * b for a, b in zip(s, hops, strict=True))
    out = out + own if conv.own == "added" else out
    return out if conv.bias is None else out + conv.bias


def gradients(module: nn.Module, out: Tensor, *more: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    inputs = [*more, *module.parameters()]
    found = torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


# --- the layer ----------------------------------------------------------------------------------------------------


@every_gate
def test_values_and_gradients_are_those_of_the_equation(level: str, hops: int, gate_range: str, gate_form: str) -> None:
    for number, (self_loops, normalization) in enumerate(PROPAGATIONS):
        options = {"self_loops": self_loops, "normalization": normalization, "bias": number != 2}
        options["own"] = ("added", "none", None, None)[number]
        if gate_range != "free" and number == 3:
            options["gate_bias"] = 0.3
        conv = make(level, hops, gate_range, gate_form, **options)
        x, e = features().requires_grad_(), edges(directed=True)
        out, expected = conv(x, e), equation(conv, x, e)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-11)
        assert_same(gradients(conv, out, x), gradients(conv, expected, x))


@every_gate
def test_gates_are_returned(level: str, hops: int, gate_range: str, gate_form: str) -> None:
    conv, x, g = make(level, hops, gate_range, gate_form), features(), graph()
    out, s = conv(x, g, return_scores=True)
    torch.testing.assert_close(out, conv(x, g), rtol=0, atol=1e-12)
    count = hops if gate_range == "mix" else hops + 1
    assert s.size(1) == count * HEADS * WIDTH
    if gate_form == "constant":
        expected = {"mix": LAM / (hops + 1), "hops": LAM / 2, "free": 0.5}[gate_range]
        assert s.flatten().tolist() == pytest.approx([expected] * s.numel())
    elif count and gate_range != "free":
        assert s.size(0) == {"graph": 1, "neighbor": NODES, "pair": g.num_edges}[level]
        assert 0 < s.min() <= s.max() < LAM


@every_gate
def test_graphs_of_a_batch_are_independent(level: str, hops: int, gate_range: str, gate_form: str) -> None:
    conv, first, second = make(level, hops, gate_range, gate_form), edges(0), edges(5)
    batch = torch.arange(2).repeat_interleave(NODES)
    both = torch.cat([first, NODES + second], 1)
    separate = torch.cat([conv(features(k), e) for k, e in enumerate((first, second))])
    together, s = conv(torch.cat([features(0), features(1)]), both, batch=batch, return_scores=True)
    torch.testing.assert_close(together, separate)
    if level == "graph" and hops and gate_form != "constant":
        assert s.size(0) == 2


@pytest.mark.parametrize(("level", "hops"), [("graph", 1), ("neighbor", 1), ("pair", 1), ("neighbor", 2)])
def test_a_layer_can_be_differentiated_twice_compiled_and_cast(level: str, hops: int) -> None:
    conv, x, g = make(level, hops, "mix", "dimension"), features(), graph()
    leaf = x.clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda h: conv(h, g), leaf)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(conv, backend="eager")(x, g), conv(x, g))
    single, narrow = conv.float(), graph(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = single(x.float(), narrow)
    out.sum().backward()
    torch.testing.assert_close(out.float(), single(x.float(), narrow), rtol=0.05, atol=0.05)


# --- models that are settings -------------------------------------------------------------------------------------


def plus(**options: Any) -> GFGNPlus:
    given: dict[str, Any] = {"level": "neighbor", "gate_range": "mix", "hops": 1, "head": "conv"}
    options = given | {"heads": 1, "lam": 2.0, "dropout": 0.0, "own": "none", "embed": False} | options
    sizes = (options.pop("hidden", 8), options.pop("layers", 2))
    return randomize(GFGNPlus(FEATURES, *sizes, CLASSES, **options))


def copied(model: nn.Module, pairs: list[tuple[Tensor, Tensor]]) -> nn.Module:
    """The model after its parameters were overwritten: `(target, source)` pairs."""
    with torch.no_grad():
        for target, source in pairs:
            target.copy_(source)
    return model.eval()


def assert_equal(ours: nn.Module, theirs: nn.Module, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """The same logits, gradients of the features, and gradients of the parameters of every pair (of views)."""
    x, g = features(), graph()
    results = []
    for model, side in ((ours, 0), (theirs, 1)):
        leaf = x.clone().requires_grad_()
        out = model(leaf, g)
        model.zero_grad()
        (out * torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)).sum().backward()
        results.append((out.detach(), leaf.grad, side))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-9, atol=1e-10)
    for a, b in pairs:
        torch.testing.assert_close(a.grad.view_as(b), b.grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])
def test_gfgn_is_a_setting(level: str) -> None:
    theirs = randomize(GFGN(FEATURES, 8, 2, CLASSES, level=level, heads=2, lam=LAM, dropout=0.0))
    ours = plus(level=level, heads=2, lam=LAM)
    pairs = []
    for a, b in zip(ours.convs, theirs.convs, strict=True):
        pairs += [(a.lin.weight, b.lin.weight), (a.gates.gate, b.gate), (a.bias, b.bias)]
    assert_equal(copied(ours, pairs), theirs, pairs)
    conv = GFGNConv(FEATURES, WIDTH, level, HEADS)
    own = GFGNPlusConv(FEATURES, WIDTH, level, HEADS, own="none", gate_range="mix")
    assert sum(p.numel() for p in own.parameters()) == conv.num_parameters


def test_gcn_is_a_setting() -> None:
    theirs = randomize(GCN(FEATURES, CLASSES, 0.0, hidden=8))
    ours = plus(gate_form="constant", self_loops=True)
    pairs = []
    for a, b in zip(ours.convs, theirs.convs, strict=True):
        pairs += [(a.lin.weight, b.lin.weight), (a.bias, b.lin.bias)]
    assert_equal(copied(ours, pairs), theirs, pairs)


def sage_maps(conv: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The maps of the neighbors and of the node itself, and the bias: parameters, or views of them."""
    return conv.lin["neighbor"].weight, conv.lin["own"].weight, conv.lin["own"].bias


def arma_maps(conv: Any) -> tuple[Tensor, Tensor, Tensor]:
    return conv.init.weight, conv.root.weight, conv.root.bias


@pytest.mark.parametrize("norm", ["none", "length", "arma"])
def test_graphsage_and_arma_of_one_stack_are_settings(norm: str) -> None:
    common: dict[str, Any] = {"gate_form": "constant", "own": "added"}
    if norm == "arma":
        theirs, maps = ARMA(FEATURES, CLASSES, 0.0, hidden=8, stacks=1), arma_maps
        ours = plus(**common)
    else:
        theirs, maps = GraphSAGE(FEATURES, CLASSES, 0.0, hidden=8, normalize=norm == "length"), sage_maps
        ours = plus(**common, normalization="row", norm=norm)
    randomize(theirs)
    with torch.no_grad():
        for a, b in zip(ours.convs, theirs.convs, strict=True):
            neighbor, own, bias = maps(b)
            a.lin.weight.copy_(torch.cat([neighbor, own]))
            a.bias.copy_(bias)
    x = features().requires_grad_()
    outs = [model.eval()(x, graph()) for model in (ours, theirs)]
    torch.testing.assert_close(*outs)
    torch.testing.assert_close(*[torch.autograd.grad(out.sin().sum(), x)[0] for out in outs])


@pytest.mark.parametrize(("model", "gate_form"), [(APPNP, "constant"), (GPRGNN, "scalar")])
def test_appnp_and_gprgnn_are_settings(model: Any, gate_form: str) -> None:
    theirs = randomize(model(FEATURES, CLASSES, 0.0, hidden=8, steps=4, alpha=0.2))
    options: dict[str, Any] = {"hops": 0, "head": "propagated", "self_loops": True, "layers": 1}
    ours = plus(steps=4, alpha=0.2, gate_form=gate_form, **options)
    first, last = theirs.mlp.lins
    pairs = [(ours.convs[0].lin.weight, first.weight), (ours.convs[0].bias, first.bias)]
    pairs += [(ours.lin.weight, last.weight), (ours.lin.bias, last.bias)]
    copied(ours, pairs)
    if model is GPRGNN:
        assert ours.spread.weights == pytest.approx(GPRGNN(3, 2, steps=4, alpha=0.2).gamma.tolist())
        weights = torch.tensor(ours.spread.weights, dtype=torch.float64)
        copied(ours, [(ours.spread.gate, (theirs.gamma - weights).unsqueeze(1))])
        pairs.append((ours.spread.gate, theirs.gamma))
    assert_equal(ours, theirs, pairs)


class FSGNN(nn.Module):
    """Maurya et al. (2022) from its equation: `softmax`-weighted hops, each with a map of its own, side by side, and a
    linear map after ReLU."""

    def __init__(self, P: Tensor, hops: int, hidden: int) -> None:
        super().__init__()
        self.hops = [torch.linalg.matrix_power(P, k) for k in range(hops + 1)]
        self.weight = nn.ParameterList(torch.randn(hidden, FEATURES) for _ in self.hops)
        self.alpha = nn.Parameter(torch.randn(hops + 1))
        self.lin = nn.Linear((hops + 1) * hidden, CLASSES)

    def forward(self, x: Tensor, _: Graph) -> Tensor:
        parts = zip(self.alpha.softmax(0), self.hops, self.weight, strict=True)
        return self.lin(torch.cat([a * (P @ x @ W.t()) for a, P, W in parts], dim=1).relu())


def test_fsgnn_is_a_setting() -> None:
    """Maps of hops are blocks of `W`; the free gate of hop `k` is its weight in block `k` and 0 in all others."""
    K, width = 3, 4
    P, _ = propagation(edges(), True, "symmetric")
    theirs = randomize(FSGNN(P, K, width))
    ours = plus(hops=K, gate_range="free", head="linear", self_loops=True, layers=1, hidden=(K + 1) * width)
    gate = ours.convs[0].gates.gate
    blocks = torch.eye(K + 1, dtype=torch.float64).repeat_interleave(width, dim=1)
    with torch.no_grad():
        ours.convs[0].lin.weight.copy_(torch.cat(list(theirs.weight)))
        ours.convs[0].bias.zero_()
        gate.copy_(theirs.alpha.softmax(0).unsqueeze(1) * blocks - 0.5)
    pairs = [(ours.lin.weight, theirs.lin.weight), (ours.lin.bias, theirs.lin.bias)]
    assert_equal(copied(ours, pairs), theirs, pairs)
    torch.testing.assert_close(ours.convs[0].lin.weight.grad, torch.cat([w.grad for w in theirs.weight]))
    alpha = theirs.alpha.detach().requires_grad_()
    [expected] = torch.autograd.grad(alpha.softmax(0), alpha, (gate.grad * blocks).sum(1))
    torch.testing.assert_close(theirs.alpha.grad, expected)


@pytest.mark.parametrize(
    ("level", "hops", "gate_range"),
    [("graph", 1, "mix"), ("neighbor", 1, "mix"), ("pair", 1, "mix"), ("neighbor", 2, "hops"), ("graph", 3, "free")],
)
def test_without_parameters_of_gates_it_is_its_ungated_version(level: str, hops: int, gate_range: str) -> None:
    """If they are 0: values, and gradients of everything else."""
    options: dict[str, Any] = {"level": level, "hops": hops, "gate_range": gate_range, "own": "added", "lam": LAM}
    options |= {"head": "propagated", "residual": True, "norm": "layer", "layers": 2}
    gated, ungated = plus(**options), plus(gate_form="constant", **options)
    with torch.no_grad():
        for name, parameter in gated.named_parameters():
            if "gate" in name.rpartition(".")[2]:
                parameter.zero_()
    own = dict(gated.named_parameters())
    pairs = [(own[name], parameter) for name, parameter in ungated.named_parameters()]
    assert len(pairs) < len(own)
    assert_equal(copied(gated, pairs), ungated.eval(), pairs)


# --- the network --------------------------------------------------------------------------------------------------

NETWORKS: list[dict[str, Any]] = [
    {},
    {"level": "graph", "gate_range": "mix", "hops": 2, "own": "gated", "embed": False, "layers": 2},
    {"level": "pair", "residual": True, "norm": "layer", "layers": 4, "head": "conv"},
    {"level": "graph", "hops": 2, "gate_range": "hops", "norm": "length", "layers": 3},
    {"level": "neighbor", "hops": 2, "own": "added", "gate_bias": 0.0, "layers": 2, "jk": "cat", "norm": "layer"},
    {"level": "neighbor", "hops": 3, "gate_range": "hops", "self_loops": True, "head": "propagated", "steps": 3}
    | {"layers": 2, "jk": "max", "normalization": "row", "gate_form": "scalar"},
    {"gate_form": "constant", "layers": 2, "head": "propagated", "steps": 2, "residual": True},
    {"norm": "batch", "residual": True, "jk": "cat", "layers": 3},
]
networks = pytest.mark.parametrize("options", NETWORKS, ids=lambda options: "-".join(options) or "default")


def build(options: dict[str, Any], seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    settings = {"hidden": 8, "heads": 2} | options
    return randomize(MODELS["gfgn-plus"].build(FEATURES, CLASSES, 0.0, LAM, settings), seed)


@networks
def test_residual_blocks_from_their_definition(options: dict[str, Any]) -> None:
    """The layers of the network, one by one, as its documentation says."""
    model, x, g = build(options).eval(), features(), graph()
    hidden: list[Tensor] = []
    h: Tensor | None = None
    count = len(model.convs) - (options.get("head") == "conv")
    out = x if model.embed is None else x @ model.embed.weight.t() + model.embed.bias
    for layer, conv in enumerate(model.convs):
        out = conv(out, g)
        if layer < count:
            if options.get("norm") == "batch":
                norm = model.norms[layer]
                deviation = out - norm.running_mean
                out = deviation / (norm.running_var + 1e-5).sqrt() * norm.weight + norm.bias
            h = out.relu() + h if options.get("residual") and h is not None else out.relu()
            out = h
            if options.get("norm") == "layer":
                norm = model.norms[layer]
                deviation = h - h.mean(1, keepdim=True)
                out = deviation / (deviation.square().mean(1, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias
            elif options.get("norm") == "length":
                out = nn.functional.normalize(h, dim=1)
            hidden.append(out)
    if count == len(model.convs):
        jk = options.get("jk")
        joined = torch.cat(hidden, 1) if jk == "cat" else torch.stack(hidden).amax(0) if jk == "max" else hidden[-1]
        out = model.lin(joined)
    if options.get("head") == "propagated":
        P, _ = propagation(edges(), options.get("self_loops", False), options.get("normalization", "symmetric"))
        gates = model.spread
        weights = [c + w for c, w in zip(gates.weights, gates.gate, strict=True)]
        out = sum(w * (torch.linalg.matrix_power(P, k) @ out) for k, w in enumerate(weights))
    torch.testing.assert_close(model(x, g), out)
    logits, scores = model(x, edges(), return_scores=True)
    torch.testing.assert_close(logits, out)
    assert len(scores) == len(model.convs) + (options.get("head") == "propagated")
    torch.testing.assert_close(model(x.to_sparse_csr(), g), out)


@networks
def test_replicas_are_independent(options: dict[str, Any]) -> None:
    """Alone and among others: the same bits, with their own λ and decays."""
    data = dimensions(32, degree=4, splits=2, seed=1)
    given = tuple(({"hidden": 8, "heads": 2} | options).items())
    replicas = [
        Replica(k % 2, k, 0.02 * (k + 1), dropout=0.1 * k, lam=0.5 + k / 4, options=given, gate_decay=decay)
        for k, decay in enumerate([None, 0.0, 0.1, 5e-4, 2.0])
    ]
    together = train_replicas("gfgn-plus", data, replicas, max_epochs=3, batch_size=5, keep_state=True)
    for k in (1, 4):
        [alone] = train_replicas("gfgn-plus", data, [replicas[k]], max_epochs=3, keep_state=True)
        assert (alone.history, alone.gates, alone.test) == (together[k].history, together[k].gates, together[k].test)
        assert all(torch.equal(value, alone.state[name]) for name, value in together[k].state.items())


# --- the decay of gates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gate_decay", [None, 0.7])
def test_a_run_is_a_loop_with_the_adam_of_pytorch(gate_decay: float | None) -> None:
    """Three layers with batch norm, whose statistics are those of the nodes in training and running ones in evaluation.
    With a decay, gates have no L2 penalty and are divided after every step."""
    data, options = dimensions(32, degree=4, splits=1, seed=1), (("layers", 3),)
    replica = Replica(seed=3, lr=0.01, weight_decay=1e-3, dropout=0.0, options=options, gate_decay=gate_decay)
    [run] = train_replicas("gfgn-plus", data, [replica], max_epochs=4, best="last", keep_state=True)
    entry = MODELS["gfgn-plus"]
    model = seeded_module(entry, data, entry.settings("gfgn-plus", options, {}), 3).train()
    gates = [] if gate_decay is None else [conv.gates.gate for conv in model.convs]
    rest = [p for p in model.parameters() if all(p is not gate for gate in gates)]
    adam = torch.optim.Adam([{"params": gates}, {"params": rest, "weight_decay": 1e-3}], lr=0.01)
    train, val, _ = data.splits[0]
    for _ in range(4):
        adam.zero_grad()
        nn.functional.cross_entropy(model(data.x, data.graph)[train], data.y[train]).backward()
        adam.step()
        with torch.no_grad():
            for gate in gates:
                gate /= 1 + 0.01 * 0.7
    expected = {name: value for name, value in model.state_dict().items() if not name.endswith("tracked")}
    assert run.state.keys() == expected.keys()
    assert not torch.equal(expected["norms.0.running_var"], torch.ones(64))
    for name, value in expected.items():
        torch.testing.assert_close(run.state[name], value, rtol=1e-2, atol=1e-3, msg=name)
    loss = nn.functional.cross_entropy(model.eval()(data.x, data.graph)[val], data.y[val])
    assert run.history["val_loss"][-1] == pytest.approx(loss.item(), rel=1e-3)


@pytest.mark.parametrize("model", ["gfgn-plus", "gfgn-graph", "gcn"])
def test_decay_of_gates_has_an_effect_where_there_are_gates(model: str) -> None:
    """Also for GFGN, for one replica of a batch and not for the others."""
    data = dimensions(32, degree=4, splits=1, seed=1)
    replicas = [Replica(weight_decay=0.0, gate_decay=decay) for decay in (None, 0.0, 1.0)]
    first, same, other = (run.history["train_loss"] for run in train_replicas(model, data, replicas, max_epochs=5))
    assert first == same
    assert (first == other) == (model == "gcn")
    assert canonical(model, replicas[2]).gate_decay == (None if model == "gcn" else 1.0)


# --- errors -------------------------------------------------------------------------------------------------------


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"level": "edge"}, "level .*'graph', 'neighbor', 'pair'.*'edge'"),
    ({"hops": -1}, "hops .*-1"),
    ({"level": "pair", "hops": 2}, "hops .*level='pair'.*2"),
    ({"level": "pair", "gate_range": "hops"}, "gate_range .*'mix' or 'free'.*'hops'"),
    ({"own": "maybe"}, "own .*'gated', 'added', 'none'.*'maybe'"),
    ({"own": "gated", "level": "pair"}, "own .*level='pair'.*'gated'"),
    ({"own": "gated", "hops": 0}, "own .*hops=0.*'gated'"),
    ({"gate_range": ""}, "gate_range .*'mix', 'hops', 'free'.*''"),
    ({"gate_form": "matrix"}, "gate_form .*'matrix'"),
    ({"normalization": "max"}, "normalization .*'symmetric', 'row'.*'max'"),
    ({"head": "mlp"}, "head .*'conv', 'linear', 'propagated'.*'mlp'"),
    ({"norm": "group"}, "norm .*'auto', 'none', 'layer', 'batch', 'length'.*'group'"),
    ({"jk": "cat", "head": "conv"}, "head .*jk='cat'.*'conv'"),
    ({"heads": 3}, "heads .*heads=3, hidden_channels=64"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_errors_name_the_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODELS["gfgn-plus"].build(FEATURES, CLASSES, settings=options)


def test_a_layer_names_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"weights .*3 numbers.*2"):
        GFGNPlusConv(4, 2, hops=2, gate_range="free", weights=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"gate_decay .*-1"):
        Replica(gate_decay=-1)
    with pytest.raises(ValueError, match="x must be finite"):
        GFGNPlusConv(4, 2)(torch.full((3, 4), torch.nan), torch.tensor([[0], [1]]))


def test_large_logits_of_gates_stay_finite() -> None:
    """A gate that is sure of one hop: no overflow, forward or backward."""
    conv, x, g = make("neighbor", 3, "mix", "dimension", gate_bias=0.0), features().requires_grad_(), graph()
    for bias, hop in ((2000.0, 0), (-2000.0, None)):
        with torch.no_grad():
            conv.gates.gate_bias.fill_(min(bias, 0.0))
            conv.gates.gate_bias[0] = bias
        out, s = conv(x, g, return_scores=True)
        s = s.view(NODES, 3, -1)
        assert all(torch.isfinite(value).all() for value in (out, *gradients(conv, out, x)))
        assert (s.sum(1) <= LAM + 1e-12).all()
        assert (s[:, hop] > 0.99 * LAM).all() if hop == 0 else (s[:, 0] < 1e-12).all()
