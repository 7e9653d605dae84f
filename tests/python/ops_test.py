"""The functions without an engine, with answers that are seen without computing."""

import unittest

import numpy as np

import specd

V = 8


class OpsTest(unittest.TestCase):
    def test_ops(self):
        p = np.array([[.5, .2, .1, .05, .05, .05, .025, .025], [0, 0, 1, 0, 0, 0, 0, 0]], np.float32)
        logits = np.log(p + 1e-38).astype(np.float32)
        np.testing.assert_allclose(specd.softmax(logits), p, atol=1e-6)
        np.testing.assert_allclose(specd.softmax(logits[0], 1e-3), np.eye(V)[0], atol=1e-6)
        np.testing.assert_allclose(specd.top_k_renorm(p, [2, 2], kind="probabilities")[0, :3],
                                   [5 / 7, 2 / 7, 0], rtol=1e-6)
        np.testing.assert_allclose(specd.top_p_renorm(logits, 0.6, indices=[1, 0])[1, :3],
                                   [5 / 7, 2 / 7, 0], rtol=1e-6)
        kept = np.isfinite(specd.top_k_mask(logits[0], 3)).tolist()
        self.assertEqual(kept, [True] * 3 + [False] * 5)
        self.assertEqual(specd.argmax(logits).tolist(), [0, 2])
        self.assertEqual(specd.sample(logits, seed=1, temperature=[0, 1]).tolist(), [0, 2])
        self.assertEqual(specd.argmax(np.full((1, V), np.nan)).tolist(), [-1])
        self.assertTrue(np.isnan(specd.softmax(np.full((1, V), np.nan))).all())


if __name__ == "__main__":
    unittest.main()
