"""Compiles kernels, which are written in a small part of Python, to LLVM code.

A kernel is a function of two records, `NamedTuple`s of arrays and numbers. It may call functions that are `inlined`,
and `instruction`s, which write LLVM code themselves. All of them become one LLVM function: records, tuples, and
functions as arguments exist only while it is written, which takes milliseconds where Numba's type inference takes
seconds. The types are those of Numba: operations on integers have 64 bits, and a float32 with an integer becomes a
float64.

Supported are assignments, `if`, `for … in range(…)` with a positive step, `while`, `break`, `continue`, `return`,
arithmetic, comparisons, `and`, `or`, `not`, conditional expressions, tuples, records, and calls of `min`, `max`, `len`,
`math.sqrt` and NumPy's integer types. A variable keeps the type of its first value.
"""

from __future__ import annotations

import ast
import builtins
import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from llvmlite import ir

from gfgn.ops.cpu import types
from gfgn.ops.cpu.types import LANES, Scalar, Type, Vector, arithmetic, unify

F = TypeVar("F", bound=Callable[..., Any])


class KernelError(TypeError):
    """Something in a kernel that cannot be compiled."""


class Value(NamedTuple):
    """A value that is known when the kernel runs."""

    type: Type
    llvm: Any


class Inlined(NamedTuple):
    """A function that only kernels call; its code is inserted into theirs."""

    function: Any  # as a method of this class, mypy would say, were it a `FunctionType`
    flags: tuple[str, ...] = ()


class Instruction(NamedTuple):
    """A function for kernels that writes LLVM code."""

    typing: Callable[..., tuple[types.Signature, Callable[..., Any]]]


class Specialized(NamedTuple):
    """A function for kernels whose Python code depends on the types of its arguments."""

    typed: Callable[..., FunctionType]


class External(NamedTuple):
    """A function of the C library without arguments."""

    name: str


def inlined(function: F, *, fastmath: Iterable[str] = ()) -> F:
    """Defines a function that only kernels call; it is inlined into them, and cannot be called from Python."""
    return cast(F, Inlined(cast(FunctionType, function), tuple(fastmath)))


def instruction(typing: Callable[..., Any]) -> Callable[..., Any]:
    """Defines a function for kernels by its LLVM code.

    Args:
        typing: Maps the argument types to a signature and `emit(llvm, *values)`, which writes the code with an
            `Emitter` and returns the result.
    """
    return cast(Callable[..., Any], Instruction(typing))


def specialized(typed: Callable[..., Any]) -> Callable[..., Any]:
    """Defines a function for kernels by `typed`, which maps the argument types to the Python code for them."""
    return cast(Callable[..., Any], Specialized(typed))


@inlined
def as_pointers(record: Any) -> Any:
    """A record of arrays as a record of pointers, which it already is."""
    return record


# --- LLVM code --------------------------------------------------------------------------------------------------------


def integers(bits: int) -> Any:
    """The LLVM type of a vector of integers."""
    return ir.VectorType(ir.IntType(bits), LANES)


