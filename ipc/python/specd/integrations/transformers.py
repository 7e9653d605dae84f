"""generate and stream run a causal model of Hugging Face's transformers with specd as its sampler.

>>> from specd.integrations.transformers import generate
>>> params = specd.SamplingParams(temperature=0.7, top_p=0.95, max_tokens=200, seed=1)
>>> made = generate(model, tokenizer("The daemon").input_ids, assistant_model=small, params=params)
>>> tokenizer.decode(made.tokens), made.finish_reason

Drafts come from an assistant model, or from the text of the sequence, as chains or as trees. Every forward of `model` has
two positions at least, so that K changes no text where docs/CONTRACT.md says so (5, "Equal rows").
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import numbers
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Literal

from .._library import refusal
from ..arrays import id_array, integer
from ..engine import Engine
from ..params import SamplingParams
from ..trees import static_tree
from ._cached_model import CachedModel, check_model, check_trees, package, vocab_size
from ._drafters import AssistantDrafter, NgramDrafter, TreeDrafter, host_rows
from ._tokenizer_file import tokenizer_file

if TYPE_CHECKING:
    from ..row_types import Ids
    from ..sequence import Sequence

Drafts = Literal["auto", "sampled", "best", "ngram"]
_DRAFTS = ("auto", "sampled", "best", "ngram")

# As in speculative/params/params.cc: below it a sequence is greedy.
_GREEDY_BELOW = 1e-5
# What transformers' generate takes, and what takes its place here.
_INSTEAD = {
    "max_new_tokens": "set max_tokens of params",
    "max_length": "set max_tokens of params, which counts new tokens alone",
    "do_sample": "set temperature of params; 0 is greedy",
    "num_return_sequences": "call it once for each, with seeds of their own",
    "attention_mask": "leave it out: one sequence without padding is served",
    "num_beams": "there is no beam search; sample several and rank by cumulative_logprob",
    "generation_config": "give specd.SamplingParams as params",
    "logits_processor": "code does not cross to specd; params has logit_bias, penalties and constraints",
    "stopping_criteria": "params has stop, stop_token_ids and max_tokens; or leave the loop of stream",
    "prompt_lookup_num_tokens": "leave assistant_model out and set k",
    "num_assistant_tokens": "set k",
    "assistant_confidence_threshold": "set min_confidence",
    "past_key_values": "a cache of an earlier call is not taken over; give all tokens as input_ids",
    "inputs_embeds": "give input_ids",
}
# A forward of one position sums in another order than a forward of several (docs/CONTRACT.md, section 5,
# equal rows). The rows of the assistant choose drafts alone, so its forwards need no second position.
_MIN_POSITIONS = 2
# How long the end of a sequence with stop strings may stay undecided.
_FINAL_MS = 5000


@dataclasses.dataclass
class Step:
    """What one round gave. tokens: the kept tokens. text: Result.text of the round, if it has one.
    kept_tokens: how many the sequence has now; with stop
    strings the last step has no tokens of its own, and may say that fewer are kept. Its finish_reason
    is None if a daemon's text side has had no last word within 5 s."""

    tokens: list[int]
    num_drafted: int
    num_accepted: int
    kept_tokens: int
    finish_reason: str | None
    text: str = ""


@dataclasses.dataclass
class Generation:
    """What generate returns. tokens: the new tokens. sequences: prompt and new tokens as a tensor of
    [1, length], as transformers returns it."""

    tokens: list[int]
    sequences: Any
    finish_reason: str | None
    num_rounds: int
    num_drafted: int
    num_accepted: int


def generate(model: Any, input_ids: Ids, *, streamer: Any = None, **options: Any) -> Generation:
    """Generates to the end. Options are those of stream, without tokenizer.

    streamer: one of transformers, such as TextStreamer(tokenizer): put gets the prompt, then the
      tokens of each round, and end is called.
    """
    if "tokenizer" in options:
        raise refusal("tokenizer: generate returns ids; decode them, give streamer, or call stream")
    prompt = _prompt(input_ids)
    steps = stream(model, prompt, **options)
    torch = package("torch")
    if streamer is not None:
        streamer.put(torch.tensor([prompt]))
    tokens: list[int] = []
    done: list[Step] = []
    with contextlib.closing(steps):  # a streamer that fails leaves no sequence open
        for step in steps:
            done.append(step)
            tokens.extend(step.tokens)
            if streamer is not None and step.tokens:
                streamer.put(torch.tensor(step.tokens))
    if streamer is not None:
        streamer.end()
    del tokens[done[-1].kept_tokens:]
    return Generation(tokens, torch.tensor([prompt + tokens]), done[-1].finish_reason,
                      sum(bool(step.tokens) for step in done),
                      sum(step.num_drafted for step in done),
                      sum(step.num_accepted for step in done))


