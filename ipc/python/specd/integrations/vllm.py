"""use_specd makes specd the sampler and the rejection sampler of a vLLM model runner, V1 or V2.

>>> llm = vllm.LLM(model, speculative_config=...,
...                worker_extension_cls="specd.integrations.vllm.WorkerExtension")
>>> llm.collective_rpc("use_specd", args=("unix:/run/specd/specd.sock",))
>>> llm.generate(prompts, vllm.SamplingParams(temperature=0.7, min_p=0.05, seed=1))

A field of a request that is not honoured, or outside its range, is an Error with its name in the worker,
which ends it. Nothing calls specd_params by itself: a front end that calls it refuses the request alone.
tools/engines/vllm/README.md has the list.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .._library import refusal
from ..engine import Engine
from ..params import MAX_SCORES
from ._request_rounds import TIMEOUT_MS, checked_timeout
from ._vllm_params import check_method, specd_params
from ._vllm_v1 import V1RejectionSampler, V1Requests, V1Sampler
from ._vllm_v2 import V2RejectionSampler, V2Sampler, check_v2

__all__ = ["WorkerExtension", "specd_params", "use_specd"]

# A preempted request leaves the batch and keeps its sequence. This many per row of the batch is an estimate.
_SEQUENCES_PER_ROW = 4
_RANKS = ("tensor_parallel_size", "prefill_context_parallel_size", "pipeline_parallel_size")


class WorkerExtension:
    """For vLLM's worker_extension_cls: adds use_specd to the methods of a worker."""

    model_runner: Any

    def use_specd(self, engine: str = "embedded:cpu", timeout_ms: int = TIMEOUT_MS) -> None:
        use_specd(self.model_runner, engine, timeout_ms)


def use_specd(runner: Any, engine: Engine | str = "embedded:cpu", timeout_ms: int = TIMEOUT_MS) -> None:
    """Replaces runner.sampler and runner.rejection_sampler. Call it after vLLM's warm-up, such as when
    LLM() has returned, and before the first request.

    engine: a specd.Engine of the model's vocabulary, or the URI of one. vLLM ends requests: the EOS ids of
      the engine end none.
    timeout_ms: the longest wait for a round in milliseconds, 0 .. 2^31 - 1, or -1: without limit. After it
      the sampler raises specd.RoundTimeout.
    """
    timeout_ms = checked_timeout(timeout_ms)
    config = runner.vllm_config
    for name in _RANKS:
        ranks = getattr(config.parallel_config, name)
        if ranks != 1:
            raise refusal(f"{name}: {ranks} ranks would each have a sampler of their own; 1 is served")
    if importlib.import_module("vllm.envs").VLLM_COMPUTE_NANS_IN_LOGITS:
        raise refusal("VLLM_COMPUTE_NANS_IN_LOGITS: 1 is not honoured; specd refuses such rows by name: "
                      "unset it, and VLLM_RAISE_ON_LOGIT_NANS, which sets it")
    speculative = config.speculative_config
    method = "standard" if speculative is None else speculative.rejection_sample_method
    check_method(method)
    is_v2 = hasattr(runner, "req_states")
    if is_v2:
        check_v2(runner.sampler, speculative)
    if isinstance(engine, str):
        engine = _open(engine, config)
    if is_v2:
        runner.sampler = V2Sampler(engine, runner.sampler, method, timeout_ms,
                                   getattr(runner, "speculator", None))
        _call_after(runner, "finish_requests", runner.sampler.close_gone)
        if runner.rejection_sampler is not None:
            runner.rejection_sampler = V2RejectionSampler(runner.sampler,
                                                          speculative.num_speculative_tokens)
        return
    requests = V1Requests(engine, runner, method, config.model_config.logprobs_mode, timeout_ms)
    _call_after(runner, "_update_states", requests.close_gone)
    runner.sampler = V1Sampler(requests, runner.sampler)
    # A V1 runner without drafts has no such field.
    if getattr(runner, "rejection_sampler", None) is not None:
        runner.rejection_sampler = V1RejectionSampler(requests, runner.rejection_sampler)


def _call_after(runner: Any, name: str, call: Callable[[], None]) -> None:
    """Calls `call` after a method of the runner: the one in which it forgets requests. Each step begins with
    it, and the last one before an idle time has nothing else."""
    method = getattr(runner, name)

    def both(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        call()
        return result

    setattr(runner, name, both)


def _open(uri: str, config: Any) -> Engine:
    rows, speculative = config.scheduler_config.max_num_seqs, config.speculative_config
    return Engine(uri, vocab_size=config.model_config.get_vocab_size(), max_batch=rows,
                  max_sequences=_SEQUENCES_PER_ROW * rows, max_scores_per_token=MAX_SCORES,
                  max_draft=0 if speculative is None else speculative.num_speculative_tokens)
