"""Tensors of other packages as rows, ids and masks: every dtype, strides, gradients, devices.

Bugs that this would catch: a bfloat16 tensor, and one with requires_grad, could not be
given at all.
"""

import gc
import unittest

import numpy as np

import specd
from door_case import V, DoorCase, one_hot
from tensors import (BFLOAT, CUDA, FLOAT8_E4M3FN, METAL, Tensor, WithGradient, bfloat16_words,
                     num_exports)

ROWS = one_hot(1, 2, 3)


class DlpackTest(DoorCase):
    def refused(self, make, *texts):
        with self.assertRaises(specd.Error) as caught:
            make()
        for text in texts:
            self.assertIn(text, str(caught.exception))
        return caught.exception

    def test_rows_of_every_dtype(self):
        words = bfloat16_words(ROWS)
        for tensor in (Tensor(ROWS), Tensor(ROWS.astype(np.float16)), Tensor(ROWS.astype(np.float64)),
                       Tensor(ROWS.astype(np.int64)), Tensor(words, (BFLOAT, 16)),
                       Tensor(ROWS, is_old=True), Tensor(words, (BFLOAT, 16), is_old=True),
                       Tensor(ROWS, dense=True), WithGradient(ROWS),
                       WithGradient(words, (BFLOAT, 16))):
            with self.subTest(tensor.dtype):
                self.assertEqual(self.tokens(tensor, {self.open(): [1, 2]}), [[1, 2, 3]])

    def test_rows_with_strides(self):
        wide = np.zeros((6, 2 * V), np.float32)
        wide[::2, :V] = ROWS
        backwards = np.ascontiguousarray(ROWS[::-1, ::-1])
        for array in (wide[::2, :V], np.asfortranarray(ROWS), backwards[::-1, ::-1]):
            self.assertEqual(self.tokens(Tensor(array), {self.open(): [1, 2]}), [[1, 2, 3]])
        words = np.asfortranarray(bfloat16_words(ROWS))
        self.assertEqual(self.tokens(Tensor(words, (BFLOAT, 16)), {self.open(): [1, 2]}),
                         [[1, 2, 3]])
        one = Tensor(ROWS[0])  # a row by itself
        self.assertEqual(self.tokens(one, {self.open(): []}), [[1]])

    def test_a_list_has_a_tensor_for_each_draft(self):
        rows = [Tensor(one_hot(1, 2)), Tensor(one_hot(5))]
        self.assertEqual(self.tokens(rows, {self.open(): [1], self.open(): []}), [[1, 2], [5]])

    def test_a_tensor_over_the_rows_of_the_engine_is_read_in_place(self):
        for dtype, kind in (("float32", None), ("bfloat16", (BFLOAT, 16))):
            rows = self.engine.rows(3, dtype=dtype)
            tensor = Tensor(rows.view(np.ndarray), kind)
            rows[:] = ROWS
            sequence = self.open()
            self.assertEqual(self.tokens(tensor, {sequence: [1, 2]}), [[1, 2, 3]])
            self.assertIsNone(self.engine._spaces["target"].copies.buffer)
            rows[0] = one_hot(6)[0]
            self.assertEqual(self.tokens(Tensor(rows.view(np.ndarray)[:1], kind), {sequence: []}),
                             [[6]])

    def test_ids_masks_and_shares_may_be_tensors(self):
        sequence = self.open(temperature=0)
        ids = Tensor(np.array([1, 2]))  # int64, as torch has them
        self.assertEqual(self.tokens(ROWS, {sequence: ids}), [[1, 2, 3]])
        allowed = np.ones((3, V), bool)
        allowed[1, 2] = False
        self.assertEqual(self.tokens(ROWS, {sequence: ids}, masks=[Tensor(allowed)]), [[1, 0]])
        drafts = [specd.Draft(sequence, ids, target_rows=Tensor(np.array([2, 1, 0], np.int32)))]
        self.assertEqual(self.tokens(one_hot(3, 2, 1), drafts), [[1, 2, 3]])
        drawn = self.open(verify="token")
        drafts = [specd.Draft(drawn, [1], weights=Tensor(np.ones(1, np.float32)),
                              masses=Tensor(np.ones(1)))]
        self.assertEqual(self.tokens(one_hot(1, 2), drafts, q=Tensor(one_hot(1))), [[1, 2]])
        scores = self.engine.score(Tensor(ROWS), Tensor(np.array([1, 2, 3])), num_top=1)
        self.assertEqual(scores.values["id"].tolist(), [[1, 1], [2, 2], [3, 3]])
        prompted = self.engine.open(specd.SamplingParams(), prompt_ids=Tensor(np.array([3, 1])))
        self.assertEqual(prompted.state().finish_reason, None)

    def test_arrays_of_a_batch_may_be_tensors(self):
        opened = self.engine.open_batch(
            2, temperature=Tensor(np.zeros(2)), seeds=Tensor(np.array([5, 6])),
            prompt_ids=Tensor(np.array([3, 1, 4])), prompt_offsets=Tensor(np.array([0, 1, 3])))
        self.assertEqual(opened.seeds.tolist(), [5, 6])
        handles = Tensor(opened.sequences.view(np.int64))  # as torch has them
        words = bfloat16_words(one_hot(1, 2, 3, 4))
        found = self.engine.verify_batch(Tensor(words, (BFLOAT, 16)), handles,
                                         Tensor(np.array([[1], [3]])))
        self.assertEqual(found.tokens.tolist(), [[1, 2], [3, 4]])
        allowed = np.ones((3, V), bool)
        allowed[1, 6] = False
        found = self.engine.verify_batch(
            WithGradient(one_hot(5, 6, 7)), handles, Tensor(np.array([5])),
            Tensor(np.array([0, 1, 1], np.int32)), masks=Tensor(allowed),
            discard=Tensor(np.array([False, False])))
        self.assertEqual(found.tokens.tolist(), [[5, 0], [7, -1]])
        found = self.engine.verify_batch(
            None, handles, target_argmax=Tensor(np.array([2, 3])))
        self.assertEqual(found.tokens.tolist(), [[2], [3]])

    def test_shares_of_a_batch_in_bfloat16_are_numbers_and_not_words(self):
        # q(token) = 0.5 / 1, and p(token) = 1, so each coin accepts it. The word of 0.5 is 16128, which
        # is no weight of a mass of 1.
        sequences = self.engine.open_batch(1, verify=specd.SamplingParams.numbers["verify"].choices.index(
            "token")).sequences
        half = Tensor(bfloat16_words([0.5]), (BFLOAT, 16))
        found = self.engine.verify_batch(one_hot(1, 2), sequences, [[1]], q=one_hot(1),
                                         weights=half, masses=[1])
        self.assertEqual(found.tokens.tolist(), [[1, 2]])

    def test_what_a_batch_cannot_read_is_refused_by_name(self):
        sequences = self.engine.open_batch(2, temperature=0).sequences
        verify, array = self.engine.verify_batch, np.zeros(2, np.int64)
        far = Tensor(array, device=(CUDA, 3))
        for name, call in (
                ("sequences", lambda: verify(ROWS[:2], far)),
                ("tokens", lambda: verify(ROWS[:2], sequences, far, [0, 1, 2])),
                ("draft_offsets", lambda: verify(ROWS[:2], sequences, [1, 2], far)),
                ("by_slot", lambda: verify(ROWS[:2], sequences, by_slot=far)),
                ("masks", lambda: verify(ROWS[:2], sequences, masks=far)),
                ("seeds", lambda: self.engine.open_batch(2, seeds=far)),
                ("prompt_ids", lambda: self.engine.open_batch(2, prompt_ids=far)),
                ("top_p", lambda: self.engine.open_batch(2, top_p=far))):
            self.refused(call, f"{name}: a tensor on CUDA device 3", ".cpu()")
        self.refused(lambda: verify(ROWS[:2], Tensor(bfloat16_words([1, 2]), (BFLOAT, 16))),
                     "sequences", "bfloat16 where integers are needed")
        self.assertEqual(verify(ROWS[:2], sequences).total_kept.tolist(), [1, 1])

    def test_ops_take_them_too(self):
        words = bfloat16_words(ROWS)
        self.assertEqual(specd.argmax(Tensor(words, (BFLOAT, 16))).tolist(), [1, 2, 3])
        self.assertEqual(specd.argmax(WithGradient(ROWS[1])), 2)

    def test_what_cannot_be_read_is_refused_by_name(self):
        sequence = self.open()
        verify = self.engine.verify
        eighth = Tensor(np.zeros((1, V), np.uint8), (FLOAT8_E4M3FN, 8))
        self.refused(lambda: verify(eighth, {sequence: []}), "rows: ", "code 10 with 8 bits",
                     "convert it to float32")
        metal = Tensor(ROWS[:1], device=(METAL, 0))
        self.refused(lambda: verify(metal, {sequence: []}), "rows: ", "Metal device 0", ".cpu()")
        ids = Tensor(np.array([1]), device=(CUDA, 3))
        self.refused(lambda: verify(ROWS[:2], {sequence: ids}), "tokens", "CUDA device 3", ".cpu()")
        self.refused(lambda: verify([Tensor(ROWS[:1], device=(CUDA, 0))], {sequence: []}),
                     "rows: ", "CUDA device 0")
        self.refused(lambda: verify(ROWS[:2], {sequence: Tensor(bfloat16_words([1]), (BFLOAT, 16))}),
                     "tokens", "bfloat16 where integers are needed")
        result, = verify(ROWS[:1], {sequence: []})
        self.assertEqual((result.tokens.tolist(), result.total_kept), ([1], 1))

    def test_device_memory_is_refused_by_an_engine_whose_rounds_run_on_the_cpu(self):
        tensor = Tensor(ROWS[:1], device=(CUDA, 0))
        error = self.refused(lambda: self.engine.verify(tensor, {self.open(): []}))
        self.assertIn(error.code_name, ("SPECD_ERROR_UNSUPPORTED", "SPECD_ERROR_INVALID_ARGUMENT"))
        self.assertRegex(str(error), "CPU|driver|device")
        self.assertEqual(tensor.asked[0]["stream"], -1)  # nothing was synchronized for it

    def test_a_tensor_is_given_back(self):
        tensor = Tensor(ROWS)
        for _ in range(3):
            self.tokens(tensor, {self.open(): [1, 2]})
        gc.collect()
        self.assertEqual((num_exports(tensor), len(tensor.asked)), (0, 3))


if __name__ == "__main__":
    unittest.main()
