"""Ranks that come back late, partly, twice or with what is not theirs, over daemons that follow one another.

A round must write to every rank that was bound, or the rank must be told. The tests stall daemons, end two in a
row while rank 0 waits, and start ranks in the place of others.
"""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import unittest

import specd
from restart_ranks_test import SLOTS, Rank, RanksCase
from restart_test import DRAFT
from support import wait_until

# A rank whose second slot output comes when it is told.
SLOW = """
import sys, specd
uri, token, slots = sys.argv[1], sys.argv[2], int(sys.argv[3])
member = specd.Member(uri, token, 2, reconnect_ms=60_000)
total = member.slot_output("total_kept", slots)
kept = member.slot_output("kept_tokens", slots, 4, dtype="int64")
print("half", flush=True)
sys.stdin.readline()
last = member.next_tokens(slots)
print("bound", flush=True)
for line in sys.stdin:
    print(last[int(line)], flush=True)
"""


def open_sockets():
    """The descriptors of this process that are sockets."""
    folder = pathlib.Path("/proc/self/fd")
    return {entry.name for entry in folder.iterdir() if entry.is_socket()}


class RanksRejoinTest(RanksCase):
    def open_sequence(self, engine):
        return engine.open(specd.SamplingParams(temperature=0, max_tokens=60_000))

    def member(self, token, rank=1, reconnect_ms=60_000, **options):
        member = specd.Member(f"unix:{self.socket}", token, rank, reconnect_ms=reconnect_ms, **options)
        self.addCleanup(member.leave)
        return member

    def test_a_bind_that_times_out_at_a_stalled_daemon_ends_the_rank(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = self.open_sequence(engine)
            member = specd.Member(f"unix:{self.socket}", engine.group()[0], 1, reconnect_ms=60_000, timeout_ms=300)
            last = member.next_tokens(SLOTS)
            daemon.stop()
            results = []

            def bind():
                try:
                    member.slot_output("total_kept", SLOTS)
                    results.append("bound")
                except specd.Error as error:
                    results.append(error)

            binding = threading.Thread(target=bind)
            binding.start()
            time.sleep(0.5)
            daemon.signal(signal.SIGCONT)
            # The rank never leaves the daemon that serves it: every round finds it, until it leaves itself.
            end = time.monotonic() + 1
            round = 0
            while time.monotonic() < end:
                round += 1
                self.plain_round(engine, sequence, 300 + round % 50)
                self.assertEqual(last[sequence.slot], 300 + round % 50)
            binding.join()
            self.assertIn("the daemon did not answer within 300ms", str(results[0]))
            for call in (member.check, lambda: member.next_tokens(SLOTS)):
                with self.assertRaisesRegex(specd.Error, "an earlier call was given up") as raised:
                    call()
                self.assertEqual(raised.exception.code_name, "SPECD_ERROR_DISCONNECTED")
            member.leave()
            wait_until(lambda: engine.group()[1] == set(), "the rank to have left")
        self.stop(daemon)

    def test_a_rank_that_a_living_daemon_hangs_up_on_is_told_that_rank_0_has_gone_on(self):
        """The rank's connection ends alone, as it does after a breach of the protocol."""
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = self.open_sequence(engine)
            before = open_sockets()
            member = self.member(engine.group()[0])
            member.next_tokens(SLOTS)
            (fd,) = open_sockets() - before
            os.write(int(fd), b"\xff" * 64)  # no message: the daemon hangs up
            wait_until(lambda: self.failure(member) is not None, "the rank to be told")
            self.assertRegex(str(self.failure(member)), "rank 0 has gone on without rank 1, or has ended; .*join")
            self.plain_round(engine, sequence, 300)
        self.stop(daemon)

    def test_rank_0_awaits_every_slot_output_of_a_rank_that_replaces_another(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = self.open_sequence(engine)
            token, _ = engine.group()
            _, two = self.start_ranks(engine)
            self.plain_round(engine, sequence, 300)
            self.kill(daemon)
            self.kill(two.process)
            daemon = self.serve()
            script = self.folder / "slow.py"
            script.write_text(SLOW)
            slow = self.start(pathlib.Path(sys.executable), script, f"unix:{self.socket}", token, SLOTS,
                              stdin=subprocess.PIPE)
            self.addCleanup(slow.process.stdin.close)
            round = threading.Thread(target=self.plain_round, args=(engine, sequence, 301))
            round.start()
            wait_until(lambda: "half" in slow.stdout, "the first half")
            round.join(0.5)
            self.assertTrue(round.is_alive(), "rank 0 went on before the rank had bound its next tokens")
            print(file=slow.process.stdin, flush=True)
            round.join()
            print(sequence.slot, file=slow.process.stdin, flush=True)
            wait_until(lambda: len(slow.stdout.splitlines()) == 3, "the token")
            self.assertEqual(slow.stdout.splitlines(), ["half", "bound", "301"])
        self.stop(daemon)

    def test_rank_0_awaits_who_has_bound_at_a_daemon_that_it_waited_at(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = self.open_sequence(engine)
            token, _ = engine.group()
            one, = self.start_ranks(engine, [1])
            self.plain_round(engine, sequence, 300)
            self.kill(daemon)
            self.kill(one.process)
            daemon = self.serve()
            round = threading.Thread(target=self.plain_round, args=(engine, sequence, 301))
            round.start()  # rank 0 attaches, and waits for rank 1
            three = Rank(self, 3, token)
            self.assertEqual(three.line(), "bound")
            three.process.stop()
            self.kill(daemon)
            daemon = self.serve()
            again = Rank(self, 1, token)
            self.assertEqual(again.line(), "bound")
            round.join(0.5)
            self.assertTrue(round.is_alive(), "rank 0 went on before rank 3 was back")
            three.process.signal(signal.SIGCONT)
            round.join()
            for rank in (again, three):
                self.assertEqual(self.last_of(rank, sequence), 301)
            self.assertEqual(engine.group(), (token, {1, 3}))
        self.stop(daemon)

    def test_a_rank_waits_as_long_for_its_session_as_for_the_daemon(self):
        daemon = self.serve()
        with self.open_engine(reconnect_ms=3000) as engine:
            sequence = self.open_sequence(engine)
            member = self.member(engine.group()[0], reconnect_ms=3000, timeout_ms=300)
            last = member.next_tokens(SLOTS)
            self.plain_round(engine, sequence, 300)
            self.kill(daemon)
            time.sleep(2)
            daemon = self.serve()
            totals = []
            binding = threading.Thread(target=lambda: totals.append(member.slot_output("total_kept", SLOTS)))
            daemon.stop()
            binding.start()  # it waits with the rank, which gives up a call to this daemon, and tries again
            time.sleep(0.7)
            daemon.signal(signal.SIGCONT)
            time.sleep(1)
            self.plain_round(engine, sequence, 301)
            self.assertEqual(last[sequence.slot], 301)
            binding.join()
            self.plain_round(engine, sequence, 302)
            self.assertEqual((last[sequence.slot], totals[0][sequence.slot]), (302, 3))
            # Rank 0 does not come for longer than that: it should have polled.
            self.kill(daemon)
            daemon = self.serve()
            wait_until(lambda: self.failure(member) is not None, "the rank to give up")
            self.assertRegex(str(self.failure(member)), "within reconnect_ms = 3000: .*an engine that pauses polls")
        self.stop(daemon)

    def test_rank_0_goes_on_without_ranks_that_left_while_their_daemon_stopped(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = self.open_sequence(engine)
            token, _ = engine.group()
            one, two = self.start_ranks(engine)
            three = self.member(token, rank=3, timeout_ms=300)
            three.next_tokens(SLOTS)
            self.assertEqual(engine.group(), (token, {1, 2, 3}))
            self.plain_round(engine, sequence, 300)
            daemon.stop()
            self.kill(two.process)
            with self.assertRaisesRegex(specd.Error, "the daemon did not"):
                three.leave()
            daemon.signal(signal.SIGTERM)  # it finds this, and that ranks 2 and 3 have gone, at the same time
            daemon.signal(signal.SIGCONT)
            self.assertEqual(daemon.wait(), 0, daemon.stderr)
            daemon = self.serve()
            self.plain_round(engine, sequence, 301)
            self.assertEqual(self.last_of(one, sequence), 301)
            self.assertEqual(engine.group(), (token, {1}))
        self.stop(daemon)

    def test_ranks_have_the_time_of_rank_0_from_when_the_next_daemon_has_taken_it(self):
        daemon = self.serve()
        with self.open_engine(reconnect_ms=6000) as engine:
            sequence = self.open_sequence(engine)
            rank, = self.start_ranks(engine, [1])
            self.plain_round(engine, sequence, 300)
            rank.process.stop()
            self.kill(daemon)
            round = threading.Thread(target=self.plain_round, args=(engine, sequence, 301))
            round.start()
            time.sleep(3)
            daemon = self.serve()
            wait_until(lambda: "session 1: " in daemon.stderr, "rank 0 to be taken")
            round.join(4)  # more than 6 s after rank 0 has lost its daemon, and less after it was taken
            self.assertTrue(round.is_alive(), "rank 0 did not wait for its rank")
            rank.process.signal(signal.SIGCONT)
            round.join()
            self.assertEqual(self.last_of(rank, sequence), 301)
        self.stop(daemon)

    def test_a_rank_whose_place_was_taken_waits_for_the_next_daemon_as_others_do(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = self.open_sequence(engine)
            token, _ = engine.group()
            former, = self.start_ranks(engine, [1])
            members = []
            joining = threading.Thread(target=lambda: members.append(self.member(token, timeout_ms=4000)))
            joining.start()
            wait_until(lambda: "has joined already" in daemon.stderr, "the refusal")
            self.kill(daemon)
            self.kill(former.process)
            joining.join(5)
            self.assertTrue(joining.is_alive(), "it gave up though no daemon refuses it any more")
            daemon = self.serve()
            round = threading.Thread(target=self.plain_round, args=(engine, sequence, 300))
            round.start()
            joining.join()
            last = members[0].next_tokens(SLOTS)
            round.join(0.5)
            self.assertTrue(round.is_alive(), "rank 0 went on before its rank had bound everything")
            members[0].slot_output("total_kept", SLOTS)
            members[0].slot_output("kept_tokens", SLOTS, DRAFT + 1, dtype="int64")
            round.join()
            self.assertEqual(last[sequence.slot], 300)
        self.stop(daemon)

    def failure(self, member):
        try:
            member.check()
            return None
        except specd.Error as error:
            return error


if __name__ == "__main__":
    unittest.main()
