"""The Python side of specd-bench python: rounds, openings and draws of many sequences, or of one.

Usage: python3 python_rounds.py VOCABULARY SEQUENCES DRAFT_TOKENS FORWARD_BYTES

Before each repetition FORWARD_BYTES are read, as a forward reads its weights.

Each line of the standard input is a name of an operation and a number of repetitions. The answer is one
line: the time of each repetition in microseconds. A wrong answer of specd ends the program.
"""

import mmap
import sys
import time

import numpy as np

import specd

VOCABULARY, BATCH, DRAFT, FORWARD_BYTES = (int(word) for word in sys.argv[1:])
PROMPT = 32


class Scene:
    """The rows and drafts of tools/bench/c_engine.cc, and the openings of python_suite.cc."""

    def __init__(self):
        self.engine = specd.Engine("embedded:cpu", vocab_size=VOCABULARY, max_batch=BATCH,
                                   max_sequences=2 * BATCH, max_draft=DRAFT)
        places = np.arange(BATCH * (DRAFT + 1))
        best = ((7 * places + 3) % VOCABULARY).astype(np.int32)
        self.rows = self.engine.rows(len(places))
        self.rows[:] = 0
        self.rows[places, best] = 100
        self.expected = best.reshape(BATCH, DRAFT + 1)
        drafts = self.expected[:, :DRAFT].copy()
        self.tokens = self.offsets = None
        if DRAFT:
            self.best_drafts = drafts.reshape(-1).copy()
            self.draft_rows = self.engine.rows(BATCH * DRAFT, "draft")
            self.draft_rows[:] = 0
            self.draft_rows[np.arange(BATCH * DRAFT), self.best_drafts] = 100
            drafts[1::2, 2] = (drafts[1::2, 2] + 1) % VOCABULARY
            self.expected = self.expected.copy()
            self.expected[1::2, 3:] = -1
            self.tokens = drafts.reshape(-1)
            self.offsets = np.arange(BATCH + 1, dtype=np.uint32) * np.uint32(DRAFT)
        opened = self.engine.open_batch(
            BATCH, specd.SamplingParams(temperature=0, max_tokens=2**31 - 1))
        self.sequences = opened.sequences
        self.drafts = dict(zip((opened.sequence(i) for i in range(BATCH)), drafts))
        self.shared = specd.SamplingParams(top_p=0.9)
        self.temperatures = 0.5 + np.arange(BATCH) / 512
        self.seeds = np.arange(BATCH, dtype=np.uint64)
        self.prompts = np.arange(BATCH * PROMPT, dtype=np.int32) % np.int32(VOCABULARY)
        self.prompt_offsets = np.arange(BATCH + 1) * PROMPT
        # numpy asks for huge pages, and a file of weights has none.
        self.weights = np.frombuffer(mmap.mmap(-1, max(FORWARD_BYTES, 8)), np.int64)
        self.weights[:] = 1

    def round(self):
        start = time.perf_counter()
        tokens = self.engine.verify_batch(self.rows, self.sequences, self.tokens, self.offsets).tokens
        spent = time.perf_counter() - start
        assert np.array_equal(tokens, self.expected)
        return spent

    def verify(self):
        start = time.perf_counter()
        found = self.engine.verify(self.rows, self.drafts)
        spent = time.perf_counter() - start
        for row, each in zip(self.expected, found):
            assert list(each.tokens) == [token for token in row if token >= 0]
        return spent

    def draw(self):
        start = time.perf_counter()
        ids = self.engine.sample_draft_batch(self.draft_rows, self.sequences).ids[:, 0]
        spent = time.perf_counter() - start
        assert np.array_equal(ids, self.best_drafts[:BATCH])
        return spent

    def open(self):
        start = time.perf_counter()
        opened = self.engine.open_batch(
            BATCH, self.shared, temperature=self.temperatures, seeds=self.seeds,
            prompt_ids=self.prompts, prompt_offsets=self.prompt_offsets)
        spent = time.perf_counter() - start
        assert len(set(opened.sequences.tolist())) == BATCH
        for i in range(BATCH):
            opened.sequence(i).close()
        return spent


def main():
    scene = Scene()
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        times = []
        for _ in range(int(count)):
            scene.weights[::8].sum()
            times.append(getattr(scene, name)() * 1e6)
        print(*times, flush=True)


main()
