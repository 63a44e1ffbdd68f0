"""Explanations: edge masks against loops over scalars, PyG's explainers, and `GateExplainer`."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops import equation, random_edges, undirected
from torch import nn
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCNConv

from gfgn import GFGN, GFGNConv, Graph
from gfgn.nn import GateExplainer

LEVELS = ["graph", "neighbor", "pair"]
every_level = pytest.mark.parametrize("level", LEVELS)
CLASSES = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def make(level: str, **options: Any) -> GFGNConv:
    torch.manual_seed(0)
    conv = GFGNConv(5, 4, level, 3, 1.3, **options).double()
    with torch.no_grad():
        conv.gate.normal_()
        conv.bias.normal_()
    return conv


def inputs(n: int = 12, e: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Random features and edges with repetitions and self-loops; the last two nodes are isolated."""
    generator = torch.Generator().manual_seed(0)
    edges = random_edges(n - 2, e, generator)
    edges[:, 1], edges[:, 2] = edges[:, 0], 3
    return torch.randn(n, 5, generator=generator, dtype=torch.float64), edges


@pytest.mark.parametrize(
    ("level", "pool"), [("graph", "mean"), ("neighbor", "mean"), ("neighbor", "max"), ("pair", "mean")]
)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("apply_sigmoid", [False, True])
def test_edge_mask_multiplies_the_messages(level: str, pool: str, weighted: bool, apply_sigmoid: bool) -> None:
    conv = make(level, pool=pool)
    x, edges = inputs()
    weight = torch.rand(40, dtype=torch.float64) if weighted else None
    mask = torch.randn(40, dtype=torch.float64)
    set_masks(conv, mask, edges, apply_sigmoid)
    assert conv.explain
    expected = equation(conv, x, edges, weight, mask=mask.sigmoid() if apply_sigmoid else mask)
    graph = Graph.from_edge_index(edges, 12, weight, dtype=torch.float64)
    for out in (conv(x, edges, weight), conv(x, graph)):
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    clear_masks(conv)
    ones = equation(conv, x, edges, weight, mask=torch.ones(40))
    torch.testing.assert_close(conv(x, edges, weight), ones, rtol=0, atol=1e-10)


