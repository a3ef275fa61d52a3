"""`where=` and `extract=`: the user's Python functions, compiled with numba and called on walked spans without the GIL.

A loop is generated around each function for the parameters that it has. A record on which the function raises is left
out (`where=`) or null (`extract=`), and counted. Nothing is read out of bounds: keys, values and headers are arrays
with bounds checks.
"""

from __future__ import annotations

import dis
import hashlib
import inspect
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafkalog import functions
from kafkalog.errors import not_installed
from kafkalog.records.batch_table import BatchTable
from kafkalog.records.selection import FunctionFailure, Mask
from kafkalog.records.spans import Spans

ARGUMENTS: Final[dict[str, str]] = {
    "offset": "offset[i]",
    "timestamp": "timestamp[i]",
    "timestamp_type": "timestamp_type[i]",
    "key": "data[key_start[i] : key_start[i] + max(key_size[i], 0)]",
    "value": "data[value_start[i] : value_start[i] + max(value_size[i], 0)]",
    "key_is_null": "key_size[i] < 0",
    "value_is_null": "value_size[i] < 0",
    "headers": "Headers(data[headers_start[i] :], headers_count[i])",
}
"""Parameters that a function may have, and the expression for each in the loop."""

EXTRACT_DTYPES: Final = ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "f4", "f8")
"""dtypes of extracted columns, as `numpy.dtype` spells them."""

_COLUMNS = {
    "offset": "i8",
    "timestamp": "i8",
    "timestamp_type": "i1",
    "key_start": "i4",
    "key_size": "i4",
    "value_start": "i4",
    "value_size": "i4",
    "headers_start": "i4",
    "headers_count": "i4",
}

_LOOP = """
def loop(data, mask, failed, out, valid, {columns}):
    n_failed = 0
    for i in range(mask.size):
        if mask[i] != 0:
            try:
                result = function({arguments})
                {take}
            except Exception:
                failed[i] = 1
                n_failed += 1
                {fail}
    return n_failed
"""
_TAKE_WHERE = "mask[i] = 1 if result else 0"
_FAIL_WHERE = "mask[i] = 0"
_TAKE_EXTRACT = """if {is_null}:
                    valid[i] = 0
                else:
                    out[i] = result
                    if {is_wrong}:
                        raise OverflowError"""
_FAIL_EXTRACT = "valid[i] = 0"
_IS_WRONG = {"b1": "False", "f8": "False", "f4": "abs(out[i]) == np.inf and abs(result) != np.inf"}


class _Compiled:
    """A user's function and the loop that calls it on spans; `names` are those of its parameters."""

    def __init__(self, label: str, function: Callable[..., Any], dtype: np.dtype[Any] | None) -> None:
        self.label, self.dtype = label, dtype  # `where`, or `extract['price']`
        self.function: Callable[..., Any] = getattr(function, "py_func", function)
        self.names = _parameters(label, self.function)
        form = None if dtype is None else dtype.str
        self._loop, self._columns = _compile(label, self.function, self.names, form, _constants(self.function))

    def __reduce__(self) -> Any:
        # compiled code is not pickled: the other process compiles the function again
        return type(self), (self.label, self.function, self.dtype)

    @property
    def reads_headers(self) -> bool:
        return "headers" in self.names

    def run(
        self, spans: Spans, mask: Mask, out: npt.NDArray[Any], valid: npt.NDArray[np.uint8]
    ) -> list[FunctionFailure]:
        """Call the function on the records in `mask`."""
        failed = np.zeros(mask.size, np.uint8)
        data = spans.data.view()
        data.flags.writeable = False
        columns = [_column(name, spans) for name in self._columns]
        if not self._loop(data, mask, failed, out, valid, *columns):
            return []
        rows = np.flatnonzero(failed)
        return [FunctionFailure(self.label, spans.offset[rows], self._explain(spans, int(rows[0])))]

    def _explain(self, spans: Spans, row: int) -> str:
        """The exception of the function for a record. Compiled code does not keep it, so this calls it in Python."""
        data = spans.data.view()
        data.flags.writeable = False
        # Python numbers: where NumPy scalars only warn, these raise
        env: dict[str, Any] = {name: {row: _column(name, spans)[row].item()} for name in self._columns}
        env |= {"data": data, "i": row, "Headers": functions.Headers, "max": max}
        arguments = [eval(ARGUMENTS[name], {"__builtins__": {}}, env) for name in self.names]
        try:
            with np.errstate(over="ignore", under="ignore", divide="raise", invalid="raise"):
                result = self.function(*arguments)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if self.dtype is None:
            return "it fails when compiled, not in Python"
        return f"the result {getattr(result, 'item', lambda: result)()!r} does not fit {self.dtype}"


