"""Arrays of a batch: what a caller gives becomes arrays whose addresses C takes."""

import ctypes

import numpy as np

from ._library import refusal
from .arrays import integers


def handles(sequences):
    """Handles as uint64. torch has them as int64, with the same bits."""
    array = np.asarray(sequences)
    if array.dtype == np.int64:
        array = array.view(np.uint64)
    array = integers_of(array, np.uint64, "sequences")
    if array.ndim != 1:
        raise refusal(f"sequences: an array of {array.ndim} dimensions, not of 1")
    return array


def ragged(values, offsets, count, name, offsets_name):
    """(all ids one after another, the count + 1 offsets of the lists in them)."""
    array = integers_of(values, np.int32, name)
    if offsets is None:
        if array.ndim != 2 or len(array) != count:
            raise refusal(f"{offsets_name}: they are needed, unless {name} has {count} rows of one "
                          "length each")
        return array.reshape(-1), np.arange(count + 1) * array.shape[1]
    offsets = np.ascontiguousarray(offsets)
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


def integers_of(values, dtype, name):
    """The values as an array of a dtype whose elements lie one after another: the caller's own, if
    it is one already. Values that do not fit are refused."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise refusal(f"{name}: lists of different lengths; give the elements one after another, "
                      "with offsets") from None
    if array.dtype != dtype:
        kind = np.dtype(dtype).kind
        if kind == "f":
            if array.dtype.kind not in "biuf":
                raise refusal(f"{name}: {array.dtype} where numbers are needed")
            array = array.astype(dtype)
        else:
            array = integers(array, dtype, name)
    return np.ascontiguousarray(array) if array.ndim else array


def address(array):
    return array.__array_interface__["data"][0]


def set_pointer(struct, field, array):
    """Sets a pointer of a struct. A field is a word, and so is an address."""
    ctypes.c_uint64.from_buffer(struct, getattr(type(struct), field).offset).value = address(array)
