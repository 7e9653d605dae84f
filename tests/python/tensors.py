"""Tensor is a stand-in for another package's tensor: nothing but __dlpack__ and __dlpack_device__, over
structs that are written here after <dlpack/dlpack.h>, version 1.1."""

import ctypes

import numpy as np

INT, UINT, FLOAT, BFLOAT, BOOL, FLOAT8_E4M3FN = 0, 1, 2, 4, 6, 10
CPU, CUDA, METAL, ROCM = 1, 2, 8, 10


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", DLTensor), ("manager_ctx", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("manager_ctx", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("dl_tensor", DLTensor)]


_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


def _function(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
_get = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_name_of = _function("PyCapsule_GetName", ctypes.c_char_p, ctypes.c_void_p)
# What a capsule needs, by the address of its struct; a consumer that never uses one ends it.
_held = {}


class _Export:
    """One capsule's structs. `of` is what its memory belongs to."""

    def __init__(self, struct, arrays, of):
        self.struct, self.arrays, self.of = struct, arrays, of


@_DESTRUCTOR
def _end(capsule):
    _held.pop(_get(capsule, _name_of(capsule)), None)


class Tensor:
    """A tensor over the memory of a numpy array. dtype: (code, bits), by default the array's; the
    strides are the array's. is_old: a package from before DLPack 1.0. data: an address in device
    memory in the place of the array's."""

    def __init__(self, array, dtype=None, device=(CPU, 0), is_old=False, data=None, dense=False):
        self.array, self.device, self.is_old, self.dense = array, device, is_old, dense
        codes = {"i": INT, "u": UINT, "f": FLOAT, "b": BOOL}
        self.dtype = dtype or (codes[array.dtype.kind], 8 * array.dtype.itemsize)
        self.data = array.ctypes.data if data is None else data
        self.asked = []  # the keywords of each export

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.is_old and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.asked.append(options)
        shape = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        steps = [step // self.array.itemsize for step in self.array.strides]
        strides = (ctypes.c_int64 * self.array.ndim)(*steps)
        tensor = DLTensor(self.data, *self.device, self.array.ndim, *self.dtype, 1, shape,
                          None if self.dense else strides, 0)
        if self.is_old:
            struct, name = DLManagedTensor(tensor), b"dltensor"
        else:
            struct, name = DLManagedTensorVersioned(1, 1, None, None, 0, tensor), b"dltensor_versioned"
        address = ctypes.addressof(struct)
        _held[address] = _Export(struct, (shape, strides, name), self)
        return _new(address, name, _end)


def num_exports(of):
    """How many capsules of this tensor are alive."""
    return sum(export.of is of for export in _held.values())


class WithGradient(Tensor):
    """As torch has it: no export before detach."""

    requires_grad = True

    def detach(self):
        return Tensor(self.array, self.dtype)

    def __dlpack__(self, **options):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


def bfloat16_words(numbers):
    """The upper halves of float32 numbers that bfloat16 holds exactly."""
    words = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    assert not (words & 0xFFFF).any()
    return (words >> 16).astype(np.uint16)
