#!/usr/bin/env python3
"""Trains the shipped tokenizer of the toy engine: a byte-level BPE in GPT-2's style.

    pip install tokenizers
    tools/toy_engine/train_tokenizer.py FILE...

The tokenizer is committed (tokenizer.json beside this script). Builds, tests and runs do not need
this script. The script shows how the file was made, from the documents of this repository; a tokenizer
made anew changes the ids that tests know. The result depends on the files alone, not on their order.
"""

import argparse
import pathlib
import re

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

# Ids 0 and 1. The toy model emits the first where a passage ends.
SPECIAL_TOKENS = ["<|endoftext|>", "<|pad|>"]


def read_prose(path):
    """The document without fenced code and tables, which the toy model does not learn either."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^\s*\|.*$", "", text, flags=re.MULTILINE)


def train(texts, vocab_size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=1,
        special_tokens=SPECIAL_TOKENS,
        # All 256 bytes have a token, so any text can be encoded, seen in training or not.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("documents", nargs="+", type=pathlib.Path, help="text or markdown files")
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--output", type=pathlib.Path, default=here / "tokenizer.json")
    arguments = parser.parse_args()

    texts = sorted(read_prose(path) for path in arguments.documents)
    tokenizer = train(texts, arguments.vocab_size)
    if tokenizer.get_vocab_size() != arguments.vocab_size:
        raise SystemExit(
            f"the documents give only {tokenizer.get_vocab_size()} tokens, "
            f"{arguments.vocab_size} are wanted: name more documents, or lower --vocab-size"
        )
    tokenizer.save(str(arguments.output), pretty=True)
    size_bytes = sum(len(text.encode()) for text in texts)
    num_tokens = sum(len(tokenizer.encode(text).ids) for text in texts)
    print(
        f"{arguments.output.name}: {arguments.vocab_size} tokens from {len(texts)} documents, "
        f"{size_bytes / num_tokens:.2f} bytes per token"
    )


if __name__ == "__main__":
    main()
