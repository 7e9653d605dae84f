"""A part of a call that was not done raises RoundError, unless the caller asks for the results.

Bug that this would catch: a row of NaN came back as a status, which an engine that
reads `tokens` alone did not see.
"""

import unittest

import numpy as np

import specd

V = 8
NAN = np.full((1, V), np.nan, np.float32)


def one_hot(*ids):
    return (np.eye(V, dtype=np.float32) * 50)[list(ids)]


class RoundErrorTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine(vocab_size=V, max_batch=4, max_sequences=8, max_draft=2)
        self.addCleanup(self.engine.close)

    def open(self, **fields):
        return self.engine.open(specd.SamplingParams(temperature=0, **fields))

    def test_a_bad_row_is_raised_and_the_other_answers_are_there(self):
        good, bad, worse = self.open(), self.open(), self.open()
        rows = np.vstack([one_hot(3), NAN, NAN])
        with self.assertRaises(specd.RoundError) as caught:
            self.engine.verify(rows, {good: [], bad: [], worse: []})
        error = caught.exception
        self.assertIsInstance(error, specd.Error)
        self.assertEqual((error.code_name, error.code), ("SPECD_STATUS_BAD_DISTRIBUTION", 2))
        for part in ("drafts[1] of 3 is bad_distribution: at place 0, row 1: target_rows", "NaN",
                     "and 1 more", "strict=False"):
            self.assertIn(part, str(error))
        self.assertEqual([each.status for each in error.results],
                         ["ok", "bad_distribution", "bad_distribution"])
        self.assertEqual(error.results[0].tokens.tolist(), [3])
        self.assertEqual(good.state().finish_reason, None)  # it goes on
        result, = self.engine.verify(one_hot(4), {good: []})
        self.assertEqual((result.tokens.tolist(), result.total_kept), ([4], 2))

    def test_a_bad_row_is_named_as_the_caller_counts_rows(self):
        greedy = lambda: self.open(max_tokens=9)
        held = self.engine.rows(4)
        held[:] = np.vstack([one_hot(1, 2), NAN, one_hot(4)])
        # The second place of the second draft: row 2 of the array, and row 1 of the view.
        for rows in (held[1:3], held[1:3].copy()):
            result, = self.engine.verify(rows, {greedy(): [2]}, strict=False)
            self.assertEqual((result.tokens.tolist(), result.bad_row), ([2], 1))
            self.assertRegex(result.detail, "^target_rows: .* NaN")
        result, = self.engine.verify(None, [specd.Draft(greedy(), [2], target_rows=[1, 2])],
                                     strict=False)
        self.assertEqual(result.bad_row, 2)
        empty = np.full((1, V), -np.inf, np.float32)
        with self.assertRaisesRegex(specd.RoundError, "place 1, row 1: target_rows.*above -inf"):
            self.engine.verify(np.vstack([one_hot(3), empty]), {greedy(): [3]})
        result, = self.engine.verify(one_hot(4), {greedy(): []})
        self.assertEqual((result.detail, result.bad_row), (None, None))

    def test_a_bad_draft_row_is_named_as_one(self):
        sequence = self.engine.open(specd.SamplingParams(verify="token"))
        with self.assertRaisesRegex(specd.RoundError, "place 0, row 0: draft_rows.*NaN"):
            self.engine.verify(one_hot(3, 3), {sequence: [3]}, q=NAN)

    def test_a_draft_for_a_finished_sequence_has_a_status_and_no_ids(self):
        # Bug: nothing said what such a call answers.
        running, ended = self.open(), self.open(max_tokens=1)
        self.engine.verify(one_hot(3), {ended: []})
        drawn, empty = self.engine.sample_draft(one_hot(5, 5), [running, ended])
        self.assertEqual((drawn.status, drawn.ids.tolist()), ("ok", [5]))
        self.assertEqual((empty.status, empty.ids.tolist(), empty.q.tolist()), ("finished", [], []))
        ended.close()
        with self.assertRaises(specd.RoundError) as caught:
            self.engine.sample_draft(one_hot(5), [ended])
        self.assertEqual(caught.exception.code_name, "SPECD_STATUS_UNKNOWN_SEQUENCE")

    def test_a_wrong_sum_says_how_to_bind(self):
        self.engine.rows(2, kind="probabilities")
        half = np.full((1, V), 0.5 / V, np.float32)
        with self.assertRaisesRegex(specd.RoundError, "sum to 1.*renormalise"):
            self.engine.verify(half, {self.open(): []})

    def test_rows_that_were_never_bound_are_said_by_name(self):
        for named in ({"target_rows": [0]}, {"target_argmax": [1, 1], "by_slot": 1}):
            with self.assertRaisesRegex(specd.Error, "is not bound; call specd_bind") as caught:
                self.engine.verify(None, [specd.Draft(self.open(), **named)])
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_STATE")

    def test_an_invalid_part_says_what_is_wrong(self):
        with self.assertRaisesRegex(specd.RoundError, "drafts.0. of 1 is invalid: target_rows"):
            self.engine.verify(one_hot(1), [specd.Draft(self.open(), target_rows=[7])])

    def test_asked_for_the_results_come_as_they_are(self):
        result, = self.engine.verify(NAN, {self.open(): []}, strict=False)
        self.assertEqual((result.status, result.finish_reason), ("bad_distribution", "error"))

    def test_a_sequence_that_has_finished_is_no_error(self):
        sequence = self.open(max_tokens=1)
        for status in ("ok", "finished"):
            result, = self.engine.verify(one_hot(1), {sequence: []})
            self.assertEqual(result.status, status)

    def test_calls_between_rounds_raise_too(self):
        sequence = self.engine.open(specd.SamplingParams(verify="token"))
        with self.assertRaisesRegex(specd.RoundError,
                                    r"requests.1. of 2 is bad_distribution: draft_rows: .*NaN"):
            self.engine.sample_draft(np.vstack([one_hot(1), NAN]), [sequence, sequence])
        with self.assertRaisesRegex(
                specd.RoundError,
                r"rows.1. of 2 is bad_distribution: target_rows: .*NaN") as caught:
            self.engine.score(np.vstack([one_hot(1), NAN]), [1, 1])
        self.assertEqual(caught.exception.results.statuses, ["ok", "bad_distribution"])
        self.assertEqual(caught.exception.results.values["id"][0, 0], 1)


if __name__ == "__main__":
    unittest.main()
