"""An engine's stream and the daemon: who waits for whom, and what is left when one is killed, stopped
or late. The GPU is pretended; the processes, the shared memory and libspecd are the real ones."""

import os
import signal
import subprocess
import unittest

from support import PATIENCE_S, ProcessTest, wait_until


class StreamTest(ProcessTest):
    waits = "device"  # who waits in the engine: its streams, or the host in their place

    def ids_only(self):
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertTrue(daemon.running(), daemon.stderr)
        return daemon

    def stream_engine(self, *arguments):
        return self.start(
            "stream_engine", f"unix:{self.socket}", *arguments, stdin=subprocess.PIPE,
            env={**os.environ, "SPECD_STREAM_WAITS": self.waits})

    def until(self, engine, step):
        wait_until(lambda: step in engine.stdout or not engine.running(), step)
        self.assertIn(step, engine.stdout, engine.stderr)

    def go_on(self, engine):
        engine.process.stdin.write("\n")
        engine.process.stdin.flush()

    def ends_well(self, engine, step="ok"):
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertIn(step, engine.stdout)
        engine.process.stdin.close()

    def test_rows_answer_and_next_forward_keep_their_order_over_a_thousand_rounds(self):
        daemon = self.ids_only()
        self.ends_well(self.stream_engine("rounds", "1000"))
        self.stop(daemon)

    def test_engines_of_one_process_hold_each_other_up_but_not_for_ever(self):
        daemon = self.ids_only()
        self.ends_well(self.stream_engine("pair", "200"))
        self.stop(daemon)

    def test_a_killed_daemon_releases_the_stream_and_confirms_nothing(self):
        daemon = self.ids_only()
        engine = self.stream_engine("wait")
        self.until(engine, "attached")
        daemon.stop()  # so that it cannot answer first
        self.go_on(engine)
        self.until(engine, "waiting")
        self.kill(daemon)
        self.ends_well(engine, "released")

    def test_a_late_daemon_confirms_nothing_and_meets_no_newer_round(self):
        daemon = self.ids_only()
        engine = self.stream_engine("late")
        self.until(engine, "attached")
        daemon.stop()
        self.go_on(engine)
        self.until(engine, "aborted")
        daemon.signal(signal.SIGCONT)
        self.go_on(engine)
        self.ends_well(engine)
        self.stop(daemon)

    def test_an_engine_that_is_never_ready_disturbs_nobody_alive_or_dead(self):
        daemon = self.ids_only()
        never = self.stream_engine("held")
        self.until(never, "held")
        self.ends_well(self.stream_engine("rounds", "200"))
        self.kill(never)
        never.process.stdin.close()
        wait_until(lambda: "ended: 0 rounds" in daemon.stderr, "the end of its session")
        self.ends_well(self.stream_engine("rounds", "200"))
        self.stop(daemon)

    def test_an_engine_that_is_late_gets_its_answer_when_its_rows_are_ready(self):
        daemon = self.ids_only()
        late = self.stream_engine("held")
        self.until(late, "held")
        self.ends_well(self.stream_engine("rounds", "50"))
        self.go_on(late)
        self.ends_well(late)
        self.stop(daemon)

    def test_an_engine_goes_on_with_the_daemons_that_follow(self):
        daemon = self.ids_only()
        engine = self.stream_engine("replaced")
        for end in self.kill, self.stop, self.kill, self.kill, self.stop:
            seen = engine.stdout.count("round")
            wait_until(lambda: engine.stdout.count("round") > seen + 2 or not engine.running(), "rounds")
            end(daemon)
            daemon = self.ids_only()
        seen = engine.stdout.count("round")
        wait_until(lambda: engine.stdout.count("round") > seen + 2 or not engine.running(), "rounds")
        self.go_on(engine)
        self.ends_well(engine, "reattached 5")
        self.stop(daemon)

    def test_a_daemon_that_is_asked_to_stop_does_not_wait_for_rows_for_ever(self):
        daemon = self.ids_only()
        never = self.stream_engine("held")
        self.until(never, "held")
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.process.wait(timeout=PATIENCE_S), 0)
        self.kill(never)
        never.process.stdin.close()


class HostWaitsTest(StreamTest):
    waits = "host"


if __name__ == "__main__":
    unittest.main()
