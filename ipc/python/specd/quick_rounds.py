"""QuickRounds does rounds like the one before with what that one has left, for Engine.verify and
Engine.verify_batch.

A forward clears the caches, so a call for a few sequences costs as much as the memory that it touches:
each object and each function of numpy is some lines of it. Structs, pointers and the rows' numbers are
therefore made once, and a round copies its ids into memory that they point to.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as c
from . import _structs as s
from . import results
from .arrays import id_array, set_pointer
from .in_flight import SLICE_MS, Submitted
from .result_block import NUM_NUMBERS, ResultBlock

if TYPE_CHECKING:
    from .dlpack import Array
    from .results import Result
    from .round_calls import RoundCalls
    from .row_space import Binding

_UINT64, _INT32 = np.dtype(np.uint64), np.dtype(np.int32)


class QuickRounds:
    """The QuickRound of an engine. num_scores: the scores of a token that results have room for."""

    def __init__(self, engine: RoundCalls, num_scores: int):
        self._engine, self._in_flight, self._num_scores = engine, engine._in_flight, num_scores
        self._round: QuickRound | None = None
        self._shape: tuple[int, int] | None = None  # of the last round

    def forget(self) -> None:
        self._round = self._shape = None

    def run_arrays(self, rows: Any, sequences: Any, tokens: Any) -> QuickRound | None:
        """Does the round, and returns it with its results. None: nothing was done, because the round
        is unlike the one before, or another one is in flight."""
        if type(sequences) is not np.ndarray or sequences.dtype is not _UINT64 or sequences.ndim != 1:
            return None
        if tokens is None:
            quick = self._round_of(len(sequences), 0)
        elif type(tokens) is not np.ndarray or tokens.dtype is not _INT32 or tokens.ndim != 2 or (
                len(tokens) != len(sequences)):
            return None
        else:
            quick = self._round_of(len(sequences), tokens.shape[1])
        if quick is None or not quick.run(rows, sequences.tobytes(),
                                          b"" if tokens is None else tokens.tobytes()):
            return None
        return quick

    def run_drafts(self, rows: Any, drafts: dict[Any, Any]) -> QuickRound | None:
        """The same for {sequence: ids}."""
        handles, tokens, longest = b"", b"", -1
        for sequence, ids in drafts.items():
            # The text of an interrupted round is taken with its answer, by the usual way.
            if getattr(sequence, "has_text", True) or type(ids) not in (list, tuple, np.ndarray):
                return None
            if type(ids) is np.ndarray or ids:
                ids = id_array(ids, "tokens")
                tokens += ids.tobytes()
            if longest not in (-1, len(ids)):
                return None
            longest = len(ids)
            handles += sequence.handle.to_bytes(8, sys.byteorder)
        quick = self._round_of(len(drafts), longest)
        return quick if quick is not None and quick.run(rows, handles, tokens) else None

    def _round_of(self, count: int, longest: int) -> QuickRound | None:
        engine, quick = self._engine, self._round
        if self._in_flight.pending or self._in_flight._slice is not None or engine._staged:
            return None
        if quick is None or quick.count != count or quick.longest != longest:
            # A shape that comes once is not worth it.
            before, self._shape = self._shape, (count, longest)
            if before != self._shape or not 1 <= count <= engine.max_batch or longest > engine.max_draft:
                return None
            self._round = quick = QuickRound(engine, count, longest, self._num_scores)
        return quick


class QuickRound(Submitted):
    """Rounds of `count` sequences with `longest` draft tokens each, one after another. The results of the
    last one are in `memory`, that of `block`, which the next one overwrites. is_bad: a sequence was neither
    verified nor finished before."""

    def __init__(self, engine: RoundCalls, count: int, longest: int, num_scores: int):
        answer, batch = s.BatchResults(ctypes.sizeof(s.BatchResults)), s.Batch(ctypes.sizeof(s.Batch))
        super().__init__(0, "specd_poll_batch", answer)
        self.count, self.longest, self.is_bad = count, longest, False
        self.block = ResultBlock(answer, count, longest + 1, num_scores)
        self.memory = self.block.memory.data
        self._pointer, self._in_flight, self._uri = engine.pointer, engine._in_flight, engine.uri
        self._space = engine._space("target")
        sequences, tokens = self.block.array("sequences"), np.zeros(count * longest, np.int32)
        self._handles, self._tokens = _bytes_of(sequences), _bytes_of(tokens) if longest else None
        self._target_rows = np.empty(count * (longest + 1), np.uint32)
        offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(longest)
        batch.num_sequences = count
        set_pointer(batch, "sequences", sequences)
        set_pointer(batch, "target_rows", self._target_rows)
        if longest:
            set_pointer(batch, "tokens", tokens)
            set_pointer(batch, "draft_offsets", offsets)
        self._kept = batch, offsets
        self._batch, self._answer = ctypes.byref(batch), ctypes.byref(answer)
        self._number = ctypes.c_uint64()
        self._take_functions()
        self._status = self.block.array("status")
        self._first_status = self._status.data
        self._results = _ResultArrays(self.block, count, num_scores > 0)
        # The rows of the round before, if those were used where they lie.
        self._rows: Any = self
        self._form: tuple[Any, ...] | None = None  # of those rows: an array's may be changed
        self._rules: dict[str, Any] | None = None
        self._bound: Binding | None = None

    @property
    def named(self) -> dict[str, Array]:
        """By role, the bound row of each row of the call."""
        return {"target": self._target_rows}

    @property
    def device_error(self) -> str:
        """Why the device failed, if it did and is this process's."""
        return c.last_error() if self._uri.startswith("embedded:") else ""

    def run(self, rows: Any, handles: bytes, tokens: bytes) -> bool:
        """Submits a round and waits for its answer. False: it was not submitted, for a reason that a
        usual round finds too."""
        space = self._space
        if rows is not self._rows or space.bound is not self._bound or space.rules is not self._rules or (
                rows is not None and (rows.shape, rows.strides, rows.dtype) != self._form):
            if not self._place(rows):
                return False
        self._handles[:] = handles
        if self._tokens is not None:
            self._tokens[:] = tokens
        if self._load is not c.load:
            self._take_functions()
        in_flight, codes = self._in_flight, []  # type: Any, list[int]
        pending = in_flight.pending
        in_flight.last_number = self.number = self._number.value = number = in_flight.last_number + 1
        self.error, self._is_answered = None, False
        # before the call: an interrupt may come right after it
        pending[number] = self
        try:
            codes.extend(itertools.starmap(self._submit, ((self._pointer, self._number, self._batch),)))
        finally:
            if codes != [0]:
                del pending[number]
        if codes[0] != 0:
            return False
        code: int = self._poll(self._pointer, self._answer, SLICE_MS)
        if code == 0 and self.answer.round_id == number:
            del pending[number]
        else:
            in_flight.go_on(self, code)
        self.is_bad = (self._first_status[0] if self.count == 1 else self._status.max()) > 1
        return True

    def _take_functions(self) -> None:
        """Arguments of a round have C types already, so its functions have none to convert them to."""
        self._load, library = c.load, c.load()
        self._submit, self._poll = (
            library[name] if isinstance(library, ctypes.CDLL) else getattr(library, name)
            for name in ("specd_submit_batch", "specd_poll_batch"))

    def results(self, sequences: Iterable[Any], strict: bool) -> list[Result]:
        """A Result for each sequence."""
        if not self.is_bad:
            return self._results.of(self.memory, sequences, {}, "")
        found = self._results.of(self.memory, sequences, self.named, self.device_error)
        return results.checked_round(found) if strict else found

    def _place(self, rows: Any) -> bool:
        """Names the rows of a round. False: a usual round copies them, or says why they are refused."""
        space, need = self._space, len(self._target_rows)
        self._rows = self  # no array is this
        first = space.first_of(rows)
        try:
            if first is not None and len(rows) == need:
                space.go_home()
                self._target_rows[...] = first if need == 1 else np.arange(first, first + need)
            elif rows is None or space.holds(rows):
                self._target_rows[...] = space.write(rows, need, False, "")[:need]
            else:
                return False
        except c.Error:
            return False
        self._bound, self._rules = space.bound, space.rules
        if rows is None or space.is_in_place():
            self._rows = rows
            self._form = None if rows is None else (rows.shape, rows.strides, rows.dtype)
        return True


