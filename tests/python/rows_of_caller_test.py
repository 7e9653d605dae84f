"""Rows of the caller: views of engine.rows are read in place, and no array of the caller is written.

Bugs that this would catch: verify(R[2:4], ...) copied over R[0:2]; another array
was copied onto the array from engine.rows; floats that were written into bfloat16 rows stored bit
patterns.
"""

import os
import pickle
import unittest

import numpy as np

import specd

V = 8
URI = os.environ.get("SPECD_TEST_URI", "embedded:cpu")


def one_hot(*ids):
    """Rows that leave no doubt."""
    return (np.eye(V) * 50)[list(ids)].astype(np.float32)


class CallersRowsTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine(URI, vocab_size=V, max_batch=4, max_sequences=64, max_draft=3)
        self.addCleanup(self.engine.close)

    def tokens(self, rows, drafts, **rest):
        """The tokens of one round, for drafts by ids, each of a new sequence."""
        drafts = [specd.Draft(self.open(), **draft) if isinstance(draft, dict) else
                  specd.Draft(self.open(), draft) for draft in drafts]
        return [result.tokens.tolist() for result in self.engine.verify(rows, drafts, **rest)]

    def open(self, **fields):
        return self.engine.open(specd.SamplingParams(**{"seed": 1, "temperature": 0, **fields}))

    def test_views_are_read_in_place_at_every_offset_and_stride(self):
        for dtype in ("float32", "float16", "bfloat16"):
            rows = self.engine.rows(6, dtype=dtype, row_stride=V + 3)
            rows[:] = one_hot(0, 1, 2, 3, 4, 5)
            before = np.array(rows.view(np.ndarray))
            for view, drafts, wanted in (
                (rows[2:4], [[2]], [[2, 3]]),
                (rows[::2], [[0], []], [[0, 2], [4]]),
                (rows[3::-1], [[3, 2, 1]], [[3, 2, 1, 0]]),
                (rows[5], [[]], [[5]]),
                ([rows[4:], rows[1:2]], [[4], []], [[4, 5], [1]]),
                (rows[1:4], [{"tokens": [3], "target_rows": [2, 0]}], [[3, 1]]),
            ):
                with self.subTest(dtype, wanted=wanted):
                    self.assertEqual(self.tokens(view, drafts), wanted)
                    np.testing.assert_array_equal(rows.view(np.ndarray), before)
                    # In place: what is written through the whole array is read by the next round.
                    self.assertIs(self.engine._spaces["target"].copies.buffer, None)

    def test_a_view_with_another_grid_becomes_a_tensor_of_its_own(self):
        rows = self.engine.rows(4, row_stride=2 * V)
        buffer = rows.base if rows.base.ndim == 1 else rows.base.base
        flat = np.frombuffer(buffer, np.float32, 4 * 2 * V)
        flat[:] = 0
        halves = flat[3:3 + 5 * V].reshape(5, V)  # another offset, half the stride
        halves[:] = one_hot(1, 2, 3, 4, 5)
        self.assertEqual(self.tokens(halves[1:4], [[2, 3]]), [[2, 3, 4]])
        self.assertIs(self.engine._spaces["target"].copies.buffer, None)
        rows[:] = one_hot(6, 6, 6, 6)
        self.assertEqual(self.tokens(None, [[]]), [[6]])
        self.assertEqual(self.tokens(rows, [[6]]), [[6, 6]])

    def test_a_view_of_the_whole_array_has_a_dtype_of_its_own(self):
        # Bug: the bits of bfloat16 were read as the float16 of engine.rows. 1.5 is 0x3FC0 in bfloat16,
        # which is 1.9375 in float16 (IEEE 754).
        rows = self.engine.rows(2, dtype="float16")
        view = rows.view(np.uint16).view(specd.BFloat16)

        def values(given):
            scores = self.engine.score(given, [3, 5], mode="raw_logits")
            return scores.values["value"][:, 0].tolist()

        view[:] = 1.5
        self.assertEqual(values(view), [1.5, 1.5])
        self.assertEqual(values(rows), [1.9375, 1.9375])
        self.assertIs(self.engine._spaces["target"].copies.buffer, None)

    def test_other_arrays_go_to_memory_of_their_own(self):
        rows = self.engine.rows(4)
        rows[:] = one_hot(1, 2, 3, 4)
        before = rows.copy()
        backwards = rows[:, ::-1]  # no tensor has its elements in this order
        for given, wanted in ((one_hot(5, 6), [[5, 6]]), (backwards[:2], [[6, 5]]),
                              (rows[:2].astype(np.float64), [[1, 2]])):
            first = wanted[0][0]
            self.assertEqual(self.tokens(given, [[first]]), wanted)
            np.testing.assert_array_equal(rows, before)
        self.assertEqual(self.tokens(None, [[1]]), [[1, 2]])  # the caller's rows again
        q = self.engine.rows(2, "draft")
        q[:] = one_hot(1, 2)
        self.assertEqual(self.tokens(one_hot(3, 3), [[3]], q=one_hot(3)), [[3, 3]])
        np.testing.assert_array_equal(q, one_hot(1, 2))
        self.assertEqual(self.tokens(rows, [{"tokens": [1], "draft_rows": [0]}]), [[1, 2]])

    def test_names_are_of_the_rows_that_the_call_gets(self):
        self.tokens(one_hot(1, 2, 3, 4), [[1, 2, 3]])  # leaves rows behind those of the next call
        draft = specd.Draft(self.open(), [7], target_rows=[0, 2])
        result, = self.engine.verify(one_hot(7, 6), [draft], strict=False)
        self.assertEqual(result.status, "invalid")
        self.assertIn("target_rows", result.detail)

    def test_masks_and_requests(self):
        masks = self.engine.rows(4, "mask")
        masks[:] = specd.pack_mask(np.eye(V, dtype=bool)[[1, 2, 3, 4]])
        before = masks.copy()
        rows = np.zeros((2, V), np.float32)
        self.assertEqual(self.tokens(rows, [[3]], masks=masks[2:]), [[3, 4]])
        self.assertEqual(self.tokens(rows, [[6]], masks=[np.eye(V, dtype=bool)[[6, 7]]]), [[6, 7]])
        np.testing.assert_array_equal(masks, before)
        self.assertEqual(self.tokens(rows, [{"tokens": [2], "mask_rows": [1, -1]}]), [[2, 0]])
        # Names are those of engine.rows, after copies too, if the call gives no mask.
        self.assertEqual(self.tokens(rows, [[6]], masks=[np.eye(V, dtype=bool)[[6, 7]]]), [[6, 7]])
        self.assertEqual(self.tokens(rows[:1], [{"mask_rows": [3]}], masks=[None]), [[4]])
        q = self.engine.rows(3, "draft")
        q[:] = one_hot(4, 5, 6)
        request = specd.DraftRequest(self.open(verify="token", temperature=1), row=1)
        child, = self.engine.sample_draft(q[1:], [request])
        self.assertEqual(child.ids.tolist(), [6])
        self.assertEqual(self.engine.score(q[2:], [6]).values["rank"][0, 0], 1)

    def test_rows_of_many_sizes_do_not_use_up_the_regions(self):
        for count in (1, 3, 9, 40, 200, 1000, 4000):
            rows = self.engine.rows(count)
            rows[:] = one_hot(6)
            self.assertEqual(self.engine.score(one_hot(*[5] * count), [5] * count).statuses,
                             ["ok"] * count)
            np.testing.assert_array_equal(rows, np.broadcast_to(one_hot(6), rows.shape))


