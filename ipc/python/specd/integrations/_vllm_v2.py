"""The sampler and the rejection sampler of vLLM's V2 model runner, by specd."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np

from .._library import refusal
from ..batch import BatchResults
from ..dlpack import Array
from ..engine import Engine
from ._draft_columns import DraftColumns
from ._request_rounds import Opening, Request, RequestRounds
from ._vllm_outputs import logprob_arrays, logprob_tensors
from ._vllm_params import translated

# Built-in steps of vLLM. Each has what a request's SamplingParams say, which specd honours.
_PROCESSORS = ("LogitBiasState", "PenaltiesState", "BadWordsState")


def check_v2(sampler: Any, speculative: Any) -> None:
    """Refuses what changes rows or outputs and is no parameter of a request. sampler: the one that is to
    be replaced."""
    if type(sampler).__name__ != "Sampler":
        raise refusal(f"sampler: {type(sampler).__name__} does more than vLLM's Sampler, such as "
                      "watermarks; start vLLM without it")
    for processor in sampler.logits_processors:
        name = type(processor).__name__
        if name not in _PROCESSORS:
            raise refusal(f"logits_processors: {name} is code, and does not cross to specd; start vLLM "
                          "without custom logits processors")
    if sampler.return_sampling_mask:
        raise refusal("return_sampling_mask: True is not honoured; specd does not report what its filters "
                      "kept")
    if speculative is not None and speculative.enable_adaptive_verification:
        raise refusal("enable_adaptive_verification: True is not honoured; its drafts end on the device "
                      "alone: set it to False")


@dataclasses.dataclass(eq=False)
class _Added:
    """A request, as the runner added it: `index` is its row in the runner's states."""

    index: int
    params: Any


class V2Sampler:
    """In the place of vllm.v1.worker.gpu.sample.sampler.Sampler. The states of the sampler that was
    replaced are kept up, because the runner and its speculator read them."""

    def __init__(self, engine: Engine, replaced: Any, method: str, timeout_ms: int,
                 drafter: Any = None):
        self._replaced, self._method = replaced, method
        self._added: dict[int, _Added] = {}
        self._rounds = RequestRounds(engine, self._opening, timeout_ms)
        # draft_logits are what the draft tokens were drawn from, before the temperature.
        self.columns = DraftColumns(engine, drafter, "logits")
        self.req_states, self.sampling_states = replaced.req_states, replaced.sampling_states
        self.penalties_state = replaced.penalties_state
        self.logprobs_mode, self.compute_nans = replaced.logprobs_mode, replaced.compute_nans
        self.get_logprobs_dims = replaced.get_logprobs_dims

    def add_request(self, req_idx: int, sampling_params: Any) -> None:
        self._replaced.add_request(req_idx, sampling_params)
        self._added[req_idx] = _Added(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        self._replaced.apply_staged_writes()

    def close_gone(self) -> None:
        """Closes the sequences of requests that the runner has forgotten, or has preempted."""
        known = self.req_states.req_id_to_index
        self._rounds.close_where(
            lambda request: known.get(request.name) != request.parts[0].index)

    def __call__(self, logits: Any, input_batch: Any) -> Any:
        """A SamplerOutput with one token for each request."""
        return self.answer(logits, input_batch, 1)

    def answer(self, logits: Any, input_batch: Any, width: int, **drafts: Any) -> Any:
        """A SamplerOutput with `width` columns of tokens, padded with -1. drafts: those of
        Engine.verify_batch."""
        rows = np.asarray(input_batch.idx_mapping_np)
        dims = self.get_logprobs_dims(rows)
        # A batch for a CUDA graph is padded with requests that are none.
        lengths = input_batch.seq_lens[:len(rows)].cpu().numpy()
        unfinished = lengths < self.req_states.prefill_len.np[rows]
        found = self._rounds.verify(
            [Request(name, (self._added[row],)) for name, row in zip(input_batch.req_ids, rows.tolist())],
            logits, discard=unfinished, scores=dims is not None, **drafts)
        counts = np.diff(input_batch.cu_num_logits_np)
        logprobs = None if dims is None else self._logprobs(found, dims[0], counts, logits.device)
        return _output(found, width, np.where(unfinished, 0, counts - found.num_kept), logprobs,
                       logits.device)

    def _logprobs(self, found: BatchResults, num_logprobs: int, counts: Array, device: Any) -> Any:
        """A row for each row of logits."""
        is_place = np.arange(found.tokens.shape[1]) < counts[:, np.newaxis]
        has_drafts = counts.sum() != len(counts)
        return logprob_tensors(logprob_arrays(found, num_logprobs), device, is_place,
                               [0, *np.cumsum(counts).tolist()] if has_drafts else None)

    def _opening(self, request: Request) -> Opening:
        added, = request.parts
        index, states = added.index, self.req_states
        params = translated(added.params, method=self._method,
                            logprobs_mode=self.logprobs_mode, draft_temperature=True)
        length, prompt = int(states.prefill_len.np[index]), int(states.prompt_len.np[index])
        ids = states.all_token_ids.gpu[index, :length].cpu().numpy()
        return Opening(params, ids[:prompt], ids[prompt:])


class V2RejectionSampler:
    """In the place of vllm.v1.worker.gpu.spec_decode.rejection_sampler.RejectionSampler."""

    def __init__(self, sampler: V2Sampler, num_speculative_steps: int):
        self._sampler, self._width = sampler, num_speculative_steps + 1

    def __call__(self, logits: Any, input_batch: Any, draft_logits: Any = None,
                 invalid_drafts: Any = None) -> Any:
        """A SamplerOutput. draft_logits: rows by request state and step. invalid_drafts: rows of logits
        whose draft token a grammar forbids."""
        ids, position, place, row = (tensor.cpu().numpy() for tensor in (
            input_batch.input_ids[input_batch.logits_indices],
            input_batch.positions[input_batch.logits_indices],
            input_batch.expanded_local_pos, input_batch.expanded_idx_mapping))
        # A request that is still in its prompt has placeholders for drafts.
        is_void = position - place < self._sampler.req_states.prefill_len.np[row]
        if invalid_drafts is not None:
            is_void |= invalid_drafts.cpu().numpy()
        is_draft = place > 0
        q = None
        if draft_logits is not None:
            torch = importlib.import_module("torch")
            states, steps = (torch.from_numpy(index.astype(np.int64)).to(draft_logits.device)
                             for index in (row[is_draft], place[is_draft] - 1))
            q = self._sampler.columns.of(draft_logits[states, steps])
        return self._sampler.answer(
            logits, input_batch, self._width, q=q, tokens=np.where(is_void, -1, ids)[is_draft],
            draft_offsets=input_batch.cu_num_logits_np - np.arange(input_batch.num_reqs + 1))


def _output(found: BatchResults, width: int, num_rejected: Array, logprobs: Any, device: Any) -> Any:
    torch = importlib.import_module("torch")
    tokens = np.full((len(found), width), -1, np.int64)
    tokens[:, :found.tokens.shape[1]] = found.tokens
    sampled, num_sampled, rejected = (torch.from_numpy(array).to(device) for array in (
        tokens, found.num_kept.astype(np.int32), num_rejected.astype(np.int32)))
    return importlib.import_module("vllm.v1.worker.gpu.sample.output").SamplerOutput(
        sampled_token_ids=sampled, logprobs_tensors=logprobs, num_nans=None, num_sampled=num_sampled,
        num_rejected=rejected)
