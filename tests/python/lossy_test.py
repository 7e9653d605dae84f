"""Lossy methods from Python: the option, the refusal, and what results say."""

import unittest

import numpy as np

import specd

V = 8


class LossyTest(unittest.TestCase):
    def engine(self, **options):
        engine = specd.Engine("embedded:cpu", vocab_size=V, max_draft=3, **options)
        self.addCleanup(engine.close)
        return engine

    def rows(self, count):
        """Rows that like 0 best, then 1."""
        row = np.full(V, -10, np.float32)
        row[:2] = 2, 1
        return np.tile(row, (count, 1))

    def test_a_lossy_method_is_refused_unless_the_engine_allows_it(self):
        params = specd.SamplingParams(verify="relaxed", temperature=0)
        with self.assertRaisesRegex(specd.Error, "verify = relaxed .*allow_lossy"):
            self.engine().open(params)
        with self.assertRaisesRegex(specd.Error, "allow_lossy"):
            params.check(vocab_size=V)
        params.check(vocab_size=V, allow_lossy=1)
        engine = self.engine(allow_lossy=1)
        result, = engine.verify(self.rows(2), {engine.open(params): [1]})
        self.assertEqual((result.verify, result.lossy, result.tokens.tolist()),
                         ("relaxed", True, [1, 0]))
        lossless = engine.open(specd.SamplingParams(temperature=0))
        result, = engine.verify(self.rows(2), {lossless: [1]})
        self.assertEqual((result.lossy, result.tokens.tolist()), (False, [0]))

    def test_a_batch_knows_which_sequences_were_lossy(self):
        engine = self.engine(allow_lossy=1)
        lossy = engine.open(specd.SamplingParams(verify="synthetic", synthetic_rates=[1.0, 0.0]))
        lossless = engine.open(specd.SamplingParams())
        handles = [lossy.handle, lossless.handle]
        results = engine.verify_batch(self.rows(6), handles, [7, 7, 0, 0], [0, 2, 4])
        self.assertEqual(results.lossy.tolist(), [True, False])
        self.assertEqual((int(results.num_accepted[0]), int(results.tokens[0, 0])), (1, 7))


if __name__ == "__main__":
    unittest.main()
