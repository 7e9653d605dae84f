"""Next tokens, and rows in device memory, through the Python door. Without a device the latter can
only be refused; tests/daemon/client/device_engine_test.cc has them on a pretended one."""

import unittest

import numpy as np

import specd

V = 8


def one_hot(*ids):
    return (np.eye(V) * 50)[list(ids)].astype(np.float32)


class NextTokenTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=V, max_batch=4, max_sequences=6)
        self.addCleanup(self.engine.close)

    def open(self):
        return self.engine.open(specd.SamplingParams(temperature=0))

    def test_the_last_token_lies_at_the_slot_of_its_sequence(self):
        tokens = self.engine.next_tokens()
        self.assertEqual((tokens.shape, tokens.dtype), ((6,), np.dtype(np.int32)))
        tokens[:] = -9
        a, b, c = self.open(), self.open(), self.open()
        self.assertEqual(sorted({a.slot, b.slot, c.slot}), [0, 1, 2])
        self.engine.verify(one_hot(1, 2, 3, 4, 5), {a: [1, 7], c: [4]})
        expected = {a.slot: 2, b.slot: -9, c.slot: 5}
        self.assertEqual({slot: tokens[slot] for slot in expected}, expected)
        self.assertEqual(tokens[3:].tolist(), [-9] * 3)
        # Sixteen regions are a session's limit: what a later call replaces is given back.
        for _ in range(40):
            tokens = self.engine.next_tokens()
        self.engine.verify(one_hot(6), {b: []})
        self.assertEqual(tokens[b.slot], 6)

    def test_device_memory_is_refused_on_the_cpu_and_rows_stay_as_they_were(self):
        rows = self.engine.rows(1)
        rows[:] = one_hot(3)
        for call in (lambda: self.engine.device_rows(1 << 20, 4), lambda: self.engine.next_tokens(64)):
            with self.assertRaises(specd.Error) as caught:
                call()
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_UNSUPPORTED")
            self.assertIn("embedded:cuda", str(caught.exception))
        for address in (-1, 2**64, 1.5, None):
            with self.assertRaises(specd.Error):
                self.engine.device_rows(address, 4)
        (result,) = self.engine.verify(rows, {self.open(): []})
        self.assertEqual(result.tokens.tolist(), [3])


if __name__ == "__main__":
    unittest.main()
