"""The Python side of specd-bench python: rounds, openings and draws of many sequences, or of one.

Usage: python3 python_rounds.py URI VOCABULARY SEQUENCES DRAFT_TOKENS FORWARD_BYTES

Before each repetition FORWARD_BYTES are read, as a forward reads its weights.

Each line of the standard input is a name of an operation and a number of repetitions. The answer is one
line: the time of each repetition in microseconds, and the checksum of the tokens.
"""

import mmap
import sys
import time
import zlib

import numpy as np

import specd

VOCABULARY, BATCH, DRAFT, FORWARD_BYTES = (int(word) for word in sys.argv[2:])
PROMPT = 32
PLACES = BATCH * (DRAFT + 1)


class Scene:
    """The rows, drafts and openings of tools/bench/batch_engine.cc."""

    def __init__(self, uri, vocab_size):
        self.engine = specd.Engine(uri, vocab_size=vocab_size, max_batch=BATCH,
                                   max_sequences=2 * BATCH, max_draft=DRAFT)
        best = (7 * np.arange(PLACES) + 3) % vocab_size
        self.rows = self.engine.rows(PLACES)
        self.rows[:] = 0
        self.rows[np.arange(PLACES), best] = 8
        self.draft_rows = self.engine.rows(BATCH, "draft")
        self.draft_rows[:] = 0
        self.draft_rows[np.arange(BATCH), best[:BATCH]] = 100
        drafts = best.reshape(BATCH, DRAFT + 1)[:, :DRAFT].astype(np.int32)
        self.tokens = self.offsets = None
        if DRAFT:
            drafts[1::2, 2] = (drafts[1::2, 2] + 1) % vocab_size
            self.tokens = drafts.reshape(-1)
            self.offsets = np.arange(BATCH + 1, dtype=np.uint32) * np.uint32(DRAFT)
        shared = specd.SamplingParams(temperature=0, max_tokens=2**31 - 1)
        opened = self.engine.open_batch(BATCH, shared)
        self.sequences = opened.sequences
        opened = [opened.sequence(i) for i in range(BATCH)]
        self.drafts = dict(zip(opened, drafts))
        self.requests = [specd.DraftRequest(sequence, row=i) for i, sequence in enumerate(opened)]
        self.shared = specd.SamplingParams(top_p=0.9)
        self.temperatures = 0.5 + np.arange(BATCH) / 512
        self.seeds = np.arange(BATCH, dtype=np.uint64)
        self.prompts = np.arange(BATCH * PROMPT, dtype=np.int32) % np.int32(vocab_size)
        self.prompt_offsets = np.arange(BATCH + 1) * PROMPT
        self.digest = 0
        self.weights = None
        if FORWARD_BYTES:
            # numpy asks for huge pages, and a file of weights has none.
            self.weights = np.frombuffer(mmap.mmap(-1, FORWARD_BYTES), np.int64)
            self.weights[:] = 1

    def run_forward(self):
        if self.weights is not None:
            self.weights[::8].sum()

    def round_batch(self):
        start = time.perf_counter()
        tokens = self.engine.verify_batch(self.rows, self.sequences, self.tokens, self.offsets).tokens
        spent = time.perf_counter() - start
        self.digest = zlib.crc32(tokens.tobytes(), self.digest)
        return spent

    def round_each(self):
        start = time.perf_counter()
        found = self.engine.verify(self.rows, self.drafts)
        spent = time.perf_counter() - start
        tokens = np.full((BATCH, DRAFT + 1), -1, np.int32)
        for row, each in zip(tokens, found):
            row[:len(each.tokens)] = each.tokens
        self.digest = zlib.crc32(tokens.tobytes(), self.digest)
        return spent

    def draw_batch(self):
        start = time.perf_counter()
        ids = self.engine.sample_draft_batch(self.draft_rows, self.sequences).ids[:, 0]
        spent = time.perf_counter() - start
        self.digest = zlib.crc32(ids.tobytes(), self.digest)
        return spent

    def draw_each(self):
        start = time.perf_counter()
        drawn = [self.engine.sample_draft(self.draft_rows, [request])[0] for request in self.requests]
        ids = np.array([each.ids[0] for each in drawn], np.int32)
        spent = time.perf_counter() - start
        self.digest = zlib.crc32(ids.tobytes(), self.digest)
        return spent

    def open_batch(self):
        start = time.perf_counter()
        opened = self.engine.open_batch(
            BATCH, self.shared, temperature=self.temperatures, seeds=self.seeds,
            prompt_ids=self.prompts, prompt_offsets=self.prompt_offsets)
        spent = time.perf_counter() - start
        assert len(set(opened.sequences.tolist())) == BATCH
        for i in range(BATCH):
            opened.sequence(i).close()
        return spent

    def open_each(self):
        prompts = self.prompts.reshape(BATCH, PROMPT)
        start = time.perf_counter()
        opened = [self.engine.open(specd.SamplingParams(top_p=0.9, temperature=temperature,
                                                        seed=seed), prompt_ids=prompt)
                  for temperature, seed, prompt in zip(self.temperatures, self.seeds, prompts)]
        spent = time.perf_counter() - start
        for sequence in opened:
            sequence.close()
        return spent


def main():
    scene = Scene(sys.argv[1], VOCABULARY)
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        times = []
        for _ in range(int(count)):
            scene.run_forward()
            times.append(getattr(scene, name)() * 1e6)
        print(*times, scene.digest, flush=True)


main()
