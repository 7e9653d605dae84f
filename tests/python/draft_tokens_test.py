"""Draft tokens by slot, and staged rounds, through the Python door. Without a device the latter can
only be refused; tests/daemon has them on a pretended one."""

import unittest

import numpy as np

import specd

V = 8


def one_hot(*ids):
    return (np.eye(V) * 50)[list(ids)].astype(np.float32)


class DraftTokensTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=V, max_batch=4, max_sequences=6,
                                   max_draft=3)
        self.addCleanup(self.engine.close)

    def open(self, **params):
        return self.engine.open(specd.SamplingParams(temperature=0, **params))

    def test_they_are_read_at_the_slot_of_each_sequence(self):
        tokens = self.engine.draft_tokens()
        self.assertEqual((tokens.shape, tokens.dtype), ((6, 3), np.dtype(np.int32)))
        tokens[:] = -9
        a, b, c = self.open(), self.open(), self.open()
        tokens[a.slot] = [1, 2, 3]
        tokens[b.slot] = [4, -1, 4]
        tokens[c.slot] = [7, V, 7]
        results = self.engine.verify(
            [one_hot(1, 2, 7, 0), one_hot(4, 5, 6, 6), one_hot(7, 6), one_hot(1, 2)],
            [specd.Draft(a, by_slot=3), specd.Draft(b, by_slot=3), specd.Draft(c, by_slot=1),
             specd.Draft(self.open(), [1])])
        self.assertEqual([result.tokens.tolist() for result in results],
                         [[1, 2, 7], [4, 5], [7, 6], [1, 2]])
        self.assertEqual([result.num_accepted for result in results], [2, 1, 1, 1])
        # Three, the one before the -1, one, and one that was given.
        self.assertEqual(self.engine.stats()["drafted"], 6)

    def test_penalties_count_them(self):
        tokens = self.engine.draft_tokens()
        sequence = self.open(presence_penalty=2)
        tokens[sequence.slot] = [5, 5, 5]
        # 5 leads by 1, which one occurrence undoes: the first stands, the second does not.
        rows = np.zeros((4, V), np.float32)
        rows[:, 5], rows[:, 2] = 3, 2
        (result,) = self.engine.verify(rows, [specd.Draft(sequence, by_slot=3)])
        self.assertEqual(result.tokens.tolist(), [5, 2])

    def test_what_cannot_be_read_is_refused_by_name(self):
        rows = one_hot(1, 2)
        (unbound,) = self.engine.verify(rows, [specd.Draft(self.open(), by_slot=1)])
        self.assertEqual((unbound.status, unbound.detail.split(":")[0]), ("invalid", "flags"))
        self.engine.draft_tokens()
        (refused,) = self.engine.verify(rows, [specd.Draft(self.open(bad_words=[[1, 2]]), by_slot=1)])
        self.assertEqual(refused.status, "invalid")
        self.assertIn("tokens that the host does not know", refused.detail)
        for draft in (specd.Draft(self.open(), [1], by_slot=1), specd.Draft(self.open(), by_slot=4)):
            with self.assertRaises(specd.Error):
                self.engine.verify(rows, [draft])

    def test_nothing_is_staged_on_the_cpu(self):
        self.engine.rows(1)[:] = one_hot(3)
        sequence = self.open()
        for call in (lambda: self.engine.stage({sequence: []}),
                     lambda: self.engine.enqueue_staged(1, 0)):
            with self.assertRaises(specd.Error) as caught:
                call()
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_UNSUPPORTED")
            self.assertIn("embedded:cuda", str(caught.exception))
        self.assertIsNone(self.engine.collect(0))


if __name__ == "__main__":
    unittest.main()
