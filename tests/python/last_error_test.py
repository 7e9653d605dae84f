"""Why the library did not do what it was asked for, also where that is no exception: over the
pretended device of tests/tools/pretended_engine.cc."""

import asyncio
import concurrent.futures
import ctypes
import os
import unittest

import numpy as np

import specd

V = 8
DEVICE = ctypes.CDLL(os.environ["SPECD_LIBRARY"])


class LastErrorTest(unittest.TestCase):
    # Bug: of a device error there was nothing but the status.
    def test_a_result_with_device_error_has_its_reason_there(self):
        engine = specd.Engine("embedded:cuda", vocab_size=V, max_batch=1, max_draft=1)
        self.addCleanup(engine.close)
        sequence = engine.open(specd.SamplingParams(temperature=0))
        rows = np.eye(V, dtype=np.float32)[[3]]
        # The device takes no copies while a stream of the engine's is capturing.
        DEVICE.pretended_set_capturing(1)
        (failed,) = engine.verify(rows, {sequence: []}, strict=False)
        why = specd.last_error()
        with self.assertRaisesRegex(specd.RoundError, "not allowed while a stream is capturing"):
            engine.verify(rows, {sequence: []})
        with self.assertRaisesRegex(specd.RoundError, "not allowed while a stream is capturing"):
            engine.verify_batch(rows, [sequence.handle])
        DEVICE.pretended_set_capturing(0)
        self.assertEqual((failed.status, failed.detail, failed.tokens.size), ("device_error", why, 0))
        self.assertIn("not allowed while a stream is capturing", why)
        # Nothing has changed, and the same round can be run again.
        (result,) = engine.verify(rows, {sequence: []})
        self.assertEqual((result.status, result.tokens.tolist()), ("ok", [3]))

    def test_a_coroutine_has_the_reason_too(self):
        # Bug: the text stayed with the thread that waits for coroutines.
        engine = specd.Engine("embedded:cuda", vocab_size=V, max_batch=2, max_draft=1)
        self.addCleanup(engine.close)
        first, second = (engine.open(specd.SamplingParams(temperature=0)) for _ in "ab")
        nan = np.full((1, V), np.nan, np.float32)
        rows = np.eye(V, dtype=np.float32)[[3]]

        async def answers():
            DEVICE.pretended_set_capturing(1)
            (failed,) = await engine.averify(rows, {first: []}, strict=False)
            DEVICE.pretended_set_capturing(0)
            (fine,) = await engine.averify(rows, {first: []})
            (bad,) = await engine.averify(nan, {second: []}, strict=False)
            return failed, fine, bad

        with self.assertRaises(specd.Error):  # which is not the reason
            engine.open(specd.SamplingParams(temperature=-1))
        failed, fine, bad = asyncio.run(answers())
        self.assertEqual(failed.status, "device_error")
        self.assertIn("not allowed while a stream is capturing", failed.detail)
        self.assertEqual((fine.status, fine.detail, fine.tokens.tolist()), ("ok", None, [3]))
        self.assertIn("NaN", bad.detail)

    def test_it_is_the_text_of_what_was_refused_last_in_this_thread(self):
        for uri in ("embedded:cuda9", "embedded:tpu"):
            with self.assertRaises(specd.Error) as caught:
                specd.Engine(uri, vocab_size=V)
            self.assertIn(uri, specd.last_error())
            self.assertEqual(specd.last_error(), caught.exception.text)
        with concurrent.futures.ThreadPoolExecutor(1) as another:
            self.assertEqual(another.submit(specd.last_error).result(), "")


if __name__ == "__main__":
    unittest.main()
