"""Text and stop strings of sequences that are opened again with their outputs, or forked, through a real
daemon and a detokenizer in a process of its own.

Bug that this would catch: such sequences were refused with stop strings, and a text
that began in the middle of a code point began with U+FFFD.
"""

import json
import unittest

import numpy as np

import specd
from support import ProcessTest, TOKENIZER, wait_until

V = 2048
VOCABULARY = json.loads(TOKENIZER.read_text())["model"]["vocab"]
# How a byte-level tokenizer writes the three bytes of the euro sign.
EURO = [VOCABULARY[letter] for letter in ("\u00e2", "\u0124", "\u00ac")]


def ids(letters):
    return [VOCABULARY[letter] for letter in letters]


class ReopenTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.daemon("--detokenizer=process")
        self.detok = self.start("specd-detok", f"--specd=unix:{self.socket}",
                                f"--tokenizer={TOKENIZER}")

    def connect(self):
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=V)
        wait_until(lambda: self.accepts_stop_strings(engine), "the daemon to notice its detokenizer")
        return engine

    def accepts_stop_strings(self, engine):
        try:
            engine.open(specd.SamplingParams(stop="xy")).close()
        except specd.Error:
            return False
        return True

    def open(self, engine, name, prompt=(), outputs=(), stop=None):
        return engine.open(specd.SamplingParams(temperature=0, max_tokens=9, stop=stop),
                           prompt_ids=prompt, output_ids=outputs, request_id=name)

    def read(self, client, *names):
        """The texts and the ends of these streams, once all have ended."""
        wait_until(lambda: set(names) <= set(self.ends(client)), "the streams to end")
        texts, ends = self.texts(client), self.ends(client)
        return {name: texts[name] for name in names}, {name: ends[name] for name in names}

    def write(self, sequence, tokens):
        """The sequence writes the tokens in one round."""
        rows = np.zeros((len(tokens), V), np.float32)
        rows[np.arange(len(tokens)), tokens] = 50
        (result,) = sequence.engine.verify(rows, {sequence: tokens[:-1]})
        self.assertEqual(result.status, "ok")
        return result

    def test_a_sequence_preempted_at_any_token_ends_as_without(self):
        client = self.client("--streams=99")
        with self.connect() as engine:
            for cut in (1, 2, 3):
                sequence = self.open(engine, f"first{cut}", stop=["bxyz"])
                self.write(sequence, ids("abxyzc"[:cut]))
                sequence.close()
                sequence = self.open(engine, f"then{cut}", prompt=ids("xyz"),
                                     outputs=ids("abxyzc"[:cut]), stop=["bxyz"])
                result = self.write(sequence, ids("abxyzc"[cut:]))
                self.assertEqual(result.total_kept, 6)
                wait_until(lambda: sequence.state().finish_reason == "stop", "the stop string")
                self.assertEqual(sequence.final(), specd.results.State("stop", 5, None))
                sequence.close()
        texts, ends = self.read(client, *(f"{name}{cut}" for name in ("first", "then")
                                          for cut in (1, 2, 3)))
        for cut in (1, 2, 3):
            # Only the text that was given at the preemption is more than without.
            self.assertEqual(texts[f"first{cut}"] + texts[f"then{cut}"], "abx"[:cut])
            end = ends[f"then{cut}"]
            self.assertEqual((end["stop"], end["tokens"], end["late"]), ("bxyz", 5, 1))

    def test_a_fork_finds_what_began_in_its_source(self):
        client = self.client("--streams=99")
        with self.connect() as engine:
            source = self.open(engine, "source", stop=["xy"])
            self.write(source, ids("ax"))
            copy = source.fork(request_id="copy")
            self.write(copy, ids("yb"))
            self.write(source, ids("bx") + EURO[:1])
            wait_until(lambda: copy.state().finish_reason == "stop", "the stop string")
            self.assertEqual(copy.final(), specd.results.State("stop", 3, None))
            other = source.fork(request_id="other")
            self.write(other, EURO[1:] + ids("b"))
            for sequence in (source, other):
                self.assertEqual(sequence.state().finish_reason, None)
                sequence.abort()
        texts, _ = self.read(client, "source", "copy", "other")
        # The source held its last x back when it was copied, so both have it.
        self.assertEqual(texts, {"source": "axbx\ufffd", "copy": "", "other": "x\u20acb"})


if __name__ == "__main__":
    unittest.main()
