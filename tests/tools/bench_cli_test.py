"""specd-bench as its users run it: output for people and programs, and what is refused."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PROGRAM = pathlib.Path(os.environ["SPECD_BIN"]) / "specd-bench"
SMALL = ("--vocab=600", "--batch=2", "--draft=2", "--seconds=0.001", "--state=warm", "--threads=1")


def bench(*arguments, **environment):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=120,
                          check=False, env={**os.environ, **environment})


class BenchTest(unittest.TestCase):
    def lines(self, *arguments):
        process = bench(*arguments)
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout.splitlines()

    def names(self):
        return [line.split()[0] for line in self.lines("verify", "--list")]

    def test_json_has_one_line_for_each_case_and_type(self):
        results = [json.loads(line) for line in self.lines("verify", "--json", *SMALL)]
        self.assertEqual([(r["case"], r["dtype"]) for r in results],
                         [(name, dtype) for dtype in ("fp32", "bf16") for name in self.names()])

    def test_quick_compares_with_a_read(self):
        results = [json.loads(line)
                   for line in self.lines("verify", "--quick", "--json", "--case=greedy", *SMALL)]
        self.assertEqual([(r["ratio_of"], r["batch"]) for r in results],
                         [("read", 2), ("read", 2)])

    def test_tables_are_aligned_and_plain_where_no_terminal_is(self):
        process = bench("verify", "--case=greedy,block_reject_all", "--dtype=fp32", *SMALL)
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertNotIn("\x1b", process.stdout + process.stderr)
        self.assertNotIn("\r", process.stderr)
        table = [line for line in process.stdout.splitlines()
                 if line.startswith(("case", "greedy", "block"))]
        self.assertEqual(len(table), 3)
        self.assertEqual(len({len(line) for line in table}), 1, table)

    def test_markdown_rows_have_the_columns_of_their_head(self):
        table = [line for line in self.lines("verify", "--markdown", "--case=greedy", *SMALL)
                 if line.startswith("|")]
        self.assertEqual(len(table), 4)
        self.assertEqual(len({line.count("|") for line in table}), 1, table)

    def test_stall_compares_work_beside_a_neighbour_with_the_same_work_alone(self):
        results = {result["case"]: result for result in
                   (json.loads(line) for line in self.lines("stall", "--json", "--seconds=0.5"))}
        self.assertEqual(list(results), ["alone", "monster", "masks"])
        for result in results.values():
            self.assertGreaterEqual(result["samples"], 50, result)  # ten engines in each slice
            self.assertLessEqual(result["median"], result["p99"])
            self.assertLessEqual(result["p99"], result["max"])
        for case in "monster", "masks":
            for ratio, value in ("ratio", "median"), ("ratio_p99", "p99"), ("ratio_max", "max"):
                self.assertAlmostEqual(results[case][ratio],
                                       results[case][value] / results["alone"][value], delta=0.01)
            self.assertEqual((results[case]["target"], results[case]["met"]),
                             (3, results[case]["p99"] <= 3 * results["alone"]["p99"]))
        table = [line for line in self.lines("stall", "--markdown", "--seconds=0.1", "--case=masks")
                 if line.startswith("|")]
        self.assertEqual(len(table), 4)
        self.assertEqual(len({line.count("|") for line in table}), 1, table)

    def test_refusals_name_field_value_and_remedy(self):
        for arguments, parts in (
                ((), ("suite", "--help")),
                (("decode",), ("suite = decode", "verify", "ipc", "restart")),
                (("ipc", "--case=fast"), ("case is no flag of ipc", "vocab")),
                (("ipc", "--gap=-1"), ("gap = -1", "100000")),
                (("ipc", "--batch=8"), ("batch", "ipc", "vocab")),
                (("stall", "--gap=5"), ("gap", "stall", "threads")),
                (("ipc", "--seconds=-1"), ("seconds = -1", "3600")),
                (("gpu", "--case=reject_all"), ("case = reject_all", "gpu --list")),
                (("gpu", "--state=warm"), ("state is no flag of gpu", "batch")),
                (("gpu", "--base=read"), ("base is no flag of gpu", "batch")),
                (("opening",), ("suite = opening", "verify", "stall")),
                (("stall", "--batch=1"), ("batch", "stall", "threads")),
                (("stall", "--case=fast"), ("case = fast", "stall --list")),
                (("stall", "--threads=17"), ("threads = 17", "16")),
                (("nonsense",), ("suite = nonsense", "verify", "stall")),
                (("--no_such_flag=1",), ("--no_such_flag=1", "--help")),
                (("ipc", ""), ("is no flag of ipc", "vocab")),
                (("ipc", "-"), ("is no flag of ipc", "vocab")),
                (("grammar", "--case=fast"), ("case = fast", "grammar --list")),
                (("grammar", "--constraint=none"), ("constraint = none", "tool_call")),
                (("grammar", "--base=read"), ("base = read", "xgrammar")),
                (("grammar", "--vocab=100"), ("vocab = 100", "512")),
                (("verify", "--case=fast"), ("case = fast", "--list")),
                (("verify", "--vocab=1,x"), ("vocab = 1,x", "1048576")),
                (("verify", "--batch=0"), ("batch = 0", "1 ..")),
                (("verify", "--draft=65"), ("draft = 65", "64")),
                (("verify", "--dtype=fp8"), ("dtype = fp8", "bf16")),
                (("verify", "--state=hot"), ("state = hot", "warm")),
                (("verify", "--base=air"), ("base = air", "chain", "llama")),
                (("verify", "--threads=-1"), ("threads = -1", "1024")),
                (("verify", "--seconds=0.5,1"), ("seconds = 0.5,1", "a number")),
                (("verify", "--seconds=-1"), ("seconds = -1", "3600")),
                (("verify", "--json", "--markdown"), ("json", "markdown"))):
            process = bench(*arguments)
            self.assertEqual(process.returncode, 2, (arguments, process.stderr))
            self.assertEqual(process.stdout, "")
            for part in parts:
                self.assertIn(part, process.stderr)

    def test_help_has_the_flags_their_defaults_and_examples(self):
        self.assertIn("specd-bench verify --quick", "".join(self.lines("--help")))
        text = "\n".join(self.lines("stall", "--help"))
        for part in ("specd-bench stall: ", "--threads", "0 .. 16", "default 20, with --quick 5", "--case"):
            self.assertIn(part, text)
        self.assertNotIn("--vocab", text)

    @unittest.skipIf(os.environ["SPECD_LLAMA"], "built with llama.cpp")
    def test_llama_is_refused_where_it_is_not_built_in(self):
        for case in ((), ("--case=reject_all",)):  # llama.cpp does not reject drafts
            process = bench("verify", "--base=llama", *case, *SMALL)
            self.assertEqual(process.returncode, 2, process.stderr)
            self.assertEqual(process.stdout, "")
            for part in ("base = llama", "-DSPECD_LLAMA=PREFIX"):
                self.assertIn(part, process.stderr)

    @unittest.skipUnless(os.environ["SPECD_LLAMA"], "built without llama.cpp")
    def test_llama_samples_rows_of_fp32(self):
        results = [json.loads(line)
                   for line in self.lines("verify", "--base=llama", "--json", *SMALL)]
        self.assertEqual([(r["case"], r["dtype"], r["ratio_of"]) for r in results],
                         [(name, "fp32", "llama")
                          for name in ("greedy", "temperature", "topk40", "topp95", "minp05",
                                       "topk40_topp95", "penalties", "flat_topp95")])
        # Where the design asks for a ratio: one thread, warm rows of 128,256, one sequence of 5 drafts.
        result = json.loads(self.lines("verify", "--base=llama", "--json", "--case=minp05",
                                       "--quick", "--batch=1", "--threads=1", "--state=warm",
                                       "--dtype=fp32", "--seconds=0.001")[0])
        self.assertEqual(result["target"], 20)

    def test_gpu_measures_or_says_that_there_is_no_device(self):
        names = [line.split()[0] for line in self.lines("gpu", "--list")]
        self.assertEqual(names, ["greedy", "temperature", "topk40_topp95", "penalties", "logprobs5",
                                 "grammar", "flat_topp95", "block_reject_all", "one_hot",
                                 "reject_side"])
        process = bench("gpu", "--json", "--vocab=600", "--batch=2", "--draft=2", "--seconds=0.001",
                        "--dtype=bf16")
        if process.returncode == 0:
            results = [json.loads(line) for line in process.stdout.splitlines()]
            self.assertEqual([r["case"] for r in results], names)
            return
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assertIn("no device", process.stderr)

    def test_grammar_has_one_line_for_each_case(self):
        names = [line.split()[0] for line in self.lines("grammar", "--list")]
        results = [json.loads(line) for line in self.lines(
            "grammar", "--quick", "--json", "--vocab=2000", "--seconds=0.001")]
        self.assertEqual([r["case"] for r in results], names)
        for r in results:
            self.assertEqual((r["suite"], r["vocab"], r["unit"]), ("grammar", 2000, "us"))
            self.assertLess(0, r["median"])
            self.assertNotIn("ratio", r)

    def grammar_beside_a_pretended_peer(self, constraints):
        here = pathlib.Path(__file__).parent
        return bench("grammar", "--base=xgrammar", f"--python={sys.executable}", "--json", "--vocab=2000",
                     "--seconds=0.001", f"--constraint={constraints}",
                     PYTHONPATH=str(here / "pretended_xgrammar"), PYTHONDONTWRITEBYTECODE="1")

    def test_grammar_measures_beside_its_peer(self):
        process = self.grammar_beside_a_pretended_peer("arithmetic,country")
        self.assertEqual(process.returncode, 0, process.stderr)
        results = [json.loads(line) for line in process.stdout.splitlines()]
        self.assertEqual([r["case"] for r in results], ["compile", "cold_mask", "warm_mask"])
        for r in results:
            self.assertEqual((r["ratio_of"], r["samples"]), ("xgrammar", r["base_samples"]))
            self.assertAlmostEqual(r["ratio"], r["median"] / r["base_median"], delta=0.01)
            self.assertAlmostEqual(r["ratio_p99"], r["p99"] / r["base_p99"], delta=0.01)

    def test_grammar_ends_where_its_peer_refuses_a_constraint(self):
        process = self.grammar_beside_a_pretended_peer("arithmetic,tool_call")
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertIn("tool_call: xgrammar: no schemas here", process.stderr)

    def test_grammar_ends_where_a_mask_of_its_peer_is_wrong(self):
        process = self.grammar_beside_a_pretended_peer("log_line")
        self.assertEqual(process.returncode, 1, process.stderr)
        self.assertIn("log_line: xgrammar: token 1 of", process.stderr)

    def test_grammar_names_the_interpreter_that_has_no_xgrammar(self):
        for python in ("/nowhere/python", "/bin/false"):
            process = bench("grammar", "--base=xgrammar", f"--python={python}", "--vocab=2000",
                            "--seconds=0.001")
            self.assertEqual(process.returncode, 2, process.stderr)
            for part in (f"python = {python}", "xgrammar", "tools/bench/README.md"):
                self.assertIn(part, process.stderr)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "engine and daemon need a CPU each")
    def test_ipc_has_one_line_for_each_round(self):
        # Each engine checks its answers; a wrong one is exit status 1.
        results = [json.loads(line) for line in self.lines(
            "ipc", "--json", "--vocab=64,300", "--draft=0,2", "--gap=0,10", "--seconds=0.001")]
        self.assertEqual([(r["vocab"], r["draft"], r["gap_us"]) for r in results],
                         [(vocab, draft, gap) for vocab in (64, 300) for draft in (0, 2)
                          for gap in (0, 10)])
        for r in results:
            self.assertGreaterEqual(r["rounds"], 200)
            for side in ("embedded", "attached"):
                self.assertLess(0, r[f"{side}_p50_us"])
                self.assertLessEqual(r[f"{side}_p50_us"], r[f"{side}_p90_us"])
            self.assertLessEqual(r["attached_p90_us"], r["attached_p99_us"])
            for at in "p50", "p90":
                self.assertAlmostEqual(r[f"added_{at}_us"],
                                       r[f"attached_{at}_us"] - r[f"embedded_{at}_us"], places=2)

    def test_trace_has_one_line_for_each_batch(self):
        results = [json.loads(line) for line in self.lines(
            "trace", "--json", "--vocab=300", "--batch=1,4", "--draft=2", "--seconds=0.001")]
        self.assertEqual([(r["batch"], r["draft"]) for r in results], [(1, 2), (4, 2)])
        for r in results:
            self.assertEqual((r["pairs"], r["lost"]), (200, 0))
            self.assertAlmostEqual(r["added_%"], 100 * r["added_us"] / r["plain_us"], delta=0.5)
            self.assertLess(50, r["bytes"])

    def test_egress_has_a_line_for_each_case(self):
        # The suite compares the bytes of the texts; a difference is exit status 1.
        lossless, latency = [json.loads(line) for line in self.lines("egress", "--json", "--seconds=0.1")]
        # An opening, 400 rounds and an end of 256 streams. What a reader has asked for comes in fewer.
        self.assertEqual(lossless["case"], "lossless")
        self.assertLessEqual(lossless["events"], 256 * 402)
        self.assertLessEqual(256 * 2, lossless["events"])
        self.assertEqual(lossless["met"], lossless["events_per_s"] >= 1e6)
        # A token for each of 64 streams every 2 ms.
        self.assertEqual((latency["case"], latency["samples"]), ("latency", 64 * 50))
        self.assertLess(0, latency["median"])


if __name__ == "__main__":
    unittest.main()
