"""PyG's convolutions as networks of two layers, and PyG's models of nodes, for `pyg_models.py` and a test.

`CONVOLUTIONS` and `NOT_CALLED` together name every convolution of `torch_geometric.nn.conv`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as pyg

Layer = Callable[[int, int], nn.Module]
DEGREES = torch.tensor([0, 5, 10, 20, 20, 10, 5])  # a histogram, for PNA
HEADS = 2


def mlp(in_channels: int, out_channels: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_channels, out_channels), nn.ReLU(), nn.Linear(out_channels, out_channels))


class Network(nn.Module):
    """Two layers of one convolution, with ReLU and dropout between them."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 64,
        dropout: float = 0.5,
        convolution: str = "GCNConv",
    ) -> None:
        super().__init__()
        layer = CONVOLUTIONS[convolution]
        self.first, self.second = layer(in_channels, hidden_channels), layer(hidden_channels, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.first(x, edge_index))
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x, edge_index)


class Mapped(nn.Module):
    """A convolution without a linear map of its own, after one."""

    def __init__(self, convolution: Callable[[int], nn.Module], in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear, self.convolution = nn.Linear(in_channels, out_channels), convolution(out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.convolution(self.linear(x), edge_index)


class WithInput(Mapped):
    """A convolution that takes the first layer's input, too."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.linear(x)
        return self.convolution(x, x.relu(), edge_index)


class WithLayers(Mapped):
    """A convolution that takes the outputs of all earlier layers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.linear(x)
        return self.convolution(torch.stack([x, x.relu()], dim=1), edge_index)


class Heads(nn.Module):
    """A convolution with concatenated heads, and a linear map to the number of outputs."""

    def __init__(self, convolution: Callable[..., nn.Module], in_channels: int, out_channels: int) -> None:
        super().__init__()
        width = out_channels // HEADS + 1
        self.convolution = convolution(in_channels, width)
        self.linear = nn.Linear(HEADS * width, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.linear(self.convolution(x, edge_index))


class MixHop(Heads):
    """Powers of the adjacency, and a linear map to the number of outputs."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(partial(pyg.MixHopConv, powers=list(range(HEADS))), in_channels, out_channels)


def _gps(width: int) -> nn.Module:
    return pyg.GPSConv(width, pyg.GCNConv(width, width), heads=1, dropout=0.2)


def _egc(in_channels: int, width: int) -> nn.Module:
    return pyg.EGConv(in_channels, HEADS * width, aggregators=["sum", "max", "symnorm"], num_heads=HEADS)


def _pna(in_channels: int, out_channels: int) -> nn.Module:
    return pyg.PNAConv(in_channels, out_channels, ["mean", "min", "max", "std"], ["identity", "amplification"], DEGREES)


CONVOLUTIONS: dict[str, Layer] = {
    "SimpleConv": partial(Mapped, lambda _: pyg.SimpleConv()),
    "GCNConv": pyg.GCNConv,
    "ChebConv": partial(pyg.ChebConv, K=3),
    "SAGEConv": pyg.SAGEConv,
    "GraphConv": pyg.GraphConv,
    "GatedGraphConv": partial(Mapped, lambda width: pyg.GatedGraphConv(width, 2)),
    "ResGatedGraphConv": pyg.ResGatedGraphConv,
    "GATConv": partial(Heads, partial(pyg.GATConv, heads=HEADS, dropout=0.2)),
    "GATv2Conv": partial(Heads, partial(pyg.GATv2Conv, heads=HEADS, dropout=0.2)),
    "TransformerConv": partial(Heads, partial(pyg.TransformerConv, heads=HEADS, dropout=0.2)),
    "AGNNConv": partial(Mapped, lambda _: pyg.AGNNConv()),
    "TAGConv": pyg.TAGConv,
    "GINConv": lambda i, o: pyg.GINConv(mlp(i, o), train_eps=True),
    "ARMAConv": partial(pyg.ARMAConv, num_stacks=2, num_layers=2, dropout=0.2),
    "SGConv": partial(pyg.SGConv, K=2),
    "SSGConv": partial(pyg.SSGConv, alpha=0.1, K=2),
    "APPNP": partial(Mapped, lambda _: pyg.APPNP(3, 0.1, dropout=0.2)),
    "MFConv": partial(pyg.MFConv, max_degree=4),
    "DNAConv": partial(WithLayers, lambda width: pyg.DNAConv(width, dropout=0.2)),
    "CGConv": partial(Mapped, lambda width: pyg.CGConv(width, batch_norm=True)),
    "EdgeConv": lambda i, o: pyg.EdgeConv(mlp(2 * i, o)),
    "FeaStConv": partial(pyg.FeaStConv, heads=HEADS),
    "HypergraphConv": pyg.HypergraphConv,
    "LEConv": pyg.LEConv,
    "PNAConv": _pna,
    "ClusterGCNConv": pyg.ClusterGCNConv,
    "GENConv": partial(pyg.GENConv, learn_t=True),
    "GCN2Conv": partial(WithInput, lambda width: pyg.GCN2Conv(width, 0.1, 0.5, 1)),
    "WLConvContinuous": partial(Mapped, lambda _: pyg.WLConvContinuous()),
    "FiLMConv": pyg.FiLMConv,
    "SuperGATConv": partial(Heads, partial(pyg.SuperGATConv, heads=HEADS, dropout=0.2)),
    "FAConv": partial(WithInput, lambda width: pyg.FAConv(width, dropout=0.2)),
    "EGConv": partial(Heads, _egc),
    "PDNConv": partial(pyg.PDNConv, edge_dim=1, hidden_channels=8),  # without edge features
    "GeneralConv": partial(pyg.GeneralConv, attention=True, heads=HEADS),
    "LGConv": partial(Mapped, lambda _: pyg.LGConv()),
    "GPSConv": partial(Mapped, _gps),
    "AntiSymmetricConv": partial(Mapped, pyg.AntiSymmetricConv),
    "DirGNNConv": lambda i, o: pyg.DirGNNConv(pyg.SAGEConv(i, o)),
    "MixHopConv": MixHop,
}

NOT_CALLED = {
    **dict.fromkeys(("CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv"), "needs pylibcugraphops"),
    **dict.fromkeys(("GravNetConv", "DynamicEdgeConv", "XConv"), "needs pyg-lib; makes its own edges"),
    **dict.fromkeys(("RGCNConv", "FastRGCNConv", "RGATConv"), "needs edge types"),
    **dict.fromkeys(("HGTConv", "HEATConv", "HeteroConv", "HANConv"), "needs node and edge types"),
    **dict.fromkeys(("GINEConv", "GMMConv", "NNConv"), "needs edge features"),
    **dict.fromkeys(("PointNetConv", "PPFConv", "PointTransformerConv", "PointGNNConv"), "needs positions of nodes"),
    "SplineConv": "needs pyg-lib",
    "FusedGATConv": "needs dgNN",
    "PANConv": "needs torch-sparse",
    "SignedConv": "needs positive and negative edges",
    "WLConv": "needs integers as features; learns nothing",
    "MeshCNNConv": "needs the edges of a mesh",
}


def pna(in_channels: int, out_channels: int, dropout: float = 0.5) -> nn.Module:
    options = {"aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification"], "deg": DEGREES}
    return pyg.PNA(in_channels, 64, 2, out_channels, dropout=dropout, **options)


def linkx(in_channels: int, out_channels: int, num_nodes: int, dropout: float = 0.5) -> nn.Module:
    return pyg.LINKX(num_nodes, in_channels, 64, out_channels, 2, dropout=dropout)


def gcn_with_lstm(in_channels: int, out_channels: int, dropout: float = 0.5) -> nn.Module:
    return pyg.GCN(in_channels, 64, 2, out_channels, dropout=dropout, jk="lstm")


class DeepGCN(nn.Module):
    """Two `DeepGCNLayer`s of `GENConv`, as in PyG's example."""

    def __init__(self, in_channels: int, out_channels: int, dropout: float = 0.5) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(in_channels, 64), nn.Linear(64, out_channels)
        self.layers = nn.ModuleList(
            pyg.DeepGCNLayer(pyg.GENConv(64, 64), nn.LayerNorm(64), nn.ReLU(), block="res+", dropout=dropout)
            for _ in range(2)
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.encoder(x)
        for layer in self.layers:
            x = layer(x, edge_index)
        return self.decoder(x)


class RevGNN(nn.Module):
    """Reversible layers, whose backward pass computes the activations again."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(in_channels, 64), nn.Linear(64, out_channels)
        self.layer = pyg.GroupAddRev(pyg.SAGEConv(32, 32), num_groups=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.decoder(self.layer(self.encoder(x), edge_index))


def graph_unet(in_channels: int, out_channels: int) -> nn.Module:
    return pyg.GraphUNet(in_channels, 64, out_channels, depth=2)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "GCN": pyg.GCN,
    "GraphSAGE": pyg.GraphSAGE,
    "GIN": pyg.GIN,
    "GAT": pyg.GAT,
    "PNA": pna,
    "EdgeCNN": pyg.EdgeCNN,
    "GCN, norm='batch_norm'": partial(pyg.GCN, norm="batch_norm"),
    "GCN, norm='graph_norm'": partial(pyg.GCN, norm="graph_norm"),
    "GCN, jk='cat'": partial(pyg.GCN, jk="cat"),
    "GCN, jk='lstm'": gcn_with_lstm,
    "GAT, v2=True": partial(pyg.GAT, v2=True),
    "LINKX": linkx,
    "PMLP": pyg.PMLP,
    "DeepGCNLayer": DeepGCN,
    "GroupAddRev": RevGNN,
    "GraphUNet": graph_unet,
}
MODELS_NOT_CALLED = {
    "MLP": "needs no edges",
    "SGFormer": "needs batch",
    "Polynormer": "needs batch",
    "RECT_L": "returns no logits of classes",
    "LightGCN": "takes no features; for recommendation",
    "SignedGCN": "needs positive and negative edges",
}


def factory(name: str) -> Callable[..., nn.Module]:
    """The network of a convolution, or the model."""
    return partial(Network, convolution=name) if name in CONVOLUTIONS else MODELS[name]
