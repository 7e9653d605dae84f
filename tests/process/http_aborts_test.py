"""specd-http ends requests: for a DELETE, and for a client that leaves."""

import json
import signal
import socket
import unittest

from http_streams_test import PROMPTS, StreamsCase
from http_support import EventReader
from support import wait_until

NAME = PROMPTS[0]


class AbortsTest(StreamsCase):
    def reading(self, *flags):
        """An engine whose stream has no end, and a reader of it."""
        engine = self.generate("--max_tokens=20000", "--forward_ms=5", self.endless_text(), *flags, prompts=[NAME])
        reader = self.ask(self.path(NAME, format="chat"))
        reader.readline()
        return engine, reader

    def asked(self, request_id=NAME):
        """A connection that has asked for the end of a request and waits for the answer."""
        client = self.connect()
        self.addCleanup(client.close)
        client.sendall(f"DELETE {self.path(request_id)} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return client

    def let_it_be_read(self):
        """Whoever asks later is answered later; what was asked before has been read then."""
        for _ in range(5):
            self.status("/live")

    def answer(self, client):
        """Status and body."""
        with client.makefile("rb") as file:
            head, _, body = file.read().decode().partition("\r\n\r\n")
        return int(head.split()[1]), body

    def assert_aborted(self, engine, reader):
        self.assertEqual(list(EventReader(reader))[-2].json["choices"][0]["finish_reason"], "abort")
        engine.signal(signal.SIGTERM)
        engine.wait()

    def test_a_client_that_leaves_ends_its_request_if_it_asked_for_that(self):
        daemon = self.daemon()
        self.start_http()
        client = self.client("--streams=2")
        engine = self.generate("--max_tokens=20000", "--forward_ms=5", self.endless_text(), prompts=PROMPTS[:2])
        stays, leaves = (self.ask(self.path(name, format="specd", abort_on_disconnect=flag))
                         for name, flag in zip(PROMPTS, (0, 1)))
        for response in stays, leaves:
            response.readline()
            response.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: PROMPTS[1] in self.ends(client), "the end of the request")
        self.assertEqual(self.ends(client)[PROMPTS[1]]["finish"], "abort")
        self.assertNotIn(NAME, self.ends(client))
        last = list(self.stream(PROMPTS[1], format="chat"))
        self.assertEqual(last[-2].json["choices"][0]["finish_reason"], "abort")
        engine.signal(signal.SIGTERM)
        engine.wait()
        self.stop(daemon)

    def test_delete_ends_a_request_and_says_so(self):
        daemon = self.daemon()
        self.start_http("--streams_max=1")
        client = self.client("--streams=1")
        name = NAME
        self.assertEqual(self.status(self.path(name), method="DELETE"), 404)  # none runs yet
        engine = self.generate("--max_tokens=20000", "--forward_ms=5", self.endless_text(), prompts=[name])
        reader = self.ask(self.path(name, format="chat"))
        reader.readline()
        response, text = self.get(self.path(name), method="DELETE")
        self.assertEqual((response.status, json.loads(text)), (200, {"request_id": name, "aborted": True}))
        last = list(EventReader(reader))
        self.assertEqual(last[-2].json["choices"][0]["finish_reason"], "abort")
        client.wait()
        self.assertEqual(self.ends(client)[name]["finish"], "abort")
        response, text = self.get(self.path(name), method="DELETE")
        self.assertEqual(response.status, 404)
        self.assertIn(name, text)
        engine.signal(signal.SIGTERM)
        engine.wait()
        self.stop(daemon)
        response, text = self.get(self.path(name), method="DELETE")  # there is no daemon that could answer
        self.assertEqual((response.status, response.getheader("Retry-After")), (503, "1"))

    def test_clients_that_wait_for_an_abort_have_places_of_their_own(self):
        # Bug: each took a place of one that reads a stream, and there was no bound.
        daemon = self.daemon()
        self.start_http("--streams_max=2")
        engine, reader = self.reading()
        daemon.stop()
        waiting = [self.asked(f"r{number}") for number in range(300)]
        self.let_it_be_read()
        other = self.ask(self.path(NAME))
        self.assertEqual(other.status, 200)
        self.assertEqual(self.status(self.path(NAME)), 503)
        answers = [self.answer(client) for client in waiting]
        self.assertEqual({status for status, _ in answers}, {503})
        refused = [body for _, body in answers if body.startswith("256 clients wait for an answer")]
        self.assertTrue(0 < len(refused) <= 300 - 256, len(refused))
        daemon.signal(signal.SIGCONT)
        engine.signal(signal.SIGTERM)
        engine.wait()
        self.stop(daemon)

    def test_a_client_that_sends_nothing_more_gets_its_answer(self):
        daemon = self.daemon()
        self.start_http()
        engine, reader = self.reading()
        daemon.stop()
        client = self.asked()
        client.shutdown(socket.SHUT_WR)
        self.let_it_be_read()
        daemon.signal(signal.SIGCONT)
        self.assertEqual(self.answer(client), (200, json.dumps({"request_id": NAME, "aborted": True},
                                                               separators=(",", ":")) + "\n"))
        self.assert_aborted(engine, reader)
        self.stop(daemon)

    def test_a_request_ends_though_its_engine_has_not_come_back_yet(self):
        # Bug: the next daemon knew no stream yet, so the answer was 404 and the request went on.
        daemon = self.daemon()
        self.start_http()
        engine, reader = self.reading("--reconnect_ms=60000")
        engine.stop()
        self.kill(daemon)
        daemon = self.daemon()
        client = self.asked()
        self.let_it_be_read()
        engine.signal(signal.SIGCONT)
        self.assertEqual(self.answer(client)[0], 200)
        self.assert_aborted(engine, reader)
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
