"""What a habit, a neighbour or an operator does to the daemon, and the daemon goes on."""

import ctypes
import fcntl
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import unittest

from support import BIN, MemoryGroup, PATIENCE_S, ProcessTest, TOKENIZER, wait_until


class LogTest(ProcessTest):
    """The log's reader is gone, or never reads, or a peer writes the log full."""

    def daemon_with(self, *flags, **options):
        """A daemon whose stderr is the caller's."""
        process = subprocess.Popen(
            [BIN / "specd", f"--listen=unix:{self.socket}", f"--tokenizer={TOKENIZER}",
             "--eos_tokens=<|endoftext|>", *flags], stdout=subprocess.DEVNULL, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: self.socket.exists() or process.poll() is not None, "the daemon")
        self.assertIsNone(process.poll())
        return process

    def assertServes(self, process):
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertIsNone(process.poll())

    def assertStops(self, process):
        process.terminate()
        self.assertEqual(process.wait(timeout=PATIENCE_S), 0)

    def test_closed_stderr(self):
        process = self.daemon_with(preexec_fn=lambda: os.close(2))
        self.assertServes(process)
        # No socket of the daemon has the number of stderr.
        self.assertEqual(os.readlink(f"/proc/{process.pid}/fd/2"), "/dev/null")
        self.assertStops(process)

    def test_reader_of_stderr_is_gone(self):
        reader, writer = os.pipe()
        process = self.daemon_with(stderr=writer)
        os.close(writer)
        os.close(reader)
        for _ in range(3):
            self.assertServes(process)
        self.assertStops(process)

    def test_reader_of_stderr_never_reads(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        process = self.daemon_with("--log_level=debug", stderr=writer)
        os.close(writer)
        for _ in range(20):
            self.assertServes(process)
        self.assertStops(process)
        os.close(reader)

    def test_garbage_without_end_makes_few_lines(self):
        daemon = self.daemon("--log_format=json")
        for _ in range(2000):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
                peer.connect(str(self.socket))
                peer.send(b"garbage that is no message of any version")
                peer.recv(4096)
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.stop(daemon)
        lines = [json.loads(line) for line in daemon.stderr.splitlines()]
        self.assertLess(len(lines), 100)
        self.assertIn("serves", lines[0]["message"])


def open_engine(path, max_sequences=0):
    """An engine over the C library, without any package of Python. It is never closed. Returns the code
    and the error."""
    library = ctypes.CDLL(str(pathlib.Path(os.environ["SPECD_LIB"]) / "libspecd.so"))
    library.specd_last_error.restype = ctypes.c_char_p
    options = (ctypes.c_uint32 * 1024)()
    library.specd_options_init(options)
    options[1] = 2048  # vocab_size
    options[3] = max_sequences
    engine = ctypes.c_void_p()
    code = library.specd_open(f"unix:{path}".encode(), options, ctypes.byref(engine))
    return code, (library.specd_last_error() or b"").decode()


class ForkTest(ProcessTest):
    """A child that inherits the sockets of an engine."""

    def test_child_of_a_dead_engine_keeps_no_session_alive(self):
        daemon = self.daemon()
        reader, writer = os.pipe()
        engine = os.fork()
        if engine == 0:
            code, _ = open_engine(self.socket)
            child = os.fork()
            if child == 0:  # it has a copy of every descriptor
                signal.pause()
                os._exit(0)
            os.write(writer, f"{code} {child}".encode())
            os._exit(0)  # without closing the engine
        code, child = (int(word) for word in os.read(reader, 100).split())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        self.assertEqual(code, 0)
        os.waitpid(engine, 0)
        wait_until(lambda: "ended:" in daemon.stderr, "the end of the session")
        os.kill(child, 0)  # the child lives, and the session has ended all the same
        self.stop(daemon)


class GreedyTest(ProcessTest):
    """One engine asks for more memory than there is: it is refused, and the daemon serves the others."""

    GROUP_BYTES = 736 << 20

    def start_daemon(self, *flags):
        """In a control group of 736 MiB: a session has 120. Without a tokenizer it serves every vocabulary."""
        group = MemoryGroup.make(self.GROUP_BYTES)
        if group is None:
            self.skipTest("this machine lets this process make no control group with a bound of memory")
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off",
                            "--eos_token_ids=0", *flags, preexec_fn=group.enter)
        self.addCleanup(group.close)  # after the daemon has ended
        self.addCleanup(daemon.close)
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertTrue(daemon.running(), daemon.stderr)
        return daemon

    def assertRefuses(self, daemon, what, *words):
        greedy = self.run_to_end("greedy_engine", f"unix:{self.socket}", what)
        self.assertTrue(daemon.running(), daemon.stderr)
        self.assertEqual(greedy.code, 3, greedy.stdout + greedy.stderr)
        for word in words:
            self.assertIn(word, greedy.stdout)
        return greedy.stdout

    def assertServes(self, daemon):
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.stop(daemon)

    def test_prompts_of_a_million_ids(self):
        daemon = self.start_daemon()
        self.assertRefuses(daemon, "prompts", "session_memory_mib")
        # All that the engine had is free again.
        again = self.assertRefuses(daemon, "prompts", "session_memory_mib")
        self.assertGreaterEqual(int(again.split()[1]), 1, again)
        self.assertServes(daemon)

    def test_the_flag_raises_the_bound(self):
        daemon = self.start_daemon("--memory_mib=80", "--session_memory_mib=32")
        self.assertRefuses(daemon, "prompts", "of the 33554432 that --session_memory_mib allows")
        self.assertServes(daemon)


