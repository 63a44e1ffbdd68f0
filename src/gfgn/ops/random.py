"""PyTorch's random functions with numbers from a key, for modules that call them: `keyed` and `keyed_functions`.

The numbers of a call are hashes of the position in the tensor and of the call's key. So a replica has the same ones
alone and under `vmap`, where PyTorch's own generator cannot give each replica its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode, resolve_name

from gfgn.ops.batched_functions import call_batched, computed
from gfgn.ops.dense import dropout as hash_dropout
from gfgn.ops.keys import MASK, hash_entry, keyed, mix, next_key, rate_dtype

__all__ = ["KeyedFunctions", "NoRandomFunctions", "computed", "keyed", "keyed_functions"]

Function = Callable[..., Any]
DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}  # random bits of a number in [0, 1), as in PyTorch
ALPHA = 1.7580993408473766  # minus the limit of SELU, which alpha dropout writes

# Random functions that are not served, by name; for those that are random only with dropout see `_REFUSED_DROPOUT`.
REFUSED = {"_sample_dirichlet", "_standard_gamma", "binomial", "poisson", "random_", "rrelu_with_noise", "rrelu_"}
REFUSED |= {
    "kaiming_normal_",
    "kaiming_uniform_",
    "dropout_",
    "feature_dropout_",
    "alpha_dropout_",
    "feature_alpha_dropout_",
}


def keyed_functions(generators: bool = False) -> KeyedFunctions:
    """Inside, and inside `keyed`, PyTorch's own random functions take their numbers from the keys, too.

    This is for modules that call `F.dropout`, `torch.randn_like` and the like. Their numbers depend on the key, the
    number of the call and the position in the tensor: a replica has the same ones alone and under `vmap`. A random
    function that has no such version raises `NotImplementedError` with its name, and so does one that is given a
    generator, unless `generators`: the generator is then used.
    """
    return KeyedFunctions(generators)


class KeyedFunctions(TorchFunctionMode):
    """See `keyed_functions`."""

    def __init__(self, generators: bool = False) -> None:
        super().__init__()
        self._generators = generators

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if self._generators and kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        served = _SERVED.get(func)
        if served is None:
            name = getattr(func, "__name__", "")
            if name in REFUSED or (name in _REFUSED_DROPOUT and _REFUSED_DROPOUT[name](*args, **kwargs)):
                raise _refusal(func)
            return call_batched(func, args, kwargs)
        first = tuple(kwargs.pop(name) for name in ("input", "tensor") if name in kwargs)
        if (kwargs.pop("generator", None), kwargs.pop("out", None)) != (None, None):
            raise _refusal(func, " with a generator or out")
        return served(*computed((*first, *args)), **kwargs)


class NoRandomFunctions(TorchFunctionMode):
    """Inside, random functions raise `NotImplementedError`: a forward pass that the backward pass repeats (gradient
    checkpointing) would have other numbers the second time."""

    def __torch_function__(
        self, func: Function, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _SERVED or getattr(func, "__name__", "") in REFUSED:
            raise _refusal(func, " in the backward pass")
        return func(*args, **(kwargs or {}))


def _refusal(func: Function, how: str = "") -> NotImplementedError:
    return NotImplementedError(
        f"{resolve_name(func) or func.__name__}{how} is random and has no version with numbers from a key"
    )


# --- numbers --------------------------------------------------------------------------------------


def bits(shape: Sequence[int], key: Tensor) -> Tensor:
    """32 random bits for every position of a tensor, in int64."""
    return hash_entry(torch.arange(math.prod(shape), device=key.device).view(shape), key)


def long_bits(shape: Sequence[int], key: Tensor) -> Tensor:
    """62 random bits for every position of a tensor."""
    return bits(shape, key) << 30 | bits(shape, mix(~key)) >> 2


def uniform(like: Tensor) -> Tensor:
    """Numbers in [0, 1) of the shape, device and dtype of `like`."""
    key = next_key(like.device)
    digits = DIGITS.get(like.dtype)
    if digits is None:
        return (long_bits(like.shape, key) >> 9).to(like.dtype) * 2.0**-53
    return (bits(like.shape, key) >> (32 - digits)).to(like.dtype) * 2.0**-digits


def standard_normal(like: Tensor) -> Tensor:
    """Standard normal numbers of the shape, device and dtype of `like`, by Box and Muller's transform."""
    wide = like if like.dtype in (torch.float32, torch.float64) else like.to(torch.float32)
    return ((-2 * standard_log(wide)).sqrt() * (2 * math.pi * uniform(wide)).cos()).to(like.dtype)


