"""Nothing of a stream is lost: detokenizers and subscribers that are killed, stopped or late.

Every byte and every id comes once and in order, compared with the ids that the engine was given and with
the text of a detokenizer that nothing happened to.
"""

import collections
import json
import pathlib
import signal
import sys
import threading
import unittest

import numpy as np

import specd
from support import TOKENIZER, wait_until
from subscriber_test import PeerCase, frame, send_until_cut_off

PROMPTS = ["The daemon", "A round", "The engine", "The library"]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


SUBSCRIBER = """
import json, sys, specd
ids, asked = [], 0
with specd.subscribe(sys.argv[1], ids=True, silence_ms=30000) as events:
    print("subscribed", file=sys.stderr, flush=True)
    for event in events:
        ids += event.ids
        asked += event.kind == "tokens" and event.scores is None
        if event.kind in ("end", "lost"):
            print(json.dumps({"ids": ids, "asked": asked}))
            sys.exit(event.kind != "end")
"""


class Reader(threading.Thread):
    """Reads a subscription until so many streams have ended."""

    def __init__(self, test, num_ends, **arguments):
        super().__init__(daemon=True)
        self.uri, self.num_ends, self.arguments = f"unix:{test.socket}", num_ends, arguments
        self.events, self.error, self.is_ready = [], None, threading.Event()
        self.start()
        test.assertTrue(self.is_ready.wait(60), "no subscription after 60 s")

    def run(self):
        try:
            with specd.subscribe(self.uri, silence_ms=30_000, **self.arguments) as events:
                self.is_ready.set()
                while self.num_ends > 0:
                    self.events.append(next(events))
                    self.num_ends -= self.events[-1].kind in ("end", "lost")
        except Exception as error:
            self.error = error
            self.is_ready.set()

    def result(self, test):
        """What each request has: its text, or its ids, and its end."""
        self.join(60)
        test.assertIsNone(self.error)
        test.assertFalse(self.is_alive(), "the streams have no end")
        test.assertEqual([event.why for event in self.events if event.kind == "lost"], [])
        texts, ids = collections.defaultdict(bytes), collections.defaultdict(list)
        for event in self.events:
            test.assertEqual(event.missed, 0)
            if event.kind == "open":
                continue
            if event.ids:
                test.assertEqual(event.offset, len(ids[event.request_id]))
                ids[event.request_id] += event.ids
            elif event.kind == "text" or event.text:
                test.assertEqual(event.offset, len(texts[event.request_id]))
                texts[event.request_id] += event.text.encode()
        return ids or {name: text.decode() for name, text in texts.items()}


