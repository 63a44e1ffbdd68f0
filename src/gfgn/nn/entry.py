"""`Baseline`: what the registry knows about a model, and how an entry of it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from torch import Tensor, nn

Builder: TypeAlias = Callable[[int, int, "float | Tensor", Mapping[str, Any]], nn.Module]
"""Makes a model of the number of features, the number of classes, the dropout rate and the model's own options."""
Group: TypeAlias = Literal["paper", "beyond"]


@dataclass(frozen=True)
class Parameter:
    """An option of a model.

    Attributes:
        default: From the model's paper, or the common config (two layers, 64 hidden units) where it leaves it open.
        values: What a grid tries.
        meaning: One line.
    """

    default: Any
    values: tuple[Any, ...]
    meaning: str

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(f"default must be one of the values {self.values}, got {self.default!r}")

    def accepts(self, value: Any) -> bool:
        """Whether a value is of the right type; a whole number will do where the others have a point."""
        return value is self.default or isinstance(value, (int, float) if self.kind is float else self.kind)

    @property
    def kind(self) -> type:
        """The type of the values, where one may be `None`."""
        return type(next(value for value in self.values if value is not None))


@dataclass(frozen=True)
class Baseline:
    """A model of the registry.

    Attributes:
        build: Makes the model, see `Builder`; options that are not given take their defaults.
        parameters: The model's own options by name.
        reference: The paper it comes from.
        inductive: Whether a trained model runs on graphs it has not seen.
        replicas: Whether it trains in batches of replicas.
        minibatch: Whether it trains in mini-batches of sampled nodes, see `gfgn.sampling`.
        group: `"paper"` for a row of the paper's tables, `"beyond"` for what came after.
        needs: Facts about the data that `build` must be given among the options, such as `"num_nodes"`.
        training: Values of `"lr"`, `"weight_decay"` and `"dropout"` that its paper trains with, for a model that the
            paper's common grid does not suit.
    """

    build: Builder
    parameters: Mapping[str, Parameter]
    reference: str
    inductive: bool
    replicas: bool
    minibatch: bool
    group: Group
    needs: tuple[str, ...] = ()
    training: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def baseline(
    model: Callable[..., nn.Module],
    reference: str,
    parameters: Mapping[str, Parameter],
    *,
    inductive: bool = True,
    replicas: bool = True,
    minibatch: bool = False,
    group: Group = "paper",
    needs: tuple[str, ...] = (),
    accepts: tuple[str, ...] = (),
    training: Mapping[str, tuple[float, ...]] | None = None,
) -> Baseline:
    """The registry entry of a class `model(in_channels, out_channels, dropout, **options)`.

    Args:
        model: The class.
        reference: See `Baseline`, as for all that follow.
        parameters: Options by name; each is a keyword of the class.
        inductive: Whether it runs on unseen graphs.
        replicas: Whether it trains in batches of replicas.
        minibatch: Whether it trains in mini-batches.
        group: `"paper"` or `"beyond"`.
        needs: Keywords of the class that must be given beside the parameters.
        accepts: Keywords of the class that may be given and are no hyper-parameters.
        training: See `Baseline`.
    """

    def build(in_channels: int, num_classes: int, dropout: float | Tensor, options: Mapping[str, Any]) -> nn.Module:
        allowed = (*parameters, *needs, *accepts)
        for name in options:
            if name not in allowed:
                raise ValueError(f"options must be among {', '.join(allowed)}, got {name!r}")
        missing = [name for name in needs if name not in options]
        if missing:
            raise ValueError(f"options must have {', '.join(missing)}, got {', '.join(options) or 'none'}")
        defaults = {name: parameter.default for name, parameter in parameters.items()}
        return model(in_channels, num_classes, dropout=dropout, **{**defaults, **options})

    claims = {"inductive": inductive, "replicas": replicas, "minibatch": minibatch}
    return Baseline(build, dict(parameters), reference, **claims, group=group, needs=needs, training=training or {})


def hidden(default: int = 64, values: tuple[int, ...] = (16, 32, 64, 128, 256)) -> Parameter:
    """The option `hidden`."""
    return Parameter(default, values, "hidden units")


def layers(default: int = 2, values: tuple[int, ...] = (1, 2, 3, 4)) -> Parameter:
    """The option `layers`."""
    return Parameter(default, values, "number of layers")
