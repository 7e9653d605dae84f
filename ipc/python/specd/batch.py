"""Rounds of many sequences in one call, with arrays in and arrays out."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from . import _library as c
from . import _structs as s
from . import results
from ._library import refusal
from .arrays import boolean, mask_words, set_pointer
from .attributes import nearest
from .batch_arrays import booleans, handles, numbers_of, ragged
from .cuda_stream import CudaStream, stream_address
from .dlpack import Array, as_array
from .in_flight import Awaited, InFlight
from .quick_rounds import QuickRounds
from .result_block import NAMES, ResultBlock, View, array_in
from .round_calls import RoundCalls
from .rounds import DISCARD, DRAFTS_BY_SLOT, PARENTS_BY_SLOT
from .row_space import MASKS_IN_PLACE, bound_names, copied_now

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .row_types import Numbers, RowArray


class BatchArrays(TypedDict, total=False):
    """The arrays that Engine.submit_batch takes by name."""

    sampled: Numbers | None
    q: RowArray | None
    masks: RowArray | None
    target_rows: Numbers | None
    draft_rows: Numbers | None
    mask_rows: Numbers | None
    weights: Numbers | None
    masses: Numbers | None
    target_argmax: Numbers | None
    parents: Numbers | None
    discard: Numbers | None
    by_slot: Numbers | None
    parents_by_slot: Numbers | None


_ARRAYS = tuple(BatchArrays.__annotations__)
# Arguments that one of the calls takes and another has no use for: what to do there.
_ELSEWHERE = {
    "cuda_stream": "verify_batch waits for the answer in the CPU; give it to submit_batch or averify_batch",
    "timeout_ms": "give it to verify_batch, or to result() of the round that submit_batch returns",
    "strict": "give it to verify_batch or averify_batch, or to result() of the round that submit_batch "
              "returns"}


@dataclasses.dataclass
class BatchResults:
    """The results of a round as arrays; element i is of sequence i. The fields mean what those of
    specd.Result mean.

    tokens: an array of (sequences, longest draft + 1): in each row the kept tokens, then -1
    path: the same for the accepted draft tokens, by their index in the draft
    status, finish_reason, verify, detail: the numbers of C; status_names has names
    bad_row, stop_token: -1 where there is none
    scores, scores_per_token: None, unless the call asked for scores. scores is an array of
      (sequences, longest draft + 1, max_scores_per_token of the engine) of (id, value, rank); id is
      -1 beyond the scores of a sequence
    """

    sequences: Array
    status: Array
    finish_reason: Array
    num_accepted: Array
    num_kept: Array
    total_kept: Array
    stop_token: Array
    detail: Array
    bad_row: Array
    verify: Array
    cumulative_logprob: Array
    tokens: Array
    path: Array
    scores_per_token: Array | None = None
    scores: Array | None = None

    def __getstate__(self) -> dict[str, Array | None]:
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __len__(self) -> int:
        return len(self.status)

    @property
    def lossy(self) -> Array:
        """Where `verify` is a method that changes the distribution of the output."""
        lossy: Array = ((self.verify >= results.FIRST_LOSSY)
                        & (self.verify <= results.LAST_LOSSY))
        return lossy

    @property
    def status_names(self) -> Array:
        """Such as "ok" and "finished", as an array."""
        names: Array = np.array(results.STATUSES)[self.status]
        return names

    def detail_text(self, i: int) -> str | None:
        """Why sequence i was not verified, or None."""
        return results.detail_of(int(self.detail[i]))

    def kept(self, i: int) -> Array:
        """The kept tokens of sequence i."""
        kept: Array = self.tokens[i, :self.num_kept[i]]
        return kept


class _Later:
    """An array of BatchResults that lies in a block of memory, and is made when it is asked for. What an
    instance has in its dictionary goes before it."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, found: BatchResults | None, owner: type) -> Any:
        if found is None:
            return self
        state, name = found.__dict__, self._name
        if "_memory" not in state:
            raise AttributeError(f"BatchResults has no {name} yet")
        array = state[name] = array_in(state["_memory"], state["_views"][name])
        return array


for _name in NAMES:
    setattr(BatchResults, _name, _Later(_name))


def _results_in(memory: Any, views: Mapping[str, View]) -> BatchResults:
    """The results in a block of memory."""
    found = BatchResults.__new__(BatchResults)
    state = found.__dict__
    state["_memory"], state["_views"] = memory, views
    return found


