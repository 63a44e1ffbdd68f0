"""`Members`: the trained networks of a classifier and their joint, calibrated probabilities."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import entr
from sklearn.isotonic import IsotonicRegression
from torch import Tensor, nn

from gfgn.data.mapped import is_mapped
from gfgn.graph import Graph
from gfgn.nn.model import GFGN
from gfgn.nn.registry import MODELS
from gfgn.ops.seeded import seeded
from gfgn.train.layerwise import infer_layerwise

Floats = NDArray[np.float64]
ENOUGH = 1000  # validation nodes for an isotonic regression
LARGE = 2**20  # nodes and edges above which networks predict layer by layer, in chunks
SMALLEST = 1e-12  # probability, so that its logarithm is finite


@dataclass(frozen=True)
class Members:
    """Networks of one model that differ in their parameters.

    Attributes:
        model: Name in the registry.
        in_channels, out_channels: Number of features, and of classes or labels.
        settings: The model's options.
        lam: λ.
        states: `[R, …]` parameters by name, one entry per network.
        multilabel: Whether the outputs are independent labels.
    """

    model: str
    in_channels: int
    out_channels: int
    settings: Mapping[str, Any]
    lam: float
    states: Mapping[str, Tensor]
    multilabel: bool

    @property
    def count(self) -> int:
        """Number of networks."""
        return next(iter(self.states.values())).size(0)

    def build(self) -> nn.Module:
        """A network of this kind that is not trained."""
        with seeded(0):
            return MODELS[self.model].build(self.in_channels, self.out_channels, 0.0, self.lam, dict(self.settings))

    def network(self, k: int) -> nn.Module:
        """Network `k` in evaluation mode."""
        network = self.build()
        network.load_state_dict({name: value[k] for name, value in self.states.items()}, strict=False)
        return network.eval().requires_grad_(False)

    @cached_property
    def networks(self) -> list[nn.Module]:
        """All networks in double precision. Threads share them: nothing may change them, and evaluation does not."""
        return [self.network(k).double() for k in range(self.count)]

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # without what is computed when used

    @torch.no_grad()
    def logits(self, x: Tensor, graph: Graph, nodes: Tensor | slice = slice(None)) -> Tensor:
        """`[R, nodes, C]`, computed in double precision: the same for a node whatever other nodes are beside it."""
        layered = isinstance(self.networks[0], GFGN) and graph.batch is None
        large = layered and (is_mapped(graph) or x.size(0) + graph.num_edges > LARGE)
        return torch.stack([out[nodes] for out in (self._outputs_layerwise if large else self._outputs)(x, graph)])

    @torch.no_grad()
    def embeddings(self, x: Tensor, graph: Graph) -> Tensor:
        """`[N, R * D]`: the input of the last layer, side by side for all networks."""
        inputs: list[Tensor] = []
        x, graph = x.double(), graph.to(torch.float64)
        for network in copy.deepcopy(self.networks):
            last: Any = network.to(x.device).convs[-1]  # type: ignore[index]
            last.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
            network(x, graph)
        return torch.cat([value.to_dense() for value in inputs], 1).float()

    def _outputs(self, x: Tensor, graph: Graph) -> Iterator[Tensor]:
        x, graph = x.double(), graph.to(torch.float64)
        for network in self.networks:
            yield _on(x.device, network)(x, graph)

    def _outputs_layerwise(self, x: Tensor, graph: Graph) -> Iterator[Tensor]:
        scratch = tempfile.gettempdir() if is_mapped(graph) else None
        for network in self.networks:
            there = cast(GFGN, _on(x.device, network))
            yield infer_layerwise(there, x, graph, edges_per_chunk=LARGE, scratch=scratch)

    def probabilities(self, logits: Tensor) -> Tensor:
        """`[R, N, C]`: the probabilities of each network."""
        return logits.sigmoid() if self.multilabel else logits.softmax(-1)


def _on(device: torch.device, network: nn.Module) -> nn.Module:
    """The network on a device: itself on the CPU, else a copy."""
    return network if device.type == "cpu" else copy.deepcopy(network).to(device)


def entropy(probabilities: Floats, multilabel: bool = False) -> Floats:
    """`[N]`: the entropy of probabilities, from 0 to 1; of several labels, the mean over these."""
    p = probabilities
    values = (entr(p) + entr(1 - p)).mean(1) / np.log(2) if multilabel else entr(p).sum(1) / np.log(p.shape[1])
    return np.asarray(np.minimum(values, 1.0))  # which rounding may exceed


def temper(probabilities: Tensor, temperature: float, multilabel: bool) -> Tensor:
    """Probabilities raised to the power `1 / temperature` and normalized again."""
    if temperature == 1.0:
        return probabilities
    p = probabilities.clamp(SMALLEST, 1)
    if multilabel:
        return torch.sigmoid((p.log() - (1 - probabilities).clamp(SMALLEST, 1).log()) / temperature)
    return torch.softmax(p.log() / temperature, -1)


def fit_temperature(probabilities: Tensor, y: Tensor, multilabel: bool) -> float:
    """The temperature with the smallest log loss on the given nodes, between 1/8 and 8 (Guo et al., 2017).

    As in Platt's scaling, a label counts as `1 − 1/(n + 2)` for `n` nodes instead of 1: a few nodes that are all right
    do not prove that probabilities are 1.
    """
    target = y.double() if multilabel else torch.nn.functional.one_hot(y, probabilities.size(-1)).double()
    doubt, others = 1 / (len(y) + 2), 1 if multilabel else probabilities.size(-1) - 1
    target = target * (1 - doubt) + (1 - target) * doubt / others

    def log_loss(log_temperature: float) -> float:
        p = temper(probabilities, float(np.exp(log_temperature)), multilabel).clamp(SMALLEST, 1 - SMALLEST)
        losses = -target * p.log() - ((1 - target) * (1 - p).log() if multilabel else 0)
        return float(losses.sum() / len(y))

    found = minimize_scalar(log_loss, bounds=(-np.log(8), np.log(8)), method="bounded", options={"xatol": 1e-3})
    return float(np.exp(found.x)) if found.fun < log_loss(0.0) else 1.0


def fit_confidence(probabilities: Tensor, y: Tensor) -> list[list[float]] | None:
    """An increasing map from confidence to accuracy by isotonic regression (Zadrozny and Elkan, 2002): two lists, the
    confidences and the accuracies between which `map_confidence` interpolates. `None` with fewer than `ENOUGH` nodes,
    which it would follow too closely."""
    if len(y) < ENOUGH:
        return None
    confidence, predicted = probabilities.max(1)
    doubt = 1 / (len(y) + 2)
    curve = IsotonicRegression(y_min=doubt, y_max=1 - doubt).fit(confidence.numpy(), (predicted == y).numpy())
    return [curve.X_thresholds_.tolist(), curve.y_thresholds_.tolist()]


def map_confidence(probabilities: Tensor, curve: list[list[float]]) -> Tensor:
    """Probabilities whose largest one is mapped by `fit_confidence` and stays the largest; the others share the rest as
    before."""
    top, index = probabilities.max(1, keepdim=True)
    others = probabilities.clamp(min=SMALLEST).scatter(1, index, 0.0)
    share = others / others.sum(1, keepdim=True)
    confidences, accuracies = curve
    mapped = torch.from_numpy(np.asarray(np.interp(top.numpy(), confidences, accuracies)))
    second = share.max(1, keepdim=True).values
    mapped = torch.maximum(mapped, second / (1 + second) * (1 + 1e-9))
    return (share * (1 - mapped)).scatter(1, index, mapped)
