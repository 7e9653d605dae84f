"""Constraints through real processes: the text that a subscriber reads obeys them, with any
drafts."""

import json
import pathlib
import re
import time
import unittest

from support import ProcessTest, wait_until

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "tags": {"type": "array", "items": {"enum": ["gpu", "cpu", "ring"]}, "maxItems": 3},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "count", "tags", "ok"],
    "additionalProperties": False,
}


class GrammarTest(ProcessTest):
    def texts_of(self, *flags, uri=None):
        """The engine's own texts, by its own decoder."""
        engine = self.engine("--print=text", "--stats=none", "--max_tokens=200", *flags, uri=uri)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        parts = re.split(r"^== (.*)\n", engine.stdout, flags=re.MULTILINE)[1:]
        return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2])}

    def check_instance(self, text):
        """By the words of the schema, with nothing of ours."""
        value = json.loads(text)
        self.assertEqual(list(value), ["name", "count", "tags", "ok"])
        self.assertLessEqual(len(value["name"]), 24)
        self.assertEqual(value["count"], int(value["count"]))  # 1.0 is an integer
        self.assertTrue(0 <= value["count"] <= 999)
        self.assertLessEqual(len(value["tags"]), 3)
        self.assertLessEqual(set(value["tags"]), {"gpu", "cpu", "ring"})
        self.assertIs(type(value["ok"]), bool)

    def test_a_schema_gives_the_same_json_without_and_with_drafts(self):
        schema = f"--json_schema={json.dumps(SCHEMA)}"
        plain = self.texts_of(schema, "--draft=0", uri="embedded:cpu")
        self.assertEqual(len(plain), 4)
        for text in plain.values():
            self.check_instance(text)
        self.assertEqual(self.texts_of(schema, "--draft=5", uri="embedded:cpu"), plain)
        self.daemon()
        self.assertEqual(self.texts_of(schema, "--draft=5"), plain)
        sampled = self.texts_of(schema, "--draft=5", "--drafts=sampled", "--verify=block")
        for text in sampled.values():
            self.check_instance(text)

    def rounds_of(self, *flags, uri=None):
        """How many rounds the engine's streams took together."""
        engine = self.engine("--print=none", "--stats=table", "--max_tokens=200", *flags, uri=uri)
        self.assertEqual(engine.wait(), 0, engine.stderr)
        (total,) = re.findall(r"^total +(\d+) +(\d+) ", engine.stdout + engine.stderr, re.MULTILINE)
        return int(total[1])

    def test_forced_tokens_are_drafts_and_save_rounds(self):
        schema = f"--json_schema={json.dumps(SCHEMA)}"
        self.daemon()
        for uri in ("embedded:cpu", None):
            plain = self.texts_of(schema, "--draft=5", uri=uri)
            self.assertEqual(self.texts_of(schema, "--draft=5", "--forced", uri=uri), plain)
            self.assertLess(self.rounds_of(schema, "--draft=5", "--forced", uri=uri),
                            self.rounds_of(schema, "--draft=5", uri=uri))
        sampled = self.texts_of(schema, "--draft=5", "--forced", "--drafts=sampled")
        for text in sampled.values():
            self.check_instance(text)

    def test_the_log_says_what_was_compiled_and_what_refused(self):
        daemon = self.daemon("--log_level=info,grammar=debug")
        self.texts_of("--regex=[0-9]{3}")
        refused = self.engine("--print=none", "--regex=(", "--max_tokens=4")
        self.assertNotEqual(refused.wait(), 0)
        self.texts_of("--regex=[0-9]{3}")
        wait_until(lambda: "refused regex" in daemon.stderr, "the log")
        self.assertEqual(len(re.findall(r"grammar +compiled regex of 8 bytes in [0-9.]+ ms: "
                                        r"[1-9]\d* KiB$", daemon.stderr, re.MULTILINE)), 1)
        self.assertRegex(daemon.stderr, r"grammar +refused regex of 1 bytes after [0-9.]+ ms: \S")

    def test_a_subscriber_reads_what_obeys_and_the_stream_ends_with_stop(self):
        self.daemon()
        client = self.client("--streams=4")
        texts = self.texts_of("--regex=[A-Z][a-z ]{10,20}(!|\\.)", "--draft=5")
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertEqual(self.texts(client), texts)
        for text in texts.values():
            self.assertRegex(text, r"\A[A-Z][a-z ]{10,20}[!.]\Z")
        for end in self.ends(client).values():
            self.assertEqual((end["finish"], end["stop"]), ("stop", None))

    def test_a_thought_is_free_and_the_answer_is_not(self):
        # The model's thoughts end with the first full stop that the corpus teaches it.
        self.daemon("--reasoning_end=.")
        for draft in ("0", "5"):
            texts = self.texts_of("--regex=[0-9]{3}", f"--draft={draft}", "--max_tokens=400")
            for text in texts.values():
                thought, dot, answer = text.partition(".")
                if dot and len(answer) >= 3:
                    self.assertRegex(answer, r"\A[0-9]{3}\Z")


def endless_schema():
    """Each of the 1500 patterns has an automaton of 2^14 states, so the compile ends with its time or its
    memory, and not soon."""
    properties = {f"p{i}": {"type": "string", "not": {"pattern": f"^(a|b)*a(a|b){{13}}{i}$"}}
                  for i in range(1500)}
    return json.dumps({"type": "object", "properties": properties})


class LongCompileTest(ProcessTest):
    """A compile of a minute, and everything else of the daemon meanwhile."""

    def begin(self):
        """A daemon that compiles."""
        daemon = self.daemon("--compile_ms=60000", "--compile_mib=1024", "--memory_mib=16384")
        heavy = self.engine(f"--json_schema={endless_schema()}")
        wait_until(lambda: self.compiles(daemon) or not heavy.running(), "a long compile")
        self.assertTrue(heavy.running(), heavy.stderr)
        return daemon

    def compiles(self, daemon):
        """The threads of long compiles, which have a low priority."""
        threads = set()
        for task in pathlib.Path(f"/proc/{daemon.process.pid}/task").iterdir():
            try:
                fields = task.joinpath("stat").read_text().rpartition(") ")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[16]) >= 10:
                threads.add(task.name)
        return threads

    def test_openings_with_prompts_and_short_constraints_wait_for_no_compile(self):
        daemon = self.begin()
        threads = self.compiles(daemon)
        engines = [self.engine(f"--prompt=The daemon {i}", "--max_tokens=4", "--print=none", *flags)
                   for i, flags in enumerate([()] * 10 + [("--regex=[0-9]{3}",)])]
        for engine in engines:
            self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(self.compiles(daemon), threads)  # it is still the same compile
        self.stop(daemon)

    def test_a_compile_does_not_keep_the_daemon_from_ending(self):
        daemon = self.begin()
        threads = self.compiles(daemon)
        begin = time.monotonic()
        self.stop(daemon)
        self.assertTrue(threads)
        # The compile would take most of its 60 s of CPU. It looks every few milliseconds.
        self.assertLess(time.monotonic() - begin, 15)


if __name__ == "__main__":
    unittest.main()
