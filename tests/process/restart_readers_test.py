"""Streams go on when their daemon is killed or restarted: subscribers get every byte and every id once.

The reference is a run of the same engine whose daemon nobody touches.
"""

import ctypes
import unittest

import numpy as np

import specd
from specd import _library, _structs
from recovery_test import Reader
from restart_test import V, row
from subscriber_test import PeerCase
from support import TOKENIZER, wait_until


class ReaderTest(PeerCase):
    """Subscribers of text and of ids, while daemons come and go under a live engine."""

    PROMPTS = ["The daemon", "A round", "The engine", "The library"]

    def run_once(self, disturb, *, flags=(), start=lambda: None, engine_flags=()):
        daemon = self.daemon(*flags)
        start()
        readers = [Reader(self, len(self.PROMPTS)), Reader(self, 1, request_id=self.PROMPTS[1]),
                   Reader(self, len(self.PROMPTS), ids=True)]
        engine = self.engine(f"--prompt={'|'.join(self.PROMPTS)}", "--print=none", "--draft=3",
                             "--drafts=sampled", "--stats=none", self.endless_text(), *engine_flags)
        daemon = disturb(daemon, engine, readers)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        found = [reader.result(self) for reader in readers]
        self.assertEqual(found[1], {self.PROMPTS[1]: found[0][self.PROMPTS[1]]})
        # Nobody is told of a stream twice.
        for reader in readers[0], readers[2]:
            for kind in "open", "end":
                names = [event.request_id for event in reader.events if event.kind == kind]
                if kind == "open":
                    self.assertEqual(sorted(names), sorted(self.PROMPTS))
                self.assertEqual(len(names), len(self.PROMPTS))
        self.stop(daemon)
        return found

    def disturbed(self, flags=(), start=lambda: None):
        engine_flags = "--max_tokens=300", "--temperature=0.8"
        expected = self.run_once(lambda daemon, engine, readers: daemon, flags=flags, start=start,
                                 engine_flags=engine_flags)

        def disturb(daemon, engine, readers):
            for end in (self.kill, self.stop, self.kill, self.stop, self.kill):
                seen = len(readers[0].events)
                wait_until(lambda: len(readers[0].events) > seen + 10 or not engine.running(), "some text")
                self.assertTrue(engine.running(), "the restarts came too late")
                end(daemon)
                daemon = self.daemon(*flags)
            return daemon

        found = self.run_once(disturb, flags=flags, start=start,
                              engine_flags=(*engine_flags, "--forward_ms=40", "--reconnect_ms=60000"))
        self.assertEqual(found, expected)

    def test_every_byte_and_every_id_comes_once_while_daemons_come_and_go(self):
        self.disturbed()

    def test_a_detokenizer_of_its_own_goes_on_with_the_next_daemon(self):
        self.disturbed(("--detokenizer=process",), self.detokenizer)

    def detokenizer(self):
        self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}")

    def test_streams_that_no_engine_opens_again_are_lost_by_name(self):
        daemon = self.daemon()
        reader = Reader(self, 1, request_id="The daemon")
        engine = self.engine("--prompt=The daemon", "--print=none", "--max_tokens=400", "--forward_ms=10",
                             self.endless_text())
        wait_until(lambda: len(reader.events) > 20, "some text")
        self.kill(daemon)
        self.assertEqual(engine.wait(), 3)
        daemon = self.daemon()
        reader.join(60)
        self.assertEqual(reader.events[-1].kind, "lost")
        self.assertIn("the daemon has ended", reader.events[-1].why)
        self.stop(daemon)


class IdleEngineTest(PeerCase):
    """An engine that makes no call does not find the next daemon."""

    def begin(self, num_ends):
        """An engine with a sequence that has half of its tokens, and readers of its text and its ids."""
        daemon = self.daemon()
        readers = [Reader(self, num_ends, ids=ids) for ids in (False, True)]
        self.engine = specd.Engine(f"unix:{self.socket}", vocab_size=V, max_draft=3, reconnect_ms=60_000)
        self.addCleanup(self.engine.close)
        self.sequence = self.engine.open(specd.SamplingParams(seed=5, max_tokens=12), request_id="idle")
        self.tokens = []
        self.rounds(6)
        wait_until(lambda: len(readers[0].events) > 2 and len(readers[1].events) > 6, "the front of the stream")
        self.kill(daemon)
        return readers

    def rounds(self, count):
        for _ in range(count):
            result, = self.engine.verify(np.stack([row(self.tokens, "p")]), {self.sequence: []})
            self.tokens += result.tokens.tolist()

    def poll(self):
        """specd_poll without a round in flight."""
        completion = _structs.Completion(ctypes.sizeof(_structs.Completion), ctypes.sizeof(_structs.Result))
        _library.check(_library.load().specd_poll(self.engine.pointer, ctypes.byref(completion), 0))

    def ends_of(self, readers, daemon):
        """What follows the last opening that each reader has; with it, the ids are those of the engine."""
        self.rounds(6)
        ends = []
        for reader in readers:
            reader.join(60)
            self.assertIsNone(reader.error)
            self.assertEqual([event.missed for event in reader.events if event.missed], [])
            begin = max(i for i, event in enumerate(reader.events) if event.kind == "open")
            ends.append((reader.events[:begin], reader.events[begin:]))
            self.assertEqual(ends[-1][1][-1].kind, "end")
        self.assertEqual([id for event in ends[1][1] for id in event.ids], self.tokens)
        self.stop(daemon)
        return ends

    def test_a_poll_without_a_round_takes_the_engine_to_the_next_daemon(self):
        readers = self.begin(1)
        daemon = self.daemon()
        late = Reader(self, 1, request_id="idle")

        def is_told():
            self.poll()
            return late.events
        wait_until(is_told, "the stream at the next daemon")
        ends = self.ends_of([*readers, late], daemon)
        self.assertEqual([before for before, _ in ends], [[], [], []])
        texts = ["".join(event.text for event in events) for _, events in ends]
        self.assertEqual(texts[0], texts[2])

    def test_an_engine_that_comes_too_late_begins_its_streams_anew(self):
        # Bug: the text of an engine that paused for longer than readers wait never came to them.
        readers = self.begin(2)
        daemon = self.daemon()
        wait_until(lambda: all(reader.events[-1].kind == "lost" for reader in readers), "the loss of the stream")
        for before, events in self.ends_of(readers, daemon):
            self.assertIn("the daemon has ended", before[-1].why)
            self.assertEqual({event.stream for event in before} & {event.stream for event in events}, set())
            whole, front = ("".join(event.text for event in part) for part in (events, before))
            self.assertEqual(whole[:len(front)], front)


if __name__ == "__main__":
    unittest.main()
