"""The arrays that a round of a batch writes its results to: views of one block of memory."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from . import _structs as s
from .arrays import address
from .dlpack import Array
from .results import SCORE

# By field of specd_batch_results: the type of its elements here. An unsigned -1 of C becomes -1.
_FOR_EACH_SEQUENCE: dict[str, type[np.generic]] = {
    "status": np.uint32, "finish_reason": np.uint32, "num_accepted": np.uint32,
    "num_kept": np.uint32, "total_kept": np.uint32, "stop_token": np.int32, "detail": np.uint32,
    "bad_row": np.int32, "verify": np.uint32, "cumulative_logprob": np.float64}
NUM_NUMBERS = len(_FOR_EACH_SEQUENCE)
# The arrays that every block has.
NAMES = (*_FOR_EACH_SEQUENCE, "tokens", "path", "sequences")
# Elements of every type are aligned at multiples of this.
_ALIGN_BYTES = 16
_WORD_BYTES = 8


class View(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset_bytes: int


class _Layout(NamedTuple):
    """Where the arrays lie in a block. The word words[i] of specd_batch_results is the pointer to what
    lies at offsets[i]."""

    views: dict[str, View]
    words: Array
    offsets: Array
    size_bytes: int


class ResultBlock:
    """The arrays of one round, by their names in specd_batch_results, and its `sequences`. They keep the
    memory, which no other round gets. `answer` points to them. `views` says where they lie in it."""

    def __init__(self, answer: s.BatchResults, count: int, width: int, num_scores: int):
        layout = _layout(count, width, num_scores)
        answer.max_results, answer.tokens_stride, answer.scores_stride = count, width, num_scores
        self.memory, self.views = np.empty(layout.size_bytes, np.uint8), layout.views
        words = np.frombuffer(memoryview(answer), np.uint64)
        words[layout.words] = layout.offsets + np.uint64(address(self.memory))

    def array(self, name: str) -> Array:
        return array_in(self.memory, self.views[name])


def array_in(memory: Any, view: View) -> Array:
    """The array that lies there. An array is made when it is asked for: to make it takes longer than a
    small round's part in it."""
    return np.ndarray(view.shape, view.dtype, memory, view.offset_bytes)


@functools.lru_cache
def _layout(count: int, width: int, num_scores: int) -> _Layout:
    """The layout for `count` sequences with up to `width` tokens, and num_scores scores of each
    token (0: the results have no scores)."""
    arrays: list[tuple[str, tuple[int, ...], type[np.generic] | np.dtype[np.generic]]] = [
        (name, (count,), dtype) for name, dtype in _FOR_EACH_SEQUENCE.items()]
    arrays += [("tokens", (count, width), np.int32), ("path", (count, width), np.int32)]
    if num_scores:
        arrays += [("scores_per_token", (count,), np.uint32),
                   ("scores", (count, width, num_scores), SCORE)]
    pointers = [name for name, *_ in arrays]
    arrays.append(("sequences", (count,), np.uint64))
    views, size_bytes = {}, 0
    for name, shape, kind in arrays:
        views[name] = View(shape, np.dtype(kind), size_bytes)
        used_bytes = int(np.prod(shape)) * np.dtype(kind).itemsize
        size_bytes += -(-used_bytes // _ALIGN_BYTES) * _ALIGN_BYTES
    words = [getattr(s.BatchResults, name).offset // _WORD_BYTES for name in pointers]
    offsets = [views[name].offset_bytes for name in pointers]
    return _Layout(views, np.array(words), np.array(offsets, np.uint64), size_bytes)
