"""BFloat16 is an array of bfloat16 numbers, a type that numpy does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ._library import refusal

_Array = npt.NDArray[Any]

# Functions that ask about an array's shape or memory, and not about its numbers.
_ABOUT_SHAPE = (np.shape, np.ndim, np.size, np.shares_memory, np.may_share_memory, np.reshape,
                np.squeeze, np.expand_dims, np.atleast_2d, np.copy)
# Functions and methods of numpy that write into their first argument.
_WRITES = tuple(getattr(np, name) for name in ("put", "place", "putmask", "put_along_axis",
                                               "fill_diagonal"))
_WRITE_METHODS = ("put", "sort", "partition", "setfield", "byteswap")
_NUMBER_METHODS = ("tolist", "item", "argmax", "argmin", "argsort", "dot", "sum", "prod", "mean",
                   "std", "var", "max", "min", "round", "clip", "cumsum", "cumprod", "searchsorted",
                   "trace", "nonzero")


# numpy.typing.NDArray is no class: in numpy 2.5 nothing can be derived from it.
class BFloat16(np.ndarray[Any, np.dtype[Any]]):
    """Rows of bfloat16. What is written is rounded to the nearest bfloat16, ties to even; what is
    read, computed or printed is float32. A part of such an array is of this type too.

    The elements are 16-bit words: `.view(np.uint16)` shows them, and words become an array with
    `.view(specd.BFloat16)`. 16-bit integers are refused where numbers are written, because they may
    be meant as words. Arrays of a dtype called "bfloat16" (ml_dtypes, jax) are accepted as they
    are.

    numpy asks no subclass in a few places, and then takes the words for numbers: assign
    `rows.floats()`, not `rows`, to a part of an array of another type, make such an array with
    `rows.astype` and not with `np.array(rows)`, and write with `rows[...] = values`, not through
    `rows.flat` or `rows.real`."""

    def __array_finalize__(self, source: object) -> None:
        if self.dtype != np.uint16:
            raise refusal(f"dtype: {self.dtype} has no bfloat16 words; specd.bfloat16 makes them of "
                          "numbers, and .view(specd.BFloat16) of 16-bit words")

    def floats(self) -> npt.NDArray[np.float32]:
        """The numbers as float32, exactly."""
        words = np.ndarray.view(self, np.ndarray)
        return (words.astype(np.uint32) << 16).view(np.float32)

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return found if isinstance(found, BFloat16) else (
            np.uint32(int(found) << 16).view(np.float32))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, _words(value))

    def fill(self, value: Any) -> None:
        self[...] = value

    def __reduce__(self) -> Any:
        return _of_words, (np.ndarray.view(self, np.ndarray).copy(),)

    def astype(self, dtype: Any, *rest: Any, **options: Any) -> Any:
        return self.floats().astype(dtype, *rest, **options)

    def view(self, *types: Any, **options: Any) -> Any:
        kind = types[0] if types else options.get("type", options.get("dtype", BFloat16))
        if isinstance(kind, type) and issubclass(kind, np.ndarray):
            return super().view(kind)
        return super().view(np.ndarray).view(*types, **options)

    def __repr__(self) -> str:
        return repr(self.floats()).replace("float32", "bfloat16")

    def __str__(self) -> str:
        return str(self.floats())

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, out: Any = None,
                        **options: Any) -> Any:
        if method == "at":
            raise refusal(f"numpy.{ufunc.__name__}.at: write rows[...] = values")
        inputs = tuple(_plain(value) for value in inputs)
        options = {name: _plain(value) for name, value in options.items()}
        if out is None:
            return getattr(ufunc, method)(*inputs, **options)
        floats = tuple(_plain(each) for each in out)
        getattr(ufunc, method)(*inputs, out=floats, **options)
        for each, computed in zip(out, floats):
            if isinstance(each, BFloat16):
                each[...] = computed
        return out[0] if len(out) == 1 else out

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _ABOUT_SHAPE:
            return super().__array_function__(func, types, args, kwargs)
        if func is np.copyto and isinstance(args[0] if args else kwargs["dst"], BFloat16):
            return _copyto(*args, **kwargs)
        if isinstance(kwargs.get("out"), BFloat16) or func in _WRITES and isinstance(
                args[0], BFloat16):
            raise refusal(f"numpy.{func.__name__}: it would write numbers into bfloat16 words; "
                          "write rows[...] = values")
        return func(*(_plain(value) for value in args),
                    **{name: _plain(value) for name, value in kwargs.items()})


def _number_method(name: str) -> Callable[..., Any]:
    def method(self: BFloat16, *args: Any, **options: Any) -> Any:
        return getattr(self.floats(), name)(*args, **options)
    return method


def _write_method(name: str) -> Callable[..., Any]:
    def method(self: BFloat16, *_: Any, **__: Any) -> Any:
        raise refusal(f"{name}: bfloat16 rows are written with rows[...] = values")
    return method


for _name in _NUMBER_METHODS:
    setattr(BFloat16, _name, _number_method(_name))
for _name in _WRITE_METHODS:
    setattr(BFloat16, _name, _write_method(_name))


def bfloat16(array: npt.ArrayLike) -> BFloat16:
    """The rows rounded to bfloat16 (to the nearest, ties to even).

    >>> specd.bfloat16(np.array([[1.0, 2.5]], np.float32)).view(np.uint16)
    array([[16256, 16416]], dtype=uint16)
    """
    floats = np.ascontiguousarray(_plain(array), dtype=np.float32)
    return _rounded(floats).view(BFloat16)


def is_bfloat16(array: _Array) -> bool:
    """Whether the elements are bfloat16, by this type or by another package's dtype."""
    # numpy takes microseconds to make a dtype's name, and its own dtypes need none.
    return isinstance(array, BFloat16) or array.dtype.isbuiltin != 1 and array.dtype.name == "bfloat16"


def _rounded(floats: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    bits = floats.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40  # rounding up could turn a NaN into an infinity
    return np.where(np.isnan(floats), quiet, rounded).astype(np.uint16)


def _words(value: Any) -> _Array:
    """The 16-bit words of numbers that are written."""
    if isinstance(value, BFloat16):
        return np.ndarray.view(value, np.ndarray)
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    if array.dtype == np.uint16 or array.dtype.kind not in "fiu":
        raise refusal(f"bfloat16 rows: values of {array.dtype}; give numbers, or 16-bit words as "
                      "words.view(specd.BFloat16)")
    floats = np.ascontiguousarray(array, dtype=np.float32)
    return _rounded(floats).reshape(array.shape)


def _plain(value: Any) -> Any:
    """The same with float32 in the place of bfloat16."""
    if isinstance(value, BFloat16):
        return value.floats()
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(each) for each in value)
    return value


def _copyto(dst: BFloat16, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    del casting
    words = np.broadcast_to(_words(src), dst.shape)
    np.copyto(np.ndarray.view(dst, np.ndarray), words, where=where)


def _of_words(words: _Array) -> Any:
    return words.view(BFloat16)
