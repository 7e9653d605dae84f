"""specd-bench as its users run it: output for people and programs, and what is refused."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
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
                (("decode",), ("suite = decode", "verify", "ipc", "ptx")),
                (("ipc", "--case=fast"), ("case = fast", "ipc --list")),
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
        for part in ("specd-bench stall --quick --markdown", "--threads", "0 .. 16", "default 20, with --quick 5",
                     "--case"):
            self.assertIn(part, text)
        self.assertNotIn("--vocab", text)

    @unittest.skipIf(os.environ["SPECD_LLAMA"], "built with llama.cpp")
    def test_llama_is_refused_where_it_is_not_built_in(self):
        process = bench("verify", "--base=llama", *SMALL)
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
                                 "grammar", "flat_topp95", "block", "one_hot", "reject_side",
                                 "reject_rows"])
        process = bench("gpu", "--json", "--vocab=600", "--batch=2", "--draft=2", "--seconds=0.001",
                        "--dtype=bf16")
        if process.returncode == 0:
            results = [json.loads(line) for line in process.stdout.splitlines()]
            self.assertEqual([(r["case"], r["state"]) for r in results],
                             [(name, state) for name in names for state in ("cold", "warm")])
            return
        self.assertEqual(process.returncode, 3, process.stderr)
        self.assertEqual(process.stdout, "")
        self.assertIn("no device", process.stderr)

    def test_grammar_has_one_line_for_each_case(self):
        names = [line.split()[0] for line in self.lines("grammar", "--list")]
        small = ("--quick", "--json", "--vocab=2000", "--seconds=0.001")
        results = [json.loads(line) for line in self.lines("grammar", *small)]
        # fill_threads has a line for each batch, and the other cases have one.
        self.assertEqual(list(dict.fromkeys(r["case"] for r in results)), names)
        cpus = min(len(os.sched_getaffinity(0)), 16)
        self.assertEqual([r["constraint"] for r in results if r["case"] == "fill_threads"],
                         [f"b{batch}_{heat}_t{threads}" for batch in (1, 8, 64)
                          for threads in sorted({1, cpus}) for heat in ("cold", "warm")])
        self.assertEqual([r["case"] for r in results if r["case"] != "fill_threads"], names[:-1])
        for r in results:
            self.assertEqual((r["suite"], r["vocab"]), ("grammar", 2000))
            if r["case"] != "fill_threads":
                self.assertEqual(r["constraint"], "all")
            self.assertEqual(r["unit"], "bytes" if r["case"] == "memory" else "us")
            self.assertLess(0, r["median"])
            self.assertLessEqual(r["median"], r["p99"])
            self.assertEqual("ratio" in r, "ratio_of" in r)
        results = [json.loads(line) for line in self.lines(
            "grammar", "--each", "--case=warm_mask,memory", "--constraint=tool_call,tags", *small)]
        self.assertEqual([(r["case"], r["constraint"]) for r in results],
                         [(case, text) for text in ("all", "tool_call", "tags")
                          for case in ("warm_mask", "memory")])

    def grammar_beside_a_pretended_peer(self, constraints):
        here = pathlib.Path(__file__).parent
        return bench("grammar", "--base=xgrammar", f"--python={sys.executable}", "--json", "--vocab=2000",
                     "--seconds=0.001", f"--constraint={constraints}",
                     PYTHONPATH=str(here / "pretended_xgrammar"), PYTHONDONTWRITEBYTECODE="1")

    def test_grammar_measures_beside_its_peer_what_both_take(self):
        process = self.grammar_beside_a_pretended_peer("arithmetic,country,tool_call")
        self.assertEqual(process.returncode, 0, process.stderr)
        results = [json.loads(line) for line in process.stdout.splitlines()]
        refused = [r for r in results if "refused_by" in r]
        self.assertEqual([(r["constraint"], r["refused_by"], r["refusal"]) for r in refused],
                         [("tool_call", "xgrammar", "no schemas here")])
        measured = {r["case"]: r for r in results if r not in refused and r["case"] != "fill_threads"}
        self.assertEqual(list(measured), ["compile", "first_mask", "cold_mask", "warm_mask", "round_k5",
                                          "memory"])
        for r in measured.values():
            self.assertEqual(r["ratio_of"], "xgrammar")
            self.assertLess(0, r["base_median"])
        self.assertEqual(measured["memory"]["base_median"], 1000)

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
    def test_ipc_has_one_line_for_each_case_and_round(self):
        # The suite compares the ids of both engines; a difference is exit status 1.
        names = [line.split()[0] for line in self.lines("ipc", "--list")]
        results = [json.loads(line) for line in self.lines(
            "ipc", "--json", "--vocab=64,300", "--draft=0,2", "--gap=0,10", "--seconds=0.001")]
        self.assertEqual([(r["case"], r["vocab"], r["draft"], r["gap_us"]) for r in results],
                         [(name, vocab, draft, gap) for name in names for vocab in (64, 300)
                          for draft in (0, 2) for gap in (0, 10)])
        for r in results:
            self.assertGreaterEqual(r["rounds"], 200)
            for side in ("embedded", "attached"):
                self.assertLess(0, r[f"{side}_p50_us"])
                self.assertLessEqual(r[f"{side}_p50_us"], r[f"{side}_p90_us"])
            self.assertLessEqual(r["attached_p90_us"], r["attached_p99_us"])
            self.assertAlmostEqual(r["added_p50_us"], r["attached_p50_us"] - r["embedded_p50_us"],
                                   places=2)

    def test_egress_has_one_line_for_each_number_of_clients(self):
        # The suite compares each client's text with its stream's; a difference is exit status 1.
        results = [json.loads(line) for line in self.lines("egress", "--json", "--case=http")]
        # Rounds of 4 tokens: 4,096 of one stream, and 102,400 / clients of each of more.
        self.assertEqual([(r["case"], r["clients"], r["tokens"]) for r in results],
                         [("http", 1, 4096 * 4), ("http", 100, 100 * 1024 * 4),
                          ("http", 1000, 1000 * 102 * 4)])
        for r in results:
            self.assertLess(0, r["tokens_per_s"])
        process = bench("egress", "--case=http", "--http=/nowhere/specd-http")
        self.assertEqual((process.returncode, process.stdout), (1, ""), process.stderr)
        self.assertIn("/nowhere/specd-http does not serve; see --http", process.stderr)

    def test_rows_that_cannot_be_read_are_an_error(self):
        process = bench("verify", "--rows=/dev/null/rows.f32", *SMALL)
        self.assertEqual(process.returncode, 2)
        self.assertIn("rows = /dev/null/rows.f32", process.stderr)


def launch(**counts):
    """A launch of counts for specd-bench ptx: on every processor, with nothing to do."""
    nothing = dict.fromkeys(
        ("idle_lanes", "asked_bytes", "asked_sectors", "needed_sectors", "asked_row_sectors",
         "repeated_row_sectors", "shared_turns", "bank_conflicts", "chain_cycles", "chain_instructions"), 0)
    return {"kernel": "k", "blocks": 1000, "threads": 128, **nothing, "chain_functions": {}, "classes": {},
            **counts}


# On an H200, 0.92 of 4,800 GB/s are 138,000 sectors in a microsecond: 10 us for the round, and 8 for
# the read. On an A100 with 1,410 cycles in a microsecond, the chains take 12 us and 2. The first
# launch of each comes after a gap of 1.5 us.
GREEDY = {"case": "greedy", "dtype": "bf16", "arch": 90, "processors": 132, "batch": 64, "draft": 5,
          "vocab": 100, "elements": 1600,
          "round": [launch(needed_sectors=1_380_000, asked_sectors=2_070_000, asked_bytes=70_000_000,
                           asked_row_sectors=110,
                           repeated_row_sectors=10, bank_conflicts=4, idle_lanes=640,
                           chain_cycles=7, chain_instructions=9,
                           classes={"float": 100, "alu": 50, "wide_alu": 10, "move": 20,
                                    "memory": 7, "shared": 1, "local": 1, "atomic": 1,
                                    "convert": 10})],
          "read": [launch(needed_sectors=1_104_000, asked_sectors=1_104_000)]}
ONE_HOT = {**GREEDY, "case": "one_hot", "arch": 80, "processors": 108, "batch": 1,
           "round": [launch(chain_cycles=12 * 1410, needed_sectors=1, asked_row_sectors=1,
                            classes={"alu": 1})],
           "read": [launch(chain_cycles=2 * 1410, needed_sectors=1)]}


class PtxTest(unittest.TestCase):
    def bench(self, rounds, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "counts.jsonl"
            path.write_text("".join(json.dumps(counts) + "\n" for counts in rounds))
            return bench("ptx", f"--counts={path}", *arguments)

    def test_tables_have_the_counts_and_the_predictions_of_each_line(self):
        process = self.bench([GREEDY, ONE_HOT], "--markdown")
        self.assertEqual(process.returncode, 0, process.stderr)
        self.assertIn("predicted from counts", process.stdout)
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in process.stdout.splitlines() if line.startswith("| ") and "---" not in line]
        counted, memory, predicted = [[row for row in rows if len(row) == width]
                                      for width in (13, 12, 9)]
        named = {"case": "greedy", "PTX": "90", "batch": "64", "launches": "1"}
        for table, cells in (
                (counted, {"instr/element": "4.00", "float": "2.00", "alu": "1.20", "move": "0.40",
                           "memory": "0.20", "other": "0.20", "idle": "10.0 %", "chain": "9",
                           "cycles": "7"}),
                # 2,070,000, 1,380,000 and 1,104,000 sectors of 32 bytes.
                (memory, {"accessed MB": "70.00", "asked MB": "66.24", "needed MB": "44.16",
                          "read MB": "35.33", "asked/needed": "1.500", "needed/read": "1.250",
                          "rows again": "10.0 %", "conflicts": "4"})):
            self.assertEqual([row[0] for row in table], ["case", "greedy", "one_hot"])
            self.assertEqual(dict(zip(table[0], table[1])), {**named, **cells})
        self.assertEqual(predicted[1:],
                         # Without chains, one_hot and its read are gaps and a sector each.
                         [["greedy", "H200", "64", "11.5", "9.5", "1.21", "1.21", "memory", "<= 1.25 met"],
                          ["one_hot", "A100", "1", "13.5", "3.5", "3.86", "1.00", "chain",
                           "<= 10 us missed by 20 %"]])

    def test_launches_have_the_functions_of_their_longest_warp(self):
        functions = {"k": 12 * 1410, "Finish": 9 * 1410, "Judge": 6 * 1410, "Rest": 1410}
        rounds = {**ONE_HOT, "round": [launch(chain_cycles=12 * 1410, asked_row_sectors=1_000_000,
                                              repeated_row_sectors=250_000, chain_functions=functions)]}
        process = self.bench([rounds], "--markdown", "--launches")
        self.assertEqual(process.returncode, 0, process.stderr)
        *_, row = [[cell.strip() for cell in line.strip("|").split("|")]
                   for line in process.stdout.splitlines() if line.startswith("|")]
        # The kernel itself is no part of it, nor is less than a tenth.
        self.assertEqual(row, ["one_hot", "A100", "1", "k", "12.0", "0.0", "chain", "32.00", "8.00",
                               "Finish 75 %, Judge 50 %"])

    def test_json_has_one_line_for_each_round(self):
        process = self.bench([GREEDY, ONE_HOT], "--json")
        self.assertEqual(process.returncode, 0, process.stderr)
        greedy, one_hot = [json.loads(line) for line in process.stdout.splitlines()]
        self.assertEqual(one_hot, {"suite": "ptx", "case": "one_hot", "device": "A100",
                                   "dtype": "bf16", "batch": 1, "draft": 5, "vocab": 100,
                                   "predicted_us": 13.5, "read_us": 3.5, "ratio": 3.8571,
                                   "bound": "chain", "target_us": 10, "met": False,
                                   "instructions_per_element": 0.02})
        self.assertEqual((greedy["device"], greedy["predicted_us"], greedy["bound"]),
                         ("H200", 11.5, "memory"))

    def test_counts_that_cannot_be_used_are_refused(self):
        for process, parts in (
                (bench("ptx"), ("counts = ", "specd_ptx_counts")),
                (bench("ptx", "--counts=/nowhere"), ("counts = /nowhere", "specd_ptx_counts")),
                (bench("ptx", "--batch=1"), ("batch", "ptx", "counts")),
                (self.bench([GREEDY, {}]), ("line 2", "case is missing")),
                (self.bench([GREEDY], "--json", "--launches"), ("launches", "--json")),
                (self.bench([{**GREEDY, "processors": 7}]), ("90 on 7 processors", "132"))):
            self.assertEqual((process.returncode, process.stdout), (2, ""), process.stderr)
            for part in parts:
                self.assertIn(part, process.stderr)


if __name__ == "__main__":
    unittest.main()
