"""A constrained sequence after kill -9 of its engine: opened again from its ids in another process, it
goes on with the same tokens.

Usage: reopened_test.py (the tests), or reopened_test.py engine URI COUNT [ID ...] (the engine: it
continues behind the ids, prints each token, and waits to be killed after COUNT of them)
"""

import pathlib
import sys
import time
import unittest

import numpy as np
import specd

V = 2048
SEED = 7
PATTERN = "[A-Z][a-z]{2,9}( [a-z0-9]{1,8}){4,9}\\."


def row_after(tokens):
    """What a model might say: a function of the tokens before the place."""
    return np.random.default_rng([3, *(token + 1 for token in tokens[-3:])]).normal(0, 3, V)


def run_engine(uri, count, ids):
    with specd.Engine(uri, vocab_size=V, max_draft=3) as engine:
        params = specd.SamplingParams(
            structured_outputs=specd.StructuredOutputs(regex=PATTERN), seed=SEED, max_tokens=200,
            verify="exact_match")
        sequence = engine.open(params, output_ids=ids, request_id=f"r{len(ids)}")
        tokens = list(ids)
        while True:
            # One draft token is the one that the next row wants most, so some are accepted.
            draft = [int(np.argmax(row_after(tokens)))]
            rows = np.stack([row_after(tokens), row_after(tokens + draft)]).astype(np.float32)
            (result,) = engine.verify(rows, {sequence: draft})
            assert result.status == "ok", result.detail
            for token in result.tokens.tolist():
                tokens.append(token)
                print(token, flush=True)
                if len(tokens) - len(ids) == count:
                    time.sleep(3600)  # until it is killed
            if result.finish_reason:
                print("end", result.finish_reason, flush=True)
                return


def run_tests():
    from support import ProcessTest, wait_until

    class ReopenedTest(ProcessTest):
        def engine_of(self, uri, count, ids=()):
            return self.start(pathlib.Path(sys.executable), __file__, "engine", uri, count, *ids)

        def tokens_of(self, process):
            return [int(line) for line in process.stdout.splitlines() if line.isdigit()]

        def test_the_text_goes_on_where_it_was(self):
            self.daemon()
            uri = f"unix:{self.socket}"
            whole = self.engine_of(uri, -1)
            self.assertEqual(whole.wait(), 0, whole.stderr)
            expected = self.tokens_of(whole)
            self.assertIn("end stop", whole.stdout)
            self.assertGreater(len(expected), 12)
            ids = []
            for count in (1, 4, 3):
                engine = self.engine_of(uri, count, ids)
                wait_until(lambda: len(self.tokens_of(engine)) >= count or not engine.running(),
                           "the tokens before the kill")
                self.assertTrue(engine.running(), engine.stderr)
                self.kill(engine)
                ids += self.tokens_of(engine)[:count]
                self.assertEqual(ids, expected[:len(ids)])
            last = self.engine_of(uri, -1, ids)
            self.assertEqual(last.wait(), 0, last.stderr)
            self.assertEqual(ids + self.tokens_of(last), expected)
            self.assertIn("end stop", last.stdout)

        def test_ids_that_the_constraint_forbids_are_refused(self):
            self.daemon()
            wrong = self.engine_of(f"unix:{self.socket}", -1, [0, 0])
            self.assertNotEqual(wrong.wait(), 0)
            self.assertIn("output_ids[0] = 0 is forbidden by the constraint", wrong.stderr)

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(ReopenedTest)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


if __name__ == "__main__":
    if sys.argv[1:2] == ["engine"]:
        run_engine(sys.argv[2], int(sys.argv[3]), [int(item) for item in sys.argv[4:]])
    else:
        run_tests()
