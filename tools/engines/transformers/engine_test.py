"""specd.integrations.transformers over models that a few steps have trained, embedded and attached.

Expected texts are those of transformers' own generate; expected laws are softmax of the model's rows.
"""

import collections
import itertools
import math
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import unittest

import torch
import transformers

import specd
import train_models
from specd.integrations.transformers import generate, stream
from support import BIN, SOURCE, ProcessTest

transformers.logging.set_verbosity_error()
ENGINE = pathlib.Path(__file__).with_name("engine.py")
PROMPT = "The daemon"
NEW = 40
STEPS = {"target": 25, "assistant": 40}


def params(**fields):
    """EOS ends nothing, so that lengths are known."""
    return specd.SamplingParams(**{"temperature": 0, "max_tokens": NEW, "ignore_eos": True, **fields})


class Bigrams:
    """A causal model whose row after a token is known: the logarithms of rows[token]. As much of transformers'
    interface as specd.integrations.transformers needs. positions: the number of positions of each forward."""

    training, device = False, "cpu"
    generation_config = types.SimpleNamespace(eos_token_id=0)

    def __init__(self, rows):
        self.rows = torch.log(torch.tensor(rows))
        self.config = types.SimpleNamespace(
            is_encoder_decoder=False, vocab_size=len(rows), max_position_embeddings=64)
        self.positions = []

    def get_output_embeddings(self):
        return None

    def forward(self, input_ids, past_key_values, use_cache):
        assert use_cache
        count = input_ids.shape[1]
        self.positions.append(count)
        past_key_values.update(torch.zeros(1, 1, count, 1), torch.zeros(1, 1, count, 1), 0)
        return types.SimpleNamespace(logits=self.rows[input_ids])

    __call__ = forward


# The best id after 0 is 1, with probability 0.9; after 1 it is 2, after 2 it is 3, and after 3 it is 0.
CIRCLE = [[0.05, 0.9, 0.03, 0.02], [0.3, 0.1, 0.5, 0.1], [0.25, 0.25, 0.2, 0.3], [0.9, 0.05, 0.03, 0.02]]


