"""The fields of SamplingParams for type checkers, from the library's table of parameters.

tests/python/typing_test.py prints this file, and compares it with the class.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from .param_table import Number
from .row_types import Ids
from .structured import StructuredOutputs

class SamplingParams:
    numbers: ClassVar[dict[str, Number]]
    def check(self, *, vocab_size: int | None = ..., **options: Any) -> None: ...
    seed: int | None
    stop: str | Sequence[str] | None
    stop_regex: str | Sequence[str] | None
    stop_token_ids: Ids | None
    logit_bias: Mapping[int, float] | None
    allowed_token_ids: Ids | None
    disallowed_token_ids: Ids | None
    bad_words: Sequence[Ids] | None
    no_repeat_ngram_whitelist: Ids | None
    logprob_token_ids: Ids | None
    synthetic_rates: Sequence[float] | None
    thinking_preset: str | None
    thinking_end_ids: Ids | None
    processors: Mapping[str, Mapping[str, float]] | None
    structured_outputs: StructuredOutputs | None
    verify: Literal['auto', 'greedy', 'exact_match', 'token', 'block', 'tree', 'traversal', 'target_only', 'typical', 'relaxed', 'threshold', 'synthetic'] | None
    typical_epsilon: float | None
    typical_delta: float | None
    relaxed_n: int | None
    relaxed_delta: float | None
    relaxed_thinking: bool | None
    threshold_single: float | None
    threshold_acc: float | None
    rng: Literal['philox', 'sglang'] | None
    n: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    filter_order: Literal['sequential', 'joint'] | None
    frequency_penalty: float | None
    presence_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    no_repeat_ngram_window: int | None
    thinking_token_budget: int | None
    thinking_start_id: int | None
    thinking_newline_id: int | None
    max_tokens: int | None
    min_tokens: int | None
    ignore_eos: bool | None
    logprobs: int | None
    logprobs_mode: Literal['raw_logprobs', 'processed_logprobs', 'raw_logits', 'processed_logits', 'unfiltered_logprobs'] | None
    draft_temperature: float | None
    draft_top_p: float | None
    draft_top_k: int | None
    draft_min_p: float | None
    draft_filter_order: Literal['sequential', 'joint'] | None
    draft_edits: bool | None
    stops: Literal['auto', 'inline'] | None
    include_stop_str_in_output: bool | None
    skip_special_tokens: bool | None
    text_of: Literal['prompt_and_outputs', 'outputs'] | None
    def __init__(self, *,
                 seed: int | None = ...,
                 stop: str | Sequence[str] | None = ...,
                 stop_regex: str | Sequence[str] | None = ...,
                 stop_token_ids: Ids | None = ...,
                 logit_bias: Mapping[int, float] | None = ...,
                 allowed_token_ids: Ids | None = ...,
                 disallowed_token_ids: Ids | None = ...,
                 bad_words: Sequence[Ids] | None = ...,
                 no_repeat_ngram_whitelist: Ids | None = ...,
                 logprob_token_ids: Ids | None = ...,
                 synthetic_rates: Sequence[float] | None = ...,
                 thinking_preset: str | None = ...,
                 thinking_end_ids: Ids | None = ...,
                 processors: Mapping[str, Mapping[str, float]] | None = ...,
                 structured_outputs: StructuredOutputs | None = ...,
                 verify: Literal['auto', 'greedy', 'exact_match', 'token', 'block', 'tree', 'traversal', 'target_only', 'typical', 'relaxed', 'threshold', 'synthetic'] | None = ...,
                 typical_epsilon: float | None = ...,
                 typical_delta: float | None = ...,
                 relaxed_n: int | None = ...,
                 relaxed_delta: float | None = ...,
                 relaxed_thinking: bool | None = ...,
                 threshold_single: float | None = ...,
                 threshold_acc: float | None = ...,
                 rng: Literal['philox', 'sglang'] | None = ...,
                 n: int | None = ...,
                 temperature: float | None = ...,
                 top_p: float | None = ...,
                 top_k: int | None = ...,
                 min_p: float | None = ...,
                 filter_order: Literal['sequential', 'joint'] | None = ...,
                 frequency_penalty: float | None = ...,
                 presence_penalty: float | None = ...,
                 repetition_penalty: float | None = ...,
                 no_repeat_ngram_size: int | None = ...,
                 no_repeat_ngram_window: int | None = ...,
                 thinking_token_budget: int | None = ...,
                 thinking_start_id: int | None = ...,
                 thinking_newline_id: int | None = ...,
                 max_tokens: int | None = ...,
                 min_tokens: int | None = ...,
                 ignore_eos: bool | None = ...,
                 logprobs: int | None = ...,
                 logprobs_mode: Literal['raw_logprobs', 'processed_logprobs', 'raw_logits', 'processed_logits', 'unfiltered_logprobs'] | None = ...,
                 draft_temperature: float | None = ...,
                 draft_top_p: float | None = ...,
                 draft_top_k: int | None = ...,
                 draft_min_p: float | None = ...,
                 draft_filter_order: Literal['sequential', 'joint'] | None = ...,
                 draft_edits: bool | None = ...,
                 stops: Literal['auto', 'inline'] | None = ...,
                 include_stop_str_in_output: bool | None = ...,
                 skip_special_tokens: bool | None = ...,
                 text_of: Literal['prompt_and_outputs', 'outputs'] | None = ...) -> None: ...
