"""A stand-in for torch: the little of it that peers.py uses, over numpy and the pretended GPU.

Tensors that specd may read lie in memory of the pretended device (tests/tools/pretended_engine.cc).
What numpy computes, it computes at once; what specd puts on a stream runs when that is waited for,
or when a graph is replayed. Time passes only where it is said to: a replay takes REPLAY_US, one with
work of specd's SPECD_US, and writing over the caches FLUSH_US.
"""

import contextlib
import ctypes
import os
import types

import numpy as np

__version__ = "stand-in"
REPLAY_US, SPECD_US, FLUSH_US = 32.0, 8.0, 1000.0

float32, float16, bfloat16, uint8, int32 = "float32", "float16", "bfloat16", "uint8", "int32"

_device = ctypes.CDLL(os.environ["SPECD_LIBRARY"])
_device.pretended_allocate.restype = ctypes.c_uint64
_device.pretended_allocate.argtypes = [ctypes.c_uint64]
_device.pretended_run.argtypes = [ctypes.c_void_p, ctypes.c_int]


def _shape(sizes):
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes


def _on_device(shape, dtype):
    """An array in memory of the pretended device."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    address = _device.pretended_allocate(size)
    if address == 0:
        raise MemoryError(f"{size} bytes")
    buffer = (ctypes.c_char * size).from_address(address)
    return np.frombuffer(buffer, dtype).reshape(shape)


def _value(other):
    return other.value if isinstance(other, Tensor) else other


def _unwrapped(key):
    if isinstance(key, tuple):
        return tuple(_value(part) for part in key)
    return _value(key)


class Tensor:
    """An array; of bfloat16 its words."""

    def __init__(self, array, is_bfloat16=False):
        self.array, self.is_bfloat16 = np.asarray(array), is_bfloat16

    @property
    def value(self):
        if self.is_bfloat16:
            return (self.array.astype(np.uint32) << 16).view(np.float32)
        return self.array

    def to(self, dtype):
        if dtype == bfloat16:
            bits = np.ascontiguousarray(self.value, np.float32).view(np.uint32)
            rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
            return Tensor(rounded.astype(np.uint16), True)
        return Tensor(self.value.astype(dtype))

    def view(self, *shape):
        return Tensor(self.array.reshape(_shape(shape)), self.is_bfloat16)

    def __getitem__(self, key):
        return Tensor(self.array[_unwrapped(key)], self.is_bfloat16)

    def __setitem__(self, key, other):
        if self.is_bfloat16 and not (isinstance(other, Tensor) and other.is_bfloat16):
            raise TypeError("bfloat16 from another type")
        self.array[_unwrapped(key)] = other.array if isinstance(other, Tensor) else other

    def data_ptr(self):
        return self.array.ctypes.data

    def zero_(self):
        cuda.now_us += FLUSH_US

    def scatter_add_(self, dim, index, source):
        places = index.value
        values = np.take_along_axis(self.array, places, dim) + source.value
        np.put_along_axis(self.array, places, values.astype(self.array.dtype), dim)

    def gather(self, dim, index):
        return Tensor(np.take_along_axis(self.value, index.value, dim))

    def expand(self, *sizes):
        shape = [old if new == -1 else new for old, new in zip(self.array.shape, sizes)]
        return Tensor(np.broadcast_to(self.value, shape))

    def sum(self, dim=None):
        return Tensor(self.value.sum(axis=dim))

    def cumsum(self, dim):
        return Tensor(self.value.cumsum(axis=dim))

    def cumprod(self, dim):
        return Tensor(self.value.cumprod(axis=dim))

    def argmax(self, dim=None):
        return Tensor(self.value.argmax(axis=dim))

    def max(self):
        return Tensor(self.value.max())

    def clamp(self, min=None, max=None):  # pylint: disable=redefined-builtin
        return Tensor(np.clip(self.value, min, max))

    def clone(self):
        return Tensor(self.array.copy(), self.is_bfloat16)

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array), self.is_bfloat16)

    def cpu(self):
        return self

    def float(self):
        return Tensor(self.value.astype(np.float32))

    def double(self):
        return Tensor(self.value.astype(np.float64))

    def long(self):
        return Tensor(self.value.astype(np.int64))

    def tolist(self):
        return self.value.tolist()

    def __abs__(self):
        return Tensor(abs(self.value))

    def __bool__(self):
        return bool(self.value)

    def __float__(self):
        return float(self.value)

    def __int__(self):
        return int(self.value)

    def __index__(self):
        return int(self.value)

    def __len__(self):
        return len(self.array)

    __hash__ = None


def _operator(name):
    return lambda self, other: Tensor(getattr(self.value, name)(_value(other)))


for _name in ("add", "sub", "rsub", "mul", "rmul", "truediv", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Tensor, f"__{_name}__", _operator(f"__{_name}__"))


class Generator:
    def __init__(self, device=None):
        self.numpy = np.random.default_rng(0)

    def manual_seed(self, seed):
        self.numpy = np.random.default_rng(seed)
        return self


_coins = np.random.default_rng(5)


def empty(*sizes, device=None, dtype=float32):
    if dtype == uint8:  # that which is written over the caches
        return Tensor(np.empty(1, np.uint8))
    kind = {bfloat16: np.uint16}.get(dtype, dtype)
    return Tensor(_on_device(_shape(sizes), kind), dtype == bfloat16)


def zeros(*sizes, device=None, dtype=float32):
    made = empty(*sizes, device=device, dtype=dtype)
    made.array[:] = 0
    return made


def full(sizes, value, device=None):
    return Tensor(np.full(sizes, value, np.float32))


def randint(high, sizes, device=None, generator=None):
    return Tensor(generator.numpy.integers(high, size=sizes))


def randn(*sizes, device=None, generator=None):
    return Tensor(generator.numpy.standard_normal(sizes, np.float32))


def rand(*sizes, device=None, generator=None):
    return Tensor(generator.numpy.random(sizes, np.float32))


def softmax(tensor, dim):
    values = tensor.value
    weights = np.exp(values - values.max(axis=dim, keepdims=True))
    return Tensor(weights / weights.sum(axis=dim, keepdims=True))


def multinomial(probs, count, generator=None):
    sums = probs.value.astype(np.float64).cumsum(axis=-1)
    coins = _coins if generator is None else generator.numpy
    thresholds = coins.random((len(sums), count)) * sums[:, -1:]
    return searchsorted(Tensor(sums), Tensor(thresholds), right=True)


def searchsorted(sums, thresholds, right):
    rows, values = np.atleast_2d(sums.value), np.atleast_2d(thresholds.value)
    found = [np.searchsorted(row, value, "right" if right else "left")
             for row, value in zip(rows, values)]
    return Tensor(np.array(found).reshape(thresholds.value.shape))


class OutOfMemoryError(RuntimeError):
    pass


class _Stream:
    def __init__(self, address):
        self.cuda_stream = address

    def wait_stream(self, other):
        pass


class _Event:
    def __init__(self, enable_timing=False):
        self.at_us = None

    def record(self):
        self.at_us = cuda.now_us

    def synchronize(self):
        pass

    def elapsed_time(self, other):
        return (other.at_us - self.at_us) / 1000


class _Graph:
    """What is captured on a stream of its own."""

    def __init__(self):
        self.stream = cuda.Stream()
        cuda.captured.append(self.stream)

    def replay(self):
        cuda.now_us += SPECD_US if _run(self.stream, True) > 0 else REPLAY_US


def _run(stream, keep):
    count = _device.pretended_run(stream.cuda_stream or 1, int(keep))
    if count < 0:
        raise RuntimeError("the pretended device failed")
    return count


@contextlib.contextmanager
def _on_stream(stream):
    before, cuda.stream_in_use = cuda.stream_in_use, stream
    try:
        yield
    finally:
        cuda.stream_in_use = before


@contextlib.contextmanager
def _captured(graph):
    _device.pretended_set_capturing(1)
    try:
        with _on_stream(graph.stream):
            yield
    finally:
        _device.pretended_set_capturing(0)


def _new_stream():
    cuda.streams.append(_Stream(4096 * (len(cuda.streams) + 1)))
    return cuda.streams[-1]


def _synchronize():
    for stream in [_Stream(1), *cuda.streams]:
        if stream not in cuda.captured:
            _run(stream, False)


cuda = types.SimpleNamespace(
    now_us=0.0, streams=[], captured=[], stream_in_use=_Stream(0), is_available=lambda: True,
    get_device_name=lambda index: "pretended", empty_cache=lambda: None, Stream=_new_stream,
    current_stream=lambda: cuda.stream_in_use, stream=_on_stream, synchronize=_synchronize,
    CUDAGraph=_Graph, graph=_captured, Event=_Event, OutOfMemoryError=OutOfMemoryError)
