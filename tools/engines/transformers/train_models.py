#!/usr/bin/env python3
"""Trains two small models of Llama's kind on the toy engine's corpus: a target and an assistant.

Usage: train_models.py FOLDER [--steps N] [--assistant_steps N]

FOLDER gets target/, assistant/ and tokenizer.json, the toy engine's tokenizer, whose ids the models have.
Models that are there already, made with the same numbers from the same corpus by the same script, are left
as they are.
"""

import argparse
import hashlib
import json
import math
import pathlib
import re
import shutil
import sys
import time

import tokenizers
import torch
from transformers import LlamaConfig, LlamaForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[3]
TOKENIZER = ROOT / "tools/toy_engine/tokenizer.json"
CORPUS = ROOT / "tools/toy_engine/corpus.txt"
END = "<|endoftext|>"
POSITIONS = 512
PARAGRAPHS = 8  # of one document
WINDOW, BATCH = 96, 8
STAMP = "trained.json"  # written when the models of a folder are complete
STEPS = {"target": 400, "assistant": 600}
SIZES = {"target": dict(hidden_size=128, intermediate_size=352, num_hidden_layers=8,
                        num_attention_heads=4),
         "assistant": dict(hidden_size=96, intermediate_size=256, num_hidden_layers=1,
                           num_attention_heads=4)}


def documents():
    """The corpus in pieces of some paragraphs, of one line each. A model learns that a text ends after each."""
    text = re.sub(r"<!--.*?-->", "", CORPUS.read_text(encoding="utf-8"), flags=re.DOTALL)
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    for begin in range(0, len(paragraphs), PARAGRAPHS):
        yield "\n".join(paragraphs[begin:begin + PARAGRAPHS])


def token_ids(tokenizer):
    end = tokenizer.token_to_id(END)
    return torch.tensor([token for text in documents()
                         for token in (*tokenizer.encode(text).ids, end)])


def train(name, ids, tokenizer, steps, say):
    torch.manual_seed(1)
    end = tokenizer.token_to_id(END)
    config = LlamaConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=POSITIONS,
                         bos_token_id=end, eos_token_id=end, pad_token_id=end,
                         tie_word_embeddings=True, **SIZES[name])
    model = LlamaForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    warm_up = min(20, steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / warm_up, 0.05 + 0.95 * (0.5 + 0.5 * math.cos(math.pi * step / steps))))
    started = shown = time.monotonic()
    for step in range(1, steps + 1):
        begins = torch.randint(len(ids) - WINDOW, (BATCH,))
        batch = torch.stack([ids[begin:begin + WINDOW] for begin in begins])
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        now = time.monotonic()
        if now - shown > 5 or step == steps:
            shown = now
            say(f"{name}: step {step} of {steps}, loss {loss.item():.2f}, {now - started:.0f} s")
    return model.eval()


def trained(folder, steps, say=lambda text: print(text, flush=True)):
    """Trains what is not there. steps: {name of a model: steps}. Returns the folder."""
    folder = pathlib.Path(folder)
    made_of = pathlib.Path(__file__).read_bytes() + CORPUS.read_bytes()
    what = {"steps": steps, "made_of": hashlib.sha256(made_of).hexdigest()}
    stamp = folder / STAMP
    if stamp.exists() and json.loads(stamp.read_text()) == what:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    ids = token_ids(tokenizer)
    say(f"two models learn {len(ids)} tokens of the toy engine's corpus, once")
    for name, count in steps.items():
        train(name, ids, tokenizer, count, say).save_pretrained(folder / name)
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
    stamp.write_text(json.dumps(what))  # last: an interrupted training is begun again
    return folder


def load(folder):
    """(target, assistant, tokenizer) of a folder."""
    folder = pathlib.Path(folder)
    models = [LlamaForCausalLM.from_pretrained(folder / name).eval() for name in SIZES]
    return *models, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=STEPS["target"])
    parser.add_argument("--assistant_steps", type=int, default=STEPS["assistant"])
    asked = parser.parse_args()
    if min(asked.steps, asked.assistant_steps) < 1:
        sys.exit(f"--steps and --assistant_steps: {asked.steps} and {asked.assistant_steps}; "
                 "1 or more are needed")
    trained(asked.folder, {"target": asked.steps, "assistant": asked.assistant_steps})


if __name__ == "__main__":
    main()
