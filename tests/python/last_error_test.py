"""Why the library did not do what it was asked for, also where that is no exception: over the
pretended device of tests/tools/pretended_engine.cc."""

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
        DEVICE.pretended_set_capturing(0)
        self.assertEqual((failed.status, failed.detail, failed.tokens.size), ("device_error", None, 0))
        self.assertIn("not allowed while a stream is capturing", specd.last_error())
        # Nothing has changed, and the same round can be run again.
        (result,) = engine.verify(rows, {sequence: []})
        self.assertEqual((result.status, result.tokens.tolist()), ("ok", [3]))

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
