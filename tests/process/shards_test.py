"""Several specd-detok share the streams of one daemon by the hash of their request ids."""

import json
import unittest

from support import TOKENIZER, wait_until
from recovery_test import PROMPTS, Reader, RecoveryCase

# Of PROMPTS among two shards, by Python's integers (ipc/events/text_shard.h).
SHARDS = {"The daemon": 1, "A round": 1, "The engine": 0, "The library": 0}
SHARD_OF_WARM = 1


class ShardsTest(RecoveryCase):
    def endpoint(self, shard):
        return f"ipc://{self.socket}.{shard}.text"

    def two(self):
        """A daemon with two detokenizers, both alive."""
        self.watched = self.daemon("--detokenizer=process")
        self.detoks = [self.detokenizer(f"--shard={i}/2") for i in range(2)]
        self.wait_for_stops()
        Reader(self, 1, endpoint=self.endpoint(SHARD_OF_WARM), request_id="warm").result(self)

    def texts_of(self, *flags, disturb=lambda: None):
        readers = [Reader(self, 2, endpoint=self.endpoint(i)) for i in range(2)]
        engine = self.generate(*flags)
        self.readers, self.generator = readers, engine
        disturb()
        self.assertEqual(engine.wait(), 0, engine.stderr)
        texts = [reader.result(self) for reader in readers]
        for shard, of in enumerate(texts):
            self.assertEqual(set(of), {name for name in PROMPTS if SHARDS[name] == shard})
        return {**texts[0], **texts[1]}

    def test_each_makes_the_texts_of_its_streams_and_one_is_killed(self):
        flags = "--max_tokens=300", "--stop=" + "z" * 30, self.endless_text()
        stopped = "--max_tokens=300", "--stop=round", self.endless_text()
        expected, expected_stopped = self.undisturbed(*flags), self.undisturbed(*stopped)
        self.assertNotEqual(expected, expected_stopped)
        self.two()

        def kill():
            reader = self.readers[1]
            wait_until(lambda: len(reader.events) > 40, "some text")
            self.assertTrue(self.generator.running(), "the kill came too late")
            self.kill(self.detoks[1])
            self.detoks[1] = self.detokenizer("--shard=1/2")
        self.assertEqual(self.texts_of("--forward_ms=10", *flags, disturb=kill), expected)
        self.wait_for_stops()
        Reader(self, 1, endpoint=self.endpoint(SHARD_OF_WARM), request_id="warm").result(self)
        self.assertEqual(self.texts_of(*stopped), expected_stopped)
        self.assertEqual({reader.events[-1].finish for reader in self.readers}, {"stop"})

    def test_shards_that_cannot_be_are_refused_by_name(self):
        for shard, why in (("2/2", "shard = 2/2: 2 is outside 0 .. 1"),
                           ("0/0", "shard = 0/0: 0 shards are outside 1 .. 64"),
                           ("0/65", "65 shards are outside 1 .. 64"), ("one", "shard = one is not I/N")):
            detok = self.detokenizer(f"--shard={shard}")
            self.assertEqual(detok.wait(), 2)
            self.assertIn(why, detok.stderr)

    def test_a_detokenizer_that_does_not_fit_the_others_is_refused_by_name(self):
        self.two()
        alone = self.detokenizer()
        wait_until(lambda: "shards = 1, and detokenizers with --shard=I/2 are alive" in self.watched.stderr,
                   "a line about it")
        self.stop(alone)
        tokenizer = json.loads(TOKENIZER.read_text())
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
        other = self.folder / "other.json"
        other.write_text(json.dumps(tokenizer))
        self.kill(self.detoks[1])
        detok = self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={other}", "--shard=1/2")
        self.assertEqual(detok.wait(), 1)
        self.assertIn("--tokenizer: the file here has the hash", detok.stderr)


if __name__ == "__main__":
    unittest.main()