class Where:
    """A compiled condition; see `kafkalog.records.selection.Predicate`."""

    reads_derived = False

    def __init__(self, function: Callable[..., Any]) -> None:
        self._compiled = _Compiled("where", function, None)

    def __str__(self) -> str:
        return f"where={getattr(self._compiled.function, '__name__', 'function')}({', '.join(self._compiled.names)})"

    @property
    def reads_headers(self) -> bool:
        return self._compiled.reads_headers

    def batch_mask(self, batches: BatchTable) -> None:
        return None

    def narrow(self, spans: Spans, mask: Mask, derived: Mapping[str, npt.NDArray[Any]]) -> list[FunctionFailure]:
        return self._compiled.run(spans, mask, _NOTHING, _NOTHING)


class Extract:
    """Compiled functions that fill one column each; see `kafkalog.records.selection.Derivation`."""

    def __init__(self, columns: Mapping[str, tuple[Any, Callable[..., Any]]]) -> None:
        if not isinstance(columns, Mapping):
            raise TypeError('extract must be a dict such as {"price": ("f8", function)}')
        self._compiled: dict[str, _Compiled] = {}
        for name, column in columns.items():
            if not isinstance(name, str) or not name:
                raise TypeError(f"extract: a column name must be text, not {name!r}")
            if not isinstance(column, tuple) or len(column) != 2 or not callable(column[1]):
                raise TypeError(f"extract[{name!r}] must be a (dtype, function) pair, not {column!r}")
            label = f"extract[{name!r}]"
            self._compiled[name] = _Compiled(label, column[1], _dtype(label, column[0]))

    @property
    def dtypes(self) -> dict[str, np.dtype[Any]]:
        return {name: one.dtype for name, one in self._compiled.items() if one.dtype is not None}

    @property
    def reads_headers(self) -> bool:
        return any(one.reads_headers for one in self._compiled.values())

    def derive(self, spans: Spans, mask: Mask) -> tuple[dict[str, npt.NDArray[Any]], list[FunctionFailure]]:
        columns: dict[str, npt.NDArray[Any]] = {}
        failures: list[FunctionFailure] = []
        for name, one in self._compiled.items():
            out = np.zeros(mask.size, one.dtype)
            valid = np.ones(mask.size, np.uint8)
            failures += one.run(spans, mask, out, valid)
            columns[name] = out if valid.all() else np.ma.MaskedArray(out, mask=valid == 0)
        return columns, failures


_NOTHING = np.empty(0, np.uint8)


def _dtype(label: str, dtype: Any) -> np.dtype[Any]:
    try:
        made = np.dtype(dtype)
    except TypeError:
        made = None
    if made is None or (made.kind + str(made.itemsize) if made.kind != "b" else "bool") not in EXTRACT_DTYPES:
        raise TypeError(f"{label}: no dtype {dtype!r}; there are {', '.join(EXTRACT_DTYPES)}")
    native: np.dtype[Any] = made.newbyteorder("=")
    return native


def _parameters(label: str, function: Any) -> tuple[str, ...]:
    """The names of a function's parameters; raises TypeError unless all are in `ARGUMENTS`."""
    example = "def keep(timestamp, value): ..." if label == "where" else "def price(value): ..."
    right = f"a function takes any of {', '.join(ARGUMENTS)}, by these names, such as `{example}`"
    if not inspect.isfunction(function):
        raise TypeError(f"{label} must be a plain Python function, not {function!r}: {right}")
    parameters = inspect.signature(function).parameters.values()
    names = tuple(parameter.name for parameter in parameters)
    odd = [one.name for one in parameters if one.kind is not one.POSITIONAL_OR_KEYWORD or one.name not in ARGUMENTS]
    if odd or not names:
        raise TypeError(f"{label}: no parameter {', '.join(odd) or 'at all'}: {right}")
    return names


_compiling = threading.Lock()


def _constants(function: Callable[..., Any], *callers: object) -> tuple[object, ...]:
    """The values outside of a function that numba compiles into it: when one has changed, it is compiled again."""
    return tuple((name, type(value), _identity(value, *callers)) for name, value in _outside(function).items())


