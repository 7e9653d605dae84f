"""Scores of the Python door: logprobs of a round, their sums, and scores of given ids."""

import unittest

import numpy as np

import specd
from door_case import V, DoorCase


class DoorScoresTest(DoorCase):
    def test_logprobs(self):
        sequence = self.open(temperature=0, logprobs=2, logprob_token_ids=[7])
        row = np.log([[.5, .2, .1, .05, .05, .05, .025, .025]])
        result, = self.engine.verify(row, {sequence: []})
        self.assertEqual(result.scores["id"].tolist(), [[0, 0, 1, 7]])
        self.assertEqual(result.scores["rank"].tolist(), [[1, 1, 2, 7]])
        np.testing.assert_allclose(result.scores["value"], np.log([[.5, .5, .2, .025]]), rtol=1e-6)
        self.assertEqual(list(result.logprobs[0]), [0, 1, 7])
        self.assertEqual(result.logprobs[0][7].rank, 7)

    def test_ranks_are_those_of_the_rounded_values(self):
        """Penalties that cancel out leave an equal number, and perhaps not an equal fp32 number. The ranks
        of CONTRACT §3 are those of the fp32 numbers: the steps of §3.4, each rounded."""
        moved = set()
        for logit in np.float32([-6.125, -6.1, -6.4]):
            values = np.full(V, logit)
            values[[1, 2]] = (logit - np.float32(2)) - np.float32(-2)
            moved.add(int(np.sign(values[1] - logit)))
            params = specd.SamplingParams(
                logprobs=V, logprob_token_ids=list(range(V)), logprobs_mode="processed_logits",
                frequency_penalty=2, presence_penalty=-2)
            sequence, = self.engine.open_all(params, [], [1, 2])
            result, = self.engine.verify(np.full((1, V), logit), {sequence: []})
            scores = result.scores[0, 1:]
            best = np.lexsort((np.arange(V), -values))
            self.assertEqual(scores["id"].tolist(), [*best, *range(V)])
            self.assertEqual(scores["value"].tolist(), values[scores["id"]].tolist())
            ranks = 1 + (values > values[:, None]).sum(axis=1)
            self.assertEqual(scores["rank"].tolist(), ranks[scores["id"]].tolist())
        self.assertEqual(moved, {-1, 0, 1})

    def test_samples_are_ranked_by_their_sum(self):
        rows = np.log([[.5, .25, .125, .125, 0, 0, 0, 0]] + [[.75, 0, .25, 0, 0, 0, 0, 0]] + 1e-30 *
                      np.ones((2, V)))
        sums = {}
        params = specd.SamplingParams(max_tokens=2, logprobs=0, n=8, seed=3)
        for sequence in self.engine.open_all(params):
            self.assertIsNone(sequence.state().cumulative_logprob)
            first, = self.engine.verify(rows[:1], {sequence: []})
            last, = self.engine.verify(rows[1:], {sequence: []})
            ids = (int(first.tokens[0]), int(last.tokens[0]))
            sums[ids] = last.cumulative_logprob
            self.assertEqual(sequence.state(), ("length", 2, last.cumulative_logprob))
            sequence.close()
        self.assertGreater(len(sums), 2)
        for (x, y), found in sums.items():
            self.assertAlmostEqual(found, rows[0, x] + rows[1, y], places=5)
        plain, = self.engine.verify(rows[:1], {self.open(): []})
        self.assertIsNone(plain.cumulative_logprob)

    def test_score(self):
        rows = np.log(np.array([[.5, .5, 0, 0, 0, 0, 0, 0], [.25, 0, .75, 0, 0, 0, 0, 0]]) + 1e-30)
        rows = np.vstack([rows, np.full(V, np.nan), rows])
        scores = self.engine.score(rows, [1, 2, 0, 0, 0], num_top=1, chosen_ids=[0],
                                   strict=False)
        self.assertEqual(scores.statuses, ["ok", "ok", "bad_distribution", "ok", "ok"])
        np.testing.assert_allclose(scores.values["value"][[0, 1, 4]],
                                   np.log([[.5, .5, .5], [.75, .75, .25], [.25, .75, .25]]),
                                   rtol=1e-6)
        self.assertEqual(scores.values["id"][1].tolist(), [2, 2, 0])


if __name__ == "__main__":
    unittest.main()
