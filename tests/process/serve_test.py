"""specctl serve: what a scraper, a service manager and a hostile client get.

Health follows the daemon through its life: not there, serving, standing still, going on, killed.
"""

import http.client
import os
import signal
import socket
import time
import unittest

from support import PATIENCE_S, ProcessTest, wait_until

CLIENTS_MAX = 64       # tools/specctl/http_server.h
HEAD_BYTES_MAX = 8192
CLIENT_S = 5


class ServeTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.server = self.start("specctl", "serve", "--listen=127.0.0.1:0", f"--counters={self.folder}/s.counters")
        wait_until(lambda: "serves http://" in self.server.stderr or not self.server.running(), "the server")
        self.assertTrue(self.server.running(), self.server.stderr)
        self.port = int(self.server.stderr.split("http://127.0.0.1:")[1].split("/")[0])

    def get(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    def status(self, path):
        return self.get(path)[0].status

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def assertServes(self):
        self.assertEqual(self.status("/ready"), 200)

    def test_health_follows_the_daemon(self):
        for path in "/metrics", "/live", "/ready":
            self.assertEqual(self.status(path), 503)  # there is no daemon yet
        daemon = self.daemon()
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
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
        other = self.daemon()
        wait_until(lambda: self.status("/ready") == 200, "the other daemon to be ready")
        self.stop(other)
        self.assertEqual(self.status("/ready"), 503)
        self.server.signal(signal.SIGTERM)
        self.assertEqual(self.server.wait(), 0, self.server.stderr)

    def test_metrics_are_those_of_specctl(self):
        daemon = self.daemon()
        answer, text = self.get("/metrics?name=all")
        self.assertEqual(answer.getheader("Content-Type"),
                         "application/openmetrics-text; version=1.0.0; charset=utf-8")
        self.assertEqual(answer.getheader("Connection"), "close")
        self.assertTrue(text.endswith("# EOF\n"))
        printed = self.run_to_end("specctl", "metrics", f"--counters={self.folder}/s.counters").stdout
        self.assertEqual([line for line in text.splitlines() if line.startswith("#")],
                         [line for line in printed.splitlines() if line.startswith("#")])
        head, body = self.get("/metrics", method="HEAD")
        self.assertEqual((head.status, body), (200, ""))
        self.assertEqual(self.status("/"), 404)
        self.assertEqual(self.get("/metrics", method="POST")[0].status, 405)
        self.stop(daemon)

    def test_a_hostile_client_gets_an_end_and_disturbs_nobody(self):
        daemon = self.daemon()
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        for sent in (b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX * 2, b"\0" * 64, b"GET\r\n\r\n",
                     b"GET /metrics HTTP/9.9\r\n\r\n", b"GET /ready HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
                     b"GET /ready HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"):
            with self.connect() as client:
                client.sendall(sent)
                answer = b""
                try:
                    while part := client.recv(65536):
                        answer += part
                except ConnectionResetError:
                    pass
                self.assertIn(answer[:12], (b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 413"), sent[:40])
            self.assertServes()
        self.stop(daemon)

    def test_clients_that_say_nothing_are_closed(self):
        daemon = self.daemon()
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        began = time.monotonic()
        with self.connect() as silent:
            self.assertEqual(silent.recv(1), b"")
        self.assertGreater(time.monotonic() - began, CLIENT_S / 2)
        # The oldest give way to one more, at once.
        crowd = [self.connect() for _ in range(2 * CLIENTS_MAX)]
        self.assertServes()
        descriptors = len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        self.assertLess(descriptors, CLIENTS_MAX + 32)
        for client in crowd:
            client.close()
        # A reader that does not read its answer.
        with self.connect() as deaf:
            deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertServes()
        self.stop(daemon)

    def test_addresses(self):
        for address in ("localhost:9464", "9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1",
                        "::1:9464", "unix:/x"):
            done = self.run_to_end("specctl", "serve", f"--listen={address}")
            self.assertEqual(done.code, 2, address)
            self.assertIn(f"listen = {address}", done.stderr)
        taken = self.run_to_end("specctl", "serve", f"--listen=127.0.0.1:{self.port}")
        self.assertEqual(taken.code, 1)
        self.assertIn(str(self.port), taken.stderr)


if __name__ == "__main__":
    unittest.main()
