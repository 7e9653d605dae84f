"""JSON schemas against the public JSON-Schema-Test-Suite, which jsonschema's source package holds.

Usage: json_schema_suite_oracle.py SPECD_GRAMMAR_PROBE RESULTS [--write] [--list]

RESULTS is a committed list with one line for each file of the suite. The numbers of `right` and
`refused` may only improve; --write writes the list anew. --list prints each test that is not right.

A test of the suite is a schema and an instance. It is
  right    if a valid instance is accepted in one of its spellings, or an invalid one in none;
  strict   if a valid instance is accepted in no spelling, which specd may do;
  refused  if specd refuses the schema by name;
  wrong    if an invalid instance is accepted. One such test fails this program.
Texts that are drawn under the masks of each schema must satisfy it, too, by jsonschema's judgement.
"""

import json
import os
import pathlib
import sys
import tarfile

import json_schema_judge
import json_spellings
from grammar_probe import COMPACT, FLEXIBLE, JSON_SCHEMA, OK, GrammarProbe

DRAFTS = ("draft2020-12", "draft7", "draft4")
# Draft 7 lets a validator read what a string encodes. Later drafts take that for a remark, as specd
# does.
LEFT_OUT = ("draft7/optional/content.json",)
SEED = 20260815
NUM_TEXTS = 6


def read_suite():
    """Pairs of a file's name and its cases, or None where the source package is not installed."""
    name = os.environ.get("SPECD_JSON_SCHEMA_SUITE", os.path.join(sys.prefix, "sdist"))
    packages = sorted(pathlib.Path(name).glob("jsonschema-*.tar.gz"))
    if not packages:
        print(f"skipped oracle.json_schema_suite: {name} has no source package of jsonschema; run "
              "tools/test where a package index can be reached, or set SPECD_JSON_SCHEMA_SUITE")
        return None
    suite = []
    with tarfile.open(packages[-1]) as package:
        for member in package.getmembers():
            _, _, path = member.name.partition("/json/tests/")
            is_wanted = path.startswith(tuple(f"{draft}/" for draft in DRAFTS))
            if is_wanted and path.endswith(".json") and path not in LEFT_OUT:
                suite.append((path, json_spellings.loads(package.extractfile(member).read())))
    return sorted(suite)


def _with_dialect(schema, draft):
    """Draft 4 takes 1.0 for no integer, and has `id`: its schemas say that they are of draft 4."""
    if draft != "draft4" or not isinstance(schema, dict) or "$schema" in schema:
        return schema
    return {"$schema": "http://json-schema.org/draft-04/schema#", **schema}


class Count:
    """Tests of one file by outcome."""

    KEYS = ("right", "strict", "refused")

    def __init__(self, **counts):
        self.counts = {key: counts.get(key, 0) for key in self.KEYS}

    def line(self, path):
        return " ".join([path] + [f"{key} {self.counts[key]}" for key in self.KEYS])

    @classmethod
    def of_line(cls, line):
        path, *words = line.split()
        return path, cls(**{key: int(n) for key, n in zip(words[::2], words[1::2])})

    def is_worse_than(self, other):
        return (self.counts["right"] < other.counts["right"] or
                self.counts["refused"] > other.counts["refused"])


