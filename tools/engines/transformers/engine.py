#!/usr/bin/env python3
"""Generates with a small trained model, and prints or publishes the text. tools/demo runs it beside a daemon.

Usage: engine.py [--help]
"""

import argparse
import pathlib
import sys
import time

import specd
from specd.integrations.transformers import stream

import train_models

PROMPTS = ("specd verifies|The daemon|A row|The engine")


def widths(text):
    """The children of a place at each depth."""
    each, _, depth = text.partition("x")
    return [int(each)] * int(depth) if depth else [int(width) for width in text.split(",")]


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--specd", default="embedded:cpu", help="URI of a daemon, which publishes the text, or embedded:cpu")
    parser.add_argument("--models", type=pathlib.Path,
                        help="a folder that train_models.py has made; without it, engine.py trains the models of "
                        ".cache/transformers/models, once")
    parser.add_argument("--prompt", default=PROMPTS, help="prompts, parted by |")
    parser.add_argument("--draft", type=int, default=5, help="draft tokens in a round")
    parser.add_argument("--drafts", default="auto", help="auto, sampled, best or ngram")
    parser.add_argument("--tree", type=widths, help="drafts are trees: 2x4 is two children of a place and four "
                        "levels; 3,2,1 has the children at each depth")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--verify", default="auto", help="auto, greedy, exact_match, token, block, tree, traversal or target_only")
    parser.add_argument("--max_tokens", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--print", choices=("text", "none"), default="text")
    parser.add_argument("--train_only", action="store_true", help="train, and generate nothing")
    return parser.parse_args()


def main():
    asked = parse()
    folder = asked.models or train_models.trained(
        train_models.ROOT / ".cache/transformers/models", train_models.STEPS)
    if not (folder / train_models.STAMP).exists():
        sys.exit(f"error: --models: {folder} has no {train_models.STAMP}; train_models.py {folder} makes it")
    if asked.train_only:
        return
    model, assistant, tokenizer = train_models.load(folder)
    attached = not asked.specd.startswith("embedded:")
    # Attached, the daemon publishes the text.
    options = {} if attached else {"eos_token_ids": [model.config.eos_token_id],
                                   "tokenizer": str(folder / "tokenizer.json")}
    lines = []
    longest = len(specd.static_tree(asked.tree)) if asked.tree else asked.draft
    with specd.Engine(asked.specd, vocab_size=model.config.vocab_size, max_draft=longest,
                      # draft tokens are drawn for the places of a level together
                      max_batch=longest if asked.tree else 1, **options) as engine:
        for prompt in asked.prompt.split("|"):
            params = specd.SamplingParams(temperature=asked.temperature, verify=asked.verify,
                                          seed=asked.seed, max_tokens=asked.max_tokens,
                                          stops="auto" if attached else "inline")
            if asked.print == "text":
                print(prompt, end="", flush=True)
            started, steps = time.monotonic(), []
            for step in stream(model, tokenizer.encode(prompt).ids, params=params, k=asked.draft,
                               tree=asked.tree, drafts=asked.drafts, engine=engine, request_id=prompt,
                               assistant_model=None if asked.drafts == "ngram" else assistant):
                steps.append(step)
                if asked.print == "text":
                    print(step.text, end="", flush=True)
            seconds = time.monotonic() - started
            tokens = sum(len(step.tokens) for step in steps)
            accepted = sum(step.num_accepted for step in steps)
            lines.append(f"{prompt:24} {tokens:7} {len(steps):7} {accepted / len(steps):15.2f} "
                         f"{tokens / seconds:9.0f}  {steps[-1].finish_reason}")
            if asked.print == "text":
                print("\n")
    print(f"{'prompt':24} {'tokens':>7} {'rounds':>7} {'accepted/round':>15} {'tokens/s':>9}  finish")
    print("\n".join(lines))


if __name__ == "__main__":
    try:
        main()
    except specd.Error as error:
        sys.exit(f"error: {error}")
