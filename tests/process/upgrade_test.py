"""A rolling upgrade under load: a service manager stops a daemon and starts one of another version in its
place, while sixteen engines run rounds. Tokens, texts, ends and sums are those of an undisturbed run, and the
longest round of each hand-over is printed.
"""

import statistics
import sys
import threading
import time
import unittest

import specd
from activation_test import ActivationCase
from recovery_test import Reader
from restart_test import CASES, DRAFT, Run, V
from support import PATIENCE_S, wait_until

NUM_ENGINES = 16
NUM_STREAMS = len(CASES) + 3  # of a run: it opens two more sequences, and copies one


class TimedRun(Run):
    """A run that remembers when its rounds began and were answered. The calls that draw a round's draft belong to
    it: they wait for the next daemon as the round does."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.begun, self.rounds = {}, []

    def submit(self, names, first):
        begin = time.monotonic()
        round = super().submit(names, first)
        self.begun[id(round)] = begin
        return round

    def plain(self, names, first):
        begin = time.monotonic()
        round = super().plain(names, first)
        self.begun[id(round)] = begin
        return round

    def take(self, names, round):
        super().take(names, round)
        self.rounds.append((self.begun.pop(id(round)), time.monotonic()))


class Engines:
    """Engines in threads of their own. A moment is one at which a daemon may go."""

    def __init__(self, socket):
        self.socket, self.moments = socket, [0] * NUM_ENGINES
        self.runs, self.found, self.reattached, self.errors = [], {}, [], []
        self.threads = [threading.Thread(target=self.run, args=(number,), daemon=True)
                        for number in range(NUM_ENGINES)]

    def run(self, number):
        try:
            with specd.Engine(f"unix:{self.socket}", vocab_size=V, max_draft=DRAFT, max_sequences=32,
                              reconnect_ms=60_000) as engine:
                run = TimedRun(engine, lambda moment: self.count(number, moment), f"{number}.")
                self.runs.append(run)
                self.found[number] = run.run()
                self.reattached.append(engine.stats()["reattached"])
        except Exception as error:
            self.errors.append(error)

    def count(self, number, moment):
        self.moments[number] = moment

    def have_met(self, ready):
        """True if each engine has had a round of the daemon that has been ready since then."""
        return len(self.runs) == NUM_ENGINES and all(run.rounds and run.rounds[-1][0] > ready for run in self.runs)

    def start(self):
        for thread in self.threads:
            thread.start()

    def running(self):
        return all(thread.is_alive() for thread in self.threads)

    def join(self):
        for thread in self.threads:
            thread.join(PATIENCE_S)


class UpgradeTest(ActivationCase):
    def await_ready(self):
        while self.notices.recv(99) != b"READY=1":
            pass  # the last word of the daemon before

    def run_engines(self, hand_over=None):
        """The tokens and ends of each engine, the texts of its streams, and the engines. `hand_over` is called
        when the fastest engine has had a third and two thirds of its moments, and each has met the daemon."""
        listening = self.listening()
        daemon = self.activated(listening)
        self.await_ready()
        reader = Reader(self, NUM_ENGINES * NUM_STREAMS)
        engines = Engines(self.socket)
        engines.start()
        if hand_over:
            daemon = hand_over(listening, daemon, engines)
        engines.join()
        self.assertEqual(engines.errors, [])
        self.assertEqual(len(engines.found), NUM_ENGINES)
        texts = reader.result(self)
        self.stop(daemon)
        self.socket.unlink()
        return engines, texts

    def test_sixteen_engines_lose_nothing_when_their_daemon_is_upgraded_and_rolled_back(self):
        before, texts = self.run_engines()
        expected = before.found[0]
        for found in before.found.values():
            self.assertEqual(repr(found), repr(expected))
        self.assertEqual(len(texts), NUM_ENGINES * NUM_STREAMS)
        hands = []

        def hand_over(listening, daemon, engines):
            for share, program, version in (1 / 3, "specd-next-version", "99."), (2 / 3, "specd", "0."):
                ready, moments = hands[-1][2] if hands else 0, share * before.moments[0]
                wait_until(lambda: max(engines.moments) > moments and engines.have_met(ready)
                           or not engines.running(), "rounds")
                self.assertTrue(engines.running(), "the hand-over came too late")
                begin = time.monotonic()
                self.stop(daemon)
                stopped = time.monotonic()
                daemon = self.activated(listening, program=program)
                self.await_ready()
                hands.append((begin, stopped, time.monotonic()))
                wait_until(lambda: f"specd {version}" in daemon.stderr, f"version {version}")
            return daemon

        after, texts_after = self.run_engines(hand_over)
        for found in after.found.values():
            self.assertEqual(repr(found), repr(expected))
        self.assertEqual(texts_after, texts)
        self.assertEqual(after.reattached, [2] * NUM_ENGINES)
        self.report(before, after, hands)

    def report(self, before, after, hands):
        rounds = [round for run in before.runs for round in run.rounds]
        plain = [end - begin for begin, end in rounds]
        print(f"undisturbed: {len(rounds)} rounds, the median takes {1e3 * statistics.median(plain):.1f} ms and "
              f"the longest {1e3 * max(plain):.1f} ms", file=sys.stderr)
        for begin, stopped, ready in hands:
            # A round of the hand-over is one that was under way in it.
            meant = [last - first for run in after.runs for first, last in run.rounds
                     if first <= ready and last >= begin]
            print(f"hand-over: the daemon ends after {1e3 * (stopped - begin):.0f} ms, the next one serves "
                  f"{1e3 * (ready - stopped):.0f} ms later; of {len(meant)} rounds the longest takes "
                  f"{1e3 * max(meant):.0f} ms", file=sys.stderr)
            self.assertGreaterEqual(len(meant), NUM_ENGINES // 2)
            self.assertLess(max(meant), PATIENCE_S)


if __name__ == "__main__":
    unittest.main()
