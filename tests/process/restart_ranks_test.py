"""Ranks that are processes of their own go on when their daemon is killed, restarted or replaced.

Rank 0 is an engine of this process, and its rows are a function of its text alone. Each rank waits on its
standard input, as a rank waits for rank 0 in a collective, and calls nothing of specd meanwhile. Asked, it says
what lies in its memory. The memory is wiped before each step, so a round that missed a rank would be seen.
"""

import json
import pathlib
import random
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import specd
from activation_test import ActivationCase
from restart_test import DRAFT, V, Run
from support import ProcessTest, wait_until

SLOTS = 32
NOTHING = -7
RANKS = 1, 2
KILLS_MIN = 20  # of the test that kills in the middle of rounds

RANK = """
import json, sys, specd
uri, token, rank, reconnect_ms, slots, length = sys.argv[1:4] + [int(word) for word in sys.argv[4:]]
print("joins", flush=True)
try:
    member = specd.Member(uri, token, int(rank), reconnect_ms=reconnect_ms)
    total = member.slot_output("total_kept", slots)
    kept = member.slot_output("kept_tokens", slots, length, dtype="int64")
    last = member.next_tokens(slots)
    print("bound", flush=True)
    for line in sys.stdin:
        if line == "wipe\\n":
            for array in total, kept, last:
                array[...] = -7
        if line == "check\\n":
            member.check()
        print(json.dumps([array.tolist() for array in (total, kept, last)]), flush=True)
    member.leave()
except specd.Error as error:
    print(f"{error.code_name}: {error}", flush=True)
"""


class Rank:
    def __init__(self, test, number, token, reconnect_ms=60_000):
        script = test.folder / "rank.py"
        script.write_text(RANK)
        self.number = number
        self.process = test.start(pathlib.Path(sys.executable), script, f"unix:{test.socket}", token, number,
                                  reconnect_ms, SLOTS, DRAFT + 1, stdin=subprocess.PIPE)
        test.addCleanup(self.process.process.stdin.close)
        self.num_read = 0
        assert self.line() == "joins"

    def line(self):
        """Its next line."""
        lines, number = self.process.lines["stdout"], self.num_read
        wait_until(lambda: len(lines) > number or not self.process.running(), f"a line of rank {self.number}")
        assert len(lines) > number, self.process.stderr
        self.num_read += 1
        return lines[number].strip()

    def ask(self, word=""):
        self.process.process.stdin.write(f"{word}\n")
        self.process.process.stdin.flush()
        return self.line()

    def memory(self, word=""):
        """total_kept, kept_tokens and the last token of each slot."""
        return json.loads(self.ask(word))


class RankedRun(Run):
    """A run whose ranks have to find after each round what it kept, and nothing else."""

    def __init__(self, engine, disturb, ranks, prefix=""):
        super().__init__(engine, disturb, prefix)
        self.ranks, self.found = ranks, []

    def step(self):
        for rank in self.ranks:
            rank.memory("wipe")
        self.written = set()
        super().step()
        for rank in self.ranks:
            for array in rank.memory():
                blank = [slot for slot in range(SLOTS) if np.all(np.array(array[slot]) == NOTHING)]
                assert set(range(SLOTS)) - set(blank) == self.written, (rank.number, blank, self.written)

    def take(self, names, round):
        slots = {name: self.live[name].slot for name in names}
        before = {name: len(self.texts[name]) for name in names}
        super().take(names, round)
        for rank in self.ranks:
            total, kept, last = rank.memory()
            for name, slot in slots.items():
                found = total[slot], kept[slot], last[slot]
                self.found.append((rank.number, name, found))
                tokens = self.texts[name][before[name]:]
                expected = len(self.texts[name]), tokens + [-1] * (DRAFT + 1 - len(tokens)), tokens[-1]
                # The round that ends a sequence may have verified tokens behind the end.
                is_prefix = name in self.ends and kept[slot][:len(tokens)] == tokens
                assert found == expected or is_prefix, (rank.number, name, found, expected)
        self.written |= set(slots.values())


