"""What specd-replay counts, compares and writes, against an independent reading of the same traces."""

import json
import re
import unittest

import numpy as np

import trace_file
from replay_support import TOKENIZER, Traces, error, out

import philox  # its folder is known from here on only


class Stats(Traces):
    def expected(self, key):
        groups = {}
        for record, task, answer in self.steps_with_draft():
            accepted = task["outcome"].get("num_accepted", 0)
            for i in range(trace_file.num_drawn(task)):
                group = groups.setdefault(str(key(task, answer, i)), [0, 0, 0])
                group[0] += 1
                group[1] += i <= accepted
                group[2] += i < accepted
        return groups

    def test_json(self):
        keys = {"position": lambda t, a, i: i,
                "method": lambda t, a, i: trace_file.METHODS[t["method"]],
                "sequence": lambda t, a, i: self.trace.request(a["sequence"])}
        for by, key in keys.items():
            got = json.loads(out("stats", self.path, f"--by={by}", "--format=json"))
            groups = {g["label"]: [g["drafted"], g["reached"], g["accepted"]] for g in got["groups"]}
            self.assertEqual(groups, self.expected(key), by)
            for g in got["groups"]:
                # Wilson's interval holds the values of p for which the score is within z.
                n, share = g["drafted"], g["accepted"] / g["drafted"]
                for end in (g["low"], g["high"]):
                    if 0 < end < 1:
                        z = abs(share - end) / np.sqrt(end * (1 - end) / n)
                        self.assertAlmostEqual(z, 1.959964, places=5)

    def test_time_adds_up(self):
        got = json.loads(out("stats", self.path, "--by=time", "--format=json"))
        self.assertEqual(sum(g["drafted"] for g in got["groups"]),
                         sum(trace_file.num_drawn(t) for _, t, _ in self.trace.steps()))

    def test_class_table_and_svg(self):
        self.assertIn("word part", out("stats", self.path, "--by=class", f"--tokenizer={TOKENIZER}"))
        path = self.folder / "a.svg"
        out("stats", self.path, "--format=svg", "-o", path)
        self.assertIn("<svg", path.read_text())
        self.assertIn("--format=svg", error("stats", self.path, "--format=png"))
        self.assertIn("needs --tokenizer", error("stats", self.path, "--by=class"))


