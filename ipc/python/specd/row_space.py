"""RowSpace has the rows of one role: the caller's array, copies of other arrays, and what is bound.

The caller's array comes from Engine.rows and is used in place, and so is every view of its memory
that a tensor can describe. Any other array is copied into memory of its own, so that the caller's
rows are never written.
"""

import ctypes
import typing

import numpy as np

from . import _library as c
from . import _structs as s
from .arrays import (as_rows, dtype_code, integer, integers, item_size, numpy_view,
                     view_code)
from .mapping import lasting_buffer
from .ops import set_rules
from .regions import import_device, unregister
from ._library import check, refusal

_ROLES = {"target": 1, "draft": 2, "mask": 3}


class Binding(typing.NamedTuple):
    """A tensor: rows of a region. row_stride is in elements."""

    region: int
    offset_bytes: int
    num_rows: int
    code: int
    row_stride: int


class Parts(list):
    """Rows as one array for each draft."""


class Memory:
    """Shared memory that grows. Memory that an array of the caller lies in is never given back."""

    def __init__(self, engine, is_the_callers):
        self.engine, self.is_the_callers = engine, is_the_callers
        self.buffer, self.region = None, None
        self.outgrown = []  # regions that nothing but a binding may use

    def reserve(self, size, row_stride):
        """Makes room for `size` bytes."""
        if self.buffer is not None and len(self.buffer) >= size:
            return
        region = self._allocate(size, row_stride)
        try:
            buffer = lasting_buffer(region)
        except OSError:
            unregister(self.engine, region.id)
            raise
        if self.region is not None and not self.is_the_callers:
            self.outgrown.append(self.region)
        self.buffer, self.region = buffer, region.id

    def release_outgrown(self):
        while self.outgrown:
            unregister(self.engine, self.outgrown.pop())

    @property
    def address(self):
        return ctypes.addressof(self.buffer)

    def _allocate(self, size, row_stride):
        """Returns a region that holds `size` bytes. A session has few regions, so they grow
        eightfold, up to the largest round; larger ones grow twofold. If memory is short, the region
        has just `size` bytes."""
        held = 0 if self.buffer is None else len(self.buffer)
        largest_round = self.engine.max_batch * (self.engine.max_draft + 1) * row_stride * 4
        roomy = min(8 * held, largest_round) if size <= largest_round else 2 * held
        region = s.Region()
        allocate = c.load().specd_alloc
        if roomy <= size or allocate(self.engine.pointer, roomy, ctypes.byref(region)) < 0:
            check(allocate(self.engine.pointer, size, ctypes.byref(region)))
        return region


