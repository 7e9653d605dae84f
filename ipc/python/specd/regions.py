"""Regions of device memory, and the end of any region."""

import ctypes

from . import _library as c
from . import _structs as s
from ._library import check
from .arrays import integer


def import_device(engine, address, size_bytes):
    """Imports device memory and returns the number of its region."""
    region = s.Region()
    address = integer(address, "address", 0, 2**64 - 1)
    check(c.load().specd_import_device(engine.pointer, address, size_bytes, ctypes.byref(region)))
    return region.id


def unregister(engine, region):
    check(c.load().specd_unregister(engine.pointer, region))
