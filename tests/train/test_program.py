"""`Program`: whose values a module has while it runs."""

from typing import Any

import torch
from torch import Tensor, nn

from gfgn.data.generators.dimensions import dimensions
from gfgn.nn.entry import Model
from gfgn.train.program import Program, State
from gfgn.train.task import Part


class Scaled(nn.Module):
    """Logits that show each value: a parameter has the name of a hyperparameter, and a child begins in evaluation
    mode."""

    def __init__(self, in_channels: int, out_channels: int, dropout: Any, **_: Any) -> None:
        super().__init__()
        self.rate, self.classes = dropout, out_channels
        self.dropout = nn.Parameter(torch.ones(()))
        self.child = nn.Identity().eval()
        self.twin = nn.Module()
        self.twin.tied = self.dropout

    def forward(self, x: Tensor, graph: Any) -> Tensor:
        value = self.dropout + 10 * self.rate + 100 * self.child.training + 1000 * self.twin.tied
        return value * x.new_ones(x.size(0), self.classes)


def test_parameters_hyperparameters_and_modes_are_kept_apart() -> None:
    data = dimensions(16, degree=4, splits=1, seed=1)
    program = Program(Model(Scaled, "", {}), {}, data, torch.device("cpu"))
    state = State({"dropout": torch.tensor([2.0, 3.0])}, {})
    own = {"key": torch.tensor([1, 2]), "dropout": torch.tensor([0.1, 0.2])}
    part = Part(data.x, data.graph, data.y, data.splits[0].train.unsqueeze(0))
    for training in (True, False, True):
        logits, _ = program(state, own, part, training)
        expected = torch.tensor([2003.0, 3005.0]) + 100 * training
        torch.testing.assert_close(logits[:, 0, 0], expected)
    assert program.module.dropout.item() == 1  # the module's own values are back
