"""Rounds of Python on a CUDA stream: Engine.submit with cuda_stream, over a real daemon.

The GPU is pretended (tests/tools/pretended_engine.cc); its CUDA streams run their work in threads.
"""

import asyncio
import ctypes
import itertools
import os
import signal
import threading
import unittest

import numpy as np

import specd
from support import ProcessTest, wait_until

V = 8
DEVICE = ctypes.CDLL(os.environ["SPECD_LIBRARY"])
FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
DEVICE.pretended_create_stream.restype = ctypes.c_void_p
DEVICE.pretended_launch.argtypes = [ctypes.c_void_p, FUNCTION, ctypes.c_void_p]
DEVICE.pretended_synchronize.argtypes = [ctypes.c_void_p]
PATIENCE_MS = 60000


class Stream:
    """A CUDA stream as torch has it."""

    def __init__(self):
        self.cuda_stream = DEVICE.pretended_create_stream()
        self.kept = []

    def launch(self, work):
        self.kept.append(FUNCTION(lambda _: work()))
        assert DEVICE.pretended_launch(self.cuda_stream, self.kept[-1], None) == 0

    def synchronize(self):
        assert DEVICE.pretended_synchronize(self.cuda_stream) == 0


class PythonStreamsTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.process = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in self.process.stderr or not self.process.running(),
                   "the daemon")
        self.stream = Stream()

    def engine(self, **options):
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=V, max_draft=3, **options)
        self.addCleanup(engine.close)
        return engine, engine.open(specd.SamplingParams(temperature=0))

    def test_the_round_waits_for_the_rows_and_the_stream_for_the_round(self):
        engine, sequence = self.engine(stream_timeout_ms=PATIENCE_MS)
        rows, next_tokens = engine.rows(2), engine.next_tokens()
        forward, seen = threading.Event(), []

        def write():
            forward.wait()
            rows[:] = np.eye(V)[[3, 5]] * 50

        self.stream.launch(write)
        round = engine.submit(rows, {sequence: [3]}, cuda_stream=self.stream)
        address, answered = engine.round_end()
        self.stream.launch(lambda: seen.append(int(next_tokens[sequence.slot])))
        self.assertFalse(round.poll())
        with self.assertRaises(specd.RoundTimeout):
            round.result(timeout_ms=50)
        self.assertEqual(seen, [])
        forward.set()
        result, = round.result(PATIENCE_MS)
        self.assertEqual(result.tokens.tolist(), [3, 5])
        self.stream.synchronize()
        self.assertEqual(seen, [5])
        self.assertNotEqual(address, 0)
        self.assertNotEqual(answered, 0)

    def test_forwards_with_a_cache_take_counts_and_tokens_where_specd_writes_them(self):
        # Bug: only the next token was shown to be right when the stream goes on. A forward with a cache
        # needs the other kept tokens and the length, and the CPU that enqueues it knows neither.
        draft, num_rounds = 3, 24
        for is_batch in (False, True):
            engine, _ = self.engine(stream_timeout_ms=PATIENCE_MS)
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=400))
            slot = sequence.slot
            rows, drafts = engine.rows(draft + 1), engine.draft_tokens()
            kept, total = engine.slot_output("kept_tokens"), engine.slot_output("total_kept")
            kept[slot], total[slot] = -1, 0  # the engine's own, after an opening
            cache, turn = [0] * (num_rounds * (draft + 1)), itertools.count()

            def follows(text):
                return (3 * sum(text) + len(text) ** 2) % V

            def forward():
                """Drafter and target model. They know the text by the cache alone."""
                length, new = int(total[slot]), [token for token in kept[slot].tolist() if token >= 0]
                cache[length - len(new):length] = new
                text, first_wrong = cache[:length], next(turn) % (draft + 1)
                for k in range(draft + 1):
                    rows[k] = np.eye(V)[follows(text)] * 50
                    if k < draft:
                        drafts[slot, k] = (follows(text) + (k == first_wrong)) % V
                        text = text + [int(drafts[slot, k])]

            rounds = []
            for _ in range(num_rounds):
                self.stream.launch(forward)
                if is_batch:
                    rounds.append(engine.submit_batch(rows, [sequence.handle], np.zeros((1, draft), int),
                                                      by_slot=[True], cuda_stream=self.stream))
                else:
                    rounds.append(engine.submit(rows, [specd.Draft(sequence, by_slot=draft)],
                                                cuda_stream=self.stream))
            found = [round.result(PATIENCE_MS) for round in rounds]
            made = [each.kept(0) if is_batch else each[0].tokens for each in found]
            self.assertEqual([len(tokens) for tokens in made], [1, 2, 3, 4] * (num_rounds // 4))
            text = []
            for token in np.concatenate(made).tolist():
                self.assertEqual(token, follows(text), (is_batch, text))
                text.append(token)

    def test_rows_are_bound_anew_once_the_daemon_has_seen_that_a_round_was_aborted(self):
        # Bug: the aborted round stood in the way for ever, as no round was left to poll for.
        engine, sequence = self.engine(stream_timeout_ms=50)
        rows = engine.rows(2)
        rows[:] = np.eye(V)[[6, 6]]
        self.process.stop()
        round = engine.submit(rows[:1], {sequence: []}, cuda_stream=self.stream)
        self.assertEqual(round.result(PATIENCE_MS, strict=False)[0].status, "aborted")
        self.stream.synchronize()
        half = rows.view(np.float16).reshape(4, V)[:1]  # to be bound, with no memory to ask for
        half[:] = np.eye(V)[[5]]
        with self.assertRaisesRegex(specd.Error, "1 rounds were aborted.*try again later") as caught:
            engine.verify(half, {sequence: []})
        self.assertEqual(caught.exception.code_name, "SPECD_ERROR_STATE")
        self.process.signal(signal.SIGCONT)
        seen = []

        def answered():
            try:
                seen.append(engine.verify(half, {sequence: []})[0])
            except specd.Error as error:
                self.assertIn("were aborted", str(error))
            return bool(seen)

        wait_until(answered, "the daemon")
        self.assertEqual((seen[0].tokens.tolist(), seen[0].total_kept), ([5], 1))

    def test_a_stream_in_a_coroutine(self):
        engine, sequence = self.engine(stream_timeout_ms=PATIENCE_MS)
        rows = engine.rows(1)
        rows[:] = 0
        forward = threading.Event()

        def write():
            forward.wait()
            rows[:] = np.eye(V)[[2]]

        async def main():
            self.stream.launch(write)
            task = asyncio.create_task(
                engine.averify(None, {sequence: []}, cuda_stream=self.stream))
            await asyncio.sleep(0.01)
            self.assertFalse(task.done())
            forward.set()
            return await task

        result, = asyncio.run(main())
        self.assertEqual(result.tokens.tolist(), [2])


if __name__ == "__main__":
    unittest.main()
