"""Vectors of `LANES` columns inside kernels: memory access, arithmetic, exponential and sigmoid.

Every column goes through the same instructions, whatever its position and its neighbors, so the bits of a column depend
on that column alone. LLVM lowers the vectors to the registers of the processor.
"""

import operator
from collections import namedtuple
from math import factorial
from typing import Any

from gfgn.ops.cpu import types
from gfgn.ops.cpu.compiler import Emitter, inlined, instruction, integers, specialized, vector_operator
from gfgn.ops.cpu.types import LANES, Vector


@instruction
def read(pointer: Any, index: Any) -> Any:
    """The number at `index`."""
    return pointer.dtype(pointer, types.int64), lambda llvm, base, i: llvm.builder.load(llvm.element(base, i))


@instruction
def write(value: Any, pointer: Any, index: Any) -> Any:
    """Stores a number at `index`."""
    signature = types.void(pointer.dtype, pointer, types.int64)
    return signature, lambda llvm, value, base, i: llvm.builder.store(value, llvm.element(base, i))


@instruction
def atomic_add(pointer: Any, index: Any, value: Any) -> Any:
    """Adds to the number at `index` and returns what it was before."""
    signature = types.int64(pointer, types.int64, types.int64)
    return signature, lambda llvm, base, i, x: llvm.builder.atomic_rmw("add", llvm.element(base, i), x, "seq_cst")


@instruction
def prefetch(pointer: Any, index: Any) -> Any:
    """Requests the cache line at `index`."""
    return types.void(pointer, types.int64), lambda llvm, base, i: llvm.prefetch(llvm.element(base, i))


@instruction
def prefetch_each(pointers: Any, index: Any) -> Any:
    """Requests the cache line at `index` of several arrays: those of distant rows, which the processor does not foresee
    where the columns of many replicas are side by side."""

    def emit(llvm: Emitter, bases: Any, i: Any) -> None:
        for base in bases:
            llvm.prefetch(llvm.element(base, i))

    return types.void(pointers, types.int64), emit


@instruction
def load(pointer: Any, index: Any) -> Any:
    """The vector that starts at `index`."""
    memory = Vector(pointer.dtype)
    return memory.loaded(pointer, types.int64), lambda llvm, base, i: llvm.load(memory, llvm.element(base, i))


@instruction
def store(vector: Any, pointer: Any, index: Any) -> Any:
    """Stores a vector from `index` on."""
    memory, signature = Vector(pointer.dtype), types.void(vector, pointer, types.int64)
    return signature, lambda llvm, value, base, i: llvm.store(memory, value, llvm.element(base, i))


@instruction
def zeros(pointer: Any) -> Any:
    """A vector of zeros of the type `pointer` points to."""
    vector = Vector(pointer.dtype).loaded
    return vector(pointer), lambda llvm, _: llvm.zeros(vector)


@instruction
def load_first(pointer: Any, index: Any, count: Any) -> Any:
    """The vector that starts at `index`; lanes from `count` on are 0 and not read."""
    memory = Vector(pointer.dtype)

    def emit(llvm: Emitter, base: Any, i: Any, count: Any) -> Any:
        return llvm.load_where(memory, llvm.element(base, i), llvm.first_lanes(count))

    return memory.loaded(pointer, types.int64, types.int64), emit


@instruction
def store_first(vector: Any, pointer: Any, index: Any, count: Any) -> Any:
    """Stores the first `count` lanes from `index` on."""

    def emit(llvm: Emitter, value: Any, base: Any, i: Any, count: Any) -> Any:
        return llvm.store_where(Vector(pointer.dtype), value, llvm.element(base, i), llvm.first_lanes(count))

    return types.void(vector, pointer, types.int64, types.int64), emit


@inlined
def load_masked(pointer: Any, offset: int, count: int) -> Any:
    """The vector at `offset`; lanes from `count` on are 0 and not read."""
    return load(pointer, offset) if count >= LANES else load_first(pointer, offset, count)


@inlined
def store_masked(vector: Any, pointer: Any, offset: int, count: int) -> None:
    """Stores the first `count` lanes."""
    if count >= LANES:
        store(vector, pointer, offset)
    else:
        store_first(vector, pointer, offset, count)


@specialized
def is_bfloat16(pointer: Any) -> Any:
    """Whether a pointer is to bfloat16: known when a kernel is compiled."""
    known = pointer.dtype == types.bfloat16

    def compiled(_: Any) -> Any:
        return known

    return compiled


