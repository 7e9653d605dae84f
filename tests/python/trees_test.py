"""Narrow draft rows, siblings in every way, grown trees and drafts from the text, through the door.

Expected values are worked out here: by numpy, by brute force or by hand."""

import os
import unittest
import unittest.mock

import numpy as np

import specd

V = 12
URI = os.environ.get("SPECD_TEST_URI", "embedded:cpu")  # tests/process/attached_test.py has a daemon


class NarrowRowsTest(unittest.TestCase):
    IDS = [7, 0, 11, 4]

    def attach(self):
        engine = specd.Engine(URI, vocab_size=V, max_draft=3, max_batch=8)
        self.addCleanup(engine.close)
        return engine

    def texts(self, engine, draft, q):
        """Tokens drawn from `draft`, and what verification keeps of them."""
        rows = np.random.default_rng(2).normal(size=(4, V))
        found = []
        for seed in range(40):
            sequence = engine.open(specd.SamplingParams(temperature=1, seed=seed))
            tokens = []
            for i in range(3):
                children, = engine.sample_draft(
                    draft, [specd.DraftRequest(sequence, prefix=tokens, row=i)])
                tokens.append(int(children.ids[0]))
            result, = engine.verify(rows, [specd.Draft(sequence, tokens)], q=q)
            found.append((tokens, result.tokens.tolist(), result.num_accepted))
            sequence.close()
        return found

    def test_a_map_gives_the_texts_of_full_rows(self):
        narrow = np.random.default_rng(1).normal(size=(3, len(self.IDS)))
        full = np.full((3, V), -np.inf)
        full[:, self.IDS] = narrow
        expected = self.texts(self.attach(), full, full)
        self.assertGreater(sum(accepted for *_, accepted in expected), 10)
        for ids, offsets in ((self.IDS, False), (np.array(self.IDS) - np.arange(4), True)):
            engine = self.attach()
            engine.draft_map(ids, offsets=offsets)
            self.assertEqual(self.texts(engine, narrow, narrow), expected)
            mine = engine.rows(3, "draft")
            self.assertEqual(mine.shape, (3, len(self.IDS)))
            mine[:] = narrow
            self.assertEqual(self.texts(engine, mine, mine), expected)

    def test_what_does_not_fit_is_refused(self):
        engine = self.attach()
        sequence = engine.open(specd.SamplingParams(temperature=1))
        with self.assertRaisesRegex(specd.Error, "columns 0 and 1 have the id 3"):
            engine.draft_map([3, 3])
        with self.assertRaisesRegex(specd.Error, "column 1 has id 12"):
            engine.draft_map([3, V])
        with self.assertRaisesRegex(specd.Error, "columns"):
            engine.draft_map(range(V))
        engine.draft_map(self.IDS)
        with self.assertRaisesRegex(specd.Error, f"{V}.*4|4.*{V}"):
            engine.sample_draft(np.zeros((1, V)), [sequence])
        engine.draft_map(self.IDS[:2])
        self.assertIn(engine.sample_draft(np.zeros((1, 2)), [sequence])[0].ids[0], self.IDS[:2])


    def test_after_a_map_rows_have_all_columns_again(self):
        engine = self.attach()
        sequence = engine.open(specd.SamplingParams(temperature=1))
        row = np.zeros((1, V))
        row[0, 5] = 100  # no id of the map
        engine.draft_map(self.IDS)
        engine.sample_draft(np.zeros((1, 4)), [sequence])
        engine.draft_map(None)
        self.assertEqual(engine.rows(1, "draft").shape, (1, V))
        self.assertEqual(engine.sample_draft(row, [sequence])[0].ids[0], 5)

    def test_bug_an_interrupted_map_left_rows_that_the_library_had_unbound(self):
        engine = self.attach()
        sequence = engine.open(specd.SamplingParams(temperature=1))
        rows = engine.rows(1, "draft")
        rows[:] = 0
        rows[0, 7] = 100
        engine.sample_draft(rows, [sequence])
        with unittest.mock.patch("specd.row_space.check", side_effect=KeyboardInterrupt):
            with self.assertRaises(KeyboardInterrupt):
                engine.draft_map(self.IDS)
        self.assertEqual(engine.sample_draft(rows, [sequence])[0].ids[0], 7)


class SiblingsTest(unittest.TestCase):
    def test_the_children_of_each_way_are_what_a_draft_takes(self):
        engine = specd.Engine(URI, vocab_size=V, max_draft=6, max_batch=8)
        self.addCleanup(engine.close)
        row = np.log(np.arange(1, V + 1) / 78)[np.newaxis]
        for seed in range(20):
            sequence = engine.open(specd.SamplingParams(temperature=1, seed=seed, verify="tree"))
            ways = ("without_replacement", "top_k", "mixed")
            drawn = engine.sample_draft(
                np.repeat(row, 3, 0),
                [specd.DraftRequest(sequence, num_children=3, sampling=way, first_node=1 + 3 * i)
                 for i, way in enumerate(ways)])
            self.assertEqual([each.sampled.tolist() for each in drawn],
                             [[2, 2, 2], [0, 0, 0], [0, 0, 2]])
            self.assertEqual(drawn[1].ids.tolist(), [11, 10, 9])
            self.assertEqual(drawn[2].ids.tolist()[:2], [11, 10])
            for each in drawn:
                self.assertEqual(len(set(each.ids.tolist())), 3)
                # A child of the rest was drawn from what the ids before it had left.
                q = (each.ids + 1) / 78
                left = np.where(each.sampled == 2, 1 - np.cumsum(q) + q, 1)
                np.testing.assert_allclose(each.q, q / left, rtol=1e-5)
            mixed = drawn[2]
            result, = engine.verify(
                np.repeat(row, 4, 0),
                [specd.Draft(sequence, mixed.ids, sampled=mixed.sampled, parents=[-1, -1, -1],
                             draft_rows=[0, 0, 0])], q=row)
            self.assertEqual(result.status, "ok")
            # Where p = q, three siblings leave nothing to chance: one of them stands.
            self.assertEqual(result.num_accepted, 1)
            sequence.close()