def _outside(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function names outside of itself, in comprehensions and in modules, too."""
    names = dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)
    named = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        named[name] = cell.cell_contents
    modules = [(name, vars(value)) for name, value in named.items() if isinstance(value, ModuleType)]
    return named | {f"{name}.{part}": values[part] for name, values in modules for part in names if part in values}


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _is_compiled(value: Any) -> bool:
    return inspect.isfunction(getattr(value, "py_func", None))


def _compiled_anew(function: Callable[..., Any], *callers: object) -> Callable[..., Any]:
    """The function with compiled helpers that have the values of now: numba keeps those of a helper's first call."""
    import numba

    def anew(value: Any) -> Any:
        if not _is_compiled(value) or value in callers:
            return value
        return numba.jit(**value.targetoptions)(_compiled_anew(value.py_func, *callers, value))

    code, outside, helpers = function.__code__, _outside(function), dict[str, Any]()
    for name, value in outside.items():
        module, _, part = name.rpartition(".")
        if _is_compiled(value) and module:
            vars(helpers.setdefault(module, _copy(outside[module])))[part] = anew(value)
        elif _is_compiled(value):
            helpers[name] = anew(value)
    if not helpers:
        return function
    closure = zip(code.co_freevars, function.__closure__ or (), strict=True)
    cells = tuple(CellType(helpers.get(name, cell.cell_contents)) for name, cell in closure)
    made = FunctionType(code, function.__globals__ | helpers, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _copy(module: ModuleType) -> ModuleType:
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))
    return copy


def _identity(value: Any, *callers: object) -> object:
    """Equal for values that compile to the same."""
    if _is_compiled(value):
        return value if value in callers else (value, _constants(value.py_func, *callers, value))
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).digest()
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


@lru_cache(maxsize=64)
def _compile(
    label: str,
    function: Callable[..., Any],
    names: tuple[str, ...],
    dtype: str | None,
    constants: tuple[object, ...],  # part of the cache's key
) -> tuple[Callable[..., int], tuple[str, ...]]:
    """The compiled loop around a function, and the columns of spans that the loop takes."""
    try:
        import numba
        from numba.core import errors, types
    except ImportError as error:
        raise ImportError(not_installed("where= and extract= need numba", "numba")) from error
    # the loop takes only the columns that the function asks for: building the others costs more than the call
    columns = tuple(name for name in _COLUMNS if any(name in ARGUMENTS[one] for one in names))
    _check_comparisons(label, function, names)
    # one at a time: `wrapping_integers` changes a global of numba
    with _compiling, wrapping_integers():
        teach_numba()
        compiled = numba.njit(_compiled_anew(function), boundscheck=True, error_model="python", nogil=True)
        byte_array = types.Array(types.uint8, 1, "C", readonly=True)
        try:
            result = _result_type(compiled, names, byte_array)
        except errors.NumbaError as error:
            raise TypeError(f"{label}: {_explained(error)}") from error
        take, fail = _TAKE_WHERE, _FAIL_WHERE
        if dtype is not None:
            is_null = "result is None" if isinstance(result, types.Optional) else "False"
            is_wrong = _IS_WRONG.get(np.dtype(dtype).str[1:], "out[i] != result")
            take, fail = _TAKE_EXTRACT.format(is_null=is_null, is_wrong=is_wrong), _FAIL_EXTRACT
            result = result.type if isinstance(result, types.Optional) else result
        _check_result(label, result, dtype)
        text = _LOOP.format(
            columns=", ".join(columns),
            arguments=", ".join(ARGUMENTS[name] for name in names),
            take=take,
            fail=fail,
        )
        scope: dict[str, Any] = {"function": compiled, "Headers": functions.Headers, "np": np}
        exec(text, scope)
        loop = numba.njit(scope["loop"], nogil=True, error_model="python")
        mask = types.Array(types.uint8, 1, "C")
        out = mask if dtype is None else types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C")
        spans = [types.Array(numba.from_dtype(np.dtype(_COLUMNS[name])), 1, "C") for name in columns]
        try:
            loop.compile((byte_array, mask, mask, out, mask, *spans))
        except errors.NumbaError as error:
            raise TypeError(f"{label}: numba cannot compile this function: {_brief(error)}") from error
    return loop, columns


def _result_type(compiled: Any, names: tuple[str, ...], byte_array: Any) -> Any:
    """The numba type that a function returns."""
    from numba.core import types

    kinds = {
        "offset": types.int64,
        "timestamp": types.int64,
        "timestamp_type": types.int8,
        "key": byte_array,
        "value": byte_array,
        "key_is_null": types.boolean,
        "value_is_null": types.boolean,
        "headers": types.NamedTuple((byte_array, types.int32), functions.Headers),  # type: ignore[no-untyped-call]
    }
    signature = tuple(kinds[name] for name in names)
    compiled.compile(signature)
    return compiled.overloads[signature].signature.return_type


def _check_result(label: str, result: Any, dtype: str | None) -> None:
    from numba.core import types

    fits: tuple[Any, ...]
    if dtype is None or np.dtype(dtype).kind == "b":
        fits, wanted = (types.Boolean,), "True or False"
    elif np.dtype(dtype).kind == "f":
        fits, wanted = (types.Integer, types.Float), f"a number, for {np.dtype(dtype)}"
    else:
        fits, wanted = (types.Integer,), f"an integer, for {np.dtype(dtype)}"
    if not isinstance(result, fits):
        raise TypeError(f"{label}: the function returns {_name(result)}; it must return {wanted}")


