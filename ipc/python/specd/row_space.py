"""RowSpace has the rows of one role: the caller's array, copies of other arrays, and what is bound.

The caller's array comes from Engine.rows and is used in place, and so is every view of its memory
that a tensor can describe. So is a tensor of another package that lies in device memory. Any other
array is copied into memory of its own, so that the caller's rows are never written.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _library as c
from . import _structs as s
from .arrays import address, as_rows, dtype_code, integer, integers, item_size, numpy_view, view_code
from .dlpack import Array, Tensor, host_array, is_tensor, read_tensor
from .in_flight import InTheWay
from .lent_rows import LentRows, device_rows
from .ops import set_rules
from .regions import import_device, unregister
from .row_memory import CopiedRows, Memory
from ._library import check, refusal

if TYPE_CHECKING:
    from .engine_handle import EngineHandle

_ROLES = {"target": 1, "draft": 2, "mask": 3}
_DRAFT_MAP = 17
_MAP_KINDS = {"map_ids": 0, "map_offsets": 1}


class Binding(NamedTuple):
    """A tensor: rows of a region. row_stride is in elements."""

    region: int
    offset_bytes: int
    num_rows: int
    code: int
    row_stride: int


class Parts(list[Any]):
    """Rows as one array for each draft."""


class RowSpace:
    """The rows of one role."""

    def __init__(self, engine: EngineHandle, role: str):
        self.engine, self.role = engine, role
        self.rules: dict[str, Any] = {}
        self.num_mapped = 0  # the columns of draft rows that a map names; 0: as many as ids
        self.own, self.copies = Memory(engine, True), Memory(engine, False)
        self.copied, self.lent = CopiedRows(), LentRows(engine)
        # the binding of the caller's rows: an array, or device memory
        self.home: Binding | None = None
        self.array: Array | None = None  # the caller's array, if home is one
        self.bound: Binding | None = None
        self.bound_rules: dict[str, Any] | None = None
        self.hoped_rows = 0  # rows of the copies that rounds in flight could have used at once

    def columns(self) -> int:
        if self.role == "mask":
            return (self.engine.vocab_size + 31) // 32
        return self.num_mapped or self.engine.vocab_size

    # ---- the caller's rows

    def bind(self, num_rows: int, dtype: Any, row_stride: int | None,
             rules: Mapping[str, Any]) -> Array:
        code, row_stride = self._shape(dtype, row_stride)
        num_rows = integer(num_rows, "num_rows", 1, 2**31 - 1)
        self.rules = dict(rules)
        self.own.reserve(num_rows * row_stride * item_size(code), row_stride)
        self._move(Binding(self.own.region, 0, num_rows, code, row_stride))
        self.array = self._view(self.own, num_rows, code, row_stride)
        return self.array

    def bind_device(self, address: int, num_rows: int, dtype: Any, row_stride: int | None,
                    rules: Mapping[str, Any]) -> None:
        """Binds rows that are in device memory already. Memory that was bound before may be freed
        afterwards."""
        code, row_stride = self._shape(dtype, row_stride)
        num_rows = integer(num_rows, "num_rows", 1, 2**31 - 1)
        self.rules = dict(rules)
        size = ((num_rows - 1) * row_stride + self.columns()) * item_size(code)
        region = import_device(self.engine, address, size)
        try:
            self._move(Binding(region, 0, num_rows, code, row_stride))
        except c.Error:
            unregister(self.engine, region)
            raise
        self.array = None

    def bind_map(self, ids: Any, are_offsets: bool) -> None:
        """Binds the ids of the columns of draft rows. The library unbinds the rows of before. None:
        rows have all columns again."""
        self.bound = None  # whatever becomes of the call
        if ids is None:  # the next binding says so to the library; it lets go of device memory
            self.num_mapped = 0
            if self.array is not None:
                self.home = self.array = None
            return
        elements = np.atleast_1d(integers(ids, np.int64, "ids"))
        if elements.ndim != 1:
            raise refusal(f"ids: {elements.ndim} dimensions where a list is needed, an id for each "
                          "column")
        memory = Memory(self.engine, False)
        memory.reserve(max(elements.nbytes, 1), max(len(elements), 1))
        try:
            np.frombuffer(memory.buffer, np.int64, len(elements))[:] = elements
            tensor = c.initialised(s.Tensor, "specd_tensor_init")
            tensor.region, tensor.dtype, tensor.num_rows = memory.region, 4, 1
            tensor.kind = _MAP_KINDS["map_offsets" if are_offsets else "map_ids"]
            tensor.columns = len(elements)
            check(c.load().specd_bind(self.engine.pointer, _DRAFT_MAP, ctypes.byref(tensor)))
        finally:
            unregister(self.engine, memory.region)
        before = self.home if self.array is None else None
        self.num_mapped = len(elements)
        self.home = self.array = None
        if before is not None:
            unregister(self.engine, before.region)

    def _shape(self, dtype: Any, row_stride: int | None) -> tuple[int, int]:
        code = 0 if self.role == "mask" else dtype_code(dtype)
        return code, integer(row_stride or self.columns(), "row_stride")

    def _move(self, home: Binding) -> None:
        """Binds the caller's new rows, and lets go of device memory that was bound before."""
        before = self.home if self.array is None else None
        self._bind(home)
        self.home = home
        if before is not None:
            unregister(self.engine, before.region)

    # ---- the rows of a call

    def write(self, rows: Any, need: int, or_more: bool, rule: str, name: str = "rows",
              may_copy: bool = True) -> Array:
        """Makes `rows` the rows of this role, and returns the index of each in the bound tensor.
        None: the caller's rows. There must be exactly `need` rows, unless or_more; the caller's
        whole array may have more."""
        if is_tensor(rows):
            tensor = read_tensor(rows, name)
            if not tensor.is_on_host:
                return self._lend(tensor, need, or_more, rule, name)
            rows = host_array(tensor)
        parts = rows if isinstance(rows, Parts) else [rows]
        whole = rows is None or isinstance(rows, np.ndarray) and self._is_home(rows)
        indices: Array | None
        if whole:
            self.go_home()
            indices = np.arange(self.bound.num_rows if self.bound else 0, dtype=np.uint32)
        else:
            indices = self._find(parts)
        if indices is not None:
            _check_count(len(indices), need, whole or or_more, rule, name)
            return indices
        array, code = as_rows(_stacked(parts, self.columns(), name), self.columns(), name)
        _check_count(len(array), need, or_more, rule, name)
        if len(array) and not may_copy:
            raise copied_now(name, "give None, a view of engine.rows, or a tensor in device memory")
        return self.copy(array, code)

    def _lend(self, tensor: Tensor, need: int, or_more: bool, rule: str, name: str) -> Array:
        """Binds a tensor in device memory, as it lies there."""
        rows = device_rows(tensor, self.columns(), name)
        _check_count(rows.num_rows, need, or_more, rule, name)
        held = self.lent.region_of(rows)
        if held is None:
            self.engine._in_flight.check_free()
        region = self.lent.make_region(rows) if held is None else held
        binding = Binding(region, 0, rows.num_rows, rows.code, rows.row_stride)
        try:
            self._bind(binding)
        finally:
            if self.bound == binding:  # an interrupt may have come after that
                self.lent.keep(rows, region, tensor)
            elif held is None:
                unregister(self.engine, region)
        return np.arange(rows.num_rows, dtype=np.uint32)

    def copy(self, array: Array, code: int) -> Array:
        """Copies rows into memory of this package, and returns their indices. Rounds in flight keep
        their rows: the copies lie beside them, or InTheWay says that there is no room."""
        in_flight, columns, count = self.engine._in_flight, self.columns(), max(len(array), 1)
        row_bytes = columns * item_size(code)
        if not in_flight.pending:
            # room for as many rounds as were in flight when there was too little
            if not self.copies.reserve(count * row_bytes, columns, self.hoped_rows * row_bytes):
                self.hoped_rows = 0
        num_rows = self.copies.size_bytes() // row_bytes
        begin = self.copied.free_place(count, num_rows, in_flight.pending)
        if begin is None:
            self.hoped_rows = count + self.copied.num_taken(in_flight.pending)
            raise InTheWay(in_flight.newest())
        self._bind(Binding(self.copies.region, 0, num_rows, code, columns))
        self.copies.release_outgrown()
        self.copied.take(in_flight.upcoming_number(), begin, count)
        rows = self._view(self.copies, num_rows, code, columns)
        rows[begin:begin + len(array)] = array
        return np.arange(begin, begin + len(array), dtype=np.uint32)

    def go_home(self) -> None:
        """Binds the caller's rows again, if a call has bound others since."""
        if self.home is not None:
            self._bind(self.home)

    def name_home(self) -> None:
        """The same for a call that names rows and gives none: copies of an earlier call have no names."""
        self.go_home()
        if self.home is None and self.copies.buffer is not None and self.bound and (
                self.bound.region == self.copies.region):
            raise refusal(f"{self.role}: the call names rows of engine.rows(n, '{self.role}'), and "
                          "there are none; ask for them, or give the rows to the call")

    def holds(self, rows: Any) -> bool:
        """Tells whether these rows lie in the caller's array, so that they are used in place."""
        return isinstance(rows, np.ndarray) and self._binding_of(rows) is not None

    def first_of(self, rows: Any) -> int | None:
        """The place of the first of these rows in the caller's array, in which they lie one after another.
        None: `write` finds out how they lie."""
        array, home = self.array, self.home
        # A BFloat16 has the dtype of its words, which as words are refused.
        if type(rows) is not np.ndarray or type(array) is not np.ndarray or home is None or (
                rows.dtype is not array.dtype or rows.shape[1:] != array.shape[1:] or not len(rows)
                or not rows.flags.carray or not array.flags.c_contiguous):
            return None
        row_bytes = array.strides[0]
        # It says the address in half the time of numpy's own words.
        first, rest = divmod(ctypes.addressof(ctypes.c_char.from_buffer(rows.data)) - self.own.address, row_bytes)
        return first if 0 <= first <= home.num_rows - len(rows) and not rest else None

    def is_in_place(self) -> bool:
        """Tells whether the bound rows lie in the caller's memory."""
        return (self.bound is not None and self.own.buffer is not None
                and self.bound.region == self.own.region)

    def _is_home(self, rows: Array) -> bool:
        if self.array is None or rows.ndim != 2 or rows.size == 0:
            return False
        is_same = rows is self.array or (
            address(rows) == address(self.array) and rows.shape == self.array.shape
            and rows.strides == self.array.strides)
        return (is_same and self.home is not None
                and view_code(rows, self.role == "mask") == self.home.code)

    def _find(self, parts: Sequence[Any]) -> Array | None:
        """The indices of rows that lie in the caller's memory, or None: they have to be copied."""
        found = [binding for part in parts if (binding := self._binding_of(part)) is not None]
        if not found or len(found) < len(parts):
            return None
        in_home = [indices for binding in found
                   if (indices := self._indices_in_home(binding)) is not None]
        if len(in_home) == len(found):
            self.go_home()
            return np.concatenate(in_home)
        if len(found) > 1 or found[0].row_stride < self.columns():
            return None  # several tensors, or rows in an order that no tensor has
        self._bind(found[0])
        return np.arange(found[0].num_rows, dtype=np.uint32)

    def _binding_of(self, rows: Any) -> Binding | None:
        """The tensor that a view of the caller's memory is; its stride may be negative. None if the
        array lies elsewhere, or no tensor has its elements in this order."""
        if self.array is None or not isinstance(rows, np.ndarray) or rows.size == 0:
            return None
        code = view_code(rows, self.role == "mask")
        if rows.ndim == 1:
            rows = rows[np.newaxis, :]
        if code is None or rows.ndim != 2 or rows.shape[1] != self.columns():
            return None
        size = item_size(code)
        stride = rows.strides[0] if len(rows) > 1 else size * self.columns()
        offset = address(rows) - self.own.address
        first = offset + min(0, stride * (len(rows) - 1))
        last = offset + max(0, stride * (len(rows) - 1)) + size * self.columns()
        if first < 0 or last > len(self.own.buffer) or offset % size or stride % size:
            return None
        if rows.shape[1] > 1 and rows.strides[1] != size:
            return None
        return Binding(self.own.region, offset, len(rows), code, stride // size)

    def _indices_in_home(self, binding: Binding) -> Array | None:
        """The rows of a view as indices into the caller's array, or None."""
        if self.home is None:
            return None
        step = self.home.row_stride * item_size(binding.code)
        stride = binding.row_stride * item_size(binding.code)
        if binding.code != self.home.code or binding.offset_bytes % step:
            return None
        if binding.num_rows > 1 and stride % step:
            return None
        first, apart = binding.offset_bytes // step, stride // step
        last = first + (binding.num_rows - 1) * apart
        if min(first, last) < 0 or max(first, last) >= self.home.num_rows:
            return None
        return (first + np.arange(binding.num_rows) * apart).astype(np.uint32)

    # ---- the tensor

    def _bind(self, binding: Binding) -> None:
        if self.bound == binding and self.bound_rules == self.rules:
            return
        self.engine._in_flight.check_free()
        tensor = c.initialised(s.Tensor, "specd_tensor_init")
        tensor.region, tensor.offset_bytes = binding.region, binding.offset_bytes
        tensor.dtype, tensor.num_rows = binding.code, binding.num_rows
        tensor.row_stride = binding.row_stride
        if self.role != "mask":
            tensor.columns = self.columns()
            set_rules(tensor, self.rules)
        pointer, rules = self.engine.pointer, dict(self.rules)
        codes: list[int] = []
        self.bound = None  # until it is known: an interrupt may come in between
        try:
            c.call_into(codes, c.load().specd_bind, pointer, _ROLES[self.role], ctypes.byref(tensor))
        finally:
            if codes == [0]:
                self.bound, self.bound_rules = binding, rules
        check(codes[0])
        self.lent.release_but(binding.region)

    def _view(self, memory: Memory, num_rows: int, code: int, row_stride: int) -> Array:
        if self.role != "mask":
            return numpy_view(memory.buffer, num_rows, row_stride, self.columns(), code)
        words: Array = np.frombuffer(memory.buffer, np.int32, num_rows * row_stride)
        return words.reshape(num_rows, row_stride)[:, :self.columns()]


def copied_now(name: str, remedy: str) -> c.Error:
    """The refusal of an array that a round on a CUDA stream would copy at the call."""
    return refusal(f"{name}: this array would be copied now, before the round's CUDA stream comes to it; "
                   f"{remedy}")


MASKS_IN_PLACE = "write the masks into engine.rows(n, 'mask')"


def bound_names(role: str, named: Any, bound: Array) -> Array:
    """The bound rows that indices into the rows of a call name. An index beyond those rows becomes
    one that the library refuses."""
    named = integers(named, bound.dtype, f"{role}_rows").astype(np.int64)
    inside = (named >= 0) & (named < len(bound))
    outside = np.where(named == -1, -1, np.iinfo(bound.dtype).max) if role == "mask" else (
        np.iinfo(bound.dtype).max)
    if not len(bound):
        return np.broadcast_to(outside, named.shape)
    rows: Array = np.where(inside, bound[np.where(inside, named, 0)], outside)
    return rows


def _check_count(count: int, need: int, or_more: bool, rule: str, name: str) -> None:
    if count < need or count > need and not or_more:
        raise refusal(f"{name}: {count} where {need} are needed: {rule}")


def _stacked(parts: Sequence[Any], columns: int, name: str) -> Any:
    """The rows of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.zeros((0, columns), np.float32)
    arrays = [as_rows(part, name=name) for part in parts]
    if len({code for _, code in arrays}) > 1 and any(code == 1 for _, code in arrays):
        raise refusal(f"{name}: bfloat16 for some drafts and another dtype for others")
    stacked = np.concatenate([array.view(np.ndarray) for array, _ in arrays])
    return stacked.view(type(arrays[0][0]))
