"""The oracle against values that others have published or that are worked out by hand.

An oracle that is wrong in the same way as the kernels proves nothing, so each test here has its
source in its name.
"""

import itertools
import math
import unittest
from fractions import Fraction

import numpy as np

import compare
import contract
import contract_drafts
import contract_rows as rows_of
import philox
from contract_rows import BadRow, Filters, Logits, Params, Place

LN = math.log


def logits(*values):
    values = np.array(values, dtype=np.float64)
    return Logits(values, np.zeros(values.shape))


class FixedCoins:
    """Coins that a test chooses."""

    def __init__(self, accept=(), residual=0.0, sample=0.0, tree=0.0):
        self.accept_coins, self.residual_coin, self.sample_coin = accept, residual, sample
        self.tree_coin = tree

    def accept(self, index):
        return self.accept_coins[index]

    def residual(self, _):
        return self.residual_coin

    def sample(self, _):
        return self.sample_coin

    def at(self, depth, node, purpose):
        return self.tree_coin if purpose == philox.TREE else self.residual_coin


def walk(method, p_rows, q_rows, tokens, coins):
    params = Params(verify=method)
    sequence = contract.Sequence(params)
    with np.errstate(divide="ignore"):
        draft = contract.Draft(list(tokens), [True] * len(tokens), np.log(np.array(q_rows)))
        chain = contract.Walk(sequence, draft, np.log(np.array(p_rows)), rows_of.Rules(),
                              rows_of.Rules(), None)
    chain.coins = coins
    return chain.run()


