"""The rounds of an engine's requests (specd.integrations): nothing is lost where a round or an opening fails."""

import unittest

import numpy as np

import specd
from specd.integrations._request_rounds import Opening, Request, RequestRounds
from door_case import V, DoorCase, one_hot


class Rows(np.ndarray):
    """Rows in host memory, as torch says it."""

    is_cuda = False


def rows(*ids):
    return one_hot(*ids).view(Rows)


class RequestRoundsTest(DoorCase):
    def setUp(self):
        super().setUp()
        self.max_tokens = 4
        self.rounds = RequestRounds(self.engine, self.opening, -1)

    def opening(self, _request):
        return Opening(specd.SamplingParams(temperature=0, max_tokens=self.max_tokens))

    def play(self, *requests):
        """A round in which request i gets the token i + 1."""
        found = self.rounds.verify(requests, rows(*range(1, len(requests) + 1)))
        return [specd.results.FINISH_REASONS[reason] for reason in found.finish_reason]

    def test_a_round_of_which_one_request_gets_nothing_counts_for_none(self):
        left, right = Request("left", ()), Request("right", ())
        self.assertEqual(self.play(left, right), [None, None])
        self.rounds._opened["left"].sequence.abort()
        with self.assertRaisesRegex(specd.Error, "request_id: the sequence of 'left' had ended"):
            self.play(left, right)
        # One token of four was kept, so three rounds are left.
        self.assertEqual([self.play(right)[0] for _ in range(3)], [None, None, "length"])

    def test_tokens_outlive_an_opening_that_fails(self):
        request = Request("one", ())
        self.assertEqual([self.play(request)[0] for _ in range(2)], [None, None])
        self.rounds._opened["one"].has_ended = True
        self.max_tokens = -1
        for _ in range(2):  # the second time its sequence is closed already
            with self.assertRaisesRegex(specd.Error, "max_tokens"):
                self.play(request)
        self.max_tokens = 4
        self.assertEqual([self.play(request)[0] for _ in range(2)], [None, "length"])
        self.rounds.close_where(lambda _: True)
        self.assertEqual(self.engine.stats()["rounds"], 4)


if __name__ == "__main__":
    unittest.main()
