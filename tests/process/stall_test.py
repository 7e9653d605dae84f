"""An engine with a legal round of minutes beside others, whose rounds and control messages go on.

The round's sequences all point at the same row, so it takes time and little memory.
"""

import sys
import unittest

import numpy as np

import specd
from support import ProcessTest, wait_until

VOCAB, DRAFTS, BEST = 2**20, 64, 7

# Prints a line once its round is submitted, and one with the statuses and ids of the answer.
MONSTER = f"""
import sys
import specd
uri, count = sys.argv[1], int(sys.argv[2])
engine = specd.Engine(uri, vocab_size={VOCAB}, max_batch=count, max_draft={DRAFTS}, name="monster")
rows = engine.rows(1)
rows[0, {BEST}] = 100  # every coin draws it
params = specd.SamplingParams(temperature=1, top_p=0.95, max_tokens=1000)
drafts = [specd.Draft(engine.open(params), [{BEST}] * {DRAFTS}, target_rows=[0] * {DRAFTS + 1})
          for _ in range(count)]
round = engine.submit(rows, drafts)
print("submitted", flush=True)
results = round.result(strict=False)
print("answered", {{r.status for r in results}}, {{tuple(r.tokens.tolist()) for r in results}}, flush=True)
"""


class StallTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.uri = f"unix:{self.socket}"
        self.process = self.start("specd", f"--listen={self.uri}", "--detokenizer=off")
        wait_until(lambda: "serves" in self.process.stderr or not self.process.running(),
                   "the daemon")

    def monster(self, num_sequences):
        """An engine with a round in flight. A core samples from some hundreds of its rows a second."""
        monster = self.start(sys.executable, "-c", MONSTER, self.uri, num_sequences)
        wait_until(lambda: "submitted" in monster.stdout or not monster.running(), "the round")
        self.assertTrue(monster.running(), monster.stderr)
        return monster

    def small(self):
        return specd.Engine(self.uri, vocab_size=8, name="small")

    def run_rounds(self, engine, count):
        sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=count))
        for i in range(count):
            result, = engine.verify(np.eye(8)[[i % 8]], {sequence: []})
            self.assertEqual(result.tokens.tolist(), [i % 8])

    def test_rounds_and_an_attach_pass_a_round_of_seconds_whose_ids_are_right(self):
        with self.small() as early:
            monster = self.monster(64)
            self.run_rounds(early, 20)
            with self.small() as late:
                self.run_rounds(late, 20)
            self.assertNotIn("answered", monster.stdout)
        self.assertEqual(monster.wait(), 0, monster.stderr)
        self.assertIn(f"answered {{'ok'}} {{{(BEST,) * (DRAFTS + 1)}}}", monster.stdout)

    def test_an_engine_that_dies_in_its_round_keeps_nobody_waiting(self):
        monsters = [self.monster(640), self.monster(640)]
        for monster in monsters:
            self.kill(monster)
        with self.small() as engine:
            self.run_rounds(engine, 20)
        wait_until(lambda: self.process.stderr.count("ended:") >= 2, "the ends of both sessions")
        self.stop(self.process)

    def test_a_drain_calls_the_round_off(self):
        monster = self.monster(640)
        with self.small() as engine:
            self.run_rounds(engine, 20)  # the round has begun
        self.stop(self.process)
        self.assertEqual(monster.wait(), 0, monster.stderr)
        self.assertIn("answered {'aborted'} {()}", monster.stdout)


if __name__ == "__main__":
    unittest.main()
