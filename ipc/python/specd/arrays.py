"""Converts between numpy and C pointers: dtypes of rows, lists of ids, packed masks."""

from __future__ import annotations

import ctypes
import functools
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from ._library import refusal
from .bfloat import BFloat16, is_bfloat16
from .dlpack import Array, as_array

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2
_ITEM_SIZES = {FLOAT32: 4, BFLOAT16: 2, FLOAT16: 2}
_DTYPES = {"float32": FLOAT32, "bfloat16": BFLOAT16, "float16": FLOAT16}
_CODES: dict[type[np.generic], int] = {np.float32: FLOAT32, np.float16: FLOAT16}
KINDS = {"logits": 0, "probabilities": 1, "final_probabilities": 2}


def dtype_code(name: Any) -> int:
    """SPECD_FLOAT32, ... for "float32", "float16" or "bfloat16"."""
    name = str(np.dtype(name)) if not isinstance(name, str) else name
    if name not in _DTYPES:
        raise refusal(f"dtype: {name!r} is not one of {', '.join(_DTYPES)}")
    return _DTYPES[name]


def item_size(code: int) -> int:
    return _ITEM_SIZES[code]


def view_code(array: Array, is_mask: bool) -> int | None:
    """The dtype code of elements that a tensor can have as they are, or None. Masks count as 0."""
    if is_mask:
        return 0 if array.dtype in (np.int32, np.uint32) else None
    if is_bfloat16(array):
        return BFLOAT16
    return _CODES.get(array.dtype.type)


def numpy_view(buffer: Any, num_rows: int, row_stride: int, vocab_size: int, code: int) -> Array:
    """An array over rows in memory of specd, which it shares."""
    types: dict[int, type] = {FLOAT32: np.float32, BFLOAT16: np.uint16, FLOAT16: np.float16}
    numpy_type = types[code]
    rows: Array = np.frombuffer(buffer, numpy_type, num_rows * row_stride)
    rows = rows.reshape(num_rows, row_stride)[:, :vocab_size]
    return rows.view(BFloat16) if code == BFLOAT16 else rows


def as_rows(array: Any, vocab_size: int | None = None, name: str = "rows") -> tuple[Array, int]:
    """Returns (array with rows whose elements are adjacent, dtype code). float64 becomes
    float32."""
    array = as_array(array, name)
    if not isinstance(array, BFloat16):
        array = np.asarray(array)
        if is_bfloat16(array):
            array = array.view(np.uint16).view(BFloat16)
        elif array.dtype == np.float64 or array.dtype.kind in "iu" and not array.dtype == np.uint16:
            array = array.astype(np.float32)
        elif array.dtype not in (np.float32, np.float16):
            raise refusal(f"{name}: dtype {array.dtype} is not one of float32, float16, bfloat16; "
                          "16-bit words become bfloat16 rows with .view(specd.BFloat16)")
    if array.ndim == 1:
        array = array[np.newaxis, :]
    if array.ndim != 2:
        raise refusal(f"{name}: an array of {array.ndim} dimensions, not of 2 (rows, vocabulary)")
    if vocab_size is not None and array.shape[1] != vocab_size:
        raise refusal(f"{name}: rows of {array.shape[1]} elements, and vocab_size is {vocab_size}")
    size = array.dtype.itemsize
    strides_fit = array.strides[1] == size or array.shape[1] == 1
    if array.shape[0] > 1:
        strides_fit &= array.strides[0] % size == 0 and array.strides[0] >= size * array.shape[1]
    if not strides_fit:
        array = array.copy()
    if isinstance(array, BFloat16):
        return array, BFLOAT16
    return array, FLOAT32 if array.dtype == np.float32 else FLOAT16


def integer(value: Any, name: str, least: int = 0, most: int = 2**32 - 1) -> int:
    """The value as an int in least .. most. C would truncate a larger value silently."""
    try:
        number = operator.index(value)
    except TypeError:
        raise refusal(f"{name}: {value!r} is not an integer") from None
    if not least <= number <= most:
        raise refusal(f"{name}: {number} does not fit: {least} .. {most} are allowed")
    return number


