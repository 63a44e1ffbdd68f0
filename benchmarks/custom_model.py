"""The network of a PyG tutorial in the engine, relative to its plain training loop in the same process.

    python benchmarks/custom_model.py [--device cuda]

Two `GCNConv`, `F.dropout` and `log_softmax`; the loop is the usual one, with Adam and an evaluation after every epoch,
on one thread or on all, whichever is faster. The engine trains 40 runs (a GPU 100), each as many epochs as the loop.
"""

from __future__ import annotations

import common
from pyg_models import speed
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

from gfgn.data import load
from gfgn.train import keep_freed_memory

RUNS, EPOCHS = {"cpu": 40, "cuda": 100}, {"cpu": 50, "cuda": 100}


class Net(nn.Module):
    """The network."""

    def __init__(self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels)
        self.conv2 = GCNConv(hidden_channels, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, self.dropout, self.training)
        return F.log_softmax(self.conv2(x, edge_index), dim=1)


def measure(name: str, device: str, rounds: int) -> dict[str, object]:
    data, runs, epochs = load(name), RUNS[device], EPOCHS[device]
    engine, loop = speed(Net, data, device, rounds, runs, epochs)
    if device == "cpu":
        with common.threads(1):
            loop = min(loop, speed(Net, data, device, rounds, 1, epochs)[1])
    rates = {"engine": 1 / (engine * epochs), "loop": 1 / (loop * epochs)}
    print(f"{name}: {rates}, {loop / engine:.1f}x", flush=True)
    return {"dataset": name, "runs": runs, "epochs": epochs, "runs_per_second": rates, "ratio": loop / engine}


def main() -> None:
    arguments = common.parser(__doc__ or "", 3).parse_args()
    with keep_freed_memory():
        problems = [measure(name, arguments.device, arguments.rounds) for name in ("texas", "cora")]
    common.write("custom_model", arguments.device, problems)


if __name__ == "__main__":
    main()
