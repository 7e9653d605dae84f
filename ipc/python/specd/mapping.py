"""A second mapping of the memory of a region, which lives as long as the arrays over it.

specd_close unmaps what specd_alloc has mapped. An array may outlive its engine, so arrays lie in a
mapping of their own, of the same pages.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._structs import Region

_MREMAP_MAYMOVE = 1
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mremap.restype = ctypes.c_void_p
_libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.restype = ctypes.c_int
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def lasting_buffer(region: Region) -> Any:
    """The bytes of a region from specd_alloc. They stay readable and writable as long as the buffer
    or an array over it lives, with the engine or without it."""
    # mremap(2): an old size of 0 maps the pages of a shared mapping a second time.
    address = _libc.mremap(region.data, 0, region.size_bytes, _MREMAP_MAYMOVE)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mapping {region.size_bytes} bytes again: {os.strerror(number)}")
    buffer = (ctypes.c_char * region.size_bytes).from_address(address)
    # At the end of the interpreter an array may still be used, and the process unmaps all.
    weakref.finalize(buffer, _libc.munmap, address, region.size_bytes).atexit = False
    return buffer
