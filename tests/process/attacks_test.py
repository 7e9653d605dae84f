"""All attacks at once: the daemon lives, serves an engine that attacks nobody, and stays within its memory.

  attacks_test.py --seconds=600
"""

import argparse
import array
import os
import signal
import socket
import sys
import threading
import time
import unittest

import fault_test
import refusal_test
import subscriber_test
from grammar_test import endless_schema
from subscriber_test import frame, send_until_cut_off
from support import PATIENCE_S, TOKENIZER, wait_until

SECONDS = 20
MEMORY_MIB = 256
# What --memory_mib does not count (docs/ARCHITECTURE.md, "Limits").
BESIDE_MIB = 128


@unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
class AttacksTest(fault_test.UsersCase, subscriber_test.PeerCase):
    def peak_mib(self, process):
        with open(f"/proc/{process.process.pid}/status", encoding="utf-8") as status:
            return int(status.read().partition("VmHWM:")[2].split()[0]) >> 10

    def run_program(self, *arguments, **options):
        """Runs a program to its end, or to that of the attacks. Returns it."""
        process = self.start(*arguments, **options)
        while process.running() and not self.over.wait(0.05):
            pass
        process.close()
        self._processes.remove(process)
        return process

    def hostile_engine(self, *flags):
        self.run_program("specd-toy-engine", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}",
                         f"--corpus={self.corpus}", f"--prompt=Hostile {next(self.numbers)}", "--print=none",
                         "--stats=none", *flags,
                         user=self.NOBODY)

    # ---- attacks: a thread for each repeats it

    def subscriptions_and_frames_without_end(self):
        for endpoint in "tokens", "text":
            with self.subscriber(endpoint) as peer:
                send_until_cut_off(peer, b"".join(frame(b"\1" + os.urandom(480)) for _ in range(2000)))
                send_until_cut_off(peer, frame(b"\1x".ljust(200, b"x"), 1) * 1000)

    def aborts_without_end(self):
        for text in frame(b"x" * 200, 1), frame(b"alive", 1) + frame(b"\x80"), frame(b"y" * 4096):
            with self.peer("aborts", b"PUSH") as peer:
                send_until_cut_off(peer, text * 1000)

    def deaf_subscribers(self):
        peers = [self.subscriber(endpoint) for endpoint in ("tokens", "text") for _ in range(20)]
        for peer in peers:
            self.subscribe(peer, b"")
        self.over.wait(15)  # a deaf one is disconnected before
        for peer in peers:
            peer.close()

    def scores(self):
        self.run_program("greedy_engine", f"unix:{self.socket}", "scores", user=self.NOBODY)

    def memory(self):
        for what in "prompts", "hello", "rows":
            self.run_program("greedy_engine", f"unix:{self.socket}", what, user=self.NOBODY)

    def long_compiles(self):
        self.hostile_engine(f"--json_schema={endless_schema()}")

    def masks(self):
        """Constraints that are all different, with many states each."""
        number = next(self.numbers)
        self.hostile_engine(f"--regex=([a-zA-Z .,]{{{number % 40 + 1},200}}|{number}){{1,40}}",
                            "--max_tokens=200", "--draft=5")

    def unread_replies(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(2)
            peer.connect(str(self.socket))
            message = refusal_test.control_message(refusal_test.PROTOCOL_VERSION, refusal_test.MAPPED)
            send_until_cut_off(peer, message, 100000)

    def noise(self):
        for text in b"\0", os.urandom(4096), b"x" * 65536:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer, open(os.devnull, "rb") as file:
                peer.settimeout(PATIENCE_S)
                peer.connect(str(self.socket))
                descriptors = array.array("i", [file.fileno()] * 200)
                peer.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])

    def dumps(self):
        self.attacked.signal(signal.SIGUSR1)
        self.over.wait(0.05)

    # ---- the test

    def repeat(self, attack):
        while not self.over.is_set():
            try:
                attack()
            except OSError:  # the daemon has hung up
                pass
            except AssertionError as error:
                self.failures.append(f"{attack.__name__}: {error}")
                return
            self.counts[attack.__name__] += 1

    def ids(self, **options):
        engine = self.engine("--print=ids", "--stats=none", "--max_tokens=60", **options)
        self.assertEqual(engine.wait(), 0, engine.stderr + self.attacked.stderr[-4000:])
        engine.close()
        self._processes.remove(engine)
        return engine.stdout

    def test_all_attacks_together(self):
        self.over = threading.Event()
        self.failures = []
        self.numbers = iter(range(1 << 30))
        self.corpus = self.folder / "corpus.md"
        self.corpus.write_text("The daemon takes A round and gives tokens, so that " * 400)
        (self.folder / "traces").mkdir()
        self.attacked = self.start_daemon(
            f"--memory_mib={MEMORY_MIB}", "--detokenizer=process", f"--trace={self.folder}/traces",
            "--trace_options=flight=30,triggers=signal,file_mib=64,total_mib=128,buffer_mib=1")
        detokenizer = self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}",
                                 f"--allow_uid={self.NOBODY}")
        wait_until(lambda: (self.folder / "s.text").exists(), "specd-detok")
        expected = self.ids(uri="embedded:cpu")
        idle_mib = self.peak_mib(self.attacked)
        self.assertEqual(self.as_nobody(self.connect_silently), "connected")
        self.as_nobody(lambda: self.open_engines(2, 4096))
        attacks = (self.subscriptions_and_frames_without_end, self.aborts_without_end,
                   self.deaf_subscribers, self.scores, self.memory, self.long_compiles, self.masks,
                   self.unread_replies, self.noise, self.dumps)
        self.counts = {attack.__name__: 0 for attack in attacks}
        threads = [threading.Thread(target=self.repeat, args=(attack,)) for attack in attacks]
        for thread in threads:
            thread.start()
        end = time.monotonic() + SECONDS
        served = 0
        try:
            while time.monotonic() < end or served == 0:
                self.assertEqual(self.ids(), expected)
                served += 1
                self.assertTrue(self.attacked.running(), self.attacked.stderr[-4000:])
                self.assertLessEqual(self.peak_mib(self.attacked), MEMORY_MIB + BESIDE_MIB)
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
            print(f"idle {idle_mib} MiB, peak {self.peak_mib(self.attacked)} MiB, "
                  f"specd-detok {self.peak_mib(detokenizer)} MiB, {served} engines served, {self.counts}",
                  flush=True)
        self.assertEqual(self.failures, [])
        # Each attack was made, and most were ended by the daemon.
        self.assertEqual([name for name, count in self.counts.items() if count == 0], [])
        self.assertEqual(self.ids(), expected)
        self.stop(detokenizer)
        self.stop(self.attacked)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=SECONDS)
    known, rest = parser.parse_known_args()
    SECONDS = known.seconds
    unittest.main(argv=sys.argv[:1] + rest)