class BFloat16Test(unittest.TestCase):
    """Numbers go in and come out; 1.0 is 0x3F80, -2.5 is 0xC020 (IEEE 754, upper half of fp32)."""

    def setUp(self):
        self.rows = specd.bfloat16(np.zeros((2, 3), np.float32))

    def words(self):
        return self.rows.view(np.uint16).tolist()

    def test_what_is_written_is_converted(self):
        self.rows[0] = [1.0, -2.5, 1]
        self.rows[1, 2] = np.float64(-2.5)
        self.assertEqual(self.words(), [[0x3F80, 0xC020, 0x3F80], [0, 0, 0xC020]])
        np.copyto(self.rows, np.full((2, 3), -2.5))
        self.assertEqual(self.words(), [[0xC020] * 3] * 2)
        np.multiply(np.ones((2, 3), np.float32), 2.0, out=self.rows)
        self.rows += 1.0
        self.assertEqual(self.rows.tolist(), [[3.0] * 3] * 2)
        np.copyto(src=np.float32([[7], [8]]), dst=self.rows)
        self.assertEqual(self.rows.tolist(), [[7.0] * 3, [8.0] * 3])
        self.rows.fill(1)
        self.rows[1] = specd.bfloat16(np.float32([4, 5, 6]))
        self.rows[:, 0] = np.array([0x4040], np.uint16).view(specd.BFloat16)  # 3.0
        self.assertEqual(self.rows.tolist(), [[3, 1, 1], [3, 5, 6]])

    def test_what_is_read_is_a_number(self):
        self.rows[:] = [[1, -2.5, 0.5], [-1, -3, -0.5]]
        self.assertEqual(self.rows[0, 1], np.float32(-2.5))
        self.assertEqual((self.rows * 2)[1].tolist(), [-2, -6, -1])
        self.assertEqual(self.rows.argmax(axis=1).tolist(), [0, 2])
        self.assertEqual(self.rows.max(), 1)
        self.assertEqual(self.rows.astype(np.float64)[0].tolist(), [1, -2.5, 0.5])
        self.assertEqual(np.where(self.rows > 0, self.rows, 0).sum(), 1.5)
        self.assertEqual((self.rows == -2.5).sum(), 1)
        self.assertIn("-2.5", repr(self.rows))
        self.assertIsInstance(self.rows[1:], specd.BFloat16)
        again = pickle.loads(pickle.dumps(self.rows[:, 1:]))
        self.assertIsInstance(again, specd.BFloat16)
        self.assertEqual(again.tolist(), [[-2.5, 0.5], [-3, -0.5]])
        floats = np.zeros((2, 3), np.float32)
        floats[:] = self.rows.floats()
        self.assertEqual(floats.tolist(), self.rows.tolist())

    def test_what_is_no_number_is_refused(self):
        for write in (lambda: self.rows.__setitem__(0, np.array([1, 2, 3], np.uint16)),
                      lambda: self.rows.__setitem__(0, "text"),
                      lambda: self.rows.put([0], [1.0]), lambda: np.put(self.rows, [0], [1.0]),
                      lambda: np.add.at(self.rows, 0, 1.0), lambda: self.rows.sort(),
                      lambda: np.zeros((2, 2), np.float32).view(specd.BFloat16)):
            with self.assertRaises(specd.Error):
                write()
        self.assertEqual(self.words(), [[0] * 3] * 2)


if __name__ == "__main__":
    unittest.main()