def boolean(value: Any, name: str) -> bool:
    """The value as a bool: True, False, 1 or 0. Any other would count by its truth, such as "no"."""
    found = as_array(value, name)
    if isinstance(found, np.ndarray) and found.ndim == 0:
        found = found[()]
    if isinstance(found, (bool, np.bool_, int, np.integer)) and found in (0, 1):
        return bool(found)
    raise refusal(f"{name}: {value!r} is neither True nor False; give bool(...) of it")


@functools.cache
def _limits(dtype: Any) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def integers(values: Any, dtype: Any, name: str) -> Array:
    """One integer or a list of them as a contiguous array of a dtype. Values that do not fit are
    refused. Booleans in an array count as 0 and 1."""
    least, most = _limits(dtype)
    values = as_array(values, name)
    if not isinstance(values, np.ndarray):
        if not hasattr(values, "__iter__") and np.ndim(values) == 0:
            return np.array(integer(values, name, least, most), dtype)
        return np.array([integer(value, name, least, most) for value in values], dtype)
    if isinstance(values, BFloat16):
        raise refusal(f"{name}: bfloat16 where integers are needed")
    if values.size and values.dtype.kind not in "biu":
        raise refusal(f"{name}: {values.dtype} where integers are needed")
    for extreme in (values.min(), values.max()) if values.size and values.dtype != dtype else ():
        integer(int(extreme), name, least, most)
    return np.array(values, dtype, order="C")


def floats(values: Any, dtype: Any, name: str) -> Array:
    """Numbers as a contiguous array of a floating dtype."""
    values = as_array(values, name)
    if isinstance(values, BFloat16):
        values = values.floats()
    return np.ascontiguousarray(values, dtype)


def id_array(ids: Any, name: str) -> Array:
    """Token ids as contiguous int32. Values that do not fit are refused."""
    array = integers(ids, np.int32, name)
    if array.ndim != 1:
        raise refusal(f"{name}: token ids are needed, one after another, not in {array.ndim} "
                      "dimensions")
    return array


def pointer(array: Array, ctype: Any) -> Any:
    """A typed pointer to an array's first element; the array must outlive it."""
    return array.ctypes.data_as(ctypes.POINTER(ctype))


def address(array: Array) -> int:
    """Where the array's first element lies."""
    found: int = array.__array_interface__["data"][0]
    return found


def set_pointer(struct: ctypes.Structure, field: str, array: Array) -> None:
    """Sets a pointer of a struct; the array must outlive it. A field is a word, and so is an
    address."""
    ctypes.c_uint64.from_buffer(struct, getattr(type(struct), field).offset).value = address(array)


def pack_mask(allowed: npt.ArrayLike) -> npt.NDArray[np.int32]:
    """Rows of booleans as rows of the grammar mask: bit i % 32 of word i / 32 is 1 where allowed.

    >>> specd.pack_mask(np.array([[True, False, True]]))
    array([[5]], dtype=int32)
    """
    flags = np.atleast_2d(np.asarray(as_array(allowed, "allowed"), dtype=bool))
    words = (flags.shape[1] + 31) // 32
    padded = np.zeros((flags.shape[0], words * 32), bool)
    padded[:, :flags.shape[1]] = flags
    return np.packbits(padded, axis=1, bitorder="little").view("<u4").view(np.int32)


def mask_words(mask: Any, vocab_size: int, num_rows: int, name: str) -> Array:
    """num_rows rows of a grammar mask as packed words. They are given as booleans or packed
    already."""
    array: Array = np.atleast_2d(np.asarray(as_array(mask, name)))
    num_words = (vocab_size + 31) // 32
    if array.shape == (num_rows, vocab_size) and array.dtype.kind in "biu":
        return pack_mask(array)
    if array.shape == (num_rows, num_words) and array.dtype in (np.int32, np.uint32):
        return np.ascontiguousarray(array).view(np.int32)
    raise refusal(f"{name}: {tuple(np.shape(mask))} of {array.dtype} where {num_rows} rows of "
                  f"{vocab_size} booleans, or of {num_words} packed int32 words, are needed")