def standard_log(like: Tensor) -> Tensor:
    """Logarithms of numbers in (0, 1]."""
    return torch.log(1 - uniform(like))


def standard_exponential(like: Tensor) -> Tensor:
    return -standard_log(like)


def integers(like: Tensor, low: int, high: int) -> Tensor:
    """Integers of `[low, high)` of the shape, device and dtype of `like`."""
    if high <= low:
        raise ValueError(f"high must be larger than low, {low}, got {high}")
    key, size = next_key(like.device), high - low
    if size <= 1 << 31:
        return (low + (bits(like.shape, key) * size >> 32)).to(like.dtype)
    return (low + long_bits(like.shape, key) % size).to(like.dtype)


def successes(like: Tensor, probability: float | Tensor) -> Tensor:
    """1 with the given probability, else 0, of the shape, device and dtype of `like`."""
    dtype = rate_dtype(like.device)
    if not isinstance(probability, Tensor):
        probability = torch.full((), probability, dtype=dtype, device=like.device)
    below = (probability.detach().to(like.device, dtype) * (MASK + 1)).floor().long()
    return (bits(like.shape, next_key(like.device)) < below).to(like.dtype)


# --- tensors --------------------------------------------------------------------------------------


def _new(draw: Callable[[Tensor], Tensor], make: Function = torch.empty) -> Function:
    """`torch.rand` and similar: `draw`s numbers for a tensor that `make` makes of the same arguments."""

    def function(*args: Any, **kwargs: Any) -> Tensor:
        like = make(*args, **kwargs)
        out = draw(like)
        return out.requires_grad_() if like.requires_grad and not out.requires_grad else out

    return function


def _like(draw: Callable[[Tensor], Tensor]) -> Function:
    return _new(draw, torch.empty_like)


def _randint(*args: Any, low: int = 0, high: int | None = None, size: Sequence[int] | None = None, **kw: Any) -> Tensor:
    values = list(args)
    if size is None:
        size = values.pop()
    if high is None:
        high = values.pop()
    if values:
        (low,) = values
    like = torch.empty(size, **{"dtype": torch.int64} | kw)
    return integers(like, int(low), int(high))


def _randint_like(x: Tensor, *args: Any, low: int = 0, high: int | None = None, **kw: Any) -> Tensor:
    values = list(args)
    if high is None:
        high = values.pop()
    if values:
        (low,) = values
    return integers(torch.empty_like(x, **kw), int(low), int(high))


def _randperm(n: int, **kw: Any) -> Tensor:
    like = torch.empty(n, **{"dtype": torch.int64} | kw)
    return torch.argsort(long_bits(like.shape, next_key(like.device)), stable=True).to(like.dtype)


def _normal(mean: float | Tensor, std: float | Tensor = 1.0, size: Sequence[int] | None = None, **kw: Any) -> Tensor:
    if size is not None:
        like = torch.empty(size, **kw)
    else:
        given = [x for x in (mean, std) if isinstance(x, Tensor)]
        like = torch.empty_like(given[0] if len(given) == 1 else given[0] + given[1])
    return mean + std * standard_normal(like)


def _bernoulli(x: Tensor, p: float | Tensor | None = None) -> Tensor:
    return successes(x, x if p is None else p)


