"""Sequence is one generated output of an engine."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from . import _library as c
from . import _structs as s
from . import results
from ._library import check, refusal, text_bytes
from .arrays import integer
from .params import VERIFY

if TYPE_CHECKING:
    from .engine import Engine

COIN_PURPOSES = {"sample": 1, "draft": 2, "accept": 3, "residual": 4}
# The longest wait inside one C call: Python does not hear of signals there.
_SLICE_MS = 100
# The longest pause of a coroutine between two looks at a pending sequence.
_PAUSE_MAX_S = 0.02
_VERIFY_NAMES = {code: name for name, code in VERIFY.items()}


class Sequence:
    """One generated output of an engine: made by Engine.open and Sequence.fork. .warnings lists
    what its constraint does not enforce (of a pending one, once it is open). .has_text tells whether
    its rounds make its text."""

    def __init__(self, engine: Engine, info: s.SequenceInfo, request_id: str,
                 warnings: Iterable[str] = (), has_text: bool = False):
        self.engine, self.handle = engine, int(info.sequence)
        self.seed, self.verify = int(info.seed), _VERIFY_NAMES[info.verify]
        self.request_id, self.warnings = request_id, list(warnings)
        self.has_text = has_text

    @property
    def slot(self) -> int:
        """The sequence's index in Engine.next_tokens and Engine.draft_tokens, while it is open."""
        return int(c.load().specd_sequence_slot(self.handle))

    @property
    def phase(self) -> str:
        """"open", "pending" (opened with wait=False, and not built yet), "failed" (await_open raises
        the reason) or "ended"."""
        state = s.SequenceState()
        check(c.load().specd_get_sequence_state(self.engine.pointer, self.handle,
                                                ctypes.byref(state)))
        return results.PHASES[state.phase]

    def await_open(self, timeout_ms: int = -1) -> bool:
        """Waits until a sequence that was opened with wait=False is open, and tells whether it is.
        timeout_ms: the longest wait in milliseconds (-1: without limit). Raises the Error that open
        would have raised; close the sequence then."""
        left_ms = integer(timeout_ms, "timeout_ms", -1, 2**31 - 1)
        while True:
            slice_ms = _SLICE_MS if timeout_ms < 0 else min(left_ms, _SLICE_MS)
            if check(c.load().specd_await_opening(self.engine.pointer, self.handle, slice_ms)) == 0:
                self.warnings = c.opening_warnings(self.engine.pointer)
                return True
            left_ms -= slice_ms
            if 0 <= timeout_ms and left_ms <= 0:
                return False

    async def aopen(self) -> Sequence:
        """await_open in a coroutine: other tasks of the event loop run meanwhile. Returns the
        sequence."""
        pause_s = _PAUSE_MAX_S / 32
        while not self.await_open(0):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        return self

    def fork(self, seed: int | None = None, request_id: str | None = None) -> Sequence:
        """A copy as it stands, with a seed of its own (None: drawn, and reported in .seed)."""
        infos = c.sized(s.SequenceInfo, 1)
        request_id = request_id or self.engine.next_request_id()
        word = None if seed is None else ctypes.c_uint64(integer(seed, "seed", 0, 2**64 - 1))
        check(c.load().specd_fork(self.engine.pointer, self.handle,
                                  text_bytes(request_id, "request_id"),
                                  None if word is None else ctypes.byref(word), infos))
        return Sequence(self.engine, infos[0], request_id, self.warnings, self.has_text)

    def abort(self) -> None:
        """Ends the sequence; the tokens kept so far remain."""
        check(c.load().specd_abort(self.engine.pointer, self.handle))

    def set_coins(self, coins: Mapping[tuple[str, int, int, int], float]) -> None:
        """Injects coins, for tests and replay: {(purpose, position, round_base, node): coin in [0,
        1)}. purpose is "sample", "draft", "accept" or "residual". Keys that are not in the dict
        keep the coins of the seed; {} removes all injected coins. docs/ALGORITHMS.md has the
        keys."""
        table = (s.Coin * len(coins))()
        for record, ((purpose, *key), coin) in zip(table, coins.items()):
            if purpose not in COIN_PURPOSES or len(key) != 3:
                raise refusal(f"coins: {(purpose, *key)} is no key; (purpose, position, round_base, "
                              f"node) is, with a purpose of {', '.join(COIN_PURPOSES)}")
            if not 0 <= coin < 1:
                raise refusal(f"coins: {coin} is outside [0, 1)")
            record.position, record.round_base, record.node = (
                integer(number, f"coins: {name}")
                for number, name in zip(key, ("position", "round_base", "node")))
            record.purpose, record.value = COIN_PURPOSES[purpose], int(coin * 2**53)
        self.engine.drain()
        check(c.load().specd_set_coins(self.engine.pointer, self.handle, table, len(table)))

    def text(self) -> results.Text:
        """Returns the results.Text that the sequence's rounds have made since the last call. A second
        call before its next round returns the same. Result.text has it already, but for what abort
        gives out at the end. An embedded engine's, with stop or stops="inline"."""
        struct = c.sized(s.Text, 1)[0]
        check(c.load().specd_sequence_text(self.engine.pointer, self.handle, ctypes.byref(struct)))
        return results.text_of(struct)

    def state(self) -> results.State:
        """Returns a results.State: a stop string may have ended the sequence since its last
        round."""
        state = s.SequenceState()
        check(c.load().specd_get_sequence_state(self.engine.pointer, self.handle,
                                                ctypes.byref(state)))
        return results.state_of(state)

    def final(self, timeout_ms: int = -1) -> results.State | None:
        """Returns the results.State of a sequence that has finished, once nothing can move its end
        any more. With stop strings the text side may still find one in the last tokens, and the
        call waits for its last word, usually some milliseconds. Returns None if that has not come
        within timeout_ms (-1: waits for it). Raises Error if the sequence has not finished."""
        left_ms = integer(timeout_ms, "timeout_ms", -1, 2**31 - 1)
        state = s.SequenceState()
        while True:
            slice_ms = _SLICE_MS if timeout_ms < 0 else min(left_ms, _SLICE_MS)
            if check(c.load().specd_sequence_final(self.engine.pointer, self.handle,
                                                   ctypes.byref(state), slice_ms)) == 0:
                return results.state_of(state)
            left_ms -= slice_ms
            if 0 <= timeout_ms and left_ms <= 0:
                return None

    def close(self) -> None:
        """Frees the slot. A sequence that has not finished is aborted."""
        check(c.load().specd_close_sequence(self.engine.pointer, self.handle))

    def __repr__(self) -> str:
        return f"<specd.Sequence {self.request_id!r} {self.verify} seed={self.seed}>"
