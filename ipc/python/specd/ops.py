"""Sampling functions that need no engine: rows in, probabilities or ids out (<specd/ops.h>).

Probabilities, cuts and draws are those of a sequence with the same parameters, bit for bit; the
coins of sample are its own. A row that holds NaN or no mass gives a row of NaN, or the id -1, and
never a token that was not drawn.

Rows are float32, float16 or bfloat16 (specd.bfloat16), read in place; float64 is converted. One row
may be passed as a vector. `indices` names the rows to read, in any order. A parameter is one value
for all results or an array with one for each. `rules`: kind ("logits", "probabilities",
"final_probabilities"), scale, cap, renormalise, and these two:

- device: where the call works, such as "cpu", "cuda:1" or a backend of load_backends. Without it a
  CUDA tensor's call works on the tensor's GPU, and any other on the CPU. Results do not depend on it.
- cuda_stream: on a GPU, the work of the call comes after the work that is on this CUDA stream. Without
  it a CUDA tensor's call comes after the work that the tensor's package has enqueued to write it (DLPack
  orders that work before CUDA's legacy default stream). Other rows are then complete at the call.

Results are arrays of the host.

>>> specd.sample(logits, seed=7, temperature=0.8, top_k=40, top_p=0.95)
>>> specd.top_p_renorm(probs, 0.9, kind="probabilities")
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as c
from . import _structs as s
from .arrays import KINDS, as_rows, integers, pointer
from .cuda_stream import CUDA_STREAM_LEGACY, stream_address
from .dlpack import UNORDERED, Tensor, as_array, is_tensor, read_tensor
from .lent_rows import device_rows
from .params import FILTER_ORDER
from ._library import check, refusal, text_bytes

if TYPE_CHECKING:
    from .row_types import Array, Ids, RowArray


def softmax(rows: RowArray, temperature: Any = 1.0, indices: Ids | None = None,
            **rules: Any) -> Array:
    """Probabilities."""
    source = _Rows(rows, indices, rules)
    return source.floats("specd_softmax", source.doubles(temperature, "temperature"))


def top_k_renorm(rows: RowArray, top_k: Any, indices: Ids | None = None, **rules: Any) -> Array:
    """Probabilities, 0 outside the k best ids."""
    source = _Rows(rows, indices, rules)
    return source.floats("specd_top_k_renorm", source.ints(top_k, "top_k"))


def top_p_renorm(rows: RowArray, top_p: Any, indices: Ids | None = None, **rules: Any) -> Array:
    """Probabilities, 0 outside the shortest prefix of the sorted ids whose mass reaches top_p."""
    source = _Rows(rows, indices, rules)
    return source.floats("specd_top_p_renorm", source.doubles(top_p, "top_p"))


def top_k_mask(rows: RowArray, top_k: Any, indices: Ids | None = None, **rules: Any) -> Array:
    """The elements themselves, -inf outside the k best ids."""
    source = _Rows(rows, indices, rules)
    return source.floats("specd_top_k_mask", source.ints(top_k, "top_k"))


def argmax(rows: RowArray, indices: Ids | None = None, **rules: Any) -> Array:
    """The id of the greatest element of each row, the lowest on a tie."""
    source = _Rows(rows, indices, rules)
    return source.ids("specd_argmax")


def sample(rows: RowArray, seed: Any = None, temperature: Any = 1.0, top_k: Any = 0, top_p: Any = 1.0,
           min_p: Any = 0.0, position: Any = None, filter_order: str = "sequential",
           indices: Ids | None = None, round_base: Any = None, **rules: Any) -> Array:
    """Draws one id from each row. The coin depends on seed, position (default: the index of the
    result) and round_base (default: 0) alone, and no coin of a sequence equals it. A drafter may
    therefore use the seed of its sequence. It sets position to the draft token's position in the
    output, and round_base to the tokens kept before the round: otherwise the next round meets the
    coins of rejected drafts, and verify="block" loses the target's law."""
    source = _Rows(rows, indices, rules)
    sampling = c.initialised(s.Sampling, "specd_sampling_init")
    if filter_order not in FILTER_ORDER:
        raise refusal(f"filter_order: {filter_order!r} is not one of {', '.join(FILTER_ORDER)}")
    sampling.filter_order = FILTER_ORDER[filter_order]
    sampling.temperature = source.doubles(temperature, "temperature")
    sampling.top_k = source.ints(top_k, "top_k")
    sampling.top_p = source.doubles(top_p, "top_p")
    sampling.min_p = source.doubles(min_p, "min_p")
    if seed is not None:
        sampling.seed = source.words(seed, "seed")
    if position is not None:
        sampling.position = source.words(position, "position")
    if round_base is not None:
        sampling.round_base = source.words(round_base, "round_base")
    return source.ids("specd_sample", ctypes.byref(sampling))