@instruction
def join(x: Any, y: Any) -> Any:
    """Two vectors of float32 that were loaded from bfloat16, in the bits of one."""

    def emit(llvm: Emitter, *values: Any) -> Any:
        high, low = (llvm.builder.bitcast(value, integers(32)) for value in values)
        return llvm.builder.bitcast(llvm.builder.or_(high, llvm.builder.lshr(low, llvm.numbers(32, 16))), x.llvm)

    return x(x, y), emit


@instruction
def split(joined: Any) -> Any:
    """The two vectors that `join` was given."""

    def emit(llvm: Emitter, value: Any) -> Any:
        bits, build = llvm.builder.bitcast(value, integers(32)), llvm.builder
        halves = build.and_(bits, llvm.numbers(32, 0xFFFF0000)), build.shl(bits, llvm.numbers(32, 16))
        return tuple(build.bitcast(half, joined.llvm) for half in halves)

    return types.UniTuple(joined, 2)(joined), emit


# `contract` lets a product and a sum become one fused instruction. A quotient may become an estimated reciprocal
# with a Newton step, a third of the time of a division. LLVM requires `ninf` for that, as the step turns 1/∞ into NaN;
# divisors are finite by construction (see `exp`). `nnan` is never set: NaN in is NaN out.
vector_operator(operator.add, "fadd", "contract")
vector_operator(operator.sub, "fsub", "contract")
vector_operator(operator.mul, "fmul", "contract")
vector_operator(operator.truediv, "fdiv", "arcp", "ninf")


@instruction
def multiply_add(x: Any, y: Any, z: Any) -> Any:
    """x·y + z, fused wherever the processor can; LLVM may not rearrange it, so it has the same bits in every kernel."""

    def emit(llvm: Emitter, *values: Any) -> Any:
        operands = [llvm.widen(value, kind, x) for value, kind in zip(values, (x, y, z), strict=True)]
        return llvm.multiply_add(*operands)

    return x(x, y, z), emit


def _is_within(llvm: Emitter, vector: Any, value: Any, limit: Any) -> Any:
    """The lanes with |value| ≤ limit, which NaN is not."""
    high, build = llvm.widen(limit, types.float64, vector), llvm.builder
    return build.and_(build.fcmp_ordered("<=", value, high), build.fcmp_ordered(">=", value, build.fneg(high)))


@instruction
def all_within(vector: Any, limit: Any) -> Any:
    """Whether |lane| ≤ limit in every lane."""

    def emit(llvm: Emitter, value: Any, limit: Any) -> Any:
        lanes = llvm.mask(_is_within(llvm, vector, value, limit))
        return llvm.builder.icmp_unsigned("==", lanes, llvm.number(LANES, 2**LANES - 1))

    return types.boolean(vector, types.float64), emit


@instruction
def select_within(x: Any, y: Any, limit: Any, inside: Any, outside: Any) -> Any:
    """The lane of `inside` where |x| ≤ limit and |y| ≤ limit, else that of `outside`."""

    def emit(llvm: Emitter, first: Any, second: Any, limit: Any, inside: Any, outside: Any) -> Any:
        both = [_is_within(llvm, x, value, limit) for value in (first, second)]
        return llvm.builder.select(llvm.builder.and_(*both), inside, outside)

    return x(x, x, types.float64, x, x), emit


@instruction
def clamp(vector: Any, limit: Any) -> Any:
    """The lanes limited to ±limit; NaN stays."""

    def emit(llvm: Emitter, value: Any, limit: Any) -> Any:
        high, build = llvm.widen(limit, types.float64, vector), llvm.builder
        low = build.fneg(high)
        value = build.select(build.fcmp_ordered(">", value, high), high, value)
        return build.select(build.fcmp_ordered("<", value, low), low, value)

    return vector(vector, types.float64), emit


# The constants of the exponential for a floating-point type: exp(±limit) is a normal number, and so is its reciprocal;
# exp(±product_limit)² is far from overflow; ln 2 is split in two; the series ends at `degree`.
FloatFormat = namedtuple("FloatFormat", "bits mantissa limit product_limit ln2_high ln2_low degree")
FORMATS = {
    types.float32: FloatFormat(32, 23, 86.0, 40.0, 0.693359375, -2.12194440054690583e-4, 7),
    types.float64: FloatFormat(64, 52, 708.0, 300.0, 6.93147180369123816490e-1, 1.90821492927058770002e-10, 13),
}