def stream(model: Any, input_ids: Ids, *, assistant_model: Any = None,
           params: SamplingParams | None = None, k: int = 5, drafts: Drafts = "auto",
           tree: Ids | None = None, ngram: int = 3, min_confidence: float = 0.4,
           engine: Engine | str = "embedded:cpu",
           tokenizer: Any = None, request_id: str | None = None,
           **others: object) -> Generator[Step, None, None]:
    """Returns an iterator with a Step for each round. What this package refuses is refused at once,
    and what the library or the daemon refuses, at the first step.

    input_ids: the tokens of one prompt, of shape [length] or [1, length].
    assistant_model: a smaller causal model with the same ids; None: n-grams of the sequence.
    k: the most draft tokens of a round; 0 is plain sampling.
    tree: drafts are trees in which each place at depth i has tree[i] children, such as (3, 2, 1); at most 64
      draft tokens. k and min_confidence then have no effect. Children from the assistant are its best ids,
      and with "sampled" drafts one of them is drawn from the rest. With "ngram" the numbers bound the tree.
    drafts: "sampled" draws from the assistant's rows. "best" takes the best id of each, which changes
      no text unless verify is one of those that read proposals (docs/CONTRACT.md, 5). "ngram" takes what
      followed the last tokens where they stood before, at most `ngram` of them (specd.draft_ngram). "auto" is "ngram" without an assistant, "best" where a
      sequence is greedy or verified by exact_match, and otherwise "sampled".
    min_confidence: a draft ends after the first token to which the assistant gives a lower probability.
      The token itself stays in the draft, so the option changes no law. Where the text does not
      depend on k, it does not depend on min_confidence either. The draft_ fields of params apply to the probability. 0 drafts all of k. N-grams have no
      probability, and ignore the option.
    params: if all its draft_ fields have their defaults, sampled drafts are drawn with the sequence's
      own temperature, top_p, top_k, min_p and filter_order.
    engine: a specd.Engine, which stays open; or a URI, for an engine of this call. EOS ids are those of
      the engine; an embedded one that is opened here has those of model.generation_config.
    tokenizer: the file of the model's tokenizer, or a fast tokenizer of transformers, for an embedded
      engine of this call: Step.text is then filled, and params may have stop. An engine of yours that
      was opened with its tokenizer fills it with stop, or with stops="inline". A daemon publishes the
      text: specd.subscribe.
    """
    for name in others:
        raise refusal(f"{name}: " + _INSTEAD.get(
            name, "no such option; sampling parameters are fields of params, a specd.SamplingParams"))
    run = _Run(model, assistant_model, _prompt(input_ids), params or SamplingParams(), k, drafts, ngram,
               min_confidence, tree)
    run.check_engine(engine)
    if tokenizer is not None:
        _check_tokenizer(engine)
        changed: Any = run.params  # a dataclass, which sampling_params.pyi does not say
        run.params = dataclasses.replace(changed, stops="inline")
    return run.steps(engine, request_id, tokenizer)