class Emitter:
    """Writes the LLVM code of one call of an instruction."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def zeros(self, vector: Any) -> Any:
        return ir.Constant(vector.llvm, None)

    def number(self, bits: int, value: int) -> Any:
        """An integer constant."""
        return ir.Constant(ir.IntType(bits), value)

    def numbers(self, bits: int, values: int | list[int]) -> Any:
        """A vector of integer constants, all the same if given one."""
        return ir.Constant(integers(bits), values if isinstance(values, list) else [values] * LANES)

    def shuffle(self, vector: Any, lanes: list[int]) -> Any:
        """The vector whose lane `k` is lane `lanes[k]` of `vector`."""
        return self.builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), self.numbers(32, lanes))

    def splat(self, value: Any) -> Any:
        """The vector whose lanes all hold `value`."""
        if isinstance(value, ir.Constant):
            return ir.Constant(ir.VectorType(value.type, LANES), [value] * LANES)
        empty = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
        return self.shuffle(self.builder.insert_element(empty, value, self.number(32, 0)), [0] * LANES)

    def widen(self, value: Any, kind: Any, vector: Any) -> Any:
        """A value of type `kind` as it is if it is a vector, else its cast to the lanes' type in every lane."""
        return value if isinstance(kind, Vector) else self.splat(self.cast(value, kind, vector.scalar))

    def cast(self, value: Any, kind: Any, target: Any) -> Any:
        """A value of type `kind` as one of type `target`."""
        if kind == target:
            return value
        if not (isinstance(kind, Scalar) and isinstance(target, Scalar)):
            raise TypeError(f"{kind} cannot become {target}")
        if isinstance(value, ir.Constant):
            number = {"f": float, "b": bool}.get(target.kind, int)(value.constant)
            return ir.Constant(target.llvm, number)
        return getattr(self.builder, _conversion(kind, target))(value, target.llvm)

    def multiply_add(self, x: Any, y: Any, z: Any) -> Any:
        """x·y + z of numbers or vectors, fused wherever the processor can; LLVM may not rearrange it."""
        kind, lanes = x.type, ""
        if isinstance(kind, ir.VectorType):
            kind, lanes = kind.element, f"v{LANES}"
        bits = 32 if isinstance(kind, ir.FloatType) else 64
        return self.call(f"llvm.fmuladd.{lanes}f{bits}", x.type, x, y, z)

    def mask(self, lanes: Any, bits: int = LANES) -> Any:
        """A vector of booleans as the low bits of an integer of `bits` bits."""
        return self.builder.zext(self.builder.bitcast(lanes, ir.IntType(LANES)), ir.IntType(bits))

    def element(self, pointer: Any, index: Any, offset: int = 0) -> Any:
        """The address of element `index + offset`."""
        if offset:
            index = self.builder.add(index, ir.Constant(index.type, offset))
        return self.builder.gep(pointer, [index])

    def from_memory(self, vector: Any, value: Any) -> Any:
        """What was loaded as `vector`, as the vector in registers."""
        if vector.scalar != types.bfloat16:
            return value
        bits = self.builder.shl(self.builder.zext(value, integers(32)), self.numbers(32, 16))
        return self.builder.bitcast(bits, vector.loaded.llvm)

    def to_memory(self, vector: Any, value: Any) -> Any:
        """A vector in registers as it is stored as `vector`: rounded to the nearest bfloat16, or to the even of two."""
        if vector.scalar != types.bfloat16:
            return value
        build = self.builder
        bits, half = build.bitcast(value, integers(32)), self.numbers(32, 16)
        odd = build.and_(build.lshr(bits, half), self.numbers(32, 1))
        rounded = build.add(bits, build.add(odd, self.numbers(32, 0x7FFF)))
        nan = build.or_(bits, self.numbers(32, 0x400000))  # else one with low bits only would become ∞
        bits = build.select(build.fcmp_unordered("uno", value, value), nan, rounded)
        return build.trunc(build.lshr(bits, half), integers(16))

    def load(self, vector: Any, address: Any) -> Any:
        lanes = vector.llvm.as_pointer()
        value = self.builder.load(self.builder.bitcast(address, lanes), align=vector.scalar.bitwidth // 8)
        return self.from_memory(vector, value)

    def store(self, vector: Any, value: Any, address: Any) -> Any:
        address = self.builder.bitcast(address, vector.llvm.as_pointer())
        return self.builder.store(self.to_memory(vector, value), address, align=vector.scalar.bitwidth // 8)

    def first_lanes(self, count: Any) -> Any:
        """The mask of the first `count` lanes."""
        return self.builder.icmp_signed("<", self.numbers(64, list(range(LANES))), self.splat(count))

    def load_where(self, vector: Any, address: Any, mask: Any) -> Any:
        """The vector at an address; lanes that are not in the mask are 0 and not read."""
        address = self.builder.bitcast(address, vector.llvm.as_pointer())
        align = self.number(32, vector.scalar.bitwidth // 8)
        name = f"llvm.masked.load.{_suffix(vector)}.p0"
        value = self.call(name, vector.llvm, address, align, mask, self.zeros(vector))
        return self.from_memory(vector, value)

    def store_where(self, vector: Any, value: Any, address: Any, mask: Any) -> Any:
        value = self.to_memory(vector, value)
        address = self.builder.bitcast(address, value.type.as_pointer())
        align = self.number(32, vector.scalar.bitwidth // 8)
        return self.call(f"llvm.masked.store.{_suffix(vector)}.p0", ir.VoidType(), value, address, align, mask)

    def prefetch(self, address: Any) -> Any:
        address = self.builder.bitcast(address, ir.IntType(8).as_pointer())
        read, keep, data = (self.number(32, flag) for flag in (0, 3, 1))
        return self.call("llvm.prefetch.p0", ir.VoidType(), address, read, keep, data)

    def call(self, name: str, result: Any, *arguments: Any) -> Any:
        """Calls an LLVM intrinsic or a function of the C library."""
        module = self.builder.module
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, arguments)


def _suffix(vector: Vector) -> str:
    """How the names of LLVM intrinsics end for a vector."""
    return f"v{LANES}{'f' if vector.scalar.kind == 'f' else 'i'}{vector.scalar.bitwidth}"


def _conversion(kind: Scalar, target: Scalar) -> str:
    """The LLVM instruction that converts a number."""
    if kind.kind == "f":
        if target.kind == "f":
            return "fpext" if target.bitwidth > kind.bitwidth else "fptrunc"
        return "fptoui" if target.kind == "u" else "fptosi"
    if target.kind == "f":
        return "sitofp" if kind.kind == "i" else "uitofp"
    if target.bitwidth == kind.bitwidth:
        return "bitcast"
    if target.bitwidth < kind.bitwidth:
        return "trunc"
    return "sext" if kind.kind == "i" else "zext"


VECTOR_OPERATORS: dict[Callable[..., Any], tuple[str, tuple[str, ...]]] = {}


def vector_operator(operation: Callable[..., Any], name: str, *flags: str) -> None:
    """Gives vectors, and a vector with a number, the Python operator `operation` by the LLVM instruction `name`."""
    VECTOR_OPERATORS[operation] = name, flags


OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
FLOAT_INSTRUCTIONS = {operator.add: "fadd", operator.sub: "fsub", operator.mul: "fmul", operator.truediv: "fdiv"}
INTEGER_INSTRUCTIONS = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.and_: "and_",
    operator.or_: "or_",
    operator.xor: "xor",
    operator.lshift: "shl",
}
COMPARISONS = {
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
NUMPY_TYPES = {getattr(np, f"{name}"): getattr(types, name) for name in ("uint8", "uint32", "int32", "int64")}


# --- Python code ------------------------------------------------------------------------------------------------------


@functools.cache
def _definitions(file: str) -> dict[int, ast.FunctionDef]:
    """The functions of a file by the line in which their definition, or their first decorator, begins."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {min([node.lineno, *(each.lineno for each in node.decorator_list)]): node for node in found}


class Source(NamedTuple):
    """A function's syntax tree, and how often each of its names is assigned."""

    node: ast.FunctionDef
    assigned: dict[str, int]


@functools.cache
def _source(code: Any) -> Source:
    node = _definitions(code.co_filename)[code.co_firstlineno]
    assigned = {argument.arg: 1 for argument in node.args.args}
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            assigned[each.id] = assigned.get(each.id, 0) + 1
    return Source(node, assigned)


def rebuild(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of nested tuples and records with `leaf` applied to what is in them."""
    if not isinstance(value, tuple) or isinstance(value, Value | Inlined | Instruction | Specialized | External):
        return leaf(value)
    items = [rebuild(item, leaf) for item in value]
    return type(value)._make(items) if hasattr(value, "_make") else tuple(items)


def type_of(value: Any) -> Type:
    """The type of a value, or of a constant."""
    match value:
        case Value():
            return value.type
        case bool():
            return types.boolean
        case int():
            return types.int64
        case float():
            return types.float64
        case tuple():
            return types.Tuple(tuple(map(type_of, value)))
    raise KernelError(f"{value!r} is no value of a kernel")


class Slot(NamedTuple):
    """The memory of a variable that is assigned more than once; LLVM turns it into registers."""

    type: Type
    address: Any


class Variable(NamedTuple):
    """The slots of a variable: one, or a tuple or record of them."""

    slots: Any


class Loop(NamedTuple):
    """Where `continue` and `break` go."""

    next: Any
    end: Any


class Frame:
    """The variables of one call of a function."""

    def __init__(self, function: FunctionType, flags: tuple[str, ...], arguments: Sequence[Any]) -> None:
        self.source = _source(function.__code__)
        self.flags = flags
        self.globals = function.__globals__
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.closure = {name: cell.cell_contents for name, cell in cells}
        self.names: dict[str, Any] = {}
        self.loops: list[Loop] = []
        self.result: Any = None
        self.exit: Any = None
        parameters = [argument.arg for argument in self.source.node.args.args]
        if len(parameters) != len(arguments):
            raise KernelError(f"{function.__name__} must get {', '.join(parameters)}, got {len(arguments)} arguments")
        self.arguments = dict(zip(parameters, arguments, strict=True))

    def find(self, name: str) -> Any:
        for scope in (self.names, self.closure, self.globals, vars(builtins)):
            if name in scope:
                return scope[name]
        raise KernelError(f"{name} must be assigned before it is used, in this block or around it")


class Compiler:
    """Writes one LLVM function."""

    def __init__(self, function: Any) -> None:
        self.entry = ir.IRBuilder(function.append_basic_block("entry"))
        self.builder = ir.IRBuilder(function.append_basic_block("body"))
        self.llvm = Emitter(self.builder)
        self.frame: Any = None
        self.products: dict[Any, tuple[Any, Any]] = {}  # the factors of those that may become part of a sum

    def finish(self) -> None:
        """Ends the function."""
        self.builder.ret_void()
        self.entry.branch(self.entry.function.basic_blocks[1])

    # --- functions ---

    def inline(self, function: FunctionType, arguments: Sequence[Any], flags: tuple[str, ...] = ()) -> Any:
        """Writes the code of a function and returns its result."""
        outer, self.frame = self.frame, Frame(function, flags, arguments)
        frame, body = self.frame, self.frame.source.node.body
        for name, value in frame.arguments.items():
            self.bind(name, value)
        last = body[-1] if isinstance(body[-1], ast.Return) else None
        returns = [node for node in ast.walk(frame.source.node) if isinstance(node, ast.Return)]
        try:
            if returns == ([last] if last else []):
                self.statements(body[:-1] if last else body)
                return None if last is None or last.value is None else self.value(last.value)
            frame.exit = self.builder.append_basic_block()
            self.statements(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(frame.exit)
            self.builder.position_at_end(frame.exit)
            return None if frame.result is None else self.read(frame.result)
        finally:
            self.frame = outer

    def block(self, statements: Sequence[ast.stmt]) -> None:
        """Writes the statements of a branch or loop; names that are assigned once, in it, are not known outside."""
        known = self.frame.names.copy()
        self.statements(statements)
        slots = {name: value for name, value in self.frame.names.items() if isinstance(value, Variable)}
        self.frame.names = known | slots

    def statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.builder.block.is_terminated:
                break
            try:
                getattr(self, f"on_{type(statement).__name__}", self.unsupported)(statement)
            except KernelError:
                raise
            except (TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
                file = self.frame.globals.get("__file__", "?")
                raise KernelError(f"{file}, line {statement.lineno}: {type(error).__name__}: {error}") from error

    def unsupported(self, node: ast.AST) -> Any:
        where = f"{self.frame.globals.get('__file__', '?')}, line {getattr(node, 'lineno', '?')}"
        raise KernelError(f"{where}: kernels have no {type(node).__name__}")

    # --- variables ---

    def bind(self, name: str, value: Any) -> None:
        """Assigns a variable."""
        if self.frame.source.assigned.get(name, 1) == 1:
            self.frame.names[name] = value
        elif isinstance(known := self.frame.names.get(name), Variable):
            self.write(known, value, name)
        else:
            self.frame.names[name] = self.new_variable(value)

    def new_variable(self, value: Any) -> Variable:
        def slot(value: Any) -> Any:
            value = self.constant(value)
            return Slot(value.type, self.entry.alloca(value.type.llvm)) if isinstance(value, Value) else value

        variable = Variable(rebuild(value, slot))
        self.write(variable, value)
        return variable

    def write(self, variable: Variable, value: Any, name: str = "") -> None:
        """Stores a value in the slots of a variable."""

        def store(slot: Any, value: Any) -> None:
            if isinstance(slot, Slot):
                value = self.constant(value)
                if unify(slot.type, value.type) != slot.type:
                    raise KernelError(f"{name or 'the result'} must keep its type {slot.type}, got {value.type}")
                self.builder.store(self.cast(value, slot.type).llvm, slot.address)
            elif isinstance(slot, tuple):
                for part, item in zip(slot, value, strict=True):
                    store(part, item)

        store(variable.slots, value)

    def read(self, variable: Variable) -> Any:
        def load(slot: Any) -> Any:
            return Value(slot.type, self.builder.load(slot.address))

        def walk(slots: Any) -> Any:
            if isinstance(slots, Slot):
                return load(slots)
            if isinstance(slots, tuple):
                items = [walk(item) for item in slots]
                return type(slots)._make(items) if hasattr(slots, "_make") else tuple(items)
            return slots

        return walk(variable.slots)

    def constant(self, value: Any) -> Any:
        """A number of Python as a value; anything else as it is."""
        if isinstance(value, bool | int | float):
            kind = type_of(value)
            return Value(kind, ir.Constant(kind.llvm, value))
        return value

    def cast(self, value: Any, target: Type) -> Value:
        value = self.constant(value)
        return Value(target, self.llvm.cast(value.llvm, value.type, target))

    def condition(self, value: Any) -> Any:
        """A boolean of LLVM, or of Python where it is known now."""
        if not isinstance(value, Value):
            return bool(value)
        return value.llvm if value.type == types.boolean else self.binary(operator.ne, value, 0).llvm

    def bit(self, value: Any) -> Any:
        """A boolean of LLVM."""
        test = self.condition(value)
        return ir.Constant(ir.IntType(1), test) if isinstance(test, bool) else test

    # --- statements ---

    def on_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def on_Pass(self, node: ast.Pass) -> None:
        """Nothing to do."""

    def on_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.assign(target, value)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, ast.Tuple):
            for part, item in zip(target.elts, value, strict=True):
                self.assign(part, item)
        else:
            self.unsupported(target)

    def on_AugAssign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.unsupported(node)
            return
        before = self.value(ast.Name(node.target.id, ast.Load()))
        self.bind(node.target.id, self.binary(OPERATORS[type(node.op)], before, self.value(node.value)))

    def on_If(self, node: ast.If) -> None:
        test = self.condition(self.value(node.test))
        if isinstance(test, bool):
            self.block(node.body if test else node.orelse)
            return
        then, otherwise, end = (self.builder.append_basic_block() for _ in range(3))
        self.builder.cbranch(test, then, otherwise)
        reached = False
        for start, statements in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(start)
            self.block(statements)
            if not self.builder.block.is_terminated:
                self.builder.branch(end)
                reached = True
        self.builder.position_at_end(end)
        if not reached:
            self.builder.unreachable()

    def on_While(self, node: ast.While) -> None:
        start, body, end = (self.builder.append_basic_block() for _ in range(3))
        self.builder.branch(start)
        self.builder.position_at_end(start)
        self.builder.cbranch(self.bit(self.value(node.test)), body, end)
        self.loop(node.body, body, start, end)
        self.builder.position_at_end(end)

    def on_For(self, node: ast.For) -> None:
        if not (isinstance(node.iter, ast.Call) and self.value(node.iter.func) is range):
            self.unsupported(node)
            return
        bounds = [self.value(argument) for argument in node.iter.args]
        low, high, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        low, high, step = (self.cast(each, types.int64) for each in (low, high, step))
        counter = Slot(types.int64, self.entry.alloca(ir.IntType(64)))
        start, body, following, end = (self.builder.append_basic_block() for _ in range(4))
        self.builder.store(low.llvm, counter.address)
        self.builder.branch(start)
        self.builder.position_at_end(start)
        now = self.builder.load(counter.address)
        self.builder.cbranch(self.builder.icmp_signed("<", now, high.llvm), body, end)
        self.builder.position_at_end(body)
        self.assign(node.target, Value(types.int64, now))
        self.loop(node.body, body, following, end)
        self.builder.position_at_end(following)
        self.builder.store(self.builder.add(now, step.llvm, flags=("nsw",)), counter.address)
        self.builder.branch(start)
        self.builder.position_at_end(end)

    def loop(self, statements: Sequence[ast.stmt], body: Any, following: Any, end: Any) -> None:
        self.builder.position_at_end(body)
        self.frame.loops.append(Loop(following, end))
        self.block(statements)
        self.frame.loops.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(following)

    def on_Break(self, node: ast.Break) -> None:
        self.builder.branch(self.frame.loops[-1].end)

    def on_Continue(self, node: ast.Continue) -> None:
        self.builder.branch(self.frame.loops[-1].next)

    def on_Return(self, node: ast.Return) -> None:
        if node.value is not None:
            value = self.value(node.value)
            if self.frame.result is None:
                self.frame.result = self.new_variable(value)
            else:
                self.write(self.frame.result, value)
        self.builder.branch(self.frame.exit)

    # --- expressions ---

    def value(self, node: ast.expr) -> Any:
        """The value of an expression: a `Value`, a constant, a function, or a tuple or record of them."""
        return getattr(self, f"of_{type(node).__name__}", self.unsupported)(node)

    def of_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def of_Name(self, node: ast.Name) -> Any:
        value = self.frame.find(node.id)
        return self.read(value) if isinstance(value, Variable) else value

    def of_Attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.value(node.value), node.attr)

    def of_Tuple(self, node: ast.Tuple) -> Any:
        return tuple(map(self.value, node.elts))

    def of_Subscript(self, node: ast.Subscript) -> Any:
        items, index = self.value(node.value), self.value(node.slice)
        if isinstance(index, int):
            return items[index]
        constants = [self.cast(item, types.float64).llvm for item in items]
        table = ir.Constant(ir.ArrayType(ir.DoubleType(), len(constants)), constants)
        address = ir.GlobalVariable(self.builder.module, table.type, self.builder.module.get_unique_name("table"))
        address.global_constant, address.initializer, address.linkage = True, table, "internal"
        chosen = self.builder.gep(address, [self.llvm.number(64, 0), self.cast(index, types.int64).llvm])
        return Value(types.float64, self.builder.load(chosen))

    def of_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(OPERATORS[type(node.op)], self.value(node.left), self.value(node.right))

    def of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operation, value = OPERATORS[type(node.op)], self.value(node.operand)
        if not isinstance(value, Value):
            return operation(value)
        if operation is operator.not_:
            return Value(types.boolean, self.builder.not_(self.condition(value)))
        if operation is operator.invert:
            return self.binary(operator.xor, value, -1)
        if isinstance(value.type, Scalar) and value.type.kind == "f":
            return Value(value.type, self.builder.fneg(value.llvm))
        return self.binary(operator.sub, 0, value)

    def of_Compare(self, node: ast.Compare) -> Any:
        operands = [self.value(each) for each in (node.left, *node.comparators)]
        results = [
            self.binary(OPERATORS[type(each)], x, y)
            for each, x, y in zip(node.ops, operands, operands[1:], strict=False)
        ]
        result = results[0]
        for other in results[1:]:
            result = Value(types.boolean, self.builder.and_(self.bit(result), self.bit(other)))
        return result

    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        """`and` and `or` of booleans; what comes after the first that decides is not evaluated."""
        decides = isinstance(node.op, ast.Or)
        end, known = self.builder.append_basic_block(), []
        for each in node.values:
            test = self.bit(self.value(each))
            known.append((test, self.builder.block))
            if each is node.values[-1]:
                self.builder.branch(end)
                break
            following = self.builder.append_basic_block()
            self.builder.cbranch(test, *((end, following) if decides else (following, end)))
            self.builder.position_at_end(following)
        self.builder.position_at_end(end)
        result = self.builder.phi(ir.IntType(1))
        for test, block in known:
            result.add_incoming(test, block)
        return Value(types.boolean, result)

    def of_IfExp(self, node: ast.IfExp) -> Any:
        test = self.condition(self.value(node.test))
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        then, otherwise, end = (self.builder.append_basic_block() for _ in range(3))
        self.builder.cbranch(test, then, otherwise)
        found = []
        for start, expression in ((then, node.body), (otherwise, node.orelse)):
            self.builder.position_at_end(start)
            found.append((self.constant(self.value(expression)), self.builder.block))
        kind = unify(found[0][0].type, found[1][0].type)
        incoming = []
        for value, block in found:
            self.builder.position_at_end(block)
            incoming.append((self.cast(value, kind).llvm, block))
            self.builder.branch(end)
        self.builder.position_at_end(end)
        result = self.builder.phi(kind.llvm)
        for value, block in incoming:
            result.add_incoming(value, block)
        return Value(kind, result)

    def of_Call(self, node: ast.Call) -> Any:
        if node.keywords:
            self.unsupported(node.keywords[0])
        function, arguments = self.value(node.func), [self.value(argument) for argument in node.args]
        match function:
            case Inlined():
                return self.inline(function.function, arguments, function.flags)
            case Instruction():
                return self.emit(function, arguments)
            case Specialized():
                typed: Callable[..., Any] = function.typed
                return self.inline(typed(*map(type_of, arguments)), arguments)
            case External():
                return self.llvm.call(function.name, ir.IntType(32))
        if function is min or function is max:
            return self.choose(function, arguments)
        if function is len:
            return len(arguments[0])
        if function is math.sqrt:
            x = self.constant(arguments[0])
            kind = x.type if x.type.kind == "f" else types.float64
            name = f"llvm.sqrt.f{kind.bitwidth}"
            return Value(kind, self.llvm.call(name, kind.llvm, self.cast(x, kind).llvm))
        if function in NUMPY_TYPES:
            return self.cast(arguments[0], NUMPY_TYPES[function])
        if isinstance(function, type) and hasattr(function, "_make"):
            return function._make(map(self.constant, arguments))
        raise KernelError(f"kernels cannot call {ast.unparse(node.func)}, line {node.lineno}")

    def emit(self, function: Instruction, arguments: Sequence[Any]) -> Any:
        """Writes the code of an instruction."""
        signature, emit = function.typing(*map(type_of, arguments))
        values = [
            rebuild(argument, lambda item: self.constant(item).llvm)
            if isinstance(kind, types.Tuple)
            else self.cast(argument, kind).llvm
            for argument, kind in zip(arguments, signature.arguments, strict=True)
        ]
        result = emit(self.llvm, *values)
        if isinstance(signature.result, types.Tuple):
            return tuple(Value(kind, item) for kind, item in zip(signature.result.items, result, strict=True))
        return None if signature.result is types.void else Value(signature.result, result)

    def choose(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """The smallest or largest of numbers."""
        if not any(isinstance(each, Value) for each in arguments):
            return function(arguments)
        best, *others = arguments
        for other in others:
            kind = unify(type_of(best), type_of(other))
            x, y = self.cast(best, kind), self.cast(other, kind)
            better = self.binary(operator.lt if function is min else operator.gt, y, x)
            best = Value(kind, self.builder.select(better.llvm, y.llvm, x.llvm))
        return best

    def binary(self, operation: Callable[..., Any], x: Any, y: Any) -> Any:
        """An operation on two values."""
        if not isinstance(x, Value) and not isinstance(y, Value):
            return operation(x, y)
        x, y = self.constant(x), self.constant(y)
        vector = next((each.type for each in (x, y) if isinstance(each.type, Vector)), None)
        if vector is not None:
            name, flags = VECTOR_OPERATORS[operation]
            a, b = (self.llvm.widen(each.llvm, each.type, vector) for each in (x, y))
            return Value(vector, self.floating(name, a, b, flags))
        kind = arithmetic(x.type, y.type)
        if operation in COMPARISONS and x.type == y.type:
            kind = x.type
        if operation is operator.truediv and kind.kind != "f":
            kind = types.float64
        a, b = self.cast(x, kind).llvm, self.cast(y, kind).llvm
        if operation in COMPARISONS:
            return Value(types.boolean, self.compare(COMPARISONS[operation], kind, a, b))
        if kind.kind == "f":
            return Value(kind, self.floating(FLOAT_INSTRUCTIONS[operation], a, b, self.frame.flags))
        if operation is operator.rshift:
            return Value(kind, (self.builder.lshr if kind.kind == "u" else self.builder.ashr)(a, b))
        if operation in (operator.floordiv, operator.mod):
            return Value(kind, self.divide(operation, kind, a, b))
        return Value(kind, getattr(self.builder, INTEGER_INSTRUCTIONS[operation])(a, b))

    def floating(self, name: str, a: Any, b: Any, flags: tuple[str, ...]) -> Any:
        """An operation on floating-point numbers; with `contract`, a product and a sum are one fused instruction.

        LLVM would fuse them within a block of its code only, which may be copied: the bits of a column would depend on
        whether its vector is full. So it is decided here.
        """
        if "contract" not in flags:
            return getattr(self.builder, name)(a, b, flags=flags)
        if name != "fmul" and a in self.products:
            x, y = self.products[a]
            return self.llvm.multiply_add(x, y, b if name == "fadd" else self.builder.fneg(b))
        if name != "fmul" and b in self.products:
            x, y = self.products[b]
            return self.llvm.multiply_add(x if name == "fadd" else self.builder.fneg(x), y, a)
        result = getattr(self.builder, name)(a, b)
        if name == "fmul":
            self.products[result] = a, b
        return result

    def compare(self, name: str, kind: Scalar, a: Any, b: Any) -> Any:
        if kind.kind == "f":
            return (self.builder.fcmp_unordered if name == "!=" else self.builder.fcmp_ordered)(name, a, b)
        return (self.builder.icmp_signed if kind.kind == "i" else self.builder.icmp_unsigned)(name, a, b)

    def divide(self, operation: Callable[..., Any], kind: Scalar, a: Any, b: Any) -> Any:
        """The quotient of integers, rounded down, or the rest, which has the sign of the divisor."""
        build = self.builder
        if kind.kind == "u":
            return build.udiv(a, b) if operation is operator.floordiv else build.urem(a, b)
        zero = ir.Constant(a.type, 0)
        rest = build.srem(a, b)
        off = build.and_(build.icmp_signed("!=", rest, zero), build.icmp_signed("<", build.xor(rest, b), zero))
        if operation is operator.mod:
            return build.add(rest, build.select(off, b, zero))
        return build.sub(build.sdiv(a, b), build.zext(off, a.type))


# --- kernels ----------------------------------------------------------------------------------------------------------

Field = np.dtype[Any] | type | int
"""What is known of a record's field when its kernel is compiled: the dtype of an array, `int`, `bool` or `float`, or
the length of a tuple."""


class Layout(NamedTuple):
    """A record's class, and what is known of its fields; `None` has none."""

    record: Any
    fields: tuple[Field, ...]


def compile_kernel(function: FunctionType, name: str, layouts: Sequence[Layout]) -> str:
    """The LLVM code of a kernel for arguments of these layouts: a function of the address of all fields."""
    module = ir.Module(name)
    word = ir.IntType(64)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [word.as_pointer()]), name)
    compiler = Compiler(entry)
    build, index, arguments = compiler.builder, 0, []
    for layout in layouts:
        fields: list[Any] = []
        for field in layout.fields:
            if isinstance(field, int):
                fields.append((0,) * field)
                continue
            bits = build.load(build.gep(entry.args[0], [compiler.llvm.number(64, index)]), align=1)
            index += 1
            if isinstance(field, np.dtype):
                pointer = types.Pointer(Scalar(field.kind, 8 * field.itemsize))
                fields.append(Value(pointer, build.inttoptr(bits, pointer.llvm)))
            elif field is float:
                fields.append(Value(types.float64, build.bitcast(bits, ir.DoubleType())))
            elif field is bool:
                fields.append(Value(types.boolean, build.trunc(bits, ir.IntType(1))))
            else:
                fields.append(Value(types.int64, bits))
        arguments.append(layout.record._make(fields) if fields else None)
    compiler.inline(function, arguments)
    compiler.finish()
    return str(module)
