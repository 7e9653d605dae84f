"""show and export name the step that made p of a rejected draft token 0. The expected ranks, masses
and probabilities come from numpy."""

import re
import unittest

import numpy as np

from replay_support import Traces, out
import specd  # replay_support knows the folder

VOCAB, END = 16, 15
LOGITS = 5 - 0.5 * np.arange(VOCAB)
P = np.exp(LOGITS) / np.exp(LOGITS).sum()


class ZeroCause(Traces):
    def record(self, name, level, draft, **params):
        with specd.Engine(vocab_size=VOCAB, max_batch=1, max_draft=1, eos_token_ids=[END],
                          trace=str(self.folder / name), trace_options=f"level={level}") as engine:
            made = specd.SamplingParams(seed=5, temperature=1.0, verify="token", **params)
            sequence = engine.open(made, request_id="r")
            engine.verify(np.tile(LOGITS, (2, 1)).astype(np.float32), {sequence: np.array([draft])})
        (path,) = (self.folder / name).glob("*.mcap")
        return path

    # Name, draft, parameters, step, sentence and its numbers.
    CASES = (
        ("k", 9, dict(top_k=4), 10, "top_k: its rank is {}, and {} ids stay", (10, 4)),
        ("p", 9, dict(top_p=0.5), 11,
         "top_p: the ids before it have mass {}, and top_p = {} is reached", (P[:9].sum(), 0.5)),
        ("both", 9, dict(top_k=4, top_p=0.5), 12, "top_k: its rank is {}, and {} ids stay", (10, 4)),
        ("both2", 2, dict(top_k=4, top_p=0.5), 12,
         "top_p: the ids before it have mass {}, and top_p = {} is reached",
         (P[:2].sum() / P[:4].sum(), 0.5)),
        ("min", 9, dict(min_p=0.5), 9,
         "min_p: before the filters p is {}, below min_p times the largest p = {}",
         (P[9], 0.5 * P[0])),
        ("end", END, dict(min_tokens=5), 6, "an end before min_tokens: {} of {} tokens are there",
         (0, 5)),
        ("list", 9, dict(allowed_token_ids=[0, 1, 2]), 4, "{} of {} ids are allowed here", (3, 16)),
    )

    def test_the_step_with_its_numbers(self):
        """13 of 21 rejections said only that the target never gives the token."""
        for name, draft, params, step, sentence, numbers in self.CASES:
            path = self.record(name, "rows", draft, **params)
            text = out("show", path, "1")
            found = re.search(sentence.replace("{}", "([0-9.]+)"), text)
            self.assertIsNotNone(found, (name, text))
            for number, want in zip(found.groups(), numbers):
                self.assertAlmostEqual(float(number), want, places=5, msg=name)
            npz = path.with_suffix(".npz")
            out("export", path, "-o", npz)
            with np.load(npz) as data:
                self.assertEqual(data["zero_step"][0], step, name)

    def test_without_rows_the_threshold_is_there(self):
        path = self.record("thin", "rounds", 9, top_k=4)
        self.assertIn("p is 0 by top_k: its rank is ?, and 4 ids stay", out("show", path, "1"))


if __name__ == "__main__":
    unittest.main()