class _Run:
    """One call of stream: what was asked, checked."""

    def __init__(self, model: Any, assistant_model: Any, prompt: list[int], params: SamplingParams,
                 k: int, drafts: str, ngram: int, min_confidence: float, tree: Ids | None):
        check_model(model, "model")
        self.model, self.assistant, self.prompt = model, assistant_model, prompt
        self.vocab_size = vocab_size(model)
        self.k, self.ngram = integer(k, "k", 0, 2**16), integer(ngram, "ngram", 1, 64)
        self.min_confidence = _confidence(min_confidence)
        self.drafts = _chosen(drafts, params, assistant_model)
        if self.drafts != "ngram":
            check_model(assistant_model, "assistant_model")
            if vocab_size(assistant_model) != self.vocab_size:
                raise refusal(f"assistant_model: its rows have {vocab_size(assistant_model)} ids, and "
                              f"the model's {self.vocab_size}; give an assistant with the same ids")
        for token in prompt:
            if not 0 <= token < self.vocab_size:
                raise refusal(f"input_ids: {token} is outside 0 .. {self.vocab_size - 1}")
        if params.n not in (1, None):
            raise refusal(f"params: n = {params.n}; one sequence is generated in a call: call it once "
                          "for each, with seeds of their own")
        self.params = _with_draft_steps(params) if self.drafts == "sampled" else params
        self._check_positions("model", model)
        if self.drafts != "ngram":
            self._check_positions("assistant_model", assistant_model)
        self.tree = None if tree is None else self._checked_tree(tree)

    def _checked_tree(self, tree: Ids) -> list[int]:
        """The widths of the tree. k becomes the number of its draft tokens."""
        widths: list[int] = id_array(tree, "tree").tolist()
        if not widths or min(widths) < 1:
            raise refusal(f"tree: {widths} has no children at some depth; name the children of a place at "
                          "each depth, such as (3, 2, 1)")
        self.k = len(static_tree(widths))
        most = None if self.params.max_tokens is None else len(self.prompt) + self.params.max_tokens
        check_trees(self.model, "model", most)
        if self.drafts != "ngram":
            check_trees(self.assistant, "assistant_model", most)
        return widths

    def _check_positions(self, name: str, model: Any) -> None:
        most = getattr(getattr(model, "config", None), "max_position_embeddings", None)
        tokens = self.params.max_tokens
        if most is None or tokens is not None and len(self.prompt) + tokens <= most:
            return
        raise refusal(f"params: max_tokens = {tokens} after a prompt of {len(self.prompt)} tokens, and "
                      f"the {name} has {most} positions; set max_tokens to "
                      f"{max(0, most - len(self.prompt))} or less")

    def check_engine(self, engine: Engine | str) -> None:
        if isinstance(engine, str):
            return
        if not isinstance(engine, Engine):
            raise refusal(f"engine: {engine!r} is neither a specd.Engine nor a URI such as embedded:cpu")
        if engine.vocab_size != self.vocab_size:
            raise refusal(f"engine: its vocab_size is {engine.vocab_size}, and the model's rows have "
                          f"{self.vocab_size} ids; open it with that")
        if engine.max_draft < self.k:
            raise refusal(f"k: {self.k} is outside 0 .. {engine.max_draft}, the max_draft of the engine; "
                          "open it with a larger one")

    def steps(self, engine: Engine | str, request_id: str | None,
              tokenizer: Any) -> Generator[Step, None, None]:
        with contextlib.ExitStack() as at_end:
            if isinstance(engine, str):
                engine = at_end.enter_context(self._open(engine, tokenizer))
            sequence = engine.open(self.params, self.prompt, request_id=request_id)
            at_end.callback(sequence.close)
            yield from self._rounds(engine, sequence)

    def _open(self, uri: str, tokenizer: Any) -> Engine:
        if tokenizer is None:
            return self._open_with(uri, {})
        with tokenizer_file(tokenizer) as path:
            return self._open_with(uri, {"tokenizer": path})

    def _open_with(self, uri: str, options: dict[str, Any]) -> Engine:
        if uri.startswith("embedded:"):
            eos = self.model.generation_config.eos_token_id
            options["eos_token_ids"] = eos if isinstance(eos, list) else [] if eos is None else [eos]
        # Draft tokens are drawn for the places of a level together.
        return Engine(uri, vocab_size=self.vocab_size, max_draft=self.k,
                      max_batch=max(1, self.k if self.tree else 1), **options)

    def _drafter(self, engine: Engine) -> AssistantDrafter | NgramDrafter | TreeDrafter:
        if self.drafts == "ngram":
            return NgramDrafter(self.ngram, self.tree)
        model, sampled = CachedModel(self.assistant, "assistant_model", 1), self.drafts == "sampled"
        if self.tree:
            return TreeDrafter(model, engine, self.tree, sampled)
        return AssistantDrafter(model, engine, self.k, sampled, self.min_confidence)

    def _rounds(self, engine: Engine, sequence: Sequence) -> Iterator[Step]:
        target, drafter = CachedModel(self.model, "model", _MIN_POSITIONS), self._drafter(engine)
        tokens = list(self.prompt)
        most = self.params.max_tokens
        while True:
            kept = len(tokens) - len(self.prompt)
            # The prompt's own round has no draft, whatever k is: its forward is then the same.
            longest = self.k if self.tree is None else len(self.tree)
            room = longest if most is None else min(longest, most - kept - 1)
            draft = drafter.draft(sequence, tokens, room if kept else 0)
            proposed = [int(token) for token in draft.tokens]  # type: ignore[union-attr]
            if draft.parents is None or not proposed:
                rows = target.forward([*tokens[target.length:], *proposed], len(proposed) + 1)
            else:
                parents = [int(node) for node in draft.parents]  # type: ignore[union-attr]
                rows = target.forward_tree(tokens[target.length:], proposed, parents)
            result, = engine.verify(host_rows(rows), [draft], q=drafter.q)
            path = result.path.tolist()
            target.keep(len(tokens), path)
            drafter.settle(len(tokens), path)
            new: list[int] = result.tokens.tolist()
            tokens.extend(new)
            ended = result.finish_reason is not None or result.status == "finished"
            stops = bool(self.params.stop or self.params.stop_regex)
            unsure = ended and not sequence.has_text and (stops or
                                                          result.status == "finished")
            reason = None if unsure else result.finish_reason
            if new or ended and not unsure:
                yield Step(new, len(proposed), result.num_accepted, result.total_kept, reason,
                           result.text or "")
            if unsure:
                # The text side has the last word about an end.
                state = sequence.final(_FINAL_MS)
                yield Step([], 0, 0, result.total_kept if state is None else state.kept_tokens,
                           result.finish_reason if state is None else state.finish_reason)
            if ended:
                return


