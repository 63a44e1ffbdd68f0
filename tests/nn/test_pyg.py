"""`GFGNConv` and `GFGN` in PyG's own programs: heterogeneous graphs, loaders, samples by hop, summaries."""

from typing import Any

import pytest
import torch
from loops import random_edges, undirected
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader, NodeLoader
from torch_geometric.nn import GraphSAGE, HeteroConv, to_hetero

from gfgn import GFGN, GFGNConv, Graph
from gfgn.sampling import NeighborSampler

every_level = pytest.mark.parametrize("level", ["graph", "neighbor", "pair"])


# --- heterogeneous graphs -------------------------------------------------------------------------


def papers_and_authors() -> HeteroData:
    """Every paper has an author, not every author a paper, and some papers cite others."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["author"].x, data["paper"].x = torch.randn(40, 3, generator=generator), torch.randn(60, 5, generator=generator)
    author, paper = torch.randint(0, 40, (60,), generator=generator), torch.arange(60)
    data["author", "writes", "paper"].edge_index = torch.stack([author, paper])
    data["paper", "written_by", "author"].edge_index = torch.stack([paper, author])
    data["paper", "cites", "paper"].edge_index = random_edges(60, 30, generator)
    return data


class Net(nn.Module):
    """The network of PyG's page on heterogeneous graphs, with another layer."""

    def __init__(self, level: str, in_channels: Any = (-1, -1)) -> None:
        super().__init__()
        self.conv1 = GFGNConv(in_channels, 16, level)
        self.conv2 = GFGNConv(in_channels, 3, level)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


