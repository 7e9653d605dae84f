#!/usr/bin/env python3
"""Times generation with specd beside transformers' own, on the models of train_models.py.

Usage: benchmark.py [--models FOLDER] [--rounds N] [--tokens N] [--k N]

Runs are interleaved: in each round every way generates once from each prompt, in turn. The first table has medians
over rounds and prompts, in the milliseconds of one new token. "sampler" is the time in what chooses tokens, in
microseconds of one forward of the target: for specd verify and sample_draft; for transformers its
logits processors and its rejection sampling, without its argmax. Both end a draft after a token of which the
assistant is unsure (0.4, the default of both); "all of K" has that turned off.
The second table has the quotient of specd's time and transformers' for one token, in runs that followed each other.

OpenBLAS has one thread, because a second one makes forwards of such small models slower. OMP_NUM_THREADS changes it.
"""

import argparse
import os
import pathlib
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402  (after the number of threads)
import transformers  # noqa: E402
from transformers.generation import utils  # noqa: E402

import specd  # noqa: E402
import train_models  # noqa: E402
from specd.integrations.transformers import generate  # noqa: E402

CONFIDENCE = 0.4
PROMPTS = ("specd verifies speculative", "The daemon", "A row of logits", "If the engine")


class Clock:
    """Adds up the time inside functions."""

    def __init__(self):
        self.seconds = 0.0

    def timed(self, function):
        def call(*arguments, **options):
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - started
        return call


def squeeze_of_several(tensor, *dims):
    """torch 1.13 squeezes one dimension in a call; transformers' rejection sampling names two."""
    for dim in sorted(dims, reverse=True):
        tensor = SQUEEZE(tensor, dim)
    return tensor if dims else SQUEEZE(tensor)


SQUEEZE = torch.Tensor.squeeze
torch.Tensor.squeeze = squeeze_of_several


class Specd:
    def __init__(self, uri, model, assistant, k, fields, min_confidence=CONFIDENCE):
        self.model, self.assistant, self.k, self.fields = model, assistant, k, fields
        self.min_confidence = min_confidence
        self.engine = specd.Engine(uri, vocab_size=model.config.vocab_size, max_batch=1,
                                   max_draft=max(k, 1), eos_token_ids=[0])
        self.clock = Clock()
        for name in ("verify", "sample_draft"):
            setattr(self.engine, name, self.clock.timed(getattr(self.engine, name)))

    def run(self, ids, num_tokens, seed):
        params = specd.SamplingParams(max_tokens=num_tokens, seed=seed, ignore_eos=True, **self.fields)
        made = generate(self.model, ids, assistant_model=self.assistant, k=self.k, params=params,
                        min_confidence=self.min_confidence, engine=self.engine)
        return len(made.tokens), made.num_rounds


class Transformers:
    def __init__(self, model, assistant, k, fields, threshold=CONFIDENCE):
        self.model, self.assistant, self.k, self.threshold = model, assistant, k, threshold
        self.options = dict(fields, do_sample=True) if fields["temperature"] else {"do_sample": False}
        self.clock, self.forwards = Clock(), 0
        forward = model.forward

        def counted(*arguments, **options):
            Transformers.counted += 1
            return forward(*arguments, **options)
        if not hasattr(model, "is_counted"):
            model.forward, model.is_counted = counted, True

    counted = 0

    def run(self, ids, num_tokens, seed):
        torch.manual_seed(seed)
        if self.assistant is not None:
            config = self.assistant.generation_config
            config.num_assistant_tokens, config.num_assistant_tokens_schedule = self.k, "constant"
            config.assistant_confidence_threshold = self.threshold
        before = Transformers.counted
        processors, rejection = utils.LogitsProcessorList.__call__, utils._speculative_sampling
        utils.LogitsProcessorList.__call__ = self.clock.timed(processors)
        utils._speculative_sampling = self.clock.timed(rejection)
        try:
            made = self.model.generate(
                torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                assistant_model=self.assistant, max_new_tokens=num_tokens, eos_token_id=None,
                pad_token_id=0, **self.options)
        finally:
            utils.LogitsProcessorList.__call__, utils._speculative_sampling = processors, rejection
        return made.shape[1] - len(ids), Transformers.counted - before


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=pathlib.Path,
                        default=train_models.ROOT / ".cache/transformers/models")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--k", type=int, default=5)
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    model, assistant, tokenizer = train_models.load(
        train_models.trained(asked.models, train_models.STEPS))
    print("| case | way | ms/token | p10..p90 | tokens/forward | sampler us/forward |\n"
          "| --- | --- | --- | --- | --- | --- |")
    quotients = []
    for case, fields in (("greedy", {"temperature": 0}),
                         ("sampled", {"temperature": 0.8, "top_p": 0.95})):
        ways = {"specd, assistant": Specd("embedded:cpu", model, assistant, asked.k, fields),
                "transformers, assistant": Transformers(model, assistant, asked.k, fields),
                "specd, assistant, all of K": Specd("embedded:cpu", model, assistant, asked.k, fields, 0.0),
                "transformers, assistant, all of K": Transformers(model, assistant, asked.k, fields, 0.0),
                "specd, no drafts": Specd("embedded:cpu", model, None, 0, fields),
                "transformers, no drafts": Transformers(model, None, 0, fields),
                "specd, n-grams": Specd("embedded:cpu", model, None, asked.k, fields)}
        times = {name: [] for name in ways}
        totals = {name: [0, 0] for name in ways}
        for turn in range(-1, asked.rounds):  # the first turn warms up
            for prompt in PROMPTS:
                ids = tokenizer.encode(prompt).ids
                for name, way in ways.items():
                    if turn < 0:
                        way.run(ids, asked.tokens, 1)
                        way.clock.seconds = 0.0
                        continue
                    started = time.perf_counter()
                    tokens, forwards = way.run(ids, asked.tokens, turn + 1)
                    times[name].append((time.perf_counter() - started) * 1000 / tokens)
                    totals[name][0] += tokens
                    totals[name][1] += forwards
        for name, way in ways.items():
            tenths = statistics.quantiles(times[name], n=10)
            tokens, forwards = totals[name]
            print(f"| {case} | {name} | {statistics.median(times[name]):.2f} | {tenths[0]:.2f}.."
                  f"{tenths[-1]:.2f} | {tokens / forwards:.2f} | "
                  f"{way.clock.seconds * 1e6 / forwards:.0f} |", flush=True)
        for kind in ("assistant", "assistant, all of K", "no drafts"):
            pairs = zip(times[f"specd, {kind}"], times[f"transformers, {kind}"])
            quotients.append((case, kind, [ours / theirs for ours, theirs in pairs]))
    print("\n| case | way | specd / transformers | p10..p90 |\n| --- | --- | --- | --- |")
    for case, kind, values in quotients:
        tenths = statistics.quantiles(values, n=10)
        print(f"| {case} | {kind} | {statistics.median(values):.2f} | {tenths[0]:.2f}..{tenths[-1]:.2f} |")


if __name__ == "__main__":
    main()
