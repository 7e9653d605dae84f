"""specctl over a daemon's socket: it lists, shows and ends sequences, drains the daemon and writes traces,
each user what is his. And its completion in bash.

Expected numbers are those that the engine of this process counted.
"""

import json
import os
import pathlib
import signal
import subprocess
import unittest

import numpy as np

import specd
from support import BIN, SOURCE, TOKENIZER, ProcessTest, wait_until

VOCAB_SIZE = 1 + max(json.loads(TOKENIZER.read_text())["model"]["vocab"].values())
NOBODY, STRANGER = 65534, 65533


class OperatorTest(ProcessTest):
    def connect(self, **options):
        engine = specd.Engine(f"unix:{self.socket}", vocab_size=VOCAB_SIZE, max_batch=4,
                              max_sequences=256, max_draft=2, **options)
        self.addCleanup(engine.close)
        self.rows = np.random.default_rng(3).normal(size=(4, VOCAB_SIZE)).astype(np.float32)
        return engine

    def specctl(self, *arguments, code=0, **options):
        done = self.run_to_end("specctl", *arguments, f"--specd=unix:{self.socket}", **options)
        self.assertEqual(done.code, code, done.stdout + done.stderr)
        self.said = done.stderr
        return done.stdout

    def listed(self, **options):
        return {each["request_id"]: each
                for each in json.loads(self.specctl("list", "--json", **options))["sequences"]}

    def open_as_nobody(self, request_id):
        """Opens a sequence in a process of another user, which lives until the test has ended."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(NOBODY)  # the group stays the daemon's, which the socket file lets in
                engine = specd.Engine(f"unix:{self.socket}", vocab_size=VOCAB_SIZE)
                engine.open(request_id=request_id)
                os.write(writer, b"open")
                signal.pause()
            finally:
                os._exit(1)
        os.close(writer)
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.kill, child, signal.SIGKILL)
        with open(reader, "rb", buffering=0) as answer:
            self.assertEqual(answer.read(4), b"open")

    def rounds(self, sequence, count):
        return [sequence.engine.verify(self.rows[:1], {sequence: []})[0] for _ in range(count)]

    def test_list_and_show_say_what_the_engine_knows(self):
        self.daemon()
        engine = self.connect(name="the test")
        one = engine.open(specd.SamplingParams(seed=11, top_p=0.5, max_tokens=99, stop=["xyzzy"]),
                          prompt_ids=[5, 6, 7], request_id="one")
        engine.open(specd.SamplingParams(temperature=0), request_id="two")
        total = sum(len(each.tokens) for each in self.rounds(one, 5))
        listed = self.listed()
        self.assertEqual(set(listed), {"one", "two"})
        self.assertEqual({key: listed["one"][key] for key in
                          ("state", "tokens", "rounds", "accepted", "uid", "pid", "client", "program")},
                         {"state": "runs", "tokens": total, "rounds": 5, "accepted": 0,
                          "uid": os.geteuid(), "pid": os.getpid(), "client": "the test",
                          "program": pathlib.Path("/proc/self/comm").read_text().strip()})
        self.assertEqual(listed["two"]["tokens"], 0)
        self.assertNotEqual(listed["one"]["stream"], listed["two"]["stream"])
        shown = json.loads(self.specctl("show", "one", "--json"))["sequences"]
        self.assertEqual([each["request_id"] for each in shown], ["one"])
        params = shown[0]["params"]
        self.assertEqual((params["seed"], params["top_p"], params["max_tokens"], params["prompt ids"]),
                         ("11", "0.5", "99", "3"))
        self.assertNotIn("min_p", params)
        by_stream = self.specctl("show", f"--stream={listed['two']['stream']}")
        self.assertIn("two", by_stream)
        self.assertIn("greedy", by_stream)
        self.assertEqual(self.specctl("list", "--ids").split(), ["one", "two"])
        # Each column begins or ends where its title does.
        lines = self.specctl("list").splitlines()
        self.assertEqual(len({len(line.rstrip()) > 0 for line in lines}), 1)
        self.assertEqual(lines[1].index("runs"), lines[0].index("state"))
        self.specctl("show", "three", code=3)
        self.assertIn('request "three" is not open', self.said)
        # Ended ones stay until they are closed.
        one.abort()
        self.assertEqual(self.listed()["one"]["state"], "aborted")
        one.close()
        self.assertEqual(set(self.listed()), {"two"})

    def test_every_method_is_listed_by_its_name(self):
        self.daemon("--allow_lossy")
        engine = self.connect()
        numbers = {"synthetic": {"synthetic_rates": [0.5]}}
        names = ("exact_match", "token", "block", "typical", "relaxed", "threshold", "synthetic")
        for name in names:
            engine.open(specd.SamplingParams(verify=name, **numbers.get(name, {})), request_id=name)
        self.assertEqual({key: each["method"] for key, each in self.listed().items()},
                         {name: name for name in names})

    def test_no_control_character_of_a_name_reaches_the_terminal(self):
        self.daemon()
        name = "a\x7f\x9b\u00e9\u0082\u00a0"
        engine = self.connect(name=name)
        engine.open(request_id="one")
        for arguments in (["list", "--json"], ["list"], ["show", "one", "--json"]):
            said = self.specctl(*arguments)
            self.assertEqual([c for c in said if c == "\x7f" or "\x80" <= c < "\xa0"], [])
        self.assertEqual(self.listed()["one"]["client"], name)

    def test_a_long_list_comes_in_pages(self):
        self.daemon()
        engine = self.connect()
        second = self.connect()
        names = [f"request {i:04} {'x' * 100}" for i in range(250)]
        engine.open_batch(200, request_ids=names[:200])
        second.open_batch(50, request_ids=names[200:])
        self.assertEqual(sorted(self.listed()), names)

    def test_an_abort_ends_a_request_whoever_makes_its_text(self):
        for flags, params in (((), {"stop": ["xyzzy"]}),
                              (("--detokenizer=process",), {"stop": ["xyzzy"]}),
                              (("--detokenizer=off",), {"stop": ["xyzzy"], "stops": "inline"})):
            with self.subTest(flags):
                daemon = self.daemon(*flags)
                detok = None
                if "--detokenizer=process" in flags:
                    detok = self.start("specd-detok", f"--specd=unix:{self.socket}",
                                       f"--tokenizer={TOKENIZER}")
                engine = self.connect()

                def opened(name):
                    try:
                        return engine.open(specd.SamplingParams(seed=1, **params), request_id=name)
                    except specd.Error:
                        return None  # the daemon has not heard its detokenizer yet
                found = []
                wait_until(lambda: found.append(opened("by name")) or found[-1], "the text side")
                by_name, by_stream = found[-1], opened("by stream")
                others = [opened(f"all {i}") for i in range(3)]
                kept = len(self.rounds(by_name, 3))
                self.specctl("abort", "by name")
                self.assertEqual((by_name.state().finish_reason, by_name.state().kept_tokens),
                                 ("abort", kept))
                self.assertEqual(self.rounds(by_name, 1)[0].status, "finished")
                stream = self.listed()["by stream"]["stream"]
                answer = json.loads(self.specctl("abort", f"--stream={stream}", "--json"))
                self.assertEqual(answer, {"ended": 1})
                self.assertEqual(by_stream.state().finish_reason, "abort")
                self.specctl("abort", "by name", code=3)  # it has ended
                self.specctl("abort", "nobody's", "all 0", code=3)
                self.assertEqual(others[0].state().finish_reason, "abort")
                self.assertEqual(json.loads(self.specctl("abort-all", "--json")), {"ended": 2})
                self.assertEqual(json.loads(self.specctl("abort-all", "--json")), {"ended": 0})
                self.assertEqual({each["state"] for each in self.listed().values()}, {"aborted"})
                engine.close()
                self.stop(daemon)
                if detok is not None:
                    detok.stop()

    def test_a_pending_sequence_is_listed_and_aborted(self):
        self.daemon()
        engine = self.connect()
        # Four are built at a time, so the last one is pending for long.
        for i in range(12):
            grammar = 'root ::= "x"' + " [a]?" * (2600 + i)  # compiles for a fifth of a second
            pending = engine.open(specd.SamplingParams(structured_outputs=specd.StructuredOutputs(
                grammar=grammar)), wait=False, request_id=f"slow {i}")
        self.assertEqual(self.listed()["slow 11"]["state"], "pending")
        self.specctl("abort", "slow 11")
        self.assertEqual(pending.state().finish_reason, "abort")
        self.specctl("abort-all")
        self.assertEqual({each["state"] for each in self.listed().values()}, {"aborted"})

    def test_a_drain_refuses_openings_and_ends_with_the_last_sequence(self):
        daemon = self.daemon(f"--counters={self.folder}/c")
        engine = self.connect()
        sequence = engine.open(specd.SamplingParams(seed=1, max_tokens=6), request_id="last")
        self.rounds(sequence, 2)
        drain = self.start("specctl", "drain", "--json", f"--specd=unix:{self.socket}")
        phase = lambda: [each["value"] for each in json.loads(self.run_to_end(
            "specctl", "stats", "--json", f"--counters={self.folder}/c").stdout)["metrics"]
            if each["name"] == "specd:state"]
        wait_until(lambda: phase() == [2], "the drain")  # /ready is 503: health_test.cc
        for refused in (lambda: engine.open(request_id="new"), lambda: sequence.fork(),
                        lambda: engine.open(request_id="new", wait=False), self.connect):
            with self.assertRaises(specd.Error) as caught:
                refused()
            self.assertEqual(caught.exception.code_name, "SPECD_ERROR_SHUTDOWN")
            self.assertIn("the daemon drains", str(caught.exception))
        self.assertTrue(daemon.running() and drain.running())
        self.assertEqual([each.status for each in self.rounds(sequence, 4)], ["ok"] * 4)
        self.assertEqual(sequence.state().finish_reason, "length")
        self.assertEqual((daemon.wait(), drain.wait()), (0, 0))
        self.assertEqual(json.loads(drain.stdout), {"sessions": 1, "running": 1, "ended": True})
        self.specctl("list", code=1)

    def test_traces_are_written(self):
        self.daemon()
        self.connect()
        self.specctl("trace", code=3)
        self.assertIn("trace", self.said)

    def test_a_flight_recording_of_each_session_is_dumped(self):
        (self.folder / "traces").mkdir()
        self.daemon(f"--trace={self.folder}/traces", "--trace_options=flight=60")
        for count in (3, 2):
            engine = self.connect()
            self.rounds(engine.open(specd.SamplingParams(seed=1)), count)
        traces = json.loads(self.specctl("trace", "--json"))["traces"]
        self.assertEqual([each["rounds"] for each in traces], [3, 2])
        for each in traces:
            self.assertTrue(os.path.getsize(each["path"]) > 0)

    def draft(self, engine, num_rounds, best):
        """Rounds with two draft tokens of one sequence: drawn from q, or the best ids of q, declared
        as drawn."""
        random = np.random.default_rng(5)
        sequence = engine.open(specd.SamplingParams(seed=2, verify="token", max_tokens=10000,
                                                    ignore_eos=True))
        for _ in range(num_rounds):
            rows = random.normal(0, 2, (3, VOCAB_SIZE)).astype(np.float32)
            q = (rows[:2] + random.normal(0, 0.7, (2, VOCAB_SIZE))).astype(np.float32)
            shares = np.exp(q - q.max(axis=1, keepdims=True))
            tokens = [int(share.argmax()) if best else int(random.choice(VOCAB_SIZE, p=share / share.sum()))
                      for share in shares.astype(float)]
            engine.verify(rows, {sequence: tokens}, q=q)

    def test_the_doctor_examines_each_session(self):
        traces = self.folder / "traces"
        traces.mkdir()
        self.daemon(f"--trace={traces}", "--trace_options=level=rows,places=all")
        self.specctl("doctor", code=2)
        self.assertIn("no engine is attached", self.said)
        first = self.connect()
        self.draft(first, 150, best=False)
        said = json.loads(self.specctl("doctor", "--json"))["sessions"]
        self.assertEqual([finding["fault"] for finding in said[0]["doctor"]["findings"]].count(True), 0)
        self.draft(self.connect(), 150, best=True)  # attached later, and faulty
        self.connect()  # it drafts nothing
        sessions = json.loads(self.specctl("doctor", "--json", code=1))["sessions"]
        self.assertEqual([each["rounds"] for each in sessions[:2]], [150, 150])
        faults = [[f["name"] for f in each["doctor"]["findings"] if f["fault"]] for each in sessions[:2]]
        self.assertEqual([bool(names) for names in faults], [False, True], faults)
        self.assertIn("no draft was judged", sessions[2]["error"])
        text = self.specctl("doctor", code=1)
        self.assertEqual(text.count("no fault: "), 1)
        self.assertRegex(text, r"session \d+: .*/specd-.*[.]mcap \(150 rounds, 0 lost\)")
        self.assertRegex(text, r"\nfault: .*best id")
        # The folder has the recordings of three engines, and the program beside it takes them all.
        done = self.run_to_end("specd-replay", "doctor", str(traces))
        self.assertEqual(done.code, 1, done.stderr)
        self.assertEqual(done.stdout.count("recording "), 3, done.stdout)
        self.assertEqual(done.stdout.count("\nfault: "), text.count("\nfault: "))
        for path in traces.glob("*.rows"):
            path.unlink()
        self.assertIn("error", self.specctl("doctor", "--json", code=2))
        self.assertIn(".rows", self.said)

    def test_the_doctor_examines_all_files_of_a_recording_that_goes_on(self):
        """Bugs: it had the rounds of the present file alone, and warned of that file's end."""
        traces = self.folder / "traces"
        traces.mkdir()
        self.daemon(f"--trace={traces}", "--trace_options=level=rows,file_mib=1")
        first, second = self.connect(), self.connect()
        self.draft(second, 20, best=False)
        self.draft(first, 400, best=False)
        sessions = json.loads(self.specctl("doctor", "--json"))["sessions"]
        files = [path.name.split("-")[3] for path in traces.glob("*.mcap")]
        self.assertEqual(len(set(files)), 2)
        self.assertGreater(len(files), 2, files)
        self.assertEqual(self.said, "")
        reached = [sum(each["reached"] for each in session["doctor"]["method"]) for session in sessions]
        self.assertGreaterEqual(reached[0], 400)  # each round judges its first draft token
        self.assertTrue(20 <= reached[1] <= 40, reached)
        with open("/dev/full", "wb") as full:
            for arguments, code in ((["doctor", "--json"], 2), (["list"], 1), (["stats"], 1)):
                done = subprocess.run([BIN / "specctl", *arguments, f"--specd=unix:{self.socket}",
                                       f"--counters={self.socket}.counters"], stdout=full,
                                      stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(done.returncode, code, (arguments, done.stderr))
                self.assertIn("could not be written", done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root can be several users")
    def test_each_user_sees_and_ends_what_is_his(self):
        self.folder.chmod(0o711)
        self.daemon(f"--allow_uid={NOBODY}")
        mine = self.connect().open(request_id="root's")
        self.open_as_nobody("nobody's")
        name = "nobody's"
        self.assertEqual(set(self.listed()), {"root's", name})
        self.assertEqual(self.listed()[name]["uid"], NOBODY)
        self.assertEqual(set(self.listed(user=NOBODY)), {name})
        self.specctl("show", "root's", code=3, user=NOBODY)
        self.specctl("abort", "root's", code=3, user=NOBODY)
        self.specctl("drain", code=4, user=NOBODY)
        self.assertEqual(mine.state().finish_reason, None)
        for command in (["list"], ["abort-all"], ["drain"], ["trace"], ["abort", name]):
            self.specctl(*command, code=4, user=STRANGER)
            self.assertIn(f"uid {STRANGER}", self.said)
        self.assertEqual(json.loads(self.specctl("abort-all", "--json", user=NOBODY)), {"ended": 1})
        self.assertEqual(mine.state().finish_reason, None)

    def test_wrong_command_lines(self):
        for arguments in (["abort"], ["show"], ["list", "more"], ["lisst"], []):
            self.specctl(*arguments, code=2)
        done = self.run_to_end("specctl", "list", "--specd=tcp://127.0.0.1:5")
        self.assertEqual(done.code, 2)

    def test_bash_completes_commands_flags_and_request_ids(self):
        self.daemon()
        engine = self.connect()
        for name in ("cmpl-1", "cmpl-2", "with space", "chat"):
            engine.open(request_id=name)

        def complete(*words):
            words = ["specctl", *words]
            script = f"""source {SOURCE}/tools/specctl/specctl.bash
                complete -p specctl > /dev/null || exit 9
                COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${{#COMP_LINE}}
                _specctl
                printf '%s\\n' "${{COMPREPLY[@]}}" """
            done = subprocess.run(["bash", "-c", script, "bash", *words], text=True, capture_output=True,
                                  env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            return done.stdout.split("\n")[:-1]
        self.assertEqual(complete("ab"), ["abort", "abort-all"])
        self.assertEqual(complete("abort", "--s"), ["--specd=", "--stream="])
        self.assertEqual(complete("list", "--i"), ["--ids"])
        self.assertEqual(complete("doctor", "--j"), ["--json"])
        at = f"--specd=unix:{self.socket}"
        self.assertEqual(sorted(complete("abort", at, "cmpl-")), ["cmpl-1", "cmpl-2"])
        self.assertEqual(complete("show", at, "with"), [r"with\ space"])
        self.assertEqual(complete("drain", at, "c"), [""])
        # Every command that the program knows is completed, and no other.
        usage = self.run_to_end("specctl", "lisst").stderr
        known = usage[usage.index("use ") + 4:].strip().replace(" or ", ", ").split(", ")
        self.assertEqual(sorted(complete("")), sorted(known))


if __name__ == "__main__":
    unittest.main()