class Diff(Traces):
    def test_equal(self):
        self.assertIn("0 of them differ", out("diff", self.path, self.path))

    def test_directories(self):
        """A rotated recording is a directory; its parts have the rounds of the whole."""
        folder = self.folder / "rotated"
        folder.mkdir()
        for name, wanted in (("1.mcap", range(1, 8)), ("2.mcap", range(8, 15))):
            trace_file.write(folder / name, [r for r in self.trace.records if r.topic != "round"
                                             or r.value["number"] in wanted])
        self.assertIn("7 sequences in both runs, 0 of them differ", out("diff", self.path, folder))

    def test_one_bias(self):
        other = self.make("bias", "rounds=14", "bias=9")
        text = out("diff", self.path, other, code=1)
        self.assertEqual(text.count("parameters: the token edits differ"), 7)
        self.assertIn("id 9: bias 3", text)
        only = out("diff", self.path, other, "--request=block", code=1)
        self.assertIn("1 sequences in both runs, 1 of them differ", only)
        texts = [[], []]
        for text, trace in zip(texts, (self.trace, trace_file.Trace(other))):
            for _, task, answer in trace.steps():
                if trace.request(answer["sequence"]) == "block":
                    text.extend(task["confirmed"])
        first = next(i for i, (x, y) in enumerate(zip(*texts)) if x != y)
        self.assertIn(f"differ from position {first} on: {texts[0][first]} in A, "
                      f"{texts[1][first]} in B", only)

    def causes(self, change, with_hashes=False):
        base = self.path
        records = trace_file.read(base)
        if with_hashes:
            for row in (r for record in records for r in record.value.get("rows", [])):
                row["hash"] = 1 + row.get("index", 0)
            base = self.folder / "hashes.mcap"
            trace_file.write(base, records)
        for record in records:
            if record.topic == "round" and record.value["number"] == 3:
                change(record.value)
        path = self.folder / "cause.mcap"
        trace_file.write(path, records)
        text = out("diff", base, path, code=1)
        self.assertIn("first difference in round 3 of A and 3 of B", text)
        return re.findall(r"^  (\w+): ", text, re.M)

    def test_causes(self):
        def task(value):
            return value["tasks"][3]
        self.assertEqual(self.causes(lambda v: task(v).update(seed=5)), ["coins"])
        self.assertEqual(self.causes(lambda v: task(v).update(tokens=[1] * len(task(v)["tokens"]))),
                         ["draft"])
        self.assertEqual(self.causes(lambda v: task(v)["decisions"][0].update(p_mass=3.5)), ["rows"])
        # Other tokens from equal inputs are a bug, if the rows can be compared.
        self.assertEqual(self.causes(lambda v: task(v)["confirmed"].__setitem__(-1, 7), True),
                         ["decision"])
        self.assertEqual(self.causes(lambda v: task(v)["confirmed"].__setitem__(-1, 7)), ["rows"])
        self.assertEqual(
            self.causes(lambda v: v["tasks"][5]["places"][0].update(forced=9)), ["grammar"])

    def test_states_of_two_processes(self):
        """The numbers of grammar states differ between processes, and say nothing."""
        records = trace_file.read(self.path)
        for record in records:
            for task in record.value.get("tasks", []) if record.topic == "round" else []:
                for place in task.get("places", []):
                    if place.get("grammar_state", 0):
                        place["grammar_state"] += 1000
        path = self.folder / "states.mcap"
        trace_file.write(path, records)
        self.assertIn("0 of them differ", out("diff", self.path, path))

    def test_levels(self):
        """What only one side has recorded is no difference."""
        for level in (1, 2):
            other = self.make(f"level{level}", "rounds=14", f"level={level}")
            self.assertIn("0 of them differ", out("diff", self.path, other))

    def test_a_sequence_of_one_run_is_a_difference(self):
        """The exit status was 0 though B lacked sequences that A has."""
        path = self.folder / "fewer.mcap"
        records = trace_file.read(self.path)
        gone = next(s for s in self.trace.openings if self.trace.request(s) == "token")
        for value in (r.value for r in records if r.topic == "round"):
            value["tasks"] = [t for t in value["tasks"]
                              if value["answers"][t.get("answer", 0)]["sequence"] != gone]
        trace_file.write(path, records)
        for a, b in ((self.path, path), (path, self.path)):
            self.assertIn("0 of them differ; 1 in one run only", out("diff", a, b, code=1))
        # A filter asks for these sequences only.
        self.assertIn("0 of them differ", out("diff", self.path, path, "--request=block"))

    def test_side_channel(self):
        """The masses of the side channel differ, and nothing else."""
        records = trace_file.read(self.path)
        for value in (r.value for r in records if r.topic == "round"):
            for task in value["tasks"]:
                if task.get("draft_masses"):
                    task["draft_masses"][0] *= 2
        path = self.folder / "masses.mcap"
        trace_file.write(path, records)
        self.assertRegex(out("diff", self.path, path, code=1), r"draft: the side channel's q\(x\)")

    def test_needs_two(self):
        self.assertIn("give two traces", error("diff", self.path))

    def test_one_anonymised_trace(self):
        """The error was that the runs have no request id in common."""
        hidden = self.folder / "hidden.mcap"
        out("anonymise", self.path, "-o", hidden)
        for pair in ((self.path, hidden), (hidden, self.path)):
            text = error("diff", *pair)
            self.assertIn(f"{hidden} is anonymised and {self.path} is not", text)
            self.assertIn(f'"specd-replay anonymise {self.path} -o OUT.mcap"', text)
        self.assertIn("0 of them differ", out("diff", hidden, hidden))

    def test_parameters_of_a_fork(self):
        """If a trace does not name the parent of a fork, its opening has no parameters."""
        def fork_of(name, parent):
            records = trace_file.read(self.path)
            for value in (r.value for r in records if r.topic == "opening"):
                if value["request_id"] == "block":
                    value.update(forked_from=parent, lists=[])
                    if name == "unknown":
                        value["numbers"] = type(value["numbers"])()
            for value in (r.value for r in records if r.topic == "round" and name == "unknown"):
                for task in value["tasks"]:
                    task["seed"] = task.get("seed", 0) + 1
            path = self.folder / f"{name}.mcap"
            trace_file.write(path, records)
            return path

        parent = next(s for s in self.trace.openings if self.trace.request(s) == "token")
        known, unknown = fork_of("known", parent), fork_of("unknown", 2**40)
        text = out("diff", self.path, unknown, "--request=block", code=1)
        self.assertIn("the seed is", text)
        self.assertIn("the sequence is a fork in B alone", text)
        self.assertNotIn("top_p", text)
        text = out("diff", known, unknown, "--request=block", code=1)
        self.assertNotIn("parameters:", text)
        # The trace that names the parent has what the parent was given.
        text = out("diff", unknown, self.path, "--request=block", code=1)
        self.assertNotIn("top_p", text)


