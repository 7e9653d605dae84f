"""SlotMemory is the part of Engine that binds memory with a row for each slot: draft tokens, which
specd reads, and slot outputs, which specd writes."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, overload

import numpy as np

from . import _library as c
from . import _structs as s
from ._library import check, refusal
from .arrays import integer
from .dlpack import Array
from .engine_handle import EngineHandle
from .mapping import lasting_buffer
from .regions import import_device, unregister

DRAFT_TOKENS = 16
# The roles of trees by slot, by name.
DRAFT_TREE = {"parents": 18, "next_child": 19, "next_sibling": 20}
# The roles of slot outputs, by name.
SLOT_OUTPUTS = {"next_token": 4, "kept_tokens": 32, "num_kept": 40, "num_accepted": 48,
                "total_kept": 56, "accepted_path": 64, "predicts": 72, "accept_index": 80}
NUM_REPLICAS = 8
# The types of elements, by name.
_ELEMENTS: dict[str, tuple[int, Any]] = {"int32": (3, np.int32), "int64": (4, np.int64)}


class IdRows(NamedTuple):
    """A row of integers for each slot; row_stride is in elements."""

    role: int
    row_length: int
    row_stride: int
    dtype_code: int = 0
    numpy_type: Any = np.int32


def slot_role(name: str, dtype: Any) -> tuple[int, int, Any]:
    """The role of a slot output, and the code and the numpy type of its elements."""
    if name not in SLOT_OUTPUTS:
        raise refusal(f"name: {name!r} is not one of {', '.join(SLOT_OUTPUTS)}")
    dtype = getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
    if dtype not in _ELEMENTS:
        raise refusal(f"dtype: {dtype} is not one of {', '.join(_ELEMENTS)}")
    return SLOT_OUTPUTS[name], *_ELEMENTS[dtype]


def slot_rows(engine: EngineHandle, name: str, replica: int, dtype: Any,
              row_stride: int | None) -> IdRows:
    """The rows of a slot output, or a refusal that names the argument."""
    role, code, numpy_type = slot_role(name, dtype)
    row_length = {"kept_tokens": engine.max_path + 1, "accepted_path": engine.max_path,
                  "accept_index": engine.max_path + 1,
                  "predicts": engine.max_draft + 1}.get(name, 1)
    row_stride = row_length if row_stride is None else integer(row_stride, "row_stride", 0, 2**40)
    role += integer(replica, "replica", 0, NUM_REPLICAS - 1)
    return IdRows(role, row_length, row_stride, code, numpy_type)


class SlotMemory(EngineHandle):
    """See the head of the file."""

    def __init__(self) -> None:
        self._slot_regions: dict[int, int] = {}  # by role

    @overload
    def next_tokens(self, address: None = None) -> Array: ...

    @overload
    def next_tokens(self, address: int) -> None: ...

    def next_tokens(self, address: int | None = None) -> Array | None:
        """Returns an int32 array of max_sequences ids. After every round it holds the last token of
        each sequence, at the sequence's .slot. An array from an earlier call is void. If an address
        is given, the ids lie in device memory there, and the call returns None. That memory may be
        freed once this was called again or the engine is closed."""
        if address is None:
            return self.slot_output("next_token")
        return self.slot_output("next_token", address)

    @overload
    def slot_output(self, name: str, address: None = None, dtype: Any = "int32", replica: int = 0,
                    row_stride: int | None = None) -> Array: ...

    @overload
    def slot_output(self, name: str, address: int, dtype: Any = "int32", replica: int = 0,
                    row_stride: int | None = None) -> None: ...

    def slot_output(self, name: str, address: int | None = None, dtype: Any = "int32",
                    replica: int = 0, row_stride: int | None = None) -> Array | None:
        """Returns an array with max_sequences rows that specd writes after every round, at the
        .slot of each sequence that got tokens: what the sequence's next forward reads.

        name: "next_token", "num_kept", "num_accepted" or "total_kept", one number for each slot;
          "kept_tokens" (max_path + 1 ids) and "accepted_path" (max_path nodes of the draft), then
          -1; "predicts" (max_draft + 1) and "accept_index" (max_path + 1), in SGLang's layout with
          the slot as the request.
        address: the rows lie in device memory there, and the call returns None. row_stride is the
          distance from row to row in elements; by default rows have no gaps.
        dtype: "int32" or "int64".
        replica: 1 .. 7 is a further copy, for a tensor-parallel rank of this process.

        An array from an earlier call for the same name and replica is void, and device memory may
        be freed, as for next_tokens. specd/memory.h says more."""
        rows = slot_rows(self, name, replica, dtype, row_stride)
        array = self._bind_rows(rows, address)
        return array[:, 0] if array is not None and rows.row_length == 1 else array

    @overload
    def draft_tokens(self, address: None = None) -> Array: ...

    @overload
    def draft_tokens(self, address: int) -> None: ...

    def draft_tokens(self, address: int | None = None) -> Array | None:
        """Returns an int32 array of max_sequences rows of max_draft ids, which drafts with by_slot
        read. A sequence's row is at its .slot. If an address is given, the rows lie in device
        memory there, without gaps, and the call returns None. The array becomes void, and the
        memory may be freed, as for next_tokens."""
        return self._bind_rows(IdRows(DRAFT_TOKENS, self.max_draft, self.max_draft), address)

    @overload
    def draft_tree(self, name: str = "parents", address: None = None,
                   dtype: Any = "int32") -> Array: ...

    @overload
    def draft_tree(self, name: str, address: int, dtype: Any = "int32") -> None: ...

    def draft_tree(self, name: str = "parents", address: int | None = None,
                   dtype: Any = "int32") -> Array | None:
        """Returns an array of max_sequences rows, which drafts with parents_by_slot read beside
        draft_tokens. A sequence's row is at its .slot.

        name: "parents", max_draft wide: the parent of each draft token, -1 for the kept tokens.
          "next_child" and "next_sibling", max_draft + 1 wide, take its place together: SGLang's
          retrieve_next_token and retrieve_next_sibling, where the kept tokens are node 0.
        address: the rows lie in device memory there, without gaps, and the call returns None.
        dtype: "int32" or "int64"."""
        if name not in DRAFT_TREE:
            raise refusal(f"name: {name!r} is not one of {', '.join(DRAFT_TREE)}")
        _, code, numpy_type = slot_role("next_token", dtype)
        length = self.max_draft + (name != "parents" and self.max_draft > 0)
        return self._bind_rows(IdRows(DRAFT_TREE[name], length, length, code, numpy_type), address)

    def _bind_rows(self, rows: IdRows, address: int | None) -> Array | None:
        self._in_flight.drain()
        region, array = bind_rows(self, rows, address)
        if rows.role in self._slot_regions:
            unregister(self, self._slot_regions[rows.role])
        self._slot_regions[rows.role] = region
        return array


def bind_rows(engine: EngineHandle, rows: IdRows,
              address: int | None) -> tuple[int, Array | None]:
    """Binds a row of integers for each slot. Returns their region and their array; None instead of
    the array if they lie at a device address."""
    num_rows = engine.max_sequences
    # specd_bind explains what is wrong with empty rows.
    stride = max(rows.row_length, rows.row_stride, 1)
    item_bytes = np.dtype(rows.numpy_type).itemsize
    region = s.Region()
    if address is None:
        size = item_bytes * num_rows * stride
        check(c.load().specd_alloc(engine.pointer, size, ctypes.byref(region)))
    else:  # the gap after the last row need not be there
        size = item_bytes * ((num_rows - 1) * stride + max(rows.row_length, 1))
        region.id = import_device(engine, address, size)
    tensor = c.initialised(s.Tensor, "specd_tensor_init")
    tensor.region, tensor.num_rows, tensor.row_stride = region.id, num_rows, rows.row_stride
    tensor.dtype = rows.dtype_code
    try:
        buffer = None if address is not None else lasting_buffer(region)
        check(c.load().specd_bind(engine.pointer, rows.role, ctypes.byref(tensor)))
    except (c.Error, OSError):
        unregister(engine, region.id)
        raise
    if buffer is None:
        return region.id, None
    array: Array = np.frombuffer(buffer, rows.numpy_type, num_rows * stride).reshape(num_rows, stride)
    return region.id, array[:, :rows.row_length]
