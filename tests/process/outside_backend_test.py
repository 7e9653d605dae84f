"""A backend from outside specd, tools/counting_backend: loaded into an engine's process and into the daemon.
Its answers are those of the CPU backend, bit for bit, and it counts what ran."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from support import PATIENCE_S, SOURCE, ProcessTest, wait_until

PLUGIN = pathlib.Path(os.environ["SPECD_COUNTING_PLUGIN"])
OTHER_ABI_PLUGIN = os.environ["SPECD_OTHER_ABI_PLUGIN"]
WRONG_PLUGIN = os.environ["SPECD_WRONG_PLUGIN"]
COUNTS = re.compile(r"^counting: (\d+) runs, (\d+) tasks$", re.MULTILINE)
NUM_ROUNDS, NUM_SEQUENCES = 20, 3

# Rounds with sampled and one-hot drafts and with logprobs; prints all that comes back. sys.argv: the plugin
# or "", the URIs.
ROUNDS = f"""
import sys
import numpy as np
import specd
if sys.argv[1]:
    specd.load_backends(sys.argv[1])
for uri in sys.argv[2:]:
    random = np.random.default_rng(5)
    with specd.Engine(uri, vocab_size=3000, max_batch=4, max_draft=2) as engine:
        sequences = [engine.open(specd.SamplingParams(seed=i, temperature=0.8, top_p=0.9, top_k=40,
                                                      min_p=0.01, logprobs=2, max_tokens=200))
                     for i in range({NUM_SEQUENCES})]
        for _ in range({NUM_ROUNDS}):
            rows = random.normal(0, 3, (3 * len(sequences), 3000)).astype(np.float32)
            drafts = [list(map(int, rows[3 * i:3 * i + 2].argmax(1))) for i in range(len(sequences))]
            for result in engine.verify(rows, dict(zip(sequences, drafts))):
                print(result.status, result.tokens.tolist(), result.num_accepted,
                      [[(token, float(one.logprob).hex(), one.rank) for token, one in place.items()]
                       for place in result.logprobs])
        print(engine.sharing()[0])
    print("end of", uri.partition(":")[0])
"""


ONE_ROUND = """
import sys
import numpy as np
import specd
if sys.argv[1]:
    specd.load_backends(sys.argv[1])
with specd.Engine(sys.argv[2], vocab_size=64, max_batch=1, max_draft=1) as engine:
    sequence = engine.open(specd.SamplingParams(seed=1, max_tokens=20))
    for result in engine.verify(np.zeros((2, 64), np.float32), {sequence: [3]}, strict=False):
        print(result.status, list(result.tokens))
