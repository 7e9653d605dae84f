"""Rounds in flight: submit, poll and result beside verify, and times that hold.

Bugs that this would catch: Python could have one round in flight and wait for it without
limit; embedded, a wait of specd_poll ended with the round and not with its time.
"""

import time
import types
import unittest
from unittest import mock

import numpy as np

import specd
from door_case import URI, V, DoorCase, one_hot
from specd import _library, _structs, options

LARGE, DRAFTS, BEST = 2**18, 64, 7
EMPTY, EXHAUSTED = 2, -9


class Long:
    """An engine with a round of 8320 rows, all of them the same one: a twentieth of a second on 16 cores, and
    half a second on two."""

    def __init__(self, case, num_sequences=128, **options):
        self.engine = specd.Engine(URI, vocab_size=LARGE, max_batch=num_sequences,
                                   max_sequences=num_sequences + 4, max_draft=DRAFTS, **options)
        case.addCleanup(self.engine.close)
        self.rows = self.engine.rows(2)
        self.rows[0, BEST] = self.rows[1, BEST + 1] = 100  # every coin draws it
        params = specd.SamplingParams(temperature=1, top_p=0.95, max_tokens=1000)
        self.sequences = [self.engine.open(params) for _ in range(num_sequences)]
        self.drafts = [specd.Draft(sequence, [BEST] * DRAFTS, target_rows=[0] * (DRAFTS + 1))
                       for sequence in self.sequences]

    def short(self):
        """A draft of one row, of a new sequence."""
        return specd.Draft(self.engine.open(specd.SamplingParams(temperature=0)), target_rows=[1])

    def check(self, case, results):
        case.assertEqual({tuple(result.tokens.tolist()) for result in results},
                         {(BEST,) * (DRAFTS + 1)})


class Library:
    """libspecd, with other functions in the place of some."""

    def __getattr__(self, name):
        return getattr(self.real, name)

    def __init__(self, case, **functions):
        self.real = _library.load()
        vars(self).update(functions)
        patched = mock.patch.object(_library, "load", lambda: self)
        patched.start()
        case.addCleanup(patched.stop)


