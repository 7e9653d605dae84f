"""Engine runs sequences and rounds, with rows in numpy arrays."""

import ctypes
import os
import secrets
import weakref

import numpy as np

from . import _library as c
from . import _structs as s
from . import results
from ._library import check, refusal, text_bytes
from .arrays import id_array, integer, pointer
from .batch import BatchRounds
from .opening_batch import BatchOpenings
from .options import to_options
from .params import SamplingParams, to_struct
from .rounds import DraftRecords, DraftRequest, child_records, score_records
from .row_space import RowSpace
from .sequence import Sequence
from .slot_memory import SlotMemory

SHARING = ("none", "mps", "time_sliced", "unknown")
# The longest wait inside one C call: Python does not hear of signals there.
_SLICE_MS = 100


class Engine(BatchRounds, BatchOpenings, SlotMemory):
    """An engine's side of specd: in this process ("embedded:cpu") or attached to a daemon
    ("unix:/run/specd/specd.sock"). One thread at a time.

    >>> engine = specd.Engine("embedded:cpu", vocab_size=8, max_draft=3)
    >>> sequence = engine.open(specd.SamplingParams(temperature=0))
    >>> rows = engine.rows(4)        # where the model writes its logits: nothing is copied
    >>> rows[:] = np.eye(8)[[1, 2, 3, 4]]
    >>> engine.verify(rows, {sequence: [1, 2, 7]})[0].tokens
    array([1, 2, 3], dtype=int32)

    Options are those of specd_options: max_batch, max_sequences, max_draft, max_path, ring_depth,
    timeout_ms, max_scores_per_token, threads, name, spin_us, cuda_stream (the address, such as torch's
    stream.cuda_stream), tokenizer (the path of a tokenizer.json: embedded, sequences may then have
    structured_outputs; attached, a daemon with another tokenizer refuses the engine). Embedded engines
    also take eos_token_ids, eos_tokens (their texts), reasoning_start, reasoning_end,
    profile_file (the path of a model profile with these and more), trace (a directory) and
    trace_options. A daemon has its own trace, and its own models: profile names one of them.
    """

    def __init__(self, uri="embedded:cpu", *, vocab_size, **options):
        struct, kept = to_options({"vocab_size": vocab_size, **options})
        pointer = ctypes.c_void_p()
        check(c.load().specd_open(text_bytes(uri, "uri"), ctypes.byref(struct),
                                  ctypes.byref(pointer)))
        del kept
        self.uri, self.vocab_size = uri, struct.vocab_size
        self.max_batch, self.max_draft = struct.max_batch, struct.max_draft
        self.max_path = struct.max_path or struct.max_draft
        self.max_sequences = struct.max_sequences or struct.max_batch
        self.max_scores_per_token = struct.max_scores_per_token
        super().__init__()
        self._pointer = pointer
        # Also run when the interpreter ends, so that a daemon is told at once.
        self._closer = weakref.finalize(self, c.load().specd_close, pointer)
        # The engines of one daemon share its log and its events. No two may use the same ids.
        self._name_prefix = f"python-{os.getpid()}-{secrets.token_hex(4)}"
        self._names, self._rounds = 0, 0
        self._spaces = {role: RowSpace(self, role) for role in ("target", "draft", "mask")}
        # by number: the sequences of rounds that have not been collected
        self._staged = {}
        # Rounds are numbered when they are submitted, and answered in that order. The last round of
        # verify is in flight while the last completion is of an earlier one.
        self._verified = 0
        self._taken = s.Completion(ctypes.sizeof(s.Completion), ctypes.sizeof(s.Result))

    @property
    def pointer(self):
        if not self._closer.alive:
            raise refusal("the engine is closed")
        return self._pointer

    def close(self):
        """Detaches the engine and aborts open sequences. Arrays from rows(), slot_output(),
        next_tokens() and draft_tokens() keep their memory, which nothing reads any more."""
        self._closer()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def next_request_id(self):
        self._names += 1
        return f"{self._name_prefix}-{self._names}"

    # ---- sequences --------------------------------------------------------------------------------

    def open(self, params=None, prompt_ids=(), output_ids=(), request_id=None):
        """Opens a sequence. output_ids are tokens that a returning sequence generated already.
        prompt_ids and output_ids are needed by parameters that look back (penalties, n-grams,
        thinking), and by the text: stop strings that begin in the outputs, code points that begin
        in either."""
        params = SamplingParams() if params is None else params
        if params.n not in (1, None):
            raise refusal(f"n: {params.n} sequences are opened by engine.open_all")
        return self.open_all(params, prompt_ids, output_ids, request_id)[0]

    def open_all(self, params, prompt_ids=(), output_ids=(), request_id=None):
        """Opens params.n sequences; sequence i has seed + i."""
        struct, kept = to_struct(params, prompt_ids, output_ids)
        request_id = request_id or self.next_request_id()
        count = min(max(1, params.n or 1), int(params.numbers["n"].maximum))
        infos = c.sized(s.SequenceInfo, count)
        check(c.load().specd_open_sequence(self.pointer, text_bytes(request_id, "request_id"),
                                           ctypes.byref(struct), infos))
        del kept
        # A schema's keys may have any characters: only a line feed parts two warnings.
        lines = c.load().specd_opening_warnings(self.pointer).decode(errors="replace").split("\n")
        warnings = [line for line in lines if line]
        return [Sequence(self, info, f"{request_id}#{i}" if i else request_id, warnings)
                for i, info in enumerate(infos)]

    # ---- rows ---------------------------------------------------------------------------------------

    def rows(self, num_rows, role="target", dtype="float32", row_stride=None, **rules):
        """Binds shared memory for rows of a role ("target", "draft" or "mask") and returns it as an
        array, which verify reads in place. rules: kind ("logits", "probabilities",
        "final_probabilities"), scale, cap, renormalise; they also hold for rows that verify copies.
        bfloat16 rows are a specd.BFloat16: numbers that are written are rounded. An array from an earlier call
        for the role is void."""
        self.drain()
        return self._space(role).bind(num_rows, dtype, row_stride, rules)

    def device_rows(self, address, num_rows, role="target", dtype="float32", row_stride=None,
                    **rules):
        """Binds rows of a role that lie in this process's GPU memory at `address` (an integer, such
        as tensor.data_ptr()). verify(None, ...) then reads them there, in place of engine.rows. Do
        not free the memory before the role is bound to other rows or the engine is closed."""
        self.drain()
        self._space(role).bind_device(address, num_rows, dtype, row_stride, rules)

    def _space(self, role):
        if role not in self._spaces:
            raise refusal(f"role: {role!r} is not one of {', '.join(self._spaces)}")
        return self._spaces[role]

    # ---- rounds -------------------------------------------------------------------------------------

    def verify(self, rows, drafts, q=None, masks=None, strict=True):
        """Verifies one round and returns a Result for each draft.

        rows: target rows. The array from engine.rows is read in place, and so is a view of it, such
          as rows[2:4]. None means the bound rows, such as those of engine.device_rows. Any other
          array (or one for each draft) is copied into memory of its own: no array of yours is
          written. A draft of K tokens has K + 1 rows, one after another, and drafts follow in their order,
          unless Draft.target_rows says otherwise. Only the array from engine.rows may have extra
          rows. If every draft brings target_argmax, pass None.
        drafts: {sequence: ids} or a list of specd.Draft.
        q: rows of the drafter. If given, draft tokens count as sampled from them. An array with a
          row for each draft token of the round, or a list with one array (or None) for each draft.
        masks: for each draft None or K + 1 rows of booleans, True where an id is allowed (or of
          packed words, from pack_mask). The array from engine.rows(n, "mask") is read in place, its
          rows in the order of `rows` unless Draft.mask_rows says otherwise.
        strict: if a draft was not verified (its status is neither "ok" nor "finished"), raise
          RoundError, which has all Results. False: return them.

        An interrupt (an exception from a signal handler, such as Ctrl-C) ends the wait, and not the
        round. The round's tokens are kept, as the next Result.total_kept shows, but its Results are
        lost. Calls that write rows, or may not run during a round, wait for that round first. The
        arrays of engine.rows and engine.draft_tokens are yours and are still read: call
        engine.drain() before you write them.
        """
        records = DraftRecords(self, drafts)
        self.drain()
        records.place(self._space("target"), rows, "target")
        if q is not None:
            records.place(self._space("draft"), q, "draft")
        if masks is not None:
            records.place_masks(self._space("mask"), masks)
        self._bind_named(records, draft=q, mask=masks)
        structs, codes = records.structs(), []
        self._rounds += 1
        self._verified = self._rounds  # before the call: an interrupt may come right after it
        try:
            c.call_into(codes, c.load().specd_submit, self.pointer, self._rounds, structs,
                        len(structs))
        finally:
            if codes != [0]:
                self._verified = 0
        if check(codes[0]) != 0:
            self._poll(0)  # takes the answer, if it has come
            raise refusal("drafts: a call that was given up had not been answered; try again")
        self.drain()
        answers = [results.result_of(self._taken.results[i], draft.sequence, records.named)
                   for i, draft in enumerate(records.drafts)]
        return results.checked_round(answers) if strict else answers

    def _bind_named(self, records, **given):
        """Drafts that name rows of a role that the call does not get name those of engine.rows."""
        for role, rows in given.items():
            if rows is None and records.names(role):
                self._space(role).go_home()

    def drain(self):
        """Waits for the round of an interrupted verify, if it is still in flight, and drops its
        answer. Call it only before you write the arrays of engine.rows or engine.draft_tokens. It
        may be interrupted too. It does not wait for staged rounds: collect does that."""
        if self._taken.round_id < self._verified:
            self._staged.clear()  # none is staged, or the round would have been refused
        while self._taken.round_id < self._verified:
            self._poll(-1)

    def _poll(self, timeout_ms):
        """Calls specd_poll and tells whether there is a completion. An interrupt ends the wait."""
        left_ms = timeout_ms
        while True:
            slice_ms = _SLICE_MS if timeout_ms < 0 else min(left_ms, _SLICE_MS)
            try:
                code = c.load().specd_poll(self.pointer, ctypes.byref(self._taken), slice_ms)
                if check(code) == 0:
                    return True
            except c.Error as error:
                if error.code_name == "SPECD_ERROR_INTERNAL":
                    self._verified = 0  # this was the answer; no other will come
                raise
            left_ms -= slice_ms
            if 0 <= timeout_ms and left_ms <= 0:
                return False

    def mark_drafts(self, cuda_stream):
        """Says that the draft tokens of the next round are in draft_tokens once the work that is on
        this CUDA stream now (such as torch's stream.cuda_stream) is done. Call it after the drafter
        and before the target model: specd then builds the masks of constrained sequences while the
        target model runs. Rounds of embedded:cuda profit; attached, rounds of verify do not. Returns False if there is no room for a mark,
        and the round may follow without one. specd.h says more."""
        return check(c.load().specd_mark_drafts(
            self.pointer, integer(cuda_stream, "cuda_stream", 0, 2**64 - 1))) == 0

    # ---- rounds inside a CUDA graph: embedded:cuda ----------------------------------------------------

    def enqueue_staged(self, num_sequences, cuda_stream):
        """Enqueues work on a CUDA stream (such as torch's stream.cuda_stream), which may be
        capturing. Each run of that work does the oldest staged round. num_sequences is the width of
        the launch. specd.h says more."""
        check(c.load().specd_enqueue_staged(self.pointer, integer(num_sequences, "num_sequences"),
                                            integer(cuda_stream, "cuda_stream", 0, 2**64 - 1)))

    def stage(self, drafts):
        """Stages a round, over the bound rows, for the next run of the work of enqueue_staged.
        Returns the round's number. Drafts are those of verify. If an interrupt comes after the
        round was staged, the number is lost. The next run is then still of this round, and collect
        returns it in its turn."""
        records = DraftRecords(self, drafts)
        self.drain()
        records.place(self._space("target"), None, "target")
        self._bind_named(records, draft=None, mask=None)
        structs, codes = records.structs(), []
        sequences = [draft.sequence for draft in records.drafts]
        self._rounds += 1
        number = self._rounds
        self._staged[number] = sequences  # before the call: an interrupt may come right after it
        try:
            c.call_into(codes, c.load().specd_stage_round, self.pointer, number, structs,
                        len(structs))
        finally:
            if codes != [0]:
                del self._staged[number]
        if check(codes[0]) != 0:
            raise refusal(f"drafts: {len(self._staged)} rounds are staged, and no more fit; collect "
                          "the oldest")
        return number

    def collect(self, timeout_ms=-1, strict=True):
        """Returns the number of the oldest staged round and a Result for each of its drafts, once
        it has run. Returns None if it has not run within timeout_ms (-1: waits for it), or if no
        round is staged. A launch after its stage runs a round: wait without limit only after that
        launch. If interrupted, call it again. A verify in between keeps the tokens of staged rounds
        and drops their Results. strict: as in verify."""
        timeout_ms = integer(timeout_ms, "timeout_ms", -1, 2**31 - 1)
        taken = self._taken
        # An interrupted call may have taken this completion already. A completion of an interrupted
        # verify is skipped.
        while taken.round_id not in self._staged:
            if not self._poll(timeout_ms if self._staged else 0):
                return None
        answers = [results.result_of(taken.results[i], sequence, {})
                   for i, sequence in enumerate(self._staged[taken.round_id])]
        # last: if interrupted before this, the next call returns them
        del self._staged[taken.round_id]
        if strict:
            results.checked_round(answers)
        return taken.round_id, answers

    def sample_draft(self, rows, requests, masks=None, strict=True):
        """Draws draft tokens as the drafter's sampler: children for each request, from rows of the
        draft model.

        requests: specd.DraftRequest for each row, or sequences (one child each, no prefix).
        masks: for each request None or one row, as in verify. A sequence takes a mask only if it
          was opened with SamplingParams(draft_edits=True); otherwise the call is refused.
        strict: as in verify. A sequence that has finished gets no children.
        Returns results.Children; its ids, q and sides go into specd.Draft.
        """
        requests = [r if isinstance(r, DraftRequest) else DraftRequest(r) for r in requests]
        self.drain()
        space, mask_space = self._space("draft"), self._space("mask")
        structs = child_records(requests, space, rows, masks, mask_space)
        answers = c.sized(s.DraftChildren, len(requests))
        check(c.load().specd_sample_draft(self.pointer, structs, len(requests), answers))
        children = [results.children_of(answer, request.sequence)
                    for answer, request in zip(answers, requests)]
        return results.checked(children, "requests", [each.status for each in children],
                               [each.detail for each in children]) if strict else children

    def forced(self, sequence, prefix=(), max_ids=None):
        """Returns the ids that the sequence's constraint forces after its kept tokens and a draft
        prefix, as a list; at most max_ids, by default as many as fit a draft behind the prefix. They
        are drafts: give them to verify. The list is empty where there is a choice."""
        self.drain()
        prefix = id_array(prefix, "prefix")
        if max_ids is None:
            max_ids = max(self.max_draft - len(prefix), 1)
        ids = (ctypes.c_int32 * integer(max_ids, "max_ids", 1, 2**20))()
        count = ctypes.c_uint32()
        check(c.load().specd_forced_tokens(
            self.pointer, sequence.handle, pointer(prefix, ctypes.c_int32), len(prefix), ids,
            len(ids), ctypes.byref(count)))
        return ids[:count.value]

    def score(self, rows, ids, num_top=0, chosen_ids=(), mode="raw_logprobs", strict=True):
        """Returns results.Scores: the score of ids[i] in row i, and the num_top best and the chosen
        ids of each row, for a prompt's logprobs. strict: as in verify."""
        self.drain()
        first = self._space("target").write(rows, len(ids), True, "one for each id")
        num_top = integer(num_top, "num_top")
        parts = []
        for begin in range(0, len(ids), self.max_batch):
            chunk = ids[begin:begin + self.max_batch]
            structs, kept = score_records(chunk, first[begin:], num_top, chosen_ids, mode)
            answers = c.sized(s.ScoreResult, len(chunk))
            check(c.load().specd_score(self.pointer, structs, len(chunk), answers))
            del kept
            parts.extend(results.scores_of(answer, 1 + num_top + len(chosen_ids))
                         for answer in answers)
        statuses, details = [part[0] for part in parts], [part[2] for part in parts]
        scores = results.Scores(np.array([part[1] for part in parts]), statuses, details)
        return results.checked(scores, "rows", statuses, details) if strict else scores

    def sharing(self):
        """Returns how this process and the daemon share a GPU: one of SHARING, and the same in
        words."""
        struct = s.Sharing()
        check(c.load().specd_get_sharing(self.pointer, ctypes.byref(struct)))
        return SHARING[struct.mode], struct.text.decode()

    def group(self):
        """Returns a token and a set of ranks. Other processes pass the token to specd.Member to
        join this engine's session as ranks. The set has the ranks whose next tokens are bound by
        now. Treat the token as a password. A daemon is needed."""
        struct = s.Group()
        check(c.load().specd_get_group(self.pointer, ctypes.byref(struct)))
        return struct.token.decode(), {k for k in range(32) if struct.bound_ranks >> k & 1}

    def dump_trace(self):
        """Writes the trace of this engine. Returns the path of the file, the number of rounds in it,
        and the number of rounds that were lost since the engine was opened. A flight recorder
        writes the rounds that it has; otherwise the present file is brought up to date. The engine
        or its daemon must have been started with a trace."""
        struct = s.TraceDump()
        check(c.load().specd_dump_trace(self.pointer, ctypes.byref(struct)))
        return os.fsdecode(struct.path), struct.num_rounds, struct.num_lost

    def stats(self):
        """Returns sums since the engine was opened, by name: drafted, accepted and kept tokens, and
        every degenerate case."""
        struct = c.initialised(s.EngineStats, "specd_engine_stats_init")
        check(c.load().specd_get_engine_stats(self.pointer, ctypes.byref(struct)))
        return {name: getattr(struct, name) for name, _ in s.EngineStats._fields_[2:]}
