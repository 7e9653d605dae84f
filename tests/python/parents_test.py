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

    def test_the_path_of_a_tree_names_the_nodes_that_stand(self):
        # The target wants 1, 2, 3, one after another; a wrong token leads to rows that want 6.
        for tokens, parents, wanted, path, kept in (
            ([7, 1, 2], [-1, -1, 1], [1, 6, 2, 3], [1, 2], [1, 2, 3]),
            ([1, 5, 2], [-1, 0, 0], [1, 2, 6, 3], [0, 2], [1, 2, 3]),
            ([5, 7, 2], [-1, -1, 0], [1, 6, 6, 6], [], [1]),
            ([8, 1, 2], [-1, -1, 0], [1, 6, 2, 6], [1], [1, 2]),  # 8 is no id, and ends its branch
            ([-1, 1, 2], [-1, -1, 1], [1, 6, 2, 3], [1, 2], [1, 2, 3]),
        ):
            draft = specd.Draft(self.sequence, tokens, parents=parents)
            result, = self.engine.verify(one_hot(*wanted), [draft])
            self.assertEqual((result.path.tolist(), result.tokens.tolist()), (path, kept))

    def test_methods_of_trees_over_drawn_siblings(self):
        rows, q = one_hot(1, 6, 2, 3), one_hot(1, 2)  # a draft row for place 0 and for place 2
        for verify, method in (("auto", "tree"), ("tree", "tree"), ("traversal", "traversal"),
                               ("target_only", "target_only"), ("exact_match", "exact_match")):
            sequence = self.engine.open(specd.SamplingParams(verify=verify, max_tokens=None, seed=1))
            draft = specd.Draft(sequence, [7, 1, 2], parents=[-1, -1, 1], sampled=[0, 2, 2],
                                draft_rows=[0, 0, 1])
            result, = self.engine.verify(rows, [draft], q=q)
            self.assertEqual((result.verify, result.path.tolist(), result.tokens.tolist()),
                             (method, [1, 2], [1, 2, 3]))

    def test_a_side_channel_stands_in_for_draft_rows_until_a_child_is_rejected(self):
        rows, q = one_hot(1, 6, 2, 3), np.full((2, 8), np.nan, np.float32)
        for verify in ("tree", "traversal"):
            for weight, status in ((1.0, "ok"), (-1.0, "bad_distribution")):
                sequence = self.engine.open(specd.SamplingParams(verify=verify, max_tokens=None, seed=1))
                draft = specd.Draft(sequence, [7, 1, 2], parents=[-1, -1, 1], sampled=[0, 2, 2],
                                    draft_rows=[0, 0, 1], weights=[-1, weight, 1], masses=[0, 1, 1])
                result, = self.engine.verify(rows, [draft], q=q, strict=False)
                self.assertEqual(result.status, status)
                self.assertEqual(result.tokens.tolist(), [1, 2, 3] if status == "ok" else [])
            # Token 6 has no part of p, so it is rejected, and the draft row is read.
            sequence = self.engine.open(specd.SamplingParams(verify=verify, max_tokens=None, seed=1))
            draft = specd.Draft(sequence, [6], parents=[-1], sampled=[2], weights=[1], masses=[1])
            result, = self.engine.verify(rows[:2], [draft], q=q[:1], strict=False)
            self.assertEqual(result.status, "bad_distribution")
            self.assertIn("draft_rows: a row that was needed holds NaN", result.detail)

    def test_siblings_that_do_not_fit_together_are_invalid_and_say_why(self):
        sequence = self.engine.open(specd.SamplingParams(max_tokens=None))
        for fields, text in (
            ({"sampled": [1, 1, 0], "draft_rows": [0, 1, 0]}, "draft_rows: two drawn children"),
            ({"sampled": [1, 2, 0], "draft_rows": [0, 0, 0]}, "kinds: SPECD_SAMPLED and"),
            ({"sampled": [0, 0, 0], "draft_rows": [0, 0, 0], "tokens": [4, 4, 1]},
             "tokens: two children"),
            ({"sampled": [2, 0, 0], "draft_rows": [0, 0, 0], "tokens": [4, 4, 1]},
             "tokens: two children"),
            ({"sampled": [1, 1, 0], "draft_rows": [0, 0, 0], "tokens": [4, 4, 1]}, ""),
        ):
            tokens = fields.pop("tokens", [4, 5, 1])
            draft = specd.Draft(sequence, tokens, parents=[-1, -1, 0], **fields)
            result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft], q=one_hot(4, 4), strict=False)
            self.assertEqual(result.status, "invalid" if text else "ok")
            self.assertIn(text, result.detail or "")
        for verify in ("token", "block"):
            sequence = self.engine.open(specd.SamplingParams(verify=verify, max_tokens=None))
            draft = specd.Draft(sequence, [4, 5, 1], parents=[-1, -1, 0])
            result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft], strict=False)
            self.assertIn("verify = token and verify = block are for chains", result.detail)

    def test_parents_that_are_no_earlier_nodes_are_invalid_and_say_why(self):
        for parents, text in (
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
        self.assertEqual(self.verify([1, 5, 2], parents=[-1, 0, 0]).status, "ok")

    def test_draft_tokens_by_slot_have_parents_too(self):
        self.engine.draft_tokens()[self.sequence.slot] = [1, 7, 2]
        for parents, path in (([-1, 0, 1], [0]), ([-1, 0, 0], [0, 2])):
            draft = specd.Draft(self.sequence, by_slot=3, parents=parents)
            result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft])
            self.assertEqual(result.path.tolist(), path)

    def test_parents_by_slot_are_those_of_the_draft(self):
        slot = self.sequence.slot
        self.engine.draft_tokens()[slot] = [1, 7, 2]
        draft = specd.Draft(self.sequence, by_slot=3, parents_by_slot=True)
        with self.assertRaisesRegex(specd.Error, "SPECD_DRAFT_PARENTS"):
            self.engine.verify(one_hot(1, 2, 3, 4), [draft])
        first = self.engine.draft_tree("next_child", dtype="int64")
        sibling = self.engine.draft_tree("next_sibling", dtype="int64")
        first[slot], sibling[slot] = [1, 2, -1, -1], [-1, -1, 3, -1]
        result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft])
        self.assertEqual(result.path.tolist(), [0, 2])  # 7 and 2 follow 1
        for wrong in ([1, 2, -1, 1], [1, 1, -1, -1], [4, -1, -1, -1], [-2, -1, -1, -1]):
            first[slot] = wrong
            sibling[slot] = [-1, -1, 3, -1]
            result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft], strict=False)
            self.assertEqual((result.status, len(result.tokens)), ("invalid", 0))
            self.assertIn("parents: a parent is neither", result.detail)
        parents = self.engine.draft_tree()
        for row, path in (([-1, 0, 1], [0]), ([-1, 0, 0], [0, 2])):
            parents[slot] = row
            result, = self.engine.verify(one_hot(1, 2, 3, 4), [draft])
            self.assertEqual(result.path.tolist(), path)

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
