"""Traces of real processes: the daemon's and an embedded engine's, a kill in the middle, the signal."""

import json
import pathlib
import re
import signal
import struct
import unittest

from support import ProcessTest, wait_until

PROMPTS = "|".join(["The daemon", "A round", "The engine"] * 200)
BUSY = (f"--prompt={PROMPTS}", "--max_batch=2", "--temperature=1", "--forward_ms=5", "--print=none")


def records(path):
    """The topics of a trace's messages in whole chunks, and whether the file is complete."""
    data = path.read_bytes()
    if len(data) < 8:  # the file was made a moment ago
        return [], False
    assert data[:8] == b"\x89MCAP0\r\n"
    topics, channels, offset = [], {}, 8
    while offset + 9 <= len(data):
        opcode, size = data[offset], struct.unpack_from("<Q", data, offset + 1)[0]
        if offset + 9 + size > len(data):
            break
        content = data[offset + 9:offset + 9 + size]
        if opcode == 6:
            name_bytes = struct.unpack_from("<I", content, 28)[0]
            chunk = content[40 + name_bytes:]
            place = 0
            while place < len(chunk):
                inner, length = chunk[place], struct.unpack_from("<Q", chunk, place + 1)[0]
                body = chunk[place + 9:place + 9 + length]
                place += 9 + length
                if inner == 4:
                    topic_bytes = struct.unpack_from("<I", body, 4)[0]
                    channels[struct.unpack_from("<H", body)[0]] = body[8:8 + topic_bytes].decode()
                elif inner == 5:
                    topics.append(channels[struct.unpack_from("<H", body)[0]])
        offset += 9 + size
    return topics, data.endswith(b"\x89MCAP0\r\n") and offset > 8


class TraceTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.traces = self.folder / "traces"

    def files(self):
        return sorted(self.traces.glob("*.mcap"), key=lambda path: int(path.stem.rsplit("-")[-1]))

    def rounds(self):
        return sum(records(path)[0].count("round") for path in self.files())

    def test_daemon_with_two_engines(self):
        daemon = self.daemon(f"--trace={self.traces}", "--trace_options=level=rows")
        num_rounds = []
        for prompt in ("One engine", "Another engine"):
            engine = self.engine(f"--prompt={prompt}", "--max_tokens=20", "--print=none")
            self.assertEqual(engine.wait(), 0, engine.stderr)
            num_rounds.append(json.loads(engine.stdout)["total"]["rounds"])
        self.stop(daemon)
        files = self.files()
        self.assertEqual(len(files), 2)
        for number, path in enumerate(files):
            self.assertRegex(path.name, rf"^specd-\d{{8}}T\d{{6}}Z-{daemon.process.pid}-s{number + 1}-")
            topics, is_complete = records(path)
            self.assertTrue(is_complete, path)
            self.assertEqual(topics[:2], ["info", "opening"])
            self.assertEqual(topics.count("round"), num_rounds[number])
            self.assertGreater(num_rounds[number], 1)
            self.assertEqual(topics[-1], "end")
            self.assertTrue(path.with_suffix(".rows").exists())
            self.assertEqual(path.stat().st_mode & 0o077, 0)

    def test_killed_daemon_leaves_whole_chunks(self):
        daemon = self.daemon(f"--trace={self.traces}", "--trace_options=level=rows")
        engine = self.engine(*BUSY)
        wait_until(lambda: self.rounds() > 100 or not engine.running(), "rounds in the file")
        self.assertTrue(engine.running(), engine.stderr)
        self.kill(daemon)
        engine.wait()
        (path,) = self.files()
        topics, is_complete = records(path)
        self.assertFalse(is_complete)
        self.assertGreater(topics.count("round"), 100)
        # The daemon starts again in the same directory.
        second = self.daemon(f"--trace={self.traces}")
        self.stop(second)

    def test_signal_writes_the_flight_recorder(self):
        daemon = self.daemon(f"--trace={self.traces}",
                             "--trace_options=flight=30,triggers=signal")
        engine = self.engine(*BUSY)
        wait_until(lambda: "session 1:" in daemon.stderr or not engine.running(), "the engine")
        def dumped(count):
            daemon.signal(signal.SIGUSR1)  # writes nothing where no round is new
            return len(self.files()) >= count

        for count in (1, 2):
            wait_until(lambda: dumped(count), "a trace")
        # A signal that is still under way may begin another file after any look.
        found = []

        def are_whole():
            found[:] = [records(path) for path in self.files()]
            return all(is_complete for _, is_complete in found)

        wait_until(are_whole, "whole traces")
        topics, _ = found[-1]
        self.assertEqual(topics[0], "info")
        self.assertLessEqual(topics.count("round"), 30)
        self.assertTrue(engine.running(), engine.stderr)
        engine.signal(signal.SIGINT)
        engine.wait()
        self.stop(daemon)
        # Each file is one of a signal: the end of the engine is no trigger.
        dumps = re.findall(r"trace .*signal: \d+ rounds in ", daemon.stderr)
        self.assertEqual(len(self.files()), len(dumps))

    def test_signal_without_a_trace(self):
        daemon = self.daemon()
        daemon.signal(signal.SIGUSR1)
        wait_until(lambda: "none is recorded" in daemon.stderr, "the log")
        self.stop(daemon)

    def test_embedded_engine(self):
        engine = self.engine("--prompt=The daemon", "--max_tokens=20", "--print=ids",
                             f"--trace={self.traces}", "--trace_options=level=rows,check=1",
                             uri="embedded:cpu")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        (path,) = self.files()
        self.assertTrue(records(path)[1])
        self.assertNotIn("another answer", engine.stderr)
        plain = self.engine("--prompt=The daemon", "--max_tokens=20", "--print=ids",
                            uri="embedded:cpu")
        self.assertEqual(plain.wait(), 0, plain.stderr)
        ids = [line for line in engine.stdout.splitlines() if line.startswith("The daemon:")]
        self.assertIn(ids[0], plain.stdout)  # a trace changes nothing

    def test_full_disk_changes_no_token(self):
        # A limit of file sizes stands for a full disk.
        flags = ("--drafts=sampled", "--print=ids", "--stats=none")
        plain = self.engine(*flags, uri="embedded:cpu")
        self.assertEqual(plain.wait(), 0, plain.stderr)
        limited = self.start(pathlib.Path("/bin/sh"), "-c",
                             'ulimit -f 4096; exec "$@"', "sh",
                             *self.engine_command(*flags, f"--trace={self.traces}",
                                                  "--trace_options=level=rows"))
        self.assertEqual(limited.wait(), 0, limited.stderr)
        self.assertEqual(limited.stdout, plain.stdout)
        self.assertIn("File too large", limited.stderr)
        # The row file is full, and the rounds whose rows it has are whole.
        topics, is_complete = records(self.files()[0])
        self.assertTrue(is_complete)
        self.assertGreater(topics.count("round"), 3)

    def engine_command(self, *flags):
        from support import BIN, CORPUS, TOKENIZER
        return [str(BIN / "specd-toy-engine"), "--specd=embedded:cpu", f"--tokenizer={TOKENIZER}",
                f"--corpus={CORPUS}", *flags]

    def test_bad_options_are_refused(self):
        for flags, text in (((f"--trace={self.traces}", "--trace_options=evry=2"), "did you mean every"),
                            (("--trace_options=every=2",), "without a directory"),
                            (("--trace=/proc/none",), "trace = /proc/none")):
            daemon = self.daemon(*flags, ready=False)
            self.assertNotEqual(daemon.wait(), 0)
            self.assertIn(text, daemon.stderr)


if __name__ == "__main__":
    unittest.main()
