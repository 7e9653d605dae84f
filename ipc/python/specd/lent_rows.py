"""LentRows is the device memory of a tensor that a call brings as the rows of a role."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .arrays import BFLOAT16, FLOAT16, FLOAT32, item_size
from .dlpack import CUDA, Tensor
from .regions import import_device, unregister
from ._library import refusal

if TYPE_CHECKING:
    from .engine_handle import EngineHandle


class DeviceRows(NamedTuple):
    """Rows of a tensor in device memory; row_stride is in elements."""

    address: int
    num_rows: int
    code: int
    row_stride: int
    size_bytes: int


class LentRows:
    """One region at most, with the tensor that its memory belongs to. The tensor lives as long as
    the region, so its memory is not given to another meanwhile."""

    def __init__(self, engine: EngineHandle):
        self._engine = engine
        self._memory: tuple[int, int] | None = None  # address and size of the region
        self._region = 0
        self._tensor: Tensor | None = None

    def region_of(self, rows: DeviceRows) -> int | None:
        """The region of this memory, if it is the one that is held."""
        return self._region if self._memory == (rows.address, rows.size_bytes) else None

    def make_region(self, rows: DeviceRows) -> int:
        return import_device(self._engine, rows.address, rows.size_bytes)

    def keep(self, rows: DeviceRows, region: int, tensor: Tensor) -> None:
        """The region is bound now; the one before is not."""
        before = None if self._memory is None else (self._region, self._tensor)
        # before the call: an interrupt or an error of it loses no tensor that is bound
        self._memory, self._region = (rows.address, rows.size_bytes), region
        self._tensor = tensor
        if before is not None and before[0] != region:
            unregister(self._engine, before[0])

    def release_but(self, region: int) -> None:
        """Gives the memory back, unless it is this region. REQUIRES: no role is bound to it."""
        if self._memory is not None and self._region != region:
            self._memory = None  # before the call: an error of it is said once
            unregister(self._engine, self._region)
            self._tensor = None

    def drop_tensor(self) -> None:
        """REQUIRES: the engine is closed."""
        self._tensor = None


def device_rows(tensor: Tensor, columns: int, name: str) -> DeviceRows:
    """The rows of a tensor that is not in host memory, or a refusal that says what to give."""
    if tensor.device[0] != CUDA:
        raise refusal(f"{name}: a tensor on {tensor.device_name()}; rounds read memory of the host and "
                      "of CUDA devices: give it as tensor.cpu()")
    codes: dict[type[np.generic], int] = {np.float32: FLOAT32, np.float16: FLOAT16}
    if not tensor.is_bfloat16 and tensor.numpy_type not in codes:
        raise refusal(f"{name}: a tensor of {np.dtype(tensor.numpy_type)} in device memory; rows there "
                      "are float32, float16 or bfloat16")
    code = BFLOAT16 if tensor.is_bfloat16 else codes[tensor.numpy_type]
    shape, strides = tensor.shape, tensor.strides
    if len(shape) == 1:
        shape, strides = (1, *shape), (columns, *strides)
    if len(shape) != 2 or shape[0] == 0 or shape[1] != columns:
        raise refusal(f"{name}: a tensor of shape {tensor.shape}, where rows of {columns} elements are "
                      "needed")
    row_stride = strides[0] if shape[0] > 1 else columns
    if strides[1] != 1 and columns > 1 or row_stride < columns:
        raise refusal(f"{name}: a tensor in device memory is read where it is, and with the strides "
                      f"{tensor.strides} its rows do not lie one after another; give it as "
                      "tensor.contiguous()")
    size = ((shape[0] - 1) * row_stride + columns) * item_size(code)
    return DeviceRows(tensor.address, shape[0], code, row_stride, size)
