"""Tensors of torch itself, in every dtype that it has: rows, ids, masks, and the arrays of a batch.

dlpack_test.py stands in for torch, so it cannot see what torch's own export refuses: torch 1 refused
tensors of bool.
"""

import contextlib
import unittest

import torch

import specd
from door_case import V, DoorCase, one_hot

READ = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8)
REFUSED = (torch.bool, torch.complex64, torch.qint8)


class TorchTensorsTest(DoorCase):
    def kept(self, rows, ids=(), **rest):
        """The tokens of one round of a greedy sequence."""
        with contextlib.closing(self.open(temperature=0)) as sequence:
            return self.tokens(rows, {sequence: ids}, **rest)[0]

    def test_rows_of_every_dtype(self):
        for dtype in READ:
            rows = torch.from_numpy(one_hot(1, 2, 3)).to(dtype)
            for tensor in (rows, rows.t().contiguous().t(), torch.stack([rows, rows], 1)[:, 1]):
                with self.subTest(dtype=dtype, strides=tensor.stride()):
                    self.assertEqual(self.kept(tensor, [1, 2]), [1, 2, 3])

    def test_rows_with_gradients_of_every_dtype(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            rows = torch.from_numpy(one_hot(1, 2, 3)).to(dtype)
            leaf = rows.clone().requires_grad_()
            for tensor in (leaf, leaf * 2, torch.nn.Parameter(rows)):
                with self.subTest(dtype=dtype, is_leaf=tensor.is_leaf):
                    self.assertTrue(tensor.requires_grad)
                    self.assertEqual(self.kept(tensor, [1, 2]), [1, 2, 3])
        with torch.inference_mode():
            self.assertEqual(self.kept(torch.from_numpy(one_hot(4)) * 2), [4])

    def test_a_mask_of_bool_forbids_what_it_forbids(self):
        allowed = torch.ones(3, V, dtype=torch.bool)
        allowed[1, 2] = False
        wide = torch.ones(3, 2 * V, dtype=torch.bool)
        wide[:, ::2] = allowed
        for mask in (allowed, wide[:, ::2]):
            self.assertEqual(self.kept(torch.from_numpy(one_hot(1, 2, 3)), torch.tensor([1, 2]),
                                       masks=[mask]), [1, 0])

    def test_flags_of_a_batch_are_tensors_of_bool(self):
        sequences = torch.from_numpy(self.engine.open_batch(2).sequences.view("int64"))
        found = self.engine.verify_batch(torch.from_numpy(one_hot(4, 5)), sequences,
                                         discard=torch.tensor([True, False]))
        self.assertEqual(found.tokens[:, 0].tolist(), [-1, 5])
        found = self.engine.verify_batch(torch.from_numpy(one_hot(6, 7)), sequences,
                                         discard=torch.tensor([False, False]))
        self.assertEqual(found.tokens.tolist(), [[6], [7]])

    def test_what_a_round_gives_back_becomes_a_tensor(self):
        sequences = self.engine.open_batch(2).sequences
        found = self.engine.verify_batch(torch.from_numpy(one_hot(1, 2, 3, 4)), sequences,
                                         torch.tensor([[1], [3]]))
        self.assertEqual(torch.from_numpy(found.tokens).tolist(), [[1, 2], [3, 4]])

    def test_rows_that_are_no_logits_are_refused(self):
        for dtype in REFUSED:
            if dtype == torch.qint8:
                rows = torch.quantize_per_tensor(torch.zeros(1, V), 0.1, 0, dtype)
            else:
                rows = torch.zeros(1, V, dtype=dtype)
            with self.subTest(dtype), self.assertRaises(specd.Error) as caught:
                self.kept(rows)
            self.assertRegex(str(caught.exception), "rows: .*(not one of float32|convert it to float32|cannot be exported)")


if __name__ == "__main__":
    unittest.main()
