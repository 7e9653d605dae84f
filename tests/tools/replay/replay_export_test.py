"""The arrays of `specd-replay export`, against the records and rows of the trace."""

import re
import unittest

import numpy as np

import trace_file
from replay_support import SOURCE, Traces, error, out


class Export(Traces):
    def test_npz(self):
        path = self.folder / "a.npz"
        out("export", self.path, "--format=npz", "--rows", "-o", path)
        arrays = np.load(path)
        places = [(r["number"], a["sequence"], i, d) for r, t, a in self.trace.steps()
                  for i, d in enumerate(t["decisions"])]
        np.testing.assert_array_equal(arrays["round"], [p[0] for p in places])
        np.testing.assert_array_equal(arrays["sequence"], np.array([p[1] for p in places], "u8"))
        np.testing.assert_array_equal(arrays["place"], [p[2] for p in places])
        np.testing.assert_array_equal(arrays["p_weight"],
                                      np.array([p[3]["p_weight"] for p in places], "f4"))
        np.testing.assert_array_equal(arrays["p_mass"], [p[3]["p_mass"] for p in places])
        coins = [p[3]["accept_coin"] for p in places]
        np.testing.assert_array_equal(
            arrays["accept_coin"], [np.nan if c == trace_file.NO_COIN else c * 2.0**-53 for c in coins])
        np.testing.assert_array_equal(arrays["verdict"] == 0, [p[3]["stands"] for p in places])
        self.assertEqual(arrays["sequence_request"].tolist(),
                         [self.trace.request(s).encode() for s in self.trace.openings])
        for k in range(0, len(arrays["target_rows"]), 17):
            record = next(r for r in self.trace.rounds
                          if r["number"] == arrays["target_row_round"][k])
            np.testing.assert_array_equal(
                arrays["target_rows"][k],
                self.trace.row(record, 0, int(arrays["target_row_index"][k])))

    def exported(self, trace, *flags):
        path = self.folder / "rows.npz"
        out("export", trace, *flags, "-o", path)
        return np.load(path)

    def test_places_name_their_rows(self):
        """A place's p and q are those of the rows that its columns name."""
        arrays = self.exported(self.path, "--rows")
        tasks = [task for _, task, _ in self.trace.steps() for _ in task["decisions"]]
        compared = {"target": 0, "draft": 0}
        for i, task in enumerate(tasks):
            place = int(arrays["place"][i])
            for name, scale in (("target", "target_scale"), ("draft", "draft_scale")):
                k = int(arrays[f"{name}_row"][i])
                if k < 0:
                    continue
                self.assertEqual(arrays[f"{name}_row_round"][k], arrays["round"][i])
                self.assertEqual(arrays[f"{name}_row_index"][k], task[f"{name}_rows"][place])
                share = arrays["p" if name == "target" else "q"][i]
                is_plain = self.trace.request(int(arrays["sequence"][i])) == "token"
                if np.isnan(share) or not is_plain:
                    continue  # filters and edits come between the row and its probability
                row = trace_file.softmax(arrays[f"{name}_rows"][k].astype("f4"), task[scale])
                self.assertAlmostEqual(row[task["tokens"][place]], share, places=4)
                compared[name] += 1
        self.assertGreater(min(compared.values()), 10, compared)
        one_hot = arrays["draft_kind"] == 0
        self.assertTrue((arrays["draft_row"][one_hot] == -1).all())
        self.assertTrue(one_hot.any())
        for name in ("target_row", "draft_row"):
            self.assertTrue((self.exported(self.path)[name] == -1).all())  # without --rows

    def test_a_node_of_a_tree_names_the_row_of_its_place(self):
        path = self.make("tree-rows", "trees=1", "rounds=8")
        trace = trace_file.Trace(path)
        arrays = self.exported(path, "--rows")
        # A place of a tree lies at the depth of the node that it follows.
        for i, (_, task, _) in enumerate((r, t, a) for r, t, a in trace.steps() for _ in range(len(t["tokens"]) + 1)):
            place = depth = int(arrays["place"][i])
            if task["parents"]:
                node, depth = place - 1, 0
                while node >= 0:
                    node, depth = task["parents"][node], depth + 1
            self.assertEqual(arrays["position"][i], task["first_position"] + depth)
            k = int(arrays["target_row"][i])
            if k >= 0:
                self.assertEqual(arrays["target_row_index"][k], task["target_rows"][place])
        named = 0
        tasks = [task for _, task, _ in trace.steps() for _ in range(len(task["tokens"]) + 1)]
        for i, task in enumerate(tasks):
            k = int(arrays["draft_row"][i])
            if k < 0:
                continue
            nodes = [node for node, token in enumerate(task["tokens"])
                     if token == arrays["draft"][i]
                     and task["draft_rows"][node] == arrays["draft_row_index"][k]]
            self.assertTrue(nodes, (i, task["tokens"]))
            named += 1
        self.assertGreater(named, 10)

    def test_the_page_finds_the_row_of_a_rejection(self):
        blocks = re.findall(r"^```python\n(.*?)^```", (SOURCE / "docs/TRACES.md").read_text(), re.M | re.S)
        (block,) = (block for block in blocks if "numpy.load" in block)
        path = self.folder / "page.npz"
        out("export", self.path, "--rows", "-o", path)
        scope = {"numpy": np}
        exec(block.replace("trace.npz", str(path)), scope)  # pylint: disable=exec-used
        places = [(record, task, i) for record, task, _ in self.trace.steps()
                  for i in range(len(task["decisions"]))]
        first = next(k for k, (record, task, i) in enumerate(places)
                     if i < trace_file.num_drawn(task) and task["decisions"][i]["judged"]
                     and not task["decisions"][i]["stands"])
        self.assertEqual(scope["place"], first)
        record, task, i = places[first]
        np.testing.assert_array_equal(scope["logits"], self.trace.row(record, 0, task["target_rows"][i]))

    def test_every_column_is_documented(self):
        page = (SOURCE / "docs/TRACES.md").read_text()
        section = page[page.index("### Columns of an export"):]
        section = section[:section.index("\n## ")]
        documented = set(re.findall(r"`(\w+)`", "".join(
            line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))))
        self.assertEqual(set(self.exported(self.path, "--rows").files), documented)

    def test_errors(self):
        self.assertIn("format = csv is not npz", error("export", self.path, "--format=csv", "-o", "x"))
        self.assertIn("give -o", error("export", self.path, "--format=npz"))


if __name__ == "__main__":
    unittest.main()
