"""Sequences of the Python door: their life, their seeds and coins, and what a result says of them."""

import re
import unittest

import numpy as np

import specd
from door_case import V, DoorCase, one_hot


class DoorSequencesTest(DoorCase):
    def test_the_life_of_a_sequence(self):
        sequence = self.open(max_tokens=3, stop_token_ids=[4])
        result, = self.engine.verify(one_hot(1, 2), {sequence: [1]})
        self.assertEqual((result.num_accepted, result.total_kept, result.finish_reason), (1, 2, None))
        other = sequence.fork(seed=9)
        self.assertEqual((other.seed, other.verify), (9, sequence.verify))
        result, = self.engine.verify(one_hot(4), {sequence: []})
        self.assertEqual((result.finish_reason, result.stop_token), ("stop", 4))
        self.assertEqual(sequence.state(), ("stop", 3, None))
        result, = self.engine.verify(one_hot(4), {sequence: []})
        self.assertEqual((result.status, len(result.tokens)), ("finished", 0))
        result, = self.engine.verify(one_hot(5), {other: []})
        self.assertEqual((result.finish_reason, result.total_kept), ("length", 3))
        other.close()
        result, = self.engine.verify(one_hot(5), {other: []}, strict=False)
        self.assertEqual(result.status, "unknown_sequence")
        aborted = self.open()
        aborted.abort()
        self.assertEqual(aborted.state()[0], "abort")

    def test_n_and_output_ids(self):
        first, second = self.engine.open_all(specd.SamplingParams(n=2, seed=5))
        self.assertEqual((first.seed, second.seed), (5, 6))
        returned = self.engine.open(specd.SamplingParams(max_tokens=3), [1], output_ids=[2, 3])
        result, = self.engine.verify(one_hot(1), {returned: []})
        self.assertEqual((result.finish_reason, result.total_kept), ("length", 3))

    def test_injected_coins_decide(self):
        rows = np.zeros((2, V))
        for coin, of_seven, of_eight in ((0, 0, 0), (0.49, 4, 3), (0.51, 4, 4), (0.99, 7, 7)):
            sequence = self.open(verify="token")
            sequence.set_coins({("accept", 0, 0, 1): 0.2, ("residual", 0, 0, 0): coin})
            # p(1) = 1/8 is not above 0.2 * q(1) = 0.2; what is left of p - q are the other ids.
            self.assertEqual(self.tokens(rows, {sequence: [1]}, q=one_hot(1)), [[of_seven]])
            sequence.set_coins({("accept", 1, 1, 1): 0.1, ("sample", 2, 0, 0): coin})
            self.assertEqual(self.tokens(rows, {sequence: [1]}, q=one_hot(1)), [[1, of_eight]])
            sequence.close()

    def test_stats(self):
        self.tokens(one_hot(1, 2), {self.open(): [V]})
        stats = self.engine.stats()
        self.assertEqual((stats["rounds"], stats["invalid_drafts"], stats["kept"]), (1, 1, 1))

    def test_a_result_names_the_method_that_auto_chose(self):
        # Bug: nothing said that sampled drafts under "auto" are verified as a block, whose text
        # depends on the drafts.
        sequence, greedy = self.open(), self.open(temperature=0)
        for draft, q, wanted in (([1], None, "exact_match"), ([], None, "exact_match"),
                                 ([1], one_hot(1), "block")):
            result, = self.engine.verify(one_hot(1, 2)[:len(draft) + 1], {sequence: draft}, q=q)
            self.assertEqual(result.verify, wanted)
        result, = self.engine.verify(one_hot(1), {greedy: []})
        self.assertEqual(result.verify, "greedy")
        result, = self.engine.verify(None, [specd.Draft(greedy, discard=True)])
        self.assertIsNone(result.verify)

    def test_request_ids_of_two_engines_differ(self):
        with specd.Engine(vocab_size=V) as other:
            ids = {self.engine.open().request_id, self.engine.open().request_id,
                   other.open().request_id}
        self.assertEqual(len(ids), 3)
        # C++ keeps 15 bytes without an allocation.
        self.assertTrue(all(re.fullmatch("py[a-z0-9]{6}-00000[12]", request_id) for request_id in ids), ids)


if __name__ == "__main__":
    unittest.main()