class BatchRounds(RoundCalls):
    """The part of Engine that does rounds of arrays."""

    def __init__(self) -> None:
        super().__init__()
        self._quick_arrays = QuickRounds(self, 0)

    def close(self) -> None:
        super().close()
        self._quick_arrays.forget()

    def verify_batch(self, rows: RowArray | None, sequences: Numbers, tokens: Numbers | None = None,
                     draft_offsets: Numbers | None = None, *, scores: bool = False,
                     strict: bool = True, timeout_ms: int = -1,
                     **arrays: Unpack[BatchArrays]) -> BatchResults:
        """Verifies one round of many sequences, and returns a BatchResults. The arguments are those of
        submit_batch. Engine.verify says what strict, timeout_ms and an interrupt do. Rounds that are in
        flight are answered first.
        """
        if draft_offsets is None and scores is False and not arrays and (
                type(timeout_ms) is int and timeout_ms == -1):
            quick = self._quick_arrays.run_arrays(rows, sequences, tokens)
            if quick is not None:
                found = _results_in(bytearray(quick.memory), quick.block.views)
                if not quick.is_bad:
                    return found
                found.bad_row = results.caller_rows(found.bad_row, found.detail, quick.named)
                return _checked(found, quick.device_error) if strict else found
        _check_names(arrays)
        return self._answer(lambda: self._try_submit_batch(rows, sequences, tokens, draft_offsets, scores,
                                                           None, **arrays), strict, timeout_ms)

    def submit_batch(self, rows: RowArray | None, sequences: Numbers, tokens: Numbers | None = None,
                     draft_offsets: Numbers | None = None, *, scores: bool = False,
                     cuda_stream: CudaStream | None = None,
                     **arrays: Unpack[BatchArrays]) -> BatchRound:
        """Submits a round of many sequences and returns a BatchRound, whose result() has what
        verify_batch returns. Engine.submit says how rounds in flight share rows, and what cuda_stream
        is. Engine.verify says what the parts of a draft mean. Arrays are of numpy, lists, or tensors
        with __dlpack__, such as torch's. Only `rows` and `q` may lie in device memory.

        The call itself waits as submit does: if ring_depth rounds are in flight, and while rows must be
        bound anew. In a coroutine it stops the event loop meanwhile; averify_batch does not.

        With cuda_stream the CUDA stream may still write rows and q, masks in engine.rows(n, "mask"), and
        engine.draft_tokens(). All other arrays are read at the call.

        rows: the target rows of all places, or None: the bound rows. A sequence with K draft tokens
          has K + 1 places; those of the first sequence come first. A discarded one has places too.
        sequences: their handles, such as BatchOpening.sequences
        tokens: the draft tokens of all sequences, one after another, or an array of (sequences, K).
          Without them the round is plain sampling.
        draft_offsets: one number more than sequences: tokens[draft_offsets[i]:draft_offsets[i + 1]]
          is the draft of sequence i. Not needed for an array of (sequences, K).
        scores: True: the results have scores

        These arrays are given by name:
        sampled, weights, masses, parents, draft_rows: one element for each draft token
        target_rows, mask_rows, target_argmax: one element for each place. Names of rows are indices
          into the rows that the call gets
        discard, by_slot: one boolean for each sequence; by_slot: its tokens are those of
          engine.draft_tokens(), and `tokens` only counts
        parents_by_slot: the same; with by_slot, its parents are those of engine.draft_tree()
        q, masks: rows for all draft tokens, and for all places
        """
        _check_names(arrays)
        return self._when_free(lambda: self._try_submit_batch(
            rows, sequences, tokens, draft_offsets, scores, cuda_stream, **arrays))

    async def averify_batch(self, rows: RowArray | None, sequences: Numbers,
                            tokens: Numbers | None = None, draft_offsets: Numbers | None = None, *,
                            scores: bool = False, strict: bool = True,
                            cuda_stream: CudaStream | None = None,
                            **arrays: Unpack[BatchArrays]) -> BatchResults:
        """verify_batch in a coroutine. The arguments are those of submit_batch. Engine.averify says how
        it waits, and what a cancellation does."""
        _check_names(arrays)
        return await self._answer_async(lambda: self._try_submit_batch(
            rows, sequences, tokens, draft_offsets, scores, cuda_stream, **arrays), strict)

    def _try_submit_batch(self, rows: Any, sequences: Any, tokens: Any, draft_offsets: Any, scores: bool,
                          cuda_stream: CudaStream | None, *, sampled: Any = None, q: Any = None,
                          masks: Any = None, target_rows: Any = None, draft_rows: Any = None,
                          mask_rows: Any = None, weights: Any = None, masses: Any = None,
                          target_argmax: Any = None, parents: Any = None, discard: Any = None,
                          by_slot: Any = None, parents_by_slot: Any = None) -> BatchRound:
        """Submits a round, or raises InTheWay."""
        stream = () if cuda_stream is None else (stream_address(cuda_stream),)
        batch = _Batch(self, sequences, tokens, draft_offsets, on_stream=bool(stream))
        batch.place_targets(rows, target_rows, target_argmax)
        batch.place_drafts(q, draft_rows, sampled, weights, masses)
        batch.place_masks(masks, mask_rows)
        batch.put_each(parents, discard, by_slot, parents_by_slot)
        num_scores = self.max_scores_per_token if boolean(scores, "scores") else 0
        library = c.load()
        function = library.specd_submit_batch_on_stream if stream else library.specd_submit_batch
        return self._hand_in(lambda number: BatchRound(self._in_flight, number, batch, num_scores),
                             "sequences", function, ctypes.byref(batch.struct), *stream)


