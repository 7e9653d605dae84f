"""The sampler and the rejection sampler of vLLM's V1 model runner, by specd."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .._library import refusal
from ..batch import BatchResults
from ._draft_columns import DraftColumns
from ._request_rounds import Opening, Request, RequestRounds
from ._vllm_outputs import logprob_arrays, logprob_tensors
from ._vllm_params import translated

# Built-in processors of vLLM. Each has what a request's SamplingParams say, which specd honours.
_PROCESSORS = ("MinPLogitsProcessor", "LogitBiasLogitsProcessor", "MinTokensLogitsProcessor")


class V1Requests:
    """The requests of a V1 model runner: those of the batch are rows of the next round.

    runner: input_batch.req_ids has the request of each row, requests has what each request is, and
      discard_request_mask the rows of unfinished prompts. drafter may have a vocabulary of its own
    """

    def __init__(self, engine: Any, runner: Any, method: str, logprobs_mode: str, timeout_ms: int):
        self._runner, self._method, self._logprobs_mode = runner, method, logprobs_mode
        self._rounds = RequestRounds(engine, self._opening, timeout_ms)
        # draft_probs are what the draft tokens were drawn from.
        self._columns = DraftColumns(engine, getattr(runner, "drafter", None), "final_probabilities")

    def close_gone(self) -> None:
        """Closes the sequences of requests that the runner has forgotten."""
        known = self._runner.requests
        self._rounds.close_where(lambda request: request.name not in known)

    def verify(self, logits: Any, metadata: Any, q: Any = None, **drafts: Any) -> BatchResults:
        _check(metadata)
        known = self._runner.requests
        requests = [_request(name, known[name]) for name in self._runner.input_batch.req_ids]
        wants_scores = metadata.max_num_logprobs is not None or bool(metadata.logprob_token_ids)
        return self._rounds.verify(
            requests, logits, q=self._columns.of(q), scores=wants_scores,
            discard=self._runner.discard_request_mask.np[:len(requests)], **drafts)

    def _opening(self, request: Request) -> Opening:
        state = self._runner.requests[request.name]
        params = translated(state.sampling_params, method=self._method,
                            logprobs_mode=self._logprobs_mode)
        if state.prompt_token_ids is None and params.repetition_penalty != 1:
            raise refusal(f"repetition_penalty: {params.repetition_penalty} needs the ids of the prompt, "
                          "and prompt_embeds have none; leave it out")
        return Opening(params, state.prompt_token_ids or (), state.output_token_ids)


class V1Sampler:
    """In the place of vllm.v1.sample.sampler.Sampler. The runner's own use of it for the logprobs of
    prompts goes to the sampler that was replaced."""

    def __init__(self, requests: V1Requests, replaced: Any):
        self._requests = requests
        self.logprobs_mode = replaced.logprobs_mode
        self.compute_logprobs = replaced.compute_logprobs
        self.gather_logprobs = replaced.gather_logprobs

    def forward(self, logits: Any, sampling_metadata: Any, predict_bonus_token: bool = False,
                logprobs_mode_override: str | None = None) -> Any:
        """A SamplerOutput with one token for each row."""
        if predict_bonus_token:
            raise refusal("predict_bonus_token: True belongs to vLLM's own rejection sampler; replace "
                          "that one too, with use_specd")
        if logprobs_mode_override not in (None, self.logprobs_mode):
            raise refusal(f"logprobs_mode_override: {logprobs_mode_override!r} is not honoured; the mode "
                          f"is that of the engine, {self.logprobs_mode!r}")
        found = self._requests.verify(logits, sampling_metadata)
        return _output(found, sampling_metadata, logits.device)

    __call__ = forward


class V1RejectionSampler:
    """In the place of vllm.v1.sample.rejection_sampler.RejectionSampler."""

    def __init__(self, requests: V1Requests, replaced: Any):
        self._requests = requests
        self.parse_output = replaced.parse_output

    def forward(self, metadata: Any, draft_probs: Any, logits: Any, sampling_metadata: Any) -> Any:
        """A SamplerOutput with a row of kept tokens for each request, padded with -1."""
        offsets = np.cumsum([0, *metadata.num_draft_tokens])
        found = self._requests.verify(
            logits, sampling_metadata, tokens=metadata.draft_token_ids.cpu(), draft_offsets=offsets,
            target_rows=_target_rows(metadata, offsets), q=draft_probs)
        return _output(found, sampling_metadata, logits.device)

    __call__ = forward


def _request(name: str, state: Any) -> Request:
    """A streaming session replaces parameters and prompt. A failed transfer of keys and values, or a
    preemption, may take tokens back. Where vLLM schedules ahead, -1 stands for ids it has not read."""
    return Request(name, (state, state.sampling_params, state.prompt_token_ids), state.output_token_ids)


def _target_rows(metadata: Any, offsets: Any) -> Any:
    """The row of each place: those of a request's draft tokens, then that of its bonus token."""
    rows = np.empty(offsets[-1] + len(offsets) - 1, np.int64)
    bonus_places = offsets[1:] + np.arange(len(offsets) - 1)
    is_bonus = np.zeros(len(rows), bool)
    is_bonus[bonus_places] = True
    rows[is_bonus] = metadata.bonus_logits_indices.cpu().numpy()
    rows[~is_bonus] = metadata.target_logits_indices.cpu().numpy()
    return rows


def _check(metadata: Any) -> None:
    """Refuses what changes rows and is no parameter of a request."""
    for processor in metadata.logitsprocs.all:
        name = type(processor).__name__
        if name not in _PROCESSORS:
            raise refusal(f"logitsprocs: {name} is code, and does not cross to specd; start vLLM without "
                          "custom logits processors")
    holder = metadata.thinking_budget_state_holder
    if holder is not None and holder.has_tracked_requests():
        raise refusal("thinking_budget_state_holder: a request of it has a thinking_token_budget, which "
                      "is not honoured; leave it out")


def _output(found: BatchResults, metadata: Any, device: Any) -> Any:
    torch, outputs = importlib.import_module("torch"), importlib.import_module("vllm.v1.outputs")
    logprobs = None
    if found.scores is not None:
        arrays = logprob_arrays(found, metadata.max_num_logprobs or 0)
        logprobs = logprob_tensors(arrays, device)
    return outputs.SamplerOutput(sampled_token_ids=torch.from_numpy(found.tokens).to(device),
                                 logprobs_tensors=logprobs)
