"""Member is a tensor-parallel rank in a process of its own, in the session of rank 0's engine."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import weakref
from types import TracebackType
from typing import Any

import numpy as np

from . import _library as c
from . import _structs as s
from ._library import check, refusal, text_bytes
from .arrays import integer
from .dlpack import Array
from .slot_memory import slot_role

# The values of Linux's <fcntl.h>; only newer Pythons have the names in the module.
_F_ADD_SEALS, _F_SEAL_SHRINK = 1033, 2


class Member:
    """Rank `rank` (1 .. 7) of the engine whose Engine.group() gave `token`, over the same daemon.

    >>> member = specd.Member("unix:/run/specd/specd.sock", token, rank=1)
    >>> ids = member.next_tokens(max_sequences)  # or, on a GPU, with address=tensor.data_ptr()

    Options are those of specd_join_options: timeout_ms, name, reconnect_ms (how long the rank
    waits for the next daemon if its own is gone, and then for its session there; it goes on, and
    its arrays stay the same. The engine needs reconnect_ms too). One thread at a time.
    """

    def __init__(self, uri: str, token: str, rank: int, **options: Any):
        struct = c.initialised(s.JoinOptions, "specd_join_options_init")
        struct.rank = integer(rank, "rank")
        for name, value in options.items():
            if name == "name":
                struct.name = text_bytes(value, name)
            elif name in ("timeout_ms", "reconnect_ms"):
                setattr(struct, name, integer(value, name))
            else:
                raise refusal(
                    f"{name}: no such option; the options are timeout_ms, reconnect_ms, name")
        pointer = ctypes.c_void_p()
        check(c.load().specd_join(text_bytes(uri, "uri"), text_bytes(token, "token"),
                                  ctypes.byref(struct), ctypes.byref(pointer)))
        self.rank, self._pointer = int(struct.rank), pointer
        # Also run when the interpreter ends.
        self._leaver = weakref.finalize(self, c.load().specd_leave, pointer)

    @property
    def pointer(self) -> ctypes.c_void_p:
        if not self._leaver.alive:
            raise refusal("the member has left")
        return self._pointer

    def next_tokens(self, num_rows: int, address: int | None = None) -> Array | None:
        """Returns an int32 array of num_rows ids (rank 0's max_sequences, or more). After every
        round of rank 0 it holds the last token of each sequence, at the sequence's .slot. An array
        from an earlier call is written no more. If an address is given, the ids lie in device
        memory there, and the call returns None. That memory may be freed once this was called again
        or leave() has returned."""
        return self.slot_output("next_token", num_rows, address=address)

    def slot_output(self, name: str, num_rows: int, row_length: int = 1,
                    address: int | None = None, dtype: Any = "int32") -> Array | None:
        """Returns an array for one of Engine.slot_output's names, as next_tokens does. A row has
        row_length elements: at least as many as there, and as many for "predicts". Call next_tokens
        last: Engine.group then shows that all of them are there."""
        role, code, numpy_type = slot_role(name, dtype)
        tensor = c.initialised(s.Tensor, "specd_tensor_init")
        num_rows = integer(num_rows, "num_rows", 1, 2**31 - 1)
        row_length = integer(row_length, "row_length", 1, 2**20)
        tensor.num_rows, tensor.row_stride = num_rows, row_length
        tensor.dtype = code
        size = np.dtype(numpy_type).itemsize * num_rows * row_length
        if address is not None:
            check(c.load().specd_member_bind_device_tensor(
                self.pointer, role, integer(address, "address", 0, 2**64 - 1), size,
                ctypes.byref(tensor)))
            return None
        fd = os.memfd_create("specd-slot-output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK)
            memory = mmap.mmap(fd, size)
            check(c.load().specd_member_bind_fd_tensor(self.pointer, role, fd, size,
                                                       ctypes.byref(tensor)))
        finally:
            os.close(fd)
        array: Array = np.frombuffer(memory, numpy_type)
        return array if row_length == 1 else array.reshape(num_rows, row_length)

    def check(self) -> None:
        """Raises Error once the session or the daemon has ended, or with reconnect_ms once the rank
        has waited in vain; cheap."""
        check(c.load().specd_member_check(self.pointer))

    def leave(self) -> None:
        """Ends the membership. After it has returned, device memory may be freed."""
        code = self._leaver()
        if code is not None:  # the first time
            check(code)

    def __enter__(self) -> Member:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.leave()
