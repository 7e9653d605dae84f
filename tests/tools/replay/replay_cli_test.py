"""What specd-replay says of a trace, against an independent reading of it: numbers from numpy on the
rows, coins from tests/python/philox.py, counts from the records."""

import json
import re
import signal
import subprocess
import unittest

import trace_file
from replay_support import (MAKE_TRACE, REPLAY, TOKENIZER, Traces, error, out, run)
import philox  # its folder is known to replay_support


class Info(Traces):
    def test_counts(self):
        text = out("info", self.path)
        drafted = sum(trace_file.num_drawn(t) for _, t, _ in self.trace.steps())
        accepted = sum(t["outcome"].get("num_accepted", 0) for _, t, _ in self.trace.steps())
        kept = sum(a.get("num_kept", 0) for r in self.trace.rounds for a in r["answers"])
        self.assertRegex(text, rf"rounds +14 \(numbers 1 to 14; 0 between")
        self.assertRegex(text, rf"tokens kept +{kept}\n")
        self.assertRegex(text, rf"draft tokens +{drafted}, of which {accepted} were accepted")
        self.assertRegex(text, r"sequences +7,")
        self.assertIn("14 rows", text)

    def test_closed_sequences_are_forgotten_and_still_counted(self):
        def sequences(path):
            """The number of all, and for each end its number."""
            number, *ends = re.search(r"^sequences +(.*)$", out("info", path), re.M)[1].split(", ")
            return int(number), {end: int(n) for n, end in (text.split(" ", 1) for text in ends)}

        number, ends = sequences(self.path)
        self.assertEqual(ends.pop("not ended") + sum(ends.values()), number)
        # Three copies run, and each copy closes its sequences.
        copied_number, copied_ends = sequences(self.stretch(self.path, "three", 3))
        self.assertEqual(copied_number, 3 * number)
        closed = copied_ends.pop("closed")
        self.assertEqual(copied_ends, {end: 3 * n for end, n in ends.items()})
        self.assertEqual(closed + sum(copied_ends.values()), copied_number)
        three = self.folder / "three.mcap"
        self.assertEqual(len(out("list", three, "--sequences").splitlines()), 1 + 3 * number)
        self.assertEqual(len(out("list", three).splitlines()), 1 + 3 * 14 * 7)
        names = re.findall(r"^(\S+-\d)  ", out("stats", three, "--by=sequence"), re.M)
        self.assertEqual(len(set(names)), 3 * number)
        self.assertEqual(len(out("list", three, "--request=block-1").splitlines()), 1 + 14)

    def test_rotated_files_are_one_trace(self):
        parts = [self.folder / "p1.mcap", self.folder / "p2.mcap"]
        records = self.trace.records
        first = [r for r in records if r.topic != "round" or r.value["number"] <= 6]
        second = [r for r in records if r.topic != "round" or r.value["number"] > 6]
        for path, part in zip(parts, (first, second)):
            trace_file.write(path, part)
        self.assertIn("rounds           14 (numbers 1 to 14", out("info", *parts))
        self.assertEqual(out("verify", *parts), out("verify", self.path))


class List(Traces):
    def lines(self, *arguments):
        return out("list", *arguments).splitlines()[1:]

    def test_rounds(self):
        self.assertEqual(len(self.lines(self.path)), 14 * 7)
        self.assertEqual(len(self.lines(self.path, "--rounds", "--from=3", "--to=4")), 2 * 7)
        self.assertEqual(len(self.lines(self.path, "--request=block")), 14)
        self.assertEqual(len(self.lines(self.path, "--request=*", "--sequence=0x100000001")), 14)
        rejected = [s for s in self.trace.steps()
                    if s[1]["outcome"].get("num_accepted", 0) < trace_file.num_drawn(s[1])]
        self.assertEqual(len(self.lines(self.path, "--rejected")), len(rejected))
        finished = sum(a.get("status", 0) == 1 for r in self.trace.rounds for a in r["answers"])
        self.assertEqual(len(self.lines(self.path, "--status=finished")), finished)

    def test_sequences(self):
        lines = self.lines(self.path, "--sequences")
        self.assertEqual([line.split()[1] for line in lines],
                         [self.trace.request(s) for s in self.trace.openings])
        self.assertTrue(lines[0].rstrip().endswith("abort"))

    def test_bad_flags(self):
        self.assertIn("tokenizer is no flag of list", error("list", self.path, "--tokenizer=x"))
        flags = self.folder / "flags"
        flags.write_text("--tokenizer=x\n")
        self.assertIn("tokenizer is no flag of list", error("list", self.path, f"--flagfile={flags}"))
        self.assertIn("status = odd", error("list", self.path, "--status=odd"))
        self.assertIn("is after the last", error("list", self.path, "--from=4", "--to=3"))