class RecoveryTest(PeerCase):
    def generate(self, *flags, prompts=PROMPTS):
        return self.engine(f"--prompt={'|'.join(prompts)}", "--print=none", "--temperature=0", "--draft=0",
                           *flags)

    def detokenizer(self, *flags):
        return self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}", *flags)

    def wait_for_stops(self):
        def is_served():
            engine = self.engine("--prompt=warm", "--stop=.", "--max_tokens=2", "--print=none")
            return engine.wait() == 0
        wait_until(is_served, "the daemon to notice its detokenizer")

    def undisturbed(self, *flags):
        """The texts of these prompts in a daemon where nothing is killed."""
        daemon = self.daemon()
        reader = Reader(self, len(PROMPTS))
        self.assertEqual(self.generate(*flags).wait(), 0)
        texts = reader.result(self)
        self.stop(daemon)
        return texts

    def test_a_detokenizer_is_killed_again_and_again(self):
        flags = "--max_tokens=400", self.endless_text()
        expected = self.undisturbed(*flags)
        daemon = self.daemon("--detokenizer=process")
        detok = self.detokenizer()
        reader, named = Reader(self, len(PROMPTS)), Reader(self, 1, request_id=PROMPTS[0])
        ids = Reader(self, len(PROMPTS), ids=True)
        engine = self.generate("--forward_ms=10", *flags)
        for _ in range(4):
            seen = len(reader.events)
            wait_until(lambda: len(reader.events) > seen + 40 or not engine.running(), "some text")
            self.assertTrue(engine.running(), "the kills came too late")
            self.kill(detok)
            detok = self.detokenizer()
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(reader.result(self), expected)
        self.assertEqual(named.result(self), {PROMPTS[0]: expected[PROMPTS[0]]})
        self.assertEqual({name: len(each) for name, each in ids.result(self).items()},
                         dict.fromkeys(PROMPTS, 400))
        self.stop(detok)
        self.stop(daemon)

    def test_a_successor_finds_the_stop_string_that_came_while_nobody_looked(self):
        # Bug: streams with stop strings were aborted when their detokenizer was replaced.
        vocabulary = json.loads(TOKENIZER.read_text())["model"]["vocab"]
        self.daemon("--detokenizer=process")
        detok = self.detokenizer()
        self.wait_for_stops()

        def rows(*letters):
            made = np.zeros((len(letters), 2048), np.float32)
            made[np.arange(len(letters)), [vocabulary[letter] for letter in letters]] = 50
            return made
        reader = Reader(self, 1, request_id="r")
        with specd.Engine(f"unix:{self.socket}", vocab_size=2048) as engine:
            sequence = engine.open(specd.SamplingParams(temperature=0, max_tokens=100, stop="xy"),
                                   request_id="r")
            for letter in "abx":
                engine.verify(rows(letter), {sequence: []})
            wait_until(lambda: any(event.text for event in reader.events), "some text")
            self.kill(detok)
            for letter in "ycd":
                (result,) = engine.verify(rows(letter), {sequence: []})
                self.assertIsNone(result.finish_reason)
            self.detokenizer()
            wait_until(lambda: sequence.state().finish_reason is not None, "the stop string")
            self.assertEqual(sequence.final().finish_reason, "stop")
            self.assertEqual(sequence.state().kept_tokens, 4)
        self.assertEqual(reader.result(self), {"r": "ab"})
        self.assertEqual(reader.events[-1].finish, "stop")
        self.assertEqual(reader.events[-1].message["checksum"], fnv(b"ab"))

    def test_a_subscriber_comes_late_or_after_the_end(self):
        self.daemon()
        first, early = Reader(self, len(PROMPTS)), Reader(self, len(PROMPTS), ids=True)
        engine = self.generate("--max_tokens=120", "--forward_ms=10", self.endless_text())
        wait_until(lambda: sum(event.kind == "text" for event in first.events) > 40, "some text")
        late, late_ids = Reader(self, len(PROMPTS)), Reader(self, len(PROMPTS), ids=True)
        self.assertTrue(engine.running(), "the subscribers came too late")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(late.result(self), first.result(self))
        self.assertEqual(late_ids.result(self), early.result(self))
        after = Reader(self, 1, request_id=PROMPTS[1])
        self.assertEqual(after.result(self), {PROMPTS[1]: first.result(self)[PROMPTS[1]]})
        after = Reader(self, 1, request_id=PROMPTS[1], ids=True)
        self.assertEqual(after.result(self), {PROMPTS[1]: early.result(self)[PROMPTS[1]]})
        end = after.events[-1]
        ids = early.result(self)[PROMPTS[1]]
        self.assertEqual(end.message["checksum"], fnv(b"".join(each.to_bytes(4, "little") for each in ids)))

    def test_a_subscriber_that_was_stopped_and_lost_messages_has_every_id(self):
        # A subscriber that reads nothing has 4 MiB here, and the scores of 6000 tokens are more.
        daemon = self.daemon("--memory_mib=128")
        script = self.folder / "subscriber.py"
        script.write_text(SUBSCRIBER)
        subscriber = self.start(pathlib.Path(sys.executable), script, f"unix:{self.socket}")
        wait_until(lambda: "subscribed" in subscriber.stderr or not subscriber.running(), "the subscription")
        subscriber.stop()
        rng = np.random.default_rng(3)
        kept = []
        with specd.Engine(f"unix:{self.socket}", vocab_size=2048, max_batch=1, max_draft=0,
                          max_scores_per_token=65) as engine:
            sequence = engine.open(
                specd.SamplingParams(seed=1, max_tokens=6000, ignore_eos=True, logprobs=64), request_id="r")
            rows = rng.normal(size=(64, 1, 2048)).astype(np.float32)
            while sequence.state().finish_reason is None:
                (result,) = engine.verify(rows[len(kept) % 64], {sequence: []})
                kept += [int(each) for each in result.tokens]
        subscriber.signal(signal.SIGCONT)
        self.assertEqual(subscriber.wait(), 0, subscriber.stderr)
        wait_until(lambda: "messages lost" in daemon.stderr, "a line about the subscriber")
        got = json.loads(subscriber.stdout)
        self.assertEqual(got["ids"], kept)
        self.assertGreater(got["asked"], 0)
        self.assertLess(got["asked"], 6000)

    def test_a_subscriber_that_is_killed_takes_nothing_along(self):
        self.daemon()
        first = Reader(self, len(PROMPTS))
        victim = self.client()
        engine = self.generate("--max_tokens=120", "--forward_ms=10", self.endless_text())
        wait_until(lambda: sum(event.kind == "text" for event in first.events) > 40, "some text")
        self.kill(victim)
        successor = Reader(self, len(PROMPTS))
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(successor.result(self), first.result(self))

    def test_an_abort_from_outside_is_answered(self):
        import msgpack
        import zmq
        self.daemon()
        reader = Reader(self, 1)
        engine = self.generate("--max_tokens=100000", "--forward_ms=10", self.endless_text(),
                               prompts=PROMPTS[:1])
        wait_until(lambda: any(event.text for event in reader.events), "some text")
        with zmq.Context.instance().socket(zmq.REQ) as asker:
            asker.connect(f"ipc://{self.socket}.ask")

            def abort(name):
                asker.send(msgpack.packb({"v": 1, "ask": "abort", "rid": name}))
                self.assertTrue(asker.poll(30_000))
                return msgpack.unpackb(asker.recv()).get("error")
            self.assertIn('rid = "nobody"', abort("nobody"))
            self.assertIsNone(abort(PROMPTS[0]))
        self.assertEqual(engine.wait(), 0, engine.stderr)
        reader.result(self)
        self.assertEqual(reader.events[-1].finish, "abort")

    def test_hostile_askers_cost_little_and_are_told(self):
        import msgpack
        import zmq
        daemon = self.daemon()
        before = self.resident_bytes(daemon)
        for endpoint in "ask", "text_ask":
            for text, why in ((frame(b"", 1) + frame(b"x" * 5000), "5000 bytes"),
                              (frame(b"x" * 200, 1) * 1000, "is not empty"),
                              (frame(b"") * 1000, "of one frame")):
                lines = daemon.stderr.count(why)
                peer = self.peer(endpoint, b"REQ")
                send_until_cut_off(peer, text, times=10)
                wait_until(lambda: daemon.stderr.count(why) > lines or lines > 0, why)
            with zmq.Context.instance().socket(zmq.REQ) as asker:
                asker.connect(f"ipc://{self.socket}.{endpoint}")
                rng = np.random.default_rng(1)
                for bytes_of in ([rng.bytes(int(rng.integers(0, 200))) for _ in range(200)] +
                                 [msgpack.packb({"v": 1, "ask": "from", "stream": 2**64 - 1,
                                                 "offset": 2**64 - 1})]):
                    asker.send(bytes_of)
                    self.assertTrue(asker.poll(30_000))
                    self.assertIn("error", msgpack.unpackb(asker.recv()))
        self.assertLess(self.resident_bytes(daemon) - before, 16 * self.MIB)
        reader = Reader(self, len(PROMPTS))
        self.assertEqual(self.generate("--max_tokens=20").wait(), 0)
        self.assertEqual(set(reader.result(self)), set(PROMPTS))


if __name__ == "__main__":
    unittest.main()
