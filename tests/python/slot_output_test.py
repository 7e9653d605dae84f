"""Slot outputs through the Python door, in a loop that an engine with a cache would run: the model
sees nothing but what the slot outputs say."""

import unittest

import numpy as np

import specd

V = 8
NAMES = ("next_token", "kept_tokens", "num_kept", "num_accepted", "total_kept", "accepted_path",
         "predicts", "accept_index")


def one_hot(*ids):
    return (np.eye(V) * 50)[list(ids)].astype(np.float32)


class SlotOutputTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=V, max_batch=4, max_sequences=6,
                                   max_draft=3)
        self.addCleanup(self.engine.close)

    def open(self, **arguments):
        return self.engine.open(specd.SamplingParams(temperature=0, max_tokens=100), **arguments)

    def test_every_output_after_a_round(self):
        outputs = {name: self.engine.slot_output(name) for name in NAMES}
        widths = {"kept_tokens": 4, "accepted_path": 3, "predicts": 4, "accept_index": 4}
        for name, array in outputs.items():
            self.assertEqual(array.shape, (6, widths[name]) if name in widths else (6,))
            self.assertEqual(array.dtype, np.int32)
            array[:] = -9
        self.open()
        sequence = self.open(output_ids=[5, 5])
        (result,) = self.engine.verify(one_hot(1, 2, 3, 4), {sequence: [1, 2, 7]})
        self.assertEqual(result.tokens.tolist(), [1, 2, 3])
        slot = sequence.slot
        self.assertEqual(slot, 1)
        self.assertEqual({name: array[slot].tolist() for name, array in outputs.items()}, {
            "next_token": 3, "kept_tokens": [1, 2, 3, -1], "num_kept": 3, "num_accepted": 2,
            "total_kept": 5, "accepted_path": [0, 1, -1], "predicts": [1, 2, 3, -1],
            "accept_index": [4, 5, 6, -1]})
        self.assertEqual(result.total_kept, 5)
        # SGLang: the new tokens are those that the index names.
        self.assertEqual(outputs["predicts"].reshape(-1)[outputs["accept_index"][slot, :3]].tolist(),
                         [1, 2, 3])
        for array in outputs.values():
            self.assertTrue((np.delete(array, slot, axis=0) == -9).all())

    def test_a_model_that_sees_only_slot_outputs_goes_on_as_one_that_sees_results(self):
        kept, num_kept, total = (self.engine.slot_output(name, dtype="int64")
                                 for name in ("kept_tokens", "num_kept", "total_kept"))
        self.assertEqual(kept.dtype, np.int64)
        # Token p of the text is text[p]; the drafter is wrong at every third position.
        text = [1 + 3 * p * p % 7 for p in range(80)]
        sequences = [self.open() for _ in range(3)]
        total[:], expected = 0, {sequence: [] for sequence in sequences}
        for _ in range(12):
            drafts, rows = {}, []
            for sequence in sequences:
                at = int(total[sequence.slot])
                drafts[sequence] = [text[p] if p % 3 else 0 for p in range(at, at + 2)]
                rows.append(one_hot(*text[at:at + 3]))
            for result in self.engine.verify(np.concatenate(rows), drafts):
                expected[result.sequence].extend(result.tokens.tolist())
            for sequence in sequences:
                count = int(num_kept[sequence.slot])
                row = kept[sequence.slot].tolist()
                self.assertEqual(expected[sequence][-count:] + [-1] * (4 - count), row)
                self.assertEqual(total[sequence.slot], len(expected[sequence]))
        for sequence in sequences:
            length = len(expected[sequence])
            self.assertGreater(length, 13)
            self.assertLess(length, 36)
            self.assertEqual(expected[sequence], text[:length])

    def test_rows_with_gaps_and_replicas(self):
        apart = self.engine.slot_output("kept_tokens", row_stride=7)
        self.assertEqual((apart.shape, apart.strides), ((6, 4), (28, 4)))
        copy = self.engine.slot_output("kept_tokens", dtype=np.int64, replica=7)
        sequence = self.open()
        self.engine.verify(one_hot(1, 2), {sequence: [1]})
        self.assertEqual(apart[sequence.slot].tolist(), [1, 2, -1, -1])
        self.assertEqual(copy[sequence.slot].tolist(), [1, 2, -1, -1])
        self.assertEqual(apart.base.reshape(-1)[4:7].tolist(), [0] * 3)
        # What a later call replaces is given back: sixteen regions are a session's limit.
        for _ in range(40):
            again = self.engine.slot_output("kept_tokens", replica=7)
        self.engine.verify(one_hot(6), {sequence: []})
        self.assertEqual(again[sequence.slot].tolist(), [6, -1, -1, -1])
        self.assertEqual(copy[sequence.slot].tolist(), [1, 2, -1, -1])

    def test_wrong_arguments_are_refused_by_name(self):
        for arguments, field in (
                (dict(name="kept"), "name"), (dict(name="num_kept", dtype="float32"), "dtype"),
                (dict(name="num_kept", dtype=np.int16), "dtype"),
                (dict(name="num_kept", replica=8), "replica"),
                (dict(name="num_kept", row_stride=2), "row_stride"),
                (dict(name="predicts", row_stride=5), "row_stride"),
                (dict(name="kept_tokens", row_stride=3), "row_stride"),
                (dict(name="kept_tokens", row_stride=-1), "row_stride"),
                (dict(name="total_kept", address=64), "embedded:cuda")):
            with self.subTest(arguments), self.assertRaises(specd.Error) as caught:
                self.engine.slot_output(**arguments)
            self.assertIn(field, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
