#!/usr/bin/env python3
"""Times one step of three samplers in one process, over the same rows of logits: specd, llama.cpp, transformers.

Usage: samplers.py --llama LIBLLAMA [--vocab_size N] [--rounds N] [--rows N]

A step chooses one token from one row. The three take turns, each first in turn, and each has one thread:
  specd         Engine.verify_batch of one sequence, embedded, on rows of Engine.rows
  llama.cpp     a sampler chain of libllama by ctypes; numpy writes the array of candidates, as llama_sampler_sample does
  transformers  its logits processors, then torch.multinomial or argmax

Greedy tokens must agree. Run it with the Python of tools/engines/transformers/setup.
"""

import argparse
import ctypes
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402  (after the number of threads)
import torch  # noqa: E402
from transformers.generation import logits_process  # noqa: E402

import specd  # noqa: E402

CASES = {
    "greedy": {"temperature": 0},
    "temperature .8": {"temperature": 0.8},
    "top_k 40, top_p .95, temperature .8": {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    "the same with repetition 1.1": {"temperature": 0.8, "top_k": 40, "top_p": 0.95,
                                     "repetition_penalty": 1.1},
}
# Ids that a penalty knows.
HISTORY = 64


class Specd:
    name = "specd"

    def __init__(self, rows, history, fields):
        self.engine = specd.Engine("embedded:cpu", vocab_size=rows.shape[1], max_batch=1, max_draft=1,
                                   threads=1)
        self.rows = self.engine.rows(len(rows))
        self.rows[:] = rows
        params = specd.SamplingParams(max_tokens=2**31 - 1, seed=1, **fields)
        self.handles = np.array([self.engine.open(params, prompt_ids=history).handle], np.uint64)

    def step(self, i):
        return int(self.engine.verify_batch(self.rows[i:i + 1], self.handles).tokens[0, 0])


class Candidates(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("selected", ctypes.c_int64),
                ("sorted", ctypes.c_bool)]


class ChainParams(ctypes.Structure):
    _fields_ = [("no_perf", ctypes.c_bool)]


class Llama:
    name = "llama.cpp"
    # As in libllama 0.5.0.
    CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])

    def __init__(self, library, rows, history, fields):
        self.library = library
        self.rows, self.ids = rows, np.arange(rows.shape[1], dtype=np.int32)
        self.made = np.zeros(rows.shape[1], self.CANDIDATE)
        self.chain = self.call("llama_sampler_chain_init", ChainParams(True))
        temperature = fields["temperature"]
        if "repetition_penalty" in fields:
            self.add("llama_sampler_init_penalties", ctypes.c_int32(rows.shape[1]), ctypes.c_int32(HISTORY),
                     ctypes.c_float(fields["repetition_penalty"]), ctypes.c_float(0), ctypes.c_float(0))
        if "top_k" in fields:
            self.add("llama_sampler_init_top_k", ctypes.c_int32(fields["top_k"]))
            self.add("llama_sampler_init_top_p", ctypes.c_float(fields["top_p"]), ctypes.c_size_t(1))
        if temperature:
            self.add("llama_sampler_init_temp", ctypes.c_float(temperature))
            self.add("llama_sampler_init_dist", ctypes.c_uint32(1))
        else:
            self.add("llama_sampler_init_greedy")
        for token in history:
            self.accept(token)

    def call(self, name, *arguments):
        function = getattr(self.library, name)
        function.restype = ctypes.c_void_p
        return function(*arguments)

    def add(self, name, *arguments):
        made = ctypes.c_void_p(self.call(name, *arguments))
        self.call("llama_sampler_chain_add", ctypes.c_void_p(self.chain), made)

    def accept(self, token):
        self.call("llama_sampler_accept", ctypes.c_void_p(self.chain), ctypes.c_int32(int(token)))

    def step(self, i):
        self.made["id"], self.made["logit"] = self.ids, self.rows[i]
        candidates = Candidates(self.made.ctypes.data, len(self.made), -1, False)
        self.call("llama_sampler_apply", ctypes.c_void_p(self.chain), ctypes.byref(candidates))
        token = int(self.made["id"][candidates.selected])
        self.accept(token)
        return token


class Transformers:
    name = "transformers"

    def __init__(self, rows, history, fields):
        self.rows = torch.from_numpy(rows)
        self.history = torch.tensor([list(history)])
        self.is_greedy = not fields["temperature"]
        made = []
        if "repetition_penalty" in fields:
            made.append(logits_process.RepetitionPenaltyLogitsProcessor(fields["repetition_penalty"]))
        if not self.is_greedy:
            made.append(logits_process.TemperatureLogitsWarper(fields["temperature"]))
        if "top_k" in fields:
            made.append(logits_process.TopKLogitsWarper(fields["top_k"]))
            made.append(logits_process.TopPLogitsWarper(fields["top_p"]))
        self.processors = logits_process.LogitsProcessorList(made)
        self.generator = torch.Generator().manual_seed(1)

    def step(self, i):
        scores = self.processors(self.history, self.rows[i:i + 1])
        if self.is_greedy:
            token = scores.argmax(-1, keepdim=True)
        else:
            token = torch.multinomial(torch.softmax(scores, -1), 1, generator=self.generator)
        self.history = torch.cat([self.history[:, 1:], token], -1)
        return int(token[0, 0])


def measure(samplers, num_rows, num_rounds):
    """By name: the time of each step in us."""
    times = {sampler.name: [] for sampler in samplers}
    for turn in range(num_rounds + 1):
        tokens = {}
        for sampler in samplers[turn % len(samplers):] + samplers[:turn % len(samplers)]:
            made = []
            for i in range(num_rows):
                start = time.perf_counter()
                made.append(sampler.step(i))
                if turn:  # the first turn warms everything up
                    times[sampler.name].append((time.perf_counter() - start) * 1e6)
            tokens[sampler.name] = made
        if samplers[-1].is_greedy and len(set(map(tuple, tokens.values()))) != 1:
            sys.exit(f"samplers: the greedy tokens differ: {tokens}")
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True, metavar="LIBLLAMA", help="the path of libllama.so")
    parser.add_argument("--vocab_size", type=int, action="append", help="may be given again (default: 2048, 128256)")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--rows", type=int, default=8, help="rows of a round (default: 8)")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    library = ctypes.CDLL(asked.llama)
    print("| case | V | specd us | p10..p90 | llama.cpp us | p10..p90 | transformers us | p10..p90 |\n"
          "| --- | --- | --- | --- | --- | --- | --- | --- |")
    for vocab_size in asked.vocab_size or (2048, 128256):
        random = np.random.default_rng(7)
        rows = (random.standard_normal((asked.rows, vocab_size)) * 3).astype(np.float32)
        history = random.integers(0, vocab_size, HISTORY).tolist()
        for case, fields in CASES.items():
            samplers = [Specd(rows, history, fields), Llama(library, rows, history, fields),
                        Transformers(rows, history, fields)]
            times = measure(samplers, len(rows), asked.rounds)
            cells = []
            for sampler in samplers:
                found = statistics.quantiles(times[sampler.name], n=10)
                cells.append(f"{found[4]:.1f} | {found[0]:.1f}..{found[8]:.1f}")
            print(f"| {case} | {vocab_size} | {' | '.join(cells)} |", flush=True)
            samplers[0].engine.close()


if __name__ == "__main__":
    main()
