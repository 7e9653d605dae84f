"""Ctrl-C in the middle of a command that writes: nothing under the final name, and no parts."""

import signal
import subprocess
import time
import unittest

from replay_support import REPLAY, Traces


class Interrupt(Traces):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.long = cls.stretch(cls.path, "stretched", 800)

    def interrupted(self, command, folder, size_bytes, *arguments):
        """Sends SIGINT as soon as a part of the output has that size; returns the exit status."""
        with subprocess.Popen([REPLAY, command, self.long, *arguments], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not any(part.stat().st_size >= size_bytes for part in folder.glob("*.part")):
                self.assertIsNone(process.poll(), "it has ended before it was interrupted")
                self.assertLess(time.monotonic(), deadline)
            names = [path.name for path in folder.iterdir() if not path.name.endswith(".part")]
            self.assertEqual(names, self.names_before)
            process.send_signal(signal.SIGINT)
            return process.wait(60)

    def test_commands_that_write(self):
        for command, output, size_bytes, *flags in (
                ("cut", "out.mcap", 1 << 20), ("cut", "out.mcap", 1 << 20, "--no-rows"),
                ("anonymise", "out.mcap", 1 << 20), ("export", "out.npz", 0, "--format=npz")):
            for is_there in (False, True):
                with self.subTest(command=command, flags=flags, is_there=is_there):
                    folder = self.folder / f"{command}-{len(flags)}-{output}-{is_there}"
                    folder.mkdir()
                    if is_there:
                        (folder / output).write_text("before")
                    self.names_before = [output] if is_there else []
                    code = self.interrupted(command, folder, size_bytes, *flags, "-o",
                                            folder / output)
                    self.assertEqual(code, 130)
                    self.assertEqual([p.name for p in folder.iterdir()], self.names_before)
                    if is_there:
                        self.assertEqual((folder / output).read_text(), "before")

    def test_a_killed_command_leaves_parts_only(self):
        folder = self.folder / "killed"
        folder.mkdir()
        with subprocess.Popen([REPLAY, "cut", self.long, "-o", folder / "out.mcap"],
                              stderr=subprocess.DEVNULL) as process:
            while not any(folder.iterdir()):
                self.assertIsNone(process.poll())
            process.send_signal(signal.SIGKILL)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertTrue(all(p.name.endswith(".part") for p in folder.iterdir()))


if __name__ == "__main__":
    unittest.main()
