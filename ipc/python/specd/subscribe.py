"""subscribe reads the text, or the ids, of streams that a daemon publishes: sync and async. It needs
pyzmq and msgpack, and no engine."""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator, Iterator, Sequence
from types import TracebackType
from typing import Any

from ._library import Error, refusal
from .arrays import integer
from .stream_reader import HEARTBEAT, StreamEvent, StreamReader

__all__ = ["StreamEvent", "Subscription", "subscribe"]


def subscribe(endpoint: str, request_id: str | None = None, ids: bool = False,
              silence_ms: int = 5000) -> Subscription:
    """Subscribes to the streams of a daemon and returns a Subscription, an iterator of StreamEvents
    without an end.

    >>> with specd.subscribe("unix:/run/specd/specd.sock") as events:
    ...     for event in events:
    ...         print(event.request_id, event.text)

    With asyncio: `async with` and `async for`. Once the block has begun, nothing that is sent later
    is missed. A stream that is under way already begins with an event whose `missed` is not 0.

    endpoint: the daemon's socket ("unix:PATH"), or the endpoint of its texts (of its tokens, for
      ids), such as ipc:///run/specd/specd.sock.text.
    request_id: the streams of this request alone; None: of all. Ids name their request only where a
      stream begins, so that with `ids` the subscription must begin before the request.
    ids: token ids as they are confirmed, in the place of text. A stop string may still end the text
      earlier.
    silence_ms: the longest silence. A publisher sends something every 200 ms, so a longer silence
      raises Error ("SPECD_ERROR_DISCONNECTED"). One may go on to read: a publisher that comes back
      is found. Its streams are new, and those before end with the kind "lost".
    """
    return Subscription(endpoint, request_id, ids, silence_ms)


class Subscription:
    """What subscribe returns. One thread, or one task, at a time."""

    def __init__(self, endpoint: str, request_id: str | None, ids: bool, silence_ms: int):
        self.endpoint = _endpoint(endpoint, ids)
        self._silence_ms = integer(silence_ms, "silence_ms", 1, 2**31 - 1)
        if request_id is not None and not isinstance(request_id, str):
            raise refusal(f"request_id: {request_id!r} is not a string")
        self._zmq, self._msgpack = _packages()
        self._reader = StreamReader(request_id)
        self._events: collections.deque[StreamEvent] = collections.deque()
        self._topics = [b"tokens" if ids else b"text/", HEARTBEAT]
        if request_id is not None and not ids:
            self._topics[0] = b"text/" + request_id.encode() + b"/"
        self._is_async = False
        self._connect(self._zmq.Socket)

    def _connect(self, kind: Any) -> None:
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

    def _read(self, frames: Sequence[bytes]) -> None:
        topic, payload = frames
        self._events.extend(self._reader.read(topic, self._msgpack.unpackb(payload)))

    def _silent(self) -> Error:
        return Error(-10, "SPECD_ERROR_DISCONNECTED",
                     f"nothing came from {self.endpoint} for {self._silence_ms} ms, and a daemon "
                     "sends a heartbeat every 200 ms; check that it runs, publishes this (--text, "
                     "--tokens, --detokenizer), and serves this user")

    # ---- sync

    def __enter__(self) -> Subscription:
        try:
            while not self._reader.is_subscribed:
                self._receive()
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
        if self._socket.poll(self._silence_ms) == 0:
            raise self._silent()
        self._read(self._socket.recv_multipart())

    # ---- async

    async def __aenter__(self) -> Subscription:
        try:
            while not self._reader.is_subscribed:
                await self._receive_async()
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
        if await self._socket.poll(self._silence_ms) == 0:
            raise self._silent()
        self._read(await self._socket.recv_multipart())


def _endpoint(endpoint: str, ids: bool) -> str:
    if not isinstance(endpoint, str):
        raise refusal(f"endpoint: {endpoint!r} is not a string")
    if endpoint.startswith("unix:"):
        return f"ipc://{endpoint.removeprefix('unix:')}.{'tokens' if ids else 'text'}"
    return endpoint


def _packages() -> tuple[Any, Any]:
    try:
        import msgpack  # type: ignore[import-untyped]
        import zmq
    except ImportError as error:
        raise ImportError(f"specd.subscribe needs pyzmq and msgpack ({error}); "
                          "pip install pyzmq msgpack") from None
    return zmq, msgpack
