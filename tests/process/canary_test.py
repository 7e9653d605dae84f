"""The canary of a real daemon: a plugin answers wrong while a file is there, and /ready follows.

The wrong answers are the plugin's own (tests/kernels/plugins/wrong_answers.cc); the product has no
switch for them.
"""

import os
import re
import unittest

from http_support import HttpCase
from support import wait_until

WRONG_PLUGIN = os.environ["SPECD_WRONG_PLUGIN"]
DEVICE_FAILED = 70


class CanaryTest(HttpCase):
    def serve(self, *flags):
        self.wrong = self.folder / "wrong"
        return self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off", *flags,
                          env=os.environ | {"SPECD_WRONG_WHILE": str(self.wrong)})

    def metric(self, name):
        found = re.search(rf"^specd:{name} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else None

    def test_ready_follows_the_answers_of_the_device(self):
        daemon = self.serve(f"--backend_plugin={WRONG_PLUGIN}", "--device=wrong_while", "--canary=1")
        self.start_http()
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        wait_until(lambda: self.metric("canary_seconds_count") >= 1, "a round of the canary")
        self.assertEqual(self.metric("canary_failures_total"), 0)
        self.wrong.touch()
        wait_until(lambda: self.status("/ready") == 503, "a wrong answer to be seen")
        self.assertRegex(self.get("/ready")[1], r"^the device answers the canary wrong, \d+ in a row")
        self.assertEqual(self.status("/live"), 200)
        wait_until(lambda: self.metric("canary_failing") >= 2, "a second wrong answer")
        self.assertTrue(daemon.running(), daemon.stderr)
        self.wrong.unlink()
        wait_until(lambda: self.status("/ready") == 200, "a right answer to be seen")
        self.assertEqual(self.metric("canary_failing"), 0)
        self.assertGreaterEqual(self.metric("canary_failures_total"), 2)
        # The log comes after the answer to /ready.
        wait_until(lambda: "right again" in daemon.stderr, "the end of the failure in the log")
        told = [line for line in daemon.stderr.splitlines() if "the canary" in line]
        self.assertEqual(len(told), 2, told)  # the change each way, however many rounds lie between
        self.assertIn("answers wrong", told[0])
        self.assertIn("is right", told[0])
        self.assertIn("right again", told[1])
        self.stop(daemon)

    def test_a_device_that_fails_ends_the_daemon_before_an_engine_comes(self):
        daemon = self.serve(f"--backend_plugin={WRONG_PLUGIN}", "--device=wrong_count")
        self.assertEqual(daemon.wait(), DEVICE_FAILED, daemon.stderr)
        self.assertIn("num_tokens = 1048576 for task 0", daemon.stderr)

    def test_the_cpu_is_asked_by_default_and_never_with_zero(self):
        daemon = self.serve()
        self.start_http()
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        wait_until(lambda: self.metric("canary_seconds_count") == 1, "the first round of the canary")
        self.assertEqual(self.metric("canary_failing"), 0)
        self.stop(daemon)
        daemon = self.serve("--canary=0")
        wait_until(lambda: self.status("/ready") == 200, "the daemon to be ready")
        beats = 'thread_beats_total{thread="verify"}'
        wait_until(lambda: self.metric(re.escape(beats)) >= 10, "the verify thread to look around")
        self.assertEqual(self.metric("canary_seconds_count"), 0)
        self.stop(daemon)
        for seconds in (-1, 3601):
            done = self.serve(f"--canary={seconds}")
            self.assertEqual(done.wait(), 2)
            self.assertIn(f"canary = {seconds} is outside 0 .. 3600 seconds", done.stderr)


if __name__ == "__main__":
    unittest.main()
