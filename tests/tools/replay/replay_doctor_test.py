"""`specd-replay doctor` as a program: rows that are missing, and the figures that other commands have too."""

import collections
import json
import os
import re
import shutil
import stat
import subprocess
import unittest

import trace_file
from replay_support import GOLDEN, REPLAY, TOKENIZER, Traces, error, out


class MissingRows(Traces):
    def copy(self, name):
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(self.path, folder / "a.mcap")
        return folder

    def test_a_missing_row_file_is_an_error_with_its_name(self):
        """Bug: the doctor went on without the rows, and had fewer figures."""
        folder = self.copy("missing")
        said = error("doctor", folder / "a.mcap")
        self.assertIn(str(folder / "a.rows"), said)
        self.assertIn("--no-rows", said)
        text = out("doctor", folder / "a.mcap", "--no-rows")
        self.assertIn("no fault", text)
        self.assertIn("without rows: ", text)

    def test_rows_that_were_asked_for_and_are_not_there(self):
        folder = self.copy("short")
        (folder / "a.rows").write_bytes(self.trace.row_bytes[:8192])
        for flags in ([], ["--rows"]):  # bug: without --rows it went on, and found no fault
            said = error("doctor", folder / "a.mcap", *flags)
            self.assertIn("8192", said)
            self.assertIn("--no-rows", said)
        self.assertIn("no fault", out("doctor", folder / "a.mcap", "--no-rows"))
        records = trace_file.read(self.path)
        for record in records:
            if record.topic == "round":
                record.value["level"] = 1
                record.value["rows"] = []
            if record.topic == "info":
                record.value["row_file"] = ""
        light = self.folder / "light.mcap"
        trace_file.write(light, records)
        out("doctor", light)
        self.assertIn(f"{light}: drafts have no rows (the round has no rows)",
                      error("doctor", light, "--rows"))
        self.assertNotIn("without rows", out("doctor", self.path, "--rows"))
        self.assertIn("exclude each other", error("doctor", self.path, "--rows", "--no-rows"))


    def test_rows_of_rounds_that_nobody_asks_for(self):
        """Bug: the row file of every round was opened, also of those that --rounds leaves out."""
        folder = self.folder / "parts"
        folder.mkdir()
        for name, rounds in (("a", "1:5"), ("b", "6:14")):
            out("cut", self.path, "-o", folder / f"{name}.mcap", f"--rounds={rounds}")
        (folder / "b.rows").unlink()
        self.assertIn("no fault", out("doctor", folder, "--rounds=1:5"))
        self.assertIn("b.rows", error("doctor", folder))