class Rerun(Traces):
    def test_expected_lengths(self):
        """`token` accepts the first k drafts with probability prod min(1, p / q) for given drafts."""
        text = out("rerun", self.path, "--set", "temperature=0.6", "--method=token", "--seeds=400",
                   "--request=token")
        lengths = []
        for record, task, answer in self.steps_with_draft():
            if self.trace.request(answer["sequence"]) != "token":
                continue
            length, reach = 0.0, 1.0
            for i, token in enumerate(task["tokens"]):
                p = trace_file.softmax(self.trace.row(record, 0, task["target_rows"][i]),
                                       np.log2(np.e) / 0.6)[token]
                q = trace_file.softmax(self.trace.row(record, 1, task["draft_rows"][i]),
                                       task["draft_scale"])[token]
                reach *= min(1.0, p / q)
                length += reach
            lengths.append(length)
        got = float(re.search(r"^mean length.* (\d+\.\d+)(?: \+-.*)?$", text, re.M)[1])
        # 400 seeds of some 10 drafts: the error of the mean is below 0.03 (4 sigma).
        self.assertAlmostEqual(got, np.mean(lengths), delta=0.08)

    def test_every_draft_is_counted(self):
        """Drafts that could not be run again were left out without a word."""
        records = trace_file.read(self.path)
        for value in (r.value for r in records if r.topic == "round"):
            for task in value["tasks"]:
                answer = value["answers"][task.get("answer", 0)]
                if self.trace.request(answer["sequence"]) == "token" and task.get("tokens"):
                    task["continues"] = True
            if value["number"] > 10:
                value["level"] = 1
        path = self.folder / "broken.mcap"
        trace_file.write(path, records)
        text = out("rerun", path, "--set", "temperature=0.6", "--seeds=1")
        left_out = {why: int(n) for n, why in
                    re.findall(r"^drafts left out: (\d+) \((.*)\)$", text, re.M)}
        run = int(re.search(r"^(\d+) sequence-rounds of ", text, re.M)[1])
        self.assertEqual(run + sum(left_out.values()), len(self.steps_with_draft()))
        self.assertIn("the task continues rounds that were still running", left_out)
        self.assertGreater(left_out["the round has no rows"], 0)
        only = out("rerun", path, "--set", "temperature=0.6", "--seeds=1", "--request=block")
        self.assertNotIn("continues", only)

    def test_refusals(self):
        for setting, words in (("repetition_penalty=1.2", "cannot be changed on recorded rows"),
                               ("draft_temperature=1", "the drafts were drawn"),
                               ("seed=3", "--seeds"), ("odd=1", "is no parameter"),
                               ("top_p=7", "is outside"), ("top_k=1.5", "no whole number")):
            self.assertIn(words, error("rerun", self.path, "--set", setting))
        self.assertIn("none of block", error("rerun", self.path, "--method=odd"))

    def test_trees(self):
        path = self.make("trees", "trees=1", "rounds=8")
        text = out("rerun", path, "--method=traversal", "--seeds=20")
        self.assertIn("method traversal", text)
        text = out("rerun", path, "--method=token", "--seeds=1", code=2)
        self.assertIn("the draft is a tree, which token and block do not verify", text)
        chains = out("rerun", self.path, "--method=tree", "--seeds=1")
        self.assertIn("method tree", chains)


