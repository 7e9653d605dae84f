"""StreamReader makes StreamEvents of the messages that a daemon publishes. It knows what each stream has
had so far, and says where something is missing. docs/PROTOCOL.md, "ZeroMQ messages", has the messages.

Internal; subscribe.py has the socket.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._library import Error
from .dlpack import Array
from .results import SCORE, Logprob, logprobs_of

PROTOCOL = 1
HEARTBEAT = b"heartbeat"


@dataclasses.dataclass(frozen=True)
class StreamEvent:
    """What one message says about one stream. The stream's number tells streams apart, also where two have the
    same request_id one after another."""

    # "open", "text" (or "tokens"), "end"; "lost": no more comes, and `why` says why. With best_effort
    # the publisher has then gone, or started anew.
    kind: str
    stream: int
    # Token events name the request in "open" alone: None if that was before the subscription.
    request_id: str | None = None
    offset: int = 0  # bytes of text (or tokens) of the stream before this event
    # With best_effort: bytes (or tokens) right before this event that did not come, because the
    # subscription began later than the stream, or was too slow.
    missed: int = 0
    text: str = ""
    ids: tuple[int, ...] = ()
    # Tokens of the stream before this event; 0 for "lost" and for an "open" of text.
    token_offset: int = 0
    # As in specd.Result, for each token from token_offset on. None without logprobs, and for events
    # without tokens. Text that may become a stop string is held back, and the scores of its tokens
    # are not. If token_offset is larger than the last event's token_offset + len(scores), scores
    # were lost, which `missed` does not say: what was lost and asked for again comes without.
    scores: Array | None = dataclasses.field(default=None, repr=False, compare=False)
    finish: str | None = None  # of "end": "stop", "length", "abort" or "error"
    # The whole message as it was sent, such as spans, accepted and logprobs.
    message: dict[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    # For each of the scores of text events, what its id adds to a text.
    score_bytes: list[list[bytes]] | None = dataclasses.field(default=None, repr=False, compare=False)
    why: str | None = None  # of "lost"
    reasoning: str = ""  # the front of `text` that is of the model's thought, its end marker included

    @property
    def answer(self) -> str:
        """What follows the thought in `text`."""
        return self.text[len(self.reasoning):]

    @property
    def reasoning_tokens(self) -> int:
        """Of an "end" of text: the stream's tokens that are of the thought."""
        count: int = self.message.get("reasoning_tokens", 0)
        return count

    @property
    def logprobs(self) -> list[dict[int, Logprob]] | None:
        """For each token from token_offset on {id: Logprob}, the token itself first, as in vLLM. Those of
        text events have their bytes, as OpenAI's `bytes`."""
        texts = self.score_bytes
        if texts is None:
            return logprobs_of(self.scores)
        return logprobs_of(self.scores, lambda id_, token, place: texts[token][place])


class StreamReader:
    def __init__(self, request_id: str | None = None):
        self.request_id = request_id  # None: all
        # A heartbeat of a publisher that knows its daemon has come: what begins from now on will not be missed.
        self.is_subscribed = False
        self._epoch: int | None = None
        self._seq = 0
        # by stream: what came so far, in the unit of offsets
        self._have: dict[int, int] = {}
        self._names: dict[int, str | None] = {}  # by stream

    def check_version(self, message: dict[str, Any]) -> None:
        if message.get("v") != PROTOCOL:
            raise Error(-5, "SPECD_ERROR_VERSION",
                        f"v: a message of version {message.get('v')}, and this package reads "
                        f"version {PROTOCOL}; use the package of the daemon's version")

    def read(self, topic: bytes, message: dict[str, Any]) -> list[StreamEvent]:
        """Returns the events of a message, a map."""
        self.check_version(message)
        is_heartbeat = topic == HEARTBEAT
        lost = self._lost() if self._has_restarted(message, is_heartbeat) else []
        self._seq = message["seq"]
        if is_heartbeat:
            self.is_subscribed = self.is_subscribed or message["epoch"] != 0
            # A last message may be lost, and then nothing else tells of the end.
            return lost + (self._lost() if message["streams"] == 0 else [])
        events = message.get("events", [message])
        return lost + [event for part in events for event in self._event(part)]

    def _has_restarted(self, message: dict[str, Any], is_heartbeat: bool) -> bool:
        """Whether the publisher is another than before, which knows no stream of the one before."""
        epoch, seq = message["epoch"], message["seq"]
        is_next: bool = seq > self._seq or is_heartbeat and seq == self._seq
        is_other = self._epoch is not None and (epoch != self._epoch or not is_next)
        self._epoch = epoch
        return is_other

    def _lost(self) -> list[StreamEvent]:
        """Ends every stream that has not ended."""
        lost = [StreamEvent("lost", stream, self._names.get(stream), have)
                for stream, have in self._have.items()]
        self._have, self._names = {}, {}
        return [event for event in lost if self._is_wanted(event.request_id)]

    def _is_wanted(self, name: str | None) -> bool:
        return self.request_id is None or name == self.request_id

    def _event(self, message: dict[str, Any]) -> Iterator[StreamEvent]:
        """The event of a part of a message: one or none."""
        kind, stream = message["kind"], message["stream"]
        offset = message.get("byte_offset", message.get("offset", 0))
        name = message.get("rid", self._names.get(stream))
        text, ids = message.get("text", ""), tuple(message.get("ids", ()))
        # A stream that was not seen to open is had from here on.
        have = self._have.get(stream, offset if kind == "open" else 0)
        if kind == "end":
            self._have.pop(stream, None)
            self._names.pop(stream, None)
        elif offset < have:
            return  # a repetition
        else:
            self._have[stream] = offset + (len(ids) if ids else len(text.encode()))
            self._names[stream] = name
        if self._is_wanted(name):
            yield StreamEvent(kind, stream, name, offset, max(offset - have, 0), text, ids,
                              message.get("token_offset", message.get("offset", 0)),
                              scores_of(message.get("scores")), message.get("finish"), message,
                              reasoning=reasoning_of(message),
                              score_bytes=message.get("score_bytes"))


def reasoning_of(message: dict[str, Any], repeated: int = 0) -> str:
    """The text of the thought in a message of text, without its first bytes."""
    size = sum(size for size, kind in message.get("spans", ()) if kind & 2)
    text: bytes = message.get("text", "").encode()
    return text[repeated:max(size, repeated)].decode()


def scores_of(tokens: list[list[list[float]]] | None) -> Array | None:
    if tokens is None:
        return None
    return np.array([[tuple(score) for score in token] for token in tokens], SCORE)
