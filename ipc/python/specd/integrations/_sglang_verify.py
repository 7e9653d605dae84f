"""EagleVerifier verifies the drafts of SGLang's EAGLE, EAGLE3 and MTP, and of a draft model of its own."""

from __future__ import annotations

import functools
import importlib
import weakref
from typing import Any

import numpy as np

from .._library import refusal
from ..batch import BatchResults
from ..engine import Engine
from ._request_rounds import (TIMEOUT_MS, Opening, OutputEnd, Request, RequestRounds,
                              checked_timeout)
from ._sglang_context import check_ranks, check_sampling_masks, context
from ._sglang_params import translated

# Where SGLang is not told how many requests may run. Estimates.
_MAX_BATCH = 256
# A retracted request leaves the batch and keeps its sequence.
_SEQUENCES_PER_ROW = 4


class EagleVerifier:
    """In the place of sglang.srt.speculative.eagle_utils.eagle_sample.

    engine: a specd.Engine of the model's vocabulary, or the URI of one, which the first round opens
    timeout_ms: the longest wait for a round in milliseconds, 0 .. 2^31 - 1, or -1: without limit. After it
      the verification raises specd.RoundTimeout.
    """

    def __init__(self, engine: Engine | str, timeout_ms: int = TIMEOUT_MS):
        self._engine, self._timeout_ms = engine, checked_timeout(timeout_ms)
        self._rounds: RequestRounds | None = None

    def __call__(self, verify_input: Any, batch: Any, logits_output: Any, grammar_mask: Any = None,
                 uno_target_max_top_k: int | None = None, *, watermark_state: Any = None,
                 watermark_full_mask: bool = True) -> tuple[Any, Any, Any]:
        """(predict, accept_lens, accept_index), as eagle_sample returns them. uno_target_max_top_k only
        says how SGLang would sample; watermarks are refused."""
        torch = importlib.import_module("torch")
        if batch.forward_mode.is_idle():
            empty = torch.empty(0, dtype=torch.int32, device=batch.device)
            return empty, empty.clone(), empty.clone()
        _check(verify_input, batch)
        logits = logits_output.next_token_logits
        _edit(logits, batch.sampling_info, verify_input.draft_token_num, grammar_mask)
        found = self._verify(verify_input, batch, logits)
        tensors = (torch.from_numpy(array).to(logits.device)
                   for array in _outputs(found, _host(verify_input.retrieve_index)))
        predict, accept_lens, accept_index = tensors
        return predict, accept_lens, accept_index

    def close_gone(self, *_: Any) -> None:
        """Closes the sequences of requests that have ended. A scheduler calls it before it is idle."""
        if self._rounds is not None:
            self._rounds.close_where(_is_gone)

    def _verify(self, verify_input: Any, batch: Any, logits: Any) -> BatchResults:
        width = verify_input.draft_token_num
        if self._rounds is None:
            engine = self._opened(logits.shape[-1], width)
            opening = functools.partial(_opening, vocab_size=engine.vocab_size)
            self._rounds = RequestRounds(engine, opening, self._timeout_ms)
        self.close_gone()
        q = verify_input.draft_probs
        # The first of a request's tokens is the one before its draft.
        tokens = _host(verify_input.draft_token).reshape(-1, width)
        lengths, last_ids = _host(batch.seq_lens).tolist(), tokens[:, 0].tolist()
        return self._rounds.verify(
            [_request(*each) for each in zip(batch.reqs, lengths, last_ids)], logits, tokens=tokens[:, 1:],
            target_rows=_host(verify_input.retrieve_index).reshape(-1),
            q=None if q is None else q.reshape(-1, q.shape[-1]))

    def _opened(self, vocab_size: int, width: int) -> Engine:
        engine = self._engine
        if isinstance(engine, str):
            rows = context("get_server_args").max_running_requests or _MAX_BATCH
            # With speculative_adaptive a later round may be wider than the first one.
            widest = max(width, context("max_speculative_num_draft_tokens") or 0)
            engine = Engine(engine, vocab_size=vocab_size, max_draft=widest - 1, max_batch=rows,
                            max_sequences=_SEQUENCES_PER_ROW * rows)
        # draft_probs are what the draft tokens were drawn from.
        engine.rows(1, "draft", kind="final_probabilities")
        return engine


