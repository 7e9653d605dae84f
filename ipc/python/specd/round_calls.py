"""RoundCalls is the part of Engine that runs rounds: submitted, on a CUDA stream, or staged for a
CUDA graph."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _library as c
from . import _structs as s
from . import results
from ._library import check, refusal
from .arrays import integer
from .cuda_stream import CudaStream, stream_address
from .engine_handle import EngineHandle
from .in_flight import Awaited, InTheWay, Round, RoundTimeout, Submitted
from .quick_rounds import QuickRounds
from .rounds import Draft, DraftRecords
from .row_space import RowSpace

if TYPE_CHECKING:
    from .results import Result
    from .row_types import Drafts, Masks, Rows

_Submitted = TypeVar("_Submitted", bound=Submitted)
_Results = TypeVar("_Results")


class RoundCalls(EngineHandle):
    """See the head of the file."""

    def __init__(self) -> None:
        self._spaces = {role: RowSpace(self, role) for role in ("target", "draft", "mask")}
        self._quick_drafts = QuickRounds(self, self.max_scores_per_token)
        # by number: the sequences of staged rounds that have not been collected
        self._staged: dict[int, list[object]] = {}
        # of coroutines: one tries to submit at a time, in the order in which they came
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def close(self) -> None:
        super().close()
        self._quick_drafts.forget()
        for space in self._spaces.values():
            space.lent.drop_tensor()

    def verify(self, rows: Rows, drafts: Drafts, q: Rows = None, masks: Masks = None,
               strict: bool = True, timeout_ms: int = -1) -> list[Result]:
        """Verifies one round and returns a Result for each draft.

        rows: target rows. The array from engine.rows is read in place, and so is a view of it, such
          as rows[2:4]. None means the bound rows, such as those of engine.device_rows. A tensor with
          __dlpack__, such as torch's, is read likewise; in device memory it is read where it is. Any other
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
        timeout_ms: the longest wait, in milliseconds (-1: without limit). Then RoundTimeout is
          raised, whose `round` has the late answer. Rows that must be bound first ask the daemon,
          and the engine's own timeout_ms bounds that.

        An interrupt (an exception from a signal handler, such as Ctrl-C) ends the wait, and so does
        timeout_ms, and not the round. The round's tokens are kept, as the next Result.total_kept
        shows, but an interrupt loses its Results. Calls that write rows, or may not run during a
        round, wait for that round first. The arrays of engine.rows and engine.draft_tokens are yours
        and are still read: call engine.drain() before you write them.
        """
        if q is None and masks is None and type(drafts) is dict and (
                type(timeout_ms) is int and timeout_ms == -1):
            quick = self._quick_drafts.run_drafts(rows, drafts)
            if quick is not None:
                return quick.results(drafts, strict)
        return self._answer(lambda: self._try_submit(rows, drafts, q, masks, None), strict, timeout_ms)

    def submit(self, rows: Rows, drafts: Drafts, q: Rows = None, masks: Masks = None,
               cuda_stream: CudaStream | None = None) -> Round:
        """Submits a round and returns a Round, whose result() has what verify returns. Arguments are
        those of verify.

        ring_depth rounds may be in flight. They are answered in the order of submission. The call
        waits for earlier rounds if their number is reached, and while rows must be bound anew. Rows
        of one engine.rows array, and arrays that are copied, need no such wait in the long run:
        give each round in flight views of its own, such as rows[:4] and rows[4:]. Bound rows must
        not change before the round is answered.

        cuda_stream: a CUDA stream (torch's, any object with cuda_stream or __cuda_stream__, or its
          address; 0 is CUDA's default stream) that is still writing the rows. The CPU does not wait
          for the CUDA stream, only where submit waits without one too: a tensor at another address is
          bound anew, once the rounds before it are answered. Work that is enqueued on the CUDA stream
          afterwards runs once the round is answered. A daemon is needed. The rows are bound ones, or
          a tensor in device memory: None, a view of engine.rows, or such a tensor. So is q. Masks are in
          engine.rows(n, "mask"). All other arrays are read at the call. stream_rounds.h says more.
        """
        return self._when_free(lambda: self._try_submit(rows, drafts, q, masks, cuda_stream))

    async def averify(self, rows: Rows, drafts: Drafts, q: Rows = None,
                      masks: Masks = None, strict: bool = True,
                      cuda_stream: CudaStream | None = None) -> list[Result]:
        """verify in a coroutine: other tasks of the event loop run meanwhile, and may call the
        engine too. Another thread waits for the answer, in slices of at most 20 ms; a call of the
        engine waits until the slice has ended.

        asyncio.timeout and cancellation end the wait and not the round. Arrays that were copied stay
        until the round is answered. Before you write the arrays of engine.rows or
        engine.draft_tokens, await engine.adrain(). Rounds are submitted in the order of the calls."""
        return await self._answer_async(
            lambda: self._try_submit(rows, drafts, q, masks, cuda_stream), strict)

    def _turn(self) -> asyncio.Lock:
        """The lock that has turns, one for each event loop."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = loop, asyncio.Lock()
        return self._turns[1]

    def drain(self) -> None:
        """Waits until every round that was submitted is answered. Answers stay with their Rounds;
        those that nobody holds, such as that of an interrupted verify, are dropped. Call it only
        before you write the arrays of engine.rows or engine.draft_tokens. It may be interrupted
        too. It does not wait for staged rounds: collect does that."""
        self._in_flight.drain()

    async def adrain(self) -> None:
        """drain in a coroutine, for the rounds that are in flight when it is called. It does not wait
        for those that other tasks submit later."""
        if self._in_flight.pending:
            await self._in_flight.wait_async(self._in_flight.newest().done)

    def round_end(self) -> tuple[int, int]:
        """Describes the round that was submitted last with a cuda_stream: the address of a 64-bit
        word that kernels on the CUDA stream may read after the round, and the word's value if the
        round was answered. With any other value nothing was confirmed. stream_rounds.h says more."""
        end = s.RoundEnd()
        check(c.load().specd_get_round_end(self.pointer, ctypes.byref(end)))
        return end.device_address, end.answered

    def _answer(self, try_submit: Callable[[], Awaited[_Results]], strict: bool,
                timeout_ms: int) -> _Results:
        """Submits a round and waits for its results."""
        timeout_ms = integer(timeout_ms, "timeout_ms", -1, 2**31 - 1)
        end_s = time.monotonic() + timeout_ms / 1000
        made = self._when_free(try_submit, timeout_ms)
        try:
            left_ms = max(0, round((end_s - time.monotonic()) * 1000)) if timeout_ms >= 0 else -1
            return made.result(left_ms, strict)
        except RoundTimeout:
            raise RoundTimeout(made, timeout_ms) from None

    async def _answer_async(self, try_submit: Callable[[], Awaited[_Results]], strict: bool) -> _Results:
        """The same in a coroutine, without a limit."""
        async with self._turn():
            while True:
                try:
                    made = try_submit()
                    break
                except InTheWay as what:
                    earlier = what.round
                await self._in_flight.wait_async(earlier.done)
        return await made.aresult(strict)

    def _when_free(self, try_submit: Callable[[], _Submitted], timeout_ms: int = -1) -> _Submitted:
        """Calls try_submit again once the round that was in its way is answered."""
        end_s = time.monotonic() + timeout_ms / 1000
        while True:
            try:
                return try_submit()
            except InTheWay as what:
                earlier = what.round
            left_ms = -1
            if timeout_ms >= 0:
                left_ms = max(0, round((end_s - time.monotonic()) * 1000))
            if not self._in_flight.wait(earlier.done, left_ms):
                raise RoundTimeout(None, timeout_ms)

    def _try_submit(self, rows: Rows, drafts: Drafts, q: Rows, masks: Masks,
                    cuda_stream: CudaStream | None) -> Round:
        """Submits a round, or raises InTheWay."""
        stream = () if cuda_stream is None else (stream_address(cuda_stream),)
        records = DraftRecords(self, drafts, on_stream=bool(stream))
        records.place(self._space("target"), rows, "target")
        if q is not None:
            records.place(self._space("draft"), q, "draft")
        if masks is not None:
            records.place_masks(self._space("mask"), masks)
        self._bind_named(records, draft=q, mask=masks)
        function = c.load().specd_submit_on_stream if stream else c.load().specd_submit
        structs = records.structs()
        sequences = [draft.sequence for draft in records.drafts]
        return self._hand_in(
            lambda number: Round(self._in_flight, number, sequences, records.named), "drafts",
            function, structs, len(structs), *stream)

    def _hand_in(self, make: Callable[[int], _Submitted], name: str, function: Callable[..., int],
                 *arguments: Any) -> _Submitted:
        """Submits the round that make(number) gives, by a function of the library, or raises
        InTheWay. A refusal begins with `name`."""
        codes: list[int] = []
        pointer, pending = self.pointer, self._in_flight.pending
        # before the call: an interrupt may come right after it
        made = self._in_flight.begin(make)
        try:
            c.call_into(codes, function, pointer, made.number, *arguments)
        finally:
            if codes != [0]:
                del pending[made.number]
        if check(codes[0]) != 0:
            if pending:
                raise InTheWay(self._in_flight.oldest())
            self._in_flight.wait(lambda: False, 0)  # takes the answer, if it has come
            raise refusal(f"{name}: a call that was given up had not been answered, or a CUDA "
                          "stream has an earlier round before it; try again")
        self._staged.clear()  # none is staged, or the round would have been refused
        return made

    def _bind_named(self, records: DraftRecords, **given: Any) -> None:
        """Drafts that name rows of a role that the call does not get name those of engine.rows."""
        for role, rows in given.items():
            if rows is None and records.names(role):
                self._space(role).name_home()

    def _space(self, role: str) -> RowSpace:
        if role not in self._spaces:
            raise refusal(f"role: {role!r} is not one of {', '.join(self._spaces)}")
        return self._spaces[role]

    def mark_drafts(self, cuda_stream: CudaStream) -> bool:
        """Says that the draft tokens of the next round are in draft_tokens once the work that is on
        this CUDA stream now (such as torch's, or its address) is done. Call it after the drafter
        and before the target model: specd then builds the masks of constrained sequences while the
        target model runs. Rounds of embedded:cuda profit, and attached those of submit with a
        cuda_stream. Returns False if there is no room for a mark, and the round may follow without
        one. specd.h says more."""
        code: int = check(c.load().specd_mark_drafts(self.pointer, stream_address(cuda_stream)))
        return code == 0

    # ---- rounds inside a CUDA graph: embedded:cuda ----------------------------------------------------

    def enqueue_staged(self, num_sequences: int, cuda_stream: CudaStream) -> None:
        """Enqueues work on a CUDA stream (such as torch's, or its address), which may be
        capturing. Each run of that work does the oldest staged round. num_sequences is the width of
        the launch. specd.h says more."""
        check(c.load().specd_enqueue_staged(self.pointer, integer(num_sequences, "num_sequences"),
                                            stream_address(cuda_stream)))

    def stage(self, drafts: Drafts) -> int:
        """Stages a round, over the bound rows, for the next run of the work of enqueue_staged.
        Returns the round's number. Drafts are those of verify. If an interrupt comes after the
        round was staged, the number is lost. The next run is then still of this round, and collect
        returns it in its turn."""
        records = DraftRecords(self, drafts)
        self.drain()
        records.place(self._space("target"), None, "target")
        self._bind_named(records, draft=None, mask=None)
        structs = records.structs()
        codes: list[int] = []
        pointer, number = self.pointer, self._in_flight.next_number()
        # before the call: an interrupt may come right after it
        self._staged[number] = [draft.sequence for draft in records.drafts]
        try:
            c.call_into(codes, c.load().specd_stage_round, pointer, number, structs, len(structs))
        finally:
            if codes != [0]:
                del self._staged[number]
        if check(codes[0]) != 0:
            raise refusal(f"drafts: {len(self._staged)} rounds are staged, and no more fit; collect "
                          "the oldest")
        return number

    def collect(self, timeout_ms: int = -1,
                strict: bool = True) -> tuple[int, list[Result]] | None:
        """Returns the number of the oldest staged round and a Result for each of its drafts, once
        it has run. Returns None if it has not run within timeout_ms (-1: waits for it), or if no
        round is staged. A launch after its stage runs a round: wait without limit only after that
        launch. If interrupted, call it again. A verify in between keeps the tokens of staged rounds
        and drops their Results. strict: as in verify."""
        timeout_ms = integer(timeout_ms, "timeout_ms", -1, 2**31 - 1)
        taken = self._in_flight.taken
        # An interrupted call may have taken this completion already.
        if not self._in_flight.wait(lambda: taken.round_id in self._staged,
                                    timeout_ms if self._staged else 0):
            return None
        number: int = taken.round_id
        answers = [results.result_of(taken.results[i], sequence, {}, self._in_flight.why)
                   for i, sequence in enumerate(self._staged[number])]
        # last: if interrupted before this, the next call returns them
        del self._staged[number]
        if strict:
            results.checked_round(answers)
        return number, answers