class TreesTest(unittest.TestCase):
    def test_the_best_candidates_are_a_tree(self):
        parents = [-1, -1, 0, 0, 1, 2]
        scores = [.5, .4, .3, .1, .35, .25]
        tree = specd.grow_tree(parents, scores, 4)
        self.assertEqual(tree.nodes.tolist(), [0, 1, 2, 4])
        self.assertEqual(tree.parents.tolist(), [-1, -1, 0, 1])
        self.assertEqual(specd.grow_tree(parents, scores, 9).nodes.tolist(), [0, 1, 2, 3, 4, 5])
        self.assertEqual(specd.grow_tree(parents, scores, 4, max_depth=1).nodes.tolist(), [0, 1])
        self.assertEqual(specd.grow_tree([], [], 4).nodes.tolist(), [])
        for arguments, text in ((([-1, 0], [.5, .6], 2), "scores.1. = 0.6 is above 0.5"),
                                (([0], [.5], 2), "parents.0. = 0"),
                                (([-1], [.5, .5], 2), "one for each"),
                                (([-1], [.5], 65), "num_nodes = 65 is outside 1 .. 64")):
            with self.assertRaisesRegex(specd.Error, text):
                specd.grow_tree(*arguments)

    def test_a_static_tree_has_its_widths(self):
        self.assertEqual(specd.static_tree([2, 1]).tolist(), [-1, -1, 0, 1])
        self.assertEqual(specd.static_tree([]).tolist(), [])
        with self.assertRaisesRegex(specd.Error, "more than 64 nodes"):
            specd.static_tree([5, 5, 5])

    def test_a_draft_from_the_text_is_what_followed_before(self):
        text = [5, 1, 2, 3, 9, 9, 1, 2, 3, 8, 7, 1, 2, 3]
        draft = specd.draft_ngram(text, num_nodes=3)
        self.assertEqual((draft.tokens.tolist(), draft.parents.tolist()), ([8, 7, 1], [-1, 0, 1]))
        tree = specd.draft_ngram(text, num_nodes=4, width=2)
        self.assertEqual((tree.tokens.tolist(), tree.parents.tolist()),
                         ([8, 9, 7, 9], [-1, -1, 0, 1]))
        self.assertEqual(specd.draft_ngram([1, 2, 3]).tokens.tolist(), [])
        self.assertEqual(specd.draft_ngram([]).tokens.tolist(), [])
        for name, value in (("min_ngram", 0), ("min_ngram", 9), ("max_ngram", 1025),
                            ("num_nodes", 65), ("max_depth", 0), ("width", 65)):
            with self.assertRaisesRegex(specd.Error, f"{name} = {value} is outside"):
                specd.draft_ngram(text, **{name: value})

    def test_drafts_from_the_text_are_verified(self):
        engine = specd.Engine(URI, vocab_size=V, max_draft=8)
        self.addCleanup(engine.close)
        text = [1, 2, 3, 4, 1, 2]
        sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=None), text)
        draft = specd.draft_ngram(text, num_nodes=3)
        rows = np.eye(V)[[3, 4, 1, 2]] * 9
        result, = engine.verify(rows, [specd.Draft(sequence, draft.tokens, parents=draft.parents)])
        self.assertEqual(result.tokens.tolist(), [3, 4, 1, 2])


class DraftLengthTest(unittest.TestCase):
    def test_the_length_follows_what_stands(self):
        rule = specd.DraftLength(max_length=6, memory=2)
        for _ in range(20):
            low = rule.next(4, 0)
        self.assertEqual(low, 1)
        for _ in range(20):
            high = rule.next(6, 6)
        # Tokens for the time of a round, by hand: all drafts stand, so the longest is best.
        self.assertEqual(high, 6)
        self.assertEqual(rule.next(), 6)

    def test_what_is_out_of_range_is_refused(self):
        for name, value in (("min_length", 9), ("max_length", 65), ("memory", 0), ("step_cost", -1),
                            ("step_cost", float("nan"))):
            with self.assertRaisesRegex(specd.Error, name):
                specd.DraftLength(**{name: value})
        rule = specd.DraftLength()
        with self.assertRaisesRegex(specd.Error, "num_accepted"):
            rule.next(3, 4)


if __name__ == "__main__":
    unittest.main()
