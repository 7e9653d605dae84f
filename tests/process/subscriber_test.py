"""Subscribers who ask for too much or read nothing, and the daemon serves the others."""

import os
import pathlib
import socket
import unittest

from support import PATIENCE_S, ProcessTest, TOKENIZER, wait_until


def frame(body, flags=0):
    """A frame of ZMTP 3 (rfc.zeromq.org/spec/23)."""
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | 2,)) + len(body).to_bytes(8, "big") + body


def handshake(kind):
    """What a socket of this kind says first."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0")
    ready = b"\5READY\x0bSocket-Type\0\0\0" + bytes((len(kind),)) + kind
    return greeting.ljust(64, b"\0") + frame(ready, 4)


def send_until_cut_off(peer, text, times=1000):
    """Sends the text again and again, until the other end hangs up."""
    try:
        for _ in range(times):
            peer.sendall(text)
    except (BrokenPipeError, ConnectionResetError):
        pass


class PeerCase(ProcessTest):
    """Peers of the endpoints that speak by hand."""

    MIB = 1 << 20

    def peer(self, endpoint, kind):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(peer.close)
        peer.settimeout(PATIENCE_S)
        wait_until(lambda: peer.connect_ex(f"{self.socket}.{endpoint}") == 0, endpoint)
        peer.sendall(handshake(kind))
        return peer

    def subscriber(self, endpoint):
        return self.peer(endpoint, b"SUB")

    def subscribe(self, peer, *prefixes):
        peer.sendall(b"".join(frame(b"\1" + prefix) for prefix in prefixes))

    def resident_bytes(self, process):
        status = pathlib.Path(f"/proc/{process.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def read_until(self, peer, text):
        """Reads until the peer's bytes have the text: what was sent before is handled."""
        seen = b""
        while text not in seen:
            more = peer.recv(1 << 16)
            self.assertTrue(more, "the daemon hung up")
            seen = seen[-len(text):] + more
        return seen


