"""Bad input gets a clear error and loses nothing: what an outsider can get wrong, end to end."""

import os
import resource
import socket
import struct
import subprocess
import unittest

from support import CORPUS, ProcessTest, SOURCE, TOKENIZER

NOBODY = 65534
PROTOCOL_VERSION = 2  # ipc/base/protocol_version.h
MAPPED = 2  # ipc/control/control_type.h


def control_message(version, control_type):
    """A message with an empty body and no descriptors."""
    return struct.pack("<IHHIIII", 0x44435053, version, control_type, 1, 1, 0, 0) + b"\x80"


class RefusalTest(ProcessTest):
    def assertRefused(self, process, code, *parts):
        self.assertEqual(process.code, code, process.stderr)
        for part in parts:
            self.assertIn(part, process.stderr)

    def assertServes(self):
        engine = self.engine("--prompt=The daemon", "--max_tokens=8", "--print=none")
        self.assertEqual(engine.wait(), 0, engine.stderr)

    def test_the_version_names_a_commit_and_the_compiler(self):
        version = self.run_to_end("specd", "--version").stdout
        self.assertRegex(version, r"^specd [\d.]+ \([^ ,]+, \w+ [\d.]+\)\n$")
        revision = version.split("(")[1].split(",")[0]
        if revision != "unknown":
            subprocess.run(["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"],
                           cwd=SOURCE, check=True, stdout=subprocess.DEVNULL)
        else:
            self.assertFalse((SOURCE / ".git").exists())

    def test_a_command_line_that_is_wrong_has_one_exit_code(self):
        for program in ("specd-toy-engine", "specd-toy-client", "specd-bench", "specd-replay"):
            self.assertRefused(self.run_to_end(program, "--no_such_flag=1"), 2, "no_such_flag")
            self.assertEqual(self.run_to_end(program, "--help").code, 0)
        for program in ("specd", "specd-detok"):
            self.assertRefused(self.run_to_end(program, "--no_such_flag=1"), 2, "no_such_flag")
            self.assertRefused(self.run_to_end(program, "--nosuchflag"), 2, "nosuchflag")
            self.assertRefused(self.run_to_end(program, "stray"), 2, "stray")
            self.assertEqual(self.run_to_end(program, "--version").code, 0)
            for flag in "--help", "--helpfull":
                asked = self.run_to_end(program, flag)
                self.assertEqual(asked.code, 0)
                self.assertIn("--log_level", asked.stdout)
        self.assertRefused(self.run_to_end("specd", "--theads=2"), 2, "--theads is unknown; did you mean threads?")
        self.assertNotIn("did you mean", self.run_to_end("specd", "--threads=2", "--nosuchflag").stderr)
        for known in (["--noallow_lossy"], ["--log_level", "--theads"], ["--", "--theads=2"]):
            said = self.run_to_end("specd", "--threads=abc", *known).stderr
            self.assertNotIn("did you mean", said, known)
        self.assertRefused(self.run_to_end("specd", "--threads=many"), 2, "many")
        self.assertRefused(self.run_to_end("specd", "--threads=-1"), 2, "threads = -1")

    def test_flagfile(self):
        flags = self.folder / "flags"
        flags.write_text(f"--listen=unix:{self.socket}\n--log_level=loud\n")
        self.assertRefused(self.run_to_end("specd", f"--flagfile={flags}"), 2, "log_level = loud")

    def test_descriptors_of_many_engines_have_room(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        try:
            daemon = self.daemon()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        self.assertEqual(resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE),
                         (limits[1], limits[1]))

    def test_unreadable_tokenizer(self):
        missing = self.run_to_end("specd", f"--listen=unix:{self.socket}",
                                  "--tokenizer=/nonexistent/tokenizer.json")
        self.assertRefused(missing, 1, "/nonexistent/tokenizer.json")
        broken = self.folder / "broken.json"
        broken.write_text('{"version": "1.0", "model":')
        process = self.run_to_end("specd", f"--listen=unix:{self.socket}", f"--tokenizer={broken}")
        self.assertRefused(process, 1, str(broken))
        self.assertEqual(self.sockets(), [])

    @unittest.skipIf(os.path.exists("/dev/nvidia0"), "this machine has the device")
    def test_device_that_is_not_there(self):
        process = self.run_to_end("specd", f"--listen=unix:{self.socket}", "--detokenizer=off",
                                  "--device=cuda")
        self.assertRefused(process, 1, "cuda", "cpu")

    def test_second_instance(self):
        daemon = self.daemon()
        second = self.run_to_end("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        self.assertRefused(second, 1, "another specd serves")
        self.assertServes()
        self.stop(daemon)

    def test_no_daemon(self):
        engine = self.run_to_end("specd-toy-engine", f"--specd=unix:{self.socket}",
                                 f"--tokenizer={TOKENIZER}", f"--corpus={CORPUS}")
        self.assertRefused(engine, 1, str(self.socket))

    @unittest.skipUnless(os.geteuid() == 0, "only root can become somebody else")
    def test_wrong_uid(self):
        daemon = self.daemon()
        self.folder.chmod(0o755)

        # In the socket's group, so that the file lets it in and the daemon has to look.
        def become_nobody():
            os.setgroups([])
            os.setgid(0)
            os.setuid(NOBODY)
        engine = self.run_to_end("specd-toy-engine", f"--specd=unix:{self.socket}",
                                 f"--tokenizer={TOKENIZER}", f"--corpus={CORPUS}",
                                 preexec_fn=become_nobody)
        self.assertRefused(engine, 1, f"uid {NOBODY}", "--allow_uid")
        self.assertServes()
        self.stop(daemon)
        allowed = self.daemon(f"--allow_uid={NOBODY}")
        engine = self.run_to_end("specd-toy-engine", f"--specd=unix:{self.socket}",
                                 f"--tokenizer={TOKENIZER}", f"--corpus={CORPUS}",
                                 "--max_tokens=8", preexec_fn=become_nobody)
        self.assertEqual(engine.code, 0, engine.stderr)
        self.stop(allowed)

    def raw(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.settimeout(30)
        connection.connect(str(self.socket))
        return connection

    def test_a_stranger_that_only_chatters_is_hung_up_on(self):
        daemon = self.daemon()
        with self.raw() as connection:
            # A message in order, but out of turn: refused, and the connection stays.
            mapped = control_message(PROTOCOL_VERSION, MAPPED)
            answers = 0
            try:
                while True:
                    connection.send(mapped)
                    if not connection.recv(65536):
                        break
                    answers += 1
            except (BrokenPipeError, ConnectionResetError):
                pass
            self.assertGreater(answers, 1)
        self.assertServes()
        self.stop(daemon)

    def test_files_that_are_no_sockets_are_not_touched(self):
        precious = self.folder / "precious"
        precious.write_text("keep me")
        listen = self.run_to_end("specd", f"--listen=unix:{precious}", "--detokenizer=off")
        self.assertRefused(listen, 1, str(precious), "no socket")
        text = self.run_to_end("specd", f"--listen=unix:{self.socket}",
                               f"--tokenizer={TOKENIZER}", f"--text=ipc://{precious}")
        self.assertRefused(text, 1, str(precious), "no socket")
        self.assertEqual(precious.read_text(), "keep me")
        self.assertEqual(self.sockets(), [])

    def test_another_daemon_may_not_take_an_endpoint(self):
        daemon = self.daemon()
        second = self.run_to_end("specd", f"--listen=unix:{self.folder}/other",
                                 f"--tokenizer={TOKENIZER}", f"--text=ipc://{self.socket}.text")
        self.assertRefused(second, 1, "another specd serves", f"{self.socket}.text")
        client = self.client("--streams=1")
        self.assertServes()
        self.assertEqual(client.wait(), 0, client.stderr)
        self.stop(daemon)

    def test_a_path_that_can_be_no_socket_is_a_bad_command_line(self):
        # Bug: for an endpoint the code was 1, and the error named a file with .lock at its end.
        listen = f"--listen=unix:{self.socket}"
        for flags, parts in (((f"--listen=unix:{self.folder}",), ("directory", "specd.sock")),
                             (("--listen=unix:/no/such/specd.sock",), ("mkdir -p /no/such",)),
                             ((listen, f"--tokens=ipc://{self.folder}"), ("tokens", "directory")),
                             ((listen, "--tokens=ipc:///no/such/x"), ("tokens", "mkdir -p /no/such")),
                             ((listen, f"--text=ipc:///{'x' * 120}"), ("text", "107"))):
            self.assertRefused(self.run_to_end("specd", *flags, "--detokenizer=off"), 2, *parts)
        self.assertEqual(self.sockets(), [])

    def test_help_names_no_path_of_a_build(self):
        for program in "specd", "specd-detok":
            for flag in "--help", "--helpfull":
                self.assertNotRegex(self.run_to_end(program, flag).stdout, r"(?m)/build/|^ *Flags from /")


if __name__ == "__main__":
    unittest.main()
