"""What the README shows works as shown: its C program, and (with the oracles' Python) its subscriber."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

from support import ProcessTest, SOURCE, wait_until

LIBRARY = pathlib.Path(os.environ["SPECD_LIB"])


def block(language, text):
    """The one code block of that language in README.md that holds `text`."""
    found = re.findall(rf"```{language}\n(.*?)```", (SOURCE / "README.md").read_text(), re.DOTALL)
    found = [code for code in found if text in code]
    assert len(found) == 1, f"README.md has {len(found)} blocks of {language} with {text!r}"
    return found[0]


class ReadmeTest(ProcessTest):
    def test_the_engine_in_c(self):
        source = self.folder / "engine.c"
        source.write_text(block("c", "specd_open"))
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
    def test_the_subscriber_in_python(self):
        script = self.folder / "subscriber.py"
        script.write_text(block("python", "import zmq"))
        self.daemon()
        subscriber = self.start(pathlib.Path(sys.executable), script,
                                f"ipc://{self.socket}.text")
        wait_until(lambda: "subscribed" in subscriber.stderr or not subscriber.running(),
                   "the subscription")
        self.assertTrue(subscriber.running(), subscriber.stderr)
        client = self.client("--streams=1")
        engine = self.engine("--prompt=The daemon", "--print=none", "--max_tokens=40")
        self.assertEqual(engine.wait(), 0, engine.stderr)
        self.assertEqual(client.wait(), 0, client.stderr)
        wait_until(lambda: "[The daemon:" in subscriber.stdout or not subscriber.running(),
                   "the end of the stream")
        self.assertIn(self.texts(client)["The daemon"], subscriber.stdout)


if __name__ == "__main__":
    unittest.main()  # ctest names the class, because each needs its own interpreter
