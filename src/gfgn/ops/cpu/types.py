"""The types of values inside kernels. Calling a type gives the signature of a function that returns it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

LANES = 16
"""Columns in a vector: one AVX-512 register of float32, two of float64, four or eight of NEON."""


class Signature(NamedTuple):
    """The types of a function's result and arguments."""

    result: Type
    arguments: tuple[Type, ...]


class Type:
    """A type; `llvm` is its counterpart in LLVM."""

    llvm: Any = None

    def __call__(self, *arguments: Type) -> Signature:
        return Signature(self, arguments)


@dataclass(frozen=True)
class Scalar(Type):
    """A number or a boolean; `kind` as in NumPy: `"f"`, `"i"`, `"u"` or `"b"`; bfloat16, in memory only, is `"V"`."""

    kind: str
    bitwidth: int

    @property
    def llvm(self) -> Any:
        if self.kind == "f":
            return ir.FloatType() if self.bitwidth == 32 else ir.DoubleType()
        return ir.IntType(self.bitwidth)


@dataclass(frozen=True)
class Pointer(Type):
    """The address of the first of many numbers."""

    dtype: Scalar

    @property
    def llvm(self) -> Any:
        return self.dtype.llvm.as_pointer()


@dataclass(frozen=True)
class Vector(Type):
    """`LANES` numbers of one type."""

    scalar: Scalar

    @property
    def llvm(self) -> Any:
        return ir.VectorType(self.scalar.llvm, LANES)

    @property
    def loaded(self) -> Vector:
        """The vector in registers: float32 where it is bfloat16 in memory."""
        return Vector(float32) if self.scalar == bfloat16 else self


@dataclass(frozen=True)
class Tuple(Type):
    """Several values; inside kernels, a Python tuple of them."""

    items: tuple[Type, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Type:
        return self.items[index]

    @property
    def dtype(self) -> Type:
        """The type of the items, where all have the same."""
        return self.items[0]


void = Type()
boolean = Scalar("b", 1)
uint8, uint32, uint64 = (Scalar("u", bits) for bits in (8, 32, 64))
int32, int64 = (Scalar("i", bits) for bits in (32, 64))
float32, float64 = (Scalar("f", bits) for bits in (32, 64))
bfloat16 = Scalar("V", 16)


def UniTuple(item: Type, size: int) -> Tuple:
    """The type of a tuple whose items have one type."""
    return Tuple((item,) * size)


def unify(x: Type, y: Type) -> Type:
    """The type of a value that may have either type: that of NumPy's scalars, where integers have at least 64 bits."""
    if x == y or not (isinstance(x, Scalar) and isinstance(y, Scalar)):
        if x != y:
            raise TypeError(f"one value cannot be both {x} and {y}")
        return x
    return arithmetic(x, y)


def arithmetic(x: Scalar, y: Scalar) -> Scalar:
    """The type in which two numbers are added, multiplied or compared."""
    if "f" in (x.kind, y.kind):
        return float32 if x == y == float32 else float64
    return uint64 if x.kind == y.kind == "u" else int64
