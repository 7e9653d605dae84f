"""Result.text of an embedded engine: the text of its tokens, and where a stop string ends it.

The toy engine's tokenizer gives ids their text, which this file reads without any code of specd.
"""

import asyncio
import unittest

import numpy as np

import specd
from interrupts import interrupted_after
from toy_tokenizer import TOKENIZER, texts_of_ids

VOCAB = 2048
TEXTS = texts_of_ids()
ID_OF = {text: i for i, text in TEXTS.items()}


def ids_of(text):
    """One id for each byte."""
    return [ID_OF[bytes([byte])] for byte in text.encode()]


class InlineTextTest(unittest.TestCase):
    def setUp(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=VOCAB, max_draft=3, max_batch=4,
                                   tokenizer=str(TOKENIZER))
        self.addCleanup(self.engine.close)

    def open(self, **fields):
        return self.engine.open(specd.SamplingParams(temperature=0, max_tokens=100, **fields))

    def rows(self, ids):
        """Rows whose argmax are these ids."""
        rows = np.zeros((len(ids), VOCAB), np.float32)
        rows[range(len(ids)), ids] = 1
        return rows

    def step(self, sequence, ids):
        """A round that keeps these ids, all but the last as drafts."""
        return self.engine.verify(self.rows(ids), {sequence: ids[:-1]})[0]

    def test_the_text_of_each_round_and_its_offsets(self):
        sequence = self.open(stops="inline")
        self.assertTrue(sequence.has_text)
        euro = "a\u20ac".encode()
        ids = [ID_OF[bytes([byte])] for byte in euro]
        first = self.step(sequence, ids[:3])
        self.assertEqual((first.text, first.text_offset, first.stop_string), ("a", 0, None))
        self.assertEqual(first.text_ends.tolist(), [1, 1, 1])  # the character is not complete
        second = self.step(sequence, [ids[3], *ids_of("b")])
        self.assertEqual((second.text, second.text_offset), ("\u20acb", 1))
        self.assertEqual(second.text_ends.tolist(), [4, 5])
        again = sequence.text()
        self.assertEqual((again.text, again.byte_offset, again.token_offset), ("\u20acb", 1, 3))

    def test_the_text_of_an_interrupted_round_is_not_that_of_the_next(self):
        # Bug: a round like the ones before it, interrupted, left its text for the next Result.
        sequence, rows = self.open(stops="inline"), self.engine.rows(1)
        for i, text in enumerate("abcde"):
            rows[:] = 0
            rows[0, ids_of(text)] = 1
            if text == "d":
                with interrupted_after("specd_poll"), interrupted_after("specd_poll_batch"):
                    with self.assertRaises(KeyboardInterrupt):
                        self.engine.verify(rows, {sequence: ()})
                self.engine.drain()
                continue
            result, = self.engine.verify(rows, {sequence: ()})
            self.assertEqual((result.text, result.text_offset, result.text_ends.tolist()), (text, i, [i + 1]))

    def test_a_stop_string_ends_the_round(self):
        sequence = self.open(stop=["x", "end"])
        self.assertEqual(self.step(sequence, ids_of("be e")).text, "be ")
        result = self.step(sequence, ids_of("nd!"))
        self.assertEqual(result.tokens.tolist(), ids_of("nd"))
        self.assertEqual((result.text, result.finish_reason, result.stop_string, result.stop_token),
                         ("", "stop", "end", None))
        self.assertEqual(result.text_ends.tolist(), [3, 3])
        self.assertEqual(sequence.final(0), ("stop", 6, None))
        late, = self.engine.verify(self.rows(ids_of("a")), {sequence: []})
        self.assertEqual((late.status, late.text), ("finished", None))

    def test_a_pattern_ends_the_round_as_a_stop_string_does(self):
        sequence = self.open(stop=["zz"], stop_regex=["\\n(?:User|Human) ?:"])
        self.assertEqual(self.step(sequence, ids_of("ok\nU")).text, "ok")
        result = self.step(sequence, ids_of("ser:"))
        self.assertEqual((result.text, result.finish_reason, result.stop_string),
                         ("", "stop", "\\n(?:User|Human) ?:"))
        with self.assertRaisesRegex(specd.Error, "stop_regex.0.*1024 bytes"):
            self.open(stop_regex="<.*>")

    def test_logprobs_have_the_bytes_of_their_ids(self):
        sequence = self.open(stops="inline", logprobs=2)
        euro = [ID_OF[bytes([byte])] for byte in "\u20ac".encode()]
        result = self.step(sequence, euro)
        own = [logprob[token].token_bytes for logprob, token in zip(result.logprobs, euro)]
        self.assertEqual(own, [b"\xe2", b"\x82", b"\xac"])
        for logprobs in result.logprobs:
            for token, logprob in logprobs.items():
                self.assertEqual(logprob.token_bytes, TEXTS.get(token, b"<|endoftext|>"))
        plain = self.step(self.open(logprobs=0), euro)
        self.assertIsNone(plain.logprobs[0][euro[0]].token_bytes)

    def test_the_thought_of_a_model_is_told_apart_from_the_answer(self):
        with specd.Engine("embedded:cpu", vocab_size=VOCAB, max_draft=7, tokenizer=str(TOKENIZER),
                          reasoning_start="<t>", reasoning_end="</t>") as engine:
            params = specd.SamplingParams(temperature=0, max_tokens=100, stops="inline")
            sequence = engine.open(params)

            def step(text):
                ids = ids_of(text)
                return engine.verify(self.rows(ids), {sequence: ids[:-1]})[0]

            first, second, third = step("hm</"), step("t>so"), step("</t>")
            self.assertEqual([each.reasoning for each in (first, second, third)], ["hm</", "t>", ""])
            self.assertEqual(second.text, "t>so")
            self.assertEqual(sequence.text().reasoning_tokens, 6)
            answer = engine.open(params, prompt_ids=ids_of("<t>x</t>"))
            ids = ids_of("yes")
            result, = engine.verify(self.rows(ids), {answer: ids[:-1]})
            self.assertEqual((result.text, result.reasoning), ("yes", ""))

    def test_sequences_of_a_batch_have_text_as_single_ones_have(self):
        # Bug: a sequence that open_batch opened had none in its results.
        params = [specd.SamplingParams(temperature=0, max_tokens=9, **fields)
                  for fields in ({}, {"stops": "inline"}, {"stop": "x"}, {"stop": ["x"]})]
        own = self.engine.open_batch(4, params)
        for sequence, text in zip(map(own.sequence, range(4)), (None, "ab", "ab", "ab")):
            self.assertEqual((self.step(sequence, ids_of("ab")).text, sequence.has_text),
                             (text, text is not None))
            sequence.close()
        shared = self.engine.open_batch(2, params[2])
        self.assertEqual(self.step(shared.sequence(1), ids_of("yxz")).text, "y")

    def test_forks_and_sequences_that_come_back_go_on(self):
        sequence = self.open(stop=["end"])
        self.step(sequence, ids_of("a e"))
        fork = sequence.fork()
        self.assertEqual(self.step(fork, ids_of("nd")).stop_string, "end")
        self.assertEqual(self.step(sequence, ids_of("ns")).text, "ens")
        params = specd.SamplingParams(temperature=0, stop=["end"], max_tokens=100)
        back = self.engine.open(params, output_ids=ids_of("a e"))
        result = self.step(back, ids_of("nd"))
        self.assertEqual((result.text, result.stop_string, result.total_kept), ("", "end", 5))

    def test_what_was_held_back_comes_with_an_abort(self):
        sequence = self.open(stop=["end"])
        self.assertEqual(self.step(sequence, ids_of("aen")).text, "a")
        sequence.abort()
        rest = sequence.text()
        self.assertEqual((rest.text, rest.byte_offset, rest.finish_reason), ("en", 1, "abort"))

    def test_several_rounds_in_flight_have_their_own_text(self):
        sequence = self.open(stops="inline")
        rounds = [self.engine.submit(self.rows(ids_of(part)), {sequence: ids_of(part)[:-1]})
                  for part in ("abc", "de", "\0f")]
        self.assertEqual([each.result()[0].text for each in rounds], ["abc", "de", "\0f"])

        async def more():
            return await self.engine.averify(self.rows(ids_of("g")), {sequence: []})
        self.assertEqual(asyncio.run(more())[0].text, "g")

    def test_a_sequence_that_did_not_ask_has_none(self):
        sequence = self.open()
        result = self.step(sequence, ids_of("abc"))
        self.assertEqual((result.text, result.text_ends), (None, None))
        with self.assertRaisesRegex(specd.Error, "stops = inline"):
            sequence.text()

    def test_without_a_tokenizer_it_is_refused_with_the_remedy(self):
        with specd.Engine("embedded:cpu", vocab_size=8) as engine:
            for fields in ({"stop": ["x"]}, {"stops": "inline"}):
                with self.assertRaisesRegex(specd.Error, "specd_options.tokenizer"):
                    engine.open(specd.SamplingParams(**fields))


if __name__ == "__main__":
    unittest.main()
