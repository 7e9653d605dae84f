"""The engines of constraints behind a real daemon: where xgrammar is not installed its name is refused with
the remedy; where it is, auto falls back to it; and one engine's failing compile disturbs no other engine.

SPECD_XGRAMMAR_DIR names a folder with the packages xgrammar and apache-tvm-ffi; without it, those of this
Python are taken. Where there are none the tests of that library are skipped, and with SPECD_REQUIRE_ORACLES
they fail.
"""

import json
import os
import pathlib
import sysconfig
import threading
import unittest

import numpy as np

import specd
from support import PATIENCE_S, TOKENIZER, ProcessTest

VARIABLE = "SPECD_XGRAMMAR_DIR"
XGRAMMAR_DIR = os.environ.get(VARIABLE, sysconfig.get_paths()["platlib"])
HAS_XGRAMMAR = (pathlib.Path(XGRAMMAR_DIR) / "xgrammar").is_dir()
# specd's own engine refuses this; xgrammar takes it and does not enforce it.
UNIQUE = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
# specd's own engine refuses these when the CPU time of a compile is used up.
HEAVY = ["a?" * count for count in range(16000, 16003)]


def texts_of_ids():
    """The text of each id of the toy tokenizer, where it is printable ASCII."""
    vocab = json.loads(TOKENIZER.read_text())["model"]["vocab"]
    return {i: token.replace("\u0120", " ").replace("\u010a", "\n") for token, i in vocab.items()}


TEXTS = texts_of_ids()
TEXTS_BY_TEXT = {text: i for i, text in TEXTS.items()}
VOCAB_SIZE = 1 + max(TEXTS)


def outputs(**fields):
    return specd.SamplingParams(max_tokens=200,
                                structured_outputs=specd.StructuredOutputs(**fields))


class BackendsTest(ProcessTest):
    def serve(self, directory=None, *arguments):
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        if directory is not None:
            environment[VARIABLE] = str(directory)
        self.daemon(*arguments, env=environment)

    def attach(self):
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=VOCAB_SIZE, max_batch=4, max_draft=4)
        self.addCleanup(engine.close)
        return engine

    def generate(self, engine, sequence, seed):
        """The text of a sequence over random rows that like JSON, and why it ended."""
        random = np.random.default_rng(seed)
        likely = [i for i, text in TEXTS.items() if set(text) <= set("[]0123456789,")]
        tokens = []
        while True:
            draft = random.choice(likely, 4).tolist()
            rows = random.normal(size=(5, VOCAB_SIZE)).astype(np.float32)
            rows[:, likely] += 4
            rows[:, TEXTS_BY_TEXT["]"]] += 4
            (result,) = engine.verify(rows, {sequence: draft})
            self.assertEqual(result.status, "ok")
            tokens.extend(result.tokens.tolist())
            if result.finish_reason is not None:
                sequence.close()
                return "".join(TEXTS[i] for i in tokens if i != result.stop_token), result.finish_reason


class AbsentTest(BackendsTest):
    def check_refusals(self, *words):
        engine = self.attach()
        with self.assertRaises(specd.Error) as by_name:
            engine.open(outputs(json=UNIQUE, backend="xgrammar"))
        for part in ("xgrammar", "pip install --no-deps --target DIR xgrammar==", "apache-tvm-ffi==",
                     f"set {VARIABLE}=DIR", *words):
            self.assertIn(part, str(by_name.exception))
        with self.assertRaises(specd.Error) as by_auto:
            engine.open(outputs(json=UNIQUE))
        with self.assertRaises(specd.Error) as by_own:
            engine.open(outputs(json=UNIQUE, backend="specd"))
        self.assertEqual(str(by_auto.exception), str(by_own.exception))
        self.assertIn("uniqueItems", str(by_auto.exception))
        self.assertNotIn("pip install", str(by_auto.exception))
        # The daemon and its own engine go on.
        sequence = engine.open(outputs(json={"type": "array", "items": {"type": "integer"}}))
        self.assertEqual(sequence.warnings, [])
        text, finish = self.generate(engine, sequence, 1)
        if finish == "stop":
            self.assertTrue(all(type(item) is int for item in json.loads(text)), text)

    def test_without_xgrammar_its_name_is_refused_with_the_command_that_installs_it(self):
        self.serve()
        self.check_refusals("is not set")

    def test_a_folder_without_the_packages_is_named(self):
        self.serve(self.folder)
        self.check_refusals(str(self.folder), "has no package apache-tvm-ffi")


@unittest.skipUnless(HAS_XGRAMMAR or os.environ.get("SPECD_REQUIRE_ORACLES"),
                     f"{XGRAMMAR_DIR} has no package xgrammar: set {VARIABLE}")
class PresentTest(BackendsTest):
    def test_auto_takes_xgrammar_where_our_engine_refuses_and_says_what_is_not_enforced(self):
        self.serve(XGRAMMAR_DIR)
        engine = self.attach()
        num_stopped = 0
        for seed in range(8):
            sequence = engine.open(outputs(json=UNIQUE))
            self.assertEqual(len(sequence.warnings), 1)
            self.assertIn("uniqueItems", sequence.warnings[0])
            text, finish = self.generate(engine, sequence, seed)
            if finish == "stop":
                self.assertTrue(all(type(item) is int for item in json.loads(text)), text)
                num_stopped += 1
        self.assertGreater(num_stopped, 3)
        with self.assertRaisesRegex(specd.Error, "uniqueItems"):
            engine.open(outputs(json=UNIQUE, backend="specd"))
        # What our engine takes stays with it, and has no warning.
        self.assertEqual(engine.open(outputs(regex="[0-9]+")).warnings, [])

    def test_a_compile_that_fails_in_the_library_is_refused_and_others_go_on(self):
        self.serve(XGRAMMAR_DIR)
        engine = self.attach()
        other = self.attach()
        for fields in ({"regex": "("}, {"grammar": "root ::= ("}, {"json": {"type": "nothing"}}):
            with self.assertRaisesRegex(specd.Error, "grammar: "):
                engine.open(outputs(backend="xgrammar", **fields))
            text, finish = self.generate(other, other.open(outputs(json=UNIQUE)), 3)
            if finish == "stop":
                self.assertTrue(all(type(item) is int for item in json.loads(text)), text)


class NeighbourTest(BackendsTest):
    def test_a_failing_compile_of_one_engine_does_not_disturb_the_rounds_of_another(self):
        # Long compiles have a low priority, so 2 s of CPU could take longer than a call waits.
        self.serve(None, "--compile_ms=200")
        failing = self.attach()
        engine = self.attach()
        wanted = [TEXTS_BY_TEXT[digit] for digit in "12345"]
        rows = np.zeros((5, VOCAB_SIZE), np.float32)
        rows[range(5), wanted] = 9
        begun = threading.Event()
        refusals = []

        def open_all():
            begun.set()
            for pattern in HEAVY:
                try:
                    failing.open(outputs(regex=pattern))
                except specd.Error as error:
                    refusals.append(str(error))

        params = specd.SamplingParams(
            temperature=0, max_tokens=1 << 20,
            structured_outputs=specd.StructuredOutputs(regex="[0-9]+"))
        sequence = engine.open(params)
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
        failing.open(outputs(regex="a?b"))
        engine.open(outputs(regex="a?b"))


if __name__ == "__main__":
    unittest.main()