def _prompt(input_ids: Any) -> list[int]:
    shape = tuple(getattr(input_ids, "shape", ()))
    if len(shape) == 2 and shape[0] == 1 or not shape and len(input_ids) == 1 and \
            hasattr(input_ids[0], "__len__"):
        input_ids = input_ids[0]
    elif len(shape) > 1 or not shape and len(input_ids) > 1 and hasattr(input_ids[0], "__len__"):
        raise refusal(f"input_ids: {shape[0] if shape else len(input_ids)} sequences; one is generated "
                      "in a call: call it once for each, with one engine")
    if not len(input_ids):
        raise refusal("input_ids: they are empty; give one token at least, such as the BOS id")
    ids: list[int] = id_array(input_ids, "input_ids").tolist()
    return ids


def _check_tokenizer(engine: Engine | str) -> None:
    if not isinstance(engine, str):
        raise refusal('tokenizer: the engine is yours; open it with tokenizer=FILE, and set stops="inline" '
                      "in params")
    if not engine.startswith("embedded:"):
        raise refusal("tokenizer: a daemon publishes the text; leave it out here and read the text with "
                      "specd.subscribe")


def _confidence(value: object) -> float:
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    if not 0 <= number <= 1:
        raise refusal(f"min_confidence: {value!r} is no number in 0 .. 1; give a probability, or 0 to draft "
                      "all of k")
    return number


def _chosen(drafts: str, params: SamplingParams, assistant_model: Any) -> str:
    """The kind of drafts, with "auto" decided."""
    if drafts not in _DRAFTS:
        raise refusal(f"drafts: {drafts!r} is not one of {', '.join(_DRAFTS)}")
    if assistant_model is None and drafts in ("sampled", "best"):
        raise refusal(f'drafts: "{drafts}" needs assistant_model; without it drafts are "ngram"')
    if drafts != "auto":
        return drafts
    if assistant_model is None:
        return "ngram"
    temperature = params.temperature
    greedy = temperature is not None and temperature < _GREEDY_BELOW
    return "best" if greedy or params.verify in ("greedy", "exact_match") else "sampled"


def _with_draft_steps(params: SamplingParams) -> SamplingParams:
    """The sequence's own steps for the assistant's rows, if none are named."""
    names = ("temperature", "top_p", "top_k", "min_p", "filter_order")
    named = [name for name, number in params.numbers.items()
             if name.startswith("draft_") and getattr(params, name) not in
             (None, number.python_default)]
    if named or params.temperature is not None and params.temperature < _GREEDY_BELOW:
        return params
    changed: Any = params  # a dataclass, which sampling_params.pyi does not say
    own: SamplingParams = dataclasses.replace(
        changed, **{f"draft_{name}": getattr(params, name) for name in names})
    return own
