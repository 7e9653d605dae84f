"""specd-http: what a scraper, a service manager and a hostile client get.

Health follows the daemon through its life: not there, serving, standing still, going on, killed.
"""

import http.client
import json
import os
import signal
import socket
import time
import unittest

from http_support import HttpCase
from support import TOKENIZER, wait_until

CLIENTS_MAX = 64       # tools/http/http_server.h
HEAD_BYTES_MAX = 8192
CLIENT_S = 5


class SiteTest(HttpCase):
    def setUp(self):
        super().setUp()
        self.server = self.start_http()

    def assertServes(self):
        self.assertEqual(self.status("/ready"), 200)

    def ready_daemon(self):
        daemon = self.daemon()
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        return daemon

    def exchange(self, sent):
        """What a client that sends these bytes is answered."""
        with self.connect() as client:
            answer = b""
            try:
                client.sendall(sent)
                while part := client.recv(65536):
                    answer += part
            except (ConnectionResetError, BrokenPipeError):
                pass
            return answer

    def test_health_follows_the_daemon(self):
        for path in "/metrics", "/live", "/ready":
            self.assertEqual(self.status(path), 503)  # there is no daemon yet
        daemon = self.ready_daemon()
        self.assertEqual(self.status("/live"), 200)
        daemon.stop()
        wait_until(lambda: self.status("/ready") == 503, "the daemon to stand still")
        self.assertIn("stands still", self.get("/ready")[1])
        self.assertEqual(self.status("/live"), 200)  # 30 s are not over
        self.assertEqual(self.status("/metrics"), 200)
        daemon.signal(signal.SIGCONT)
        wait_until(lambda: self.status("/ready") == 200, "the daemon to go on")
        self.kill(daemon)
        for path in "/metrics", "/live", "/ready":
            self.assertEqual(self.status(path), 503)
        self.assertIn("has ended", self.get("/live")[1])
        other = self.ready_daemon()
        self.stop(other)
        self.assertEqual(self.status("/ready"), 503)
        self.server.signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(), 0, self.server.stderr)

    def test_metrics_are_those_of_specctl(self):
        daemon = self.daemon()
        answer, text = self.get("/metrics")
        self.assertEqual(answer.getheader("Content-Type"),
                         "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertEqual(answer.getheader("Connection"), "close")
        self.assertTrue(text.endswith("# EOF\n"))
        printed = self.run_to_end("specctl", "metrics", f"--counters={self.folder}/s.counters").stdout
        self.assertEqual([line for line in text.splitlines() if line.startswith("#")],
                         [line for line in printed.splitlines() if line.startswith("#")])
        head, body = self.get("/metrics", method="HEAD")
        self.assertEqual((head.status, body), (200, ""))
        self.assertEqual(self.status("/nothing"), 404)
        self.assertEqual(self.status("/metrics?name=all"), 400)  # /metrics takes no parameter
        self.assertEqual(self.get("/metrics", method="POST")[0].status, 405)
        self.stop(daemon)

    def test_a_hostile_client_gets_an_end_and_disturbs_nobody(self):
        daemon = self.ready_daemon()
        huge = b"9" * 4000
        for sent, codes in (
                (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX * 2, (431,)),
                (b"\0" * 64, (400,)), (b"GET\r\n\r\n", (400,)), (b"GET /metrics HTTP/9.9\r\n\r\n", (400,)),
                (b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n\r\n", (413,)),
                (b"POST /v1/detokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", (400, 413)),
                (b"GET /../../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", (404,)),
                (b"GET /v1/streams/../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", (404,)),
                (b"GET /v1/streams/%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", (404,)),
                (b"GET /v1/streams/r?what=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", (400,)),
                (b"GET http://127.0.0.1/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", (404,)),
                (b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", (421,)),
                (b"GET /metrics HTTP/1.1\r\n\r\n", (421,)),
                (b"GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nSec-Fetch-Site: cross-site\r\n\r\n", (403,)),
                (b"GET /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n", (200,)),
                (b"GET /v1/streams/r?from=" + huge + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", (404,))):
            answer = self.exchange(sent)
            self.assertIn(answer[:12].decode(), [f"HTTP/1.1 {code}" for code in codes], sent[:60])
            self.assertNotIn(b"root:", answer)
            self.assertServes()
        self.stop(daemon)

    def test_clients_that_say_nothing_are_closed_and_push_out_only_each_other(self):
        daemon = self.ready_daemon()
        began = time.monotonic()
        with self.connect() as silent, self.connect() as slow:
            slow.sendall(b"POST /v1/detokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
            self.assertEqual(silent.recv(1), b"")
            self.assertEqual(slow.recv(1), b"")
        self.assertGreater(time.monotonic() - began, CLIENT_S / 2)
        # A scraper whose answer is under way is none of those that say nothing.
        with self.connect() as scraper:
            scraper.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            self.assertEqual(scraper.recv(1, socket.MSG_PEEK), b"H")
            crowd = [self.connect() for _ in range(2 * CLIENTS_MAX)]
            self.assertServes()
            # The first of them have given way, long before their time was over.
            self.assertEqual([client.recv(1) for client in crowd[:CLIENTS_MAX]], [b""] * CLIENTS_MAX)
            self.assertLess(self.descriptors(), CLIENTS_MAX + 48)
            text = b""
            while part := scraper.recv(65536):
                text += part
            self.assertTrue(text.endswith(b"# EOF\n"))
        for client in crowd:
            client.close()
        # Readers that do not read their answers.
        deaf = [self.connect() for _ in range(2 * CLIENTS_MAX)]
        for client in deaf:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self.assertServes()
        for client in deaf:
            client.close()
        self.stop(daemon)

    def test_a_crowd_that_asks_at_once_is_answered(self):
        """The server let in more clients than have a place before it had read one request."""
        daemon = self.ready_daemon()
        self.http.signal(signal.SIGSTOP)
        crowd = [self.connect() for _ in range(CLIENTS_MAX + 32)]
        for client in crowd:
            client.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self.http.signal(signal.SIGCONT)
        for client in crowd:
            self.assertEqual(client.recv(12), b"HTTP/1.1 200")
            client.close()
        self.stop(daemon)

    def test_addresses(self):
        for address in ("localhost:9464", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1",
                        "::1:9464", "unix:x"):
            done = self.run_to_end("specd-http", f"--listen={address}")
            self.assertEqual(done.code, 2, address)
            self.assertIn(f"listen = {address}", done.stderr)
        taken = self.run_to_end("specd-http", f"--listen=127.0.0.1:{self.port}")
        self.assertEqual(taken.code, 1)
        self.assertIn(str(self.port), taken.stderr)


class TokenTest(HttpCase):
    def test_other_machines_need_a_token(self):
        for listen in "0.0.0.0:0", "[::]:0", "192.0.2.1:80":
            done = self.run_to_end("specd-http", f"--listen={listen}")
            self.assertEqual(done.code, 2)
            self.assertIn("a token is needed", done.stderr)
        token = self.folder / "token"
        for text in "", "\n":
            token.write_text(text)
            done = self.run_to_end("specd-http", "--listen=0.0.0.0:0", f"--token_file={token}")
            self.assertEqual(done.code, 2)
            self.assertIn("token_file", done.stderr)
        token.write_text("a-secret\n")
        daemon = self.daemon()
        self.start_http(f"--token_file={token}", listen="0.0.0.0:0")
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        for path in "/metrics", "/v1/streams/r", "/v1/streams":
            for given in (None, "a-secret", "Bearer ", "Bearer a-secre", "Bearer a-secret2", "Bearer x-secret",
                          "Basic a-secret", "bearer" * 1000):
                headers = {} if given is None else {"Authorization": given}
                self.assertEqual(self.status(path, **headers), 401, given)
        self.assertEqual(self.get("/v1/detokenize", "POST", "{}")[0].status, 401)
        self.assertEqual(self.status("/metrics", Authorization="Bearer a-secret"), 200)
        for path in "/", "/live", "/ready":  # they tell nothing of the streams
            self.assertEqual(self.status(path), 200)
        self.assertNotIn("a-secret", self.http.stderr)
        self.stop(daemon)

    def test_a_unix_socket(self):
        path = self.folder / "http.sock"
        daemon = self.daemon()
        server = self.start_http(listen=f"unix:{path}")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 200"))
        self.assertEqual(os.stat(path).st_mode & 0o007, 0)
        self.kill(server)
        self.start_http(listen=f"unix:{path}")  # the file of a dead one is no hindrance
        self.stop(daemon)


class IdsTest(HttpCase):
    """POST /v1/detokenize: ids of the toy tokenizer to text, compared with the tokenizer's own pieces."""

    def setUp(self):
        super().setUp()
        self.start_http(f"--tokenizer={TOKENIZER}")
        self.vocab = json.loads(TOKENIZER.read_text())["model"]["vocab"]

    def post(self, **body):
        answer, text = self.get("/v1/detokenize", "POST", json.dumps(body))
        return answer.status, json.loads(text)

    def ids(self, text):
        return [self.vocab[letter] for letter in text]

    def test_text_comes_in_pieces_and_again_if_an_answer_was_lost(self):
        first = dict(request_id="r", ids=self.ids("ab"), offset=0, stop=["dxe"])
        for _ in range(2):
            status, answer = self.post(**first)
            self.assertEqual(status, 200, answer)
            self.assertEqual((answer["text"], answer["tokens"], answer["finished"]), ("ab", 2, False))
        for _ in range(2):  # what may become the stop string is held back
            _, answer = self.post(request_id="r", ids=self.ids("cd"), offset=2)
            self.assertEqual((answer["text"], answer["byte_offset"], answer["tokens"]), ("c", 2, 4))
        _, answer = self.post(request_id="r", ids=self.ids("xef"))
        self.assertEqual((answer["text"], answer["stop"], answer["finished"], answer["tokens"]),
                         ("", "dxe", True, 6))
        status, answer = self.post(request_id="r", ids=self.ids("g"), offset=2)
        self.assertEqual(status, 409, answer)  # the last answer's offset, other ids
        status, answer = self.post(request_id="r", ids=self.ids("g"), offset=3)
        self.assertEqual(status, 409)
        self.assertIn("6 tokens", answer["error"]["message"])

    def test_what_is_held_back_comes_with_the_end(self):
        self.post(request_id="r", ids=self.ids("ad"), stop="dxe")
        _, answer = self.post(request_id="r", finish=True)
        self.assertEqual((answer["text"], answer["stop"], answer["finished"]), ("d", None, True))
        _, answer = self.post(ids=self.ids("abc"))  # of no request
        self.assertEqual((answer["text"], answer["finished"], answer["request_id"]), ("abc", True, None))

    def test_the_number_of_requests_is_bounded(self):
        for number in range(1100):
            self.assertEqual(self.post(request_id=f"r{number}", ids=self.ids("a"))[0], 200)
        self.assertEqual(self.post(request_id="r0", ids=self.ids("b"), offset=1)[0], 409)
        self.assertEqual(self.post(request_id="r1099", ids=self.ids("b"), offset=1)[0], 200)

    def test_wrong_bodies_are_refused_by_name(self):
        for body, field in (("[]", "body"), ("{", ""), ('{"ids": 3}', "ids"), ('{"ids": [-1]}', "ids"),
                            ('{"ids": [1.5]}', "ids"), ('{"ids": [99999999999]}', "ids"), ('{"what": 1}', "what"),
                            ('{"stop": [1]}', "stop"), ('{"stop": [""]}', "stop"), ('{"finish": 1}', "finish"),
                            ('{"request_id": 7}', "request_id"), ('{"offset": "x"}', "offset"),
                            ('{"request_id": "%s"}' % ("r" * 129), "request_id")):
            answer, text = self.get("/v1/detokenize", "POST", body)
            self.assertEqual(answer.status, 400, body)
            self.assertIn(field, json.loads(text)["error"]["message"])
        self.assertEqual(self.get("/v1/detokenize")[0].status, 405)


if __name__ == "__main__":
    unittest.main()
