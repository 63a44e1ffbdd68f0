"""`Model`: what the registry knows about a model, and `Parameter`: one of its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


CODE = "code"  # the option that tells the runs of a custom model apart from those before it was edited


@dataclass(frozen=True)
class Parameter:
    """An option of a model.

    Attributes:
        default: The value of the model's paper, or the common one (two layers, 64 hidden units) if the paper has none.
        values: The values that a grid tries.
        meaning: One line of description.
    """

    default: Any
    values: tuple[Any, ...]
    meaning: str

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(f"default must be one of the values {self.values}, got {self.default!r}")

    def accepts(self, value: Any) -> bool:
        """Whether a value has the right type; an integer is accepted as a float."""
        if self.kind is None or value is self.default:
            return True
        return isinstance(value, (int, float) if self.kind is float else self.kind)

    @property
    def kind(self) -> type | None:
        """The type of the values that are not `None`; `None` if there is no such value, and any type is accepted."""
        return next((type(value) for value in self.values if value is not None), None)


SHARED = {"features": Parameter("given", ("given", "normalized"), "as given, or each row divided by its sum")}
"""Options of every model, unless it has one of that name itself: training applies them to the data."""

MAX_OPTION = 100_000  # of an option's value: more layers or units are a mistake


@dataclass(frozen=True)
class Model:
    """A model of the registry.

    Attributes:
        network: Class or function that builds the module: `network(in_channels, out_channels, dropout=…, **settings)`,
            with `lam=…` if the model is gated.
        reference: The paper it comes from.
        parameters: The model's options by name; each is a keyword of `network`.
        gated: Whether the module has GFGN's gates: it has a λ, its `forward` takes `return_scores`, and the names
            of the parameters of gates, and of these alone, start with `gate`.
        level: Of the gates, unless an option of that name says otherwise.
        variants: Options and hyperparameters among which a run without tuning chooses on validation nodes; a random
            search draws one of them for its options.
        inductive: Whether a trained model runs on graphs it has not seen.
        batchable: Whether it trains in batches of replicas; otherwise it trains on samples of the graph.
        needs: Properties of the data that `network` takes as keywords, such as `"num_nodes"`.
        custom: Whether it is a custom model, see `gfgn.nn.custom`.
        takes_dropout: Whether `network` takes the dropout rate; otherwise that of a `Replica` has no effect.
        takes_input_dropout: Whether it takes the one of the features, `input_dropout`.
        required: Options without a default.
        accepts_kwargs: Whether `network` takes options other than `parameters`.
        code: Hash of the file that defines a custom model; empty for all other models.
    """

    network: Callable[..., nn.Module]
    reference: str
    parameters: Mapping[str, Parameter]
    gated: bool = False
    level: str = ""
    variants: tuple[Mapping[str, Any], ...] = ()
    inductive: bool = True
    batchable: bool = True
    needs: tuple[str, ...] = ()
    custom: bool = False
    takes_dropout: bool = True
    takes_input_dropout: bool = True
    required: tuple[str, ...] = ()
    accepts_kwargs: bool = False
    code: str = ""

    def build(
        self,
        in_channels: int,
        num_classes: int,
        dropout: float | Tensor = 0.5,
        lam: float | Tensor = 1.0,
        settings: Mapping[str, Any] | None = None,
        input_dropout: float | Tensor | None = None,
    ) -> nn.Module:
        """Builds the module.

        Args:
            in_channels: Number of features.
            num_classes: Number of classes.
            dropout: Dropout rate.
            lam: λ; models that are not gated ignore it.
            settings: Options by name and the properties named in `needs`; other options take their defaults.
            input_dropout: Dropout rate of the features; `None` for `dropout`.
        """
        settings = settings or {}
        allowed = (*self.parameters, *self.needs)
        for name in settings:
            if name not in allowed and not self.accepts_kwargs:
                raise ValueError(f"settings must be among {', '.join(allowed)}, got {name!r}")
        missing = [name for name in (*self.needs, *self.required) if name not in settings]
        if missing:
            raise ValueError(f"settings must include {', '.join(missing)}, got {', '.join(settings) or 'none'}")
        keywords = {name: parameter.default for name, parameter in self.parameters.items()} | dict(settings)
        if self.gated:
            keywords["lam"] = lam
        if input_dropout is not None and self.takes_input_dropout:
            keywords["input_dropout"] = input_dropout
        return self.network(in_channels, num_classes, dropout=dropout, **keywords)

    @property
    def options(self) -> dict[str, Parameter]:
        """All options by name: the model's own, and those that training applies."""
        return {**self.parameters, **{name: SHARED[name] for name in SHARED if name not in self.parameters}}

    def applied(self, options: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """The options of a run that training applies, see `SHARED`, by name, with their defaults."""
        given = dict(options)
        shared = {name: parameter for name, parameter in SHARED.items() if name not in self.parameters}
        return {name: given.get(name, parameter.default) for name, parameter in shared.items()}

    def settings(self, name: str, options: Iterable[tuple[str, Any]], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Checks options and completes them with the defaults and the properties of the data in `needs`.

        Those that training applies are checked and left out.

        Args:
            name: Name of the model, for messages.
            options: `(name, value)` pairs.
            facts: Properties of the data by name.
        """
        given = {option: value for option, value in options if not (self.custom and option == CODE)}
        for option, value in given.items():
            parameter = self.options.get(option)
            if parameter is None and not self.accepts_kwargs:
                known = ", ".join(self.options)
                raise ValueError(f"options of {name} must be among {known}, got {option!r}")
            if parameter is not None and parameter.kind is not None and not parameter.accepts(value):
                expected = parameter.kind.__name__
                raise ValueError(f"option {option!r} of {name} must be of type {expected}, got {value!r}")
            if isinstance(value, int | float) and not abs(value) <= MAX_OPTION:
                raise ValueError(f"option {option!r} of {name} must be at most {MAX_OPTION:,} in size, got {value:.6g}")
        if missing := [option for option in self.required if option not in given]:
            how = ", ".join(f"--set {name}.{option}=VALUE" for option in missing)
            raise ValueError(f"options of {name} must include {', '.join(missing)}, which has no default: {how}")
        defaults = {option: parameter.default for option, parameter in self.parameters.items()}
        applied = self.applied(given.items())
        for option, value in applied.items():
            if value not in SHARED[option].values:
                expected = " or ".join(map(repr, SHARED[option].values))
                raise ValueError(f"option {option!r} of {name} must be {expected}, got {value!r}")
        given = {option: value for option, value in given.items() if option not in applied}
        return defaults | given | {need: facts[need] for need in self.needs}

    def gate_level(self, options: Iterable[tuple[str, Any]]) -> str:
        """What has gates of its own in a run with these options: `"graph"`, `"neighbor"` or `"pair"`; empty if there
        are no gates."""
        given = {name: parameter.default for name, parameter in self.parameters.items()} | dict(options)
        if not self.gated or given.get("hops") == 0:
            return ""
        shared = given.get("gate_range") == "free" or given.get("gate_form") == "constant"
        return "graph" if shared else str(given.get("level", self.level))

    @property
    def fixed(self) -> dict[str, Any]:
        """What all runs of a custom model have in common: its code, and no dropout if it takes none."""
        if not self.custom:
            return {}
        return {CODE: self.code} | ({} if self.takes_dropout else {"dropout": 0.0})

    @property
    def ignored(self) -> set[str]:
        """The hyperparameters of a `Replica` that have no effect."""
        takes = {"lam": self.gated, "gate_decay": self.gated}
        takes |= {"dropout": self.takes_dropout, "input_dropout": self.takes_input_dropout}
        return {name for name, has_effect in takes.items() if not has_effect}

    def check(self, name: str, in_channels: int, num_classes: int, settings: Mapping[str, Any]) -> None:
        """Raises a `ValueError` if the module cannot be built with these settings; needs no memory."""
        import torch

        from gfgn.ops.seeded import seeded

        try:
            with seeded(0), torch.device("meta"):
                module = self.build(in_channels, num_classes, 0.5, 1.0, settings)
            if any(parameter.numel() == 0 for parameter in module.parameters()):
                raise RuntimeError("a layer without any units")
        except (RuntimeError, TypeError, ArithmeticError, LookupError) as error:
            first = (str(error) or type(error).__name__).splitlines()[0]
            shown = ", ".join(f"{option}={value}" for option, value in settings.items())
            raise ValueError(f"options of {name} must fit together, got {shown}: {first}") from error


def hidden(default: int = 64, values: tuple[int, ...] = (16, 32, 64, 128, 256)) -> Parameter:
    """The option `hidden`."""
    return Parameter(default, values, "hidden units")


def layers(default: int = 2, values: tuple[int, ...] = (1, 2, 3, 4)) -> Parameter:
    """The option `layers`."""
    return Parameter(default, values, "number of layers")


SIZES = {"hidden": hidden(), "layers": layers()}