class SuiteRun:
    """Compares one file of the suite after the other."""

    def __init__(self, probe, lists):
        self._probe = probe
        self._lists = lists
        self.wrong = []
        self.num_texts = 0
        self.num_unfinished = 0
        self.num_unjudged = 0

    def _note(self, outcome, path, case, what):
        if self._lists:
            print(f"{outcome} {path}: {case['description']}: {what}")

    def run_file(self, path, cases):
        draft = path.split("/")[0]
        count = Count()
        for case in cases:
            schema = json_spellings.compact(_with_dialect(case["schema"], draft))
            code, message = self._probe.compile(JSON_SCHEMA, schema, COMPACT)
            if code != OK:
                count.counts["refused"] += len(case["tests"])
                self._note("refused", path, case, message)
                is_satisfiable = any(test["valid"] for test in case["tests"])
                if is_satisfiable and "no value satisfies" in message:
                    self.wrong.append(f"{path}: {case['description']}: {message}\n  {schema}")
                continue
            outcomes = [self._outcome(path, draft, case, test, "") for test in case["tests"]]
            for outcome in outcomes:
                count.counts[outcome] += 1
            self._check_texts(path, draft, case, schema)
            self._probe.compile(JSON_SCHEMA, schema, FLEXIBLE)
            spaced = [self._outcome(path, draft, case, test, " ") for test in case["tests"]]
            if spaced != outcomes:
                self.wrong.append(f"{path}: {case['description']}: {outcomes} without whitespace, "
                                  f"{spaced} with it\n  {schema}")
        return count

    def _outcome(self, path, draft, case, test, space):
        # Constants have one spelling: 1 for 1.0. Draft 4 tells the two apart.
        has_constants = any(f'"{word}"' in json_spellings.compact(case["schema"])
                            for word in ("const", "enum"))
        drops_fractions = has_constants and (test["valid"] or draft != "draft4")
        texts = json_spellings.spellings(test["data"], case["schema"], drops_fractions, space)
        accepted = [text for text in texts if self._probe.is_whole(text)]
        if test["valid"]:
            if accepted:
                return "right"
            self._note("strict", path, case, texts)
            return "strict"
        if any("is taken as a remark" not in warning for warning in self._probe.warnings):
            self.wrong.append(f"{path}: {case['description']}: a warning without lenient: "
                              f"{self._probe.warnings}")
        for text in accepted:
            self.wrong.append(f"{path}: {case['description']}: {test['description']}: accepted "
                              f"{text!r}\n  {json_spellings.compact(case['schema'])}")
        return "right"

    def _check_texts(self, path, draft, case, schema):
        texts, unfinished = self._probe.generate(SEED, NUM_TEXTS)
        self.num_unfinished += unfinished
        judge = json_schema_judge.Judge(schema, draft)
        for text in texts:
            self.num_texts += 1
            complaint = judge.complaint(text)
            if complaint is json_schema_judge.UNJUDGED:
                self.num_unjudged += 1
            elif complaint is not None:
                self.wrong.append(f"{path}: {case['description']}: drew {text!r}: {complaint}\n"
                                  f"  {schema}")


def main():
    suite = read_suite()
    if suite is None:
        return 77
    results = pathlib.Path(sys.argv[2])
    expected = dict(Count.of_line(line) for line in results.read_text().splitlines()
                    if not line.startswith("#")) if results.exists() else {}
    run = SuiteRun(GrammarProbe(sys.argv[1]), "--list" in sys.argv)
    counts = {path: run.run_file(path, cases) for path, cases in suite}
    total = {key: sum(count.counts[key] for count in counts.values()) for key in Count.KEYS}
    print(f"{len(counts)} files: {json.dumps(total)}, wrong {len(run.wrong)}; {run.num_texts} drawn "
          f"texts, {run.num_unfinished} did not end in time, {run.num_unjudged} without a judgement")
    for wrong in run.wrong:
        print(f"wrong: {wrong[:1500]}")
    if "--write" in sys.argv:
        head = "# Written by json_schema_suite_oracle.py --write; its first lines say what is counted.\n"
        results.write_text(head + "".join(count.line(path) + "\n" for path, count in counts.items()))
        return 1 if run.wrong else 0
    worse = [path for path in expected
             if path not in counts or counts[path].is_worse_than(expected[path])]
    for path in worse:
        print(f"worse: {counts[path].line(path) if path in counts else path}, "
              f"expected {expected[path].line('at least')}")
    new = [path for path in counts if path not in expected]
    for path in new:
        print(f"not in {results.name}: {path}")
    better = [path for path in expected if path in counts and
              counts[path].line(path) != expected[path].line(path) and path not in worse]
    for path in better:
        print(f"better: {counts[path].line(path)}; write the list anew with --write")
    return 1 if run.wrong or worse or new else 0


if __name__ == "__main__":
    sys.exit(main())