class RowSpace:
    """The rows of one role."""

    def __init__(self, engine, role):
        self.engine, self.role, self.rules = engine, role, {}
        self.own, self.copies = Memory(engine, True), Memory(engine, False)
        self.home = None  # the binding of the caller's rows: an array, or device memory
        self.array = None  # the caller's array, if home is one
        self.bound, self.bound_rules = None, None

    def columns(self):
        if self.role == "mask":
            return (self.engine.vocab_size + 31) // 32
        return self.engine.vocab_size

    # ---- the caller's rows

    def bind(self, num_rows, dtype, row_stride, rules):
        code, row_stride = self._shape(dtype, row_stride)
        num_rows = integer(num_rows, "num_rows", 1, 2**31 - 1)
        self.rules = dict(rules)
        self.own.reserve(num_rows * row_stride * item_size(code), row_stride)
        self._move(Binding(self.own.region, 0, num_rows, code, row_stride))
        self.array = self._view(self.own, num_rows, code, row_stride)
        return self.array

    def bind_device(self, address, num_rows, dtype, row_stride, rules):
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

    def _shape(self, dtype, row_stride):
        code = 0 if self.role == "mask" else dtype_code(dtype)
        return code, integer(row_stride or self.columns(), "row_stride")

    def _move(self, home):
        """Binds the caller's new rows, and lets go of device memory that was bound before."""
        before, was_device = self.home, self.home is not None and self.array is None
        self._bind(home)
        self.home = home
        if was_device:
            unregister(self.engine, before.region)

    # ---- the rows of a call

    def write(self, rows, need, or_more, rule, name="rows"):
        """Makes `rows` the rows of this role, and returns the index of each in the bound tensor.
        None: the caller's rows. There must be exactly `need` rows, unless or_more; the caller's
        whole array may have more."""
        parts = rows if isinstance(rows, Parts) else [rows]
        whole = rows is None or isinstance(rows, np.ndarray) and self._is_home(rows)
        if whole:
            self.go_home()
            indices = np.arange(self.bound.num_rows if self.bound else 0, dtype=np.uint32)
        else:
            indices = self._find(parts)
        if indices is None:
            array, code = as_rows(_stacked(parts, self.columns()), self.columns(), name)
        count = len(array if indices is None else indices)
        if count < need or count > need and not (whole or or_more):
            raise refusal(f"{name}: {count} where {need} are needed: {rule}")
        return self.copy(array, code) if indices is None else indices

    def copy(self, array, code):
        """Copies rows into memory of this package, and returns their indices."""
        count, columns = len(array), self.columns()
        self.copies.reserve(max(count, 1) * columns * item_size(code), columns)
        self._bind(Binding(self.copies.region, 0, max(count, 1), code, columns))
        self.copies.release_outgrown()
        self._view(self.copies, max(count, 1), code, columns)[:count] = array
        return np.arange(count, dtype=np.uint32)

    def go_home(self):
        """Binds the caller's rows again, if a call has bound others since."""
        if self.home is not None:
            self._bind(self.home)

    def holds(self, rows):
        """Tells whether these rows lie in the caller's array, so that they are used in place."""
        return isinstance(rows, np.ndarray) and self._binding_of(rows) is not None

    def _is_home(self, rows):
        if self.array is None or rows.ndim != 2 or rows.size == 0:
            return False
        same = _address(rows) == _address(self.array)
        return same and rows.shape == self.array.shape and rows.strides == self.array.strides

    def _find(self, parts):
        """The indices of rows that lie in the caller's memory, or None: they have to be copied."""
        found = [self._binding_of(part) for part in parts]
        if not found or None in found:
            return None
        in_home = [self._indices_in_home(binding) for binding in found]
        if all(indices is not None for indices in in_home):
            self.go_home()
            return np.concatenate(in_home)
        if len(found) > 1 or found[0].row_stride < self.columns():
            return None  # several tensors, or rows in an order that no tensor has
        self._bind(found[0])
        return np.arange(found[0].num_rows, dtype=np.uint32)

    def _binding_of(self, rows):
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
        offset = _address(rows) - self.own.address
        first = offset + min(0, stride * (len(rows) - 1))
        last = offset + max(0, stride * (len(rows) - 1)) + size * self.columns()
        if first < 0 or last > len(self.own.buffer) or offset % size or stride % size:
            return None
        if rows.shape[1] > 1 and rows.strides[1] != size:
            return None
        return Binding(self.own.region, offset, len(rows), code, stride // size)

    def _indices_in_home(self, binding):
        """The rows of a view as indices into the caller's array, or None."""
        step = self.home.row_stride * item_size(binding.code)
        stride = binding.row_stride * item_size(binding.code)
        if binding.code != self.home.code or binding.offset_bytes % step:
            return None
        if binding.num_rows > 1 and stride % step:
            return None
        indices = binding.offset_bytes // step + np.arange(binding.num_rows) * (stride // step)
        if indices.min() < 0 or indices.max() >= self.home.num_rows:
            return None
        return indices.astype(np.uint32)

    # ---- the tensor

    def _bind(self, binding):
        if self.bound == binding and self.bound_rules == self.rules:
            return
        tensor = c.initialised(s.Tensor, "specd_tensor_init")
        tensor.region, tensor.offset_bytes = binding.region, binding.offset_bytes
        tensor.dtype, tensor.num_rows = binding.code, binding.num_rows
        tensor.row_stride = binding.row_stride
        if self.role != "mask":
            set_rules(tensor, self.rules)
        check(c.load().specd_bind(self.engine.pointer, _ROLES[self.role], ctypes.byref(tensor)))
        self.bound, self.bound_rules = binding, dict(self.rules)

    def _view(self, memory, num_rows, code, row_stride):
        if self.role != "mask":
            return numpy_view(memory.buffer, num_rows, row_stride, self.engine.vocab_size, code)
        words = np.frombuffer(memory.buffer, np.int32, num_rows * row_stride)
        return words.reshape(num_rows, row_stride)[:, :self.columns()]


def bound_names(role, named, bound):
    """The bound rows that indices into the rows of a call name. An index beyond those rows becomes
    one that the library refuses."""
    named = integers(named, bound.dtype, f"{role}_rows").astype(np.int64)
    inside = (named >= 0) & (named < len(bound))
    outside = np.where(named == -1, -1, np.iinfo(bound.dtype).max) if role == "mask" else (
        np.iinfo(bound.dtype).max)
    if not len(bound):
        return np.broadcast_to(outside, named.shape)
    return np.where(inside, bound[np.where(inside, named, 0)], outside)


def _address(array):
    return array.__array_interface__["data"][0]


def _stacked(parts, columns):
    """The rows of all parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.zeros((0, columns), np.float32)
    arrays = [as_rows(part) for part in parts]
    if len({code for _, code in arrays}) > 1 and any(code == 1 for _, code in arrays):
        raise refusal("rows: bfloat16 for some drafts and another dtype for others")
    stacked = np.concatenate([array.view(np.ndarray) for array, _ in arrays])
    return stacked.view(type(arrays[0][0]))
