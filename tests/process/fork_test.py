"""An engine whose process forks while its other threads are in calls, embedded and attached.

Bugs that this would catch: the child waited for a lock that a thread of its parent held, or took a
round of its parent's session, or ended it.
"""

import subprocess
import sys
import unittest

from support import PATIENCE_S, ProcessTest

FORKS_WITH_THREADS = """
import os, signal, sys, threading
import numpy as np
import specd

uri, V = sys.argv[1], 2048
row = np.zeros((1, V), np.float32)
row[0, 7] = 9
engine, busy = (specd.Engine(uri, vocab_size=V) for _ in range(2))
open_one = lambda engine: engine.open(specd.SamplingParams(temperature=0, max_tokens=1 << 30))
sequence, stop = open_one(engine), threading.Event()

def rounds():
    sequence = open_one(busy)
    while not stop.is_set():
        result, = busy.verify(row, {sequence: []})
        assert result.tokens.tolist() == [7]

thread = threading.Thread(target=rounds)
thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        for each in engine, busy:
            try:
                each.verify(row, {sequence: []})
                sys.exit("the engine of the parent took a round")
            except specd.Error as error:
                if error.code_name != "SPECD_ERROR_STATE" or "forked" not in str(error):
                    sys.exit(f"not the named refusal: {error}")
            each.close()
        sys.exit(0)
    if os.waitpid(child, 0)[1] != 0:
        stop.set()
        sys.exit("a child failed or hung")
print("child refused")
result, = engine.verify(row, {sequence: []})
assert result.tokens.tolist() == [7]
stop.set()
thread.join()
print("parent went on")
"""


class ForkTest(ProcessTest):
    def test_line_12_a_child_of_a_process_with_threads_is_refused_and_ends(self):
        """The child ends as Python programs do: every object's finalizer runs."""
        self.daemon()
        for uri in "embedded:cpu", f"unix:{self.socket}":
            done = subprocess.run([sys.executable, "-c", FORKS_WITH_THREADS, uri],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stdout), (0, "child refused\nparent went on\n"),
                             done.stderr)


if __name__ == "__main__":
    unittest.main()
