"""ExactReader makes StreamEvents of which every byte and every id comes once, in order. Where a message is
missing it wants an answer of the daemon, or of the text side; docs/PROTOCOL.md, "Asks", has the messages.

Internal; subscribe.py has the sockets.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from typing import Any

from ._library import Error
from .stream_reader import HEARTBEAT, StreamEvent, StreamReader, reasoning_of, scores_of

_PRIME, _MASK, _EMPTY = 0x100000001B3, 2**64 - 1, 0xCBF29CE484222325
_INVERSE = pow(_PRIME, -1, 2**64)
# Tokens behind a stream's end, which a stop string has moved, are taken out of its checksum again.
_VOID_MAX = 4096
_OVER_MAX = 65536  # streams that are known to have ended
_QUIET_MAX = 5     # heartbeats without an event of the request, after which it is asked for
# A stream is lost if its engine has not opened it again after so many heartbeats of the next daemon (10 s).
_PATIENCE = 50
_NO_STREAM = 2**64 - 1
_GONE = "the daemon has ended, and its streams with it"


@dataclasses.dataclass
class _Stream:
    name: str | None
    have: int  # bytes of text, or tokens
    checksum: int = _EMPTY
    number: int = 0  # as readers get it; daemons begin their numbers anew
    ids: collections.deque[int] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=_VOID_MAX))

    def add(self, data: bytes) -> None:
        for byte in data:
            self.checksum = (self.checksum ^ byte) * _PRIME & _MASK

    def take_back(self, count: int) -> bool:
        """Undoes the last ids; False if they are not known."""
        if count > len(self.ids):
            return False
        for _ in range(count):
            for byte in reversed(_bytes_of(self.ids.pop())):
                self.checksum = self.checksum * _INVERSE & _MASK ^ byte
        return True


class ExactReader(StreamReader):
    def __init__(self, request_id: str | None, ids: bool):
        super().__init__(request_id)
        # What has to be asked before the next message is read.
        self.asks: collections.deque[dict[str, Any]] = collections.deque()
        self._hears_all = ids or request_id is None
        self._live: dict[int, _Stream] = {}
        self._over: dict[int, None] = {}  # oldest first
        self._strange: dict[int, str | None] = {}  # asked for without their opening; their names
        # Streams of a daemon that is gone, by name, which their engine may open again.
        self._waiting: dict[str, _Stream] = {}
        self._patience = 0
        self._ended: dict[str, None] = {}  # the names of streams that are over; oldest first
        self._instance: int | None = None  # of the text side
        self._newest: int | None = None   # the last stream that had begun when the subscription began
        self._quiet = 0                  # heartbeats since the last event or question
        self._heard = 0                  # the publisher's last message at that time
        self._base = self._highest = 0   # of the readers' numbers: what this daemon's are added to, the last
        # An ask that was refused, and why. The daemon may be another one, which does not know the stream.
        self._refusal: tuple[dict[str, Any], str] | None = None

    def read(self, topic: bytes, message: dict[str, Any]) -> list[StreamEvent]:
        self.check_version(message)
        is_heartbeat = topic == HEARTBEAT
        epoch, seq = message["epoch"], message["seq"]
        if epoch == 0:  # a text side that has not heard its daemon
            return []
        self.is_subscribed = self.is_subscribed or is_heartbeat
        instance = message.get("instance", self._instance)
        if epoch != self._epoch:
            self._instance = instance
            return self._begin(epoch, seq)
        expected = self._seq + (0 if is_heartbeat else 1)
        is_replaced = seq < self._seq or self._instance not in (None, instance)
        is_lost = self._hears_all and seq > expected
        self._instance = instance
        self._patience -= is_heartbeat
        late = list(self._give_up()) if self._waiting and self._patience <= 0 else []
        self._quiet = self._quiet + 1 if is_heartbeat else 0
        is_quiet = not self._hears_all and self._quiet >= _QUIET_MAX and seq > self._heard
        self._seq = seq
        if not is_heartbeat or is_quiet:
            self._heard = seq
        if is_replaced or is_lost or is_quiet:
            self._quiet = 0
            self._ask_all()  # the answers have this message's events as well
            return late
        return late + [event for part in ([] if is_heartbeat else message.get("events", [message]))
                for event in self._take(part, None)]

    def answer(self, ask: dict[str, Any], message: dict[str, Any]) -> list[StreamEvent]:
        """The events of an answer, or the reason why there is none."""
        if "error" in message:
            why = message["error"]
            if ask["ask"] != "from" and ask["offset"] == 0:
                raise Error(-1, "SPECD_ERROR_INVALID_ARGUMENT", f"ask = {ask['ask']}: refused: {why}")
            self._refusal = ask, why
            self.asks.appendleft({"v": 1, "ask": "streams", "stream": _NO_STREAM, "offset": 0})
            return []
        refusal, self._refusal = self._refusal, None
        if message["epoch"] != self._epoch:
            return []  # the publisher tells of the other daemon
        if refusal is not None:
            return list(self._refused(*refusal))
        if self._newest is None:
            self._newest = message["newest"]
        if "next" in message:
            stream, offset = message["next"]
            self.asks.appendleft({**ask, "stream": stream, "offset": offset})
        return [event for part in message["events"] for event in self._take(part, ask)]

    def _refused(self, ask: dict[str, Any], why: str) -> Iterator[StreamEvent]:
        if ask["ask"] != "from":
            # The stream has gone since the page before. Those behind it are there.
            self.asks.appendleft({**ask, "stream": ask["stream"] + 1, "offset": 0})
        yield from self._lose(ask["stream"], why)

    def _begin(self, epoch: int, seq: int) -> list[StreamEvent]:
        lost: list[StreamEvent] = []
        for stream, state in list(self._live.items()):
            if state.name is None or state.name in self._waiting:
                lost += self._lose(stream, _GONE)
            else:
                self._waiting[state.name] = self._live.pop(stream)
        self._patience = _PATIENCE
        # All streams of a daemon that came after the first are newer than the subscription.
        self._newest = None if self._epoch is None else 0
        self._epoch, self._seq = epoch, seq
        self._base, self._refusal = self._highest, None
        self._over = {}
        self._strange = {}
        self.asks.clear()
        self._ask_all()
        return lost

    def _give_up(self) -> Iterator[StreamEvent]:
        """Nobody has opened these streams again. An engine that does so later begins them anew for the reader."""
        for state in self._waiting.values():
            yield from self._say_lost(state, _GONE)
        self._waiting = {}

    def _end_lost(self, state: _Stream, why: str) -> Iterator[StreamEvent]:
        self._note_end(state.name)
        yield from self._say_lost(state, why)

    def _say_lost(self, state: _Stream, why: str) -> Iterator[StreamEvent]:
        if self._is_wanted(state.name):
            yield StreamEvent("lost", state.number, state.name, state.have, why=why)

    def _note_end(self, name: str | None) -> None:
        if name is not None:
            self._ended.pop(name, None)
            self._ended[name] = None
            if len(self._ended) > _OVER_MAX:
                del self._ended[next(iter(self._ended))]

    def _ask_all(self) -> None:
        """Asks for the rest of the streams that are known, and for the others."""
        for stream, state in self._live.items():
            self._ask("from", stream, state.have)
        name = {} if self.request_id is None else {"rid": self.request_id}
        # What had ended before the subscription is of interest to those who name it.
        if name or self._newest is not None:
            self._ask("ended", 0, 0, **name)
        self._ask("streams", 0, 0, **name)

    def _ask(self, kind: str, stream: int, offset: int, **more: Any) -> None:
        self.asks.append({"v": 1, "ask": kind, "stream": stream, "offset": offset, **more})

    def _lose(self, stream: int, why: str) -> Iterator[StreamEvent]:
        if stream in self._over:
            return
        state = self._live.pop(stream, None) or self._new(stream, self._strange.get(stream), 0)
        self._end(stream)
        yield from self._end_lost(state, why)

    def _new(self, stream: int, name: str | None, have: int) -> _Stream:
        number = self._base + stream
        self._highest = max(self._highest, number)
        return _Stream(name, have, number=number)

    def _end(self, stream: int) -> None:
        self._over[stream] = None
        self._strange.pop(stream, None)
        if len(self._over) > _OVER_MAX:
            del self._over[next(iter(self._over))]

    def _take(self, part: dict[str, Any], ask: dict[str, Any] | None) -> Iterator[StreamEvent]:
        """The event of a part of a message, or of the answer to an ask: one or none."""
        kind, number = part["kind"], part["stream"]
        offset: int = part.get("byte_offset", part.get("offset", 0))
        if number in self._over:
            return
        state = self._live.get(number)
        if state is None:
            if kind != "open":
                # A stream that began before the subscription, or whose opening was lost.
                if ask is None:
                    self._strange[number] = part.get("rid")
                    self._ask("from", number, 0)
                return
            if ask is not None and ask["ask"] == "ended" and self.request_id is None \
                    and number <= (self._newest or 0):
                self._end(number)
                return
            self._strange.pop(number, None)
            before = self._waiting.pop(part["rid"], None)
            if before is not None and part.get("resumed"):
                self._live[number] = before
                return
            if before is not None:  # its name is another stream's
                yield from self._end_lost(before, _GONE)
            if part.get("resumed") and part["rid"] in self._ended:
                self._end(number)
                return
            state = self._live[number] = self._new(number, part["rid"], offset)
            if self._is_wanted(part["rid"]):
                yield StreamEvent("open", state.number, part["rid"], offset,
                                  token_offset=part.get("offset", 0), message=part)
            return
        if kind == "open":
            return
        if offset > state.have:
            if ask is None:
                self._ask("from", number, state.have)
            else:
                yield from self._lose(number, "the daemon has not kept what is missing")
            return
        yield from self._continue(kind, part, state, state.have - offset)

    def _continue(self, kind: str, part: dict[str, Any], state: _Stream,
                  repeated: int) -> Iterator[StreamEvent]:
        """The event of a part whose first bytes (or ids) have come before."""
        number, text = part["stream"], part.get("text", "").encode()
        ids = tuple(part.get("ids", ()))
        if kind != "end" and repeated > 0 and repeated >= len(ids or text):
            return
        # An aborted text may have come further than the next daemon knows, if the last round had no answer.
        is_shorter = (kind == "end" and "byte_offset" in part and part.get("finish") == "abort"
                      and repeated > len(text))
        text, ids = text[repeated:], ids[repeated:]
        offset = state.have
        state.have += len(ids or text)
        state.ids.extend(ids)
        state.add(text or b"".join(map(_bytes_of, ids)))
        token_offset = part.get("token_offset", part.get("offset", 0))
        scores = scores_of(part.get("scores"))
        if "ids" in part:
            token_offset += repeated
            scores = None if scores is None else scores[repeated:]
        elif repeated > 0:
            scores = None  # they came with the first bytes
        if kind == "end":
            is_text = "byte_offset" in part
            void = 0 if is_text else repeated
            if not is_shorter and not self._is_proved(part, state, void):
                yield from self._lose(number, "the checksum of the stream is another one")
                return
            offset = offset - void
            del self._live[number]
            self._end(number)
            self._note_end(state.name)
        if self._is_wanted(state.name):
            yield StreamEvent(kind, state.number, state.name, offset, 0, text.decode(), ids, token_offset,
                              scores, part.get("finish"), part,
                              reasoning=reasoning_of(part, repeated),
                              score_bytes=None if scores is None else part.get("score_bytes"))

    def _is_proved(self, part: dict[str, Any], state: _Stream, void: int) -> bool:
        if "checksum" not in part or not state.take_back(void):
            return True
        return bool(part["checksum"] == state.checksum)


def _bytes_of(token: int) -> bytes:
    return token.to_bytes(4, "little", signed=True)