class Help(Traces):
    """Each command shows its flags with their defaults, takes them, and no others."""

    DEFAULTS = {"top": "8", "backend": "cpu", "threads": "1", "seeds": "16", "by": "position",
                "limit": "10", "draft_ms": "0", "target_ms": "0"}
    FORMATS = {"stats": "table", "doctor": "table", "export": "npz"}

    def test_commands_show_and_take_their_own_flags(self):
        commands = re.findall(r"^  ([a-z]+) +\S.*$", out("--help").split("Exit status")[0].split("[flags]")[1],
                              re.M)
        self.assertIn("doctor", commands)
        shown = {}
        for command in commands:
            text = out(command, "--help").split("\nFlags:\n")[1]
            shown[command] = dict(re.findall(r"^  --?([\w-]+) +(.*)$", text, re.M))
        every = {flag for flags in shown.values() for flag in flags}
        self.assertLessEqual(self.DEFAULTS.keys(), every)
        for command, flags in shown.items():
            self.assertIn("recording", flags)
            for flag, meaning in flags.items():
                default = self.FORMATS[command] if flag == "format" else self.DEFAULTS.get(flag)
                with self.subTest(command=command, flag=flag):
                    self.assertEqual(re.findall(r"\(default: (.*)\)$", meaning),
                                     [] if default is None else [default])
            for flag in every:
                default = self.DEFAULTS.get(flag)
                given = f"-{flag}" if len(flag) == 1 else f"--{flag}"
                default = "top_k=4" if flag == "set" else default
                value = [] if flag in ("rejected", "rows", "no-rows", "sequences") else [default or ""]
                said = self.said(command, "/none.mcap", "1", given + "".join(f"={v}" for v in value))
                with self.subTest(command=command, flag=flag, said=said):
                    # A flag with its default value was taken by every command.
                    self.assertEqual(f"{flag.replace('-', '_')} is no flag of {command}" in said,
                                     flag not in flags)

    def said(self, *arguments):
        return subprocess.run([REPLAY, *arguments], capture_output=True, text=True, check=False).stderr


class Show(Traces):
    def test_numbers(self):
        """p, q and the coin of every judged draft token, of the two sampled methods without filters."""
        checked = 0
        for record, task, answer in self.steps_with_draft():
            request = self.trace.request(answer["sequence"])
            if request not in ("token", "masked"):
                continue
            text = out("show", self.path, record["number"], f"--request={request}", "--top=0")
            lines = {int(m[1]): m[0].split() for m in re.finditer(r"^ +(\d+)  \d+ .*$", text, re.M)}
            for i, d in enumerate(task["decisions"][:len(task["tokens"])]):
                if not d["judged"]:
                    continue
                place = task["places"][i] if task["places"] else {}
                mask = self.trace.mask(record, place["mask_row"]) if place else None
                target = self.trace.row(record, 0, task["target_rows"][i])
                p = trace_file.softmax(target, task["target_scale"], mask)[task["tokens"][i]]
                cells = lines[i]
                self.assertAlmostEqual(float(cells[2]), p, delta=2e-6)
                if task["kinds"][i] == 1:
                    draft = self.trace.row(record, 1, task["draft_rows"][i])
                    q = trace_file.softmax(draft, task["draft_scale"])[task["tokens"][i]]
                    self.assertAlmostEqual(float(cells[3]), q, delta=2e-6)
                else:
                    self.assertEqual(float(cells[3]), 1)
                if request == "token":
                    coins = philox.Coins(task["seed"], task["first_position"], task["round_base"])
                    self.assertAlmostEqual(float(cells[5]), coins.accept(i), delta=2e-6)
                    # A sampled token stands if u is below p / q.
                    self.assertEqual(cells[6], "accepted" if coins.accept(i) < p / q else "rejected")
                    why = re.search(rf"^  place {i}: (.*)$", text, re.M)[1]
                    self.assertRegex(why, r"^(accepted: (u = .* is below|p/q = .* is 1 or more)"
                                          r"|rejected: (u = .* is not below|p is 0))")
                checked += 1
        self.assertGreater(checked, 20)

    def test_candidates(self):
        for record, task, answer in self.steps_with_draft():
            request = self.trace.request(answer["sequence"])
            if request not in ("token", "masked"):
                continue
            text = out("show", self.path, record["number"], f"--request={request}", "--top=3")
            block = re.search(r"^candidates at place 0.*\n.*\n((?:\d.*\n)+)", text, re.M)
            place = task["places"][0] if task["places"] else {}
            mask = self.trace.mask(record, place["mask_row"]) if place else None
            p = trace_file.softmax(self.trace.row(record, 0, task["target_rows"][0]),
                                   task["target_scale"], mask)
            rows = [line.split() for line in block[1].splitlines()]
            self.assertEqual(int(rows[0][0]), int(p.argmax()))
            for row in rows:
                self.assertAlmostEqual(float(row[1]), p[int(row[0])], delta=2e-6)
                if mask is not None:
                    self.assertEqual("forbidden" in " ".join(row), not mask[int(row[0])])
            if mask is not None:
                self.assertIn(f"({mask.sum()} of 64 ids allowed)", text)

    def test_candidates_where_only_judged_rows_are_recorded(self):
        """The draft row of a rejected token had no q if the row of a later token was missing."""
        folder = self.folder / "judged"
        folder.mkdir()
        subprocess.run([MAKE_TRACE, self.folder / "unused", "rounds=12", f"recorder={folder}",
                        "all_places=0"], check=True, timeout=300)
        (path,) = folder.glob("*.mcap")
        trace = trace_file.Trace(path)
        checked = 0
        for record, task, answer in trace.steps():
            place = task["outcome"].get("num_accepted", 0)
            if trace.request(answer["sequence"]) != "token" or \
                    place + 1 >= trace_file.num_drawn(task) or \
                    trace.row(record, 1, task["draft_rows"][place + 1]) is not None:
                continue
            q = trace_file.softmax(trace.row(record, 1, task["draft_rows"][place]),
                                   task["draft_scale"], None)
            text = out("show", path, record["number"], "--request=token", "--top=3")
            block = re.search(rf"^candidates at place {place}.*\n.*\n((?:\d.*\n)+)", text, re.M)
            for row in (line.split() for line in block[1].splitlines()):
                self.assertAlmostEqual(float(row[2]), q[int(row[0])], delta=2e-6)
            checked += 1
        self.assertGreater(checked, 1)

    def test_text(self):
        text = out("show", self.path, 4, "--request=block", f"--tokenizer={TOKENIZER}")
        token = next(t["tokens"][0] for r, t, a in self.trace.steps()
                     if r["number"] == 4 and self.trace.request(a["sequence"]) == "block")
        words = json.loads(TOKENIZER.read_text())["model"]["vocab"]
        piece = next(text for text, number in words.items() if number == token)
        self.assertIn(f'{token} "{piece}"', text)

    def test_errors(self):
        self.assertIn("whose last round is 14", run("show", self.path, 99, code=2).stderr)
        self.assertIn("give the number of a round", error("show", self.path))
        self.assertIn("no sequence of the round", error("show", self.path, 3, "--request=x"))


