"""A daemon that gets its socket from a service manager, as systemd passes it. Nobody is turned away while the
daemon is replaced, because the socket stays."""

import os
import pathlib
import shlex
import socket
import unittest

from support import BIN, ProcessTest, TOKENIZER, wait_until


class ActivationCase(ProcessTest):
    def setUp(self):
        super().setUp()
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(str(self.folder / "notices"))
        self.notices.settimeout(60)
        self.addCleanup(self.notices.close)

    def listening(self, kind=socket.SOCK_SEQPACKET, path=None):
        listening = socket.socket(socket.AF_UNIX, kind)
        listening.bind(str(path or self.socket))
        listening.listen()
        self.addCleanup(listening.close)
        return listening

    def activated(self, listening, num_fds=1, program="specd"):
        """A daemon that has this socket as its descriptor 3."""
        words = [BIN / program, f"--listen=unix:{self.socket}", f"--tokenizer={TOKENIZER}",
                 "--eos_tokens=<|endoftext|>"]
        command = " ".join(shlex.quote(str(word)) for word in words)
        return self.start(
            pathlib.Path("/bin/sh"), "-c", f"LISTEN_PID=$$ LISTEN_FDS={num_fds} exec {command}",
            pass_fds=(3,), preexec_fn=lambda: os.dup2(listening.fileno(), 3),
            env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notices")})


class ActivationTest(ActivationCase):
    def generate(self, *flags):
        return self.engine("--prompt=The daemon|A round", "--draft=3", "--drafts=sampled", "--stats=none", *flags)

    def test_the_socket_outlives_the_daemon_and_engines_wait_in_its_queue(self):
        listening = self.listening()
        # The engine connects before there is a daemon.
        early = self.generate("--max_tokens=20")
        daemon = self.activated(listening)
        self.assertEqual(self.notices.recv(99), b"READY=1")
        self.assertEqual(early.wait(), 0, early.stderr)
        expected = self.generate("--max_tokens=150")
        self.assertEqual(expected.wait(), 0, expected.stderr)
        client = self.client()
        engine = self.generate("--max_tokens=150", "--forward_ms=20", "--reconnect_ms=60000")
        # From its first text on the engine is attached.
        wait_until(lambda: '"text"' in client.stdout, "text")
        for end in (self.kill, self.stop, self.kill):
            end(daemon)
            if end == self.stop:
                self.assertEqual(self.notices.recv(99), b"STOPPING=1")
            self.assertTrue(self.socket.is_socket(), "the socket is not the daemon's to remove")
            daemon = self.activated(listening)
            self.assertEqual(self.notices.recv(99), b"READY=1")
            wait_until(lambda: "toy_engine" in daemon.stderr or not engine.running(), "the engine")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(engine.stdout, expected.stdout)
        self.stop(daemon)
        self.assertTrue(self.socket.is_socket())

    def test_two_daemons_cannot_share_the_socket(self):
        listening = self.listening()
        first = self.activated(listening)
        self.assertEqual(self.notices.recv(99), b"READY=1")
        second = self.activated(listening)
        self.assertEqual(second.wait(), 1)
        self.assertIn("another specd serves", second.stderr)
        self.stop(first)

    def test_another_socket_than_the_one_to_listen_on_is_refused_by_name(self):
        for arguments, num_fds, words in (
                ({"kind": socket.SOCK_STREAM}, 1, "SOCK_SEQPACKET"),
                ({"path": self.folder / "other"}, 1, "which --listen does not name"),
                ({}, 2, "LISTEN_FDS = 2")):
            with self.subTest(words):
                listening = self.listening(**arguments)
                daemon = self.activated(listening, num_fds)
                self.assertEqual(daemon.wait(), 2)
                self.assertIn(words, daemon.stderr)
                self.assertIn("ListenSequentialPacket=", daemon.stderr)
                (self.folder / "s").unlink(missing_ok=True)

    def test_variables_for_another_process_are_not_taken(self):
        daemon = self.start(
            "specd", f"--listen=unix:{self.socket}", "--detokenizer=off",
            env={**os.environ, "LISTEN_PID": "1", "LISTEN_FDS": "1"})
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.stop(daemon)
        self.assertNotIn("s", self.sockets())


if __name__ == "__main__":
    unittest.main()
