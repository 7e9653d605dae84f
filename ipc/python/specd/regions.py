"""Regions of device memory, and the end of any region."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from . import _library as c
from . import _structs as s
from ._library import check
from .arrays import integer

if TYPE_CHECKING:
    from .engine_handle import EngineHandle


def import_device(engine: EngineHandle, address: int, size_bytes: int) -> int:
    """Imports device memory and returns the number of its region."""
    region = s.Region()
    address = integer(address, "address", 0, 2**64 - 1)
    check(c.load().specd_import_device(engine.pointer, address, size_bytes, ctypes.byref(region)))
    return int(region.id)


def unregister(engine: EngineHandle, region: int) -> None:
    check(c.load().specd_unregister(engine.pointer, region))
