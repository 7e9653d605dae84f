"""Starts and watches real processes for the tests of this folder. Standard library only.

Nothing here sleeps for a fixed time: a test waits for something that it can see (a file, a line, the end
of a process), with a bound after which it fails.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(os.environ["SPECD_BIN"])
SOURCE = pathlib.Path(os.environ["SPECD_SOURCE"])
TOKENIZER = SOURCE / "tools/toy_engine/tokenizer.json"
CORPUS = SOURCE / "tools/toy_engine/corpus.txt"
# Longer than anything takes on a loaded machine; reaching it is a failure, never a result.
PATIENCE_S = 60


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.005)


class Process:
    """A child process whose output is collected while it runs."""

    def __init__(self, arguments, **options):
        self.process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", **options)
        self.lines = {"stdout": [], "stderr": []}
        self._readers = [
            threading.Thread(target=self._read, args=(name,), daemon=True) for name in self.lines]
        for reader in self._readers:
            reader.start()

    def _read(self, name):
        for line in getattr(self.process, name):
            self.lines[name].append(line)

    @property
    def stdout(self):
        return "".join(self.lines["stdout"])

    @property
    def stderr(self):
        return "".join(self.lines["stderr"])

    def running(self):
        """False once the process has ended and everything that it said is in `lines`."""
        if self.process.poll() is None:
            return True
        for reader in self._readers:
            reader.join(timeout=PATIENCE_S)
        return False

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """Stops every thread: a signal is only under way when kill() returns."""
        self.signal(signal.SIGSTOP)
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        # The state stands behind the name, which is in brackets.
        wait_until(lambda: all(task.joinpath("stat").read_text().rpartition(") ")[2].startswith("T")
                               for task in tasks.iterdir()), "the process to stop")

    def wait(self):
        """Waits for the end and returns the exit code (negative: the signal)."""
        code = self.process.wait(timeout=PATIENCE_S)
        for reader in self._readers:
            reader.join(timeout=PATIENCE_S)
        return code

    def close(self):
        if self.running():
            self.process.kill()
            self.process.wait()
        for reader in self._readers:
            reader.join(timeout=PATIENCE_S)
        self.process.stdout.close()
        self.process.stderr.close()


class MemoryGroup:
    """A control group with a bound of memory, below this process's own; None where none can be made."""

    @classmethod
    def make(cls, size_bytes):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for version, name in ((1, "memory.limit_in_bytes"), (2, "memory.max")):
                if version == 1 and controllers != "memory" or version == 2 and controllers != "":
                    continue
                top = pathlib.Path("/sys/fs/cgroup/memory" if version == 1 else "/sys/fs/cgroup")
                folder = top / path.lstrip("/") / f"specd-test-{os.getpid()}"
                try:
                    folder.mkdir()
                except OSError:
                    continue
                try:
                    (folder / name).write_text(str(size_bytes))
                    return cls(folder)
                except OSError:
                    folder.rmdir()
        return None

    def __init__(self, folder):
        self.folder = folder

    def enter(self):
        """For preexec_fn."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        self.folder.rmdir()


class ProcessTest(unittest.TestCase):
    """A test with a folder of its own and helpers to start each program in it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="specd-test-"))
        self.socket = self.folder / "s"
        self._processes = []

    def tearDown(self):
        for process in self._processes:
            process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, program, *arguments, **options):
        path = program if isinstance(program, pathlib.Path) else BIN / program
        process = Process([path, *arguments], **options)
        self._processes.append(process)
        return process

    def run_to_end(self, program, *arguments, **options):
        process = self.start(program, *arguments, **options)
        process.code = process.wait()
        return process

    def daemon(self, *flags, ready=True, **options):
        daemon = self.start(
            "specd", f"--listen=unix:{self.socket}", f"--tokenizer={TOKENIZER}",
            "--eos_tokens=<|endoftext|>", *flags, **options)
        if ready:
            wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
            self.assertTrue(daemon.running(), daemon.stderr)
        return daemon

    def endless_text(self):
        """The flag for engine() of a text that only max_tokens ends."""
        corpus = self.folder / "corpus.md"
        corpus.write_text("The daemon takes A round and gives tokens, so that " * 400)
        return f"--corpus={corpus}"

    def engine(self, *flags, uri=None, **options):
        return self.start(
            "specd-toy-engine", f"--specd={uri or f'unix:{self.socket}'}",
            f"--tokenizer={TOKENIZER}", f"--corpus={CORPUS}", "--stats=json", *flags, **options)

    def client(self, *flags):
        ready = self.folder / f"ready{len(self._processes)}"
        client = self.start(
            "specd-toy-client", f"--text=ipc://{self.socket}.text", "--json",
            f"--ready_file={ready}", *flags)
        wait_until(lambda: ready.exists() or not client.running(), "the subscription")
        self.assertTrue(ready.exists(), client.stderr)
        return client

    def events(self, client):
        return [json.loads(line) for line in client.stdout.splitlines()]

    def texts(self, client):
        """What each stream's events add up to, checked against their offsets."""
        texts = {}
        for event in self.events(client):
            if event["kind"] == "open":
                continue
            text = texts.get(event["rid"], b"")
            self.assertEqual(event["byte_offset"], len(text), event)
            texts[event["rid"]] = text + event["text"].encode()
        return {name: text.decode() for name, text in texts.items()}

    def ends(self, client):
        return {event["rid"]: event for event in self.events(client) if event["kind"] == "end"}

    def kill(self, process):
        process.signal(signal.SIGKILL)
        self.assertEqual(process.wait(), -signal.SIGKILL)

    def stop(self, daemon):
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.wait(), 0, daemon.stderr)

    def sockets(self):
        return sorted(path.name for path in self.folder.iterdir() if path.is_socket())
