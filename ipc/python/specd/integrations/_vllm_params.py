"""specd_params translates and checks the SamplingParams of vLLM, and refuses each field that is not honoured."""

from __future__ import annotations

from typing import Any

from .._library import refusal
from ..params import SamplingParams
from ._request_fields import check_fields

# Fields that specd honours under the same name.
_SAME = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
         "repetition_penalty", "logit_bias", "allowed_token_ids")
# Fields that are read below.
_READ = {"seed", "min_tokens", "logprobs", "logprob_token_ids", "bad_words", "_bad_words_token_ids",
         "_all_stop_token_ids"}
# Fields that vLLM honours outside its sampler. The bitmask of structured_outputs is in the rows.
_OUTSIDE = {"n", "max_tokens", "stop", "stop_token_ids", "ignore_eos", "_eos_token_id", "detokenize",
            "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output",
            "output_kind", "stream_interval", "skip_clone", "output_text_buffer_length",
            "flat_logprobs", "prompt_logprobs", "prompt_logprob_token_ids", "prompt_logprob_start",
            "structured_outputs", "extra_args", "skip_reading_prefix_cache", "repetition_detection",
            "routed_experts_prompt_start", "_watermarking_skipped"}
# Why the others are refused, and what to do.
_REFUSED = {
    "thinking_token_budget": "vLLM's reasoning parser does not tell specd its markers; leave it out",
    "watermarking": "specd draws from the model's law alone; leave it out",
    "trace_decode_token_ids": "specd forces no tokens; leave it out",
}
# vLLM ends requests, and no output is as long. With bad_words specd wants a bound.
_MAX_TOKENS = 2**22
_GREEDY_BELOW = 1e-5  # as in vLLM and in speculative/params/params.cc


def specd_params(params: Any, *, logprobs_mode: str = "raw_logprobs",
                 method: str = "standard", draft_temperature: bool = False,
                 vocab_size: int | None = None) -> SamplingParams:
    """The specd.SamplingParams of a request of vLLM, checked. Nothing calls this by itself: call it where
    requests come in, because an error in a worker ends vLLM's engine.

    params: a vllm.SamplingParams
    method: vLLM's rejection_sample_method, "standard" or "block"
    draft_temperature: True: draft rows are logits before the temperature, as in the V2 model runner
    vocab_size: that of the model, whose ids are then checked too, such as those of bad_words
    """
    made = translated(params, logprobs_mode=logprobs_mode, method=method,
                      draft_temperature=draft_temperature)
    made.check(vocab_size=vocab_size)
    return made


def translated(params: Any, *, logprobs_mode: str = "raw_logprobs",
               method: str = "standard", draft_temperature: bool = False) -> SamplingParams:
    """The specd.SamplingParams of a request of vLLM. Ranges are checked when its sequence is opened.
    specd_params describes the arguments."""
    _check_fields(params)
    made = SamplingParams(max_tokens=_MAX_TOKENS, verify=_verify(params, method), seed=_seed(params))
    for name in _SAME:
        setattr(made, name, getattr(params, name))
    made.bad_words = params.bad_words_token_ids or None
    made.logprobs_mode = logprobs_mode  # type: ignore[assignment]
    _set_logprobs(made, params)
    if params.min_tokens:
        _set_min_tokens(made, params)
    if draft_temperature and not _is_greedy(params):
        made.draft_temperature = params.temperature
    return made


def _check_fields(params: Any) -> None:
    check_fields(params, {*_SAME, *_READ, *_OUTSIDE}, _REFUSED)
    if params.bad_words and not params.bad_words_token_ids:
        raise refusal(f"bad_words: {params.bad_words!r} have no ids yet; vLLM's update_from_tokenizer "
                      "gives them")


def _is_greedy(params: Any) -> bool:
    return bool(params.temperature < _GREEDY_BELOW or params.top_k == 1)


def check_method(method: str) -> None:
    if method not in ("standard", "block"):
        raise refusal(f"rejection_sample_method: {method!r} changes the law of the output; take "
                      "'standard' or 'block'")


def _verify(params: Any, method: str) -> Any:
    check_method(method)
    if _is_greedy(params):
        return "greedy"
    return "token" if method == "standard" else "block"


def _seed(params: Any) -> int | None:
    """vLLM's seeds have a sign, those of specd have none; the 64 bits are the same."""
    return None if params.seed is None else params.seed % 2**64


def _set_logprobs(made: SamplingParams, params: Any) -> None:
    """vLLM reports logprob_token_ids in the place of the best ids."""
    if params.logprob_token_ids:
        made.logprobs, made.logprob_token_ids = 0, params.logprob_token_ids
    elif params.logprobs is not None:
        made.logprobs = params.logprobs  # -1, all ids, is refused later


def _set_min_tokens(made: SamplingParams, params: Any) -> None:
    """The ids that min_tokens masks end a sequence of specd later. Where vLLM goes on, RequestRounds opens
    it again."""
    ids = params.all_stop_token_ids
    if ids and params.structured_outputs is not None:
        raise refusal(f"structured_outputs: they are not honoured beside min_tokens = {params.min_tokens}, "
                      "where a constraint may allow nothing but a stop id; leave one of them out")
    if ids:
        made.min_tokens, made.stop_token_ids = params.min_tokens, sorted(ids)