class PhiloxTest(unittest.TestCase):
    def test_random123_known_answers(self):
        # Random123, tests/kat_vectors, "philox4x32 10".
        ones = 0xFFFFFFFF
        for counter, key, expected in (
            ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
            ((ones,) * 4, (ones,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
            ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
             (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
        ):
            self.assertEqual(philox.philox4x32(counter, key), expected)

    def test_coins_are_keyed_as_contract_4_says(self):
        seed = 0x299F31D0A4093822
        words = philox.philox4x32((7, 5, 3, 3), (0xA4093822, 0x299F31D0))
        coins = philox.Coins(seed, position=5, round_base=5)
        self.assertEqual(coins.accept(2), ((words[0] << 32 | words[1]) >> 11) / 2**53)
        words = philox.philox4x32((7, 0, 0, 1), (0xA4093822, 0x299F31D0))
        self.assertEqual(coins.sample(2), ((words[0] << 32 | words[1]) >> 11) / 2**53)
        words = philox.philox4x32((7, 5, 2, 4), (0xA4093822, 0x299F31D0))
        self.assertEqual(coins.residual(2), ((words[0] << 32 | words[1]) >> 11) / 2**53)


class FilterTest(unittest.TestCase):
    P = logits(LN(0.1), LN(0.4), LN(0.2), LN(0.05), LN(0.25))

    def kept(self, row=None, **filters):
        p = rows_of.distribution(self.P if row is None else row, Filters(**filters)).p
        return np.flatnonzero(p).tolist()

    def test_min_p_keeps_what_reaches_its_share_of_the_greatest(self):
        self.assertEqual(self.kept(min_p=0.45), [1, 2, 4])
        self.assertEqual(self.kept(min_p=1.0), [1])

    def test_exactly_k_survive_and_the_lowest_id_wins_a_tie(self):
        self.assertEqual(self.kept(logits(1, 3, 2, 2, 2), top_k=3), [1, 2, 3])

    def test_top_p_keeps_the_shortest_prefix_that_reaches_it(self):
        self.assertEqual(self.kept(top_p=0.6), [1, 4])
        self.assertEqual(self.kept(top_p=0.66), [1, 2, 4])
        self.assertEqual(self.kept(top_p=1e-9), [1])

    def test_sequential_top_p_is_on_the_renormalised_survivors_and_joint_is_not(self):
        # Two survive top_k with 0.4 and 0.25, renormalised 0.615 and 0.385.
        self.assertEqual(self.kept(top_k=2, top_p=0.6), [1])
        self.assertEqual(self.kept(top_k=2, top_p=0.6, order="joint"), [1, 4])

    def test_temperature_two_takes_the_square_root(self):
        p = rows_of.distribution(logits(LN(0.25), LN(0.64)), Filters(temperature=2.0)).p
        np.testing.assert_allclose(p, [0.5 / 1.3, 0.8 / 1.3])

    def test_plus_infinity_is_a_point_on_the_lowest_such_id(self):
        p = rows_of.distribution(logits(1, math.inf, math.inf), Filters()).p
        self.assertEqual(p.tolist(), [0, 1, 0])

    def test_draw_is_the_inverse_cdf_in_id_order(self):
        weights = np.array([0, 0.25, 0.5, 0, 0.25])
        for coin, token in ((0.0, 1), (0.24, 1), (0.25, 2), (0.74, 2), (0.75, 4), (0.999, 4)):
            self.assertEqual(rows_of.draw(weights, coin, 1e-7)[0], token)
        self.assertAlmostEqual(rows_of.draw(weights, 0.3, 1e-3)[1], 50, places=3)


class EditTest(unittest.TestCase):
    def after(self, row, output=(), prompt=(), mask=None, eos=(), **params):
        place = Place(list(prompt), list(output), mask, eos)
        return rows_of.edit(logits(*row), Params(**params), place).values.tolist()

    def test_sglang_83_to_90_penalties(self):
        self.assertEqual(self.after([0] * 3, [1], frequency_penalty=2.0), [0, -2, 0])
        self.assertEqual(self.after([0] * 3, [1, 1], frequency_penalty=1.0), [0, -2, 0])
        self.assertEqual(self.after([0] * 3, [1, 1], presence_penalty=1.0), [0, -1, 0])
        self.assertEqual(self.after([4, -4, 4], [0], [1], repetition_penalty=2.0), [2, -8, 4])

    def test_the_repetition_penalty_comes_before_the_frequency_penalty(self):
        row = self.after([4.0, 0], [0], repetition_penalty=2.0, frequency_penalty=1.0)
        self.assertEqual(row, [1, 0])

    def test_the_bias_comes_before_the_penalty_that_depends_on_its_sign(self):
        row = self.after([1.0, 0], [0], repetition_penalty=2.0, logit_bias={0: -3.0})
        self.assertEqual(row, [-4, 0])

    def test_sglang_75_to_82_no_repeat_ngram(self):
        none = [0.0] * 6
        banned = lambda history, **p: [i for i, x in enumerate(self.after(none, history, **p))
                                       if x == -math.inf]
        def size(n, window=0, whitelist=()):
            return {"no_repeat_ngram_size": n, "no_repeat_ngram_window": window,
                    "no_repeat_ngram_whitelist": whitelist}
        self.assertEqual(banned([1, 2, 3, 1, 2], **size(2, 100)), [3])
        self.assertEqual(banned([1, 2, 3, 1, 2], **size(2, 100, (3,))), [])
        self.assertEqual(banned([1], **size(3)), [])
        self.assertEqual(banned([1, 2, 3, 4], **size(3, 2)), [])
        self.assertEqual(banned([3, 4, 5], **size(2)), [])

    def test_vllm_16_bad_words_are_banned_after_their_prefix_only(self):
        banned = lambda output: self.after([0.0] * 4, output, bad_words=([1, 2], [3]))
        self.assertEqual(banned([1]), [0, 0, -math.inf, -math.inf])
        self.assertEqual(banned([1, 0]), [0, 0, 0, -math.inf])

    def test_sglang_64_to_72_thinking_budget(self):
        def forced(prompt, output, budget):
            params = Params(thinking_token_budget=budget, thinking_start_id=1,
                            thinking_end_ids=(2,), thinking_newline_id=3)
            return rows_of.forced_by_budget(params, Place(prompt, output))
        self.assertIsNone(forced([1], [100, 101], 10))
        self.assertEqual(forced([1], [100] * 5, 5), 3)
        self.assertEqual(forced([1], [100] * 5 + [3], 5), 2)
        self.assertIsNone(forced([], [100] * 5, 5))
        self.assertIsNone(forced([1], [100, 2, 100, 100], 1))
        self.assertEqual(forced([1], [100], 0), 3)
        self.assertIsNone(forced([1], [100], -1))
        self.assertEqual(forced([2], [1] + [100] * 5, 5), 3)

    def test_min_tokens_holds_back_stop_ids_and_yields_to_a_grammar_that_allows_nothing_else(self):
        stop = {"min_tokens": 2, "stop_token_ids": (1,)}
        self.assertEqual(self.after([0, 0, 0], [2], eos=(0,), **stop), [-math.inf, -math.inf, 0])
        self.assertEqual(self.after([0, 0, 0], [2, 2], eos=(0,), **stop), [0, 0, 0])
        only = np.array([False, True, False])
        self.assertEqual(self.after([0, 0, 0], [2], mask=only, **stop),
                         [-math.inf, 0, -math.inf])

    def test_a_mask_wins_over_nan_and_a_bias_does_not_win_over_a_mask(self):
        row = self.after([math.nan, 1, 2], disallowed_token_ids=(0, 2), logit_bias={2: 100.0})
        self.assertEqual(row, [-math.inf, 1, -math.inf])
        with self.assertRaises(BadRow):
            self.after([math.nan, 1, 2])
        with self.assertRaises(BadRow):
            self.after([1, -math.inf, -math.inf], disallowed_token_ids=(0,))


class MethodTest(unittest.TestCase):
    P, Q = (1 / 3, 2 / 3), (2 / 3, 1 / 3)

    def mean_accepted(self, method):
        """Over the drafts of Q and the accept coins: each is cut into intervals of 1/12, which is
        finer than any threshold of this example needs."""
        total = Fraction(0)
        middles = [Fraction(2 * i + 1, 24) for i in range(12)]
        for tokens in itertools.product((0, 1), repeat=2):
            weight = math.prod(Fraction(2 - x, 3) for x in tokens) / 144
            for coins in itertools.product(middles, repeat=2):
                accepted, _ = walk(method, [self.P] * 3, [self.Q] * 2, tokens,
                                   FixedCoins([float(c) for c in coins]))
                total += weight * len(accepted)
        return total

    def test_sun_2025_example_token_accepts_10_of_9(self):
        self.assertEqual(self.mean_accepted("token"), Fraction(10, 9))

    def test_sun_2025_example_block_accepts_11_of_9(self):
        self.assertEqual(self.mean_accepted("block"), Fraction(11, 9))

    def test_flashinfer_21_a_residual_with_one_id_gives_that_id(self):
        p, q = (0.2, 0.5, 0.3), (0.3, 0.3, 0.4)
        for coin in (0.0, 0.5, 0.999):
            result = walk("token", [p, p], [q], [0], FixedCoins([0.7], residual=coin))
            self.assertEqual(result, ([], 1))

    def test_kernels_33_zeros_of_p_and_q(self):
        accept = lambda p, q, coin: walk("token", [p, p], [q], [0], FixedCoins([coin]))[0] == [0]
        self.assertTrue(accept((0.5, 0.5), (0.0, 1.0), 0.999))
        self.assertFalse(accept((0.0, 1.0), (0.0, 1.0), 0.0))
        self.assertFalse(accept((0.0, 1.0), (0.5, 0.5), 0.0))
        self.assertTrue(accept((0.5, 0.5), (0.5, 0.5), 0.999))

    def test_block_goes_on_below_a_place_that_fails(self):
        # An early end at the first place that fails would keep nothing in both cases.
        p, q = [(0.1, 0.9), (0.9, 0.1), (0.5, 0.5)], [(0.5, 0.5), (0.3, 0.7)]
        accepted, _ = walk("block", p, q, [0, 0], FixedCoins([0.99, 0.59]))
        self.assertEqual(accepted, [0, 0])  # P_2 = min(1, 0.2 * 3) = 0.6
        accepted, _ = walk("block", p, q, [0, 0], FixedCoins([0.99, 0.61]))
        self.assertEqual(accepted, [])

    def test_a_draft_ends_at_minus_one_and_at_an_id_outside_which_is_counted(self):
        row = np.log([0.25, 0.75])
        for method in ("greedy", "exact_match", "token", "block"):
            params = Params(verify=method, temperature=0.0 if method == "greedy" else 1.0)
            sequence = contract.Sequence(params)
            outcome = sequence.round(contract.Draft([1, -1, 1], [False] * 3), [row] * 4)
            self.assertLessEqual(outcome.num_accepted, 1)
            outcome = sequence.round(contract.Draft([7], [False]), [row] * 2)
            self.assertEqual((outcome.num_accepted, outcome.invalid_drafts), (0, 1))
            outcome = sequence.round(contract.Draft([-1], [False]), [row] * 2)
            self.assertEqual((outcome.num_accepted, outcome.invalid_drafts), (0, 0))

    def test_after_an_id_outside_the_token_is_drawn_from_p(self):
        # The residual (p - q)+ has nothing on 0, and the SAMPLE coin 0 draws 0 from p.
        p, q = [(0.25, 0.75), (0.5, 0.5)], [(0.75, 0.25)]
        for method in ("exact_match", "token", "block"):
            accepted, final = walk(method, p, q, [2], FixedCoins([0.0], residual=0.999))
            self.assertEqual((accepted, final), ([], 0))


class TreeTest(unittest.TestCase):
    A = ((1 / 3, 2 / 3), (2 / 3, 1 / 3))
    B = ((0.5, 0.3, 0.2), (0.2, 0.3, 0.5))

    def mean_accepted(self, rows, widths, method, way, num=2500):
        """Over drafts that are drawn here, in plain numpy, and over seeds."""
        rng, total = np.random.default_rng(1), 0
        p, q = (np.array(row) for row in rows)
        for seed in range(num):
            draft = contract.Draft([], [], parents=[])
            level = [-1]
            for width in widths:
                for parent in level:
                    ids, kinds = siblings(rng, q, width, way)
                    draft.tokens += ids
                    draft.sampled += kinds
                    draft.parents += [parent] * len(ids)
                level = list(range(len(draft.tokens) - len(level) * len(ids), len(draft.tokens)))
            draft.q_rows = [np.log(q)] * (len(draft.tokens) + 1)
            sequence = contract.Sequence(Params(verify=method, seed=seed, max_tokens=100))
            outcome = sequence.round(draft, [np.log(p)] * (len(draft.tokens) + 1))
            total += outcome.num_accepted
        return total / num

    def test_the_expected_numbers_of_accepted_tokens(self):
        # Exact values of the enumeration in tests/kernels/bodies/tree_law_test.cc, and of the recursive
        # definition in rational numbers. The mean of 2500 rounds has a standard error of .02 at most.
        for rows, widths, way, tree, traversal in (
            (self.A, (2, 1), "with", 35 / 27, 38 / 27), (self.A, (2, 1), "rest", 5 / 3, 16 / 9),
            (self.B, (2,), "rest", .82, .82), (self.B, (2, 1), "mixed", 1.53, 1.61),
        ):
            for method, expected in (("tree", tree), ("traversal", traversal)):
                self.assertAlmostEqual(self.mean_accepted(rows, widths, method, way), expected,
                                       delta=0.05, msg=(widths, way, method))

    def test_target_only_goes_to_the_child_in_whose_part_of_p_the_coin_lies(self):
        # SGLang's own vectors: p = (.1, .2, .3, .4) at the root, and children 1 and 2.
        for coin, final, path, last in ((0.10, 0.21, [0], 0), (0.49, 0.999, [1], 3), (0.60, 0.21, [], 3)):
            draft = contract.Draft([1, 2], [0, 0], parents=[-1, -1])
            rows = np.log([[.1, .2, .3, .4], [.4, .3, .2, .1], [.25] * 4])
            walk = contract.TreeWalk(contract.Sequence(Params(verify="target_only")), draft, rows,
                                     rows_of.Rules(), rows_of.Rules(), None)
            walk.coins = FixedCoins(tree=coin, residual=final, sample=final)
            tokens, token = walk.run()
            self.assertEqual((tokens, walk.path, token), ([node + 1 for node in path], path, last))

    def test_an_id_outside_ends_its_own_branch(self):
        rows = np.log([[.25, .75]] * 4)
        for method in ("exact_match", "tree", "traversal", "target_only"):
            draft = contract.Draft([7, 1, 0], [0, 0, 0], parents=[-1, -1, 0])
            outcome = contract.Sequence(Params(verify=method)).round(draft, rows)
            self.assertIn(outcome.path, ([], [1]))
            self.assertEqual(outcome.invalid_drafts, 1)


def siblings(rng, q, width, way):
    """Children of one place, by numpy alone: (ids, kinds)."""
    if way == "with":
        return [int(x) for x in rng.choice(len(q), width, p=q)], [1] * width
    best = np.argsort(-q, kind="stable")[:width - 1].tolist() if way == "mixed" else []
    ids, kinds = list(best), [0] * len(best)
    while len(ids) < width:
        left = np.where(np.isin(np.arange(len(q)), ids), 0, q)
        ids.append(int(rng.choice(len(q), p=left / left.sum())))
        kinds.append(2)
    return ids, kinds


class FinishTest(unittest.TestCase):
    def test_contract_7_the_first_token_that_finishes_is_kept(self):
        rows = [np.eye(4)[i] * 50 for i in (1, 2, 3)]
        draft = lambda: contract.Draft([1, 2], [False, False])
        for params, tokens, reason in (
            ({"stop_token_ids": (2,)}, [1, 2], "stop"),
            ({"max_tokens": 2}, [1, 2], "length"),
            ({"max_tokens": 2, "stop_token_ids": (2,)}, [1, 2], "stop"),
            ({"stop_token_ids": (3,)}, [1, 2, 3], "stop"),
            ({}, [1, 2, 3], None),
        ):
            outcome = contract.Sequence(Params(temperature=0.0, **params)).round(draft(), rows)
            self.assertEqual((outcome.tokens, outcome.finish_reason), (tokens, reason))

    def test_a_bad_row_counts_only_where_it_is_reached(self):
        rows = [np.eye(4)[1] * 50, np.full(4, math.nan), np.eye(4)[3] * 50]
        sequence = contract.Sequence(Params(temperature=0.0))
        outcome = sequence.round(contract.Draft([1, 2], [False, False]), rows)
        self.assertEqual((outcome.tokens, outcome.status), ([1], contract.BAD_DISTRIBUTION))
        sequence = contract.Sequence(Params(temperature=0.0))
        outcome = sequence.round(contract.Draft([3, 2], [False, False]), rows)
        self.assertEqual((outcome.tokens, outcome.status), ([1], contract.OK))


class ScoreTest(unittest.TestCase):
    def test_modes_by_hand(self):
        raw, edited = logits(LN(0.1), LN(0.6), LN(0.3)), logits(LN(0.1), -math.inf, LN(0.3))
        p = rows_of.distribution(edited, Filters(temperature=0.5, top_k=1))
        value = lambda mode, d: contract.score_rows(mode, raw, edited, d).values
        np.testing.assert_allclose(value("raw_logprobs", p), raw.values, atol=1e-12)
        np.testing.assert_allclose(value("raw_logits", p), raw.values)
        np.testing.assert_allclose(value("processed_logprobs", p), [-math.inf, -math.inf, 0])
        np.testing.assert_allclose(value("processed_logits", p),
                                   [-math.inf, -math.inf, 2 * LN(0.3)])
        np.testing.assert_allclose(value("processed_logprobs", None),
                                   [LN(0.25), -math.inf, LN(0.75)])

    def test_equal_numbers_of_other_steps_may_have_either_order(self):
        # x - 2 + 2 is x in double; in fp32 it is not.
        x = np.float32(-6.1)
        self.assertNotEqual(x - np.float32(2) + np.float32(2), x)
        params = Params(frequency_penalty=2, presence_penalty=-2)
        row = rows_of.edit(logits(x, x, x, -7), params, Place([], [1]))
        self.assertEqual(len(set(row.values)), 2)
        scores = contract.score_rows("processed_logits", None, row, None)
        self.assertEqual([compare.rank_range(scores, i) for i in range(4)],
                         [(1, 2), (1, 3), (1, 2), (4, 4)])
        for inside, is_sure in (([0], False), ([1], False), ([0, 1], False), ([0, 1, 2], True)):
            outside = [i for i in range(4) if i not in inside]
            self.assertEqual(rows_of.order_slack(row, np.array(inside), np.array(outside)) > 1, is_sure)

    def test_unfiltered_logprobs_have_the_edits_and_the_temperature_but_no_filter(self):
        rows = [[LN(0.1), LN(0.6), LN(0.3)]]
        edits = {"disallowed_token_ids": [1], "logprobs": 0,
                 "logprobs_mode": "unfiltered_logprobs"}
        score = lambda **fields: contract.Sequence(Params(**edits, **fields)).round(
            contract.Draft([], []), rows).scores[0].values
        # T = 0.5 squares the odds 1 : 3. A greedy sequence keeps T = 1.
        np.testing.assert_allclose(score(temperature=0.5, min_p=0.9, top_p=0.1),
                                   [LN(0.1), -math.inf, LN(0.9)])
        np.testing.assert_allclose(score(temperature=0.0), [LN(0.25), -math.inf, LN(0.75)])


class SampleDraftTest(unittest.TestCase):
    def test_children_add_up_and_without_replacement_differ(self):
        row = np.log([0.5, 0.3, 0.2])
        sequence = contract.Sequence(Params(seed=3))
        children, _ = contract_drafts.sample_draft(sequence, row, num_children=9)
        self.assertEqual(sum(count for _, count, _ in children), 9)
        children, _ = contract_drafts.sample_draft(sequence, row, sampling="without", num_children=9)
        self.assertEqual(sorted(x for x, _, _ in children), [0, 1, 2])
        children, _ = contract_drafts.sample_draft(sequence, row, sampling="top_k", num_children=2)
        self.assertEqual([x for x, _, _ in children], [0, 1])


if __name__ == "__main__":
    unittest.main()
