"""Drafts with parents, and the path of a result. The header says what is refused, and in which words
the library does."""

import os
import unittest

import numpy as np

import specd

V = 8
URI = os.environ.get("SPECD_TEST_URI", "embedded:cpu")  # tests/process/attached_test.py has a daemon


def one_hot(*ids):
    """Rows that leave no doubt."""
    return (np.eye(V) * 50)[list(ids)]


class ParentsTest(unittest.TestCase):
    def setUp(self):
        self.engine = self.attach()

    def attach(self, **options):
        engine = specd.Engine(URI, vocab_size=V, max_draft=3, **options)
        self.addCleanup(engine.close)
        self.sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=None))
        return engine

    def verify(self, tokens, **fields):
        """Of a target that wants 1, 2, 3, 4, one after another."""
        draft = specd.Draft(self.sequence, tokens, **fields)
        result, = self.engine.verify(one_hot(1, 2, 3, 4)[:len(tokens) + 1], [draft], strict=False)
        return result

    def test_the_path_of_a_chain_is_the_accepted_tokens_in_order(self):
        for tokens, path in (([], []), ([7], []), ([1, 7, 3], [0]), ([1, 2, 7], [0, 1]),
                             ([1, 2, 3], [0, 1, 2])):
            result = self.verify(tokens)
            self.assertEqual((result.path.tolist(), result.path.dtype), (path, np.int32))
            self.assertEqual(result.num_accepted, len(path))

    def test_a_path_is_still_there_after_the_next_round(self):
        first, _ = self.verify([1, 2, 3]), self.verify([7])
        self.assertEqual(first.path.tolist(), [0, 1, 2])

    def test_parents_may_spell_a_chain(self):
        for parents in ([-1, 0, 1], np.array([-1, 0, 1]), (-1, 0, 1)):
            result = self.verify([1, 2, 7], parents=parents)
            self.assertEqual((result.status, result.tokens.tolist()), ("ok", [1, 2, 3]))
            self.assertEqual(result.path.tolist(), [0, 1])
        self.assertEqual(self.verify([], parents=[]).tokens.tolist(), [1])

    def test_what_is_no_chain_is_invalid_and_says_why(self):
        for parents, text in (
            ([-1, 0, 0], "parents: drafts that are trees"),
            ([-1, -1, 1], "parents: drafts that are trees"),
            ([0, 0, 1], "parents: a parent is neither"),
            ([-1, 2, 1], "parents: a parent is neither"),
            ([-1, 0, -2], "parents: a parent is neither"),
        ):
            result = self.verify([1, 2, 3], parents=parents)
            self.assertEqual((result.status, len(result.tokens), len(result.path)), ("invalid", 0, 0))
            self.assertIn(text, result.detail)
        result = self.verify([1, 2, 3])  # nothing had changed
        self.assertEqual((result.status, result.total_kept), ("ok", 4))

    def test_max_path_bounds_a_path_and_not_the_draft(self):
        self.engine = self.attach(max_path=2)
        self.assertEqual(self.verify([1, 2]).path.tolist(), [0, 1])
        for parents in (None, [-1, 0, 1]):
            result = self.verify([1, 2, 3], parents=parents)
            self.assertEqual(result.status, "invalid")
            self.assertIn("max_path", result.detail)
        self.assertIn("trees", self.verify([1, 2, 3], parents=[-1, 0, 0]).detail)

    def test_draft_tokens_by_slot_have_parents_too(self):
        self.engine.draft_tokens()[self.sequence.slot] = [1, 2, 7]
        for parents, status in (([-1, 0, 1], "ok"), ([-1, 0, 0], "invalid")):
            draft = specd.Draft(self.sequence, by_slot=3, parents=parents)
            result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft], strict=False)
            self.assertEqual(result.status, status)

    def test_parents_and_max_path_are_refused_where_they_cannot_be_meant(self):
        for make, name in (
            (lambda: self.verify([1, 2], parents=[-1]), "parents"),
            (lambda: self.verify([1, 2], parents=[-1, 0.5]), "parents"),
            (lambda: self.verify([1, 2], parents=[-1, 2**32]), "parents"),
            (lambda: self.attach(max_path=4), "max_path"),
            (lambda: self.attach(max_path=-1), "max_path"),
        ):
            with self.assertRaisesRegex(specd.Error, f"^{name}"):
                make()


if __name__ == "__main__":
    unittest.main()
