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
from door_case import DoorCase, one_hot
from in_flight_test import BEST, DRAFTS, Long


class Interrupted:
    """The library, whose poll of a batch is interrupted before it begins."""

    def specd_poll_batch(self, *_):
        raise KeyboardInterrupt

    def __init__(self):
        self._real = c.load()

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
        arrays = [weakref.ref(array) for array in round.arrays.values()]
        del round
        gc.collect()
        self.assertEqual([array() is None for array in arrays], [False] * len(arrays))
        round = self.engine.submit(one_hot(5), {self.open(): []})
        self.assertEqual(round.result()[0].tokens.tolist(), [5])
        gc.collect()
        self.assertEqual([array() is None for array in arrays], [True] * len(arrays))
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