def _check_names(arrays: Mapping[str, Any]) -> None:
    """Refuses names that are no arrays of a batch."""
    for name in arrays:
        if name in _ELSEWHERE:
            raise refusal(f"{name}: {_ELSEWHERE[name]}")
        if name not in _ARRAYS:
            raise refusal(f"{name}: a batch has no such array{nearest(name, _ARRAYS)} The arrays are "
                          f"{', '.join(_ARRAYS)}")


class _Batch:
    """specd_batch over the arrays of a caller."""

    def __init__(self, engine: RoundCalls, sequences: Any, tokens: Any, draft_offsets: Any,
                 on_stream: bool):
        self.engine, self.on_stream = engine, on_stream
        self.named: dict[str, Array] = {}  # by role: the bound row of each row of the call
        self.struct = s.Batch(ctypes.sizeof(s.Batch))
        self.kept: list[Array] = []
        self.sequences = handles(sequences)
        self.count = len(self.sequences)
        self.struct.num_sequences = self.count
        self._put("sequences", self.sequences)
        if tokens is None:
            if draft_offsets is not None:
                raise refusal("tokens: draft_offsets are given without them; give both")
            self.num_tokens = self.longest = 0
            return
        tokens, offsets = ragged(tokens, draft_offsets, self.count, "tokens", "draft_offsets")
        self.num_tokens = len(tokens)
        self.longest = int((offsets[1:] - offsets[:-1]).max(initial=0))
        self._put("tokens", tokens)
        self._put("draft_offsets", offsets.astype(np.uint32, copy=False))

    @property
    def num_places(self) -> int:
        return self.num_tokens + self.count

    def place_targets(self, rows: Any, target_rows: Any, target_argmax: Any) -> None:
        if target_argmax is not None:
            if rows is not None or target_rows is not None:
                raise refusal("target_argmax: it takes the place of rows; pass rows=None")
            self._put_list("target_argmax", target_argmax, np.int32, self.num_places)
            return
        bound = self.engine._space("target").write(
            rows, 0 if target_rows is not None else self.num_places, target_rows is not None,
            "K + 1 for K draft tokens of a sequence", "rows", not self.on_stream)
        self._put_rows("target", bound, target_rows, np.uint32, self.num_places)

    def place_drafts(self, q: Any, draft_rows: Any, sampled: Any, weights: Any,
                     masses: Any) -> None:
        if (weights is None) != (masses is None):
            raise refusal("weights, masses: one is given without the other; q(token) is their "
                          "quotient")
        if q is not None:
            bound = self.engine._space("draft").write(
                q, 0 if draft_rows is not None else self.num_tokens, draft_rows is not None,
                "one for each draft token", "q", not self.on_stream)
            self._put_rows("draft", bound, draft_rows, np.uint32, self.num_tokens)
        elif draft_rows is not None:
            self.engine._space("draft").name_home()
            self._put_list("draft_rows", draft_rows, np.uint32, self.num_tokens)
        if sampled is None and (q is not None or draft_rows is not None or weights is not None):
            sampled = np.ones(self.num_tokens, np.uint8)
        if sampled is not None:
            self._put_list("kinds", sampled, np.uint8, self.num_tokens, "sampled")
        if weights is not None:
            self._put_list("draft_weights", weights, np.float32, self.num_tokens, "weights")
            self._put_list("draft_masses", masses, np.float64, self.num_tokens, "masses")

    def place_masks(self, masks: Any, mask_rows: Any) -> None:
        masks, space = as_array(masks, "masks"), self.engine._space("mask")
        if masks is None:
            if mask_rows is not None:
                space.name_home()
                self._put_list("mask_rows", mask_rows, np.int32, self.num_places)
            return
        if space.holds(masks):
            need = 0 if mask_rows is not None else self.num_places
            bound = space.write(masks, need, True, "one for each place", "masks")
        else:
            if self.on_stream:
                raise copied_now("masks", MASKS_IN_PLACE)
            need = len(masks) if mask_rows is not None else self.num_places
            bound = space.copy(mask_words(masks, self.engine.vocab_size, need, "masks"), 0)
        self._put_rows("mask", bound.astype(np.int32), mask_rows, np.int32, self.num_places)

    def put_each(self, parents: Any, discard: Any, by_slot: Any, parents_by_slot: Any) -> None:
        if parents is not None:
            self._put_list("parents", parents, np.int32, self.num_tokens)
        if discard is None and by_slot is None and parents_by_slot is None:
            return
        flags = np.zeros(self.count, np.uint32)
        for name, given, bit in (("discard", discard, DISCARD),
                                 ("by_slot", by_slot, DRAFTS_BY_SLOT),
                                 ("parents_by_slot", parents_by_slot, PARENTS_BY_SLOT)):
            if given is None:
                continue
            flags |= np.where(booleans(given, self.count, name), np.uint32(bit), np.uint32(0))
        self._put("flags", flags)

    def _put_rows(self, role: str, bound: Array, named: Any, dtype: Any, count: int) -> None:
        """Names the bound row of each element. `named` are indices into the rows of the call."""
        self.named[role] = bound
        if named is None:
            self._put(f"{role}_rows", bound[:count].astype(dtype, copy=False))
        else:
            self._put_list(f"{role}_rows", bound_names(role, named, bound), dtype, count)

    def _put_list(self, field: str, values: Any, dtype: Any, count: int,
                  name: str | None = None) -> None:
        array = numbers_of(values, dtype, name or field)
        if array.shape != (count,):
            raise refusal(f"{name or field}: {array.shape} values where {count} are needed")
        self._put(field, array)

    def _put(self, field: str, array: Array) -> None:
        self.kept.append(array)
        set_pointer(self.struct, field, array)


