"""tools/demo as a stranger runs it: text, marks and table. However it ends, it leaves nothing."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from support import ProcessTest, SOURCE, wait_until

PROMPTS = ("The daemon", "A round", "The engine", "A draft token")


class DemoTest(ProcessTest):
    def demo(self, *flags, **environment):
        return self.start(SOURCE / "tools/demo", *flags, start_new_session=True,
                          env={**os.environ, "TMPDIR": str(self.folder), **environment})

    def assertNothingLeft(self, demo):
        self.assertEqual(list(self.folder.iterdir()), [])
        with self.assertRaises(ProcessLookupError):
            os.killpg(demo.process.pid, 0)

    def test_text_marks_and_table(self):
        demo = self.demo("--max_tokens=60")
        self.assertEqual(demo.wait(), 0, demo.stderr)
        for prompt in PROMPTS:
            self.assertEqual(len(re.findall(rf"^{prompt} +\d+ +\d+ ", demo.stdout, re.MULTILINE)), 1)
        self.assertRegex(demo.stdout, r"\[[^\]]+\]")  # accepted drafts are marked
        for word in ("tokens", "rounds", "accepted/round", "tokens/s", "specd us"):
            self.assertIn(word, demo.stdout)
        self.assertNotIn("\x1b", demo.stdout)  # no colours outside a terminal
        self.assertNothingLeft(demo)

    def test_the_page_shows_streams_until_ctrl_c(self):
        demo = self.demo("--web", "--max_tokens=30", "--forward_ms=5", SPECD_DEMO_PORT="0")
        wait_until(lambda: "open http" in demo.stdout or not demo.running(), "the address")
        address = re.search(r"open (http://[0-9.]+:[0-9]+/) in a browser; Ctrl-C ends", demo.stdout)
        self.assertIsNotNone(address, demo.stderr)
        with urllib.request.urlopen(address[1], timeout=60) as page:
            self.assertIn("live streams", page.read().decode())
        opened = set()
        with urllib.request.urlopen(address[1] + "v1/streams", timeout=60) as events:
            while len(opened) < len(PROMPTS):
                line = events.readline().decode()
                if line.startswith("data: "):
                    opened.add(json.loads(line[6:])["rid"])
        self.assertEqual(opened, set(PROMPTS))
        os.killpg(demo.process.pid, signal.SIGINT)
        self.assertEqual(demo.wait(), 130, demo.stderr)
        self.assertNothingLeft(demo)

    def test_trees_side_by_side(self):
        demo = self.demo("--tree=2,2,1", "--max_tokens=60")
        self.assertEqual(demo.wait(), 0, demo.stderr)
        kept = {name: (int(nodes), float(accepted)) for name, nodes, accepted in re.findall(
            r"(?m)^(chain|tree|mixed tree) +\d+ +\d+ +(\d+) +([\d.]+)$", demo.stdout)}
        self.assertEqual({name: nodes for name, (nodes, _) in kept.items()},
                         {"chain": 3, "tree": 2 + 4 + 4, "mixed tree": 2 + 4 + 4})
        # 3 draft tokens in a row at most, and more of them from trees than from chains.
        self.assertTrue(0 < kept["chain"][1] < kept["tree"][1] < 3, kept)
        self.assertGreater(kept["mixed tree"][1], kept["chain"][1])
        for name in kept:
            drawing = re.search(rf"(?m)^{name}: the best round of .*, (\d) accepted\n((?:[ |+`].*\n)+)",
                                demo.stdout)
            self.assertEqual(len(re.findall(r"[+`]- \[", drawing[2])), int(drawing[1]))
            self.assertLessEqual(drawing[2].count("->"), 1)
        self.assertNothingLeft(demo)

    def test_its_trace_is_verified(self):
        with tempfile.TemporaryDirectory(prefix="specd-demo-trace-") as folder:
            traces = pathlib.Path(folder) / "traces"  # the daemon makes it
            demo = self.demo("--max_tokens=30", "--drafts=sampled", "--verify=token", f"--trace={traces}",
                             "--trace_options=level=rows")
            self.assertEqual(demo.wait(), 0, demo.stderr)
            self.assertNothingLeft(demo)
            num_rounds = int(re.search(r"^total +\d+ +(\d+) ", demo.stdout, re.MULTILINE)[1])
            self.assertGreater(num_rounds, 5)
            info = self.run_to_end("specd-replay", "info", traces)
            self.assertRegex(info.stdout, rf"(?m)^rounds +{num_rounds} \(numbers 1 to {num_rounds}; 0 ")
            verify = self.run_to_end("specd-replay", "verify", traces)
            self.assertEqual(verify.code, 0, verify.stdout + verify.stderr)
            self.assertRegex(verify.stdout, r"(?m)^equal +[1-9]")
            self.assertRegex(verify.stdout, r"(?m)^ *different +0$")

    def test_a_trace_needs_a_directory(self):
        demo = self.demo(f"--trace={self.folder / 'no/such/file.mcap'}")
        self.assertEqual(demo.wait(), 1)
        self.assertIn("no such directory", demo.stderr)
        self.assertNothingLeft(demo)

    def test_interrupted(self):
        demo = self.demo("--max_tokens=100000", "--forward_ms=50")
        wait_until(lambda: "The daemon" in demo.stdout or not demo.running(), "the first line")
        self.assertTrue(demo.running(), demo.stderr)
        os.killpg(demo.process.pid, signal.SIGINT)
        self.assertEqual(demo.wait(), 130)
        self.assertNothingLeft(demo)

    def test_a_bad_flag_is_reported_and_everything_ends(self):
        demo = self.demo("--no_such_flag=1")
        self.assertNotEqual(demo.wait(), 0)
        self.assertIn("no_such_flag", demo.stderr)
        self.assertNothingLeft(demo)


PROGRAMS = {"specd_daemon": "specd", "specd_toy_engine": "specd-toy-engine",
            "specd_toy_client": "specd-toy-client", "specd_http": "specd-http"}


class DemoBuildTest(ProcessTest):
    """What is built before the demo, in a tree whose cmake and programs only say that they ran."""

    def setUp(self):
        super().setUp()
        for name in ("demo", "lib.sh"):
            self.program(f"tools/{name}", (SOURCE / "tools" / name).read_text())
        self.program("tools/setup", "#!/bin/sh\n")
        self.program("path/cmake", "#!/bin/sh\necho cmake \"$@\"\n")
        for build in ("default", "demo"):
            self.program(f"build/{build}/bin/specd", f"#!/bin/sh\ntouch {self.folder}/{build}-ran\n")

    def program(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def demo(self):
        """Runs it until its daemon ends, which is at once. Returns the commands of cmake and whose
        daemon it was."""
        environment = {**os.environ, "PATH": f"{self.folder}/path:{os.environ['PATH']}"}
        del environment["SPECD_BIN"]
        demo = self.start(self.folder / "tools/demo", env=environment)
        self.assertEqual(demo.wait(), 1)
        self.assertIn("the daemon ended", demo.stderr)
        commands = [line for line in demo.stdout.splitlines() if line.startswith("cmake")]
        return commands, [path.name for path in self.folder.glob("*-ran")]

    def rules(self, inputs):
        (self.folder / "build/default/build.ninja").write_text(
            "rule make\n  command = false\n" +
            "".join(f"build bin/{program}: make {inputs}\nbuild {target}: phony bin/{program}\n"
                    for target, program in PROGRAMS.items()))

    BUILDS = ["cmake --preset demo", "cmake --build --preset demo"]

    def test_without_a_build_of_the_default_preset(self):
        self.assertEqual(self.demo(), (self.BUILDS, ["demo-ran"]))

    def test_with_one_that_is_out_of_date(self):
        self.rules(inputs="")
        self.assertEqual(self.demo(), (self.BUILDS, ["demo-ran"]))

    def test_with_one_that_is_up_to_date(self):
        (self.folder / "build/default/build.ninja").write_text(
            "".join(f"build {target}: phony\n" for target in PROGRAMS))
        self.assertEqual(self.demo(), ([], ["default-ran"]))

    def test_the_look_at_the_revision_is_no_work(self):
        """This step of the build is always out of date, and its file never stays."""
        folder = self.folder / "build/default"
        (folder / "daemon/base").mkdir(parents=True)
        always = "daemon/base/build_identity.always"
        (folder / "build.ninja").write_text(
            f"rule look\n  command = false\n  generator = 1\nbuild {always}: look\n" +
            "".join(f"build {target}: phony {always}\n" for target in PROGRAMS))
        self.assertEqual(self.demo(), ([], ["default-ran"]))
        self.assertFalse((folder / always).exists())

    def test_the_preset_builds_its_programs_without_tests_and_cuda(self):
        presets = json.loads((SOURCE / "CMakePresets.json").read_text())["buildPresets"]
        targets, = [preset["targets"] for preset in presets if preset["name"] == "demo"]
        self.assertEqual(set(targets), set(PROGRAMS))
        build = self.folder / "tree"
        subprocess.run(["cmake", "--preset", "demo", "-B", build], cwd=SOURCE, check=True,
                       stdout=subprocess.DEVNULL)
        commands = subprocess.run([shutil.which("ninja"), "-C", build, "-t", "commands", *targets],
                                  check=True, capture_output=True, text=True).stdout
        for program in PROGRAMS.values():
            self.assertRegex(commands, rf"-o bin/{program} ")
        self.assertNotRegex(commands, r"\.cu\b")
        self.assertNotIn(f"{SOURCE}/tests/", commands)


if __name__ == "__main__":
    unittest.main()