class Output(Traces):
    def test_a_table_goes_to_stdout(self):
        self.assertIn("o is for --format=json", error("doctor", self.path, "-o", self.folder / "x.txt"))

    def test_a_file_replaces_no_pipe(self):
        """Bug: the file took the place of a device."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for arguments in (["doctor", self.path, "--format=json"], ["report", self.path],
                          ["cut", self.path], ["export", self.path]):
            said = error(*arguments, "-o", pipe)
            self.assertIn(f"o = {pipe} ", said)
            self.assertIn("give the name of a file", said)
            self.assertTrue(stat.S_ISFIFO(pipe.stat().st_mode))

    def test_an_output_that_takes_no_more_is_an_error(self):
        """Bug: what fmt threw ended the program with a signal."""
        longer = self.stretch(self.path, "longer", 20)
        with open("/dev/full", "wb") as full:
            for arguments in (["list", longer], ["show", longer, "1"], ["doctor", longer, "--no-rows"],
                              ["doctor", longer, "--no-rows", "--format=json"]):
                done = subprocess.run([REPLAY, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False, timeout=300)
                self.assertEqual(done.returncode, 2, (arguments, done.stderr))
                self.assertRegex(done.stderr, "^specd-replay: .*(No space left on device|cannot be written)")


class Rates(Traces):
    def data_of(self, trace, *flags):
        path = self.folder / "a.html"
        out("report", trace, "-o", path, f"--tokenizer={TOKENIZER}", *flags)
        return json.loads(re.search(r'<script nonce="specd" type="application/json" id="data">(.*?)</script>',
                                    path.read_text(), re.S)[1])

    @staticmethod
    def causes_of(data):
        """The causes of the page's head, with their counts."""
        return dict(collections.Counter(data["strings"][c] for c in data["rejected"]["cause"] if c is not None))

    def check(self, path, is_tree=False):
        stats = json.loads(out("stats", path, "--format=json"))
        wanted = {int(g["label"]): [g["reached"], g["accepted"]] for g in stats["groups"]}
        doctor = json.loads(out("doctor", path, "--format=json"))
        self.assertEqual({int(g["label"]): [g["reached"], g["accepted"]] for g in doctor["place"]}, wanted)
        data = self.data_of(path)
        self.assertEqual({p["place"]: [p["reached"], p["accepted"]] for p in data["trace"]["places"]}, wanted)
        keys = ("known", "accepted_of_known", "expected", "error")
        self.assertEqual([[p[key] for key in keys] for p in data["trace"]["places"]],
                         [[g[key] for key in keys] for g in sorted(doctor["place"], key=lambda g: int(g["label"]))])
        self.assertEqual(self.causes_of(data), doctor["rejected"])
        accepted = [n for n, drafted in zip(data["steps"]["judged_accepted"], data["steps"]["drafted"])
                    if drafted > 0]
        self.assertAlmostEqual(sum(accepted) / len(accepted), stats["accepted_per_draft"])
        self.assertEqual(data["trace"]["accepted"], sum(accepted))
        self.assertEqual(sum(data["sequences"]["accepted"]), sum(accepted))
        if is_tree:
            return data
        reached = [n for n in data["steps"]["reached"] if n is not None]
        self.assertEqual(sum(reached), sum(g["reached"] for g in stats["groups"]))
        drafted = sum(g["drafted"] for g in stats["groups"])
        self.assertEqual(data["trace"]["drafted"], drafted)
        return data

    def test_stats_doctor_and_report_count_the_same_drafts(self):
        """Bug: `report` counted drafts that were kept, and `stats` those that the method accepted."""
        data = self.check(self.path)
        records = trace_file.read(self.path)
        kept = 0
        for value in (r.value for r in records if r.topic == "round"):
            for answer in value["answers"]:  # as if the finish rules had dropped every draft token
                kept += answer.get("num_accepted", 0)
                answer["num_accepted"] = 0
        self.assertGreater(kept, 20)
        path = self.folder / "dropped.mcap"
        trace_file.write(path, records)
        shutil.copy(self.path.with_suffix(".rows"), path.with_suffix(".rows"))
        dropped = self.check(path)
        self.assertEqual(dropped["trace"]["places"], data["trace"]["places"])
        self.assertEqual(sum(dropped["steps"]["accepted"]), 0)
        self.assertIn("accepted (judged)", out("stats", path).splitlines()[0])

    def test_an_expectation_is_of_the_drafts_whose_rate_it_stands_beside(self):
        """Bug: the rate was of all drafts, and the expectation of those whose probability is known."""
        known = collections.Counter()
        for request in ("greedy", "exact", "token", "one-hot"):
            groups = json.loads(out("doctor", self.path, f"--request={request}", "--format=json"))["place"]
            for group in groups:
                known[group["label"], "known"] += group["known"]
                known[group["label"], "accepted_of_known"] += group["accepted_of_known"]
                if request == "greedy":
                    self.assertEqual([group["known"], group["expected"], group["error"]], [0, None, None])
                else:
                    self.assertEqual([group["known"], group["accepted_of_known"]],
                                     [group["reached"], group["accepted"]])
            if request != "token":
                continue
            shares = collections.defaultdict(list)
            for _, task, answer in self.trace.steps():
                if self.trace.request(answer["sequence"]) != "token":
                    continue
                for place, d in enumerate(task["decisions"][:trace_file.num_drawn(task)]):
                    if d["judged"]:
                        p, q = d["p_weight"] / d["p_mass"], d["q_weight"] / d["q_mass"]
                        shares[f"{place:3}"].append(min(1, p / q))
            for group in groups:
                mine = shares[group["label"]]
                self.assertEqual(group["known"], len(mine))
                self.assertAlmostEqual(group["expected"], sum(mine) / len(mine), places=5)
        light = self.make("light", "rounds=14", "level=1")  # here block's probabilities are not known
        whole = json.loads(out("doctor", light, "--format=json"))["place"]
        block = [json.loads(out("doctor", light, f"--request={r}", "--format=json"))["place"]
                 for r in self.requests() - {"greedy", "exact", "token", "one-hot"}]
        for group in whole:
            others = sum(g["known"] for groups in block for g in groups if g["label"] == group["label"])
            self.assertEqual(group["known"], known[group["label"], "known"] + others)
            self.assertLess(group["known"], group["reached"])
        row = next(line for line in out("doctor", light).splitlines() if line.startswith(whole[0]["label"] + " "))
        self.assertEqual(row.split()[1:6], [
            str(whole[0]["reached"]), str(whole[0]["accepted"]), f"{whole[0]['accepted'] / whole[0]['reached']:.4f}",
            str(whole[0]["known"]), f"{whole[0]['accepted_of_known'] / whole[0]['known']:.4f}"])

    def requests(self):
        return {opening["request_id"] for opening in self.trace.openings.values()}

    def test_a_bad_row_is_no_rejection(self):
        """Bug: the page named the coin, and stats counted the draft token as reached."""
        path = GOLDEN / "numbers.mcap"
        data = self.check(path)
        bad = [(value, task) for value, task, _ in trace_file.Trace(path).steps()
               if task["outcome"].get("status", 0) in (1, 2)
               and trace_file.num_drawn(task) > task["outcome"].get("num_accepted", 0)]
        self.assertEqual(len(bad), 1)
        self.assertEqual(data["rejected"]["fate"].count(3), 1)
        step = data["rejected"]["step"][data["rejected"]["fate"].index(3)]
        self.assertEqual(data["steps"]["reached"][step], data["steps"]["judged_accepted"][step])

    def test_a_round_that_was_called_off_has_judged_no_draft(self):
        """Bug: the page counted its draft tokens, and rejected them by the coin."""
        records = trace_file.read(self.path)
        number = next(r.value["number"] for r in records if r.topic == "round"
                      and any(trace_file.num_drawn({**trace_file.TASK, **t}) for t in r.value["tasks"]))
        aborted = next(r.value for r in records if r.topic == "round" and r.value["number"] == number)
        aborted["status"] = 6
        for answer in aborted["answers"]:
            answer.update(status=6, num_accepted=0, num_kept=0)
        for task in aborted["tasks"]:
            task.update(outcome={}, confirmed=[], decisions=[])
        path = self.folder / "aborted.mcap"
        trace_file.write(path, records)
        shutil.copy(self.path.with_suffix(".rows"), path.with_suffix(".rows"))
        data = self.check(path)
        steps = {i for i, n in enumerate(data["steps"]["round"]) if n == number}
        self.assertTrue(steps)
        self.assertEqual({data["steps"]["drafted"][i] for i in steps}, {0})
        self.assertEqual([step for step in data["rejected"]["step"] if step in steps], [])

    def test_an_older_trace_has_the_steps_of_the_replay(self):
        """Bug: the page had the recorded steps alone."""
        records = trace_file.read(self.path)
        for value in (r.value for r in records if r.topic == "round"):
            for task in value["tasks"]:
                for decision in task["decisions"]:
                    decision["zero_step"] = 0
        path = self.folder / "older.mcap"
        trace_file.write(path, records)
        shutil.copy(self.path.with_suffix(".rows"), path.with_suffix(".rows"))
        self.assertEqual(self.causes_of(self.check(path)), self.causes_of(self.data_of(self.path)))

    def test_trees(self):
        self.check(self.make("trees", "trees=1", "rounds=8"), is_tree=True)
        self.check(GOLDEN / "trees.mcap", is_tree=True)

    def test_a_tree_has_the_step_of_the_child_that_was_judged_last(self):
        """Bug: it was never named. The token of a place's record is no part of a trace."""
        named = []
        for level in (1, 3):
            path = self.make("steps", "trees=1", "rounds=20", f"level={level}")
            data = self.check(path, is_tree=True)
            rejected, nodes, strings = data["rejected"], data["nodes"], data["strings"]
            causes = [None if c is None else strings[c] for c in rejected["cause"]]
            steps = [d["zero_step"] for _, task, _ in trace_file.Trace(path).steps()
                     for d in task["decisions"] if d["zero_step"] > 0]
            named.append([(rejected["step"][i], rejected["place"][i], rejected["id"][i])
                          for i, cause in enumerate(causes) if cause and cause.startswith("p is 0: ")])
            self.assertGreater(len(steps), 5)
            self.assertGreaterEqual(len(named[-1]), len(steps))
            unknown = [causes[row] for row, p, step in zip(nodes["rejected"], nodes.get("p") or
                                                           [None] * len(nodes["node"]), nodes["step"])
                       if row is not None and p is None and strings[data["steps"]["method"][step]] == "tree"]
            self.assertNotIn("the coin", unknown)
            self.assertEqual(any("not known" in (cause or "") for cause in unknown), level == 1)
        self.assertEqual(*named)

    def test_the_head_is_about_the_rounds_that_the_page_has(self):
        """Bug: a page that had no room for more tokens went on with the figures of its head."""
        longer = self.stretch(self.make("short", "rounds=14", "level=1"), "long", 2000)
        data = self.data_of(longer)
        self.assertTrue(any("200" in warning for warning in data["trace"]["warnings"]), data["trace"]["warnings"])
        reached = sum(min(n + 1, drafted)
                      for n, drafted in zip(data["steps"]["judged_accepted"], data["steps"]["drafted"]))
        self.assertEqual(data["trace"]["acceptance"]["reached"], reached)
        self.assertLess(len(data["steps"]["round"]) + 1000, data["trace"]["rounds"] * len(self.requests()))

    def test_the_page_has_causes_and_names(self):
        kinds = {}
        for request in ("greedy", "exact", "token", "one-hot", "masked"):
            data = self.data_of(self.path, f"--request={request}")
            strings, rejected = data["strings"], data["rejected"]
            causes = [None if c is None else strings[c] for c in rejected["cause"]]
            for fate, cause, kind in zip(rejected["fate"], causes, rejected["cause_kind"]):
                self.assertEqual(fate == 0, cause is not None)
                self.assertEqual(fate == 0, kind is not None)
            kinds[request] = set(rejected["cause_kind"]) - {None}
            doctor = json.loads(out("doctor", self.path, f"--request={request}", "--format=json"))
            counts = {cause: causes.count(cause) for cause in set(causes) - {None}}
            self.assertEqual(counts, doctor["rejected"])
        self.assertEqual([kinds["greedy"], kinds["exact"], kinds["token"]], [{1}, {1}, {0}])
        self.assertIn(2, kinds["masked"])
        methods = {params["verify"] for params in data["sequences"]["params"] if "verify" in params}
        self.assertIn("token", methods)
        self.assertTrue(all(isinstance(method, str) for method in methods), methods)


if __name__ == "__main__":
    unittest.main()