class BatchRound(Awaited[BatchResults]):
    """A round that Engine.submit_batch has submitted, as Round is one of Engine.submit. It has the arrays
    that its results go to.

    >>> round = engine.submit_batch(rows, sequences, tokens)
    >>> ...                                   # other work
    >>> round.result(timeout_ms=1000).tokens
    >>> await round                           # the same in a coroutine
    """

    def __init__(self, in_flight: InFlight, number: int, batch: _Batch, num_scores: int):
        answer = s.BatchResults(ctypes.sizeof(s.BatchResults))
        super().__init__(in_flight, number, "specd_poll_batch", answer)
        self._batch, self._has_scores = batch, num_scores > 0
        self._results: BatchResults | None = None
        self._block = ResultBlock(answer, batch.count, batch.longest + 1, num_scores)

    def take(self, why: str) -> None:
        self._results = found = _results_in(self._block.memory, self._block.views)
        found.sequences = self._batch.sequences
        found.bad_row = results.caller_rows(found.bad_row, found.detail, self._batch.named)
        if self._has_scores:
            found.scores_per_token = self._block.array("scores_per_token")
            found.scores = self._block.array("scores")
        super().take(why)

    def _found(self, strict: bool) -> BatchResults:
        assert self._results is not None
        return _checked(self._results, self.why) if strict else self._results


def _checked(found: BatchResults, why: str) -> BatchResults:
    """`found`, unless a sequence was neither verified nor finished before. why: why the device
    failed, if it did."""
    is_bad = found.status > 1
    if not np.count_nonzero(is_bad):
        return found
    first, names = int(np.argmax(is_bad)), found.status_names.tolist()
    details = {first: why if names[first] == "device_error" else found.detail_text(first)}
    return results.checked(found, "sequences", names,
                           [details.get(i) for i in range(len(found))])