class _Rows:
    """The rows of one call, and the arrays that must outlive it."""

    def __init__(self, rows: Any, indices: Any, rules: Mapping[str, Any]):
        struct = c.initialised(s.Rows, "specd_rows_init")
        self.kept: list[Any] = []
        self.struct = struct
        rules = self._take_place(rules)
        # If the caller names no CUDA stream, the tensor's package orders its work before this one.
        stream = UNORDERED if struct.cuda_stream else CUDA_STREAM_LEGACY
        tensor = read_tensor(rows, "rows", stream) if is_tensor(rows) else None
        if tensor is not None and not tensor.is_on_host:
            struct.cuda_stream = struct.cuda_stream or CUDA_STREAM_LEGACY
            shape = self._take_device_rows(tensor)
        else:
            shape = self._take_host_rows(as_array(rows, "rows"))
        self.is_vector = len(shape) == 1 and indices is None
        self.num_results = int(struct.num_rows)
        if indices is not None:
            chosen = np.asarray(as_array(indices, "indices"))
            if chosen.size and (chosen.dtype.kind not in "iu" or chosen.min() < 0
                                or chosen.max() >= struct.num_rows):
                raise refusal(f"indices: a row that is not in 0 .. {struct.num_rows - 1}")
            chosen = np.ascontiguousarray(chosen, dtype=np.uint32)
            self.kept.append(chosen)
            struct.indices, struct.num_indices = pointer(chosen, ctypes.c_uint32), len(chosen)
            self.num_results = len(chosen)
        set_rules(struct, rules)

    def _take_host_rows(self, rows: Any) -> tuple[int, ...]:
        """Returns the shape of what was given."""
        array, dtype = as_rows(rows)
        struct = self.struct
        struct.vocab_size, struct.num_rows = array.shape[1], array.shape[0]
        struct.row_stride = (array.strides[0] // array.dtype.itemsize if array.shape[0] > 1
                             else array.shape[1])
        struct.data, struct.dtype = array.ctypes.data, dtype
        self.kept.append(array)
        return np.shape(rows)

    def _take_device_rows(self, tensor: Tensor) -> tuple[int, ...]:
        columns = tensor.shape[-1] if tensor.shape else 0
        rows = device_rows(tensor, columns, "rows")
        struct = self.struct
        struct.vocab_size, struct.num_rows = columns, rows.num_rows
        struct.row_stride, struct.data, struct.dtype = rows.row_stride, rows.address, rows.code
        self.kept.append(tensor)
        return tensor.shape

    def _take_place(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        """Takes device and cuda_stream; returns the other rules."""
        others = dict(rules)
        device, stream = others.pop("device", None), others.pop("cuda_stream", None)
        if device is not None:
            if not isinstance(device, str):
                raise refusal(f"device: {device!r} is no text such as \"cpu\" or \"cuda:1\"")
            self.struct.device = text_bytes(device, "device")
        if stream is not None:
            self.struct.cuda_stream = stream_address(stream)
        return others

    def doubles(self, values: Any, name: str) -> Any:
        return self._parameter(values, np.float64, ctypes.c_double, s.RowDoubles, name)

    def ints(self, values: Any, name: str) -> Any:
        return self._parameter(values, np.int32, ctypes.c_int32, s.RowInts, name)

    def words(self, values: Any, name: str) -> Any:
        return self._parameter(values, np.uint64, ctypes.c_uint64, s.RowWords, name)

    def _parameter(self, values: Any, dtype: Any, ctype: Any, struct: Any, name: str) -> Any:
        values = as_array(values, name)
        if np.ndim(values) not in (0, 1) or np.ndim(values) == 1 and len(values) != self.num_results:
            raise refusal(f"{name}: one value, or one for each of {self.num_results} results")
        try:
            array = (np.array(values, dtype=dtype) if dtype is np.float64
                     else integers(values, dtype, name))
        except (OverflowError, TypeError, ValueError) as error:
            raise refusal(f"{name}: {error}") from None
        self.kept.append(array)
        return struct(pointer(array, ctype), np.ndim(values))

    def floats(self, function: str, *parameters: Any) -> Array:
        out = np.empty((self.num_results, self.struct.vocab_size), np.float32)
        return self._call(function, parameters, out, ctypes.c_float)

    def ids(self, function: str, *parameters: Any) -> Array:
        return self._call(function, parameters, np.empty(self.num_results, np.int32),
                          ctypes.c_int32)

    def _call(self, function: str, parameters: tuple[Any, ...], out: Array,
              ctype: Any) -> Array:
        check(getattr(c.load(), function)(ctypes.byref(self.struct), *parameters,
                                          pointer(out, ctype), None))
        answer: Array = out[0] if self.is_vector else out
        return answer


def set_rules(struct: Any, rules: Mapping[str, Any]) -> None:
    """kind, scale, cap and renormalise of a specd_rows or a specd_tensor."""
    for name, value in rules.items():
        if name == "kind":
            if value not in KINDS:
                raise refusal(f"kind: {value!r} is not one of {', '.join(KINDS)}")
            struct.kind = KINDS[value]
        elif name in ("scale", "cap"):
            setattr(struct, name, value)
        elif name == "renormalise":
            struct.renormalise = int(bool(value))
        else:
            raise refusal(f"{name}: no such argument; rows take kind, scale, cap and renormalise, and "
                          "those of a library call device and cuda_stream")
