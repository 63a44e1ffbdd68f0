"""`GateExplainer`: an explanation that is read from the gates, in one forward pass, for PyG's `Explainer`."""

from __future__ import annotations

import inspect
import logging
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explanation
from torch_geometric.explain.algorithm import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType, MaskType, ModelTaskLevel

from gfgn.graph import as_graph
from gfgn.nn.conv import GFGNConv, norm_dtype
from gfgn.nn.messages import build_messages

logger = logging.getLogger(__name__)


class Shares(NamedTuple):
    """Where the output of one layer comes from: the node itself, and each of its edges, which sum to 1 per node."""

    edge_index: Tensor  # [2, E], source and target of the given edges
    own: Tensor  # [N]
    edge: Tensor  # [E]


class GateExplainer(ExplainerAlgorithm):  # type: ignore[misc] # PyG has no types
    r"""Explains a network of `GFGNConv` layers by what its gates let through.

    The output of a layer is a part of the node's own `z_i` and one part per edge. Their sizes, in the 1-norm over all
    dimensions, are shares of the output that sum to 1:

        o_i = ‖k_i z_i‖ / t_i        c_ij = ‖s_ij Â_ij z_j‖ / t_i        t_i = ‖k_i z_i‖ + Σ_j ‖s_ij Â_ij z_j‖

    with `k_i = 1 − s`, `1 − s_i` or `1 − Σ_j s_ij A_ij/d_i` at the three levels (a node with `t_i = 0` has `o_i = 1`).
    The relevance `r` starts at the explained nodes, `1/n` for each of `n`, and is handed down from the last layer to
    the first by these shares:

        r_j^(l−1) = o_j^(l) r_j^(l) + Σ_i c_ij^(l) r_i^(l)

    - `edge_mask`: the mean over the layers of `c_ij^(l) r_i^(l)`, the relevance that passed over the edge.
    - `node_mask`: `r_j^(0)`, the part of the output that began at node `j`; it sums to 1. Per feature, `r_j^(0)` is
      divided in proportion to `|x_jf| Σ_c |W_cf|` with the first layer's `W`.

    Nothing is trained, and nothing is random. What lies between the layers (activations, normalization) is taken to
    leave the shares as they are, and the layers to follow each other in the order in which they run.

        explainer = Explainer(model, GateExplainer(), explanation_type="model", node_mask_type="attributes",
                              edge_mask_type="object", model_config=...)
        explanation = explainer(x, edge_index, index=10)
    """

    def forward(
        self,
        model: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """Computes the explanation; called by `Explainer`."""
        if not isinstance(x, Tensor):
            raise TypeError(f"GateExplainer explains graphs with one type of nodes: x must be a Tensor, got {type(x)}")
        calls = _record(model, x, edge_index, kwargs)
        if not calls:
            raise ValueError(f"GateExplainer needs a model with GFGNConv layers, got {type(model).__name__}")
        relevance = self._start(x, index, kwargs.get("batch"))
        edge_mask = x.new_zeros(edge_index.size(1))
        for conv, arguments in reversed(calls):
            shares = _shares(conv, arguments)
            source, target_of = shares.edge_index
            passed = shares.edge * relevance[target_of]
            edge_mask = edge_mask + passed / len(calls)
            relevance = (shares.own * relevance).index_add(0, source, passed)
        wanted = self.explainer_config
        return Explanation(
            edge_mask=None if wanted.edge_mask_type is None else edge_mask,
            node_mask=_node_mask(wanted.node_mask_type, relevance, x, *calls[0]),
        )

    def _start(self, x: Tensor, index: int | Tensor | None, batch: Tensor | None) -> Tensor:
        """The relevance of the nodes that are explained; for a graph, all its nodes."""
        chosen = torch.ones(x.size(0), dtype=torch.bool, device=x.device)
        if index is not None and self.model_config.task_level == ModelTaskLevel.node:
            chosen = torch.zeros_like(chosen)
            chosen[index] = True
        elif index is not None and batch is not None:
            chosen = torch.isin(batch, torch.as_tensor(index, device=x.device))
        return chosen.to(x.dtype) / chosen.sum()

    def supports(self) -> bool:
        """Whether the settings of the `Explainer` are possible; if not, the reason is logged."""
        reason = None
        if self.explainer_config.explanation_type != ExplanationType.model:
            reason = "explanation_type must be 'model': the gates do not depend on a target"
        elif self.explainer_config.edge_mask_type not in (None, MaskType.object):
            reason = f"edge_mask_type must be 'object' or None, got {self.explainer_config.edge_mask_type.value!r}"
        elif self.model_config.task_level == ModelTaskLevel.edge:
            reason = "task_level must be 'node' or 'graph', got 'edge'"
        if reason is not None:
            logger.error("GateExplainer: %s", reason)
        return reason is None


def _record(model: nn.Module, x: Tensor, edge_index: Tensor, kwargs: dict[str, Any]) -> list[tuple[GFGNConv, Any]]:
    """Every call of a `GFGNConv` in one run of the model, with its arguments."""
    calls: list[tuple[GFGNConv, Any]] = []

    def remember(conv: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        assert isinstance(conv, GFGNConv)
        bound = inspect.signature(conv.forward).bind(*args, **options)
        bound.apply_defaults()
        calls.append((conv, bound.arguments))

    convs = [module for module in model.modules() if isinstance(module, GFGNConv)]
    handles = [conv.register_forward_pre_hook(remember, with_kwargs=True) for conv in convs]
    try:
        with torch.no_grad():
            model(x, edge_index, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


@torch.no_grad()
def _shares(conv: GFGNConv, arguments: dict[str, Any]) -> Shares:
    """The shares of one layer's output, from the arguments of its call."""
    x = arguments["x"]
    if not isinstance(x, Tensor) or conv.lin is None:
        raise TypeError("GateExplainer explains graphs with one type of nodes, got a layer with (x_src, x_dst)")
    edges = {name: arguments[name] for name in ("edge_index", "edge_weight", "batch", "batch_size")}
    graph = as_graph(num_nodes=x.size(0), dtype=norm_dtype(conv.gate), **edges)
    z = conv.transform(x)
    terms = build_messages(conv.level, z, conv.gate, conv.gate_bias, conv.lam, graph, conv.pool)
    source, target = terms.edge_index
    taken = (terms.gate * terms.norm * z[source]).abs().sum(1)
    kept = terms.own.index_add(0, target, -(terms.gate * terms.row_norm * z[target]).to(terms.own.dtype))
    own = kept.abs().sum(1).to(taken.dtype)
    total = own.index_add(0, target, taken)
    empty = total == 0
    total = torch.where(empty, 1, total)
    return Shares(terms.edge_index, torch.where(empty, 1, own / total), taken / total[target])


@torch.no_grad()
def _node_mask(
    mask_type: MaskType | None, relevance: Tensor, x: Tensor, conv: GFGNConv, arguments: dict[str, Any]
) -> Tensor | None:
    """The relevance of the nodes, by feature where it is asked for."""
    if mask_type is None:
        return None
    if mask_type == MaskType.object:
        return relevance.unsqueeze(1)
    if not torch.equal(arguments["x"], x):
        raise ValueError(
            f"node_mask_type must be 'object' or None where the first GFGNConv does not read x itself, "
            f"got {mask_type.value!r}"
        )
    size = x.abs() * conv.lin.weight.abs().sum(0)
    total = size.sum(1, keepdim=True)
    by_feature = torch.where(total > 0, size / torch.where(total > 0, total, 1), 1 / x.size(1))
    mask = relevance.unsqueeze(1) * by_feature
    return mask if mask_type == MaskType.attributes else mask.sum(0, keepdim=True)
