"""What READMEs show works as shown: the C program, and (with the oracles' Python) the subscriber."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import ProcessTest, SOURCE, wait_until

LIBRARY = pathlib.Path(os.environ["SPECD_LIB"])


def block(readme, language, text):
    """The one code block of that language in `readme` that holds `text`."""
    found = re.findall(rf"```{language}\n((?:(?!```).)*)```", (SOURCE / readme).read_text(), re.DOTALL)
    found = [code for code in found if text in code]
    assert len(found) == 1, f"{readme} has {len(found)} blocks of {language} with {text!r}"
    return found[0]


class ReadmeTest(ProcessTest):
    def test_the_engine_in_c(self):
        source = self.folder / "engine.c"
        source.write_text(block("README.md", "c", "specd_open"))
        program = self.folder / "engine"
        subprocess.run(
            ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}/ipc/include", source,
             "-o", program, f"-L{LIBRARY}", "-lspecd", f"-Wl,-rpath,{LIBRARY}"], check=True)
        self.daemon("--detokenizer=off", "--tokenizer=", "--eos_tokens=")
        for uri in ("embedded:cpu", f"unix:{self.socket}"):
            process = self.run_to_end(program, uri)
            self.assertEqual(process.code, 0, process.stderr)
            self.assertEqual(process.stdout, "2 drafts accepted, tokens: 1 2 3\n")
            self.assertIn(process.stdout.strip(), (SOURCE / "README.md").read_text())
        missing = self.run_to_end(program, "unix:/nonexistent/specd.sock")
        self.assertEqual(missing.code, 1)
        self.assertIn("SPECD_ERROR_NOT_FOUND", missing.stderr)


class SubscriberTest(ProcessTest):
    def subscriber(self):
        script = self.folder / "subscriber.py"
        script.write_text(block("ipc/python/README.md", "py", "specd.subscribe"))
        subscriber = self.start(pathlib.Path(sys.executable), script, f"unix:{self.socket}")
        wait_until(lambda: "subscribed" in subscriber.stderr or not subscriber.running(),
                   "the subscription")
        self.assertTrue(subscriber.running(), subscriber.stderr)
        return subscriber

    def wait_for(self, text, subscriber):
        wait_until(lambda: text in subscriber.stdout or not subscriber.running(), text)
        self.assertIn(text, subscriber.stdout)

    def test_the_subscriber_in_python(self):
        self.daemon()
        subscriber = self.subscriber()
        client = self.client("--streams=1")
        engine = self.engine("--prompt=The daemon", "--print=none", "--max_tokens=40", self.endless_text())
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.wait_for("[The daemon: length, 40 tokens]", subscriber)
        text = self.texts(client)["The daemon"]
        self.assertIn(f"--- The daemon ---\n{text}\n[The daemon:", subscriber.stdout)

    def test_the_subscriber_joins_in_the_middle_and_has_all_of_both_streams(self):
        # Bug: the subscriber ended with "text was lost" when a stream had begun before it.
        self.daemon()
        client = self.client("--streams=2")
        engine = self.engine("--prompt=The daemon|A round", "--print=none", "--max_tokens=100",
                             "--forward_ms=50", "--draft=0", "--temperature=0", self.endless_text())
        wait_until(lambda: client.stdout.count('"text"') > 8 or not client.running(), "some text")
        subscriber = self.subscriber()
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        for name in ("The daemon", "A round"):
            self.wait_for(f"[{name}: length, 100 tokens]", subscriber)
        # Each piece of text stands below the name of its stream; the pieces are the text.
        heads = re.split(r"\n--- (The daemon|A round) ---\n", subscriber.stdout)
        pieces = {name: "" for name in self.texts(client)}
        for name, piece in zip(heads[1::2], heads[2::2]):
            pieces[name] += re.sub(rf"\n\[{name}: length, 100 tokens\]\n", "", piece)
        for name, whole in self.texts(client).items():
            self.assertEqual(pieces[name], whole)


if __name__ == "__main__":
    unittest.main()  # ctest names the class, because each needs its own interpreter
