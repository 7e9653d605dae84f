"""Regions other than those of rows: device memory, the next tokens, and draft tokens."""

import ctypes

import numpy as np

from . import _library as c
from . import _structs as s
from ._library import check
from .arrays import integer
from .mapping import lasting_buffer

NEXT_TOKEN = 4
DRAFT_TOKENS = 16


def import_device(engine, address, size_bytes):
    """Imports device memory and returns the number of its region."""
    region = s.Region()
    address = integer(address, "address", 0, 2**64 - 1)
    check(c.load().specd_import_device(engine.pointer, address, size_bytes, ctypes.byref(region)))
    return region.id


def unregister(engine, region):
    check(c.load().specd_unregister(engine.pointer, region))


def bind_ids(engine, role, row_ids, address):
    """Binds a row of ids for each slot. Returns their region and their array; None instead of the
    array if the ids lie at a device address."""
    num_rows = engine.max_sequences
    size = 4 * num_rows * max(row_ids, 1)  # specd_bind explains what is wrong with empty rows
    region = s.Region()
    if address is None:
        check(c.load().specd_alloc(engine.pointer, size, ctypes.byref(region)))
    else:
        region.id = import_device(engine, address, size)
    tensor = c.initialised(s.Tensor, "specd_tensor_init")
    tensor.region, tensor.num_rows, tensor.row_stride = region.id, num_rows, row_ids
    try:
        buffer = None if address is not None else lasting_buffer(region)
        check(c.load().specd_bind(engine.pointer, role, ctypes.byref(tensor)))
    except (c.Error, OSError):
        unregister(engine, region.id)
        raise
    if buffer is None:
        return region.id, None
    return region.id, np.frombuffer(buffer, np.int32).reshape(num_rows, row_ids)
