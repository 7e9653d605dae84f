"""Trees of SGLang's EAGLE and NGRAM drafts, verified by specd.

Expected tokens are those of SGLang's own test of its tree kernels; expected laws are numpy's.
"""

import collections
import itertools
import unittest

import numpy as np
import torch

import specd
from batches import Batch, accepted, chain, request, rows, spikes
from laws import chi_square, law
from specd.integrations._sglang_trees import parents_of
from specd.integrations.sglang import EagleVerifier
from sglang.srt.speculative.ngram_info import NgramVerifyInput


def tree(tokens, next_token, next_sibling, steps, topk=4):
    """An EagleVerifyInput whose first node of each request is its last kept token."""
    made = chain([row[1:] for row in tokens], topk=topk, last_ids=[row[0] for row in tokens])
    made.retrieve_next_token, made.retrieve_next_sibling = torch.tensor(next_token), torch.tensor(next_sibling)
    made.spec_steps = steps
    return made


# From SGLang's test of its tree kernels.
TOKENS = [[0, 1, 2, 3, 4, 5], [7, 8, 9, 10, 11, 12]]
NEXT_TOKEN = [[1, 2, -1, 4, 5, -1], [4, 2, 3, -1, 5, -1]]
NEXT_SIBLING = [[-1, 3, -1, -1, -1, -1], [-1, -1, -1, -1, 1, -1]]
BEST = [3, 18, 18, 4, 5, 18, 11, 18, 18, 18, 12, 18]


class TreesTest(unittest.TestCase):
    def requests(self, **fields):
        return [request(f"r{last}", output=(last,), **fields) for last in (0, 7)]

    def test_the_tree_of_sglangs_own_test(self):
        for fields in ({"temperature": 0}, {"temperature": 0.01}):
            for width in (4, 5):  # of accept_index
                predict, lens, index = EagleVerifier("embedded:cpu")(
                    tree(TOKENS, NEXT_TOKEN, NEXT_SIBLING, width - 1),
                    Batch(self.requests(**fields), 32), rows(spikes(BEST)))
                kept = [[0, 3, 4, 5], [6, 10, 11, -1]]
                self.assertEqual(index.tolist(), [row + [-1] * (width - 4) for row in kept], fields)
                self.assertEqual(lens.tolist(), [4, 3])
                self.assertEqual(accepted((predict, lens, index)), [[3, 4, 5, 18], [11, 12, 18]])

    def test_parents_of_sglangs_links(self):
        parents, reached = parents_of(np.array(NEXT_TOKEN), np.array(NEXT_SIBLING))
        self.assertEqual(parents.tolist(), [[-1, 0, -1, 2, 3], [-1, 0, 1, -1, 3]])
        self.assertTrue(reached.all())
        # Node 3 is padding.
        parents, reached = parents_of(np.array([[1, 2, -1, -1]]), np.full((1, 4), -1))
        self.assertEqual((parents.tolist(), reached.tolist()), ([[-1, 0, -1]], [[True, True, False]]))
        # A cycle, a node of two parents, and nodes outside the list.
        for children, siblings in (([1, 1, -1], [-1] * 3), ([1, 0, -1], [-1] * 3), ([1, 2, -1], [-1, 2, -1]),
                                   ([3, -1, -1], [-1] * 3), ([1, -1, -1], [-1, 1, -1])):
            with self.assertRaisesRegex(ValueError, "child .* of node .* of request 0"):
                parents_of(np.array([children]), np.array([siblings]))

    def test_trees_of_n_grams_may_be_as_deep_as_they_have_nodes(self):
        # The nodes after the second are padding, with the id that their place has by chance.
        drafts = NgramVerifyInput(
            draft_token=torch.tensor([3, 5, 6, 0, 0]), custom_mask=torch.ones(1), draft_token_num=5,
            retrieve_index=torch.arange(5).reshape(1, -1),
            retrieve_next_token=torch.tensor([[1, 2, -1, -1, -1]]),
            retrieve_next_sibling=torch.full((1, 5), -1))
        answer = EagleVerifier("embedded:cpu")(
            drafts, Batch([request("a", temperature=0)], 32), rows(spikes([5, 6, 0, 0, 0])))
        self.assertEqual(accepted(answer), [[5, 6, 0]])
        self.assertEqual(answer[2].tolist(), [[0, 1, 2, -1, -1]])

    def test_the_law_does_not_depend_on_trees(self):
        rng = np.random.default_rng(2)
        first, seconds = rng.normal(size=4), rng.normal(size=(4, 4))
        for fields in ({"temperature": 0.8}, {"top_k": 3, "top_p": 0.9}, {"min_p": 0.2}):
            verify, counts, lengths = EagleVerifier("embedded:cpu"), collections.Counter(), collections.Counter()
            for step in range(250):
                reqs = [request(f"{step}.{i}", **fields) for i in range(8)]
                # The root's children are 1 and 2, and the child of 1 is 0.
                drafts = tree([[3, 1, 2, 0]] * 8, [[1, 3, -1, -1]] * 8, [[-1, 2, -1, -1]] * 8, 2)
                logits = [first, seconds[1], seconds[2], seconds[0]] * 8
                for tokens in accepted(verify(drafts, Batch(reqs, 4), rows(logits))):
                    lengths[len(tokens)] += 1
                    # The second token of a round that kept one is drawn here.
                    second = tokens[1] if len(tokens) > 1 else rng.choice(4, p=law(seconds[tokens[0]], **fields))
                    counts[tokens[0], int(second)] += 1
            expected = {(a, b): law(first, **fields)[a] * law(seconds[a], **fields)[b]
                        for a, b in itertools.product(range(4), repeat=2)}
            # 15 degrees of freedom: 56.5 is passed once in a million.
            self.assertLess(chi_square(counts, expected), 56.5, fields)
            self.assertTrue(all(lengths[n] > 50 for n in (1, 2)), lengths)

    def test_rows_of_drawn_trees_are_refused(self):
        drafts = chain([[1, 2, 3]], np.full((1, 3, 32), 1 / 32), topk=2)
        with self.assertRaisesRegex(specd.Error, "draft_probs: topk = 2 with 4 draft tokens is a tree"):
            EagleVerifier("embedded:cpu")(drafts, Batch([request("a")], 32), rows(np.zeros((4, 32))))


if __name__ == "__main__":
    unittest.main()