class RanksCase(ProcessTest):
    def serve(self):
        return self.daemon("--threads=1")

    def open_engine(self, **options):
        return specd.Engine(f"unix:{self.socket}", vocab_size=V, max_draft=DRAFT, max_sequences=SLOTS,
                            **{"reconnect_ms": 60_000, **options})

    def start_ranks(self, engine, numbers=RANKS, **options):
        token, _ = engine.group()
        ranks = [Rank(self, number, token, **options) for number in numbers]
        for rank in ranks:
            self.assertEqual(rank.line(), "bound")
        return ranks

    def run_with(self, disturb, **options):
        """The texts, the ends, what the ranks found, and the number of later daemons."""
        with self.open_engine(**options) as engine:
            ranks = self.start_ranks(engine, reconnect_ms=options.get("reconnect_ms", 60_000))
            token, bound = engine.group()
            self.assertEqual(bound, set(RANKS))
            run = RankedRun(engine, disturb, ranks)
            texts, ends = run.run()
            # The token is the engine's for life, and nothing else has come or gone.
            self.assertEqual(engine.group(), (token, set(RANKS)))
            for rank in ranks:
                rank.memory("check")
            found = texts, repr(ends), run.found
            return found, engine.stats()["reattached"]

    def undisturbed(self):
        daemon = self.serve()
        moments = []
        found, _ = self.run_with(moments.append, reconnect_ms=0)
        self.stop(daemon)
        self.assertGreater(len(found[2]), 100)
        return found, moments[-1]

    def plain_round(self, engine, sequence, token):
        rows = np.zeros((1, V), np.float32)
        rows[0, token] = 50
        result, = engine.verify(rows, {sequence: []})
        self.assertEqual((result.status, result.tokens.tolist()), ("ok", [token]))

    def last_of(self, rank, sequence):
        return rank.memory("check")[2][sequence.slot]