class OwnMemoryTest(ProcessTest):
    """Memory that an engine takes or takes away."""

    def test_many_regions_are_refused_before_the_system_kills(self):
        group = MemoryGroup.make(512 << 20)
        if group is None:
            self.skipTest("this machine lets this process make no control group with a bound of memory")
        self.addCleanup(group.close)
        engine = self.start("greedy_engine", "embedded:cpu", "alloc", preexec_fn=group.enter)
        self.assertEqual(engine.wait(), 3, engine.stdout)  # a killed process has -9
        self.assertGreaterEqual(int(engine.stdout.split()[1]), 2)
        self.assertIn("are available", engine.stdout)

    def test_a_huge_page_that_is_gone_ends_its_session_alone(self):
        pool = pathlib.Path("/proc/sys/vm/nr_hugepages")
        before = pool.read_text()
        if int(before) != 0 or not os.access(pool, os.W_OK):
            self.skipTest("this test needs a machine whose pool of huge pages is empty and its own")
        self.addCleanup(pool.write_text, before)
        pool.write_text("1")
        if int(pool.read_text()) != 1:
            self.skipTest("this machine has no huge page")
        daemon = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        engine = self.run_to_end("greedy_engine", f"unix:{self.socket}", "huge")
        if engine.code == 4:
            self.skipTest("this machine does not take the page away")
        self.assertTrue(daemon.running(), daemon.stderr)
        self.assertEqual(engine.code, 0, engine.stdout)
        self.assertIn("status 6", engine.stdout)  # SPECD_STATUS_ABORTED
        other = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(other.wait(), 0, other.stderr)
        self.stop(daemon)


class CrowdTest(ProcessTest):
    """Peers take the daemon's descriptors, or come without being asked."""

    def connect(self, count, endpoint):
        """Sockets that say nothing. The daemon lets them in, or closes them."""
        sockets = []
        self.addCleanup(lambda: [peer.close() for peer in sockets])
        for _ in range(count):
            sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            sockets[-1].connect(f"{self.socket}.{endpoint}")
            sockets[-1].settimeout(PATIENCE_S)
        return [peer for peer in sockets if self.greeted(peer)]

    def greeted(self, peer):
        try:
            return len(peer.recv(1)) == 1
        except ConnectionResetError:
            return False

    def assertServes(self, daemon):
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr + daemon.stderr)
        self.stop(daemon)

    def test_more_connections_than_descriptors(self):
        daemon = self.start(
            pathlib.Path("/bin/bash"), "-c", "ulimit -n 128; exec \"$0\" \"$@\"", BIN / "specd",
            f"--listen=unix:{self.socket}", f"--tokenizer={TOKENIZER}", "--eos_tokens=<|endoftext|>")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        for endpoint in "text", "tokens":
            self.connect(150, endpoint)
            self.assertTrue(daemon.running(), daemon.stderr)
        wait_until(lambda: "too many open files" in daemon.stderr, "a line about them")
        self.assertServes(daemon)

    def test_an_endpoint_has_256_places(self):
        daemon = self.daemon()
        self.assertEqual(len(self.connect(300, "text")), 256)
        wait_until(lambda: "256 are connected" in daemon.stderr, "a line about them")
        self.assertServes(daemon)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
    def test_a_member_of_the_group_is_no_subscriber(self):
        nobody = 65534
        allowed = "--allow_uid=65534"
        for flags, text_side, endpoints, places in (
                ((), "thread", ("tokens", "text"), 0),
                ((allowed,), "thread", ("tokens", "text"), 1),
                ((), "process", ("tokens", "aborts", "text"), 0),
                ((allowed,), "process", ("tokens", "aborts", "text"), 1)):
            daemon = self.daemon(f"--detokenizer={text_side}", *flags)
            detokenizer = None
            if text_side == "process":
                detokenizer = self.start("specd-detok", f"--specd=unix:{self.socket}",
                                         f"--tokenizer={TOKENIZER}", *flags)
                wait_until(lambda: pathlib.Path(f"{self.socket}.text").exists(), "specd-detok")
            self.folder.chmod(0o711)
            for endpoint in endpoints:
                reader, writer = os.pipe()
                child = os.fork()
                if child == 0:
                    os.setuid(nobody)  # the group stays the daemon's, which the socket files let in
                    os.write(writer, str(len(self.connect(1, endpoint))).encode())
                    os._exit(0)
                os.waitpid(child, 0)
                self.assertEqual(int(os.read(reader, 10)), places,
                                 f"{endpoint} {text_side} {flags}")
            if detokenizer is not None:
                self.stop(detokenizer)
            self.stop(daemon)


