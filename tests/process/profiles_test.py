"""One daemon with two models: an engine names its own, and each stream has its tokenizer's text.

The daemon's thread and specd-detok read the same profile files. What is missing or misspelt is named.
"""

import json
import unittest

import numpy as np

import specd
from support import TOKENIZER, ProcessTest, wait_until


def sentence_piece():
    """A small tokenizer in Llama 2's style: spaces, letters, bytes."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += ["\u2581Hello", "\u2581world", "a", "{", "}", "\u2581{"]
    return {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": pieces[i], "special": True} for i in range(3)],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": {piece: id for id, piece in enumerate(pieces)},
                  "merges": []},
    }


VOCAB = sentence_piece()["model"]["vocab"]


class ProfilesTest(ProcessTest):
    def profile(self, name, **facts):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(facts))
        return f"--profile={name}={path}"

    def flags(self):
        """A model without a name, and two with one."""
        (self.folder / "tokenizer.json").write_text(json.dumps(sentence_piece()))
        return [f"--tokenizer={TOKENIZER}", "--eos_token_ids=0",
                self.profile("pieces", tokenizer="tokenizer.json", eos_tokens=["</s>"],
                             grammar_whitespace="compact"),
                self.profile("toy", tokenizer=str(TOKENIZER), eos_token_ids=[1])]

    def serve(self, *more):
        daemon = self.start("specd", f"--listen=unix:{self.socket}", *self.flags(), *more)
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertTrue(daemon.running(), daemon.stderr)
        return f"unix:{self.socket}"

    def two_streams(self, uri):
        """The same ids in two models, and what the subscriber reads."""
        client = self.client("--streams=2")
        ids = [VOCAB[piece] for piece in ("\u2581Hello", "<0xC3>", "<0xA9>", "\u2581world")]
        toy = json.loads(TOKENIZER.read_text())["model"]["vocab"]
        letters = [toy[letter] for letter in "abcd"]
        for options, size, wanted, name in (({"profile": "pieces"}, len(VOCAB), ids, "p"),
                                            ({}, 2048, letters, "t")):
            with specd.Engine(uri, vocab_size=size, max_draft=4, **options) as engine:
                sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=4),
                                       request_id=name)
                rows = np.zeros((4, size), np.float32)
                rows[range(4), wanted] = 9
                result, = engine.verify(rows, {sequence: wanted[:3]})
                self.assertEqual(result.finish_reason, "length")
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertEqual(self.texts(client), {"p": "Helloé world", "t": "abcd"})

    def test_text_of_two_tokenizers_in_the_daemons_thread(self):
        self.two_streams(self.serve())

    def test_text_of_two_tokenizers_in_specd_detok(self):
        uri = self.serve("--detokenizer=process")
        detok = self.start("specd-detok", f"--specd={uri}",
                           *[flag for flag in self.flags() if "eos_token_ids" not in flag])
        wait_until(lambda: "token events from" in detok.stderr or not detok.running(), "specd-detok")
        self.two_streams(uri)

    def test_an_engine_has_the_facts_of_the_model_that_it_names(self):
        uri = self.serve()
        with specd.Engine(uri, vocab_size=len(VOCAB), profile="pieces") as engine:
            # The EOS token and the whitespace are those of the profile.
            params = specd.SamplingParams(
                temperature=0, structured_outputs=specd.StructuredOutputs(json={"type": "object"}))
            sequence = engine.open(params)
            rows = np.zeros((1, len(VOCAB)), np.float32)
            rows[0, VOCAB["\u2581{"]] = 3
            rows[0, VOCAB["{"]] = 2
            result, = engine.verify(rows, {sequence: []})
            self.assertEqual(result.tokens.tolist(), [VOCAB["{"]])
            rows[0, VOCAB["<0x20>"]] = 3
            rows[0, VOCAB["}"]] = 2
            result, = engine.verify(rows, {sequence: []})
            self.assertEqual(result.tokens.tolist(), [VOCAB["}"]])
            flexible = specd.StructuredOutputs(json={"type": "object"}, whitespace="flexible")
            sequence = engine.open(specd.SamplingParams(temperature=0, structured_outputs=flexible))
            engine.verify(rows, {sequence: []})
            result, = engine.verify(rows, {sequence: []})
            self.assertEqual(result.tokens.tolist(), [VOCAB["<0x20>"]])
            sequence = engine.open(specd.SamplingParams(temperature=0))
            result, = engine.verify(np.eye(len(VOCAB))[[VOCAB["</s>"]]], {sequence: []})
            self.assertEqual((result.finish_reason, result.stop_token), ("stop", VOCAB["</s>"]))
        with specd.Engine(uri, vocab_size=2048, profile="toy") as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0))
            result, = engine.verify(np.eye(2048)[[1]], {sequence: []})
            self.assertEqual(result.stop_token, 1)


if __name__ == "__main__":
    unittest.main()
