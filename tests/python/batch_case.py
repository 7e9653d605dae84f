"""BatchCase gives tests of calls with arrays an engine with eight tokens, embedded or attached."""

import unittest

import specd
from door_case import URI, V

K, B = 3, 6


class BatchCase(unittest.TestCase):
    def setUp(self):
        self.engine = self.make_engine()

    def make_engine(self):
        engine = specd.Engine(URI, vocab_size=V, max_batch=B, max_sequences=32, max_draft=K,
                              max_scores_per_token=4)
        self.addCleanup(engine.close)
        return engine
