"""specd_params translates and checks the SamplingParams of SGLang, and refuses each field that is not
honoured."""

from __future__ import annotations

from typing import Any

from ..params import SamplingParams
from ._request_fields import check_fields

# Fields that specd honours under the same name.
_SAME = ("temperature", "top_p", "top_k", "min_p")
_READ = {"sampling_seed"}
# SGLang applies these to the rows before specd gets them.
_IN_THE_ROWS = {"frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens",
                "logit_bias", "json_schema", "regex", "ebnf", "structural_tag", "ebnf_full_assistant"}
# Fields that SGLang honours outside its sampler. Processors, which read custom_params, are refused.
_OUTSIDE = {"max_new_tokens", "stop", "stop_strs", "stop_str_max_len", "stop_token_ids", "stop_regex",
            "stop_regex_strs", "stop_regex_max_len", "n", "ignore_eos", "skip_special_tokens",
            "spaces_between_special_tokens", "no_stop_trim", "stream_interval", "is_normalized",
            "custom_params"}
_REFUSED = {
    "beam_width": "beam search does not sample; leave it out",
    "watermark": "specd draws from the model's law alone; leave it out",
}


def specd_params(params: Any, *, block: bool = False) -> SamplingParams:
    """The specd.SamplingParams of a request of SGLang, checked. Nothing calls this by itself: call it where
    requests come in, because an error in the scheduler ends that one.

    params: a SamplingParams of SGLang
    block: SGLang's speculative_use_block_verification
    """
    made = translated(params, block=block)
    made.check()
    return made


def translated(params: Any, *, block: bool = False) -> SamplingParams:
    """The specd.SamplingParams of a request of SGLang. Ranges are checked when its sequence is opened.
    specd_params describes the arguments."""
    check_fields(params, {*_SAME, *_READ, *_IN_THE_ROWS, *_OUTSIDE}, _REFUSED)
    greedy = params.top_k == 1  # which SGLang also makes of temperature = 0
    made = SamplingParams(max_tokens=None, verify="greedy" if greedy else "block" if block else "token")
    for name in _SAME:
        setattr(made, name, getattr(params, name))
    if params.sampling_seed is not None:
        made.seed = params.sampling_seed % 2**64  # SGLang's seeds have a sign
    return made
