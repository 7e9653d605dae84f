"""SamplingParams: the parameters of a sequence under vLLM's names, and what is refused by name."""

import ctypes
import dataclasses
import difflib
import operator

import numpy as np

from . import _library as c
from .arrays import id_array, pointer
from ._library import refusal

VERIFY = {"auto": 0, "greedy": 1, "exact_match": 2, "token": 3, "block": 4}
FILTER_ORDER = {"sequential": 0, "joint": 1}
LOGPROBS_MODE = {"raw_logprobs": 0, "processed_logprobs": 1, "raw_logits": 2, "processed_logits": 3}

_NO_BEAMS = "specd samples; open n sequences with logprobs=0 and rank them by cumulative_logprob"

# Names of vLLM and SGLang that mean something else here, or nothing, and what to do instead.
REFUSED = {
    "best_of": "open n sequences with logprobs=0 and rank them by cumulative_logprob",
    "use_beam_search": _NO_BEAMS,
    "beam_width": _NO_BEAMS,
    "length_penalty": _NO_BEAMS,
    "early_stopping": _NO_BEAMS,
    "prompt_logprobs": "score the prompt's ids with engine.score",
    "logits_processors": "name a compiled-in processor in `processors`",
    "custom_logit_processor": "name a compiled-in processor in `processors`",
    "structured_outputs": "pass your grammar's masks to engine.verify",
    "guided_decoding": "pass your grammar's masks to engine.verify",
    "json_schema": "pass your grammar's masks to engine.verify",
    "regex": "pass your grammar's masks to engine.verify",
    "ebnf": "pass your grammar's masks to engine.verify",
    "max_new_tokens": "it is called max_tokens",
    "min_new_tokens": "it is called min_tokens",
    "stop_regex": "stop strings are literal: use stop",
    "no_stop_trim": "it is called include_stop_str_in_output",
    "detokenize": "ids come from the engine; text comes from the daemon's text side",
    "output_kind": "every round returns what the sequence gained in it",
    "spaces_between_special_tokens": "the tokenizer decides",
    "truncate_prompt_tokens": "truncate the prompt before you open the sequence",
    "repetition_detection": "use no_repeat_ngram_size",
    "flat_logprobs": "Result.scores is flat already",
    "extra_args": "every parameter has a field of its own",
}


