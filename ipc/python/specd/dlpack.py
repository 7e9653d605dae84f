"""Reads tensors of other packages through __dlpack__: torch, jax, cupy, in every dtype that rows can
have.

A tensor of the host becomes a numpy array over the same memory. For one in device memory there is
its address. No such package is imported: the protocol is that of <dlpack/dlpack.h>, version 1, and before.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ._library import refusal
from .bfloat import BFloat16

Array = npt.NDArray[Any]


class SupportsDlpack(Protocol):
    """A tensor of another package."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


# The stream of an export from CUDA memory: the tensor's package then orders nothing.
UNORDERED = -1

# DLDeviceType: where the CPU can read, and CUDA's own memory.
_HOST_DEVICES, CUDA = (1, 3, 11, 13), 2
_DEVICE_NAMES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm"}
_BFLOAT_CODE = 4
# By DLDataTypeCode and bits: the numpy type of the same elements; bfloat16 as its words.
_NUMPY_TYPES: dict[tuple[int, int], type[np.generic]] = {
    (0, 8): np.int8, (0, 16): np.int16, (0, 32): np.int32, (0, 64): np.int64,
    (1, 8): np.uint8, (1, 16): np.uint16, (1, 32): np.uint32, (1, 64): np.uint64,
    (2, 16): np.float16, (2, 32): np.float32, (2, 64): np.float64,
    (_BFLOAT_CODE, 16): np.uint16, (6, 8): np.bool_,
}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """The head of DLManagedTensorVersioned; the tensor follows it."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


# Functions of this file's own: those of ctypes.pythonapi belong to every package of the process.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi))


class Tensor(NamedTuple):
    """What a capsule says. The memory is there as long as `capsule` lives; strides count elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    numpy_type: type[np.generic]
    is_bfloat16: bool
    device: tuple[int, int]
    capsule: object

    @property
    def is_on_host(self) -> bool:
        return self.device[0] in _HOST_DEVICES

    def device_name(self) -> str:
        kind, number = self.device
        return f"{_DEVICE_NAMES.get(kind, f'DLPack device type {kind}')} device {number}"


def is_tensor(value: object) -> bool:
    """Whether it is a tensor of another package; numpy's arrays need no protocol."""
    return not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")


def read_tensor(value: Any, name: str, cuda_stream: int = UNORDERED) -> Tensor:
    """What __dlpack__ says of a tensor, or a refusal that begins with `name`. cuda_stream: the package
    of a CUDA tensor has this CUDA stream wait for the work that writes the tensor. UNORDERED: the rows
    are ready, or the caller names the CUDA stream that writes them."""
    if getattr(value, "requires_grad", False):
        value = value.detach()  # torch exports no tensor that has a gradient
    is_bool = str(getattr(value, "dtype", "")) == "torch.bool"
    if is_bool:  # torch 1 exports none, so that its bytes are exported
        value = value.view(sys.modules["torch"].uint8)
    device = tuple(int(part) for part in value.__dlpack_device__())
    options: dict[str, Any] = {"stream": cuda_stream} if device[0] == CUDA else {}
    try:
        try:
            capsule = value.__dlpack__(max_version=(1, 1), **options)
        except TypeError:  # a package from before DLPack 1.0
            capsule = value.__dlpack__(**options)
        tensor = _tensor_of(capsule, name)
    except (BufferError, RuntimeError) as error:
        raise refusal(f"{name}: the tensor cannot be exported: {error}") from None
    key = (tensor.code, tensor.bits)
    if key not in _NUMPY_TYPES or tensor.lanes != 1:
        raise refusal(f"{name}: a tensor of DLPack type code {key[0]} with {key[1]} bits and "
                      f"{tensor.lanes} lanes; convert it to float32, float16, bfloat16, an integer "
                      "type or bool")
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else _dense(shape)
    numpy_type = np.bool_ if is_bool else _NUMPY_TYPES[key]
    return Tensor((tensor.data or 0) + tensor.byte_offset, shape, strides, numpy_type,
                  tensor.code == _BFLOAT_CODE, (device[0], device[1]), capsule)


def as_array(value: Any, name: str) -> Any:
    """A tensor of the host as an array over the same memory; anything else as it is. A tensor in
    device memory is refused."""
    if not is_tensor(value):
        return value
    tensor = read_tensor(value, name)
    if not tensor.is_on_host:
        raise refusal(f"{name}: a tensor on {tensor.device_name()}, which the CPU cannot read; give "
                      "it as tensor.cpu()")
    return host_array(tensor)


def host_array(tensor: Tensor) -> Array:
    """The array over a tensor's memory, which lives as long as the array."""
    if 0 in tensor.shape:  # such a tensor need have no memory
        words: Array = np.zeros(tensor.shape, tensor.numpy_type)
    else:
        words = np.asarray(_Memory(tensor))
    return words.view(BFloat16) if tensor.is_bfloat16 else words


class _Memory:
    """Memory as numpy's array interface; an array over it keeps this object, and so the capsule."""

    def __init__(self, tensor: Tensor):
        self.capsule = tensor.capsule
        kind = np.dtype(tensor.numpy_type)
        self.__array_interface__ = {
            "version": 3, "data": (tensor.address, False), "shape": tensor.shape,
            "strides": tuple(stride * kind.itemsize for stride in tensor.strides),
            "typestr": kind.str}


def _tensor_of(capsule: object, name: str) -> _DLTensor:
    """The struct in a capsule. The capsule stays unused in the sense of the protocol, so that its
    own end frees the tensor."""
    if _is_valid(capsule, b"dltensor"):
        return _DLTensor.from_address(_pointer_in(capsule, b"dltensor"))
    if _is_valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(_pointer_in(capsule, b"dltensor_versioned"))
        if found.major != 1:
            raise refusal(f"{name}: __dlpack__ gave version {found.major}.{found.minor}, and 1 is "
                          "known here")
        tensor: _DLTensor = found.tensor
        return tensor
    raise refusal(f"{name}: __dlpack__ gave {capsule!r}, which is no capsule of a tensor")


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))