def _name(kind: Any) -> str:
    """The Python name of a numba type."""
    from numba.core import types

    if isinstance(kind, types.Optional):
        return f"{_name(kind.type)} or None"
    kind = types.unliteral(kind)  # type: ignore[no-untyped-call]
    return {"none": "None", "unicode_type": "str"}.get(str(kind), str(kind))


def _check_comparisons(label: str, function: Callable[..., Any], names: tuple[str, ...]) -> None:
    """Raise TypeError where a parameter is compared with None or a str: compiled, the result is always False."""
    code = [*dis.get_instructions(function)]
    stored = {one.argval for one in code if one.opname.startswith("STORE_FAST")}
    arrays = {"key", "value"}.intersection(names) - stored
    for at, two in enumerate(itertools.pairwise(code)):
        for load, other in (two, two[::-1]) if two[0].opname == "LOAD_CONST" else (two,):
            if load.argval in arrays and load.opname.startswith("LOAD_FAST"):
                operation = code[at + 2].opname if other.opname == "LOAD_CONST" else other.opname
                _check_comparison(f"{label}: {load.argval}", operation, other)


def _check_comparison(parameter: str, operation: str, other: dis.Instruction) -> None:
    if operation.endswith("_NONE") or (operation == "IS_OP" and other.argval is None):
        name = parameter.rpartition(" ")[2]
        raise TypeError(f"{parameter} is never None in a compiled function; take the parameter {name}_is_null")
    if operation == "COMPARE_OP" and isinstance(other.argval, str) and other.opname == "LOAD_CONST":
        raise TypeError(f"{parameter} is never a str; {_COMPARE}")


_COMPARE: Final = 'compare bytes with kafkalog.functions.equals(key, b"abc")'


def _explained(error: Exception) -> str:
    """The cause of an error of numba, and what to call for bytes."""
    if functions.TEXT_IS_NOT_BYTES in str(error):
        return functions.TEXT_IS_NOT_BYTES
    text = _brief(error)
    meant = f"; keys and values are uint8 arrays: {_COMPARE}" if re.search(r"array\((bool|uint8)", text) else ""
    return f"numba cannot compile this function: {text}{meant}"


def _brief(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = [
        line for line in lines if not line.startswith(("Failed in nopython", "During:", "File ", "<source", "def "))
    ]
    return " ".join(shown[:4])[:500]


@contextmanager
def wrapping_integers() -> Iterator[None]:
    """Code compiled inside this context has integers that wrap on overflow.

    By default numba tells LLVM that signed integers never overflow, and LLVM then drops bounds checks. A function that
    adds bytes of a record to a position could overflow, and read outside the array.
    """
    from numba.cpython import numbers

    flags = numbers._int_arith_flags
    numbers._int_arith_flags = lambda kind: []
    try:
        yield
    finally:
        numbers._int_arith_flags = flags


@lru_cache(maxsize=1)
def teach_numba() -> None:
    """Register the helpers of `kafkalog.functions` with numba, so that functions that call them compile."""
    from numba.core import errors, types
    from numba.extending import intrinsic, overload, register_jitable

    for name, helper in functions.HELPERS.items():
        if name not in ("Headers", "_check_bytes", "f32_of_bits", "f64_of_bits"):
            register_jitable(helper)

    def bitcast(from_: Any, to: Any) -> Any:
        def typing(context: Any, bits: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return builder.bitcast(args[0], context.get_value_type(to))

            return to(from_), code

        return intrinsic(typing)

    def check_bytes(text):  # type: ignore[no-untyped-def]
        if isinstance(types.unliteral(text), types.UnicodeType):  # type: ignore[no-untyped-call]
            raise errors.TypingError(functions.TEXT_IS_NOT_BYTES)
        return lambda text: None

    overload(functions._check_bytes)(check_bytes)
    as_f64, as_f32 = bitcast(types.int64, types.float64), bitcast(types.uint32, types.float32)
    # numba requires both functions to have the same parameters, annotations included: so there are no annotations
    overload(functions.f64_of_bits)(lambda bits: lambda bits: as_f64(np.int64(bits)))
    overload(functions.f32_of_bits)(lambda bits: lambda bits: float(as_f32(np.uint32(bits))))


def _column(name: str, spans: Spans) -> npt.NDArray[Any]:
    if name == "timestamp_type":
        if spans.timestamp_type is not None:
            return spans.timestamp_type
        return np.repeat(spans.batches.timestamp_type, spans.counts)
    column = getattr(spans, name)
    if column is None:  # formats before v2 have no headers
        return np.zeros(len(spans), _COLUMNS[name])
    return np.ascontiguousarray(column)
