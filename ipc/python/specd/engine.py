"""Engine runs sequences and rounds, with rows in numpy arrays."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _library as c
from . import _structs as s
from . import results
from ._library import check, refusal, text_bytes
from .arrays import boolean, id_array, integer, pointer
from .batch import BatchRounds
from .draft_batch import BatchDrafts
from .engine_handle import EngineHandle
from .opening_batch import OPEN_PENDING, BatchOpenings
from .params import SamplingParams, to_struct
from .rounds import DraftRequest, child_records, score_records
from .sequence import Sequence
from .slot_memory import SlotMemory

if TYPE_CHECKING:
    from .results import Children, Scores
    from .row_types import Array, Ids, Masks, Rows

SHARING = ("none", "mps", "time_sliced", "unknown")


class Engine(BatchRounds, BatchDrafts, BatchOpenings, SlotMemory):
    """An engine's side of specd: in this process ("embedded:cpu") or attached to a daemon
    ("unix:/run/specd/specd.sock"). One thread at a time.

    >>> engine = specd.Engine("embedded:cpu", vocab_size=8, max_draft=3)
    >>> sequence = engine.open(specd.SamplingParams(temperature=0))
    >>> rows = engine.rows(4)        # where the model writes its logits: nothing is copied
    >>> rows[:] = np.eye(8)[[1, 2, 3, 4]]
    >>> engine.verify(rows, {sequence: [1, 2, 7]})[0].tokens
    array([1, 2, 3], dtype=int32)

    Options are those of specd_options: max_batch, max_sequences, max_draft, max_path, ring_depth,
    timeout_ms, max_scores_per_token, threads, name, spin_us, reconnect_ms (attached: how long the
    engine waits for the next daemon if its own is gone, and then goes on as if nothing had
    happened. Only a call finds that daemon, and readers wait 10 seconds for it: an engine
    without rounds calls stats() every second. 0: it gets an Error), cuda_stream (torch's, or its
    address; 0 is CUDA's default stream, and without it specd makes a CUDA stream of its own),
    tokenizer (the path of a file that docs/DAEMON.md, "Text", lists: embedded, sequences may then
    have structured_outputs; attached, a daemon with another tokenizer refuses the engine).
    Embedded engines also take eos_token_ids, eos_tokens (their texts), reasoning_start,
    reasoning_end, profile_file (the path of a model profile with these and more), compile_ms and
    compile_mib (CPU time and memory that the compile of one constraint may take), allow_lossy (1:
    sequences may name a method that changes the distribution of the output), trace (a directory)
    and trace_options. A daemon has its own limits, its own trace and its own models:
    profile names one of them.
    """

    def __init__(self, uri: str = "embedded:cpu", *, vocab_size: int, **options: Any):
        EngineHandle.__init__(self, uri, vocab_size, options)
        BatchRounds.__init__(self)
        SlotMemory.__init__(self)

    # ---- sequences --------------------------------------------------------------------------------

    def open(self, params: SamplingParams | None = None, prompt_ids: Ids = (),
             output_ids: Ids = (), request_id: str | None = None, wait: bool = True) -> Sequence:
        """Opens a sequence. output_ids are tokens that a returning sequence generated already.
        prompt_ids and output_ids are needed by parameters that look back (penalties, n-grams,
        thinking), and by the text: stop strings that begin in the outputs, code points that begin
        in either. wait=False: returns before a constraint is compiled. The sequence is pending until
        then, and its rounds are answered "not_ready"; Sequence.await_open tells when it is open."""
        params = SamplingParams() if params is None else params
        if params.n not in (1, None):
            raise refusal(f"n: {params.n} sequences are opened by engine.open_all")
        return self.open_all(params, prompt_ids, output_ids, request_id, wait)[0]

    async def aopen(self, params: SamplingParams | None = None, prompt_ids: Ids = (),
                    output_ids: Ids = (), request_id: str | None = None) -> Sequence:
        """open in a coroutine: other tasks of the event loop run while a constraint is compiled, and
        rounds of other sequences go on. If it fails or is cancelled, nothing stays open."""
        sequence = self.open(params, prompt_ids, output_ids, request_id, wait=False)
        try:
            return await sequence.aopen()
        except BaseException:
            sequence.close()
            raise

    def open_all(self, params: SamplingParams, prompt_ids: Ids = (), output_ids: Ids = (),
                 request_id: str | None = None, wait: bool = True) -> list[Sequence]:
        """Opens params.n sequences; sequence i has seed + i. wait: as in open."""
        struct, kept = to_struct(params, prompt_ids, output_ids)
        request_id = request_id or self.next_request_id()
        count = min(max(1, params.n or 1), int(params.numbers["n"].maximum))
        infos = c.sized(s.SequenceInfo, count)
        name = text_bytes(request_id, "request_id")
        if boolean(wait, "wait"):
            check(c.load().specd_open_sequence(self.pointer, name, ctypes.byref(struct), infos))
        else:
            openings = c.initialised(s.Openings, "specd_openings_init")
            openings.num_openings, openings.max_infos = 1, count
            openings.request_ids, openings.params = (ctypes.c_char_p * 1)(name), (s.Params * 1)(struct)
            openings.infos, openings.flags = infos, OPEN_PENDING
            try:
                check(c.load().specd_open_sequences(self.pointer, ctypes.byref(openings)))
            except c.Error as error:
                text = error.text.removeprefix("openings[0]: ")  # there is one
                raise c.Error(error.code, error.code_name, text) from None
        del kept
        warnings = c.opening_warnings(self.pointer)
        return [Sequence(self, info, f"{request_id}#{i}" if i else request_id, warnings,
                         self.makes_text(params)) for i, info in enumerate(infos)]

    # ---- rows ---------------------------------------------------------------------------------------

    def rows(self, num_rows: int, role: str = "target", dtype: Any = "float32",
             row_stride: int | None = None, **rules: Any) -> Array:
        """Binds shared memory for rows of a role ("target", "draft" or "mask") and returns it as an
        array, which verify reads in place. rules: kind ("logits", "probabilities",
        "final_probabilities"), scale, cap, renormalise; they also hold for rows that verify copies.
        bfloat16 rows are a specd.BFloat16: numbers that are written are rounded. An array from an earlier call
        for the role is void."""
        self.drain()
        return self._space(role).bind(num_rows, dtype, row_stride, rules)

    def device_rows(self, address: int, num_rows: int, role: str = "target",
                    dtype: Any = "float32", row_stride: int | None = None, **rules: Any) -> None:
        """Binds rows of a role that lie in this process's GPU memory at `address` (an integer, such
        as tensor.data_ptr()). verify(None, ...) then reads them there, in place of engine.rows. Do
        not free the memory before the role is bound to other rows or the engine is closed."""
        self.drain()
        self._space(role).bind_device(address, num_rows, dtype, row_stride, rules)

    def draft_map(self, ids: Ids | None, offsets: bool = False) -> None:
        """Names the id of each column of the draft rows, each id once, for a drafter with a vocabulary
        of its own. offsets: `ids` has ids less their columns, as d2t of EAGLE-3 does. Draft rows then
        have len(ids) columns, q is 0 for all other ids, and draft tokens are ids of the target. None:
        draft rows have a column for each id again. Rows of the role from earlier calls are void."""
        self.drain()
        self._space("draft").bind_map(ids, boolean(offsets, "offsets"))

    # ---- calls between rounds -------------------------------------------------------------------------

    def sample_draft(self, rows: Rows, requests: Items[DraftRequest | Sequence],
                     masks: Masks = None, strict: bool = True) -> list[Children]:
        """Draws draft tokens as the drafter's sampler: children for each request, from rows of the
        draft model.

        requests: specd.DraftRequest for each row, or sequences (one child each, no prefix).
        masks: for each request None or one row, as in verify. A sequence takes a mask only if it
          was opened with SamplingParams(draft_edits=True); otherwise the call is refused.
        strict: as in verify. A sequence that has finished gets no children.
        Returns results.Children; its ids, sampled and sides go into specd.Draft.
        """
        asked = [r if isinstance(r, DraftRequest) else DraftRequest(r) for r in requests]
        self.drain()
        space, mask_space = self._space("draft"), self._space("mask")
        structs = child_records(asked, space, rows, masks, mask_space)
        answers = c.sized(s.DraftChildren, len(asked))
        check(c.load().specd_sample_draft(self.pointer, structs, len(asked), answers))
        children = [results.children_of(answer, request.sequence)
                    for answer, request in zip(answers, asked)]
        return results.checked(children, "requests", [each.status for each in children],
                               [each.detail for each in children]) if strict else children

    def forced(self, sequence: Sequence, prefix: Ids = (),
               max_ids: int | None = None) -> list[int]:
        """Returns the ids that the sequence's constraint forces after its kept tokens and a draft
        prefix, as a list; at most max_ids, by default as many as fit a draft behind the prefix. They
        are drafts: give them to verify. The list is empty where there is a choice."""
        self.drain()
        before = id_array(prefix, "prefix")
        if max_ids is None:
            max_ids = max(self.max_draft - len(before), 1)
        ids = (ctypes.c_int32 * integer(max_ids, "max_ids", 1, 2**20))()
        count = ctypes.c_uint32()
        check(c.load().specd_forced_tokens(
            self.pointer, sequence.handle, pointer(before, ctypes.c_int32), len(before), ids,
            len(ids), ctypes.byref(count)))
        return list(ids[:count.value])

    def score(self, rows: Rows, ids: Ids, num_top: int = 0, chosen_ids: Ids = (),
              mode: str = "raw_logprobs", strict: bool = True) -> Scores:
        """Returns results.Scores: the score of ids[i] in row i, and the num_top best and the chosen
        ids of each row, for a prompt's logprobs. strict: as in verify."""
        self.drain()
        asked, chosen = id_array(ids, "ids"), id_array(chosen_ids, "chosen_ids")
        first = self._space("target").write(rows, len(asked), True, "one for each id")
        num_top = integer(num_top, "num_top")
        parts: list[tuple[str, Array, str | None]] = []
        for begin in range(0, len(asked), self.max_batch):
            chunk = asked[begin:begin + self.max_batch]
            structs, kept = score_records(chunk, first[begin:], num_top, chosen, mode)
            answers = c.sized(s.ScoreResult, len(chunk))
            check(c.load().specd_score(self.pointer, structs, len(chunk), answers))
            del kept
            parts.extend(results.scores_of(answer, 1 + num_top + len(chosen))
                         for answer in answers)
        statuses, details = [part[0] for part in parts], [part[2] for part in parts]
        scores = results.Scores(np.array([part[1] for part in parts]), statuses, details)
        return results.checked(scores, "rows", statuses, details) if strict else scores

    def sharing(self) -> tuple[str, str]:
        """Returns how this process and the daemon share a GPU: one of SHARING, and the same in
        words."""
        struct = s.Sharing()
        check(c.load().specd_get_sharing(self.pointer, ctypes.byref(struct)))
        return SHARING[struct.mode], struct.text.decode()

    def group(self) -> tuple[str, set[int]]:
        """Returns a token and a set of ranks. Other processes pass the token to specd.Member to
        join this engine's session as ranks. The set has the ranks whose next tokens are bound by
        now. Treat the token as a password. A daemon is needed."""
        struct = s.Group()
        check(c.load().specd_get_group(self.pointer, ctypes.byref(struct)))
        return struct.token.decode(), {k for k in range(32) if struct.bound_ranks >> k & 1}

    def dump_trace(self) -> tuple[str, int, int]:
        """Writes the trace of this engine. Returns the path of the file, the number of rounds in it,
        and the number of rounds that were lost since the engine was opened. A flight recorder
        writes the rounds that it has; otherwise the present file is brought up to date. The engine
        or its daemon must have been started with a trace."""
        struct = s.TraceDump()
        check(c.load().specd_dump_trace(self.pointer, ctypes.byref(struct)))
        return os.fsdecode(struct.path), struct.num_rounds, struct.num_lost

    def stats(self) -> dict[str, int]:
        """Returns sums since the engine was opened, by name: drafted, accepted and kept tokens, and
        every degenerate case."""
        struct = c.initialised(s.EngineStats, "specd_engine_stats_init")
        check(c.load().specd_get_engine_stats(self.pointer, ctypes.byref(struct)))
        return {name: getattr(struct, name) for name, *_ in s.EngineStats._fields_[1:]}