@every_level
def test_gradients_with_an_edge_mask(level: str) -> None:
    """Those of the mask and of all parameters by finite differences; self-loops have none."""
    conv, (x, edges) = make(level), inputs()
    names = [name for name, _ in conv.named_parameters()]
    mask = torch.rand(40, dtype=torch.float64, requires_grad=True)

    def run(mask: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        set_masks(conv, mask, edges, apply_sigmoid=False)
        return torch.func.functional_call(conv, dict(zip(names, values, strict=True)), (x, edges))

    assert torch.autograd.gradcheck(run, (mask, *conv.parameters()), fast_mode=True)
    (grad,) = torch.autograd.grad(run(mask, *conv.parameters()).sum(), mask)
    loops = edges[0] == edges[1]
    degree = torch.bincount(edges[1, ~loops], minlength=12)
    assert not grad[loops].any()
    assert grad[~loops & (degree[edges[0]] > 0)].all()  # Â is 0 where a degree is 0


@every_level
def test_batches_bipartite_graphs_and_added_self_loops_can_be_masked(level: str) -> None:
    conv, (x, edges) = make(level), inputs()
    edges = edges[:, (edges[0] < 6) == (edges[1] < 6)]
    batch, ones, zeros = (torch.arange(12) >= 6).long(), torch.ones(edges.size(1)), torch.zeros(edges.size(1))
    looped = Graph.from_edge_index(edges, 12, self_loops="add", dtype=torch.float64)
    calls: list[tuple[Any, ...]] = [(x, edges, None, batch), ((x, x[:10]), edges), (x, looped)]
    plain = [conv(*call, return_scores=True) for call in calls]
    set_masks(conv, ones, edges, apply_sigmoid=False)
    torch.testing.assert_close([conv(*call, return_scores=True) for call in calls], plain)
    set_masks(conv, zeros, edges, apply_sigmoid=False)
    torch.testing.assert_close(conv(x, edges, None, batch), equation(conv, x, edges, None, batch, zeros))
    if level != "pair":  # where a node takes from itself what it gives up
        assert not torch.allclose(conv(x, looped), conv(x, edges))  # added self-loops are not masked


# --- PyG's explainers -----------------------------------------------------------------------------


def trained(level: str) -> tuple[GFGN, torch.Tensor, torch.Tensor]:
    """A network after a few steps of training, and its graph."""
    torch.manual_seed(0)
    edges = undirected(20, 10, torch.Generator().manual_seed(0))
    x = torch.randn(20, 5)
    model = GFGN(5, 8, 2, 3, level=level, heads=2, dropout=0.2)
    y = torch.randint(0, 3, (20,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(20):
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges), y).backward()
        optimizer.step()
    return model.eval(), x, edges


@every_level
@pytest.mark.parametrize("index", [None, 10])
def test_gnn_explainer(level: str, index: int | None) -> None:
    """As in PyG's documentation: masks of features and edges for the prediction of one node."""
    model, x, edges = trained(level)
    before = model(x, edges)
    explainer = Explainer(
        model,
        GNNExplainer(epochs=20),
        explanation_type="model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=CLASSES,
    )
    explanation = explainer(x, edges, index=index)
    assert explanation.node_mask.shape == x.shape
    assert explanation.edge_mask.shape == (edges.size(1),)
    for mask in (explanation.node_mask, explanation.edge_mask):
        assert torch.isfinite(mask).all()
        assert 0 <= mask.min() < mask.max() <= 1
    if index is not None and level != "graph":  # only edges within two hops have an effect
        hard = explanation.edge_mask > 0
        near = {index} | set(edges[0, edges[1] == index].tolist())
        assert set(edges[1, hard].tolist()) <= near
    torch.testing.assert_close(model(x, edges), before)
    assert model.convs[0].explain is None


@every_level
@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_attention_explainer_reads_the_weight_of_the_source(level: str, reduce: str) -> None:
    model, x, edges = trained(level)
    explainer = Explainer(
        model, AttentionExplainer(reduce), explanation_type="model", edge_mask_type="object", model_config=CLASSES
    )
    explanation = explainer(x, edges)
    _, scores = model(x, edges, return_scores=True)
    degree = torch.bincount(edges[1]).float()
    norm = (degree[edges[0]] * degree[edges[1]]).rsqrt().unsqueeze(1)
    layers = []
    for s, heads in zip(scores, (2, 1), strict=True):
        gate = s[edges[1]] if level == "neighbor" else s.expand(edges.size(1), -1)
        alpha = gate.unflatten(1, (heads, -1)).mean(2) * norm
        layers.append(alpha.amax(1) if reduce == "max" else alpha.mean(1))
    stacked = torch.stack(layers, 1)
    torch.testing.assert_close(explanation.edge_mask, stacked.amax(1) if reduce == "max" else stacked.mean(1))


# --- GateExplainer --------------------------------------------------------------------------------


def gate_explainer(model: nn.Module, node_mask_type: str | None = "object", **config: str) -> Explainer:
    return Explainer(
        model,
        GateExplainer(),
        explanation_type="model",
        node_mask_type=node_mask_type,
        edge_mask_type="object",
        model_config={**CLASSES, **config},
    )


def shares(conv: GFGNConv, x: torch.Tensor, edges: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    """Own share of every node and share of every edge, from the definition."""
    _, s = conv(x, torch.tensor(edges).t(), return_scores=True)
    z = conv.transform(x)
    degree = [sum(target == i for _, target in edges) for i in range(len(x))]
    kept, sizes = [], [0.0] * len(edges)
    for i in range(len(x)):
        own = torch.ones(z.size(1)) if conv.level == "pair" else 1 - s[i if conv.level == "neighbor" else 0]
        for e, (source, target) in enumerate(edges):
            if target == i:
                gate = s[{"graph": 0, "neighbor": i, "pair": e}[conv.level]]
                sizes[e] = float((gate * z[source]).abs().sum()) / (degree[i] * degree[source]) ** 0.5
                own = own - gate / degree[i] if conv.level == "pair" else own
        kept.append(float((own * z[i]).abs().sum()))
    total = list(kept)
    for size, (_, target) in zip(sizes, edges, strict=True):
        total[target] += size
    own_share = [k / t for k, t in zip(kept, total, strict=True)]
    return own_share, [size / total[target] for size, (_, target) in zip(sizes, edges, strict=True)]


@every_level
def test_gate_explainer_is_its_definition(level: str) -> None:
    model, x, edges = trained(level)
    explanation = gate_explainer(model)(x, edges, index=10)
    pairs = [tuple(edge) for edge in edges.t().tolist()]
    hidden = model.convs[0](x, edges).relu().detach()
    r, mask = [float(i == 10) for i in range(20)], [0.0] * len(pairs)
    for conv, features in ((model.convs[1], hidden), (model.convs[0], x)):
        own, share = shares(conv, features, pairs)
        passed = [share[e] * r[target] for e, (_, target) in enumerate(pairs)]
        r = [own[i] * r[i] for i in range(20)]
        for e, (source, _) in enumerate(pairs):
            r[source] += passed[e]
            mask[e] += passed[e] / 2
    torch.testing.assert_close(explanation.edge_mask, torch.tensor(mask))
    torch.testing.assert_close(explanation.node_mask, torch.tensor(r).unsqueeze(1))


@every_level
def test_gate_explainer_conserves_relevance(level: str) -> None:
    model, x, edges = trained(level)
    edges = torch.cat([edges, edges[:, :4], torch.tensor([[2], [2]])], dim=1)  # repetitions, a self-loop
    whole = gate_explainer(model, "attributes")(x, edges)
    assert whole.node_mask.shape == x.shape
    assert whole.edge_mask[-1] == 0
    common = gate_explainer(model, "common_attributes")(x, edges)
    torch.testing.assert_close(common.node_mask, whole.node_mask.sum(0, keepdim=True))
    for explanation in (whole, common, gate_explainer(model)(x, edges, index=torch.tensor([3, 7]))):
        torch.testing.assert_close(explanation.node_mask.sum(), torch.tensor(1.0))
        assert 0 <= explanation.edge_mask.min() < explanation.edge_mask.max() <= 1
    silent = GFGN(5, 8, 2, 3, level=level, lam=0.0).eval()
    explanation = gate_explainer(silent)(x, edges, index=4)
    assert not explanation.edge_mask.any()
    assert explanation.node_mask.argmax() == 4
    assert gate_explainer(silent, None)(x, edges).get("node_mask") is None


def test_gate_explainer_says_what_it_does_not_do(caplog: pytest.LogCaptureFixture) -> None:
    x, edges = torch.randn(12, 5), inputs()[1]

    class Encoded(nn.Module):
        def __init__(self, conv: nn.Module) -> None:
            super().__init__()
            self.lin, self.conv = nn.Linear(5, 5), conv

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.conv(self.lin(x), edges)

    model = Encoded(GFGNConv(5, 3)).eval()
    assert gate_explainer(model)(x, edges).node_mask.shape == (12, 1)
    with pytest.raises(ValueError, match=r"node_mask_type must be 'object' or None .* got 'attributes'"):
        gate_explainer(model, "attributes")(x, edges)
    with pytest.raises(ValueError, match="a model with GFGNConv layers, got Encoded"):
        gate_explainer(Encoded(GCNConv(5, 3)))(x, edges)
    with pytest.raises(TypeError, match=r"got a layer with \(x_src, x_dst\)"):
        gate_explainer(Encoded(GFGNConv((5, 5), 3)))(x, edges)
    with pytest.raises(ValueError, match="does not support"):
        gate_explainer(model, task_level="edge")
    assert "task_level must be 'node' or 'graph', got 'edge'" in caplog.text
