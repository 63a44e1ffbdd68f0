"""The models by name: the three levels of GFGN, an MLP, and the baselines of `gfgn.nn.baselines`.

A model is a module that maps `(x, graph)` to logits. Dropout rate and λ may differ between the replicas of a batch:
a builder gets tensors in their place and hands them on to layers that keep them as attributes, see
`gfgn.train.batch`. Unless its paper says otherwise a model has two layers, 64 hidden units (for GFGN 8 heads of 8,
as in the paper) and dropout on the input of both layers.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

from torch import Tensor, nn
from torch_geometric.nn.dense.linear import Linear

from gfgn.graph import Graph
from gfgn.nn import GFGN
from gfgn.nn.baselines import BASELINES, Baseline, Parameter
from gfgn.nn.entry import hidden, layers
from gfgn.ops import linear

HIDDEN = 64
HEADS = 8


@dataclass(frozen=True)
class Model:
    """An entry of the registry.

    Attributes:
        build: Makes the module from the number of features, the number of classes, the dropout rate, λ and the
            parameters.
        parameters: The model's own parameters, as `options` names them, with defaults and what a grid tries.
        reference: The paper it comes from.
        gated: Whether the module has GFGN's gates: λ means something, and `forward` takes `return_scores`.
        inductive: Whether a trained model runs on graphs it has not seen.
        replicas: Whether it trains in batches of replicas.
        minibatch: Whether it trains in mini-batches of sampled nodes.
        group: `"gfgn"`, `"paper"` for the baselines of the paper's tables, `"beyond"` for what came after.
        needs: Facts about the data that `build` gets among the parameters, such as `"num_nodes"`.
    """

    build: Callable[[int, int, Any, Any, Mapping[str, Any]], nn.Module]
    parameters: Mapping[str, Parameter]
    reference: str
    gated: bool = False
    inductive: bool = True
    replicas: bool = True
    minibatch: bool = False
    group: str = "paper"
    needs: tuple[str, ...] = ()

    def settings(self, name: str, options: Iterable[tuple[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of the model: the given options over the defaults, and the facts about the data it needs."""
        settings = {option: parameter.default for option, parameter in self.parameters.items()}
        for option, value in options:
            if option not in settings:
                known = ", ".join(settings) or "none"
                raise ValueError(f"options of {name} must be among {known}, got {option!r}")
            parameter = self.parameters[option]
            if not parameter.accepts(value):
                wanted = parameter.kind.__name__
                raise ValueError(f"option {option!r} of {name} must be of type {wanted}, got {value!r}")
            settings[option] = value
        return settings | {need: facts[need] for need in self.needs}


class MLP(nn.Module):
    """Linear layers that do not look at the graph."""

    def __init__(
        self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int, dropout: float | Tensor
    ) -> None:
        super().__init__()
        self.dropout = dropout
        sizes = (in_channels, *[hidden_channels] * (num_layers - 1), out_channels)
        self.layers = nn.ModuleList(
            Linear(size, following, weight_initializer="glorot", bias_initializer="zeros")
            for size, following in pairwise(sizes)
        )

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        for number, layer in enumerate(cast(Iterable[Linear], self.layers)):
            x = linear(x.relu() if number else x, layer.weight, layer.bias, self.dropout, self.training)
        return x


def _mlp(in_channels: int, num_classes: int, dropout: Any, lam: Any, settings: Mapping[str, Any]) -> nn.Module:
    return MLP(in_channels, settings["hidden"], settings["layers"], num_classes, dropout)


def _gfgn(
    in_channels: int, num_classes: int, dropout: Any, lam: Any, settings: Mapping[str, Any], *, level: str
) -> nn.Module:
    return GFGN(
        in_channels,
        settings["hidden"] // settings["heads"],
        settings["layers"],
        num_classes,
        level=level,
        heads=settings["heads"],
        lam=lam,
        dropout=dropout,
        activation=nn.Identity() if settings["activation"] == "none" else settings["activation"],
        gate_bias=settings["gate_bias"],
        validate=False,  # a `Dataset` holds finite features only
    )


def _gfgn_entry(level: str) -> Model:
    parameters = {
        "hidden": hidden(HIDDEN),
        "layers": layers(),
        "heads": Parameter(HEADS, (1, 2, 4, 8, 16), "gating heads that share the hidden units"),
        "activation": Parameter("relu", ("relu", "elu"), "between the layers; none for linear ones"),
        "gate_bias": Parameter(None, (None, -2.0, 0.0, 2.0), "where a learned bias of the gates starts"),
    }
    reference = "Jin et al., Graph Feature Gating Networks, CIKM 2021"
    return Model(partial(_gfgn, level=level), parameters, reference, gated=True, group="gfgn")


def from_baseline(entry: Baseline) -> Model:
    """The entry of a baseline, as `gfgn.nn.baselines` has it."""

    def build(in_channels: int, num_classes: int, dropout: Any, lam: Any, settings: Mapping[str, Any]) -> nn.Module:
        return entry.build(in_channels, num_classes, dropout, settings)

    fields = ("parameters", "reference", "inductive", "replicas", "minibatch", "group", "needs")
    return Model(build, **{name: getattr(entry, name) for name in fields})


MODELS: dict[str, Model] = {
    "mlp": Model(_mlp, {"hidden": hidden(HIDDEN), "layers": layers()}, "Rumelhart et al., Nature 1986"),
    "gfgn-graph": _gfgn_entry("graph"),
    "gfgn-neighbor": _gfgn_entry("neighbor"),
    "gfgn-pair": _gfgn_entry("pair"),
    **{name: from_baseline(entry) for name, entry in BASELINES.items()},
}


def find_model(name: str) -> Model:
    """The model of that name."""
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {name!r}{hint}")
    return MODELS[name]