class Files(Traces):
    def check_torn(self, data, size):
        torn = self.folder / "cutoff.mcap"
        torn.write_bytes(data[:size])
        done = subprocess.run([REPLAY, "info", torn], capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertIn("specd-replay: ", done.stderr)
        self.assertRegex(done.stderr, r"byte \d+|no whole record")
        return done

    def test_torn_at_every_byte_of_the_last_record(self):
        """The last record is the chunk of a process that was killed. What stands before it is read."""
        light = self.make("torn", "rounds=2", "level=1")
        small = self.folder / "small.mcap"  # of one sequence, for the time
        request = next(iter(trace_file.Trace(light).openings.values()))["request_id"]
        out("cut", light, f"--request={request}", "-o", small)
        data = small.read_bytes()
        chunks = [(begin, end) for begin, end in trace_file.top_records(data)
                  if data[begin] == trace_file.CHUNK]
        self.assertEqual(len(chunks), 1)
        begin, end = chunks[0]
        for size in range(begin, end):
            self.assertEqual(self.check_torn(data, size).returncode, 2, size)
        # With its chunk whole, the file lacks only its summary.
        done = self.check_torn(data, end)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^rounds +2 ")

    def test_torn_anywhere(self):
        data = self.make("torn", "rounds=2", "level=1").read_bytes()
        for size in range(0, len(data), 97):
            self.assertIn(self.check_torn(data, size).returncode, (0, 2))

    def test_foreign(self):
        foreign = self.folder / "foreign"
        foreign.write_bytes(b"hello, world")
        self.assertIn("byte 0", error("info", foreign))
        self.assertIn("No such file", error("info", self.folder / "absent"))
        other = self.folder / "other.mcap"
        trace_file.write(other, [r for r in self.trace.records if r.topic == "opening"])
        self.assertIn("no trace of specd", error("info", other))
        newer = [trace_file.Record("info", {**self.trace.info, "version": 9})]
        trace_file.write(other, newer)
        self.assertIn("version = 9", error("info", other))

    def test_help(self):
        text = out("--help")
        for command in re.findall(r"^  (\w+)  ", text, re.M):
            self.assertIn("Example", out(command, "--help"), command)


if __name__ == "__main__":
    unittest.main()