@dataclasses.dataclass
class SamplingParams:
    """How the tokens of a sequence are chosen. Fields have vLLM's names, meanings and defaults;
    docs/PARAMETERS.md gives the ranges, which the library checks when a sequence is opened.

    >>> specd.SamplingParams(temperature=0.7, top_p=0.95, seed=1, stop_token_ids=[2])
    >>> specd.SamplingParams(temperature=0, logprobs=5, bad_words=[[17], [4, 9]])

    What vLLM has not: `verify` (auto, greedy, exact_match, token, block), `filter_order`
    (sequential, joint), `disallowed_token_ids`, `no_repeat_ngram_*`, `thinking_*`, `processors`
    ({name: {key: number}}), `logprobs_mode` of each sequence, and `draft_*`: what the drafter did
    to its own rows before it drew from them. `bad_words` are lists of ids, because an engine has no
    tokenizer here.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: str | list | None = None
    stop_token_ids: list | None = None
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logit_bias: dict | None = None
    allowed_token_ids: list | None = None
    bad_words: list | None = None
    logprobs: int | None = None
    logprob_token_ids: list | None = None
    thinking_token_budget: int | None = None

    verify: str = "auto"
    filter_order: str = "sequential"
    disallowed_token_ids: list | None = None
    no_repeat_ngram_size: int = 0
    no_repeat_ngram_window: int = 0
    no_repeat_ngram_whitelist: list | None = None
    thinking_preset: str | None = None
    thinking_start_id: int = -1
    thinking_end_ids: list | None = None
    thinking_newline_id: int = -1
    processors: dict | None = None
    logprobs_mode: str = "raw_logprobs"
    draft_temperature: float = 1.0
    draft_top_p: float = 1.0
    draft_top_k: int = 0
    draft_min_p: float = 0.0
    draft_filter_order: str = "sequential"
    draft_edits: bool = False


_generated_init = SamplingParams.__init__
_NAMES = tuple(field.name for field in dataclasses.fields(SamplingParams))


def _init(self, **fields):
    """Keyword arguments only; an unknown name is an Error that says what to do."""
    for name in fields:
        if name not in _NAMES:
            raise refusal(_unknown(name))
    _generated_init(self, **fields)


SamplingParams.__init__ = _init


def _unknown(name):
    if name in REFUSED:
        return f"{name}: not a parameter of specd; {REFUSED[name]}"
    near = difflib.get_close_matches(name, _NAMES, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name}: no such parameter{hint} The fields of specd.SamplingParams are " + \
        ", ".join(_NAMES)


def to_struct(params, prompt_ids=(), output_ids=()):
    """(struct, what must outlive it)."""
    fill = _Filler()
    for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
                 "repetition_penalty", "draft_temperature", "draft_top_p", "draft_min_p"):
        fill.number(name, getattr(params, name))
    for name in ("n", "top_k", "min_tokens", "no_repeat_ngram_size", "no_repeat_ngram_window",
                 "thinking_start_id", "thinking_newline_id", "draft_top_k"):
        fill.integer(name, getattr(params, name))
    fill.integer("max_tokens", 2**31 - 1 if params.max_tokens is None else params.max_tokens)
    fill.integer("logprobs", -1 if params.logprobs is None else params.logprobs)
    fill.integer("thinking_budget", -1 if params.thinking_token_budget is None
                 else params.thinking_token_budget, "thinking_token_budget")
    if params.seed is not None:
        fill.integer("seed", params.seed)
        fill.struct.has_seed = 1
    fill.flag("ignore_eos", params.ignore_eos)
    fill.flag("include_stop", params.include_stop_str_in_output, "include_stop_str_in_output")
    fill.flag("skip_special_tokens", params.skip_special_tokens)
    fill.flag("draft_edits", params.draft_edits)
    fill.choice("verify", params.verify, VERIFY)
    fill.choice("filter_order", params.filter_order, FILTER_ORDER)
    fill.choice("draft_filter_order", params.draft_filter_order, FILTER_ORDER)
    fill.choice("logprobs_mode", params.logprobs_mode, LOGPROBS_MODE)
    for name in ("allowed_token_ids", "disallowed_token_ids", "no_repeat_ngram_whitelist",
                 "thinking_end_ids", "stop_token_ids", "logprob_token_ids"):
        fill.ids(name, getattr(params, name))
    if params.allowed_token_ids is not None and not len(params.allowed_token_ids):
        raise refusal("allowed_token_ids: an empty list allows nothing; None allows every id")
    bias = params.logit_bias or {}
    fill.ids("logit_bias_ids", [_as_int(k, "logit_bias") for k in bias], "logit_bias")
    fill.floats("logit_bias", list(bias.values()))
    _fill_bad_words(fill, params.bad_words or [])
    _fill_texts(fill, params)
    fill.ids("prompt_ids", prompt_ids)
    fill.ids("output_ids", output_ids)
    return fill.struct, fill.kept


def _fill_bad_words(fill, words):
    for word in words:
        if isinstance(word, str):
            raise refusal(f"bad_words: {word!r} is text, and an engine has no tokenizer here; "
                          "give each word as a list of ids, with and without a leading space")
    words = [id_array(word, "bad_words") for word in words]
    fill.ids("bad_word_ids", np.concatenate(words) if words else [], "bad_words")
    fill.ids("bad_word_lengths", [len(word) for word in words], "bad_words")


def _fill_texts(fill, params):
    stop = [params.stop] if isinstance(params.stop, str) else params.stop or []
    fill.strings("stop_strings", stop, "stop")
    if params.thinking_preset is not None:
        fill.struct.thinking_preset = c.text_bytes(params.thinking_preset, "thinking_preset")
    processors = params.processors or {}
    table = (c.Processor * len(processors))()
    for entry, (name, values) in zip(table, processors.items()):
        entry.name = c.text_bytes(name, "processors")
        entry.values = c.text_bytes(
            ",".join(f"{key}={value!r}" for key, value in values.items()), "processors")
    fill.kept.append(table)
    fill.struct.processors = ctypes.cast(table, ctypes.POINTER(c.Processor))
    fill.struct.num_processors = len(processors)


class _Filler:
    """Fills the struct and refuses what a C field would cut short; the library checks the rest."""

    def __init__(self):
        self.struct = c.initialised(c.Params, "specd_params_init")
        self.kept = []

    def number(self, field, value):
        try:
            setattr(self.struct, field, float(value))
        except (TypeError, ValueError):
            raise refusal(f"{field}: {value!r} is not a number") from None

    def integer(self, field, value, name=None):
        value = _as_int(value, name or field)
        setattr(self.struct, field, value)
        if getattr(self.struct, field) != value:
            raise refusal(f"{name or field}: {value} does not fit the field; docs/PARAMETERS.md "
                          "has its range")

    def flag(self, field, value, name=None):
        if value not in (True, False):
            raise refusal(f"{name or field}: {value!r} is neither True nor False")
        setattr(self.struct, field, int(value))

    def choice(self, field, value, choices):
        if value not in choices:
            raise refusal(f"{field}: {value!r} is not one of {', '.join(choices)}")
        setattr(self.struct, field, choices[value])

    def ids(self, field, ids, name=None):
        array = id_array([] if ids is None else ids, name or field)
        self._list(field, array, ctypes.c_int32)

    def floats(self, field, values):
        self._list(field, np.asarray(values, dtype=np.float32), ctypes.c_float)

    def strings(self, field, texts, name):
        table = (ctypes.c_char_p * len(texts))(*(c.text_bytes(text, name) for text in texts))
        self.kept.append(table)
        target = getattr(self.struct, field)
        target.items = ctypes.cast(table, ctypes.POINTER(ctypes.c_char_p))
        target.count = len(texts)

    def _list(self, field, array, ctype):
        self.kept.append(array)
        target = getattr(self.struct, field)
        target.items, target.count = pointer(array, ctype), len(array)


def _as_int(value, name):
    try:
        return operator.index(int(value) if isinstance(value, str) else value)
    except (TypeError, ValueError):
        raise refusal(f"{name}: {value!r} is not an integer") from None
