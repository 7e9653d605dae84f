"""InFlight has the rounds of an engine that are submitted and not answered: Submitted is one of them,
Awaited is one whose results a caller may ask for, and Round is one of drafts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import math
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from . import _library as c
from . import _structs as s
from . import results
from .arrays import integer

if TYPE_CHECKING:
    from .engine_handle import EngineHandle
    from .results import Result

# The longest wait inside one C call: Python does not hear of signals there.
SLICE_MS = 100
# A call of the event loop's thread waits until the slice in the other thread has ended.
_ASYNC_SLICE_MS = 20


class RoundTimeout(c.Error, TimeoutError):
    """A round was not answered within the time that the caller gave it. The round goes on. `round`
    is an Awaited: its Round or BatchRound, whose result() has the answer once it comes. If nobody
    asks for that, the answer is dropped, and the sequences keep the tokens. `round` is None if an
    earlier round was in the way, and nothing was submitted."""

    def __init__(self, round: Awaited[Any] | None, timeout_ms: int):
        if round is None:
            text = (f"timeout_ms: {timeout_ms} ms passed while an earlier round was in the way; "
                    "nothing was submitted")
        else:
            text = (f"timeout_ms: round {round.number} was not answered within {timeout_ms} ms and "
                    "goes on; RoundTimeout.round.result() waits for its answer")
        super().__init__(2, "SPECD_EMPTY", text)
        self.round = round


class InTheWay(Exception):
    """Internal: the next round can be submitted once `round` is answered."""

    def __init__(self, round: Submitted):
        super().__init__()
        self.round = round


class Submitted:
    """A round as InFlight knows it. `answer` is what the library's function `poll_name` fills while the
    round is the oldest; InFlight keeps it alive until then."""

    def __init__(self, number: int, poll_name: str, answer: s.Completion | s.BatchResults):
        self.number, self.poll_name, self.answer = number, poll_name, answer
        self.error: c.Error | None = None
        self.why = ""
        self._is_answered = False

    def done(self) -> bool:
        """Whether the answer is here. It asks nobody: poll does."""
        return self._is_answered

    def take(self, why: str) -> None:
        """Takes `answer`, which is that of this round now. `why`: InFlight.why. If interrupted, it is
        called again."""
        self.why, self._is_answered = why, True

    def fail(self, error: c.Error) -> None:
        """Takes an error in the place of the answer."""
        self.error, self._is_answered = error, True


_Results = TypeVar("_Results")


class Awaited(Submitted, Generic[_Results]):
    """A round whose results a caller may ask for: the base of Round and BatchRound."""

    def __init__(self, in_flight: InFlight, number: int, poll_name: str,
                 answer: s.Completion | s.BatchResults):
        super().__init__(number, poll_name, answer)
        self._in_flight = in_flight

    def poll(self) -> bool:
        """Takes the answers that have come, without a wait, and tells whether this round's is among
        them. Embedded, it does a piece of the round's work, usually all of it."""
        return self._in_flight.wait(self.done, 0)

    def result(self, timeout_ms: int = -1, strict: bool = True) -> _Results:
        """Returns what the call that waits returns, such as Engine.verify, once it has come.
        timeout_ms: the longest wait in milliseconds (-1: without limit), after which RoundTimeout is
        raised and the round goes on. strict: as in that call. The results may be asked for again."""
        timeout_ms = integer(timeout_ms, "timeout_ms", -1, 2**31 - 1)
        if not self._in_flight.wait(self.done, timeout_ms):
            raise RoundTimeout(self, timeout_ms)
        return self._checked(strict)

    async def aresult(self, strict: bool = True) -> _Results:
        """The same in a coroutine: other tasks of the event loop run meanwhile. If the coroutine is
        cancelled, the round goes on, as after RoundTimeout."""
        await self._in_flight.wait_async(self.done)
        return self._checked(strict)

    def __await__(self) -> Generator[Any, None, _Results]:
        return self.aresult().__await__()

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"<specd.{name} {self.number} {'answered' if self.done() else 'in flight'}>"

    def _checked(self, strict: bool) -> _Results:
        if self.error is not None:
            raise self.error
        return self._found(strict)

    def _found(self, strict: bool) -> _Results:
        """The results of the round, which is answered."""
        raise NotImplementedError


class Round(Awaited["list[Result]"]):
    """A round that Engine.submit has submitted. Several rounds may be in flight, and they are
    answered in the order of submission.

    >>> round = engine.submit(rows, {sequence: [1, 2]})
    >>> ...                                   # other work
    >>> round.result(timeout_ms=1000)[0].tokens
    >>> await round                           # the same in a coroutine

    If nobody asks for its answer, the sequences keep the tokens all the same.
    """

    def __init__(self, in_flight: InFlight, number: int, sequences: Sequence[object],
                 named: Mapping[str, Any]):
        super().__init__(in_flight, number, "specd_poll", in_flight.taken)
        self.sequences = list(sequences)
        self._named = named
        self._answers: list[Result] = []

    def _found(self, strict: bool) -> list[Result]:
        return results.checked_round(self._answers) if strict else self._answers

    def take(self, why: str) -> None:
        self._answers = [results.result_of(self.answer.results[i], sequence, self._named, why)
                         for i, sequence in enumerate(self.sequences)]
        super().take(why)


_Round = TypeVar("_Round", bound=Submitted)


