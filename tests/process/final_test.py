"""The last word about a sequence with stop strings: Sequence.final waits for the text side.

Bug that this would catch: a stop string that completed in a sequence's last round
moved the end after the engine had read the length as its reason, and the engine had nothing to wait
for.
"""

import json
import signal
import unittest

import numpy as np

import specd
from support import ProcessTest, TOKENIZER, wait_until

V = 2048
VOCABULARY = json.loads(TOKENIZER.read_text())["model"]["vocab"]


def one_hot(*letters):
    """Rows after which a greedy sequence writes these letters."""
    rows = np.zeros((len(letters), V), np.float32)
    rows[np.arange(len(letters)), [VOCABULARY[letter] for letter in letters]] = 50
    return rows


class FinalTest(ProcessTest):
    def write(self, engine, letters, **params):
        """A sequence that writes the letters in one round, which is its last."""
        sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=len(letters), **params))
        draft = [VOCABULARY[letter] for letter in letters[:-1]]
        (result,) = engine.verify(one_hot(*letters), {sequence: draft})
        self.assertEqual((result.status, result.total_kept), ("ok", len(letters)))
        return sequence, result

    def check(self, engine):
        for i in range(100):
            sequence, result = self.write(engine, "axyb", stop="xy")
            # The reason of the round is provisional: here it is the length.
            self.assertEqual(result.finish_reason, "length")
            self.assertEqual(sequence.final(), specd.results.State("stop", 3, None), i)
            self.assertEqual(sequence.state(), specd.results.State("stop", 3, None))
            sequence.close()
        for letters, stop in (("axby", "xy"), ("axyb", None)):
            sequence, result = self.write(engine, letters, stop=stop)
            self.assertEqual(sequence.final(), specd.results.State("length", 4, None))
            sequence.close()

    def test_a_stop_string_in_the_last_round_is_waited_for(self):
        self.daemon()
        with specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine:
            self.check(engine)
            running = engine.open(specd.SamplingParams(stop="xy"))
            with self.assertRaisesRegex(specd.Error, "has not finished"):
                running.final()
            running.abort()
            self.assertEqual(running.final().finish_reason, "abort")

    def test_with_a_detokenizer_of_its_own_and_after_its_death(self):
        self.daemon("--detokenizer=process", "--text_grace=3")
        detok = self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}")
        with specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine:
            wait_until(lambda: self.accepts_stop_strings(engine), "the daemon to notice its detokenizer")
            self.check(engine)
            detok.stop()  # nothing comes, and nothing is certain
            sequence, _ = self.write(engine, "axyb", stop="xy")
            self.assertIsNone(sequence.final(timeout_ms=50))
            detok.signal(signal.SIGKILL)
            # The daemon gives the text side up after its grace. The end is final then.
            self.assertEqual(sequence.final().finish_reason, "length")

    def test_a_text_side_that_was_given_up_moves_no_end(self):
        # Bug: the last word was "length", and when the text side went on it became "stop".
        self.daemon("--detokenizer=process", "--text_grace=3")
        detok = self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}")
        client = self.client("--streams=1")
        with specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine:
            wait_until(lambda: self.accepts_stop_strings(engine), "the daemon to notice its detokenizer")
            detok.stop()
            sequence, _ = self.write(engine, "axyb", stop="xy")
            self.assertEqual(sequence.final().finish_reason, "length")
            detok.signal(signal.SIGCONT)
            wait_until(lambda: '"stop"' in client.stdout, "the text side to end the stream")
            wait_until(lambda: self.accepts_stop_strings(engine), "the daemon to notice its detokenizer")
            self.assertEqual(sequence.final(), specd.results.State("length", 4, None))
            self.assertEqual(sequence.state(), specd.results.State("length", 4, None))

    def test_the_wait_ends_with_the_daemon(self):
        for number, name in ((signal.SIGTERM, "SPECD_ERROR_SHUTDOWN"),
                             (signal.SIGKILL, "SPECD_ERROR_DISCONNECTED")):
            daemon = self.daemon("--detokenizer=process")
            detok = self.start("specd-detok", f"--specd=unix:{self.socket}",
                               f"--tokenizer={TOKENIZER}")
            with specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine:
                wait_until(lambda: self.accepts_stop_strings(engine),
                           "the daemon to notice its detokenizer")
                detok.stop()
                sequence, _ = self.write(engine, "axyb", stop="xy")
                daemon.signal(number)
                with self.assertRaises(specd.Error) as caught:
                    sequence.final()
                self.assertEqual(caught.exception.code_name, name)
            detok.signal(signal.SIGKILL)
            daemon.wait()

    def accepts_stop_strings(self, engine):
        try:
            engine.open(specd.SamplingParams(stop="xy")).close()
        except specd.Error:
            return False
        return True

    def test_inline_the_round_ends_the_sequence_and_subscribers_read_the_same(self):
        self.daemon()
        with (specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine,
              specd.subscribe(f"unix:{self.socket}", request_id="cut") as events):
            params = specd.SamplingParams(temperature=0, stop="xy", stops="inline")
            sequence = engine.open(params, request_id="cut")
            draft = [VOCABULARY[letter] for letter in "axy"]
            (result,) = engine.verify(one_hot(*"axyb"), {sequence: draft})
            self.assertEqual((result.finish_reason, result.total_kept), ("stop", 3))
            self.assertEqual(sequence.final(timeout_ms=0), specd.results.State("stop", 3, None))
            self.assertIsNone(result.text)  # a daemon's subscribers have it
            text = ""
            for event in events:
                text += event.text
                if event.kind == "end":
                    self.assertEqual((text, event.finish, event.message["stop"],
                                      event.message["tokens"]), ("a", "stop", "xy", 3))
                    break
            self.assertEqual(sequence.state(), specd.results.State("stop", 3, None))

    def test_inline_needs_no_text_side_and_no_text_side_no_inline(self):
        self.daemon("--detokenizer=process", "--text_grace=3")
        with specd.Engine(f"unix:{self.socket}", vocab_size=V) as engine:
            self.assertFalse(self.accepts_stop_strings(engine))
            sequence = engine.open(specd.SamplingParams(temperature=0, stop="xy", stops="inline"))
            fork = sequence.fork()
            for each in (sequence, fork):
                (result,) = engine.verify(one_hot(*"xy"), {each: [VOCABULARY["x"]]})
                self.assertEqual((result.finish_reason, result.total_kept), ("stop", 2))


if __name__ == "__main__":
    unittest.main()