def _bytes_of(array: Array) -> memoryview:
    """To write there what has the array's bytes."""
    return array.data.cast("B")


class _ResultArrays:
    """Where the parts of Results lie in a block."""

    def __init__(self, block: ResultBlock, count: int, has_scores: bool):
        self._count, places = count, [block.views[name] for name in ("tokens", "path")]
        self._width = places[0].shape[1]
        self._tokens, self._path = (place.offset_bytes for place in places)
        self._scores = (block.array("scores_per_token"), block.array("scores")) if has_scores else None
        form, end = "=", 0
        for name, view in itertools.islice(block.views.items(), NUM_NUMBERS):
            # As in specd_result: only a stop token has a sign.
            kind = {"stop_token": "i", "cumulative_logprob": "d"}.get(name, "I")
            form += f"{view.offset_bytes - end}x{count}{kind}"
            end = view.offset_bytes + count * view.dtype.itemsize
        self._numbers = struct.Struct(form)

    def of(self, memory: memoryview, sequences: Iterable[Any], named: Mapping[str, Array],
           why: str) -> list[Result]:
        """A Result for each sequence."""
        # The numbers of sequence i are i, i + count, ...
        all_numbers, count, found = self._numbers.unpack_from(memory), self._count, []
        for i, sequence in enumerate(sequences):
            numbers = all_numbers[i::count]
            num_accepted, num_kept, begin = numbers[2], numbers[3], 4 * self._width * i
            found.append(results.made_of(
                numbers, sequence, _ids(memory, self._tokens + begin, num_kept),
                _ids(memory, self._path + begin, num_accepted),
                None if self._scores is None else self._scores_of(i, num_kept), named, why))
        return found

    def _scores_of(self, i: int, num_kept: int) -> Array | None:
        assert self._scores is not None
        per_token = int(self._scores[0][i])
        if not per_token:
            return None
        scores: Array = self._scores[1][i, :num_kept, :per_token].copy()
        return scores


def _ids(memory: memoryview, offset: int, count: int) -> Array:
    """A copy of the ids that lie there."""
    if not count:
        return np.zeros(0, np.int32)
    return np.frombuffer(memory[offset:offset + 4 * count].tobytes(), np.int32)
