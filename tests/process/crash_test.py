"""kill -9 of each process once, and the orderly ends: no other process is disturbed, and nothing is
left."""

import signal
import unittest

from support import ProcessTest, TOKENIZER, wait_until

# Streams end when the model says so; with this many prompts two at a time there are always two open.
PROMPTS = "|".join(["The daemon", "A round", "The engine"] * 200)
BUSY = (f"--prompt={PROMPTS}", "--max_batch=2", "--temperature=1", "--forward_ms=5", "--print=none")


class CrashTest(ProcessTest):
    def busy(self, *flags):
        """A daemon, a subscriber, and an engine in the middle of its text."""
        daemon = self.daemon()
        client = self.client(*flags)
        engine = self.engine(*BUSY)
        wait_until(lambda: client.stdout.count('"text"') > 20 or not engine.running(), "text")
        self.assertTrue(engine.running(), engine.stderr)
        return daemon, client, engine

    def aborted(self, client):
        return [name for name, end in self.ends(client).items() if end["finish"] == "abort"]

    def cut_off(self, client):
        """The streams that were aborted, once all that began have ended. Two are open at most, and one
        where another has just come to its end by itself."""
        opened = {event["rid"] for event in self.events(client) if event["kind"] == "open"}
        return self.aborted(client) if opened <= self.ends(client).keys() else []

    def short_run(self, prompt="A short one"):
        engine = self.engine(f"--prompt={prompt}", "--max_tokens=20", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)

    def test_engine_killed(self):
        daemon, client, engine = self.busy()
        self.kill(engine)
        # Its two open streams end as aborted; what was confirmed stands and adds up.
        wait_until(lambda: len(self.cut_off(client)) in (1, 2), "the ends of what was open")
        self.texts(client)
        # Names and slots are free again: the next engine is served, by the same daemon.
        self.short_run(self.aborted(client)[0])
        self.stop(daemon)

    def test_daemon_killed(self):
        daemon, client, engine = self.busy("--timeout_ms=1000")
        self.kill(daemon)
        self.assertEqual(engine.wait(), 3)
        self.assertIn("daemon", engine.stderr)
        self.assertEqual(client.wait(), 3)
        # The files that it left do not keep the next one from starting.
        self.assertIn("s", self.sockets())
        second = self.daemon()
        self.short_run()
        self.stop(second)
        self.assertEqual(self.sockets(), [])

    def test_terminated_daemon_drains(self):
        daemon, client, engine = self.busy()
        self.stop(daemon)
        self.assertIn(engine.wait(), (1, 3), engine.stderr)
        self.assertIn("daemon", engine.stderr)
        # Every stream got its end before the daemon was gone, and no text is missing.
        wait_until(lambda: len(self.cut_off(client)) in (1, 2), "the ends of what was open")
        self.texts(client)
        self.assertEqual([path.name for path in self.folder.iterdir()
                          if not path.name.startswith("ready")], [])

    def test_detokenizer_killed(self):
        daemon = self.daemon("--detokenizer=process", "--text_grace=3")
        start = lambda: self.start("specd-detok", f"--specd=unix:{self.socket}",
                                   f"--tokenizer={TOKENIZER}")
        detok = start()
        client = self.client()
        stop = ("--stop=no such text", "--print=none", "--temperature=2", "--forward_ms=5",
                f"--prompt={PROMPTS}", "--max_batch=2", "--max_tokens=100000")

        def began():
            self.watched = self.engine(*stop)
            wait_until(lambda: '"text"' in client.stdout or not self.watched.running(), "text")
            return self.watched.running()
        wait_until(began, "the daemon to notice its detokenizer")
        self.kill(detok)
        # No text side looks for its stop strings, and none comes in time: open streams are aborted, and
        # the next prompt is refused until somebody does.
        self.assertEqual(self.watched.wait(), 1)
        self.assertIn("specd-detok", self.watched.stderr)
        plain = self.engine("--prompt=The daemon", "--max_tokens=20", "--print=none")
        self.assertEqual(plain.wait(), 0, plain.stderr)
        # Its successor takes over the sockets that it left.
        detok = start()

        def served():
            engine = self.engine("--prompt=The daemon", "--stop=.", "--max_tokens=50",
                                 "--print=none")
            return engine.wait() == 0
        wait_until(served, "the new detokenizer")
        self.stop(daemon)
        detok.signal(signal.SIGTERM)
        self.assertEqual(detok.wait(), 0, detok.stderr)
        self.assertEqual(self.sockets(), [])

    def test_hangup_and_quit_drain(self):
        """Bug: SIGHUP and SIGQUIT ended both programs without a drain, and left their sockets behind."""
        for number in (signal.SIGHUP, signal.SIGQUIT):
            daemon = self.daemon("--detokenizer=process")
            detok = self.start("specd-detok", f"--specd=unix:{self.socket}", f"--tokenizer={TOKENIZER}")
            wait_until(lambda: "text on" in detok.stderr or not detok.running(), "specd-detok")
            self.assertGreater(len(self.sockets()), 2)
            for process in (daemon, detok):
                process.signal(number)
                self.assertEqual(process.wait(), 0, process.stderr)
            self.assertIn("stopped", daemon.stderr)
            self.assertEqual(self.sockets(), [])

    def test_hangup_under_nohup_is_ignored(self):
        def ignore():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        daemon = self.daemon("--detokenizer=off", preexec_fn=ignore)
        daemon.signal(signal.SIGHUP)
        engine = self.engine("--prompt=The daemon", "--max_tokens=20", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertTrue(daemon.running(), daemon.stderr)
        self.stop(daemon)

    def test_interrupted_engine_ends_its_streams(self):
        daemon, client, engine = self.busy()
        engine.signal(signal.SIGINT)
        self.assertEqual(engine.wait(), 130)
        wait_until(lambda: len(self.cut_off(client)) in (1, 2), "the ends of what was open")
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
