"""specd-llama-engine over small models, embedded and attached to a daemon.

Expected texts are those of llama.cpp alone (specd-llama-reference), expected rows those of transformers, and
expected laws softmax of rows. The models are random, because each of their tokens depends on all before: a
cache that is cut in the wrong place changes the text. The draft model is the model with some noise.

Usage: engine_test.py GGUF_PYTHON
"""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import tokenizers
import torch
import transformers

import train_models
from support import BIN, SOURCE, TOKENIZER, ProcessTest, wait_until

GGUF_PYTHON = sys.argv.pop(1) if len(sys.argv) > 1 else sys.executable
PROMPTS = ("The daemon verifies", "A", "A row of logits, and a round")
NEW = 40


def save_models(folder):
    """A model and a draft model, as train_models.py leaves them."""
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=2048, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024, bos_token_id=0,
        eos_token_id=0, tie_word_embeddings=True, initializer_range=0.3)
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder / "target")
    with torch.no_grad():
        for weight in model.parameters():
            weight += torch.randn_like(weight) * weight.std() * 0.05
    model.save_pretrained(folder / "assistant")
    shutil.copyfile(train_models.TOKENIZER, folder / "tokenizer.json")


class EngineTest(ProcessTest):
    @classmethod
    def setUpClass(cls):
        cls.models = pathlib.Path(tempfile.mkdtemp(prefix="specd-models-"))
        cls.addClassCleanup(shutil.rmtree, cls.models)
        save_models(cls.models)
        subprocess.run([GGUF_PYTHON, pathlib.Path(__file__).with_name("write_gguf.py"), cls.models],
                       check=True)
        cls.target, cls.assistant = cls.models / "target.gguf", cls.models / "assistant.gguf"
        cls.tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))

    def generate(self, *flags, uri="embedded:cpu", prompts=PROMPTS, model=None, **options):
        """A run of the engine, which must succeed."""
        named = [f"--{name}={value}" for name, value in options.items()]
        process = self.run_to_end("specd-llama-engine", f"--specd={uri}", "--threads=1",
                                  f"--model={model or self.target}", *named, *flags, *prompts)
        self.assertEqual(process.code, 0, process.stderr)
        return process.stdout

    def tokens(self, *flags, params="temperature=0", **options):
        """The new ids of each prompt. EOS ends nothing, so that lengths are known."""
        options = {"max_tokens": NEW, **options}
        out = self.generate(*flags, print="ids", params=f"{params},ignore_eos=true", **options)
        return [[int(token) for token in line.rpartition(": ")[2].split()]
                for line in out.splitlines()]

    def reference(self, prompt, count, model=None):
        """(ids, rows) that llama.cpp alone gives, greedily, with two positions a forward. prompt: ids."""
        rows = self.models / "rows"
        done = subprocess.run(
            [BIN / "specd-llama-reference", model or self.target, "2", str(count), rows,
             ",".join(map(str, prompt))], capture_output=True, text=True, check=True)
        return ([int(token) for token in done.stdout.split()],
                np.fromfile(rows, np.float32).reshape(count, -1))

    def every_draft(self, uri, params):
        """The texts with each kind of draft that may change none."""
        both = {"draft_model": self.assistant, "drafts": "best"}
        return [self.tokens(uri=uri, params=params, **options) for options in (
            {"draft": 0}, {"draft": 5}, {"draft": 1}, {"draft": 5, **both}, {"draft": 0, **both},
            {"draft": 3, "draft_model": self.target, "drafts": "best"},
            {"draft": 5, "max_batch": 3, **both}, {"draft": 4, "max_batch": 2})]

    def attached(self):
        self.daemon()
        return f"unix:{self.socket}"

    def test_rows_are_those_of_transformers(self):
        model = transformers.LlamaForCausalLM.from_pretrained(self.models / "target").eval()
        for text in PROMPTS:
            prompt = self.tokenizer.encode(text).ids
            ids, rows = self.reference(prompt, NEW)
            with torch.no_grad():
                expected = model(torch.tensor([prompt + ids])).logits[0].numpy()
            expected = expected[len(prompt) - 1:-1]
            # llama.cpp keeps keys and values in 16 bits.
            self.assertLess(np.abs(rows - expected).max(), 0.02 * expected.std())

    def test_greedy_text_is_that_of_llama_cpp_whatever_drafts(self):
        expected = [self.reference(self.tokenizer.encode(text).ids, NEW)[0] for text in PROMPTS]
        for ids in expected:
            self.assertGreater(len(set(ids)), NEW // 3)  # no text that repeats itself
        for uri in ("embedded:cpu", self.attached()):
            for texts in self.every_draft(uri, "temperature=0"):
                self.assertEqual(texts, expected, uri)

    def test_a_prompt_of_several_forwards_gives_the_text_of_llama_cpp(self):
        text = (SOURCE / "tools/toy_engine/corpus.txt").read_text()
        ids = self.tokenizer.encode(text).ids[:700]
        prompt = self.tokenizer.decode(ids)
        self.assertEqual(self.tokenizer.encode(prompt).ids, ids)
        expected = [self.reference(ids, NEW)[0]]
        for options in ({}, {"draft_model": self.assistant}, {"draft": 0}):
            self.assertEqual(self.tokens(prompts=[prompt], **options), expected)

    def test_sampled_text_does_not_depend_on_drafts_where_the_contract_says_so(self):
        texts = [self.every_draft(uri, f"temperature=0.9,top_p=0.95,verify={verify}")
                 for uri in ("embedded:cpu", self.attached()) for verify in ("exact_match", "auto")]
        for others in texts:
            self.assertEqual(others, [texts[0][0]] * len(others))
        self.assertNotEqual(self.tokens("--seed=8", params="temperature=0.9,top_p=0.95"), texts[0][0])

    def test_sampled_drafts_give_one_text_for_a_seed(self):
        def made(uri):
            return self.tokens(uri=uri, params="temperature=0.9", draft_model=self.assistant, draft=4)
        texts = made("embedded:cpu")
        self.assertEqual(made("embedded:cpu"), texts)
        self.assertEqual(made(self.attached()), texts)

    def table(self, out):
        """{prompt: (tokens, rounds, drafted, accepted)} of the table of a run."""
        return {name: tuple(map(int, numbers.split())) for name, numbers in
                re.findall(r"^(\S.*?) +((?:\d+ +){4}) \w+$", out, re.MULTILINE)}

    def test_a_draft_model_that_is_the_model_is_always_right(self):
        for params in ("temperature=0", "temperature=0.8,top_p=0.9"):
            out = self.generate("--draft=4", params=f"{params},ignore_eos=true", max_tokens=NEW,
                                draft_model=self.target, prompts=PROMPTS[:1])
            # Eight rounds of five tokens. The last of them has room for 4 drafts too.
            self.assertEqual(self.table(out), {PROMPTS[0]: (NEW, 8, 32, 32)})

    def test_every_forward_has_two_positions(self):
        for prompt in PROMPTS:
            out = self.generate("--draft=0", params="temperature=0", prompts=[prompt])
            self.assertIn("forwards of 2 positions at least", out)

    def best_of_assistant(self, tokens, room):
        return self.reference(tokens, room, model=self.assistant)[0] if room else []

    @staticmethod
    def likely_ngram(tokens, room):
        """What followed the last 3, 2 or 1 tokens where they stood before: token by token the most frequent,
        and of equally frequent ones the latest."""
        for n in (3, 2, 1):
            ends = [end for end in range(n, len(tokens)) if tokens[end - n:end] == tokens[-n:]]
            draft = []
            while ends and len(draft) < room:
                counts = collections.Counter(tokens[end] for end in ends)
                latest = {tokens[end]: end for end in ends}
                draft.append(max(counts, key=lambda token: (counts[token], latest[token])))
                ends = [end + 1 for end in ends if tokens[end] == draft[-1] and end + 1 < len(tokens)]
            if draft:
                return draft
        return []

    def test_trees_of_ngrams_change_no_text(self):
        expected = [self.reference(self.tokenizer.encode(text).ids, NEW)[0] for text in PROMPTS]
        for uri in ("embedded:cpu", self.attached()):
            for options in ({"tree": "2x4", "draft": 12}, {"tree": "3x2", "draft": 5, "max_batch": 3},
                            {"tree": "2x1", "draft": 2, "max_batch": 2}):
                self.assertEqual(self.tokens(uri=uri, **options), expected, options)
        # Each node keeps what follows it: a text that repeats itself is found in trees.
        params = "temperature=0,ignore_eos=true,repetition_penalty=0.5"
        chain = self.generate("--draft=4", params=params, max_tokens=200)
        tree = self.generate("--draft=12", "--tree=3x4", params=params, max_tokens=200)
        accepted = [sum(row[3] for row in self.table(out).values()) for out in (chain, tree)]
        self.assertGreater(accepted[1], 20, tree)
        for row in self.table(tree).values():
            self.assertEqual(row[1] + row[3], row[0], tree)  # a token of each round, and the accepted ones

    def test_rounds_have_the_drafts_that_a_fresh_cache_would_give(self):
        num = 80
        prompts = [self.tokenizer.encode(text).ids for text in PROMPTS]
        texts = [self.reference(prompt, num)[0] for prompt in prompts]
        for propose, options in ((self.best_of_assistant, {"draft_model": self.assistant}),
                                 (self.likely_ngram, {})):
            out = self.generate(params="temperature=0,ignore_eos=true", max_tokens=num, **options)
            expected = {}
            for name, prompt, text in zip(PROMPTS, prompts, texts):
                done = rounds = drafted = accepted = 0
                while done < num:
                    draft = propose(prompt + text[:done], min(5, num - done - 1))
                    good = next((i for i, token in enumerate(draft) if token != text[done + i]),
                                len(draft))
                    rounds, drafted, accepted = rounds + 1, drafted + len(draft), accepted + good
                    done += good + 1
                expected[name] = num, rounds, drafted, accepted
            self.assertEqual(self.table(out), expected)
            _, _, drafted, accepted = map(sum, zip(*expected.values()))
            self.assertTrue(0 < accepted < drafted, out)

    def law(self, prompt):
        """{id: probability} for temperature 1.5 and top_k 3, of llama.cpp's row after a prompt."""
        row = self.reference(prompt, 1)[1][0].astype(float)
        best = np.argsort(-row, kind="stable")[:3]
        shares = np.exp((row[best] - row[best[0]]) / 1.5)
        return dict(zip(best.tolist(), (shares / shares.sum()).tolist()))

    def test_the_law_of_sampled_drafts_is_the_models(self):
        prompt = self.tokenizer.encode("A row").ids
        expected = {(a, b): p * q for a, p in self.law(prompt).items()
                    for b, q in self.law([*prompt, a]).items()}
        num = 1500
        flags = dict(prompts=["A row"] * num, max_tokens=3, draft=2, max_batch=20)
        texts = self.tokens(params="temperature=1.5,top_k=3", draft_model=self.assistant, **flags)
        counts = collections.Counter((first, second) for first, second, _ in texts)
        self.assertLessEqual(set(counts), set(expected))
        chi2 = sum((counts[pair] - num * p) ** 2 / (num * p) for pair, p in expected.items())
        # 8 degrees of freedom: 42.7 is passed once in a million.
        self.assertLess(chi2, 42.7, (counts, expected))

    def test_text_is_streamed_by_the_daemon_and_stop_strings_cut_it(self):
        uri = self.attached()
        options = dict(uri=uri, max_tokens=NEW, params="temperature=0,ignore_eos=true",
                       tokenizer=TOKENIZER, draft_model=self.assistant, prompts=PROMPTS[:1])
        name = PROMPTS[0]
        ids = self.reference(self.tokenizer.encode(PROMPTS[0]).ids, NEW)[0]
        text = self.tokenizer.decode(ids)
        client = self.client("--streams=1")
        out = self.generate(**options)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertEqual(self.texts(client), {name: text})
        self.assertGreater(sum(event["kind"] == "text" or bool(event.get("text"))
                               for event in self.events(client)), 5)
        self.assertIn(f"== {name}\n{text}\n", out)

        stop = text[25:30]
        client = self.client("--streams=1")
        out = self.generate(stop=stop, **options)
        self.assertEqual(client.wait(), 0, client.stderr)
        self.assertEqual(self.texts(client), {name: text[:text.index(stop)]})
        self.assertRegex(out, rf"\n{name} .*  stop\n")

    def test_an_engine_whose_daemon_dies_ends_with_3(self):
        daemon = self.daemon()
        client = self.client()
        process = self.start("specd-llama-engine", f"--specd=unix:{self.socket}", "--threads=1",
                             f"--model={self.target}", "--max_tokens=900", *["A"] * 300)
        wait_until(lambda: '"text"' in client.stdout or not process.running(), "text")
        self.kill(daemon)
        self.assertEqual(process.wait(), 3, process.stderr)

    def shorter_assistant(self, positions):
        """The draft model with fewer positions."""
        folder = self.models / "short"
        shutil.copytree(self.models, folder, ignore=lambda *_: ["short", "small", "rows"])
        config = folder / "assistant/config.json"
        fields = json.loads(config.read_text())
        config.write_text(json.dumps({**fields, "max_position_embeddings": positions}))
        subprocess.run([GGUF_PYTHON, pathlib.Path(__file__).with_name("write_gguf.py"), folder],
                       check=True)
        return folder / "assistant.gguf"

    def test_what_is_not_done_is_refused_by_name(self):
        small = self.models / "small"
        shutil.copytree(self.models, small, ignore=lambda *_: ["small", "rows"])
        subprocess.run([GGUF_PYTHON, pathlib.Path(__file__).with_name("write_gguf.py"), small,
                        "--vocab_size=2100"], check=True)
        short = self.shorter_assistant(512)
        model = f"--model={self.target}"
        for code, flags, words in (
                (2, [], "model: there is none; give --model"),
                (1, [f"--model={TOKENIZER}"], "model: .* is no model that this libllama"),
                (1, [model, f"--draft_model={small / 'assistant.gguf'}"],
                 "draft_model: its rows have 2100 ids, and the model's 2048"),
                (1, [model, "--max_tokens=1024"],
                 "max_tokens: 1024 after a prompt of 1 tokens.*1023 or less"),
                (1, [model, f"--draft_model={short}", "--max_tokens=512"],
                 "max_tokens: 512 after a prompt of 1 tokens, and the models have 512 positions.*511 or"),
                (1, [model, "--context=1025"], r"context: 1025 is outside 1 \.\. 1024"),
                (1, [model, "--stop=x"], "stop"),
                (1, [model, "--params=temperature=101"], r"temperature.*0 \.\. 100"),
                (2, [model, "--draft=63"], r"draft: 63 is outside 0 \.\. 62"),
                (2, [model, "--ngram=0"], r"ngram: 0 is outside 1 \.\. 64"),
                (2, [model, "--max_batch=65"], r"max_batch: 65 is outside 1 \.\. 64"),
                (2, [model, "--drafts=tree"], 'drafts: "tree" is not one of auto, sampled'),
                (2, [model, "--drafts=sampled"], "drafts: sampled and best need a draft model"),
                (2, [model, "--drafts=ngram", f"--draft_model={self.assistant}"],
                 "drafts: ngram has no use for a draft model"),
                (2, [model, "--params=temp=1"], "params: temp: set temperature"),
                (2, [model, "--params=dry_base=1"], "params: dry_base: set no_repeat_ngram_size"),
                (2, [model, "--params=mirostat=2"], "params: mirostat: specd has no adaptive"),
                (2, [model, "--params=n=2"], "params: n: give the prompt several times"),
                (2, [model, "--params=logprobs=2"], "params: logprobs: this engine prints no"),
                (2, [model, "--params=verify=block", "--tree=2x4"], "params: verify: .*for chains; leave --tree"),
                (1, [model, "--params=verify=typical"], "verify = typical changes the distribution"),
                (2, [model, "--params=verify=best"], 'params: verify: "best" is outside its range'),
                (2, [model, "--params=top_p=x"], 'params: top_p: "x" is outside its range'),
                (2, [model, "--params=top_p"], "params: top_p: give name=value"),
                (2, [model, "--params=top_p=1,top_p=1"], "params: top_p: it is named twice"),
                (2, [model, "--params=tempr=1"], "params: tempr: no such parameter"),
                (2, [model, "--tree=2"], 'tree: "2" is not WxD with a width of 2 .. 62'),
                (2, [model, "--tree=1x4"], 'tree: "1x4" is not WxD'),
                (2, [model, "--tree=2x4", f"--draft_model={self.target}"], "tree: trees are drafts of n-grams"),
                (2, [model, "--tree=2x4", "--draft=62", "--max_batch=5"],
                 "max_batch: sequences with trees of 62 tokens take 315 ids of libllama"),
                (2, [model, "--print=all"], 'print: "all" is not one of text')):
            process = self.run_to_end("specd-llama-engine", *flags, "A")
            self.assertRegex(process.stderr, words)
            self.assertEqual(process.code, code, process.stderr)


if __name__ == "__main__":
    unittest.main()
