"""Draft tokens by slot, and staged rounds, through the Python door. Without a device the latter can
only be refused; tests/daemon has them on a pretended one."""

import unittest
from unittest import mock

import numpy as np

import specd
from specd import _library

V = 8
FULL = 1  # SPECD_FULL


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

    def test_bad_words_look_at_them(self):
        tokens = self.engine.draft_tokens()
        sequence = self.open(bad_words=[[1, 2]])
        tokens[sequence.slot] = [1, 2, 2]
        (result,) = self.engine.verify(one_hot(1, 2, 2, 2), [specd.Draft(sequence, by_slot=3)])
        self.assertEqual((result.status, result.num_accepted), ("ok", 1))
        self.assertEqual(result.tokens[0], 1)
        self.assertNotEqual(result.tokens[1], 2)

    def test_what_cannot_be_read_is_refused_by_name(self):
        rows = one_hot(1, 2)
        with self.assertRaisesRegex(specd.Error, "SPECD_DRAFT_TOKENS, which is not bound"):
            self.engine.verify(rows, [specd.Draft(self.open(), by_slot=1)])
        self.engine.draft_tokens()
        with self.assertRaises(specd.Error):
            self.engine.verify(rows, [specd.Draft(self.open(), [1], by_slot=1)])
        # More than max_draft; the rows are named, so that nothing can be wrong with their number.
        with self.assertRaises(specd.Error) as caught:
            self.engine.verify(one_hot(1, 2, 3, 4, 5),
                               [specd.Draft(self.open(), by_slot=4, target_rows=[0, 1, 2, 3, 4])])
        self.assertIn("by_slot", str(caught.exception))
        self.assertIn("0 .. 3", str(caught.exception))

    def test_without_drafts_there_are_no_draft_tokens(self):
        # It was said of the memory that it has no bytes.
        with specd.Engine("embedded:cpu", vocab_size=V, max_draft=0) as engine:
            with self.assertRaises(specd.Error) as caught:
                engine.draft_tokens()
        self.assertIn("max_draft = 0", str(caught.exception))
        self.assertIn("attach with a larger max_draft", str(caught.exception))

    def test_draft_tokens_are_marked_on_a_device_alone(self):
        with self.assertRaises(specd.Error) as caught:
            self.engine.mark_drafts(0)
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_UNSUPPORTED")
        self.assertIn("no device", str(caught.exception))
        for stream in (-1, 2**64, 1.5):
            with self.assertRaisesRegex((specd.Error, TypeError, ValueError), "cuda_stream"):
                self.engine.mark_drafts(stream)
        # The library gets the address as it is, and says whether there was room.
        with mock.patch.object(_library, "load") as load:
            marks = load.return_value.specd_mark_drafts
            marks.side_effect = [0, FULL]
            self.assertIs(self.engine.mark_drafts(2**63 + 5), True)
            self.assertIs(self.engine.mark_drafts(7), False)
        self.assertEqual([call.args for call in marks.call_args_list],
                         [(self.engine.pointer, 2**63 + 5), (self.engine.pointer, 7)])
        # A refused mark changes no round.
        self.engine.draft_tokens()[:] = 2
        sequence = self.open()
        (result,) = self.engine.verify(one_hot(2, 2, 4), [specd.Draft(sequence, by_slot=2)])
        self.assertEqual((result.tokens.tolist(), result.num_accepted), ([2, 2, 4], 2))

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
        self.assertIsNone(self.engine.collect())


if __name__ == "__main__":
    unittest.main()