class SubscriberTest(PeerCase):
    """Subscribers who ask for too much, or read nothing."""

    def assertServes(self, daemon):
        client = self.client()
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr + daemon.stderr)
        wait_until(lambda: self.ends(client), "the end of a stream")
        self.texts(client)

    def flood(self, process, endpoint, prefix_of):
        """75,000 subscriptions of one peer cost the process 14 KB each."""
        peer = self.subscriber(endpoint)
        before_bytes = self.resident_bytes(process)
        for _ in range(75):
            self.subscribe(peer, *(prefix_of() for _ in range(1000)))
        other = self.subscriber(endpoint)
        self.subscribe(other, b"heartbeat")
        self.read_until(other, b"heartbeat")
        wait_until(lambda: "subscriptions are refused" in process.stderr, "a line about them")
        self.assertLess(self.resident_bytes(process) - before_bytes, 16 * self.MIB)
        self.assertEqual(process.stderr.count("subscriptions are refused"), 1)
        return peer

    def test_subscriptions_of_one_peer_are_bounded(self):
        random_bytes = lambda: os.urandom(480)
        legal = lambda: b"text/" + os.urandom(64).hex().encode() + b"/"
        for endpoint in "tokens", "text":
            for prefix_of in random_bytes, legal:
                daemon = self.daemon()
                self.flood(daemon, endpoint, prefix_of)
                self.assertServes(daemon)
                self.stop(daemon)

    def test_subscriptions_to_specd_detok_are_bounded(self):
        daemon = self.daemon("--detokenizer=process")
        detokenizer = self.start("specd-detok", f"--specd=unix:{self.socket}",
                                 f"--tokenizer={TOKENIZER}")
        wait_until(lambda: pathlib.Path(f"{self.socket}.text").exists(), "specd-detok")
        self.flood(detokenizer, "text", lambda: os.urandom(480))
        self.assertServes(daemon)
        self.stop(detokenizer)
        self.stop(daemon)

    def test_a_message_without_end_is_cut_off(self):
        """Frames that say that more follow cost memory until the last one comes."""
        daemon = self.daemon()
        for endpoint in "tokens", "text":
            peer = self.subscriber(endpoint)
            before_bytes = self.resident_bytes(daemon)
            send_until_cut_off(peer, frame(b"\1x".ljust(200, b"x"), 1) * 1000)
            self.assertLess(self.resident_bytes(daemon) - before_bytes, 16 * self.MIB)
        wait_until(lambda: "several frames" in daemon.stderr, "a line about them")
        self.assertServes(daemon)
        self.stop(daemon)

    def test_aborts_without_end_are_cut_off(self):
        """40 MB of frames that say that more follow cost the daemon 92 MiB, and no peer lost its place."""
        daemon = self.daemon("--detokenizer=process")
        before_bytes = self.resident_bytes(daemon)
        for text, why in ((frame(b"x" * 200, 1), "more than two frames"),
                          (frame(b"abort", 1) + frame(b"\x81\xa1v\x63"), "is disconnected"),
                          (frame(b"abort"), "of one frame")):
            peer = self.peer("aborts", b"PUSH")
            send_until_cut_off(peer, text * 1000)
            wait_until(lambda: why in daemon.stderr, why)
        self.assertLess(self.resident_bytes(daemon) - before_bytes, 16 * self.MIB)
        detokenizer = self.start("specd-detok", f"--specd=unix:{self.socket}",
                                 f"--tokenizer={TOKENIZER}")
        wait_until(lambda: pathlib.Path(f"{self.socket}.text").exists(), "specd-detok")
        self.assertServes(daemon)
        self.stop(detokenizer)
        self.stop(daemon)

    def test_a_deaf_subscriber_costs_its_share_and_is_disconnected(self):
        """A stopped subscriber of scores costs memory until the daemon is killed."""
        # 16 MiB are for each endpoint.
        flags = "--detokenizer=off", "--memory_mib=256", "--session_memory_mib=96"
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--eos_token_ids=0", *flags)
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        deaf = self.subscriber("tokens")
        self.subscribe(deaf, b"")
        self.read_until(deaf, b"heartbeat")
        # One run takes the memory that the next one uses again.
        engine = self.run_to_end("greedy_engine", f"unix:{self.socket}", "scores")
        self.assertEqual(engine.code, 0, engine.stdout + daemon.stderr)
        before_bytes = self.resident_bytes(daemon)
        self.assertLess(before_bytes, 256 * self.MIB)
        wait_until(lambda: "is disconnected" in daemon.stderr, "the end of the deaf subscriber")
        self.assertIn("loses messages", daemon.stderr)
        prompt = self.subscriber("tokens")
        self.subscribe(prompt, b"tokens")
        engine = self.start("greedy_engine", f"unix:{self.socket}", "scores")
        # A score takes 8 bytes at least: an array of an id, a 32-bit float and a rank.
        size_bytes, num_ends, seen = 0, 0, b""
        while num_ends < 8:
            more = prompt.recv(1 << 20)
            size_bytes += len(more)
            seen = seen[-8:] + more  # less than the text that is counted
            num_ends += seen.count(b"\xa4kind\xa3end")
        self.assertGreater(size_bytes, 200 * 8 * 64 * 65 * 8)
        self.assertEqual(engine.wait(), 0, engine.stdout + daemon.stderr)
        self.assertLess(self.resident_bytes(daemon), before_bytes + 16 * self.MIB)
        self.stop(daemon)

    def test_an_open_endpoint_is_told_of(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        daemon = self.daemon(f"--text=tcp://127.0.0.1:{port}")
        wait_until(lambda: "open to everybody" in daemon.stderr, "the warning")
        lines = [line for line in daemon.stderr.splitlines() if "open to everybody" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn(f"text = tcp://127.0.0.1:{port}", lines[0])
        self.assertIn("warn", lines[0])
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
