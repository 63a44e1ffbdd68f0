"""`vr-gcn`: the graph convolutional network, trained by sampling with historical activations as control variates."""

from __future__ import annotations

from gfgn.nn.baselines.entry import baseline, hidden, layers
from gfgn.nn.baselines.gcn import GCN


class VRGCN(GCN):
    """The network of *Stochastic Training of Graph Convolutional Networks with Variance Reduction* (Chen et al., 2018).

    It is GCN, `H^(l+1) = ReLU(Â H^(l) W^(l))`, which `forward` works out exactly, as the paper does to test. What is
    new is how it trains: `gfgn.sampling.ControlVariateBatches` takes two neighbours a node and estimates `Â H` by
    `P̂ (H − H̄) + Â H̄`, with `H̄` the activations that nodes had when they were last met.

    Args:
        in_channels: Number of features.
        out_channels: Number of classes.
        dropout: Rate, on the input of every layer.
        hidden: Hidden units.
        layers: Number of layers.
    """


ENTRY = baseline(
    VRGCN,
    "Chen et al., Stochastic Training of Graph Convolutional Networks with Variance Reduction, ICML 2018",
    {"hidden": hidden(), "layers": layers(values=(2, 3))},
    replicas=False,
    minibatch=True,
)
