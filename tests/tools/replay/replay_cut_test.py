"""specd-replay cut and anonymise, and what no command does to its input or from a hostile trace."""

import re
import shutil
import unittest

import numpy as np

import trace_file
from replay_support import Traces, error, out


class Cut(Traces):
    def test_a_part(self):
        path = self.folder / "part.mcap"
        out("cut", self.path, "-o", path, "--rounds=3:6", "--request=token")
        part = trace_file.Trace(path)
        self.assertEqual([r["number"] for r in part.rounds], [3, 4, 5, 6])
        self.assertEqual([o["request_id"] for o in part.openings.values()], ["token"])
        whole = [(t["tokens"], t["confirmed"]) for r, t, a in self.trace.steps()
                 if 3 <= r["number"] <= 6 and self.trace.request(a["sequence"]) == "token"]
        self.assertEqual([(t["tokens"], t["confirmed"]) for _, t, _ in part.steps()], whole)
        for record, task, _ in part.steps():
            source = next(r for r in self.trace.rounds if r["number"] == record["number"])
            for index in task["target_rows"]:
                np.testing.assert_array_equal(part.row(record, 0, index),
                                              self.trace.row(source, 0, index))
        self.assertRegex(out("verify", path), r"(?m)^equal +4 ")

    def hostile(self, name):
        """A small trace that names one row of its row file again and again."""
        records = [r for r in trace_file.read(self.path)
                   if r.topic != "round" or r.value["number"] == 3]
        value = next(r.value for r in records if r.topic == "round")
        row = next(r for r in value["rows"] if r.get("tensor", 0) == 0)
        copies = 2 * len(self.trace.row_bytes) // (4 * self.trace.vocab_size)
        value["rows"] = [{**row, "index": index} for index in range(copies)]
        value["tasks"].append({**value["tasks"][0], "target_rows": list(range(copies))})
        folder = self.folder / name
        folder.mkdir()
        trace_file.write(folder / "a.mcap", records)
        shutil.copy(self.path.with_suffix(".rows"), folder / "a.rows")
        return folder / "a.mcap"

    def test_a_trace_cannot_name_more_rows_than_it_has(self):
        """A record of some bytes a row made `cut` write the whole row each time it was named."""
        path = self.hostile("hostile")
        target = self.folder / "hostile.out"
        for arguments in (("cut",), ("export", "--format=npz", "--rows")):
            self.assertIn("more rows than the row file has",
                          error(arguments[0], path, *arguments[1:], "-o", target))
            self.assertFalse(list(self.folder.glob("hostile.*")))
        out("cut", path, "-o", target, "--no-rows")

    def test_many_rounds_cannot_name_more_rows_than_there_are(self):
        """Each round fits into the row file, all of them together do not."""
        records = trace_file.read(self.path)
        rounds = [r for r in records if r.topic == "round"]
        number = len(rounds)
        for copy in range(1, 3):
            records += [trace_file.Record("round", {**r.value, "number": copy * number
                                                    + r.value["number"]}) for r in rounds]
        folder = self.folder / "again"
        folder.mkdir()
        trace_file.write(folder / "a.mcap", records)
        shutil.copy(self.path.with_suffix(".rows"), folder / "a.rows")
        target = self.folder / "again.mcap"
        self.assertIn("more rows than the row file has",
                      error("cut", folder / "a.mcap", "-o", target))
        self.assertFalse(list(self.folder.glob("again.*")))
        # Two files of one recording have a row file each.
        parts = [self.folder / f"again{i}.mcap" for i in (1, 2)]
        for path in parts:
            trace_file.write(path, self.trace.records)
        out("cut", *parts, "-o", target)
        out("export", *parts, "--format=npz", "--rows", "-o", self.folder / "again.npz")

    def test_without_rows(self):
        path = self.folder / "thin.mcap"
        out("cut", self.path, "-o", path, "--no-rows")
        self.assertFalse(path.with_suffix(".rows").exists())
        self.assertRegex(out("verify", path), r"different +0\n")

    def test_what_is_read_is_not_overwritten(self):
        """`cut a.mcap -o a.small` wrote its rows over a.rows, and other commands over their input."""
        folder = self.folder / "guard"
        folder.mkdir()
        trace, rows = folder / "t.mcap", folder / "t.rows"
        other, link = folder / "u.mcap", folder / "link.rows"
        shutil.copy(self.path, trace)
        own = self.trace.info["row_file"]  # whatever the name of the trace
        shutil.copy(self.path.with_suffix(".rows"), folder / own)
        shutil.copy(self.path.with_suffix(".rows"), rows)
        shutil.copy(self.path, other)
        link.hardlink_to(folder / own)
        before = {path: path.read_bytes() for path in folder.iterdir()}
        small = (folder / own).with_suffix(".small")
        for arguments, words in (
                (("cut", trace, "-o", small), "its row file, .* is the row file of the trace that is"),
                (("cut", trace, "-o", folder / "link.mcap"), "is the row file of the trace that is"),
                (("cut", trace, other, "-o", other), "is the trace that is read"),
                (("cut", trace, "-o", rows), "of its own row file"),
                (("anonymise", trace, "-o", folder / own), "is the row file of the trace that is"),
                (("report", trace, "-o", trace), "is the trace that is read"),
                (("stats", trace, "--format=svg", "-o", trace), "is the trace that is read"),
                (("export", trace, "--format=npz", "-o", link), "is the row file of the trace"),
                (("export", trace, "-o", folder / "." / "t.mcap"),
                 "is the trace that is read")):
            self.assertRegex(error(*arguments), words)
            self.assertEqual({path: path.read_bytes() for path in folder.iterdir()}, before)
        out("cut", trace, "-o", small, "--no-rows")
        out("cut", trace, "-o", folder / "new.mcap")
        self.assertTrue((folder / "new.rows").exists())
        # A trace without rows has no row file that could be lost.
        light = self.make("light", "rounds=2", "level=1")
        out("cut", light, "-o", light.with_suffix(".small"))

    def test_anonymise(self):
        secret = self.make("secret", "rounds=10", "request=customer-")
        path = self.folder / "shared.mcap"
        out("anonymise", secret, "-o", path)
        self.assertNotIn(b"customer", path.read_bytes())
        shared = trace_file.Trace(path)
        self.assertEqual([o["request_id"] for o in shared.openings.values()],
                         [f"r{i}" for i in range(1, 8)])
        self.assertNotIn("eos_token_ids", shared.info)
        for _, task, _ in shared.steps():
            ids = task["tokens"] + task["confirmed"]
            # Numbered in the order in which they occur.
            self.assertEqual(list(dict.fromkeys(ids)), list(range(len(set(ids)))))
            self.assertEqual(task["edits"], [])
        for pattern, command in ((r"different +0\n", "verify"), (r"anonymised", "info"),
                                 (r"accepted per draft", "stats")):
            self.assertRegex(out(command, path), pattern)
        self.assertEqual(out("stats", path), out("stats", secret))


if __name__ == "__main__":
    unittest.main()
