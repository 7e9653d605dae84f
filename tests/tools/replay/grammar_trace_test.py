"""Traces of constrained sequences, from an embedded engine, through show, verify and diff.

The masks of a trace are compared with Python's re: an id is allowed if the text with it is the
beginning of a match. The patterns of beginnings are written by hand.
"""

import collections
import json
import re
import shutil
import unittest

import numpy as np

import trace_file
from replay_support import TOKENIZER, Traces, error, out
import specd  # replay_support knows the folder of the next one
from toy_tokenizer import texts_of_ids

GRAMMAR_MASK = 3  # of TraceTensor
DRAFT = 5
EOS = 0
# In draft 4 an integer has no point; the oracle has none in any draft.
SCHEMA = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object",
          "properties": {"age": {"type": "integer"}, "ok": {"type": "boolean"}},
          "required": ["age", "ok"], "additionalProperties": False}
INTEGER = "-?(?:0|[1-9][0-9]*)"


def starts(text):
    return "(?:" + "|".join(re.escape(text[:size]) for size in range(len(text) + 1)) + ")"


HEAD, MIDDLE = re.escape('{"age":'), re.escape(',"ok":')
Request = collections.namedtuple("Request", "constraint whole beginning")
REQUESTS = {
    "regex": Request(dict(regex=r"[0-9]{3}-[a-z]{4,6}\."), r"[0-9]{3}-[a-z]{4,6}\.",
                     r"[0-9]{0,3}|[0-9]{3}-[a-z]{0,6}|[0-9]{3}-[a-z]{4,6}\."),
    "json": Request(dict(json=SCHEMA, whitespace="compact"),
                    HEAD + INTEGER + MIDDLE + r"(?:true|false)\}",
                    "|".join((starts('{"age":'), HEAD + "-?", HEAD + INTEGER + starts(',"ok":'),
                              HEAD + INTEGER + MIDDLE + starts("true}"),
                              HEAD + INTEGER + MIDDLE + starts("false}")))),
    "free": Request({}, "", ""),
}


class Oracle:
    """Which ids may follow a text."""

    def __init__(self):
        self.texts = texts_of_ids()
        self.size = 1 + max(self.texts)
        self.known = {}

    def allowed(self, request, text):
        if (request, text) not in self.known:
            rules = REQUESTS[request]
            begins = re.compile(rules.beginning.encode())
            ids = {i for i, piece in self.texts.items() if piece and begins.fullmatch(text + piece)}
            if re.fullmatch(rules.whole.encode(), text):
                ids.add(EOS)
            self.known[request, text] = ids
        return self.known[request, text]

    def text(self, tokens):
        return b"".join(self.texts.get(token, b"") for token in tokens)