class Report(Traces):
    def data_of(self, trace):
        path = self.folder / "a.html"
        out("report", trace, "-o", path, f"--tokenizer={TOKENIZER}")
        return json.loads(re.search(r'<script nonce="specd" type="application/json" id="data">(.*?)</script>',
                                    path.read_text(), re.S)[1])

    def test_data(self):
        data = self.data_of(self.path)
        self.assertEqual(data["version"], 1)
        for name, table in data.items():
            if name not in ("version", "trace", "strings"):
                self.assertEqual(len({len(column) for column in table.values()}), 1, name)
        steps = list(self.trace.steps())
        kept = [token for _, t, a in steps for token in t["confirmed"][:a.get("num_kept", 0)]]
        self.assertEqual(data["tokens"]["id"], kept)
        self.assertEqual(data["trace"]["tokens"], len(kept))
        judged = sum(d["judged"] or d["accept_coin"] != trace_file.NO_COIN for _, t, _ in steps for d in t["decisions"])
        self.assertEqual(len(data["decisions"]["step"]), judged)
        accepted = sum(t["outcome"].get("num_accepted", 0) for _, t, _ in steps)
        self.assertEqual(data["tokens"]["kind"].count(0), accepted)
        self.assertGreater(len(data["candidates"]["id"]), judged)
        self.assertNotIn("nodes", data)  # chains

    def test_trees(self):
        trace = trace_file.Trace(self.make("trees", "trees=1", "rounds=8"))
        data = self.data_of(trace.path)
        columns = data["nodes"]
        nodes = [dict(zip(columns, values)) for values in zip(*columns.values())]
        steps = list(trace.steps())
        self.assertEqual(len(nodes), sum(len(task["tokens"]) for _, task, _ in steps))
        num_judged = 0
        for step, (record, task, answer) in enumerate(steps):
            mine = {node["node"]: node for node in nodes if node["step"] == step}
            tokens = task["tokens"]
            self.assertEqual([mine[i]["id"] for i in range(len(tokens))], tokens)
            self.assertEqual([-1 if mine[i]["parent"] is None else mine[i]["parent"]
                              for i in range(len(tokens))], task["parents"])
            self.assertEqual([i for i in range(len(tokens)) if mine[i]["fate"] == 0],
                             task.get("path", []))
            for i, node in mine.items():
                kept = node["fate"] == 0 and self.depth(task, i) < answer["num_kept"]
                self.assertEqual(node["rejected"] is None, kept or node["fate"] == 3)
                if node["rejected"] is not None:
                    self.assertEqual(data["rejected"]["id"][node["rejected"]], tokens[i])
            if task["method"] == trace_file.METHODS.index("tree") and not task["target_filters"].get("top_p"):
                num_judged += self.check_tree(trace, record, task, mine)
        self.assertGreater(num_judged, 10)

    def depth(self, task, node):
        """Of the place at which a node is proposed."""
        parent = task["parents"][node]
        return 0 if parent < 0 else 1 + self.depth(task, parent)

    def check_tree(self, trace, record, task, nodes):
        """The numbers of CONTRACT §5, in numpy and with Philox. Returns how many nodes had a coin."""
        num_judged = 0
        left = {}  # of each place: what its children before left of p
        for i, node in nodes.items():  # in the order in which a place's children are judged
            place = task["parents"][i] + 1
            p = trace_file.softmax(trace.row(record, 0, task["target_rows"][place]), task["target_scale"])
            if node["p"] is not None:
                self.assertAlmostEqual(node["p"], p[node["id"]], places=6)
            if node["coin"] is None:
                continue
            num_judged += 1
            coin = philox.coin53(task["seed"], task["first_position"] + self.depth(task, i),
                                 task["round_base"], i + 1, philox.ACCEPT) * 2.0**-53
            self.assertEqual(node["coin"], coin)
            if node["kind"] == 0:
                d = np.eye(trace.vocab_size)[node["id"]]
            else:
                d = trace_file.softmax(trace.row(record, 1, task["draft_rows"][i]), task["draft_scale"])
            t = left.get(place, p)
            self.assertAlmostEqual(node["d"], d[node["id"]], places=6)
            self.assertAlmostEqual(node["bound"], min(1, t[node["id"]] / d[node["id"]]), places=5)
            rest = np.maximum(t - d, 0)
            left[place] = rest / rest.sum()
        return num_judged


if __name__ == "__main__":
    unittest.main()
