"""The bar on stderr: on a terminal it is drawn after a second and erased, elsewhere it is absent."""

import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest

from replay_support import REPLAY, Traces

BAR = re.compile(rb"\r\x1b\[K\[(#*)( *)\] +(\d+) % of ([\d.]+) MiB")


class Progress(Traces):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The emulated backend takes far more than a second for it.
        cls.long = cls.stretch(cls.path, "stretched", 400)

    def start(self, stderr):
        process = subprocess.Popen([REPLAY, "verify", self.long, "--backend=emulated"],
                                   stdout=subprocess.DEVNULL, stderr=stderr)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def read_until(self, terminal, process, pattern):
        """What the process writes to the terminal up to a match. None of it is asked to come in time."""
        text, deadline = b"", time.monotonic() + 60
        while not pattern.search(text):
            self.assertLess(time.monotonic(), deadline, text)
            if select.select([terminal], [], [], 0.1)[0]:
                text += os.read(terminal, 1 << 16)
            else:
                self.assertIsNone(process.poll(), "it has ended before it was interrupted")
        return text

    def read_to_end(self, terminal):
        text = b""
        try:
            while part := os.read(terminal, 1 << 16):
                text += part
        except OSError:  # the program has closed the terminal
            pass
        return text

    def test_a_terminal_has_the_bar_and_a_pipe_has_none(self):
        terminal, its_end = pty.openpty()
        self.addCleanup(os.close, terminal)
        piped = self.start(subprocess.PIPE)  # first: it runs at least as long as the other
        begin = time.monotonic()
        shown = self.start(its_end)
        os.close(its_end)
        text = self.read_until(terminal, shown, BAR)
        self.assertGreaterEqual(time.monotonic() - begin, 1)
        text += self.read_until(terminal, shown, BAR)  # it is drawn again
        bars = [match.groups() for match in BAR.finditer(text)]
        self.assertEqual(BAR.sub(b"", text), b"")  # nothing else, and each bar erases the one before
        rows = self.long.with_suffix(".rows")
        size_mib = (self.long.stat().st_size + rows.stat().st_size) / 2**20
        for full, empty, percent, mib in bars:
            self.assertEqual(len(full) + len(empty), 30)
            self.assertAlmostEqual(len(full) / 30, int(percent) / 100, delta=0.04)
            self.assertEqual(mib.decode(), f"{size_mib:.1f}")
        percents = [int(percent) for _, _, percent, _ in bars]
        self.assertEqual(percents, sorted(percents))
        for process in (shown, piped):
            process.send_signal(signal.SIGINT)
        after = self.read_to_end(terminal)
        self.assertNotRegex(after[after.rindex(b"\x1b[K"):], rb"%")  # the last bar is erased
        self.assertEqual(shown.wait(60), 130)
        said = piped.communicate(timeout=60)[1]
        self.assertEqual(piped.returncode, 130)
        self.assertNotIn(b"\r", said)
        self.assertNotIn(b"\x1b", said)
        self.assertNotIn(b"%", said)


if __name__ == "__main__":
    unittest.main()
