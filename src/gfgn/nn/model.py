"""`GFGN`: the whole network, any depth."""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch_geometric.nn.resolver import activation_resolver

from gfgn import ops
from gfgn.graph import Graph, as_graph
from gfgn.nn.conv import GFGNConv, check_features, norm_dtype

JUMPING_KNOWLEDGE = (None, "cat", "max")


class GFGN(nn.Module):
    r"""A Graph Feature Gating Network: `num_layers` layers of `GFGNConv` with activation and dropout between them.

    Every layer but the last has `heads` heads of `hidden_channels` units, concatenated; the last has one head and
    `out_channels` units. Dropout is applied to the input of every layer. The network returns logits.

    Args:
        in_channels: Size of an input feature vector; −1 takes it from the first input.
        hidden_channels: Hidden units *per head*.
        num_layers: Number of layers.
        out_channels: Number of classes.
        level: `"graph"`, `"neighbor"` or `"pair"`, see `GFGNConv`.
        heads: Number of gating heads of a hidden layer.
        lam: λ, the largest value a gate can take.
        dropout: Dropout rate.
        activation: Between layers: a name that PyG resolves (`"relu"`, `"elu"`, …), or a module.
        pool: See `GFGNConv`.
        bias: Whether layers have a bias.
        gate_bias: See `GFGNConv`.
        residual: For deep networks: add a layer's input to its output where their widths agree.
        layer_norm: For deep networks: normalise the output of every hidden layer.
        jumping_knowledge: For deep networks: `"cat"` or `"max"` joins the outputs of all hidden layers and classifies
            them with a linear map, after Xu et al. (2018); then all `num_layers` layers are hidden ones.
        validate: See `GFGNConv`.

    Shapes:
        - `x`: `[N, in_channels]`, dense or sparse CSR.
        - output: `[N, out_channels]`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        *,
        level: str = "pair",
        heads: int = 8,
        lam: float | Tensor = 1.0,
        dropout: float | Tensor = 0.5,
        activation: str | nn.Module = "relu",
        pool: str = "mean",
        bias: bool = True,
        gate_bias: float | None = None,
        residual: bool = False,
        layer_norm: bool = False,
        jumping_knowledge: Literal["cat", "max"] | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(num_layers, int) or num_layers < 1:
            raise ValueError(f"num_layers must be a positive integer, got {num_layers!r}")
        if jumping_knowledge not in JUMPING_KNOWLEDGE:
            raise ValueError(f"jumping_knowledge must be None, 'cat' or 'max', got {jumping_knowledge!r}")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.residual = residual
        self.jumping_knowledge = jumping_knowledge
        self.validate = validate
        self.activation = activation_resolver(activation)

        width = heads * hidden_channels
        num_hidden = num_layers if jumping_knowledge else num_layers - 1
        options: dict[str, Any] = {
            "level": level,
            "lam": lam,
            "dropout": dropout,
            "pool": pool,
            "bias": bias,
            "gate_bias": gate_bias,
            "validate": False,
        }
        self.convs = nn.ModuleList()
        self.norms = nn.ModuleList()
        for layer in range(num_hidden):
            size = in_channels if layer == 0 else width
            self.convs.append(GFGNConv(size, hidden_channels, heads=heads, **options))
            self.norms.append(nn.LayerNorm(width) if layer_norm else nn.Identity())
        self.lin: nn.Linear | None = None
        if jumping_knowledge:
            self.lin = nn.Linear(width * (num_layers if jumping_knowledge == "cat" else 1), out_channels)
        else:
            self.convs.append(GFGNConv(width if num_hidden else in_channels, out_channels, heads=1, **options))

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for module in (*self.convs, *self.norms, self.lin):
            if module is not None and hasattr(module, "reset_parameters"):
                module.reset_parameters()

    @property
    def num_parameters(self) -> int:
        """Number of learned values."""
        return sum(parameter.numel() for parameter in self.parameters())

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = ...,
        batch: Tensor | None = ...,
        batch_size: int | None = ...,
        return_scores: Literal[False] = ...,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = ...,
        batch: Tensor | None = ...,
        batch_size: int | None = ...,
        *,
        return_scores: Literal[True],
    ) -> tuple[Tensor, list[Tensor]]: ...

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Graph,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        return_scores: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Runs the network; arguments as for `GFGNConv.forward`, the scores being a list with one entry a layer."""
        check_features(x, edge_index, self.in_channels, self.validate)
        graph = as_graph(edge_index, x.size(0), edge_weight, batch, batch_size, norm_dtype(next(self.parameters())))
        scores: list[Tensor] = []
        hidden: list[Tensor] = []
        for layer, conv in enumerate(self.convs):
            out = conv(x, graph, return_scores=return_scores)
            if return_scores:
                out, layer_scores = out
                scores.append(layer_scores)
            if layer < len(self.norms):
                out = self.activation(self.norms[layer](out))
            if self.residual and out.shape == x.shape and x.layout == torch.strided:
                out = out + x
            x = out
            hidden.append(x)
        if self.lin is not None:
            joined = torch.cat(hidden, dim=1) if self.jumping_knowledge == "cat" else torch.stack(hidden).amax(0)
            x = ops.linear(joined, self.lin.weight, self.lin.bias, self.dropout, self.training)
        return (x, scores) if return_scores else x
