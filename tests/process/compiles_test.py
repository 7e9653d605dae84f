"""Compiles of constraints behind a real daemon: one engine's failing compile disturbs no other engine."""

import json
import threading
import unittest

import numpy as np

import specd
from support import PATIENCE_S, TOKENIZER, ProcessTest

# Refused when the CPU time of a compile is used up.
HEAVY = ["a?" * count for count in range(16000, 16003)]


def texts_of_ids():
    """The text of each id of the toy tokenizer, where it is printable ASCII."""
    vocab = json.loads(TOKENIZER.read_text())["model"]["vocab"]
    return {i: token.replace("\u0120", " ").replace("\u010a", "\n") for token, i in vocab.items()}


IDS = {text: i for i, text in texts_of_ids().items()}
VOCAB_SIZE = 1 + max(IDS.values())


def constrained(pattern, **params):
    return specd.SamplingParams(structured_outputs=specd.StructuredOutputs(regex=pattern), **params)


class NeighbourTest(ProcessTest):
    def attach(self):
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=VOCAB_SIZE, max_batch=4, max_draft=4)
        self.addCleanup(engine.close)
        return engine

    def test_a_failing_compile_of_one_engine_does_not_disturb_the_rounds_of_another(self):
        # Long compiles have a low priority, so 2 s of CPU could take longer than a call waits.
        self.daemon("--compile_ms=200")
        failing = self.attach()
        engine = self.attach()
        wanted = [IDS[digit] for digit in "12345"]
        rows = np.zeros((5, VOCAB_SIZE), np.float32)
        rows[range(5), wanted] = 9
        begun = threading.Event()
        refusals = []

        def open_all():
            begun.set()
            for pattern in HEAVY:
                try:
                    failing.open(constrained(pattern))
                except specd.Error as error:
                    refusals.append(str(error))

        sequence = engine.open(constrained("[0-9]+", temperature=0, max_tokens=1 << 20))
        opener = threading.Thread(target=open_all)
        opener.start()
        self.assertTrue(begun.wait(PATIENCE_S))
        num_rounds = 0
        while opener.is_alive():
            (result,) = engine.verify(rows, {sequence: wanted[:4]})
            self.assertEqual((result.status, result.tokens.tolist()), ("ok", wanted))
            num_rounds += 1
        opener.join()
        self.assertEqual(len(refusals), len(HEAVY))
        for refusal in refusals:
            self.assertIn("grammar: ", refusal)
        # A round that waited for a compile would make one for each.
        self.assertGreater(num_rounds, 2 * len(HEAVY))
        # Each of them opens what is right.
        failing.open(constrained("a?b"))
        engine.open(constrained("a?b"))


if __name__ == "__main__":
    unittest.main()