@instruction
def product_limit(vector: Any) -> Any:
    """Up to this size of `a` and `b`, exp(a + b) may be computed as exp(a)·exp(b)."""
    limit = FORMATS[vector.scalar].product_limit
    return types.float64(vector), lambda llvm, _: types.float64.llvm(limit)


@instruction
def power_of_two(shifted: Any) -> Any:
    """2ⁿ where the low bits of the lanes hold n: written into the exponent."""
    bits, mantissa, *_ = FORMATS[shifted.scalar]
    one = ((1 << (bits - mantissa - 2)) - 1) << mantissa

    def emit(llvm: Emitter, value: Any) -> Any:
        power = llvm.builder.shl(llvm.builder.bitcast(value, integers(bits)), llvm.numbers(bits, mantissa))
        return llvm.builder.bitcast(llvm.builder.add(power, llvm.numbers(bits, one)), value.type)

    return shifted(shifted), emit


@specialized
def exp(x: Any) -> Any:
    """exp of every lane clamped to ±`limit`: never 0, never infinite."""
    _, mantissa, limit, _, ln2_high, ln2_low, degree = FORMATS[x.scalar]
    to_integer = 1.5 * 2.0**mantissa  # adding it rounds to an integer and leaves that in the low bits
    inverse_ln2 = 1.4426950408889634
    first = 1.0 / factorial(degree)
    series = tuple(1.0 / factorial(k) for k in range(degree - 1, -1, -1))

    def compiled(x: Any) -> Any:
        x = clamp(x, limit)
        shifted = x * inverse_ln2 + to_integer
        n = shifted - to_integer
        r = (x - n * ln2_high) - n * ln2_low
        y = r * first + series[0]
        for k in range(1, degree):
            y = y * r + series[k]
        return y * power_of_two(shifted)

    return compiled


@specialized
def exp_minus_one(x: Any) -> Any:
    """exp(x) − 1 of every lane, precise near 0; x is clamped as for `exp`."""
    _, mantissa, limit, _, ln2_high, ln2_low, degree = FORMATS[x.scalar]
    to_integer = 1.5 * 2.0**mantissa
    inverse_ln2 = 1.4426950408889634
    first = 1.0 / factorial(degree)
    series = tuple(1.0 / factorial(k) for k in range(degree - 1, 0, -1))

    def compiled(x: Any) -> Any:
        x = clamp(x, limit)
        shifted = x * inverse_ln2 + to_integer
        n = shifted - to_integer
        r = (x - n * ln2_high) - n * ln2_low
        y = r * first
        for k in range(degree - 1):
            y = (y + series[k]) * r
        power = power_of_two(shifted)
        return y * power + (power - 1.0)

    return compiled


@inlined
def sigmoid(x: Any) -> Any:
    return 1.0 / (exp(x * -1.0) + 1.0)


@inlined
def tanh(x: Any) -> Any:
    e = exp_minus_one(x * -2.0)
    return e * -1.0 / (e + 2.0)


@instruction
def where_positive(x: Any, y: Any, z: Any) -> Any:
    """The lane of `y` where that of `x` is above 0, else that of `z`."""

    def emit(llvm: Emitter, test: Any, first: Any, second: Any) -> Any:
        return llvm.builder.select(llvm.builder.fcmp_ordered(">", test, llvm.zeros(x)), first, second)

    return x(x, x, x), emit


@inlined
def elu(x: Any) -> Any:
    return where_positive(x, x, exp_minus_one(x))


@specialized
def softplus(x: Any) -> Any:
    """log(1 + exp(x)) of every lane as max(x, 0) + log(1 + e) with e = exp(−|x|) and
    log(1 + e) = 2 (s + s³/3 + s⁵/5 + …), s = e / (2 + e) ≤ 1/3."""
    degree = {32: 8, 64: 17}[x.scalar.bitwidth]
    series = tuple(2.0 / (2 * k + 1) for k in range(degree, -1, -1))

    def compiled(x: Any) -> Any:
        e = exp(where_positive(x, x * -1.0, x))
        s = e / (e + 2.0)
        square = s * s
        total = square * 0.0 + series[0]
        for k in range(1, degree + 1):
            total = total * square + series[k]
        return where_positive(x, x, e * 0.0) + total * s

    return compiled
