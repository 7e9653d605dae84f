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

FORKS_IN_A_COROUTINE = """
import asyncio, os, pathlib, signal, sys, time
import numpy as np
import specd

uri, daemon, V = sys.argv[1], int(sys.argv[2]), 2048
row = np.zeros((1, V), np.float32)
row[0, 7] = 9
engine = specd.Engine(uri, vocab_size=V)
sequence = engine.open(specd.SamplingParams(temperature=0))

def is_stopped():
    stats = [task.read_text() for task in pathlib.Path(f"/proc/{daemon}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

def child(is_checked):
    signal.alarm(20)
    if is_checked:
        for call in engine.stats, lambda: engine.verify(row, {sequence: []}):
            try:
                call()
                os._exit(1)
            except specd.Error as error:
                if error.code_name != "SPECD_ERROR_STATE" or "forked" not in str(error):
                    os._exit(2)
    engine.close()
    os._exit(0)  # not through the event loop: its epoll is the parent's too

async def main():
    await engine.averify(row, {sequence: []})  # binds the rows, for which it asks the daemon
    os.kill(daemon, signal.SIGSTOP)
    while not is_stopped():
        time.sleep(0.001)
    waiting = asyncio.create_task(engine.averify(row, {sequence: []}))
    await asyncio.sleep(0.2)  # slices are 20 ms long by now
    children = []
    for is_checked in True, False:
        ended = engine._in_flight._slice
        while engine._in_flight._slice in (None, ended):
            assert not waiting.done()
            await asyncio.sleep(0)
        assert not engine._in_flight._slice.done()
        children.append(os.fork())
        if children[-1] == 0:
            child(is_checked)
    for each in children:
        assert os.waitpid(each, 0)[1] == 0, "a child failed or hung"
    os.kill(daemon, signal.SIGCONT)
    result, = await waiting
    return result.tokens.tolist()

print(asyncio.run(main()))
"""


class ForkTest(ProcessTest):
    def test_a_child_of_a_process_with_threads_is_refused_and_ends(self):
        """The child ends as Python programs do: every object's finalizer runs."""
        self.daemon()
        for uri in "embedded:cpu", f"unix:{self.socket}":
            done = subprocess.run([sys.executable, "-c", FORKS_WITH_THREADS, uri],
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual((done.returncode, done.stdout), (0, "child refused\nparent went on\n"),
                             done.stderr)

    def test_a_child_does_not_wait_for_the_thread_of_its_parent(self):
        # Bug: the child waited for ever for a slice of the parent, in each call and in close.
        daemon = self.daemon()
        done = subprocess.run(
            [sys.executable, "-c", FORKS_IN_A_COROUTINE, f"unix:{self.socket}",
             str(daemon.process.pid)],
            capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout), (0, "[7]\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
