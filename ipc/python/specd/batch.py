"""Rounds of many sequences in one call, with arrays in and arrays out."""

import ctypes
import dataclasses

import numpy as np

from . import _library as c
from . import _structs as s
from . import results
from ._library import check, refusal
from .arrays import mask_words
from .batch_arrays import handles, integers_of, ragged, set_pointer
from .rounds import _DISCARD, _DRAFTS_BY_SLOT
from .row_space import bound_names

# The longest wait inside one C call: Python does not hear of signals there.
_SLICE_MS = 100


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

    sequences: np.ndarray
    status: np.ndarray
    finish_reason: np.ndarray
    num_accepted: np.ndarray
    num_kept: np.ndarray
    total_kept: np.ndarray
    stop_token: np.ndarray
    detail: np.ndarray
    bad_row: np.ndarray
    verify: np.ndarray
    cumulative_logprob: np.ndarray
    tokens: np.ndarray
    path: np.ndarray
    scores_per_token: np.ndarray | None = None
    scores: np.ndarray | None = None

    def __len__(self):
        return len(self.status)

    @property
    def status_names(self):
        """Such as "ok" and "finished", as an array."""
        return np.array(results.STATUSES)[self.status]

    def detail_text(self, i):
        """Why sequence i was not verified, or None."""
        return results.detail_of(int(self.detail[i]))

    def kept(self, i):
        """The kept tokens of sequence i."""
        return self.tokens[i, :self.num_kept[i]]


# By field of specd_batch_results: the type of its elements here. An unsigned -1 of C becomes -1.
_RESULT_TYPES = {"status": np.uint32, "finish_reason": np.uint32, "num_accepted": np.uint32,
                 "num_kept": np.uint32, "total_kept": np.uint32, "stop_token": np.int32,
                 "detail": np.uint32, "bad_row": np.int32, "verify": np.uint32,
                 "cumulative_logprob": np.float64}


class BatchRounds:
    """The part of Engine that does rounds of arrays."""

    def verify_batch(self, rows, sequences, tokens=None, draft_offsets=None, *, sampled=None, q=None,
                     masks=None, target_rows=None, draft_rows=None, mask_rows=None, weights=None,
                     masses=None, target_argmax=None, parents=None, discard=None, by_slot=None,
                     scores=False, strict=True):
        """Verifies one round of many sequences, and returns a BatchResults. Engine.verify says what
        the parts of a draft mean. Arrays are of numpy or torch (on the CPU), or lists.

        rows: the target rows of all places, or None: the bound rows. A sequence with K draft tokens
          has K + 1 places; those of the first sequence come first. A discarded one has places too.
        sequences: their handles, such as BatchOpening.sequences
        tokens: the draft tokens of all sequences, one after another, or an array of (sequences, K).
          Without them the round is plain sampling.
        draft_offsets: one number more than sequences: tokens[draft_offsets[i]:draft_offsets[i + 1]]
          is the draft of sequence i. Not needed for an array of (sequences, K).
        sampled, weights, masses, parents, draft_rows: one element for each draft token
        target_rows, mask_rows, target_argmax: one element for each place. Names of rows are indices
          into the rows that the call gets
        discard, by_slot: one boolean for each sequence; by_slot: its tokens are those of
          engine.draft_tokens(), and `tokens` only counts
        q, masks: rows for all draft tokens, and for all places
        scores: True: the results have scores
        strict: if a sequence was not verified, raise RoundError, which has all results
        """
        batch = _Batch(self, sequences, tokens, draft_offsets)
        self.drain()
        batch.place_targets(rows, target_rows, target_argmax)
        batch.place_drafts(q, draft_rows, sampled, weights, masses)
        batch.place_masks(masks, mask_rows)
        batch.put_each(parents, discard, by_slot)
        answer = _Answer(batch.count, batch.longest + 1,
                         self.max_scores_per_token if scores else 0)
        self._run_batch(batch.struct, answer.struct)
        found = BatchResults(sequences=batch.sequences, **answer.arrays)
        if batch.maps_rows:
            batch.name_bad_rows(found)
        return _checked(found) if strict else found

    def _run_batch(self, batch, answer):
        library = c.load()
        self._rounds += 1
        self._verified = self._rounds  # before the call: an interrupt may come right after it
        code = self._call_batch(True, library.specd_verify_batch, self._rounds,
                                ctypes.byref(batch), ctypes.byref(answer), _SLICE_MS)
        while code == _EMPTY:
            code = self._call_batch(False, library.specd_poll_batch, ctypes.byref(answer),
                                    _SLICE_MS)
        if code != 0:
            raise refusal("sequences: a call that was given up had not been answered; try again")

    def _call_batch(self, submits, function, *arguments):
        """Calls a function that takes the results of the last round, and notes what became of the
        round."""
        codes = []
        try:
            c.call_into(codes, function, self.pointer, *arguments)
        finally:
            code = codes[0] if codes else None
            if code == 0:
                self._taken.round_id = self._verified
            elif submits and code != _EMPTY or code == _INTERNAL:
                self._verified = 0  # it is not in flight
        return check(code)

_EMPTY, _INTERNAL = 2, -12


