"""specd-replay verify: what it runs again, what it only computes, and what it cannot check."""

import json
import re
import shutil
import subprocess
import unittest

import trace_file
from replay_support import GOLDEN, MAKE_TRACE, Traces, error, out, run


class Verify(Traces):
    def counts(self, *arguments, code=0):
        text = out("verify", *arguments, code=code)
        return [int(re.search(rf"^ *{name} +(\d+)", text, re.M)[1])
                for name in ("equal", "consistent", "different", "not checkable")], text

    def changed(self, name, change):
        """The trace with `change` applied to each round's value; the rows stay."""
        records = trace_file.read(self.path)
        for record in records:
            if record.topic == "round":
                change(record.value)
        path = self.folder / f"{name}.mcap"
        trace_file.write(path, records)
        return path

    def test_a_directory_is_a_trace(self):
        folder = self.folder / "directory"
        folder.mkdir()
        shutil.copy(self.path, folder)
        shutil.copy(self.path.with_suffix(".rows"), folder)
        self.assertEqual(self.counts(folder), self.counts(self.path))

    def test_the_recorder_of_the_daemon(self):
        folder = self.folder / "recorded"
        folder.mkdir()
        subprocess.run([MAKE_TRACE, self.folder / "unused", "rounds=5", f"recorder={folder}"],
                       check=True, timeout=60)
        (path,) = folder.glob("*.mcap")
        tasks = len(list(trace_file.Trace(path).steps()))
        self.assertEqual(self.counts(folder)[0], [tasks, 0, 0, 0])

    def test_equal(self):
        num_tasks = len(list(self.trace.steps()))
        for backend in ("cpu", "scalar", "emulated"):
            counts, text = self.counts(self.path, f"--backend={backend}")
            self.assertEqual(counts, [num_tasks, 0, 0, 0])
            self.assertIn(f"on backend {backend}\n", text)
        self.assertEqual(self.counts(self.changed("same", lambda r: None))[0], [num_tasks, 0, 0, 0])
        light = self.make("light", "rounds=14", "level=1")
        self.assertEqual(self.counts(light)[0], [0, num_tasks, 0, 0])

    def test_a_bad_row(self):
        path = self.make("nan", "nan_round=6")
        self.assertEqual(self.counts(path)[0][2:], [0, 0])

    def test_names_what_differs(self):
        def of_task(number, request, change):
            def apply(value):
                if value["number"] != number:
                    return
                for task in value["tasks"]:
                    answer = value["answers"][task.get("answer", 0)]
                    if self.trace.request(answer["sequence"]) == request:
                        change(task)
            return apply

        def flip_coin(task):
            task["decisions"][0]["accept_coin"] ^= 1

        def flip_stands(task):
            decision = task["decisions"][0]
            decision["stands"] = not decision.get("stands", False)

        number = next(r["number"] for r, t, a in self.steps_with_draft()
                      if self.trace.request(a["sequence"]) == "token")
        for name, request, change, words in (
                ("coin", "token", flip_coin, "ACCEPT coin"),
                ("verdict", "token", flip_stands, "u \\* q"),
                ("seed", "token", lambda t: t.update(seed=t["seed"] + 1), "coin is"),
                ("scale", "token", lambda t: t.update(target_scale=t["target_scale"] * 1.01),
                 "p_weight|p_mass"),
                ("filter", "block", lambda t: t["target_filters"].update(top_k=2), "was"),
                ("token", "exact", lambda t: t["confirmed"].__setitem__(0, 5), "emits|tokens were"),
                ("no coin", "token", lambda t: t["decisions"][0].pop("accept_coin"),
                 "without an ACCEPT coin"),
                ("no decision", "token", lambda t: t["decisions"].__setitem__(0, {}),
                 "and no decision"),
                ("no scores", "block", lambda t: t.pop("token_scores"), "0 scores were recorded"),
                ("score", "block", lambda t: t["token_scores"][0].update(value=-9.0), "score 0"),
                ("size", "token", lambda t: t["target_rows"].append(1), "not consistent")):
            path = self.changed(name, of_task(number, request, change))
            counts, text = self.counts(path, code=1)
            self.assertEqual(counts[2], 1, name)
            self.assertRegex(text, rf"round {number}, sequence 0x1.*({words})", name)

    def greedy_argmax(self, name, **changes):
        """A trace of one round: tokens [5, 6], argmax [5, 9, 3]."""
        task = dict(tokens=[5, 6], kinds=[0, 0], target_argmax=[5, 9, 3], method=1,
                    drafts_by_slot=True, confirmed=[5, 9], path=[0],
                    outcome=dict(num_accepted=1, num_tokens=2, num_drafts=2))
        task.update(changes)
        value = dict(number=1, level=1, answers=[dict(sequence=1 << 32, num_accepted=1, num_kept=2,
                                                      total_kept=2)], tasks=[task])
        path = self.folder / f"{name}.mcap"
        info = {k: v for k, v in self.trace.info.items() if k != "row_file"}
        trace_file.write(path, [trace_file.Record("info", info), trace_file.Record("round", value)])
        return path

    def test_an_argmax_that_was_not_emitted(self):
        """A task without rows and decisions was equal, whatever it emitted."""
        self.assertEqual(self.counts(self.greedy_argmax("argmax"))[0], [1, 0, 0, 0])
        wrong = self.greedy_argmax("wrong", confirmed=[5, 4])
        counts, text = self.counts(wrong, code=1)
        self.assertEqual(counts, [0, 0, 1, 0])
        self.assertIn("place 1: 4 was emitted, and the argmax is 9", text)
        # The ids of the draft stayed on the device: nothing was run, and the form says nothing.
        unknown = self.greedy_argmax("unknown", tokens=[])
        counts, text = self.counts(unknown, code=2)
        self.assertEqual(counts, [0, 0, 0, 1])
        self.assertIn("lay on the device", text)

    def test_trees(self):
        """A record of a tree was refused, and its walk was not shown."""
        path = self.make("trees", "trees=1", "rounds=6")
        rounds = [r.value for r in trace_file.read(path) if r.topic == "round"]
        tasks = sum(len(r["tasks"]) for r in rounds)
        self.assertEqual(self.counts(path)[0], [tasks, 0, 0, 0])
        text = out("show", path, 2, "--top=0")
        for task in rounds[1]["tasks"]:
            for node in task.get("path", []):
                self.assertRegex(text, rf"(?m)^ +{node}  .*● {task['tokens'][node]} .*accepted")
        light = self.make("light", "trees=1", "rounds=6", "level=1")
        self.assertEqual(self.counts(light)[0], [0, tasks, 0, 0])

    def test_a_task_that_continues_is_not_equal(self):
        """Its decisions are not compared, and it was equal by numbers all the same."""
        light = self.make("continued", "rounds=14", "level=1")
        records = trace_file.read(light)
        num_tasks = 0
        for record in records:
            for task in record.value.get("tasks", []) if record.topic == "round" else []:
                task["continues"] = True
                num_tasks += 1
        trace_file.write(light, records)
        counts, text = self.counts(light, code=2)
        self.assertEqual(counts, [0, 0, 0, num_tasks])
        self.assertIn("continues rounds that were still running", text)

    def test_reasons_are_few_though_rows_are_many(self):
        """Each missing row was a reason of its own, with its offset."""
        folder = self.folder / "few"
        folder.mkdir()
        shutil.copy(self.path, folder / "a.mcap")
        (folder / "a.rows").write_bytes(self.trace.row_bytes[:8192])
        for command in ("doctor", "verify"):
            self.assertIn(f"{folder / 'a.rows'}: the row file ends at byte 8192", error(command, folder / "a.mcap"))
        reasons = [line for line in out("doctor", folder / "a.mcap", "--no-rows").splitlines()
                   if line.startswith("without rows: ")]
        self.assertEqual(len(reasons), 1)
        self.assertGreater(int(reasons[0].split()[2]), 50)
        _, text = self.counts(folder / "a.mcap", "--no-rows")
        reasons = text.split("not run again, because\n")[1].strip().splitlines()
        self.assertLess(len(reasons), 5)
        self.assertEqual(sum(int(reason.split()[0]) for reason in reasons),
                         len(list(self.trace.steps())))

    def test_ids_outside_the_vocabulary(self):
        """The recorder ends a draft there; the replay did not, and missed rows that no round read."""
        folder = self.folder / "outside"
        folder.mkdir()
        subprocess.run([MAKE_TRACE, self.folder / "unused", "rounds=12", f"recorder={folder}",
                        "all_places=0", "outside=1"], check=True, timeout=300)
        (path,) = folder.glob("*.mcap")
        trace = trace_file.Trace(path)
        size = trace.vocab_size
        drawn = rejected = ended = 0
        for record, task, answer in trace.steps():
            inside = [0 <= token < size for token in task["tokens"]] + [False]
            ended += len(task["tokens"]) > inside.index(False)
            drawn += inside.index(False)
            rejected += task["outcome"].get("num_accepted", 0) < inside.index(False)
        self.assertGreater(ended, 20)
        self.assertEqual(self.counts(path)[0], [len(list(trace.steps())), 0, 0, 0])
        self.assertIn(f"draft tokens     {drawn}, of which", out("info", path))
        stats = json.loads(out("stats", path, "--format=json"))
        self.assertEqual(sum(group["drafted"] for group in stats["groups"]), drawn)
        self.assertEqual(len(out("list", path, "--rejected").splitlines()), 1 + rejected)
        for record, task, answer in trace.steps():
            inside = [0 <= token < size for token in task["tokens"]] + [False]
            end = inside.index(False)
            if end < len(task["tokens"]) and task["outcome"].get("num_accepted", 0) == end:
                request = trace.request(answer["sequence"])
                text = out("show", path, record["number"], f"--request={request}", "--top=2")
                self.assertRegex(text, rf"(?m)^ +{end} .*end of draft")

    def test_one_bit_of_a_row(self):
        """Any bit of a float that decides nothing is still found: the mass of the row differs."""
        record, task, _ = next(s for s in self.steps_with_draft()
                               if self.trace.request(s[2]["sequence"]) == "token"
                               and s[1]["outcome"].get("num_accepted", 0) > 0)
        offset = next(r["offset"] for r in record["rows"]
                      if r.get("tensor", 0) == 0 and r.get("index", 0) == task["target_rows"][0])
        rows = bytearray(self.trace.row_bytes)
        best = int(self.trace.row(record, 0, task["target_rows"][0]).argmax())
        rows[offset + 4 * best + 1] ^= 1
        other = self.folder / "bit"
        other.mkdir()
        (other / "a.rows").write_bytes(rows)
        shutil.copy(self.path, other / "a.mcap")
        for backend in ("cpu", "scalar", "emulated"):
            counts, text = self.counts(other / "a.mcap", f"--backend={backend}", code=1)
            self.assertEqual(counts[2], 1)
            self.assertIn(f"round {record['number']},", text)

    def test_a_row_with_another_hash(self):
        """The recorder's hashes find a changed bit even where no number changes."""
        folder = self.folder / "hash"
        shutil.copytree(GOLDEN, folder)
        trace = trace_file.Trace(folder / "chains.mcap")
        row = trace.rounds[1]["rows"][0]
        rows = bytearray(trace.row_bytes)
        rows[row["offset"]] ^= 1
        (folder / "chains.rows").write_bytes(rows)
        counts, text = self.counts(folder / "chains.mcap", code=1)
        self.assertGreater(counts[2], 0)
        self.assertRegex(text, rf"round {trace.rounds[1]['number']},.* has another hash")

    def test_rows_that_are_missing(self):
        """Rows that could not be read were a warning, and the rounds were called equal by numbers."""
        lone = self.folder / "lone"
        lone.mkdir()
        shutil.copy(self.path, lone / "a.mcap")
        tasks = len(list(self.trace.steps()))
        for rows in (None, self.trace.row_bytes[:len(self.trace.row_bytes) // 2]):
            if rows is not None:
                (lone / "a.rows").write_bytes(rows)
            text = error("verify", lone / "a.mcap")
            self.assertIn(str(lone / "a.rows"), text)
            self.assertIn("the rows cannot be read" if rows is None else "the row file ends at byte", text)
            self.assertEqual(self.counts(lone / "a.mcap", "--no-rows")[0], [0, tasks, 0, 0])

    def test_filters_that_nothing_passes(self):
        """`list` and `stats` printed an empty table and ended with 0."""
        for command in ("list", "stats", "verify", "rerun"):
            flags = ["--set", "temperature=0.5"] if command == "rerun" else []
            self.assertIn("nothing passes --request=x;", error(command, self.path, "--request=x", *flags))
        for command, name in (("export", "o.npz"), ("cut", "o.mcap"), ("anonymise", "o.mcap"),
                              ("report", "o.html")):
            self.assertIn("nothing passes --from=99;",
                          error(command, self.path, "--from=99", "-o", self.folder / name))
            self.assertFalse((self.folder / name).exists())

    def test_backends(self):
        """A backend that is not here is refused with its name and the list of those that are."""
        for name in ("tpu", "", "cpu,scalar"):
            text = error("verify", self.path, f"--backend={name}")
            listed = re.search(rf'backend = {name}: backend "{name}" is unknown; .*; here are: (.*)\n', text)
            here = listed[1].split(", ")
            self.assertEqual(here[:3], ["cpu", "scalar", "emulated"])
        if "cuda" not in here:
            text = error("verify", self.path, "--backend=cuda")
            self.assertRegex(text, r"backend = cuda: .+; here are: cpu, scalar, emulated\n")
        for name in here:
            self.counts(self.path, f"--backend={name}")
        self.assertTrue(all(name in out("verify", "--help") for name in here))

    def test_the_golden_trace_of_the_recorder(self):
        """It has what its README says, and the constrained text matches for Python's re."""
        (path,) = GOLDEN.glob("specd-*.mcap")
        trace = trace_file.Trace(path)
        self.assertEqual({o.get("constraint", "") for o in trace.openings.values()}, {"", "regex"})
        text, methods = b"", set()
        for record, task, answer in trace.steps():
            self.assertEqual((record["target"]["dtype"], record["draft"]["dtype"]), (1, 1))  # bfloat16
            methods.add(trace_file.METHODS[task["method"]])
            if trace.request(answer["sequence"]) == "regex":
                text += bytes(task["confirmed"][:answer.get("num_kept", 0)])  # an id is its byte
        self.assertEqual(methods, {"token", "block"})
        self.assertIsNotNone(re.fullmatch(rb"[0-9]{2,4}(-[a-f]{1,3})*\.", text), text)


if __name__ == "__main__":
    unittest.main()