@every_level
def test_to_hetero_is_the_sum_of_bipartite_layers(level: str) -> None:
    data = papers_and_authors()
    model = to_hetero(Net(level), data.metadata())
    x, edges = data.x_dict, data.edge_index_dict
    model(x, edges)  # initializes the lazy layers
    hidden = {}
    model.conv2["paper__cites__paper"].register_forward_pre_hook(lambda _, args: hidden.update(paper=args[0]))
    model(x, edges)
    convs = model.conv1
    written = convs["author__writes__paper"]((x["author"], x["paper"]), edges["author", "writes", "paper"])
    cited = convs["paper__cites__paper"](x["paper"], edges["paper", "cites", "paper"])
    torch.testing.assert_close(hidden["paper"], (written + cited).relu())
    sum(out.square().sum() for out in model(x, edges).values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_hetero_conv_and_explanations_by_edge_type() -> None:
    from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer

    data = papers_and_authors()
    layer = HeteroConv({edge_type: GFGNConv((-1, -1), 4) for edge_type in data.edge_types})
    assert layer(data.x_dict, data.edge_index_dict)["author"].shape == (40, 4)

    class Papers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = to_hetero(Net("pair"), data.metadata())

        def forward(self, x: Any, edge_index: Any) -> torch.Tensor:
            return self.net(x, edge_index)["paper"]

    model = Papers().eval()
    model(data.x_dict, data.edge_index_dict)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    for algorithm in (GNNExplainer(epochs=3), AttentionExplainer()):
        explainer = Explainer(model, algorithm, explanation_type="model", edge_mask_type="object", model_config=config)
        explanation = explainer(data.x_dict, data.edge_index_dict)
        for edge_type, edges in data.edge_index_dict.items():
            mask = explanation[edge_type].edge_mask
            assert mask.shape == (edges.size(1),)
            assert torch.isfinite(mask).all()


# --- loaders --------------------------------------------------------------------------------------


@every_level
def test_batches_of_a_data_loader(level: str) -> None:
    """With `batch`, a graph's output does not depend on the others."""
    torch.manual_seed(0)
    graphs = [
        Data(x=torch.randn(n, 5), edge_index=undirected(n, 3, torch.Generator().manual_seed(n))) for n in (4, 6, 9)
    ]
    model = GFGN(5, 8, 2, 3, level=level, heads=2).eval()
    (batch,) = DataLoader(graphs, batch_size=3)
    out = model(batch.x, batch.edge_index, batch=batch.batch, batch_size=batch.num_graphs)
    alone = torch.cat([model(graph.x, graph.edge_index) for graph in graphs])
    torch.testing.assert_close(out, alone)
    assert torch.allclose(model(batch.x, batch.edge_index), alone) is (level != "graph")


BLOCK = torch.tensor([[2, 3, 4, 5, 7, 7, 10, 11, 12, 13], [0, 1, 2, 3, 2, 3, 7, 7, 7, 7]])
NODES, EDGES = [2, 2, 4, 6], [2, 4, 4]  # two seeds, three hops


@pytest.mark.parametrize("level", ["neighbor", "pair"])
@pytest.mark.parametrize(
    "options", [{}, {"jk": "cat"}, {"residual": True, "norm": nn.LayerNorm(8)}], ids=lambda options: "-".join(options)
)
@pytest.mark.parametrize("weighted", [False, True])
def test_layers_leave_out_what_the_seeds_do_not_need(level: str, options: dict[str, Any], weighted: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(14, 5)
    weight = torch.rand(10, requires_grad=True) if weighted else None
    model = GFGN(
        5, 8, 3, 4, level=level, heads=2, norm_kwargs={"mode": "node"} if "norm" in options else None, **options
    )
    model.eval()
    hops = {"num_sampled_nodes_per_hop": NODES, "num_sampled_edges_per_hop": EDGES}
    whole, trimmed = model(x, BLOCK, weight), model(x, BLOCK, weight, **hops)
    assert trimmed.shape == (4, 4)
    torch.testing.assert_close(trimmed[:2], whole[:2])
    torch.testing.assert_close(model(x, Graph.from_edge_index(BLOCK, 14, weight), **hops), trimmed)
    wanted = [*model.parameters(), *([weight] if weighted else [])]
    grads = (torch.autograd.grad(out[:2].square().sum(), wanted, allow_unused=True) for out in (whole, trimmed))
    torch.testing.assert_close(*grads)
    seen: list[tuple[int, int]] = []
    for conv in model.convs:
        conv.register_forward_pre_hook(lambda _, args: seen.append((args[0].size(0), args[1].num_edges)))
    _, scores = model(x, BLOCK, weight, return_scores=True, **hops)
    assert seen == [(14, 10), (8, 6), (4, 2)]
    assert [len(s) for s in scores] == ([14, 8, 4] if level == "neighbor" else [10, 6, 2])


def test_the_arguments_are_those_of_pygs_models() -> None:
    x, hops = torch.randn(14, 5), {"num_sampled_nodes_per_hop": NODES, "num_sampled_edges_per_hop": EDGES}
    assert GFGN(5, 8, 3, 4, level="graph")(x, BLOCK, **hops).shape == GraphSAGE(5, 8, 3, 4)(x, BLOCK, **hops).shape
    model = GFGN(5, 8, 3, 4)
    with pytest.raises(ValueError, match="num_sampled_edges_per_hop must be given as well, got None"):
        model(x, BLOCK, num_sampled_nodes_per_hop=NODES)
    with pytest.raises(ValueError, match=r"there must be 2 hops or more, got \[2, 12\] and \[10\]"):
        model(x, BLOCK, num_sampled_nodes_per_hop=[2, 12], num_sampled_edges_per_hop=[10])


@pytest.mark.parametrize("level", ["neighbor", "pair"])
def test_blocks_of_a_node_loader(level: str) -> None:
    """With all neighbors, and one hop more than layers, the seeds' outputs are those of the whole graph."""
    torch.manual_seed(0)
    edges = undirected(60, 30, torch.Generator().manual_seed(0))
    edges = torch.cat([edges, torch.tensor([[5, 9], [5, 9]]), edges[:, :3]], dim=1)  # self-loops, repetitions
    data = Data(x=torch.randn(60, 5), edge_index=edges)
    model = GFGN(5, 8, 2, 3, level=level, heads=2).eval()
    expected = model(data.x, data.edge_index)
    sampler = NeighborSampler.from_edge_index(edges, 60, fanouts=[-1, -1, -1])
    for batch in NodeLoader(data, node_sampler=sampler, input_nodes=torch.arange(0, 60, 7), batch_size=4):
        out = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )
        assert out.size(0) <= batch.num_nodes
        torch.testing.assert_close(out[: batch.batch_size], expected[batch.n_id[: batch.batch_size]])


# --- tools ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("module", [GFGNConv(5, 4), GFGN(5, 8, 2, 3)], ids=["GFGNConv", "GFGN"])
def test_torchscript_is_refused(module: nn.Module) -> None:
    sentence = "GFGNConv does not support TorchScript; use torch.export or torch.compile"
    x, edges = torch.randn(20, 5), random_edges(20, 40, torch.Generator())
    with pytest.raises(TypeError, match=sentence):
        torch.jit.script(module)
    with pytest.raises(TypeError, match=sentence):
        torch.jit.trace(module, (x, edges))
    assert module(x, edges).shape[0] == 20
