"""Regions besides those of rows: device memory, and the next tokens."""

import ctypes

import numpy as np

from . import _library as c
from ._library import check
from .arrays import integer

NEXT_TOKEN = 4


def import_device(engine, address, size_bytes):
    """The number of a region of device memory."""
    region = c.Region()
    address = integer(address, "address", 0, 2**64 - 1)
    check(c.load().specd_import_device(engine.pointer, address, size_bytes, ctypes.byref(region)))
    return region.id


def unregister(engine, region):
    check(c.load().specd_unregister(engine.pointer, region))


def bind_next_tokens(engine, num_ids, address):
    """The region of the next tokens, and the array in which they lie: None at a device address."""
    region = c.Region()
    if address is None:
        check(c.load().specd_alloc(engine.pointer, 4 * num_ids, ctypes.byref(region)))
    else:
        region.id = import_device(engine, address, 4 * num_ids)
    tensor = c.initialised(c.Tensor, "specd_tensor_init")
    tensor.region, tensor.num_rows = region.id, num_ids
    try:
        check(c.load().specd_bind(engine.pointer, NEXT_TOKEN, ctypes.byref(tensor)))
    except c.Error:
        unregister(engine, region.id)
        raise
    if address is not None:
        return region.id, None
    buffer = (ctypes.c_char * (4 * num_ids)).from_address(region.data)
    return region.id, np.frombuffer(buffer, np.int32)
