"""`specctl top` in a terminal, shown by a Chromium without a window.

Without Chromium it exits with 77, skipped. SPECD_TOP_SHOT=FILE leaves a picture of the terminal there.
"""

import html
import os
import pty
import re
import sys
import unittest

from support import BIN, SOURCE, ProcessTest, wait_until

sys.path.insert(0, str(SOURCE / "tests/tools"))
import chromium

# What tools/terminal writes.
WIDTH = 1320  # of the picture
CLEAR = "\x1b[H\x1b[J"
STYLES = {"1": "font-weight:bold", "2": "opacity:.6", "31": "color:#ff7b72", "32": "color:#7ee787", "33": "color:#e3b341"}


def page_of(text):
    """A page with the last screen of a terminal. An unknown escape sequence is an error."""
    body, is_open = [], False
    for part in re.split(r"(\x1b\[\d*[A-Za-z])", text.rpartition(CLEAR)[2].replace("\r\n", "\n")):
        if not part.startswith("\x1b"):
            body.append(html.escape(part))
            continue
        code = re.fullmatch(r"\x1b\[(\d*)m", part)[1]
        body.append("</span>" if is_open else "")
        is_open = code not in ("", "0")
        body.append(f'<span style="{STYLES[code]}">' if is_open else "")
    return ('<meta charset="utf-8"><style>body{margin:0;background:#0d1117}pre{color:#e6edf3;margin:0;padding:16px;'
            'display:inline-block;font:14px/1.35 "DejaVu Sans Mono",monospace}</style><pre>' + "".join(body) + "</pre>")


class TopPictureTest(ProcessTest):
    def run_in_a_terminal(self, *command):
        """What the command writes to a terminal, up to its end."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm"
            os.environ.pop("NO_COLOR", None)
            os.execv(command[0], [str(word) for word in command])
        written = b""
        while True:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # Linux says so when the last writer has closed it.
                break
            if not part:
                break
            written += part
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, written)
        return written.decode()

    def test_top_clears_the_screen_for_each_table_and_shows_what_counts(self):
        daemon = self.daemon("--canary=1")
        engine = self.engine("--prompt=The daemon|A round|The engine|A draft token", self.endless_text(), "--max_tokens=4000",
                             "--forward_ms=5", "--print=none")
        counters = self.folder / "s.counters"
        wait_until(lambda: "specd:kept_tokens_total 0" not in self.run_to_end(
            "specctl", "metrics", f"--counters={counters}").stdout, "the first tokens")
        text = self.run_in_a_terminal(BIN / "specctl", "top", f"--counters={counters}", "--interval=0.5", "--count=3")
        self.assertEqual(text.count(CLEAR), 3)
        self.assertTrue(engine.running(), engine.stderr)
        file = self.folder / "top.html"
        file.write_text(page_of(text))
        browser = chromium.Chromium(WIDTH, 720)
        self.addCleanup(browser.close)
        browser.open(file.as_uri())
        shown = browser.run("document.querySelector('pre').innerText")
        for word in ("serves", "specd:kept_tokens", "specd:rounds", "specd:round_verify_seconds"):
            self.assertIn(word, shown)
        width = browser.run("document.querySelector('pre').getBoundingClientRect().width")
        self.assertLess(width, WIDTH)  # the picture has the whole table
        if shot := os.environ.get("SPECD_TOP_SHOT"):
            browser.screenshot(shot)
        self.kill(engine)
        self.stop(daemon)


if __name__ == "__main__":
    if chromium.find() is None:
        print(f"skipped: there is no Chromium; {chromium.INSTALL} installs it")
        sys.exit(77)
    unittest.main()
