"""A daemon, an engine or shared memory is gone at the worst moment: who is left is told, and goes on."""

import os
import pathlib
import signal
import subprocess
import unittest

import numpy as np

import specd
from recovery_test import Reader
from subscriber_test import PeerCase
from support import BIN, TOKENIZER, wait_until

V = 2048


class CrashedEngineTest(PeerCase):
    def test_an_engine_that_crashes_while_its_daemon_restarts_leaves_nothing(self):
        flags = "--print=none", "--max_tokens=400", "--forward_ms=20", "--reconnect_ms=60000", self.endless_text()
        daemon = self.daemon()
        reader = Reader(self, 2)
        crashing, other = self.engine("--prompt=The daemon", *flags), self.engine("--prompt=A round", *flags)
        names = lambda: {event.request_id for event in reader.events if event.kind == "text"}
        wait_until(lambda: len(names()) == 2, "text of both")
        self.kill(daemon)
        crashing.signal(signal.SIGSEGV)
        self.assertEqual(crashing.wait(), -signal.SIGSEGV)
        daemon = self.daemon()
        self.assertEqual(other.wait(), 0, other.stderr)
        reader.join(60)
        ends = {event.request_id: event.kind for event in reader.events if event.kind in ("end", "lost")}
        self.assertEqual(ends, {"The daemon": "lost", "A round": "end"})
        # Its name and its memory are free: another engine has the same request.
        again = self.engine("--prompt=The daemon", "--print=none", "--max_tokens=20")
        self.assertEqual(again.wait(), 0, again.stderr)
        self.stop(daemon)

    def test_an_engine_that_waits_is_told_that_its_daemon_was_killed(self):
        # A daemon that the kernel kills for its memory gets SIGKILL. The engine waits for a round.
        daemon = self.daemon()
        with specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine:
            sequence = engine.open(specd.SamplingParams(seed=1))
            engine.rows(1)[:] = 0
            daemon.signal(signal.SIGSTOP)  # it is there, and does not answer
            round = engine.submit(None, {sequence: []})
            self.kill(daemon)
            with self.assertRaisesRegex(specd.Error, "the daemon is gone"):
                round.result(60_000)


class SharedMemoryTest(PeerCase):
    def open(self, **options):
        return specd.Engine(f"unix:{self.socket}", vocab_size=V, **options)

    def test_a_session_that_finds_no_shared_memory_is_refused_by_name(self):
        # The limit of a file stands for a full file system: both refuse pages of the session's segment.
        daemon = self.start(
            pathlib.Path("/bin/bash"), "-c", "ulimit -f 600; exec \"$0\" \"$@\"", BIN / "specd",
            f"--listen=unix:{self.socket}", f"--tokenizer={TOKENIZER}")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        with self.open(max_sequences=4, max_batch=4) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=40))
            rows = np.zeros((1, V), np.float32)
            for number in range(1, 9):
                with self.assertRaisesRegex(specd.Error, r"session segment of \d+ bytes: .*too large") as refused:
                    self.open(max_sequences=4096, max_batch=4096, max_draft=64)
                self.assertEqual(refused.exception.code_name, "SPECD_ERROR_EXHAUSTED")
                result, = engine.verify(rows, {sequence: []})
                self.assertEqual((result.status, result.total_kept), ("ok", number))
        self.stop(daemon)

    def test_a_full_dev_shm_is_no_concern_of_specd(self):
        # Its memory is in memfds, which have no file system with a size.
        script = ("mount -t tmpfs -o size=4096 tmpfs /dev/shm && dd if=/dev/zero of=/dev/shm/full bs=4096 count=2 "
                  "2>/dev/null; df --output=avail /dev/shm | tail -n 1 | tr -d ' '; exec \"$0\" \"$@\"")
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("a mount namespace needs a privilege that is not here")
        unshare = pathlib.Path("/usr/bin/unshare")
        daemon = self.start(unshare, "-m", "/bin/bash", "-c", script, BIN / "specd",
                            f"--listen=unix:{self.socket}", f"--tokenizer={TOKENIZER}")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertEqual(daemon.stdout.strip(), "0", daemon.stderr)
        engine = self.start(unshare, "-m", "/bin/bash", "-c", script, BIN / "specd-toy-engine",
                            f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}", "--prompt=The daemon",
                            "--max_tokens=20", "--print=none", "--stats=none", self.endless_text())
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