def _host(tensor: Any) -> Any:
    return tensor.cpu().numpy()


def _request(req: Any, length: int, last_id: int) -> Request:
    """length: the tokens before the last one. SGLang's overlap loop reads a round's tokens after the next
    round has begun, so req.output_ids may lack them. After a retraction it never reads the last round's, so
    that all of the sequence's tokens may be others."""
    return Request(req.rid, (weakref.ref(req),),
                   output_end=OutputEnd(length + 1 - len(req.origin_input_ids), last_id,
                                        req.retraction_count))


def _opening(request: Request, vocab_size: int) -> Opening:
    req, end = request.parts[0](), request.output_end
    assert end is not None
    block = context("get_spec").speculative_use_block_verification
    ids = list(req.output_ids)
    if len(ids) == end.num_tokens - 1:  # the token of its prefill has not been read
        ids.append(end.last_id)
    # SGLang pads images in a prompt with ids beyond the vocabulary.
    prompt_ids = [token for token in req.origin_input_ids if token < vocab_size]
    return Opening(translated(req.sampling_params, block=block), prompt_ids, ids)


def _is_gone(request: Request) -> bool:
    req = request.parts[0]()
    return req is None or req.finished()


def _check(verify_input: Any, batch: Any) -> None:
    """Refuses what changes the law and is no parameter of a request."""
    if verify_input.tree_topk != 1 or verify_input.draft_token_num != verify_input.max_tree_depth:
        raise refusal(f"topk: {verify_input.tree_topk} with {verify_input.draft_token_num} draft tokens is "
                      "a tree of drafts; this integration submits chains: take EAGLE, with speculative_eagle_topk = 1")
    info, spec = batch.sampling_info, context("get_spec")
    if info.has_custom_logit_processor:
        raise refusal("custom_logit_processor: it is code, which is not applied to drafts; leave it out")
    if info.has_watermark_candidates:
        raise refusal("watermark: a request of the batch has one; specd draws from the model's law alone")
    check_sampling_masks(info)
    for name in ("speculative_accept_threshold_single", "speculative_accept_threshold_acc"):
        if getattr(spec, name) != 1:
            raise refusal(f"{name}: {getattr(spec, name)} changes the law of the output; set it to 1")
    simulated = importlib.import_module("sglang.srt.speculative.spec_utils").SIMULATE_ACC_LEN
    if simulated > 0:
        raise refusal(f"SGLANG_SIMULATE_ACC_LEN: {simulated} is no verification; unset it")
    check_ranks()


def _edit(logits: Any, info: Any, width: int, grammar_mask: Any) -> None:
    """The steps of SGLang before its verification, in its order. A penalty counts what was kept before
    the round. They are done in place, because SGLang's logprobs read the rows afterwards."""
    importlib.import_module("sglang.srt.utils.async_probe").sanitize_nan_logits(
        logits, "verify: target model logits")
    if info.acc_additive_penalties is not None:
        logits.add_(info.acc_additive_penalties.repeat_interleave(width, dim=0))
    if info.acc_scaling_penalties is not None:
        importlib.import_module(
            "sglang.srt.sampling.penaltylib.repetition_penalty").apply_scaling_penalties(
                logits, info.acc_scaling_penalties.repeat_interleave(width, dim=0))
    if info.logit_bias is not None:
        logits.add_(info.logit_bias.repeat_interleave(width, dim=0))
    if grammar_mask is not None:
        grammar_mask.apply(logits)


def _outputs(found: BatchResults, retrieve_index: Any) -> tuple[Any, Any, Any]:
    """predict has the token behind each node, accept_index the nodes of the kept tokens, or -1."""
    is_kept = np.arange(found.tokens.shape[1]) < found.num_kept[:, np.newaxis]
    predict = np.zeros(retrieve_index.size, np.int32)
    predict[retrieve_index[is_kept]] = found.tokens[is_kept]
    accept_index = np.where(is_kept, retrieve_index, -1).astype(np.int32)
    return predict, found.num_kept.astype(np.int32), accept_index
