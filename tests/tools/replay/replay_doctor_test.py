"""`specd-replay doctor` as a program: rows that are missing, and the figures that other commands have too."""

import json
import re
import shutil
import unittest

import trace_file
from replay_support import TOKENIZER, Traces, error, out


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
        self.assertIn("without rows: ", out("doctor", folder / "a.mcap"))
        said = error("doctor", folder / "a.mcap", "--rows")
        self.assertIn(str(folder / "a.rows"), said)
        self.assertIn("ends at byte 8192", said)
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


class Rates(Traces):
    def data_of(self, trace, *flags):
        path = self.folder / "a.html"
        out("report", trace, "-o", path, f"--tokenizer={TOKENIZER}", *flags)
        return json.loads(re.search(r'<script nonce="specd" type="application/json" id="data">(.*?)</script>',
                                    path.read_text(), re.S)[1])

    def check(self, path, is_tree=False):
        stats = json.loads(out("stats", path, "--format=json"))
        wanted = {int(g["label"]): [g["reached"], g["accepted"]] for g in stats["groups"]}
        doctor = json.loads(out("doctor", path, "--format=json"))
        self.assertEqual({int(g["label"]): [g["reached"], g["accepted"]] for g in doctor["place"]}, wanted)
        data = self.data_of(path)
        self.assertEqual({p["place"]: [p["reached"], p["accepted"]] for p in data["trace"]["places"]}, wanted)
        accepted = [n for n, drafted in zip(data["steps"]["judged_accepted"], data["steps"]["drafted"])
                    if drafted > 0]
        self.assertAlmostEqual(sum(accepted) / len(accepted), stats["accepted_per_draft"])
        self.assertEqual(data["trace"]["accepted"], sum(accepted))
        self.assertEqual(sum(data["sequences"]["accepted"]), sum(accepted))
        if is_tree:
            return data
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

    def test_trees(self):
        self.check(self.make("trees", "trees=1", "rounds=8"), is_tree=True)

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
            if request == "masked":  # block rejects what no walk reached, too
                self.assertLessEqual(doctor["rejected"].keys(), counts.keys())
            else:
                self.assertEqual(counts, doctor["rejected"])
        self.assertEqual([kinds["greedy"], kinds["exact"], kinds["token"]], [{1}, {1}, {0}])
        self.assertIn(2, kinds["masked"])
        methods = {params["verify"] for params in data["sequences"]["params"] if "verify" in params}
        self.assertIn("token", methods)
        self.assertTrue(all(isinstance(method, str) for method in methods), methods)


if __name__ == "__main__":
    unittest.main()
