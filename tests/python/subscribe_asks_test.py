"""specd.subscribe between sockets of this test, which publishes by hand and chooses when an ask is answered."""

import asyncio
import itertools
import unittest

import msgpack
import zmq
import zmq.asyncio

import specd
from stream_reader_test import EPOCH, HEARTBEAT

PATIENCE_S = 30
NAMES = itertools.count()


class Daemon:
    """The sockets of a daemon that has published one stream of ids."""

    def __init__(self, test, epoch=EPOCH):
        self.epoch = epoch
        name = f"inproc://subscribe_asks_{next(NAMES)}"
        self.endpoints = {"endpoint": f"{name}.tokens", "ask": f"{name}.ask"}
        context = zmq.asyncio.Context.shadow(zmq.Context.instance())
        self.published, self.asks = context.socket(zmq.XPUB), context.socket(zmq.ROUTER)
        self.published.setsockopt(zmq.XPUB_VERBOSE, 1)  # subscribe connects twice, the second time for asyncio
        for socket, endpoint in zip((self.published, self.asks), self.endpoints.values()):
            socket.bind(endpoint)
            test.addCleanup(socket.close, linger=0)

    async def serve(self):
        """Sends heartbeats to those who subscribe."""
        while True:
            subscription = await self.published.recv()
            if subscription == b"\1" + HEARTBEAT:
                await self.heartbeat()

    async def heartbeat(self):
        message = {"v": 1, "epoch": self.epoch, "seq": 0, "streams": 1}
        await self.published.send_multipart([HEARTBEAT, msgpack.packb(message)])

    async def asked(self):
        peer, empty, ask = await asyncio.wait_for(self.asks.recv_multipart(), PATIENCE_S)
        assert empty == b""
        return peer, msgpack.unpackb(ask)

    async def answer(self, peer, **message):
        await self.asks.send_multipart([peer, b"", msgpack.packb({"v": 1, **message})])

    async def answer_stream(self, peer):
        opening = {"kind": "open", "stream": 1, "offset": 0, "rid": "r"}
        await self.answer(peer, epoch=EPOCH, seq=0, newest=1, events=[opening])


class SubscribeAsksTest(unittest.IsolatedAsyncioTestCase):
    def subscribe(self, daemon, **options):
        serving = asyncio.ensure_future(daemon.serve())
        self.addCleanup(serving.cancel)
        events = specd.subscribe(**daemon.endpoints, ids=True, **options)
        self.addCleanup(events.close)
        return events

    async def next(self, events):
        return await asyncio.wait_for(events.__anext__(), PATIENCE_S)

    async def test_an_event_that_was_given_up_is_asked_for_again(self):
        # Bug: a cancelled anext forgot its ask, and left a socket that waited for the answer and could not ask.
        daemon = Daemon(self)
        events = self.subscribe(daemon)
        waiting = asyncio.ensure_future(events.__anext__())
        _, ask = await daemon.asked()
        self.assertEqual(ask["ask"], "streams")
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        await daemon.heartbeat()
        waiting = asyncio.ensure_future(self.next(events))
        peer, again = await daemon.asked()
        self.assertEqual(again, ask)
        await daemon.answer_stream(peer)
        self.assertEqual((await waiting).request_id, "r")

    async def test_an_ask_that_is_not_answered_in_time_stays(self):
        # Bug: after the time the "again" of a list was taken for an answer without events.
        daemon = Daemon(self)
        events = self.subscribe(daemon, silence_ms=300)
        waiting = asyncio.ensure_future(self.next(events))
        while not waiting.done():
            asked = asyncio.ensure_future(daemon.asked())
            await asyncio.wait((asked, waiting), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                await daemon.answer(asked.result()[0], again=True, error="too many answers wait")
            asked.cancel()
        with self.assertRaisesRegex(specd.Error, "within 300 ms .* says: too many answers wait"):
            await waiting
        await daemon.heartbeat()
        waiting = asyncio.ensure_future(self.next(events))
        peer, ask = await daemon.asked()
        self.assertEqual(ask["ask"], "streams")
        await daemon.answer_stream(peer)
        self.assertEqual((await waiting).request_id, "r")

    async def test_a_text_side_that_does_not_hear_its_daemon_is_named(self):
        daemon = Daemon(self, epoch=0)
        entering = asyncio.ensure_future(self.subscribe(daemon, silence_ms=300).__aenter__())
        while not entering.done():
            await daemon.heartbeat()
            await asyncio.sleep(.02)
        with self.assertRaisesRegex(specd.Error, "for 300 ms .* does not hear its daemon; check .* --specd"):
            await entering


if __name__ == "__main__":
    unittest.main()