class EngineTest(ProcessTest):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="specd-models-"))
        cls.addClassCleanup(shutil.rmtree, folder)
        train_models.trained(folder, STEPS, say=lambda text: None)
        cls.models = folder
        cls.model, cls.assistant, cls.tokenizer = train_models.load(folder)
        cls.prompt = cls.tokenizer.encode(PROMPT).ids
        cls.width = cls.model.config.vocab_size

    def attached(self):
        self.daemon()
        return f"unix:{self.socket}"

    def tokens(self, **options):
        return generate(self.model, self.prompt, **{"params": params(), **options}).tokens

    def every_draft(self, engine, **fields):
        """The tokens of each kind of draft that may change no text."""
        asked = params(**fields)
        best = {"drafts": "best", "assistant_model": self.assistant}
        return [self.tokens(params=asked, engine=engine, **options) for options in (
            {"k": 0}, {"k": 5}, {"k": 1}, {"k": 5, **best}, {"k": 5, "min_confidence": 0, **best},
            {"k": 5, "min_confidence": 0.9, **best}, {"k": 5, "min_confidence": 1, **best},
            {"k": 3, "min_confidence": 0, **best, "assistant_model": self.model})]

    def test_greedy_text_is_that_of_transformers_whatever_drafts(self):
        expected = self.model.generate(
            torch.tensor([self.prompt]), max_new_tokens=NEW, do_sample=False, eos_token_id=None,
            attention_mask=torch.ones(1, len(self.prompt), dtype=torch.long))[0].tolist()
        for uri in ("embedded:cpu", self.attached()):
            for tokens in self.every_draft(uri):
                self.assertEqual(self.prompt + tokens, expected, uri)

    def test_sampled_text_does_not_depend_on_drafts_where_the_contract_says_so(self):
        for uri in ("embedded:cpu", self.attached()):
            for verify in ("exact_match", "auto"):
                texts = self.every_draft(uri, temperature=0.9, seed=7, verify=verify)
                self.assertEqual(texts, [texts[0]] * len(texts), (uri, verify))
        other = self.tokens(params=params(temperature=0.9, seed=8))
        self.assertNotEqual(other, texts[0])

    def test_a_drafter_that_is_the_model_is_always_right(self):
        made = generate(self.model, self.prompt, assistant_model=self.model, params=params(), k=4,
                        min_confidence=0)
        # The prompt's round gives one token, and each other round five.
        self.assertEqual((made.num_rounds, made.num_accepted, made.num_drafted), (9, 31, 31))
        sampled = generate(self.model, self.prompt, assistant_model=self.model, k=4,
                           params=params(temperature=0.8, top_p=0.9, seed=1))
        self.assertEqual(sampled.num_accepted, sampled.num_drafted)

    # Bug: the second one's draft rows took the place of the first one's, whose residuals were wrong.
    def test_two_streams_on_an_engine_do_not_meet(self):
        def begin(k, engine):
            return stream(self.model, self.prompt, assistant_model=self.assistant, k=k, engine=engine,
                          min_confidence=0, params=params(temperature=0.9, seed=k, max_tokens=20))
        def all_of(steps):
            return [token for step in steps for token in step.tokens]
        with specd.Engine(vocab_size=self.width, max_batch=2, max_draft=5,
                          eos_token_ids=[0]) as engine:
            alone = {k: all_of(begin(k, engine)) for k in (3, 5)}
            for order in ((3, 5), (5, 3)):
                streams = {k: begin(k, engine) for k in order}
                texts = {k: [] for k in order}
                while streams:
                    for k in list(streams):
                        step = next(streams[k], None)
                        if step is None:
                            del streams[k]
                        else:
                            texts[k] += step.tokens
                self.assertEqual(texts, alone, order)

    def test_the_law_of_sampled_drafts_is_the_models(self):
        torch.manual_seed(3)
        config = transformers.LlamaConfig(
            vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, max_position_embeddings=32, initializer_range=1.0)
        model, other = (transformers.LlamaForCausalLM(config).eval() for _ in range(2))
        allowed = [1, 2, 5]
        with torch.no_grad():
            def law(ids):
                row = model(torch.tensor([ids])).logits[0, -1, allowed] / 2
                return dict(zip(allowed, torch.softmax(row, 0).tolist()))
            expected = {(a, b): law([3])[a] * law([3, a])[b] for a in allowed for b in allowed}
        counts, accepted, num = collections.Counter(), 0, 1500
        with specd.Engine(vocab_size=8, max_batch=1, max_draft=1, eos_token_ids=[0]) as engine:
            for seed in range(num):
                made = generate(model, [3], assistant_model=other, k=1, engine=engine, params=params(
                    temperature=2.0, seed=seed, max_tokens=3, allowed_token_ids=allowed,
                    draft_edits=True))
                counts[tuple(made.tokens[:2])] += 1
                accepted += made.num_accepted
        chi2 = sum((counts[pair] - num * p) ** 2 / (num * p) for pair, p in expected.items())
        # 8 degrees of freedom: 42.7 is passed once in a million.
        self.assertLess(chi2, 42.7, (counts, expected))
        self.assertTrue(0.1 * num < accepted < 0.95 * num, accepted)  # both verdicts are met

    def test_a_draft_ends_after_the_token_of_which_the_assistant_is_unsure(self):
        def drafted(min_confidence, **fields):
            model, assistant = Bigrams(CIRCLE), Bigrams(CIRCLE)
            steps = list(stream(model, [0], assistant_model=assistant, k=5, drafts="best",
                                params=params(max_tokens=13, **fields), min_confidence=min_confidence))
            self.assertEqual([token for step in steps for token in step.tokens],
                             [i % 4 for i in range(1, 14)])
            numbers = [step.num_drafted for step in steps]
            self.assertEqual(len(assistant.positions), sum(numbers))  # no forward for a token that is not drafted
            self.assertGreaterEqual(min(model.positions), 2)
            return numbers
        # The first round makes token 1. The assistant then drafts 2 (0.5) and 3 (0.3); 0 follows as the bonus. In
        # the next rounds it drafts 1 (0.9), 2 and 3. max_tokens ends the last draft.
        self.assertEqual(drafted(0.4), [0, 2, 3, 3, 0])
        # Here a draft ends after 2, and 3 is the bonus: after it come 0 (0.9), 1 and 2.
        self.assertEqual(drafted(0.6), [0, 1, 3, 3, 1])
        self.assertEqual(drafted(0.95), [0] + [1] * 6)
        self.assertEqual(drafted(1), [0] + [1] * 6)
        self.assertEqual(drafted(0.2), [0, 5, 5])
        self.assertEqual(drafted(0), [0, 5, 5])
        # The declared steps of the drafter make its probabilities: here they leave one id.
        self.assertEqual(drafted(1, draft_top_k=1), [0, 5, 5])

    def test_n_grams_have_no_confidence(self):
        made = [generate(Bigrams(CIRCLE), [0, 1, 2, 3, 0], k=5, min_confidence=confidence,
                         params=params(max_tokens=7)) for confidence in (0, 1)]
        self.assertEqual([(each.num_drafted, each.num_accepted) for each in made], [(4, 4)] * 2)

    def test_the_law_is_the_models_where_drafts_end_early(self):
        # The assistant is sure of some ids and not of others, so the drawn tokens decide where a draft ends.
        model = Bigrams([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1], [0.25, 0.25, 0.5]])
        assistant = Bigrams([[0.5, 0.2, 0.3], [0.15, 0.7, 0.15], [0.3, 0.6, 0.1]])
        p, num, length = torch.exp(model.rows).tolist(), 1500, 4
        expected = {ids: math.prod(p[a][b] for a, b in zip((0, *ids), ids))
                    for ids in itertools.product(range(3), repeat=length)}
        with specd.Engine(vocab_size=3, max_batch=1, max_draft=3, eos_token_ids=[0]) as engine:
            for verify in ("token", "block"):
                counts, lengths = collections.Counter(), collections.Counter()
                for seed in range(num):
                    tokens = []
                    for step in stream(model, [0], assistant_model=assistant, k=3, engine=engine,
                                       min_confidence=0.4, params=params(
                                           temperature=1, seed=seed, max_tokens=5, verify=verify)):
                        tokens += step.tokens
                        lengths[step.num_drafted, step.num_accepted] += 1
                    counts[tuple(tokens[:length])] += 1
                chi2 = sum((counts[ids] - num * law) ** 2 / (num * law) for ids, law in expected.items())
                # 80 degrees of freedom: 155.4 is passed once in a million.
                self.assertLess(chi2, 155.4, verify)
                # Drafts of every length are met, and verdicts of both kinds.
                for drafted in (1, 2, 3):
                    self.assertGreater(lengths[drafted, 0], 30, (verify, lengths))
                    self.assertGreater(lengths[drafted, drafted], 30, (verify, lengths))

    def test_every_forward_has_two_positions(self):
        lengths, forward = [], self.model.forward

        def counted(**given):
            lengths.append(given["input_ids"].shape[1])
            return forward(**given)

        self.model.forward = counted
        self.addCleanup(delattr, self.model, "forward")
        self.tokens(k=0)
        self.assertEqual(lengths, [max(2, len(self.prompt))] + [2] * (NEW - 1))

    def test_text_is_streamed(self):
        steps = list(stream(self.model, self.prompt, params=params(), tokenizer=self.tokenizer))
        tokens = [token for step in steps for token in step.tokens]
        self.assertEqual("".join(step.text for step in steps), self.tokenizer.decode(tokens))
        self.assertEqual([step.finish_reason for step in steps],
                         [None] * (len(steps) - 1) + ["length"])
        self.assertEqual(steps[-1].kept_tokens, NEW)
        got = []
        streamer = type("Streamer", (), {"put": lambda _, value: got.append(value.tolist()),
                                         "end": lambda _: got.append("end")})()
        self.assertEqual(generate(self.model, torch.tensor([self.prompt]), params=params(),
                                  streamer=streamer).tokens, tokens)
        self.assertEqual(got, [[self.prompt]] + [step.tokens for step in steps] + ["end"])

    def test_a_stop_string_ends_the_text_in_the_engines_process(self):
        text = self.tokenizer.decode(self.tokens())
        stop = text[25:30]
        steps = list(stream(self.model, self.prompt, params=params(stop=[stop]), tokenizer=self.tokenizer))
        self.assertEqual("".join(step.text for step in steps), text[:text.index(stop)])
        self.assertEqual((steps[-1].finish_reason, sum(len(step.tokens) for step in steps)),
                         ("stop", steps[-1].kept_tokens))
        for engine, words in (("unix:/nowhere", "specd.subscribe"), (object(), "")):
            with self.assertRaisesRegex(specd.Error, words):
                stream(self.model, self.prompt, params=params(), tokenizer=self.tokenizer, engine=engine)
        with self.assertRaisesRegex(specd.Error, "has no tokenizer.json"):
            next(stream(self.model, self.prompt, params=params(), tokenizer=object()))

    def test_a_stream_that_is_left_frees_its_sequence(self):
        with specd.Engine(vocab_size=self.width, max_batch=1, max_sequences=1, max_draft=5,
                          eos_token_ids=[0]) as engine:
            for _ in range(2):
                steps = stream(self.model, self.prompt, params=params(), engine=engine)
                next(steps)
                steps.close()
            self.assertEqual(self.tokens(engine=engine), self.tokens())

    def test_subscribers_read_the_text_of_a_daemon_and_stop_strings_cut_it(self):
        uri = self.attached()
        text = self.tokenizer.decode(self.tokens())
        stop = text[25:30]
        ends = {}
        with specd.subscribe(uri) as events:
            def read():
                texts = collections.defaultdict(str)
                for event in events:
                    texts[event.request_id] += event.text
                    if event.kind == "end":
                        ends[event.request_id] = texts[event.request_id], event.finish
                        if len(ends) == 2:
                            return
            reader = threading.Thread(target=read)
            reader.start()
            self.tokens(engine=uri, request_id="whole", assistant_model=self.assistant)
            cut = generate(self.model, self.prompt, engine=uri, request_id="cut",
                           params=params(stop=[stop]))
            reader.join(30)
        self.assertEqual(ends["whole"], (text, "length"))
        self.assertEqual(ends["cut"], (text[:text.index(stop)], "stop"))
        self.assertEqual(cut.finish_reason, "stop")
        kept = self.tokenizer.decode(cut.tokens)
        self.assertTrue(text.startswith(kept) and stop in kept, kept)
        self.assertLess(kept.index(stop), len(kept))
        self.assertNotIn(stop, self.tokenizer.decode(cut.tokens[:-1]))

    def test_what_is_not_done_is_refused_by_name(self):
        small = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=1)).eval()
        t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=16, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)).eval()
        mamba = transformers.MambaForCausalLM(transformers.MambaConfig(
            vocab_size=16, hidden_size=8, num_hidden_layers=1, state_size=2)).eval()
        gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=16, n_embd=8, n_layer=1, n_head=1)).eval()
        training = transformers.LlamaForCausalLM(small.config).train()
        engine = specd.Engine(vocab_size=16, max_draft=2, eos_token_ids=[0])
        self.addCleanup(engine.close)
        for model, ids, options, words in (
                (t5, [1], {}, "model: T5.*encoder with a decoder"),
                (mamba, [1], {}, "model: Mamba.*state that cannot be cut"),
                (gpt2, [1], {}, "model: .*GPT2LMHeadModel no DynamicCache"),
                (training, [1], {}, r"training mode.*\.eval\(\)"),
                (object(), [1], {}, "model: object is no model of transformers"),
                (small, [], {}, "input_ids: they are empty"),
                (small, [[1], [2]], {}, "input_ids: 2 sequences"),
                (small, torch.ones(2, 3, dtype=torch.long), {}, "input_ids: 2 sequences"),
                (small, [16], {}, r"input_ids: 16 is outside 0 \.\. 15"),
                (small, [1], {"k": -1}, "k: -1"),
                *((small, [1], {"min_confidence": value}, "min_confidence: .* is no number in 0 .. 1; .* 0 to draft all")
                  for value in (-0.1, 1.5, math.nan, "0.4", None)),
                (small, [1], {"k": 3, "engine": engine}, r"k: 3 is outside 0 \.\. 2"),
                (small, [1], {"engine": 7}, "engine: 7 is neither"),
                (self.model, [1], {"engine": engine, "k": 1}, "engine: its vocab_size is 16"),
                (small, [1], {"drafts": "tree"}, "drafts: 'tree' is not one of"),
                (small, [1], {"drafts": "best"}, 'drafts: "best" needs assistant_model'),
                (small, [1], {"assistant_model": self.assistant}, "assistant_model: its rows have 2048"),
                (small, [1], {"params": params(n=2)}, "n = 2"),
                (small, [1], {"params": params(max_tokens=2048)},
                 "max_tokens = 2048 after a prompt of 1 tokens.*2047 or less"),
                (small, [1], {"params": params(max_tokens=None)}, "max_tokens = None"),
                (small, [1], {"max_new_tokens": 5}, "max_new_tokens: set max_tokens of params"),
                (small, [1], {"temprature": 5}, "temprature: no such option")):
            with self.assertRaisesRegex(specd.Error, words):
                stream(model, ids, **options)
        self.assertEqual(len(generate(small, [1], params=params(), k=2, engine=engine).tokens), NEW)

    def table(self, *command, **environment):
        """What a program prints last: the numbers of each prompt, by its name. The text before it too."""
        done = subprocess.run(
            [*map(str, command), f"--models={self.models}", "--max_tokens=12", "--temperature=0",
             f"--prompt={PROMPT}|A row"], capture_output=True, text=True, check=False, timeout=120,
            env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        text, _, lines = done.stdout.partition(f"{'prompt':24} ")
        return {line[:24].strip(): line[24:].split() for line in lines.splitlines()[1:]}, text

    def test_the_program_generates_the_text(self):
        expected = self.tokens(params=params(max_tokens=12, ignore_eos=False))
        table, text = self.table(sys.executable, ENGINE)
        self.assertEqual(list(table), [PROMPT, "A row"])
        self.assertEqual(table[PROMPT][0], str(len(expected)))
        self.assertLessEqual(int(table[PROMPT][1]), len(expected))  # rounds
        self.assertTrue(text.startswith(PROMPT + self.tokenizer.decode(expected)), text)
        for options in (["--tree=2x2"], ["--tree=3,1", "--drafts=ngram"]):
            self.assertEqual(self.table(sys.executable, ENGINE, *options)[0][PROMPT][0], table[PROMPT][0])
        missing = subprocess.run([sys.executable, ENGINE, f"--models={self.models}/none"],
                                 capture_output=True, text=True, check=False)
        self.assertEqual(missing.returncode, 1)
        self.assertRegex(missing.stderr, "error: --models: .*/none has no trained.json; train_models.py")

    def test_the_demo_shows_it_through_a_daemon(self):
        table, text = self.table(SOURCE / "tools/demo", "--engine=transformers", SPECD_BIN=str(BIN))
        self.assertEqual(list(table), [PROMPT, "A row"])
        self.assertEqual(table[PROMPT][0], str(len(self.tokens(params=params(max_tokens=12, ignore_eos=False)))))
        self.assertIn("The daemon", text)  # what the subscriber shows

    def test_import_specd_imports_no_torch(self):
        done = subprocess.run(
            [sys.executable, "-c", "import specd, sys; print('torch' in sys.modules)"],
            capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False\n")


if __name__ == "__main__":
    unittest.main()