def _multinomial(x: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
    if not replacement:  # the first arrivals of processes with these rates
        return (x / standard_exponential(x).clamp(min=torch.finfo(x.dtype).tiny)).topk(num_samples).indices
    total = x.cumsum(-1)
    point = uniform(x.new_empty(*x.shape[:-1], num_samples)) * total[..., -1:]
    return torch.searchsorted(total, point, right=True).clamp(max=x.size(-1) - 1)


def _fill(draw: Function) -> Function:
    """`Tensor.uniform_` and similar: overwrites a tensor with numbers."""

    def function(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x.copy_(draw(x.detach(), *args, **kwargs))

    return function


def _uniform(x: Tensor, a: float = 0.0, b: float = 1.0, **named: float) -> Tensor:
    a, b = named.get("from", a), named.get("to", b)
    return uniform(x) * (b - a) + a


def _geometric(x: Tensor, p: float) -> Tensor:
    return (standard_log(x) / math.log1p(-p)).ceil().clamp(min=1)


# --- dropout and other layers ---------------------------------------------------------------------


def _dropout(x: Tensor, p: float | Tensor = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    out = _dropped(x, p) if training else x
    return x.copy_(out) if inplace and out is not x else out


def _native_dropout(x: Tensor, p: float | Tensor, train: bool | None) -> tuple[Tensor, Tensor]:
    factor = _dropped(torch.ones_like(x), p) if train else torch.ones_like(x)
    return x * factor, factor != 0


def _dropped(x: Tensor, p: float | Tensor) -> Tensor:
    """`ops.dropout` for tensors of any number of dimensions and for a rate of 1."""
    if not isinstance(p, Tensor):
        if not 0 <= p <= 1:
            raise ValueError(f"p must be between 0 and 1, got {p!r}")
        if p == 1:
            return x * 0
    if x.numel() == 0:
        return x
    return hash_dropout(x if x.dim() > 1 else x.reshape(1, -1), p).reshape(x.shape)


def _feature_dropout(dims: int | None) -> Function:
    """Dropout of whole channels of `[N, C, …]`, or of `[C, …]` for one with `dims` dimensions."""

    def function(x: Tensor, p: float | Tensor = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        out = x * _dropped(_ones_per_channel(x, dims), p) if training else x
        return x.copy_(out) if inplace and out is not x else out

    return function


def _ones_per_channel(x: Tensor, dims: int | None) -> Tensor:
    channels = 1 if x.dim() == dims else 2
    return x.new_ones(*x.shape[:channels], *[1] * (x.dim() - channels))


def _alpha_dropout(ones: Callable[[Tensor], Tensor]) -> Function:
    """Dropout that keeps mean and variance of SELU's outputs."""

    def function(x: Tensor, p: float | Tensor = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
        if not training:
            return x
        kept = (_dropped(ones(x), p) != 0).to(x.dtype)
        scale = ((ALPHA**2 * p + 1) * (1 - p)) ** -0.5 if isinstance(p, Tensor) or p < 1 else 0.0
        out = ((x * kept + (kept - 1 + p) * ALPHA) * scale).to(x.dtype)
        return x.copy_(out) if inplace else out

    return function


def _rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    slope = _uniform(x.detach(), lower, upper) if training else (lower + upper) / 2
    out = torch.where(x < 0, x * slope, x)
    return x.copy_(out) if inplace else out


def _gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    noise = standard_exponential(logits.detach()).clamp(min=torch.finfo(logits.dtype).tiny).log()
    soft = ((logits - noise) / tau).softmax(dim)
    if not hard:
        return soft
    one_hot = torch.zeros_like(soft).scatter(dim, soft.detach().argmax(dim, keepdim=True), 1.0)
    return one_hot - soft.detach() + soft


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **options: Any,
) -> Tensor:
    """`F.scaled_dot_product_attention`; with dropout, the plain product of its equation."""
    if dropout_p == 0:
        given = {"attn_mask": attn_mask, "is_causal": is_causal, **options}
        return functional.scaled_dot_product_attention(query, key, value, **given)
    if options.get("enable_gqa"):
        raise _refusal(functional.scaled_dot_product_attention, " with dropout and enable_gqa")
    scale = options.get("scale") or query.size(-1) ** -0.5
    score = query @ key.transpose(-2, -1) * scale
    if is_causal:
        attn_mask = torch.ones(score.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        score = score.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else score + attn_mask
    return _dropped(score.softmax(-1), dropout_p) @ value


def _recurrent_dropout(*args: Any) -> bool:
    """Whether a call of `torch.lstm` and similar drops anything: `(…, num_layers, dropout, train, …)`."""
    rate, train = args[6:8] if isinstance(args[1], Tensor) and isinstance(args[3], Sequence) else args[5:7]
    return bool(train) and rate > 0


def _attention_dropout(*args: Any, training: bool = True, **kwargs: Any) -> bool:
    """Whether a call of `F.multi_head_attention_forward` drops anything."""
    rate = kwargs.get("dropout_p", args[10] if len(args) > 10 else 0.0)
    return training and rate > 0


_REFUSED_DROPOUT: dict[str, Callable[..., bool]] = dict.fromkeys(
    ("lstm", "gru", "rnn_tanh", "rnn_relu"), _recurrent_dropout
)
_REFUSED_DROPOUT["multi_head_attention_forward"] = _attention_dropout

_SERVED: dict[Function, Function] = {
    torch.rand: _new(uniform),
    torch.randn: _new(standard_normal),
    torch.randint: _randint,
    torch.randperm: _randperm,
    torch.rand_like: _like(uniform),
    torch.randn_like: _like(standard_normal),
    torch.randint_like: _randint_like,
    torch.normal: _normal,
    torch.bernoulli: _bernoulli,
    torch.multinomial: _multinomial,
    Tensor.bernoulli: _bernoulli,
    Tensor.multinomial: _multinomial,
    Tensor.bernoulli_: _fill(lambda x, p=0.5: successes(x, p)),
    Tensor.uniform_: _fill(_uniform),
    Tensor.normal_: _fill(lambda x, mean=0.0, std=1.0: mean + std * standard_normal(x)),
    Tensor.log_normal_: _fill(lambda x, mean=1.0, std=2.0: (mean + std * standard_normal(x)).exp()),
    Tensor.exponential_: _fill(lambda x, lambd=1.0: standard_exponential(x) / lambd),
    Tensor.cauchy_: _fill(lambda x, median=0.0, sigma=1.0: median + sigma * ((uniform(x) - 0.5) * math.pi).tan()),
    Tensor.geometric_: _fill(_geometric),
    torch.nn.init.uniform_: _fill(_uniform),
    torch.nn.init.normal_: _fill(lambda x, mean=0.0, std=1.0: mean + std * standard_normal(x)),
    functional.dropout: _dropout,
    functional.dropout1d: _feature_dropout(2),
    functional.dropout2d: _feature_dropout(None),
    functional.dropout3d: _feature_dropout(4),
    functional.alpha_dropout: _alpha_dropout(torch.ones_like),
    functional.feature_alpha_dropout: _alpha_dropout(lambda x: _ones_per_channel(x, None)),
    functional.rrelu: _rrelu,
    functional.gumbel_softmax: _gumbel_softmax,
    functional.scaled_dot_product_attention: _attention,
    torch.dropout: _dropout,
    torch.feature_dropout: _feature_dropout(None),
    torch.alpha_dropout: _alpha_dropout(torch.ones_like),
    torch.feature_alpha_dropout: _alpha_dropout(lambda x: _ones_per_channel(x, None)),
    torch.native_dropout: _native_dropout,
    torch.rrelu: _rrelu,
}
