"""subscribe reads the text, or the ids, of streams that a daemon publishes: sync and async. It needs
pyzmq and msgpack, and no engine."""

from __future__ import annotations

import collections
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any

from ._library import Error, refusal
from .arrays import integer
from .exact_reader import ExactReader
from .stream_output import StreamOutput
from .stream_reader import HEARTBEAT, StreamEvent, StreamReader

__all__ = ["StreamEvent", "Subscription", "subscribe"]

_AGAIN_S = 0.05    # between two asks to a side that cannot answer yet
_RESEND_MS = 1000  # an ask without an answer is sent again


def subscribe(endpoint: str, request_id: str | None = None, ids: bool = False,
              silence_ms: int = 5000, best_effort: bool = False,
              ask: str | None = None, *, output: str = "delta", stream_interval: int | None = None,
              stream_interval_ms: int | None = None) -> Subscription:
    """Subscribes to the streams of a daemon and returns a Subscription, an iterator of StreamEvents
    without an end. Every byte, or every id, of a stream comes once and in order, from its beginning
    on: what was lost, or was sent before the subscription, is asked for. Where that cannot be, an
    event of the kind "lost" says why. The checksums at the ends of streams are looked at.

    >>> with specd.subscribe("unix:/run/specd/specd.sock") as events:
    ...     for event in events:
    ...         print(event.request_id, event.text)

    With asyncio: `async with` and `async for`.

    endpoint: the daemon's socket ("unix:PATH"), or the endpoint of its texts (of its tokens, for
      ids), such as ipc:///run/specd/specd.sock.text.
    request_id: the streams of this request alone, also one that has just ended (--keep_ended of the
      daemon); None: of all that run or begin.
    ids: token ids as they are confirmed, in the place of text. A stop string may still end the text
      earlier.
    silence_ms: the longest silence. A publisher sends something every 200 ms, so a longer silence
      raises Error ("SPECD_ERROR_DISCONNECTED"), and so does a detokenizer that has not heard its
      daemon as long, in `with`. One may go on to read: a publisher that comes back is found. Its
      streams are new, and those before end with the kind "lost".
    best_effort: nothing is asked for. A stream that is under way already, or of which messages were
      lost, has an event whose `missed` is not 0. Ids then name their request only where a stream
      begins.
    ask: the endpoint that gives events again, if `endpoint` is none of the names that a daemon gives
      by itself.
    output: "delta": each event has what is new. "cumulative": each has all of its stream so far.
      "final": all of a stream comes in its "end". No event spans a gap: one whose `missed` is not 0
      begins anew, and what waited before it is given first. An "end" has no ids that a stop string
      made void.
    stream_interval, stream_interval_ms: an event waits until its stream has this many new tokens, or
      until this long after the stream's event before; with both, until the first of the two. The
      first tokens and the end never wait. The time is looked at when a message comes, so at least
      every 200 ms. An event that was joined has the `message` of its last part.
    """
    return Subscription(endpoint, request_id, ids, silence_ms, best_effort, ask,
                        StreamOutput(output, stream_interval, stream_interval_ms))