class UsersCase(ProcessTest):
    """Processes of another user beside those of this one."""

    NOBODY = 65534

    def start_daemon(self, *flags):
        daemon = self.daemon(f"--allow_uid={self.NOBODY}", *flags)
        self.folder.chmod(0o711)
        return daemon

    def as_nobody(self, action):
        """Calls it in a process of that user, which lives until the test has ended. Returns its text."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(self.NOBODY)  # the group stays the daemon's, which the socket file lets in
                os.write(writer, action().encode())
                signal.pause()
            finally:
                os._exit(1)
        os.close(writer)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        with open(reader, encoding="utf-8") as answer:
            return os.read(answer.fileno(), 65536).decode()

    def connect_silently(self):
        self.silent = []
        for _ in range(40):
            self.silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            self.silent[-1].connect(str(self.socket))
        return "connected"

    def open_engines(self, count, max_sequences=0):
        return "\n".join(str(open_engine(self.socket, max_sequences)) for _ in range(count))


@unittest.skipUnless(os.geteuid() == 0, "only root can be two users")
class UsersTest(UsersCase):
    """One user takes what he can get, and another one is served all the same."""

    def assertServes(self, daemon):
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr + daemon.stderr)
        self.stop(daemon)

    def test_one_user_could_take_all_sessions(self):
        daemon = self.start_daemon("--max_sessions=4")
        answers = self.as_nobody(lambda: self.open_engines(4)).splitlines()
        self.assertEqual([answer[:3] for answer in answers], ["(0,"] * 3 + ["(-9"], answers)
        self.assertIn("3 of them of uid 65534", answers[3])
        self.assertServes(daemon)

    def test_one_user_could_take_all_the_memory(self):
        # 100 MiB are for sessions, and 75 for those of one user. Each of these takes 23.
        daemon = self.start_daemon("--memory_mib=229")
        answers = self.as_nobody(lambda: self.open_engines(4, 15000)).splitlines()
        self.assertEqual([answer[:3] for answer in answers], ["(0,"] * 3 + ["(-9"], answers)
        self.assertIn("memory_mib", answers[3])
        code, error = open_engine(self.socket, 15000)
        self.assertEqual(code, 0, error)
        self.assertServes(daemon)


@unittest.skipUnless(os.geteuid() == 0, "only root can be another user, whose threads are counted")
class ThreadsTest(ProcessTest):
    def bound_threads(self, daemon, uid, limits):
        subprocess.run(["prlimit", f"--pid={daemon.process.pid}", f"--nproc={limits}"], user=uid, group=uid,
                       extra_groups=[], check=True)

    def test_an_opening_without_a_thread_was_handled_by_the_thread_that_serves_all(self):
        alone = 54321  # no other process has this user
        os.chown(self.folder, alone, alone)
        daemon = self.daemon("--threads=1", "--allow_uid=0", user=alone, group=alone)
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        self.bound_threads(daemon, alone, "1:")
        flags = "--regex=[0-9]{3}", "--max_tokens=8", "--print=none"
        refused = self.engine(*flags)
        self.assertEqual(refused.wait(), 1, daemon.stderr)
        self.assertIn("gets no thread for this opening", refused.stderr)
        self.bound_threads(daemon, alone, "unlimited:" if limit == resource.RLIM_INFINITY else f"{limit}:")
        served = self.engine(*flags)
        self.assertEqual(served.wait(), 0, served.stderr)
        self.stop(daemon)


class MemoryTest(ProcessTest):
    def test_file_size_limit_does_not_end_the_daemon(self):
        daemon = self.start(
            pathlib.Path("/bin/bash"), "-c", "ulimit -f 64; exec \"$0\" \"$@\"", BIN / "specd",
            f"--listen=unix:{self.socket}", "--detokenizer=off", f"--trace={self.folder}/traces",
            "--trace_options=level=rows")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        engine = self.engine("--prompt=The daemon", "--max_tokens=64", "--print=none")
        engine.wait()
        self.assertTrue(daemon.running(), daemon.stderr)
        self.stop(daemon)


if __name__ == "__main__":
    unittest.main()