class InFlightTest(DoorCase):
    def results(self, round):
        return [result.tokens.tolist() for result in round.result(timeout_ms=60000)]

    def test_a_round_is_submitted_and_answered_later(self):
        a, b = self.open(), self.open()
        round = self.engine.submit(one_hot(1, 2, 5), {a: [1], b: []})
        while not round.poll():
            pass
        self.assertTrue(round.done())
        self.assertEqual(self.results(round), [[1, 2], [5]])
        self.assertEqual([result.sequence for result in round.result()], [a, b])
        self.assertIs(round.result(0)[0], round.result()[0])  # as often as one asks

    def test_several_rounds_are_in_flight_with_rows_of_their_own(self):
        # Copied rows lie beside each other: no round reads those of another.
        for is_grown in (False, True):  # at first the copies find their size
            sequences = [self.open() for _ in range(4)]
            rounds = []
            for i, sequence in enumerate(sequences):
                rows = one_hot(i, i + 1)
                rounds.append(self.engine.submit(rows, {sequence: [i]}))
                rows[:] = one_hot(7)  # an array that was copied is the caller's again
            if is_grown:
                self.assertEqual([round.done() for round in rounds], [False] * 4)
            for i in (2, 0, 3, 1):
                self.assertEqual(self.results(rounds[i]), [[i, i + 1]])
            for sequence in sequences:
                sequence.close()

    def test_rounds_of_one_sequence_follow_each_other(self):
        sequence = self.open()
        rows = self.engine.rows(6)
        rows[:] = one_hot(1, 2, 3, 4, 5, 6)
        rounds = [self.engine.submit(rows[:2], {sequence: [1]}),
                  self.engine.submit(rows[2:5], {sequence: [3, 4]}),
                  self.engine.submit(rows[5], {sequence: []})]
        self.assertEqual([self.results(round) for round in rounds], [[[1, 2]], [[3, 4, 5]], [[6]]])
        self.assertEqual([round.result()[0].total_kept for round in rounds], [2, 5, 6])

    def test_more_rounds_than_the_ring_holds(self):
        sequence = self.open()
        self.engine.rows(1)[:] = one_hot(3)
        rounds = [self.engine.submit(None, {sequence: []}) for _ in range(11)]
        self.assertTrue(rounds[6].done())  # four are in flight, and no answer is lost
        self.assertEqual([round.result()[0].total_kept for round in rounds], list(range(1, 12)))

    def test_rounds_with_q_masks_and_other_dtypes_in_flight(self):
        drawn, masked, half = self.open(verify="token"), self.open(temperature=0), self.open()
        allowed = np.ones((2, V), bool)
        allowed[0, 1] = False
        rounds = [self.engine.submit(one_hot(1, 2), {drawn: [1]}, q=one_hot(1)),
                  self.engine.submit(one_hot(1, 2), {masked: [1]}, masks=[allowed]),
                  self.engine.submit(one_hot(4, dtype=np.float16), {half: []}),
                  self.engine.submit(one_hot(4, 4), {drawn: [5]}, q=one_hot(5))]
        self.assertEqual([self.results(round) for round in rounds], [[[1, 2]], [[0]], [[4]], [[4]]])

    def test_calls_that_may_not_run_beside_a_round_wait_and_lose_no_answer(self):
        for call in (lambda: self.engine.rows(2), lambda: self.engine.next_tokens(),
                     lambda: self.engine.score(one_hot(5), [5]), self.engine.drain,
                     lambda: self.engine.verify(one_hot(5, dtype=np.float16), {self.open(): []})):
            round = self.engine.submit(one_hot(6), {self.open(): []})
            call()
            self.assertTrue(round.done())
            self.assertEqual(self.results(round), [[6]])

    def test_a_round_whose_answer_nobody_wants_keeps_its_tokens(self):
        sequence = self.open()
        self.engine.submit(one_hot(1, 2), {sequence: [1]})
        result, = self.engine.verify(one_hot(3), {sequence: []})
        self.assertEqual((result.tokens.tolist(), result.total_kept), ([3], 3))

    def test_a_part_that_was_not_done_is_raised_by_result(self):
        nan = np.full((1, V), np.nan, np.float32)
        round = self.engine.submit(nan, {self.open(): []})
        for _ in "ab":
            with self.assertRaisesRegex(specd.RoundError, "row 0: target_rows.*NaN"):
                round.result()
        self.assertEqual(round.result(strict=False)[0].status, "bad_distribution")

    def test_a_round_that_is_refused_is_not_in_flight(self):
        with self.assertRaisesRegex(specd.Error, "is not bound"):
            self.engine.submit(None, [specd.Draft(self.open(), target_rows=[0])])
        self.assertEqual(self.engine._in_flight.pending, {})
        self.engine.close()
        with self.assertRaisesRegex(specd.Error, "the engine is closed"):
            self.engine.submit(one_hot(1), {1: []})

    # ---- times

    def test_a_time_that_is_over_raises_and_the_late_answer_is_there(self):
        long = Long(self)
        with self.assertRaisesRegex(specd.RoundTimeout, "timeout_ms: round 1 .* within 10 ms") as caught:
            long.engine.verify(None, long.drafts, timeout_ms=10)
        error = caught.exception
        self.assertIsInstance(error, TimeoutError)
        self.assertIsInstance(error, specd.Error)
        self.assertEqual((error.code_name, error.code), ("SPECD_EMPTY", 2))
        self.assertFalse(error.round.done())
        with self.assertRaisesRegex(specd.RoundTimeout, "within 1 ms"):
            error.round.result(timeout_ms=1)
        # The engine goes on, and another round may follow at once.
        behind = long.engine.submit(None, [long.short()])
        self.assertFalse(error.round.done())
        self.assertEqual(behind.result()[0].tokens.tolist(), [BEST + 1])
        self.assertTrue(error.round.done())
        long.check(self, error.round.result(timeout_ms=0))

    def test_a_poll_waits_for_nothing(self):
        long = Long(self)
        round = long.engine.submit(None, long.drafts)
        self.assertFalse(round.poll())
        long.check(self, round.result())

    def test_rows_that_a_late_round_reads_are_not_written(self):
        long = Long(self)
        kept = long.engine.slot_output("kept_tokens")
        row = long.rows[:1].copy()
        with self.assertRaises(specd.RoundTimeout):
            long.engine.verify(row, long.drafts, timeout_ms=0)
        row[0, BEST], row[0, 3] = 0, 100  # another copy, beside the first
        other = long.engine.open(specd.SamplingParams(temperature=0))
        result, = long.engine.verify(row, {other: []})
        self.assertEqual(result.tokens.tolist(), [3])
        for sequence in long.sequences:
            self.assertEqual(kept[sequence.slot].tolist(), [BEST] * (DRAFTS + 1))

    def test_a_time_that_passes_before_the_submission_submits_nothing(self):
        long = Long(self, ring_depth=1)
        first = long.engine.submit(None, long.drafts)
        draft = long.short()
        with self.assertRaisesRegex(specd.RoundTimeout, "nothing was submitted") as caught:
            long.engine.verify(None, [draft], timeout_ms=1)
        self.assertIsNone(caught.exception.round)
        self.assertFalse(first.done())
        self.assertEqual(long.engine.verify(None, [draft])[0].total_kept, 1)

    def test_a_time_that_is_none_is_refused_by_name(self):
        sequence = self.open()
        round = self.engine.submit(one_hot(1), {sequence: []})
        for timeout_ms in (0.5, "5", -2, 2**31, None):
            for wait in (lambda: self.engine.verify(one_hot(1), {sequence: []}, timeout_ms=timeout_ms),
                         lambda: round.result(timeout_ms)):
                with self.assertRaisesRegex(specd.Error, "timeout_ms"):
                    wait()
        self.assertEqual(round.result()[0].total_kept, 1)
        self.assertEqual(self.engine.verify(one_hot(1), {sequence: []})[0].total_kept, 2)

    def test_a_time_holds_behind_rounds_that_are_answered_meanwhile(self):
        # Bug: an answer of another round began the time anew.
        interval_s, number = 0.09, 0
        due_s = time.monotonic() + interval_s

        def poll(_, completion, timeout_ms):
            nonlocal due_s, number
            left_s = due_s - time.monotonic()
            time.sleep(max(0, min(left_s, timeout_ms / 1000)))
            if left_s > timeout_ms / 1000:
                return EMPTY
            due_s, number = due_s + interval_s, number + 1
            completion._obj.round_id = number
            completion._obj.results = (_structs.Result * 1)()
            return 0

        sequence = self.open()
        self.engine.rows(1)
        Library(self, specd_submit=lambda *_: 0, specd_poll=poll)
        rounds = [self.engine.submit(None, {sequence: []}) for _ in range(4)]
        begin_s = time.monotonic()
        with self.assertRaisesRegex(specd.RoundTimeout, "round 4 .* within 100 ms"):
            rounds[3].result(100)
        self.assertLess(time.monotonic() - begin_s, 2 * interval_s)
        self.assertEqual([round.done() for round in rounds], [True, False, False, False])

    # ---- memory

    def copies(self, budget_bytes):
        """Regions count against a budget from now on. Returns the sizes that were asked for."""
        real, asked, held = _library.load(), [], {}

        def allocate(pointer, size, region):
            asked.append(size)
            if sum(held.values()) + size > budget_bytes:
                return EXHAUSTED
            code = real.specd_alloc(pointer, size, region)
            held[region._obj.id] = size
            return code

        def unregister(pointer, region):
            held.pop(region, None)
            return real.specd_unregister(pointer, region)

        Library(self, specd_alloc=allocate, specd_unregister=unregister)
        return asked

    def two_in_flight(self, sequences):
        """Two rounds of four rows, 128 bytes each; returns whether one was done before it was asked."""
        rounds = [self.engine.submit(one_hot(*ids), {sequence: ids[:3]})
                  for sequence, ids in zip(sequences, ([0, 1, 2, 3], [4, 5, 6, 7]))]
        was_done = rounds[0].done()
        self.assertEqual([self.results(round) for round in rounds], [[[0, 1, 2, 3]], [[4, 5, 6, 7]]])
        return was_done

    def test_where_memory_for_two_rounds_is_short_they_go_one_by_one_for_good(self):
        # Bug: once two rounds had not fitted, every round asked for the memory that it had.
        asked = self.copies(200)
        sequences = [self.open(max_tokens=None) for _ in range(2)]
        for _ in range(3):
            self.assertTrue(self.two_in_flight(sequences))
        self.assertEqual(min(asked), 128)
        self.assertEqual(asked.count(128), 1)
        self.assertEqual(self.tokens(one_hot(1), {sequences[0]: []}), [[1]])
        count = len(asked)
        for _ in range(5):  # no other round is in flight, so none asks
            self.assertEqual(self.tokens(one_hot(1), {sequences[0]: []}), [[1]])
        self.assertEqual(len(asked), count)

    def test_memory_grows_by_as_much_as_there_is(self):
        # Two rounds fit beside the memory of one, and the eightfold does not.
        asked = self.copies(400)
        sequences = [self.open(max_tokens=None) for _ in range(2)]
        self.assertTrue(self.two_in_flight(sequences))
        self.assertFalse(self.two_in_flight(sequences))
        self.assertEqual((asked[0], asked[-1]), (128, 256))

    # ---- CUDA streams

    def test_a_stream_is_refused_by_name_where_there_is_no_device(self):
        self.engine.rows(1)[:] = one_hot(3)
        sequence = self.open()
        with self.assertRaises(specd.Error) as caught:
            self.engine.submit(None, {sequence: []}, cuda_stream=2**63 + 5)
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_UNSUPPORTED")
        self.assertIn("cuda_stream", str(caught.exception))
        with self.assertRaises(specd.Error) as caught:
            self.engine.round_end()
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_STATE")
        self.assertEqual(self.tokens(None, {sequence: []}), [[3]])

    def test_a_stream_is_an_address_or_an_object_that_knows_one(self):
        self.engine.rows(1)
        sequence, real, seen = self.open(), _library.load(), []

        def submit_on_stream(pointer, number, drafts, count, stream):
            seen.append(stream)
            return real.specd_submit(pointer, number, drafts, count)

        torch_stream = types.SimpleNamespace(cuda_stream=77)
        core_stream = types.SimpleNamespace(__cuda_stream__=lambda: (0, 78))
        Library(self, specd_submit_on_stream=submit_on_stream)
        for stream in (76, np.int64(76), torch_stream, core_stream):
            self.assertEqual(self.engine.submit(None, {sequence: []}, cuda_stream=stream)
                             .result()[0].status, "ok")
        self.assertEqual(seen, [76, 76, 77, 78])
        later = types.SimpleNamespace(__cuda_stream__=lambda: (1, 7))
        for stream, text in ((-1, "-1"), (2**64, str(2**64)), (1.5, "1.5"), ("7", "'7'"),
                             (later, "version 1")):
            with self.assertRaisesRegex(specd.Error, f"cuda_stream: .*{text}"):
                self.engine.submit(None, {sequence: []}, cuda_stream=stream)

    def test_0_is_the_default_stream_in_every_call(self):
        # Bug: as torch's default stream it became NULL, for which specd makes a CUDA stream of its
        # own: rounds did not wait for the forward.
        legacy = 1  # CU_STREAM_LEGACY of <cuda.h>
        sequence, seen = self.open(), []
        self.engine.rows(1)
        Library(self, specd_submit_on_stream=lambda *a: (seen.append(a[-1]), 0)[1],
                specd_mark_drafts=lambda *a: (seen.append(a[-1]), 0)[1],
                specd_enqueue_staged=lambda *a: (seen.append(a[-1]), 0)[1],
                specd_poll=lambda *_: EMPTY)
        zeros = (0, np.int64(0), types.SimpleNamespace(cuda_stream=0),
                 types.SimpleNamespace(__cuda_stream__=lambda: (0, 0)))
        for stream in zeros:
            self.engine.submit(None, {sequence: []}, cuda_stream=stream)
            self.engine.mark_drafts(stream)
            self.engine.enqueue_staged(1, stream)
            struct, _ = options.to_options({"cuda_stream": stream})
            seen.append(struct.cuda_stream)
        self.assertEqual(seen, [legacy] * 4 * len(zeros))
        for given in ({}, {"cuda_stream": None}):  # a CUDA stream of specd's own
            self.assertIsNone(options.to_options(given)[0].cuda_stream)

    def test_rows_that_a_stream_has_still_to_write_are_not_copied(self):
        self.engine.rows(2)
        for given in ({"rows": one_hot(1)}, {"rows": None, "q": one_hot(1)}):
            with self.assertRaisesRegex(specd.Error, "would be copied now.*engine.rows"):
                self.engine.submit(drafts={self.open(verify="token"): [1] * ("q" in given)},
                                   cuda_stream=7, **given)


if __name__ == "__main__":
    unittest.main()