class Constraints(Traces):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.oracle = Oracle()
        cls.path = cls.record("one")
        cls.trace = trace_file.Trace(cls.path)

    @classmethod
    def draft_of(cls, rng, request, text):
        """Ids that the constraint allows, one after the other, and now and then any id."""
        draft = []
        while len(draft) < DRAFT:
            allowed = sorted(cls.oracle.allowed(request, text) - {EOS})
            any_id = request == "free" or not allowed or rng.random() < 0.15
            draft.append(int(rng.integers(1, cls.oracle.size) if any_id else rng.choice(allowed)))
            text += cls.oracle.text(draft[-1:])
        return draft

    @classmethod
    def record(cls, name, **regex):
        """A trace of several sequences of each kind over random rows that like the drafts."""
        places = DRAFT + 1
        with specd.Engine(vocab_size=cls.oracle.size, max_batch=3, max_draft=DRAFT,
                          tokenizer=TOKENIZER, eos_token_ids=[EOS], trace=str(cls.folder / name),
                          trace_options="level=rows,places=all") as engine:
            for number in range(6):
                live = {}
                # One for each, so that a request has the same rows whatever the others do.
                rngs = {request: np.random.default_rng([number, i])
                        for i, request in enumerate(REQUESTS)}
                for request, rules in REQUESTS.items():
                    fields = regex if regex and request == "regex" else rules.constraint
                    made = specd.StructuredOutputs(**fields) if fields else None
                    params = specd.SamplingParams(seed=number, max_tokens=25, verify="token",
                                                  structured_outputs=made)
                    live[request] = (engine.open(params, request_id=f"{request}-{number}"), [])
                while live:
                    drafts = [cls.draft_of(rngs[request], request, cls.oracle.text(tokens))
                              for request, (_, tokens) in live.items()]
                    rows = 2 * np.concatenate([
                        rngs[request].normal(size=(places, cls.oracle.size)) for request in live])
                    for i, draft in enumerate(drafts):
                        rows[i * places + np.arange(DRAFT), draft] += 11
                    results = engine.verify(rows.astype(np.float32), {
                        sequence: draft for (sequence, _), draft in zip(live.values(), drafts)})
                    for request, result in zip(list(live), results):
                        live[request][1].extend(result.tokens.tolist())
                        if result.finish_reason is not None:
                            live.pop(request)[0].close()
        (path,) = (cls.folder / name).glob("*.mcap")
        return path

    def places(self):
        """(round, request, task, place, text before it, mask row record) of constrained places."""
        kept = collections.defaultdict(list)
        for record, task, answer in self.trace.steps():
            request = self.trace.request(answer["sequence"])
            kind = request.split("-")[0]
            if kind != "free":
                text = self.oracle.text(kept[request])
                for i, place in enumerate(task["places"]):
                    row = next(r for r in record["rows"] if r.get("tensor", 0) == GRAMMAR_MASK
                               and r.get("index", 0) == place.get("grammar_mask", -1))
                    yield record, request, task, i, text, row
                    if i < DRAFT and task["tokens"][i] not in self.oracle.allowed(kind, text):
                        break  # what follows has no text
                    text += self.oracle.text(task["tokens"][i:i + 1])
            kept[request].extend(task["confirmed"][:answer.get("num_kept", 0)])

    def mask(self, row):
        words = np.frombuffer(self.trace.row_bytes, "<u4", (self.oracle.size + 31) // 32,
                              row["offset"])
        bits = (words[:, None] >> np.arange(32, dtype=np.uint32)) & 1
        return set(np.flatnonzero(bits.reshape(-1)[:self.oracle.size]).tolist())

    def counts(self, path, code=0):
        text = out("verify", path, "--limit=99", code=code)
        return [int(re.search(rf"^ *{name} +(\d+)", text, re.M)[1])
                for name in ("equal", "different", "not checkable")], text

    def tasks(self, records, number, request):
        """The tasks of a request in a round of `records`, which a test may change."""
        for value in (r.value for r in records if r.topic == "round" and r.value["number"] == number):
            for task in value["tasks"]:
                answer = value["answers"][task.get("answer", 0)]
                if self.trace.request(answer["sequence"]) == request:
                    yield task

    def copied(self, name):
        """A copy of the trace, whose records and rows a test may change."""
        folder = self.folder / name
        shutil.copytree(self.path.parent, folder)
        path = folder / self.path.name
        return path, path.with_suffix(".rows")

    def test_masks_states_and_hashes_are_recorded(self):
        masks_of, num_full, num_cut = collections.defaultdict(set), 0, 0
        for _, request, task, i, text, row in self.places():
            kind = request.split("-")[0]
            self.assertEqual(self.mask(row), self.oracle.allowed(kind, text), (request, text))
            self.assertNotEqual(row["hash"], 0)
            state = task["places"][i]["grammar_state"]
            self.assertNotEqual(state, 0)
            masks_of[request, state].add(row["hash"])
            num_full += i == DRAFT
            num_cut += i < DRAFT and task["tokens"][i] not in self.oracle.allowed(kind, text)
        self.assertTrue(all(len(hashes) == 1 for hashes in masks_of.values()))
        self.assertGreater(len(masks_of), 30)
        self.assertGreater(num_full, 5)
        self.assertGreater(num_cut, 5)
        kinds = {o["request_id"].split("-")[0]: o.get("constraint") for o in
                 self.trace.openings.values()}
        self.assertEqual(kinds, {"regex": "regex", "json": "json", "free": None})

    def test_show_names_the_forbidden_draft_tokens(self):
        num_shown = 0
        for record, request, task, i, text, _ in self.places():
            allowed = self.oracle.allowed(request.split("-")[0], text)
            if i == DRAFT or i != task["outcome"].get("num_accepted", 0):
                continue
            token = task["tokens"][i]
            shown = out("show", self.path, record["number"], f"--request={request}", "--top=2")
            state = task["places"][i]["grammar_state"]
            note = (f"the grammar, in state {state:#x}, forbids {token}: "
                    f"{len(allowed)} of {self.oracle.size} ids are allowed here")
            self.assertEqual(note in shown, token not in allowed, (request, record["number"]))
            if token in allowed:
                continue
            self.assertRegex(shown, rf"(?m)^ +{i}  {token} +0\.000000 .* rejected ")
            table = shown[shown.index(f"candidates at place {i}"):].split("\n\n")[0]
            self.assertRegex(table, rf"(?m)^{token} .*draft, forbidden by a mask$")
            num_shown += 1
        self.assertGreater(num_shown, 5)

    def test_show_lists_what_the_grammar_stopped(self):
        """The ids with the largest p of the row alone that the constraint forbids, from numpy."""
        num_shown = 0
        for record, request, task, i, text, _ in self.places():
            if i > task["outcome"].get("num_accepted", 0):
                continue
            allowed = self.oracle.allowed(request.split("-")[0], text)
            row = self.trace.row(record, 0, task["target_rows"][i])
            p = trace_file.softmax(row[:self.oracle.size], task["target_scale"])
            p[sorted(allowed)] = 0
            best = np.argsort(-p, kind="stable")[:3]
            shown = out("show", self.path, record["number"], f"--request={request}", "--top=3")
            table = shown[shown.index(f"forbidden at place {i}\n"):].split("\n\n")[0].splitlines()
            self.assertTrue(table[1].endswith("  p without the mask"))
            self.assertEqual([int(line.split()[0]) for line in table[2:]], best.tolist())
            for line, token in zip(table[2:], best):
                self.assertAlmostEqual(float(line.split()[-1]), p[token], delta=2e-6)
            num_shown += 1
        self.assertGreater(num_shown, 30)
        # A sequence without a constraint has no such list.
        self.assertNotIn("forbidden at", out("show", self.path, 1, "--request=free-0"))

    def test_report_has_what_the_grammar_stopped(self):
        page = self.folder / "report.html"
        out("report", self.path, "-o", page, "--rounds=1:1")
        found = re.search(r'type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
        table = json.loads(found[1])["candidates"]
        steps = [p for p in self.places() if p[0]["number"] == 1 and p[1].startswith("regex")]
        _, request, task, _, text, _ = steps[0]
        allowed = self.oracle.allowed("regex", text)
        p = trace_file.softmax(self.trace.row(steps[0][0], 0, task["target_rows"][0]),
                               task["target_scale"])
        p[sorted(allowed)] = 0
        listed = {token: free for token, free, forbidden in
                  zip(table["id"], table["free_p"], table["forbidden"]) if forbidden}
        best = int(p.argmax())
        self.assertAlmostEqual(listed[best], p[best], delta=2e-6)

    def test_verify_is_equal(self):
        num_tasks = len(list(self.trace.steps()))
        self.assertEqual(self.counts(self.path)[0], [num_tasks, 0, 0])

    def test_verify_names_one_bit_of_a_mask(self):
        """Whether the bit decides or not: the hash of the row differs."""
        for name, want in (("a token", 1), ("any id", 0)):
            record, request, task, i, _, row = next(
                p for p in self.places() if p[3] == 1 and p[2]["outcome"].get("num_accepted", 0) > 1)
            bit = task["tokens"][i] if want else EOS
            path, rows = self.copied(name)
            data = bytearray(rows.read_bytes())
            data[row["offset"] + bit // 8] ^= 1 << bit % 8
            rows.write_bytes(data)
            counts, text = self.counts(path, code=1)
            self.assertGreaterEqual(counts[1], 1)
            self.assertRegex(text, rf"round {record['number']}, sequence 0x\w+: .*grammar mask row "
                                   rf"{row.get('index', 0)} has another hash")

    def test_verify_names_places_whose_masks_were_exchanged(self):
        """Each row has its own hash, but neither is the mask of its place."""
        by_round = collections.defaultdict(list)
        for record, request, task, i, _, row in self.places():
            if i <= task["outcome"].get("num_accepted", 0):
                by_round[record["number"], request].append((i, row["hash"]))
        number, request, first, second = next(
            (*key, a, b) for key, places in by_round.items()
            for a, a_hash in places for b, b_hash in places if a < b and a_hash != b_hash)
        records = trace_file.read(self.path)
        for task in self.tasks(records, number, request):
            places = task["places"]
            masks = [places[i].get("grammar_mask", -1) for i in (first, second)]
            places[first]["grammar_mask"], places[second]["grammar_mask"] = reversed(masks)
        path, _ = self.copied("exchanged")
        trace_file.write(path, records)
        counts, text = self.counts(path, code=1)
        self.assertEqual(counts[1], 1)
        for i in (first, second):
            self.assertRegex(text, rf"round {number}, sequence 0x\w+: place {i}: ")

    def test_verify_names_a_changed_grammar_state(self):
        """One bit more or less gives the number of another state, which had another mask."""
        masks = {}
        for record, request, task, i, _, row in self.places():
            masks.setdefault((request, task["places"][i]["grammar_state"]), row["hash"])
        for record, request, task, i, _, row in self.places():
            state = task["places"][i]["grammar_state"]
            found = [state ^ 1 << bit for bit in range(16)
                     if masks.get((request, state ^ 1 << bit), row["hash"]) != row["hash"]]
            if found:
                break
        records = trace_file.read(self.path)
        number = record["number"]
        for other in self.tasks(records, number, request):
            other["places"][i]["grammar_state"] = found[0]
        path, _ = self.copied("state")
        trace_file.write(path, records)
        counts, text = self.counts(path, code=1)
        self.assertGreaterEqual(counts[1], 1)
        # Either the place itself, or the next place where the state is what it was.
        self.assertRegex(text, rf"the grammar state {found[0]:#x} has a mask with the hash 0x\w+, and "
                               r"in round \d+ it had another one")
        self.assertRegex(text, rf"round {number}|in round {number} it had")

    def test_a_flipped_bit_in_the_file_of_records_is_found(self):
        path, _ = self.copied("file")
        data = bytearray(path.read_bytes())
        data[data.index(b"grammar_state") + len(b"grammar_state") + 4] ^= 1
        path.write_bytes(data)
        self.assertRegex(error("verify", path), r"byte \d+: .*checksum")

    def test_diff_names_the_grammar(self):
        other = self.record("two", regex=r"[0-9]{3}-[b-z]{4,6}\.")
        self.assertIn("0 of them differ", out("diff", self.path, self.path))
        text = out("diff", self.path, other, "--request=regex-0", code=1)
        self.assertRegex(text, r"grammar: the masks of place \d differ")
        self.assertIn("0 of them differ", out("diff", self.path, other, "--request=json-0"))


if __name__ == "__main__":
    unittest.main()