class Subscription:
    """What subscribe returns. One thread, or one task, at a time."""

    def __init__(self, endpoint: str, request_id: str | None, ids: bool, silence_ms: int,
                 best_effort: bool, ask: str | None, output: StreamOutput):
        self.endpoint = _endpoint(endpoint, ids)
        self._silence_ms = integer(silence_ms, "silence_ms", 1, 2**31 - 1)
        if request_id is not None and not isinstance(request_id, str):
            raise refusal(f"request_id: {request_id!r} is not a string")
        self._zmq, self._msgpack = _packages()
        self._exact = None if best_effort else ExactReader(request_id, ids)
        self._ask_endpoint = None if best_effort else ask or _ask_endpoint(self.endpoint)
        self._reader = self._exact or StreamReader(request_id)
        self._asks: collections.deque[dict[str, Any]] = (
            self._exact.asks if self._exact else collections.deque())
        self._output = output
        self._events: collections.deque[StreamEvent] = collections.deque()
        self._topics = [b"tokens" if ids else b"text/", HEARTBEAT]
        if request_id is not None and not ids:
            self._topics[0] = b"text/" + request_id.encode() + b"/"
        self._is_async = False
        self._connect(self._zmq.Socket)

    def _connect(self, kind: Any) -> None:
        self._kind = kind
        self._asker: Any = None
        self._socket = kind(self._zmq.Context.instance(), self._zmq.SUB)
        try:
            for topic in self._topics:
                self._socket.subscribe(topic)
            self._socket.connect(self.endpoint)
        except self._zmq.ZMQError as error:
            self.close()
            raise refusal(f"endpoint: {self.endpoint}: {error}") from None

    def close(self) -> None:
        """Ends the subscription. Events that were not read are dropped."""
        self._socket.close(linger=0)
        self._close_asker()

    def _close_asker(self) -> None:
        if self._asker is not None:
            self._asker.close(linger=0)
            self._asker = None

    def _send(self, ask: dict[str, Any]) -> Any:
        """Sends an ask, and returns what its sending returns."""
        if self._asker is None:
            self._asker = self._kind(self._zmq.Context.instance(), self._zmq.REQ)
            self._asker.connect(self._ask_endpoint)
        return self._asker.send(self._msgpack.packb(ask))

    def _answer(self, asks: collections.deque[dict[str, Any]], payload: bytes, until: float) -> bool:
        """Takes the answer to the first ask; False: one has to ask again, after a while."""
        message = self._msgpack.unpackb(payload)
        if message.get("again"):
            self._check_time(until, f"says: {message['error']}")
            return False
        assert self._exact is not None
        self._events.extend(self._output.take(self._exact.answer(asks.popleft(), message)))
        return True

    def _give_up(self, until: float) -> None:
        """Gives up a connection whose other end may have died with the ask, or all if it is late."""
        self._close_asker()
        self._check_time(until, "did not answer; check that the daemon (for texts, its detokenizer) "
                                "runs, or read with best_effort=True")

    def _check_time(self, until: float, why: str) -> None:
        if time.monotonic() >= until:
            raise Error(-10, "SPECD_ERROR_DISCONNECTED",
                        f"within {self._silence_ms} ms {self._ask_endpoint} {why}")

    def _deadline(self) -> float:
        return time.monotonic() + self._silence_ms / 1000

    def _check_subscribed(self, until: float) -> None:
        if not self._reader.is_subscribed and time.monotonic() >= until:
            raise Error(-10, "SPECD_ERROR_DISCONNECTED",
                        f"for {self._silence_ms} ms {self.endpoint} has said that it does not hear its daemon; check "
                        "that the daemon runs, and that the detokenizer has its socket (specd-detok --specd)")

    def _read(self, frames: Sequence[bytes]) -> None:
        topic, payload = frames
        events = self._reader.read(topic, self._msgpack.unpackb(payload))
        self._events.extend(self._output.take(events))

    def _silent(self) -> Error:
        return Error(-10, "SPECD_ERROR_DISCONNECTED",
                     f"nothing came from {self.endpoint} for {self._silence_ms} ms, and a daemon "
                     "sends a heartbeat every 200 ms; check that it runs, publishes this (--text, "
                     "--tokens, --detokenizer), and serves this user")

    # ---- sync

    def __enter__(self) -> Subscription:
        until = self._deadline()
        try:
            while not self._reader.is_subscribed:
                self._receive()
                self._check_subscribed(until)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        return self

    def __next__(self) -> StreamEvent:
        while not self._events:
            self._receive()
        return self._events.popleft()

    def _receive(self) -> None:
        if not self._asks:
            if self._socket.poll(self._silence_ms) == 0:
                raise self._silent()
            self._read(self._socket.recv_multipart())
        while self._asks:
            self._exchange(self._asks)

    def _exchange(self, asks: collections.deque[dict[str, Any]]) -> None:
        """Has the first ask answered. If that ends early, the ask stays the first one."""
        until = self._deadline()
        try:
            while True:
                self._send(asks[0])
                if self._asker.poll(_RESEND_MS) == 0:
                    self._give_up(until)
                elif self._answer(asks, self._asker.recv(), until):
                    return
                else:
                    time.sleep(_AGAIN_S)
        except BaseException:
            self._close_asker()  # it may wait for an answer, and could not ask
            raise

    # ---- async

    async def __aenter__(self) -> Subscription:
        until = self._deadline()
        try:
            while not self._reader.is_subscribed:
                await self._receive_async()
                self._check_subscribed(until)
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._events:
            await self._receive_async()
        return self._events.popleft()

    async def _receive_async(self) -> None:
        if not self._is_async:
            from zmq.asyncio import Socket
            self.close()
            self._connect(Socket)
            self._is_async = True
        if not self._asks:
            if await self._socket.poll(self._silence_ms) == 0:
                raise self._silent()
            self._read(await self._socket.recv_multipart())
        while self._asks:
            await self._exchange_async(self._asks)

    async def _exchange_async(self, asks: collections.deque[dict[str, Any]]) -> None:
        from asyncio import sleep
        until = self._deadline()
        try:
            while True:
                await self._send(asks[0])
                if await self._asker.poll(_RESEND_MS) == 0:
                    self._give_up(until)
                elif self._answer(asks, await self._asker.recv(), until):
                    return
                else:
                    await sleep(_AGAIN_S)
        except BaseException:
            self._close_asker()
            raise


def _endpoint(endpoint: str, ids: bool) -> str:
    if not isinstance(endpoint, str):
        raise refusal(f"endpoint: {endpoint!r} is not a string")
    if endpoint.startswith("unix:"):
        return f"ipc://{endpoint.removeprefix('unix:')}.{'tokens' if ids else 'text'}"
    return endpoint


def _ask_endpoint(endpoint: str) -> str:
    if endpoint.endswith(".text"):
        return f"{endpoint}_ask"
    if endpoint.endswith(".tokens"):
        return f"{endpoint.removesuffix('.tokens')}.ask"
    raise refusal(f"ask: the endpoint that gives the events of {endpoint} again is not known; name it "
                  "(--ask of the daemon, for texts --text_ask), or read with best_effort=True")


def _packages() -> tuple[Any, Any]:
    try:
        import msgpack  # type: ignore[import-untyped]
        import zmq
    except ImportError as error:
        raise ImportError(f"specd.subscribe needs pyzmq and msgpack ({error}); "
                          "pip install pyzmq msgpack") from None
    return zmq, msgpack