class InFlight:
    """See the head of the file. `taken` is the completion that the library has filled last. `why` says
    why a device failed, if that completion has such results and the device is this process's."""

    def __init__(self, engine: EngineHandle):
        self._engine = engine
        self.last_number = 0
        self.pending: dict[int, Submitted] = {}  # by number, the oldest first
        self.taken = s.Completion(ctypes.sizeof(s.Completion), ctypes.sizeof(s.Result))
        self.why = ""
        # A wait of a coroutine: slices of specd_poll in a thread of its own. One runs at a time, and
        # only the engine's thread begins one.
        self._slice: concurrent.futures.Future[int | c.Error] | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._process = os.getpid()  # which has that thread

    def upcoming_number(self) -> int:
        """The number of the next round that is submitted or staged."""
        return self.last_number + 1

    def next_number(self) -> int:
        """Takes that number for a round."""
        self.last_number += 1
        return self.last_number

    def begin(self, make: Callable[[int], _Round]) -> _Round:
        """Makes the round with the next number, which counts as in flight from now on. REQUIRES: it
        is submitted at once, or taken out of `pending` again."""
        number = self.next_number()
        self.pending[number] = made = make(number)
        return made

    def oldest(self) -> Submitted:
        return next(iter(self.pending.values()))

    def newest(self) -> Submitted:
        return next(reversed(self.pending.values()))

    def check_free(self) -> None:
        """Raises InTheWay if a round is in flight: tensors stay bound meanwhile."""
        if self.pending:
            raise InTheWay(self.newest())

    def drain(self) -> None:
        """Waits until every round is answered. An answer stays with its Round."""
        while self.pending:
            oldest = self.oldest()
            self.wait(oldest.done, -1)
            if oldest.error is not None:
                raise oldest.error

    # ---- waiting

    def wait(self, has_come: Callable[[], bool], timeout_ms: int) -> bool:
        """Takes completions until has_come() is true, and tells whether it is. An interrupt ends the
        wait, and loses no completion."""
        end_s, left_ms = time.monotonic() + timeout_ms / 1000, timeout_ms
        self.pause()
        while not has_come():
            slice_ms = SLICE_MS
            if timeout_ms >= 0:
                left_ms = max(0, min(left_ms, math.ceil((end_s - time.monotonic()) * 1000)))
                slice_ms = min(left_ms, SLICE_MS)
            if self._step(slice_ms):
                continue
            left_ms -= slice_ms
            if timeout_ms >= 0 and (left_ms <= 0 or time.monotonic() >= end_s):
                return has_come()
        return True

    def go_on(self, round: Submitted, code: int) -> None:
        """Waits for a round, after a poll for it that has answered `code`."""
        try:
            outcome: int | c.Error = c.check(code)
        except c.Error as error:
            outcome = error
        self._took(outcome)
        self.wait(round.done, -1)
        if round.error is not None:
            raise round.error

    async def wait_async(self, has_come: Callable[[], bool]) -> None:
        """The same without a limit, in a coroutine."""
        begin_s = time.monotonic()
        while not has_come():
            if self._slice is None:
                if self._deliver():
                    continue
                waited_ms = int((time.monotonic() - begin_s) * 1000)
                self._slice = self._begin_slice(max(1, min(waited_ms // 8, _ASYNC_SLICE_MS)))
            running = self._slice
            # If this task is cancelled, the slice goes on, and the next call takes what it found.
            await asyncio.wait([asyncio.wrap_future(running)])
            if running is self._slice:
                self._slice = None
                self._took(running.result())

    def pause(self) -> None:
        """Waits until no other thread is in a call of the engine. Every call of the engine begins
        with it."""
        if self._slice is not None:
            self._leave_parent()
        if self._slice is None:
            return
        running = self._slice
        concurrent.futures.wait([running])  # an interrupt ends the wait, and the slice stays known
        self._slice = None
        try:
            self._took(running.result())
        except c.Error:
            pass  # who waits for an answer asks again, and hears of it

    def close(self) -> None:
        self._leave_parent()
        self.pause()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _leave_parent(self) -> None:
        """In a child of fork, forgets the thread: the parent has it, and here its slice would never
        end. The library refuses the call that follows."""
        if self._process != os.getpid():
            self._slice = self._pool = None
            self._process = os.getpid()

    def _step(self, timeout_ms: int) -> bool:
        """Tells whether a completion was taken."""
        pointer = self._engine.pointer  # takes what another thread has found
        return self._deliver() or self._took(self._poll(pointer, timeout_ms))

    def _begin_slice(self, timeout_ms: int) -> concurrent.futures.Future[int | c.Error]:
        self._leave_parent()
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(1, "specd-wait")
        return self._pool.submit(self._poll, self._engine.pointer, timeout_ms)

    def _poll(self, pointer: ctypes.c_void_p, timeout_ms: int) -> int | c.Error:
        """Asks for the answer of the oldest round; if none is in flight, for that of a staged one."""
        oldest = self.oldest() if self.pending else None
        name, answer = (("specd_poll", self.taken) if oldest is None else
                        (oldest.poll_name, oldest.answer))
        try:
            self.why = ""
            code: int = c.check(getattr(c.load(), name)(pointer, ctypes.byref(answer), timeout_ms))
            if code == 0 and self._engine.uri.startswith("embedded:"):
                self.why = c.last_error()  # that text belongs to its thread too
            return code
        except c.Error as error:  # here, because the text of an error belongs to its thread
            return error

    def _took(self, outcome: int | c.Error) -> bool:
        if isinstance(outcome, int):
            return outcome == 0 and (self._deliver() or True)
        if outcome.code_name != "SPECD_ERROR_INTERNAL" or not self.pending:
            raise outcome
        # That was the answer of the oldest round: no other will come.
        self.pending.pop(self.oldest().number).fail(outcome)
        return True

    def _deliver(self) -> bool:
        """Lets the oldest round take its answer, if that has come: an interrupt may have come
        between."""
        if not self.pending:
            return False
        oldest = self.oldest()
        if oldest.answer.round_id != oldest.number:
            return False
        oldest.take(self.why)
        del self.pending[oldest.number]
        return True
