"""StreamOutput joins the events of streams, so that a reader gets fewer and larger ones.

Internal; subscribe.py feeds it, after each message, with what StreamReader made of it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ._library import refusal
from .arrays import integer
from .stream_reader import StreamEvent

OUTPUTS = ("delta", "cumulative", "final")


class _Stream:
    """parts: the events since the last one that was given, or, if cumulative, with the text of that
    one as the first."""

    def __init__(self) -> None:
        self.parts: list[StreamEvent] = []
        self.given_tokens = 0
        self.given_at: float | None = None  # None: nothing was given


class StreamOutput:
    def __init__(self, output: str, stream_interval: int | None, stream_interval_ms: int | None,
                 seconds: Callable[[], float] = time.monotonic):
        if output not in OUTPUTS:
            raise refusal(f"output: {output!r} is not one of {', '.join(OUTPUTS)}")
        self._is_cumulative, self._is_final = output == "cumulative", output == "final"
        self._tokens = (None if stream_interval is None
                        else integer(stream_interval, "stream_interval", 1, 2**31 - 1))
        self._ms = (None if stream_interval_ms is None
                    else integer(stream_interval_ms, "stream_interval_ms", 1, 2**31 - 1))
        if self._is_final and not (self._tokens is None and self._ms is None):
            raise refusal("stream_interval: output=\"final\" gives a stream's text at its end alone; "
                          "leave stream_interval and stream_interval_ms out")
        self._seconds = seconds
        self._waits = self._tokens is not None or self._ms is not None
        self._streams: dict[int, _Stream] = {}
        self._new: dict[int, _Stream] = {}  # those whose parts have what was not given

    def take(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """Yields what is to be given after a message. A message without events counts too: text that
        waits may be due."""
        for event in events:
            yield from self._take(event)
            # Without an interval the parts of a message are not joined either.
            if not self._waits and not self._is_final:
                yield from self._give_due((event.stream,))
        if self._waits:
            yield from self._give_due(tuple(self._new))

    def _give_due(self, numbers: Iterable[int]) -> Iterator[StreamEvent]:
        now = self._seconds()
        for number in numbers:
            stream = self._new.get(number)
            if stream is not None and self._is_due(stream, now):
                yield self._give(number, stream, now)

    def _take(self, event: StreamEvent) -> Iterator[StreamEvent]:
        if event.kind == "open":
            yield event
            return
        stream = self._streams.setdefault(event.stream, _Stream())
        # An event spans no gap.
        if stream.parts and (event.kind == "lost" or not _follows(stream.parts[-1], event)):
            if event.stream in self._new:
                yield self._give(event.stream, stream, self._seconds())
            stream.parts = []
        if event.kind == "lost":
            yield event
        else:
            stream.parts.append(event)
            self._new[event.stream] = stream
            if event.kind == "end":
                yield _joined(stream.parts)
        if event.kind in ("lost", "end"):
            del self._streams[event.stream]
            self._new.pop(event.stream, None)

    def _is_due(self, stream: _Stream, now: float) -> bool:
        if stream.given_at is None or not self._waits:
            return True
        tokens = _tokens_after(stream.parts[-1]) - stream.given_tokens
        return (self._tokens is not None and tokens >= self._tokens
                or self._ms is not None and (now - stream.given_at) * 1000 >= self._ms)

    def _give(self, number: int, stream: _Stream, now: float) -> StreamEvent:
        given = _joined(stream.parts)
        stream.parts = [given] if self._is_cumulative else []
        del self._new[number]
        stream.given_tokens, stream.given_at = _tokens_after(given), now
        return given


def _tokens_after(event: StreamEvent) -> int:
    tokens: int = event.message.get("tokens", event.token_offset + len(event.ids))
    return tokens


def _follows(last: StreamEvent, event: StreamEvent) -> bool:
    """Whether nothing is missing between the two, neither text nor scores."""
    is_scored = last.scores is not None or event.scores is not None
    is_gap = is_scored and event.token_offset != _tokens_after(last)
    return event.missed == 0 and (not is_gap or _is_end_of_ids(event))


def _is_end_of_ids(event: StreamEvent) -> bool:
    """Whether it ends ids. A stop string may have moved such an end before ids that came."""
    return event.kind == "end" and "byte_offset" not in event.message


def _joined(parts: list[StreamEvent]) -> StreamEvent:
    """The events as one: of the kind, and with the message, of the last."""
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    ids = tuple(each for part in parts for each in part.ids)
    arrays = [part.scores for part in parts if part.scores is not None]
    texts = [each for part in parts for each in part.score_bytes or ()]
    scores = np.concatenate(arrays) if arrays else None
    if _is_end_of_ids(last) and last.offset < first.offset + len(ids):
        # The ids behind the end are void.
        count = max(last.offset - first.offset, 0)
        ids, scores = ids[:count], None if scores is None or count == 0 else scores[:count]
    return dataclasses.replace(
        last, offset=min(first.offset, last.offset), missed=first.missed,
        text="".join(part.text for part in parts),
        reasoning="".join(part.reasoning for part in parts), ids=ids,
        token_offset=min(first.token_offset, last.token_offset), scores=scores,
        score_bytes=texts or None)
