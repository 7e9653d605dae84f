"""Rounds of arrays beside rounds in flight: their order, and what an interrupt leaves.

Bugs that this would catch: a batch that takes the answer of another round, or writes its answer into
arrays that are gone.
"""

import asyncio
import gc
import signal
import unittest
import weakref
from unittest import mock

import numpy as np

import specd
from specd import _library as c
from door_case import V, DoorCase, one_hot
from in_flight_test import BEST, DRAFTS, Long


class Interrupted:
    """The library, whose poll of a batch is interrupted before it begins."""

    def specd_poll_batch(self, *_):
        raise KeyboardInterrupt

    def __init__(self):
        self._real = c.load()

    def __getattr__(self, name):
        return getattr(self._real, name)


class Patched:
    """A library with other functions in the place of some."""

    def __init__(self, real, **functions):
        self._real = real
        vars(self).update(functions)

    def __getattr__(self, name):
        return getattr(self._real, name)


class BatchInFlightTest(DoorCase):
    def open_two(self):
        return self.engine.open_batch(2, temperature=0).sequences

    def interrupt(self, rows, *arguments, **rest):
        """A verify_batch that is interrupted while its round is in flight."""
        with mock.patch.object(c, "_library", Interrupted()):
            with self.assertRaises(KeyboardInterrupt):
                self.engine.verify_batch(rows, *arguments, **rest)
        self.assertEqual(len(self.engine._in_flight.pending), 1)

    def test_a_batch_follows_the_rounds_before_it(self):
        for _ in range(4):  # at first the copies find their size
            sequences, rounds = [self.open() for _ in range(3)], []
            for i, sequence in enumerate(sequences):
                rows = one_hot(i, i + 1)
                rounds.append(self.engine.submit(rows, {sequence: [i]}))
                rows[:] = one_hot(7)
            handles = [sequence.handle for sequence in sequences]
            found = self.engine.verify_batch(one_hot(4, 5, 6, 4), handles, [5], [0, 0, 1, 1])
            self.assertEqual(found.tokens.tolist(), [[4, -1], [5, 6], [4, -1]])
            self.assertEqual(found.total_kept.tolist(), [3, 4, 3])
            self.assertEqual([round.done() for round in rounds], [True] * 3)
            self.assertEqual([round.result()[0].tokens.tolist() for round in rounds],
                             [[0, 1], [1, 2], [2, 3]])
            for sequence in sequences:
                sequence.close()

    def test_batches_are_submitted_and_answered_later(self):
        # Bug: the call for many sequences could neither be in flight nor be awaited.
        a, b = self.open_two()
        rounds = [self.engine.submit_batch(one_hot(i, i + 1, 5), [a, b], [i], [0, 1, 1]) for i in range(3)]
        while not rounds[2].poll():
            pass
        self.assertEqual([round.done() for round in rounds], [True] * 3)
        for i, round in enumerate(rounds):
            self.assertEqual(round.result(timeout_ms=0).tokens.tolist(), [[i, i + 1], [5, -1]])
            self.assertIs(round.result(), round.result())  # as often as one asks
        found = asyncio.run(self.awaited(one_hot(2, 3), [a, b]))
        self.assertEqual(found.tokens.tolist(), [[2], [3]])

    def test_results_name_the_sequences_that_were_submitted(self):
        # Bug: they had the caller's own array, so a caller that reused it got tokens under other handles.
        opened = self.open_two()
        for dtype in (np.uint64, np.int64):
            handles = opened.view(dtype).copy()
            round = self.engine.submit_batch(one_hot(1, 2), handles)
            handles[:] = handles[::-1].copy()
            found = round.result()
            self.assertEqual(found.sequences.tolist(), opened.tolist())
            self.assertEqual(found.tokens.tolist(), [[1], [2]])

    async def awaited(self, *arguments):
        return await self.engine.submit_batch(*arguments)

    def test_what_was_not_verified_is_told_as_often_as_one_asks(self):
        # Bug: the bad row was counted in the caller's rows once more at each question.
        a, b = self.open_two()
        rows = one_hot(1, 2, 3)
        rows[2] = np.nan
        # Copied rows of two rounds in flight lie beside each other, once the copies have their size.
        for _ in range(2):
            before = self.engine.submit_batch(one_hot(1, 2), [a, b])
            self.engine.submit_batch(one_hot(1, 2), [a, b]).result()
        before = self.engine.submit_batch(one_hot(1, 2), [a, b])
        round = self.engine.submit_batch(rows, [a, b], [1], [0, 1, 1])
        for _ in range(2):
            self.assertEqual(round.result(strict=False).bad_row.tolist(), [-1, 2])
            with self.assertRaises(specd.RoundError):
                round.result()
        self.assertTrue(before.done())

    def test_a_time_that_is_over_raises_and_the_late_answer_is_there(self):
        long = Long(self)
        handles = [sequence.handle for sequence in long.sequences]
        tokens = np.full((len(handles), DRAFTS), BEST)
        names = np.zeros(len(handles) * (DRAFTS + 1), int)
        with self.assertRaisesRegex(specd.RoundTimeout, "within 5 ms") as caught:
            long.engine.verify_batch(long.rows, handles, tokens, target_rows=names, timeout_ms=5)
        found = caught.exception.round.result(timeout_ms=60000)
        self.assertTrue((found.tokens == BEST).all())
        for timeout_ms in (0.5, "5", -2, 2**31, None):
            with self.assertRaisesRegex(specd.Error, "timeout_ms"):
                long.engine.verify_batch(long.rows, handles, target_rows=names, timeout_ms=timeout_ms)

    def test_a_batch_on_a_stream_says_so_to_the_library(self):
        self.engine.rows(2)
        handles, real, seen = self.open_two(), c.load(), []

        def on_stream(pointer, number, batch, stream):
            seen.append(stream)
            return real.specd_submit_batch(pointer, number, batch)

        with mock.patch.object(c, "load", lambda: Patched(real, specd_submit_batch_on_stream=on_stream)):
            found = self.engine.submit_batch(None, handles, cuda_stream=76).result()
        self.assertEqual((seen, found.status.tolist()), ([76], [0, 0]))
        with self.assertRaisesRegex(specd.Error, "^rows: this array would be copied now"):
            self.engine.submit_batch(one_hot(1, 2), handles, cuda_stream=76)
        # Bug: masks were copied, although the CUDA stream might have written them later.
        masks, words = np.ones((2, V), bool), self.engine.rows(2, "mask")
        words[:] = specd.pack_mask(masks)
        with self.assertRaisesRegex(specd.Error, r"^masks: this array would be copied now.*engine.rows\(n"):
            self.engine.submit_batch(None, handles, cuda_stream=76, masks=masks)
        with self.assertRaisesRegex(specd.Error, "^masks: this array would be copied now"):
            self.engine.submit(None, {int(handles[0]): []}, masks=[masks[:1]], cuda_stream=76)
        with mock.patch.object(c, "load", lambda: Patched(real, specd_submit_batch_on_stream=on_stream)):
            found = self.engine.submit_batch(None, handles, cuda_stream=76, masks=words).result()
        self.assertEqual(found.status.tolist(), [0, 0])
        with self.assertRaisesRegex(specd.Error, "cuda_stream: "):
            self.engine.submit_batch(None, handles, cuda_stream=76)

    def test_an_array_of_another_name_is_refused(self):
        for call in (self.engine.submit_batch, lambda *arguments, **rest: asyncio.run(
                self.engine.averify_batch(*arguments, **rest))):
            with self.assertRaisesRegex(specd.Error, "^draft_row: .* did you mean draft_rows?"):
                call(one_hot(1, 2), self.open_two(), draft_row=[1])

    def test_more_rounds_than_the_ring_holds(self):
        sequence = self.open()
        self.engine.rows(1)[:] = one_hot(3)
        rounds = [self.engine.submit(None, {sequence: []}) for _ in range(4)]
        found = self.engine.verify_batch(None, [sequence.handle])
        self.assertEqual(found.total_kept.tolist(), [5])
        self.assertEqual([round.result()[0].total_kept for round in rounds], [1, 2, 3, 4])

    def test_rows_of_another_dtype_wait_for_the_rounds_before(self):
        round = self.engine.submit(one_hot(6), {self.open(): []})
        found = self.engine.verify_batch(one_hot(1, 2, dtype=np.float16), self.open_two())
        self.assertEqual(found.tokens.tolist(), [[1], [2]])
        self.assertEqual(round.result()[0].tokens.tolist(), [6])

    def test_a_batch_that_is_refused_is_not_in_flight(self):
        sequences = self.open_two()
        round = self.engine.submit(one_hot(6), {self.open(): []})
        with self.assertRaisesRegex(specd.Error, r"draft_offsets\[1\] - draft_offsets\[0\] = 4"):
            self.engine.verify_batch(one_hot(*range(6)), sequences, [1, 2, 3, 4], [0, 4, 4])
        self.assertEqual(round.result()[0].tokens.tolist(), [6])
        self.assertEqual(self.engine._in_flight.pending, {})
        self.assertEqual(self.engine.verify_batch(one_hot(1, 2), sequences).total_kept.tolist(),
                         [1, 1])

    def test_the_arrays_of_an_interrupted_batch_live_until_it_is_answered(self):
        sequences = self.open_two()
        self.interrupt(one_hot(1, 2), sequences)
        round, = self.engine._in_flight.pending.values()
        memory = weakref.ref(round._block.memory)  # of all arrays
        del round
        gc.collect()
        self.assertIsNotNone(memory())
        round = self.engine.submit(one_hot(5), {self.open(): []})
        self.assertEqual(round.result()[0].tokens.tolist(), [5])
        gc.collect()
        self.assertIsNone(memory())
        found = self.engine.verify_batch(one_hot(3, 4), sequences)
        self.assertEqual(found.tokens.tolist(), [[3], [4]])
        self.assertEqual(found.total_kept.tolist(), [2, 2])

    def test_the_rows_of_an_interrupted_batch_are_not_written(self):
        kept, sequences = self.engine.slot_output("kept_tokens"), self.open_two()
        for round in [self.engine.submit(one_hot(7, 7), {self.open(): [7]}) for _ in range(4)]:
            round.result()  # at first the copies find their size
        self.interrupt(one_hot(1, 2), sequences)
        later = self.engine.submit(one_hot(5, 5), {self.open(): [5]})
        self.assertEqual(len(self.engine._in_flight.pending), 2)  # no wait made it safe
        self.assertEqual(later.result()[0].tokens.tolist(), [5, 5])
        slots = [c.load().specd_sequence_slot(int(handle)) for handle in sequences]
        self.assertEqual(kept[slots, 0].tolist(), [1, 2])

    def test_coroutines_take_the_answer_of_an_interrupted_batch(self):
        sequences = self.open_two()
        self.interrupt(one_hot(1, 2), sequences)

        async def go_on():
            result, = await self.engine.averify(one_hot(5), {self.open(): []})
            return result.tokens.tolist()

        self.assertEqual(asyncio.run(go_on()), [5])
        self.assertEqual(self.engine.verify_batch(one_hot(3, 4), sequences).total_kept.tolist(),
                         [2, 2])

    def test_a_signal_ends_the_wait_and_not_the_round(self):
        long = Long(self)
        handles = [sequence.handle for sequence in long.sequences]
        tokens = np.full((len(handles), DRAFTS), BEST, np.int32)
        places = np.zeros(len(handles) * (DRAFTS + 1), np.uint32)

        def interrupt(*_):
            raise KeyboardInterrupt

        previous = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, previous)
        for delay_s in (0.002, 0.02):
            signal.setitimer(signal.ITIMER_REAL, delay_s)
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(10):
                    long.engine.verify_batch(None, handles, tokens, target_rows=places)
        found = long.engine.verify_batch(None, handles, tokens, target_rows=places)
        self.assertEqual(found.tokens.tolist(), [[BEST] * (DRAFTS + 1)] * len(handles))
        rounds, rest = divmod(int(found.total_kept[0]), DRAFTS + 1)
        self.assertEqual(rest, 0)  # each round was kept as a whole
        self.assertEqual(found.total_kept.tolist(), [rounds * (DRAFTS + 1)] * len(handles))


if __name__ == "__main__":
    unittest.main()
