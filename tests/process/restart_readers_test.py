"""Streams go on when their daemon is killed or restarted: subscribers get every byte and every id once.

The reference is a run of the same engine whose daemon nobody touches.
"""

import unittest

from recovery_test import Reader
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


if __name__ == "__main__":
    unittest.main()
