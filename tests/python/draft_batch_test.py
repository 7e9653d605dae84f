"""Draft tokens of many sequences as arrays, against sample_draft with the same seeds, bit for bit.

SPECD_TEST_URI names a daemon; without it the engines are embedded.
"""

import unittest

import numpy as np

import specd
import tensors
from batch_case import B, BatchCase
from door_case import V, one_hot

SAMPLINGS = ("with_replacement", "without_replacement", "top_k", "mixed")


class DraftBatchTest(BatchCase):
    def open_all(self, engine, **fields):
        return [engine.open(specd.SamplingParams(temperature=0.7, seed=70 + i, **fields))
                for i in range(B)]

    def assert_same(self, found, wanted):
        self.assertEqual(len(found), len(wanted))
        for i, each in enumerate(wanted):
            count = len(each.ids)
            self.assertEqual(found.status_names[i], each.status)
            self.assertEqual(found.detail_text(i), each.detail)
            self.assertEqual(found.num_children[i], count)
            for name in ("ids", "counts", "weights", "masses", "sampled"):
                mine, theirs = getattr(found, name)[i], getattr(each, name)
                self.assertEqual(mine.dtype, theirs.dtype)
                self.assertEqual(mine[:count].tobytes(), theirs.tobytes(), name)
            self.assertEqual(found.q[i, :count].tobytes(), each.q.tobytes())
            self.assertTrue((found.ids[i, count:] == -1).all())
            self.assertTrue((found.q[i, count:] == 0).all())

    def test_arrays_draw_what_objects_draw(self):
        rng = np.random.default_rng(3)
        # Penalties count the tokens of the prefix.
        sequences = self.open_all(self.engine, draft_edits=True, frequency_penalty=1.5)
        handles = np.array([sequence.handle for sequence in sequences], np.uint64)
        drawn = set()
        for sampling in SAMPLINGS:
            for repeat in range(6):
                lengths = rng.integers(0, 3, B)
                prefixes = [rng.integers(0, V, length).tolist() for length in lengths]
                num_children = rng.integers(1, 5, B)
                first_nodes = rng.integers(0, 9, B)
                named = rng.permutation(B + 2)[:B]
                rows = rng.normal(size=(B + 2, V)).astype(np.float32)
                wanted = self.engine.sample_draft(rows, [
                    specd.DraftRequest(sequence, prefix, int(count), sampling, int(row), int(node))
                    for sequence, prefix, count, row, node in
                    zip(sequences, prefixes, num_children, named, first_nodes)])
                found = self.engine.sample_draft_batch(
                    rows, handles, np.concatenate([np.array(each, np.int32) for each in prefixes]),
                    np.concatenate([[0], np.cumsum(lengths)]), sampling=sampling,
                    num_children=num_children, draft_rows=named, first_nodes=first_nodes)
                self.assert_same(found, wanted)
                self.assertEqual(found.sequences.tolist(), handles.tolist())
                drawn.update(found.ids[:, 0].tolist())
        self.assertEqual(drawn, set(range(V)))

    def test_without_arrays_the_first_token_is_drawn_in_the_order_of_rows(self):
        sequences = self.open_all(self.engine)
        handles = [sequence.handle for sequence in sequences]
        rows = self.engine.rows(B, "draft")
        rows[:] = np.random.default_rng(5).normal(size=(B, V))
        wanted = self.engine.sample_draft(rows, sequences)
        for given in (rows, None, np.array(rows), tensors.Tensor(np.array(rows))):
            self.assert_same(self.engine.sample_draft_batch(given, handles), wanted)
        wanted = self.engine.sample_draft(rows, [specd.DraftRequest(sequence, [3, 1])
                                                 for sequence in sequences])
        found = self.engine.sample_draft_batch(rows, handles, [[3, 1]] * B)
        self.assert_same(found, wanted)

    def test_masks(self):
        rng = np.random.default_rng(7)
        sequences = self.open_all(self.engine, draft_edits=True)
        handles = [sequence.handle for sequence in sequences]
        rows = rng.normal(size=(B, V)).astype(np.float32)
        masks = rng.integers(0, 2, (B, V)).astype(bool)
        masks[:, 2] = True
        wanted = self.engine.sample_draft(rows, sequences, masks=list(masks))
        self.assert_same(self.engine.sample_draft_batch(rows, handles, masks=masks), wanted)
        self.assert_same(
            self.engine.sample_draft_batch(rows, handles, masks=specd.pack_mask(masks)), wanted)
        self.assert_same(self.engine.sample_draft_batch(
            rows, handles, masks=masks[::-1], mask_rows=np.arange(B)[::-1]), wanted)
        shared = self.engine.rows(B, "mask")
        shared[:] = specd.pack_mask(masks)
        self.assert_same(self.engine.sample_draft_batch(rows, handles, masks=shared), wanted)
        wanted = self.engine.sample_draft(rows, sequences, masks=[None, *masks[1:]])
        self.assert_same(self.engine.sample_draft_batch(
            rows, handles, masks=masks, mask_rows=[-1, *range(1, B)]), wanted)

    def test_a_draft_goes_into_a_batch(self):
        sequences = self.open_all(self.engine, verify="token")
        handles = [sequence.handle for sequence in sequences]
        q, rows = one_hot(*range(B)), one_hot(*np.repeat(range(B), 2))
        drawn = self.engine.sample_draft_batch(q, handles)
        found = self.engine.verify_batch(rows, handles, drawn.ids, q=q, weights=drawn.weights[:, 0],
                                         masses=drawn.masses[:, 0], sampled=drawn.sampled[:, 0])
        self.assertEqual(found.tokens[:, 0].tolist(), list(range(B)))
        self.assertEqual(found.num_accepted.tolist(), [1] * B)

    def test_bad_rows_and_finished_sequences(self):
        running, ended = (self.engine.open(specd.SamplingParams(temperature=1, max_tokens=2, seed=i))
                          for i in range(2))
        self.engine.verify(one_hot(1, 1), {ended: [1]})
        handles = [running.handle, ended.handle, running.handle]
        rows = one_hot(1, 2, 3)
        rows[2] = np.nan
        with self.assertRaises(specd.RoundError) as caught:
            self.engine.sample_draft_batch(rows, handles)
        self.assertIn("sequences[2] of 3 is bad_distribution", str(caught.exception))
        found = self.engine.sample_draft_batch(rows, handles, strict=False)
        self.assert_same(found, self.engine.sample_draft(rows, [running, ended, running], strict=False))
        self.assertEqual(found.status_names.tolist(), ["ok", "finished", "bad_distribution"])
        self.assertEqual(found.num_children.tolist(), [1, 0, 0])
        self.assertEqual(caught.exception.results.ids.tolist(), found.ids.tolist())

    def test_masks_of_an_earlier_call_have_no_names(self):
        sequences = self.open_all(self.engine, draft_edits=True)
        handles = np.array([sequence.handle for sequence in sequences], np.uint64)
        rows = np.zeros((B, V), np.float32)
        masks = np.zeros((B, (V + 31) // 32), np.uint32)
        masks[:, 0] = 1 << (np.arange(B) % min(V, 32))
        found = self.engine.sample_draft_batch(rows, handles, masks=masks)
        self.assertEqual(found.ids[:, 0].tolist(), [i % min(V, 32) for i in range(B)])
        with self.assertRaisesRegex(specd.Error, r"engine.rows\(n, 'mask'\), and there are none"):
            self.engine.sample_draft_batch(rows, handles, mask_rows=[3] * B)

    def test_what_does_not_fit_is_refused_by_name(self):
        sequences = self.open_all(self.engine)
        handles = np.array([sequence.handle for sequence in sequences], np.uint64)
        rows = np.zeros((B, V), np.float32)
        for given, text in (
                ({"sequences": handles.reshape(2, 3)}, "sequences: an array of 2 dimensions"),
                ({"sequences": handles.astype(float)}, "sequences: float64 where integers"),
                ({"rows": rows[1:]}, "rows: 5 where 6 are needed: one for each request"),
                ({"rows": rows[:, 1:]}, "rows: rows of 7 elements, and vocab_size is 8"),
                ({"prefixes": np.zeros((B, 1))}, "prefixes: float64 where integers"),
                ({"prefixes": [1, 2]}, "prefix_offsets: they are needed"),
                ({"prefixes": [[1], [1, 2]]}, "prefixes: lists of different lengths"),
                ({"prefix_offsets": [0] * 7}, "prefixes: prefix_offsets are given without them"),
                ({"prefixes": [1], "prefix_offsets": [0] * 6 + [2]}, "prefix_offsets: they go from 0 to 1"),
                ({"prefixes": [1], "prefix_offsets": [0, 1]}, "prefix_offsets: .* where 7 are needed"),
                ({"num_children": [1, 2]}, "num_children: .* where 6 are needed"),
                ({"num_children": 1.5}, "num_children: 1.5 is not an integer"),
                ({"num_children": [-1] * B}, "num_children: -1 does not fit: 0 .. 4294967295"),
                ({"num_children": 65}, "num_children"),
                ({"draft_rows": [0]}, "draft_rows: .* where 6 are needed"),
                ({"draft_rows": [0.5] * B}, "draft_rows: float64 where integers"),
                ({"draft_rows": [B] * B}, "row"),
                ({"first_nodes": [[0]] * B}, "first_nodes: .* where 6 are needed"),
                ({"mask_rows": [0] * 5}, "mask_rows: .* where 6 are needed"),
                ({"masks": np.ones((B, V - 1), bool)}, "masks: .* where 6 rows of 8 booleans"),
                ({"rows": rows[:0], "sequences": []}, "num_requests = 0 is outside 1 .. 6"),
                ({"sampling": "best"}, "sampling: 'best' is not one of with_replacement"),
                ({"prefix": [1]}, "prefix: sample_draft_batch has no such array"),
        ):
            with self.subTest(text), self.assertRaisesRegex(specd.Error, text):
                arguments = {"rows": rows, "sequences": handles, **given}
                self.engine.sample_draft_batch(**arguments)
        self.assertEqual(self.engine.sample_draft_batch(rows, handles).num_children.tolist(), [1] * B)


if __name__ == "__main__":
    unittest.main()