"""


class OutsideBackendTest(ProcessTest):
    def python(self, code, *arguments):
        return subprocess.run([sys.executable, "-c", code, *map(str, arguments)],
                              capture_output=True, text=True, timeout=10 * PATIENCE_S)

    def rounds(self, plugin, *uris):
        """What rounds over each URI print, and the whole stderr."""
        done = self.python(ROUNDS, plugin, *uris)
        self.assertEqual(done.returncode, 0, done.stderr)
        texts = re.split(r"end of \w+\n", done.stdout)
        self.assertEqual(texts.pop(), "")
        self.assertEqual(texts[0].count("ok ["), NUM_ROUNDS * NUM_SEQUENCES, texts[0])
        return texts, done.stderr

    def check_counts(self, text):
        counts = [tuple(map(int, found)) for found in COUNTS.findall(text)]
        # A short round is one run. Longer ones, and those beside other engines, are several.
        self.assertEqual(len(counts), 1, text)
        self.assertGreaterEqual(counts[0][0], NUM_ROUNDS)
        self.assertGreaterEqual(counts[0][1], NUM_ROUNDS * NUM_SEQUENCES)

    def serve(self, *flags):
        # The canary would run rounds of its own, and find a wrong backend before the engine does.
        return self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off", "--canary=0", *flags)

    def test_embedded(self):
        texts, errors = self.rounds(PLUGIN, "embedded:cpu", "embedded:counting")
        self.assertEqual(texts[0], texts[1])
        self.check_counts(errors)

    def test_in_the_daemon(self):
        daemon = self.serve(f"--backend_plugin={PLUGIN}", "--device=counting")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertIn("on counting", daemon.stderr)
        texts, errors = self.rounds("", "embedded:cpu", f"unix:{self.socket}")
        self.assertEqual(texts[0], texts[1])
        self.assertNotIn("counting", errors)  # the counts are the daemon's
        self.stop(daemon)
        self.check_counts(daemon.stderr)

    def test_wrong_answers(self):
        """Bug: a wrong num_tokens ended the daemon with SIGABRT, and a wrong id was answered as OK."""
        for device, text in (("wrong_count", "num_tokens = 1048576 for task 0"),
                             ("wrong_id", "an id = 1073741824 for task 0")):
            embedded = self.python(ONE_ROUND, WRONG_PLUGIN, f"embedded:{device}")
            self.assertEqual(embedded.returncode, 0, embedded.stderr)
            self.assertEqual(embedded.stdout, "device_error []\n")
            daemon = self.serve(f"--backend_plugin={WRONG_PLUGIN}", f"--device={device}")
            wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
            attached = self.python(ONE_ROUND, "", f"unix:{self.socket}")
            self.assertEqual(attached.stdout, "device_error []\n", attached.stderr)
            # As if the device had failed: the supervisor restarts the daemon.
            self.assertEqual(daemon.wait(), 70, daemon.stderr)
            line = [line for line in daemon.stderr.splitlines() if "critical" in line]
            self.assertEqual(len(line), 1, daemon.stderr)
            self.assertIn(f'backend "{device}" answered {text}', line[0])

    def test_random_rounds_against_the_contract(self):
        script = SOURCE / "tests/python/rounds_test.py"
        code = ("import runpy, sys, specd\n"
                "specd.load_backends(sys.argv.pop(1))\n"
                f"sys.path.insert(0, {str(script.parent)!r})\n"
                f"runpy.run_path({str(script)!r}, run_name='__main__')\n")
        done = self.python(code, PLUGIN, "--rounds", 300, "--uri", "embedded:counting")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # rounds_test.py counts the sequences of its rounds.
        self.assertGreaterEqual(sum(int(tasks) for _, tasks in COUNTS.findall(done.stderr)), 300)

    def test_what_the_daemon_refuses(self):
        for flags, texts in (
                (["--device=counting"], ["\"counting\" is unknown", "\"cpu\", \"cuda\""]),
                ([f"--backend_plugin={PLUGIN}", "--device=conting"],
                 ["\"conting\" is unknown", "\"cpu\", \"cuda\", \"counting\""]),
                ([f"--backend_plugin={PLUGIN}", "--device=counting:1"], ["one device only"]),
                (["--backend_plugin=counting.so"], ["no absolute path"]),
                (["--backend_plugin=/nowhere/counting.so"],
                 ["/nowhere/counting.so", "cannot be loaded", "give --backend_plugin"]),
                ([f"--backend_plugin={OTHER_ABI_PLUGIN}"], [OTHER_ABI_PLUGIN, "GNU 4.8.0"]),
                ([f"--backend_plugin={PLUGIN},{PLUGIN}"], ["\"counting\" is registered already"])):
            daemon = self.serve(*flags)
            self.assertEqual(daemon.wait(), 1, daemon.stderr)
            for text in texts:
                self.assertIn(text, daemon.stderr)

    def test_what_the_library_refuses(self):
        done = self.python("""
import sys
import specd
def refused(call, code, *texts):
    try:
        call()
    except specd.Error as error:
        assert error.code_name == code, error
        for text in texts:
            assert text in str(error), (text, error)
    else:
        raise AssertionError(code)
refused(lambda: specd.load_backends("/nowhere/counting.so"), "SPECD_ERROR_NOT_FOUND", "/nowhere")
refused(lambda: specd.load_backends(sys.argv[2]), "SPECD_ERROR_UNSUPPORTED", "GNU 4.8.0")
refused(lambda: specd.Engine("embedded:counting", vocab_size=8), "SPECD_ERROR_UNSUPPORTED",
        "embedded:counting", '"cpu", "cuda"')
refused(lambda: specd.load_backends("/nowhere/a\\0b"), "SPECD_ERROR_INVALID_ARGUMENT", "NUL")
refused(lambda: specd.load_backends("/nowhere/\\udcff.so"), "SPECD_ERROR_NOT_FOUND", "cannot be loaded")
specd.Engine("embedded:cpu", vocab_size=8).close()
specd.load_backends(sys.argv[1])  # a backend may come after others were made
refused(lambda: specd.load_backends(sys.argv[1]), "SPECD_ERROR_STATE", "registered already")
specd.Engine("embedded:counting", vocab_size=8).close()
""", PLUGIN, OTHER_ABI_PLUGIN)
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(shutil.which("cmake"), "needs cmake")
    def test_a_project_outside_builds_as_the_document_says(self):
        document = (SOURCE / "docs/BACKENDS.md").read_text()
        example = (SOURCE / "tools/counting_backend/counting_backend.cc").read_text()
        for code in re.findall(r"```cpp\n(SPECD_BACKEND_PLUGIN.*?)```", document, re.DOTALL):
            self.assertIn(code, example)
        (self.folder / "CMakeLists.txt").write_text(re.search(r"```cmake\n(.*?)```", document,
                                                              re.DOTALL)[1])
        (self.folder / "counting_backend.cc").write_text(example)
        build = self.folder / "build"
        for command in (["-S", self.folder, "-B", build, f"-DSPECD_SOURCE={SOURCE}", "-G", "Ninja",
                         "-DSPECD_BUILD_TOOLS=OFF", "-DSPECD_CUDA=OFF"],
                        ["--build", build, "--target", "counting"]):
            done = subprocess.run(["cmake", *map(str, command)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        daemon = self.serve(f"--backend_plugin={build}/counting.so", "--device=counting")
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertIn("on counting", daemon.stderr)


if __name__ == "__main__":
    unittest.main()
