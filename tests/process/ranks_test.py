"""Ranks that are processes of their own: which ids each finds in its memory, and what is left when
one is killed. The ids are chosen here, and the rows of rank 0 are made for them to win."""

import fcntl
import mmap
import os
import struct
import subprocess
import unittest

from support import ProcessTest, wait_until

SLOTS = 4
NOTHING = -1
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


class Memory:
    """Where a rank's ids lie. This process sees it too, also when that rank is gone."""

    def __init__(self):
        self.fd = os.memfd_create("ids", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, 4 * SLOTS)
        fcntl.fcntl(self.fd, F_ADD_SEALS, F_SEAL_SHRINK)
        self.map = mmap.mmap(self.fd, 4 * SLOTS)
        self.fill()

    def fill(self):
        self.map[:] = struct.pack("<4i", *[NOTHING] * SLOTS)

    def ids(self):
        return list(struct.unpack("<4i", self.map[:]))

    def close(self):
        self.map.close()
        os.close(self.fd)


class RanksTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.specd = self.start("specd", f"--listen=unix:{self.socket}", "--detokenizer=off")
        wait_until(lambda: "serves" in self.specd.stderr or not self.specd.running(), "the daemon")
        self.zero = self.ranks_engine("zero")
        self.token = self.until(self.zero, "token ")
        self.slot = int(self.until(self.zero, "slot "))

    def tearDown(self):
        for process in self._processes:
            if process.process.stdin is not None:
                process.process.stdin.close()
        super().tearDown()

    def ranks_engine(self, *arguments, **options):
        return self.start("ranks_engine", f"unix:{self.socket}", *arguments,
                          stdin=subprocess.PIPE, **options)

    def line(self, process, number):
        """The line of that number on its standard output."""
        lines = process.lines["stdout"]
        wait_until(lambda: len(lines) > number or not process.running(), f"line {number}")
        self.assertGreater(len(lines), number, process.stderr)
        return lines[number].strip()

    def until(self, process, start):
        """The rest of the first line that starts so."""
        def found():
            return [line for line in list(process.lines["stdout"]) if line.startswith(start)]
        wait_until(lambda: found() or not process.running(), start)
        self.assertTrue(found(), process.stderr)
        return found()[0][len(start):].strip()

    def ask(self, process, text):
        """What it says to that."""
        number = len(process.lines["stdout"])
        self.write(process, text)
        return self.line(process, number)

    def write(self, process, text):
        process.process.stdin.write(f"{text}\n")
        process.process.stdin.flush()

    def rank(self, number, memory):
        rank = self.ranks_engine("rank", number, memory.fd, pass_fds=[memory.fd])
        self.write(rank, self.token)
        self.until(rank, "bound")
        return rank

    def memory(self):
        memory = Memory()
        self.addCleanup(memory.close)
        return memory

    def round(self, token_id):
        self.assertEqual(self.ask(self.zero, token_id), f"round {token_id} gave {token_id}")

    def only(self, token_id):
        return [token_id if slot == self.slot else NOTHING for slot in range(SLOTS)]

    def found(self, token_id):
        return "found " + " ".join(map(str, self.only(token_id))) + " SPECD_OK"

    def test_each_rank_reads_in_its_own_memory_what_the_rows_of_rank_0_decide(self):
        ranks = [self.rank(number, self.memory()) for number in (1, 7)]
        self.assertEqual(self.ask(self.zero, "ranks"), "ranks 130")
        for token_id in (2, 5, 3, 60, 41, 8):  # of even ids submitted, of odd ones on a stream
            self.round(token_id)
            for rank in ranks:
                self.assertEqual(self.ask(rank, ""), self.found(token_id))
        self.assertEqual(self.ask(ranks[0], "leave"), "left")
        self.assertEqual(self.ask(self.zero, "ranks"), "ranks 128")
        self.round(9)
        self.assertEqual(self.ask(ranks[1], ""), self.found(9))
        self.assertNotIn(self.token.split("-")[1], self.specd.stderr)
        self.assertIn("rank 7 joined", self.specd.stderr)

    def test_a_rank_that_is_killed_while_rounds_run_is_written_no_more_and_comes_again(self):
        memory, others = self.memory(), self.memory()
        rank, other = self.rank(1, memory), self.rank(2, others)
        first = len(self.zero.lines["stdout"])
        token_ids = [i * 7 % 63 for i in range(600)]
        for token_id in token_ids:  # all at once: rank 0 takes them one after another
            self.write(self.zero, token_id)
        self.line(self.zero, first + 50)
        self.assertNotEqual(memory.ids()[self.slot], NOTHING)
        self.kill(rank)
        gone = f"rank 1 (pid {rank.process.pid}) is gone"
        wait_until(lambda: gone in self.specd.stderr, gone)
        memory.fill()
        for i, token_id in enumerate(token_ids):
            self.assertEqual(self.line(self.zero, first + i), f"round {token_id} gave {token_id}")
        self.assertEqual(self.ask(other, ""), self.found(token_ids[-1]))
        self.round(30)
        self.round(31)
        self.assertEqual(memory.ids(), [NOTHING] * SLOTS)
        self.assertEqual(self.ask(self.zero, "ranks"), "ranks 4")

        again = self.rank(1, self.memory())
        for token_id in (32, 33):
            self.round(token_id)
            self.assertEqual(self.ask(again, ""), self.found(token_id))
            self.assertEqual(self.ask(other, ""), self.found(token_id))
        self.assertEqual(memory.ids(), [NOTHING] * SLOTS)

    def test_when_rank_0_or_the_daemon_is_killed_the_others_are_told(self):
        for victim in (self.zero, self.specd):
            if victim is self.specd:
                self.zero = self.ranks_engine("zero")
                self.token = self.until(self.zero, "token ")
            rank = self.rank(1, self.memory())
            self.round(20)
            self.kill(victim)
            wait_until(lambda: self.ask(rank, "").endswith("SPECD_ERROR_DISCONNECTED"), "the end")
            self.assertEqual(self.ask(rank, "leave"), "left")

    def test_a_daemon_that_is_asked_to_stop_ends_the_ranks_in_good_order(self):
        memory = self.memory()
        ranks = [self.rank(1, memory), self.rank(2, self.memory())]
        for token_id in (20, 21):
            self.round(token_id)
        self.stop(self.specd)
        for rank in ranks:
            # Confirmed tokens stay, and the engine does not wait for a daemon that has gone.
            self.assertEqual(self.ask(rank, ""),
                             self.found(21).replace("SPECD_OK", "SPECD_ERROR_DISCONNECTED"))
            self.assertEqual(self.ask(rank, "leave"), "left")


if __name__ == "__main__":
    unittest.main()