class _Batch:
    """specd_batch over the arrays of a caller."""

    def __init__(self, engine, sequences, tokens, draft_offsets):
        self.engine, self.named = engine, {}
        self.struct = s.Batch(ctypes.sizeof(s.Batch))
        self.kept = []
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
    def num_places(self):
        return self.num_tokens + self.count

    def place_targets(self, rows, target_rows, target_argmax):
        if target_argmax is not None:
            if rows is not None or target_rows is not None:
                raise refusal("target_argmax: it takes the place of rows; pass rows=None")
            self._put_list("target_argmax", target_argmax, np.int32, self.num_places)
            return
        bound = self.engine._space("target").write(
            rows, 0 if target_rows is not None else self.num_places, target_rows is not None,
            "K + 1 for K draft tokens of a sequence", "target rows")
        self._put_rows("target", bound, target_rows, np.uint32, self.num_places)

    def place_drafts(self, q, draft_rows, sampled, weights, masses):
        if (weights is None) != (masses is None):
            raise refusal("weights, masses: one is given without the other; q(token) is their "
                          "quotient")
        if q is not None:
            bound = self.engine._space("draft").write(
                q, 0 if draft_rows is not None else self.num_tokens, draft_rows is not None,
                "one for each draft token", "q")
            self._put_rows("draft", bound, draft_rows, np.uint32, self.num_tokens)
        elif draft_rows is not None:
            self.engine._space("draft").go_home()
            self._put_list("draft_rows", draft_rows, np.uint32, self.num_tokens)
        if sampled is None and (q is not None or draft_rows is not None or weights is not None):
            sampled = np.ones(self.num_tokens, np.uint8)
        if sampled is not None:
            self._put_list("kinds", sampled, np.uint8, self.num_tokens, "sampled")
        if weights is not None:
            self._put_list("draft_weights", weights, np.float32, self.num_tokens, "weights")
            self._put_list("draft_masses", masses, np.float64, self.num_tokens, "masses")

    def place_masks(self, masks, mask_rows):
        space = self.engine._space("mask")
        if masks is None:
            if mask_rows is not None:
                space.go_home()
                self._put_list("mask_rows", mask_rows, np.int32, self.num_places)
            return
        if space.holds(masks):
            need = 0 if mask_rows is not None else self.num_places
            bound = space.write(masks, need, True, "one for each place", "masks")
        else:
            need = len(masks) if mask_rows is not None else self.num_places
            bound = space.copy(mask_words(masks, self.engine.vocab_size, need, "masks"), 0)
        self._put_rows("mask", bound.astype(np.int32), mask_rows, np.int32, self.num_places)

    def put_each(self, parents, discard, by_slot):
        if parents is not None:
            self._put_list("parents", parents, np.int32, self.num_tokens)
        if discard is None and by_slot is None:
            return
        flags = np.zeros(self.count, np.uint32)
        for name, given, bit in (("discard", discard, _DISCARD),
                                 ("by_slot", by_slot, _DRAFTS_BY_SLOT)):
            if given is None:
                continue
            given = np.asarray(given, bool)
            if given.shape != (self.count,):
                raise refusal(f"{name}: {given.shape} values where {self.count} are needed")
            flags |= np.where(given, np.uint32(bit), np.uint32(0))
        self._put("flags", flags)

    @property
    def maps_rows(self):
        """Tells whether a row has another index for the caller than for the library."""
        return bool(self.named)

    def name_bad_rows(self, found):
        """Counts bad rows as the caller counts rows."""
        for i in np.flatnonzero(found.bad_row >= 0):
            found.bad_row[i] = results.caller_row(int(found.bad_row[i]), found.detail_text(i),
                                                  self.named)

    def _put_rows(self, role, bound, named, dtype, count):
        """Names the bound row of each element. `named` are indices into the rows of the call."""
        self.named[role] = bound
        rows = bound[:count] if named is None else bound_names(role, named, bound)
        self._put_list(f"{role}_rows", rows, dtype, count)

    def _put_list(self, field, values, dtype, count, name=None):
        array = integers_of(values, dtype, name or field)
        if array.shape != (count,):
            raise refusal(f"{name or field}: {array.shape} values where {count} are needed")
        self._put(field, array)

    def _put(self, field, array):
        self.kept.append(array)
        set_pointer(self.struct, field, array)


class _Answer:
    """specd_batch_results over new arrays."""

    def __init__(self, count, width, num_scores):
        self.struct = s.BatchResults(ctypes.sizeof(s.BatchResults))
        self.struct.max_results, self.struct.tokens_stride = count, width
        self.arrays = {name: np.empty(count, dtype) for name, dtype in _RESULT_TYPES.items()}
        self.arrays["tokens"] = np.empty((count, width), np.int32)
        self.arrays["path"] = np.empty((count, width), np.int32)
        if num_scores:
            self.struct.scores_stride = num_scores
            self.arrays["scores_per_token"] = np.empty(count, np.uint32)
            self.arrays["scores"] = np.empty((count, width, num_scores), results.SCORE)
        for name, array in self.arrays.items():
            set_pointer(self.struct, name, array)


def _checked(found):
    """`found`, unless a sequence was neither verified nor finished before."""
    bad = np.flatnonzero(found.status > 1)
    if not len(bad):
        return found
    details = {int(bad[0]): found.detail_text(bad[0])}
    return results.checked(found, "sequences", found.status_names.tolist(),
                           [details.get(i) for i in range(len(found))])
