"""DoorCase gives tests of the Python door an engine with eight tokens, embedded or attached."""

import os
import unittest

import numpy as np

import specd

V = 8
URI = os.environ.get("SPECD_TEST_URI", "embedded:cpu")  # tests/process/attached_test.py has a daemon


def one_hot(*ids, dtype=np.float32):
    """Rows that leave no doubt."""
    return (np.eye(V) * 50)[list(ids)].astype(dtype)


class DoorCase(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine(URI, vocab_size=V, max_batch=4, max_sequences=16, max_draft=3)
        self.addCleanup(self.engine.close)

    def open(self, **fields):
        return self.engine.open(specd.SamplingParams(**{"seed": 1, **fields}))

    def tokens(self, rows, drafts, **rest):
        return [result.tokens.tolist() for result in self.engine.verify(rows, drafts, **rest)]
