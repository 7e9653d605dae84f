"""Draft tokens by slot, and staged rounds, through the Python door. Without a device the latter can
only be refused; tests/daemon has them on a pretended one."""

import os
import signal
import unittest
from unittest import mock

import numpy as np

import specd
from specd import _library

V = 8
EMPTY = 2  # SPECD_EMPTY


def one_hot(*ids):
    return (np.eye(V) * 50)[list(ids)].astype(np.float32)


class DraftTokensTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=V, max_batch=4, max_sequences=6,
                                   max_draft=3)
        self.addCleanup(self.engine.close)

    def open(self, **params):
        return self.engine.open(specd.SamplingParams(temperature=0, **params))

    def test_they_are_read_at_the_slot_of_each_sequence(self):
        tokens = self.engine.draft_tokens()
        self.assertEqual((tokens.shape, tokens.dtype), ((6, 3), np.dtype(np.int32)))
        tokens[:] = -9
        a, b, c = self.open(), self.open(), self.open()
        tokens[a.slot] = [1, 2, 3]
        tokens[b.slot] = [4, -1, 4]
        tokens[c.slot] = [7, V, 7]
        results = self.engine.verify(
            [one_hot(1, 2, 7, 0), one_hot(4, 5, 6, 6), one_hot(7, 6), one_hot(1, 2)],
            [specd.Draft(a, by_slot=3), specd.Draft(b, by_slot=3), specd.Draft(c, by_slot=1),
             specd.Draft(self.open(), [1])])
        self.assertEqual([result.tokens.tolist() for result in results],
                         [[1, 2, 7], [4, 5], [7, 6], [1, 2]])
        self.assertEqual([result.num_accepted for result in results], [2, 1, 1, 1])
        # Three, the one before the -1, one, and one that was given.
        self.assertEqual(self.engine.stats()["drafted"], 6)

    def test_penalties_count_them(self):
        tokens = self.engine.draft_tokens()
        sequence = self.open(presence_penalty=2)
        tokens[sequence.slot] = [5, 5, 5]
        # 5 leads by 1, which one occurrence undoes: the first stands, the second does not.
        rows = np.zeros((4, V), np.float32)
        rows[:, 5], rows[:, 2] = 3, 2
        (result,) = self.engine.verify(rows, [specd.Draft(sequence, by_slot=3)])
        self.assertEqual(result.tokens.tolist(), [5, 2])

    def test_what_cannot_be_read_is_refused_by_name(self):
        rows = one_hot(1, 2)
        (unbound,) = self.engine.verify(rows, [specd.Draft(self.open(), by_slot=1)])
        self.assertEqual((unbound.status, unbound.detail.split(":")[0]), ("invalid", "flags"))
        self.engine.draft_tokens()
        (refused,) = self.engine.verify(rows, [specd.Draft(self.open(bad_words=[[1, 2]]), by_slot=1)])
        self.assertEqual(refused.status, "invalid")
        self.assertIn("tokens that the host does not know", refused.detail)
        with self.assertRaises(specd.Error):
            self.engine.verify(rows, [specd.Draft(self.open(), [1], by_slot=1)])
        # More than max_draft; the rows are named, so that nothing can be wrong with their number.
        with self.assertRaises(specd.Error) as caught:
            self.engine.verify(one_hot(1, 2, 3, 4, 5),
                               [specd.Draft(self.open(), by_slot=4, target_rows=[0, 1, 2, 3, 4])])
        self.assertIn("by_slot", str(caught.exception))
        self.assertIn("0 .. 3", str(caught.exception))

    def test_without_drafts_there_are_no_draft_tokens(self):
        # It was said of the memory that it has no bytes.
        with specd.Engine("embedded:cpu", vocab_size=V, max_draft=0) as engine:
            with self.assertRaises(specd.Error) as caught:
                engine.draft_tokens()
        self.assertIn("max_draft = 0", str(caught.exception))
        self.assertIn("attach with a larger max_draft", str(caught.exception))

    def test_nothing_is_staged_on_the_cpu(self):
        self.engine.rows(1)[:] = one_hot(3)
        sequence = self.open()
        for call in (lambda: self.engine.stage({sequence: []}),
                     lambda: self.engine.enqueue_staged(1, 0)):
            with self.assertRaises(specd.Error) as caught:
                call()
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_UNSUPPORTED")
            self.assertIn("embedded:cuda", str(caught.exception))
        self.assertIsNone(self.engine.collect(0))
        self.assertIsNone(self.engine.collect())


class SlowLibrary:
    """libspecd, but specd_poll has nothing for `polls` times, and then calls `then`."""

    def __init__(self, library, polls, then):
        self.library, self.polls, self.then, self.timeouts = library, polls, then, []

    def __getattr__(self, name):
        return getattr(self.library, name)

    def specd_poll(self, pointer, completion, timeout_ms):
        self.timeouts.append(timeout_ms)
        if len(self.timeouts) <= self.polls:
            return EMPTY
        return self.then(pointer, completion, timeout_ms)


class WaitTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=V, max_draft=3)
        self.addCleanup(self.engine.close)
        self.sequence = self.engine.open(specd.SamplingParams(temperature=0))
        # Python's own; whoever runs the tests may have it ignored.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

    def library(self, polls, then):
        slow = SlowLibrary(_library.load(), polls, then)
        patched = mock.patch.object(_library, "load", lambda: slow)
        patched.start()
        self.addCleanup(patched.stop)
        return slow

    @staticmethod
    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)
        return EMPTY

    def test_an_interrupt_ends_a_wait_without_limit(self):
        # Python runs no handler of a signal while a call stands in C.
        self.engine._staged[7] = [self.sequence]
        for wait in (self.engine.collect, lambda: self.engine.verify(one_hot(1), {self.sequence: []})):
            slow = self.library(3, self.interrupt)
            with self.assertRaises(KeyboardInterrupt):
                wait()
            self.assertEqual(len(slow.timeouts), 4)
            self.assertTrue(all(0 < timeout <= 100 for timeout in slow.timeouts), slow.timeouts)

    def test_a_wait_has_the_time_that_it_was_given(self):
        self.engine._staged[7] = [self.sequence]
        for timeout_ms in (0, 1, 100, 250):
            slow = self.library(99, self.interrupt)
            self.assertIsNone(self.engine.collect(timeout_ms))
            self.assertEqual(sum(slow.timeouts), timeout_ms)
            self.assertTrue(all(timeout <= 100 for timeout in slow.timeouts), slow.timeouts)
            mock.patch.stopall()

    def test_an_answer_that_came_with_an_interrupt_is_collected_by_the_next_call(self):
        self.engine._staged[7] = [self.sequence]

        def answer(_, completion, __):
            completion._obj.round_id = 7
            completion._obj.results = (_library.Result * 1)()
            os.kill(os.getpid(), signal.SIGINT)
            return 0

        self.library(0, answer)
        with self.assertRaises(KeyboardInterrupt):
            self.engine.collect()
        mock.patch.stopall()
        self.library(99, self.interrupt)
        number, results = self.engine.collect(0)
        self.assertEqual((number, [result.sequence for result in results]), (7, [self.sequence]))
        self.assertIsNone(self.engine.collect(0))

    def test_a_time_that_is_none_is_refused_by_name(self):
        for timeout_ms in (0.5, "5", -2, 2**31, None):
            with self.assertRaises(specd.Error) as caught:
                self.engine.collect(timeout_ms)
            self.assertIn("timeout_ms", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
