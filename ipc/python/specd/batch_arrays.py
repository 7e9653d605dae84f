"""Arrays of a batch: what a caller gives becomes arrays whose addresses C takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._library import refusal
from .arrays import integers
from .bfloat import BFloat16
from .dlpack import Array, as_array


def handles(sequences: Any) -> Array:
    """A copy of handles as uint64: the results have it, and the caller may write the array meanwhile.
    torch has them as int64, with the same bits."""
    array = _array_of(sequences, "sequences")
    if array.dtype == np.int64:
        array = array.view(np.uint64)
    array = numbers_of(array, np.uint64, "sequences")
    if array.ndim != 1:
        raise refusal(f"sequences: an array of {array.ndim} dimensions, not of 1")
    return array.copy()


def ragged(values: Any, offsets: Any, count: int, name: str,
           offsets_name: str) -> tuple[Array, Array]:
    """(all ids one after another, the count + 1 offsets of the lists in them)."""
    array = numbers_of(values, np.int32, name)
    if offsets is None:
        if array.ndim != 2 or len(array) != count:
            raise refusal(f"{offsets_name}: they are needed, unless {name} has {count} rows of one "
                          "length each")
        return array.reshape(-1), np.arange(count + 1) * array.shape[1]
    offsets = np.ascontiguousarray(_array_of(offsets, offsets_name))
    if offsets.dtype.kind not in "iu":
        raise refusal(f"{offsets_name}: {offsets.dtype} where integers are needed")
    if array.ndim != 1:
        raise refusal(f"{name}: an array of {array.ndim} dimensions, where {offsets_name} are for "
                      "one")
    if offsets.shape != (count + 1,):
        raise refusal(f"{offsets_name}: {offsets.shape} values where {count + 1} are needed")
    if offsets[0] != 0 or offsets[-1] != len(array) or (offsets[1:] < offsets[:-1]).any():
        raise refusal(f"{offsets_name}: they go from 0 to {len(array)}, the number of {name}, and "
                      "never down")
    return array, offsets


def numbers_of(values: Any, dtype: Any, name: str) -> Array:
    """The values as an array of a dtype whose elements lie one after another: the caller's own, if
    it is one already. Values that do not fit are refused."""
    array = _array_of(values, name)
    if array.dtype != dtype:
        if np.dtype(dtype).kind != "f":
            array = integers(array, dtype, name)
        elif array.dtype.kind in "biuf":
            array = array.astype(dtype)
        else:
            raise refusal(f"{name}: {array.dtype} where numbers are needed")
    return np.ascontiguousarray(array) if array.ndim else array


def booleans(values: Any, count: int, name: str) -> Array:
    """The values as `count` booleans. Integers 0 and 1 count, and nothing else does."""
    array = _array_of(values, name)
    if array.shape != (count,):
        raise refusal(f"{name}: {array.shape} values where {count} are needed")
    if not array.size:
        return np.zeros(count, bool)
    if array.dtype == bool:
        return array
    if isinstance(array, BFloat16) or array.dtype.kind not in "iu":
        raise refusal(f"{name}: {array.dtype} where booleans are needed")
    for value in array[(array != 0) & (array != 1)].tolist():
        raise refusal(f"{name}: {value} is neither True nor False")
    return array.astype(bool)


def _array_of(values: Any, name: str) -> Array:
    values = as_array(values, name)
    if isinstance(values, BFloat16):  # numpy would take its words for numbers
        return values
    try:
        array: Array = np.asarray(values)
    except ValueError:
        raise refusal(f"{name}: lists of different lengths; give the elements one after another, "
                      "with offsets") from None
    return array
