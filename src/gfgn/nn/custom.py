"""Custom models: any class of modules, or function that returns a module, as a `Model`.

A model is named `package.module:Attribute`, or by an entry point of the group `gfgn.models`. The arguments of its
constructor are filled by their names: the number of features, the number of classes, the dropout rate; all others are
options. Its `forward` is called as `(x, edge_index)`, `(x, edge_index, edge_weight)` or `(x, graph)`, again by name.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import inspect
import logging
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, get_args

from gfgn.nn.entry import Model, Parameter

LOGGER = logging.getLogger(__name__)

if TYPE_CHECKING:
    from torch import nn

GROUP = ".".join(("gfgn", "models"))  # of entry points; not a module
Factory: TypeAlias = "Callable[..., nn.Module]"

# Names of constructor arguments, in the order in which they are looked for.
FEATURES = (
    *("in_channels", "num_features", "in_features", "input_dim", "in_dim", "num_node_features", "input_size"),
    *("in_size", "in_feats", "n_features", "nfeat"),
)
CLASSES = (
    *("out_channels", "num_classes", "out_features", "output_dim", "out_dim", "output_size", "out_size"),
    *("out_feats", "n_classes", "num_labels", "nclass"),
)
DROPOUT = ("dropout", "dropout_rate")
INPUT_DROPOUT = ("input_dropout",)
ROLES = {"features": FEATURES, "classes": CLASSES, "dropout": DROPOUT, "input_dropout": INPUT_DROPOUT}
DEFAULT_SIZES = dict.fromkeys(("hidden_channels", "hidden_dim", "hidden_features", "hidden_size", "hidden", "nhid"), 64)
DEFAULT_SIZES |= dict.fromkeys(("num_layers", "n_layers", "layers"), 2)  # defaults of what has none
DATA_SIZES = ("num_nodes",)  # sizes of the data that a constructor may ask for
OPTION_TYPES = (bool, int, float, str)  # of options

_building = threading.RLock()  # one constructor runs at a time
_seeding: set[str] = set()  # models that have been warned about
_imported: dict[str, Factory] = {}  # by the name under which it was asked for


# --- from a name to a class or function -------------------------------------------------------------------------------


def is_import_name(name: str) -> bool:
    """Whether a name has the form `package.module:Attribute`."""
    return ":" in name


def import_factory(name: str) -> Factory:
    """Imports what `package.module:Attribute` names."""
    path, _, attribute = name.partition(":")
    if not path or not attribute:
        raise ValueError(f"model must be a name or package.module:Class, got {name!r}")
    try:
        found: Any = importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"model must be in a module that is installed or in the current folder, got {name!r}: no {error.name!r}"
        ) from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, vars(found), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"model must be an attribute of {path!r}, got {attribute!r}{hint}")
        found = getattr(found, part)
    _imported[name] = _checked(found, name)
    return _imported[name]


def imported_factory(name: str) -> Factory | None:
    """What `import_factory` has returned for a name in this process; imports nothing."""
    return _imported.get(name)


@cache
def entry_points() -> Mapping[str, importlib.metadata.EntryPoint]:
    """The entry points of installed packages that name models; read once, loaded when used."""
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


def factory_name(factory: Factory) -> str:
    """`package.module:Attribute` of a class or function; with what is fixed, for a `partial`."""
    if isinstance(factory, partial):
        fixed = [*map(repr, factory.args), *(f"{key}={value!r}" for key, value in sorted(factory.keywords.items()))]
        return f"{factory_name(factory.func)}({', '.join(fixed)})"
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}:{named.__qualname__}"


def _checked(found: Any, name: str) -> Factory:
    from torch import nn

    is_other_class = isinstance(found, type) and not issubclass(found, nn.Module)
    if isinstance(found, nn.Module) or not callable(found) or is_other_class:
        kind = "another class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ValueError(f"model must be a class of modules, or a function that returns one, got {name!r}, {kind}")
    factory: Factory = found
    return factory


# --- from a class or function to a `Model` ----------------------------------------------------------------------------


@cache
def custom_model(factory: Factory) -> Model:
    """The `Model` of a class or function, from its signature."""
    name = factory_name(_checked(factory, repr(factory)))
    if isinstance(factory, type):
        forward_arguments(factory)  # raises an error if it cannot be called
    try:
        given = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        raise ValueError(f"model must have a signature, got {name!r}, which has none that Python can read") from None
    taken = [one.name for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    filled = {role: next((each for each in names if each in taken), None) for role, names in ROLES.items()}
    parameters, needs, required = {}, [], []
    for one in given:
        if one.name not in taken or one.name in filled.values():
            continue
        if one.name in DATA_SIZES and one.default is one.empty:
            needs.append(one.name)
        elif one.default is not one.empty and not isinstance(one.default, (*OPTION_TYPES, type(None))):
            continue  # cannot be given as text, and so is left as it is
        else:
            parameters[one.name] = _option(one)
            if one.default is one.empty and one.name not in DEFAULT_SIZES:
                required.append(one.name)
    return Model(
        partial(_build, factory, name, filled),
        reference=_summary(factory),
        parameters=parameters,
        needs=tuple(needs),
        custom=True,
        takes_dropout=filled["dropout"] is not None,
        takes_input_dropout=filled["input_dropout"] is not None,
        required=tuple(required),
        accepts_kwargs=any(one.kind is one.VAR_KEYWORD for one in given),
        code=_hash_of_file(factory),
    )


def factory_of(model: Model) -> Factory:
    """The class or function that a custom model was made from."""
    factory: Factory = cast("partial[nn.Module]", model.network).args[0]
    return factory


def _option(one: inspect.Parameter) -> Parameter:
    """An option with the default of the signature; an annotation gives the type where there is none."""
    default = DEFAULT_SIZES.get(one.name) if one.default is one.empty else one.default
    values: tuple[Any, ...] = (default,)
    if default is None:
        names = {kind.__name__: kind for kind in OPTION_TYPES}
        annotations = get_args(one.annotation) or (one.annotation,)
        known = [names.get(str(getattr(each, "__name__", each))) for each in annotations]
        values += tuple(kind() for kind in known[:1] if kind is not None)
    return Parameter(default, values, "argument of the constructor")


def _build(
    factory: Factory,
    name: str,
    filled: Mapping[str, str | None],
    in_channels: int,
    out_channels: int,
    *,
    dropout: float,
    input_dropout: float | None = None,
    **options: Any,
) -> nn.Module:
    from torch import nn
    from torch.nn.parameter import is_lazy

    from gfgn.ops.surroundings import notice_seeding, unchanged_settings

    rates = {"dropout": dropout, "input_dropout": dropout if input_dropout is None else input_dropout}
    values = {"features": in_channels, "classes": out_channels, **rates}
    known = {name: values[role] for role, name in filled.items() if name is not None}
    with _building, unchanged_settings(name), notice_seeding() as seeding:
        module = factory(**known, **options)
    if seeding and name not in _seeding:  # without effect in `seeded`, where each run has the numbers of its seed
        LOGGER.warning("%s seeds PyTorch when it is built; the seed of each run is used instead", name)
        _seeding.add(name)
    if not isinstance(module, nn.Module):
        raise TypeError(f"{name} must return a torch.nn.Module, got {type(module).__name__}")
    if any(is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        raise ValueError(f"{name} must have parameters of known sizes, got lazy ones")
    forward_arguments(module)
    return module


def forward_arguments(module: nn.Module | type) -> tuple[str, ...]:
    """What `forward` is called with after `x`: `("graph",)`, `("edge_index",)` or `("edge_index", "edge_weight")`."""
    given = list(inspect.signature(module.forward).parameters.values())  # type: ignore[union-attr]
    given = given[1:] if isinstance(module, type) else given  # without `self`
    positional = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    rest = [
        one.name
        for one in given[2:]
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if any(one.kind is one.VAR_POSITIONAL for one in given[:2]):
        return ("edge_index",)
    if len(positional) < 2 or any(name != "edge_weight" for name in rest):
        kind = module.__name__ if isinstance(module, type) else type(module).__name__
        wanted = "(x, edge_index), (x, edge_index, edge_weight) or (x, graph)"
        raise ValueError(f"forward of {kind} must take {wanted}, got ({', '.join(one.name for one in given)})")
    from gfgn.graph import Graph

    second = positional[1]
    if second.name == "graph" or second.annotation in (Graph, "Graph"):
        return ("graph",)
    weighted = any(one.name == "edge_weight" for one in given[2:])
    return ("edge_index", "edge_weight") if weighted else ("edge_index",)


def _summary(factory: Factory) -> str:
    text = inspect.getdoc(factory) if not isinstance(factory, type) or "__doc__" in vars(factory) else None
    return (text or "custom model").splitlines()[0]


def _hash_of_file(factory: Factory) -> str:
    """The first 8 hexadecimal digits of the SHA-256 of the file that defines `factory`; empty if there is none."""
    while isinstance(factory, partial):
        factory = factory.func
    try:
        path = inspect.getsourcefile(factory)
        return hashlib.sha256(Path(path or "").read_bytes()).hexdigest()[:8]
    except (TypeError, OSError):
        return ""


__all__ = [
    "custom_model",
    "entry_points",
    "factory_name",
    "factory_of",
    "forward_arguments",
    "import_factory",
    "imported_factory",
    "is_import_name",
]