class RestartRanksTest(RanksCase):
    def test_a_daemon_that_is_killed_or_restarted_at_any_moment_changes_nothing_for_any_rank(self):
        expected, _ = self.undisturbed()
        for end, every in ((self.kill, 5), (self.stop, 7), (self.kill, 11)):
            running, ends = [self.serve()], []

            def disturb(moment):
                if moment % every == 0:
                    end(running.pop())
                    running.append(self.serve())
                    ends.append(moment)
                    if every == 11:  # two deaths in a row, and no call between them
                        end(running.pop())
                        running.append(self.serve())

            found, reattached = self.run_with(disturb)
            with self.subTest(end=end.__name__, every=every):
                self.assertEqual(found, expected)
                self.assertGreater(reattached, len(ends) // 2)
            self.stop(running.pop())

    def test_kills_in_the_middle_of_rounds_change_nothing_for_any_rank(self):
        expected, _ = self.undisturbed()
        self.running, self.num_kills = self.serve(), 0
        with self.open_engine() as engine:
            ranks = self.start_ranks(engine)
            killer = threading.Thread(target=self.strike, daemon=True)
            self.moment, self.is_over = 0, False
            killer.start()
            for number in range(3):
                run = RankedRun(engine, self.pass_moment, ranks, prefix=f"{number}.")
                texts, ends = run.run()
                self.assertEqual((texts, repr(ends), run.found), expected)
            self.is_over = True
            killer.join()
            self.assertGreater(engine.stats()["reattached"], KILLS_MIN)
        print(f"{self.num_kills} kills", file=sys.stderr)
        self.stop(self.running)

    def pass_moment(self, _):
        self.moment += 1

    def strike(self):
        """Kills one daemon after another, each at any time after the engine has gone on."""
        draws = random.Random(3)
        while not self.is_over:
            begin = self.moment
            wait_until(lambda: self.moment > begin + 1 or self.is_over, "the engine to go on")
            time.sleep(draws.random() * 0.02)
            self.kill(self.running)
            self.running = self.serve()
            self.num_kills += 1

    def test_a_kill_before_between_and_after_the_joins(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=60))
            token, _ = engine.group()

            def replace():
                self.kill(daemon)
                return self.serve()
            daemon = replace()
            # The session is not at this daemon yet: the rank waits for it.
            first = Rank(self, 1, token)
            time.sleep(0.3)
            self.plain_round(engine, sequence, 300)
            self.assertEqual(first.line(), "bound")
            daemon = replace()
            second = Rank(self, 2, token)
            # Rank 0 waits for the rank that it had, not for the one that comes.
            self.plain_round(engine, sequence, 301)
            self.assertEqual(self.last_of(first, sequence), 301)
            self.assertEqual(second.line(), "bound")
            self.assertEqual(engine.group(), (token, {1, 2}))
            # While no daemon is there a rank comes too.
            self.kill(daemon)
            third = Rank(self, 3, token)
            time.sleep(0.3)  # it has tried a few times, or not: either is right
            daemon = self.serve()
            self.plain_round(engine, sequence, 302)
            for rank in (first, second):
                self.assertEqual(self.last_of(rank, sequence), 302)
            self.assertEqual(third.line(), "bound")
            for token_id in (303, 304):
                self.plain_round(engine, sequence, token_id)
                for rank in (first, second, third):
                    self.assertEqual(self.last_of(rank, sequence), token_id)
                daemon = replace()
            self.assertEqual(engine.group(), (token, {1, 2, 3}))
        self.stop(daemon)

    def test_a_rank_that_was_killed_meanwhile_is_replaced(self):
        daemon = self.serve()
        with self.open_engine() as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=60))
            token, _ = engine.group()
            one, two = self.start_ranks(engine)
            self.plain_round(engine, sequence, 300)
            self.kill(daemon)
            self.kill(two.process)
            daemon = self.serve()
            again = Rank(self, 2, token)
            self.plain_round(engine, sequence, 301)
            for rank in (one, again):
                if rank is again:
                    self.assertEqual(rank.line(), "bound")
                self.assertEqual(self.last_of(rank, sequence), 301)
            # A rank that leaves or dies while the daemon runs is not awaited at the next one.
            self.kill(one.process)
            wait_until(lambda: engine.group() == (token, {2}), "the daemon to miss rank 1")
            self.kill(daemon)
            daemon = self.serve()
            self.plain_round(engine, sequence, 302)
            self.assertEqual(self.last_of(again, sequence), 302)
        self.stop(daemon)
        self.assertIn("rank 2 joined", daemon.stderr)
        self.assertNotIn(token.split("-")[1], daemon.stderr)  # its secret

    def test_ranks_are_told_when_rank_0_has_ended(self):
        daemon = self.serve()
        for replaced in (False, True):
            with self.open_engine() as engine:
                sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=60))
                rank, = self.start_ranks(engine, [1])
                if replaced:
                    self.kill(daemon)
                    daemon = self.serve()
                    self.plain_round(engine, sequence, 300)
                rank.memory("check")
                token, _ = engine.group()
            begin = time.monotonic()
            wait_until(lambda: "the session that this rank has joined has ended" in rank.ask("check"), "the end")
            late = Rank(self, 2, token)
            self.assertIn("token is of a session that has ended", late.line())
            self.assertLess(time.monotonic() - begin, 30)  # half of reconnect_ms
        self.stop(daemon)


class UpgradeRanksTest(ActivationCase, RanksCase):
    def test_a_daemon_that_is_upgraded_and_rolled_back_changes_nothing_for_any_rank(self):
        expected, num_moments = self.undisturbed()
        self.socket.unlink(missing_ok=True)
        listening = self.listening()
        running = [self.activated(listening)]
        self.await_ready()
        versions = {num_moments // 3: "specd-next-version", 2 * num_moments // 3: "specd"}

        def disturb(moment):
            if moment in versions:
                self.stop(running.pop())
                running.append(self.activated(listening, program=versions[moment]))
                self.await_ready()

        found, reattached = self.run_with(disturb)
        self.assertEqual(found, expected)
        self.assertEqual(reattached, 2)
        self.stop(running.pop())

    def await_ready(self):
        while self.notices.recv(99) != b"READY=1":
            pass  # the last word of the daemon before


if __name__ == "__main__":
    unittest.main()
