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
from ._sglang_trees import is_tree, parents_of

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
                   for array in _outputs(found, _host(verify_input.retrieve_index),
                                         verify_input.max_tree_depth))
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
            opening = functools.partial(_opening, vocab_size=engine.vocab_size,
                                        has_trees=_has_trees(verify_input))
            self._rounds = RequestRounds(engine, opening, self._timeout_ms)
        self.close_gone()
        q = getattr(verify_input, "draft_probs", None)  # NGRAM has none
        # The first of a request's tokens is the one before its draft.
        tokens = _host(verify_input.draft_token).reshape(-1, width)
        lengths, last_ids = _host(batch.seq_lens).tolist(), tokens[:, 0].tolist()
        tokens, shape = tokens[:, 1:], {}
        if _has_trees(verify_input):
            parents, reached = parents_of(_host(verify_input.retrieve_next_token),
                                          _host(verify_input.retrieve_next_sibling))
            tokens, shape = np.where(reached, tokens, -1), {"parents": parents.reshape(-1)}
        return self._rounds.verify(
            [_request(*each) for each in zip(batch.reqs, lengths, last_ids)], logits, tokens=tokens,
            target_rows=_host(verify_input.retrieve_index).reshape(-1),
            q=None if q is None else q.reshape(-1, q.shape[-1]), **shape)

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


def _opening(request: Request, vocab_size: int, has_trees: bool) -> Opening:
    req, end = request.parts[0](), request.output_end
    assert end is not None
    block = context("get_spec").speculative_use_block_verification
    ids = list(req.output_ids)
    if len(ids) == end.num_tokens - 1:  # the token of its prefill has not been read
        ids.append(end.last_id)
    # SGLang pads images in a prompt with ids beyond the vocabulary.
    prompt_ids = [token for token in req.origin_input_ids if token < vocab_size]
    params = translated(req.sampling_params, block=block)
    if has_trees and params.verify != "greedy":
        params.verify = "target_only"  # the rule of SGLang's own trees
    return Opening(params, prompt_ids, ids)


def _is_gone(request: Request) -> bool:
    req = request.parts[0]()
    return req is None or req.finished()


def _check(verify_input: Any, batch: Any) -> None:
    """Refuses what changes the law and is no parameter of a request."""
    if _has_trees(verify_input) and getattr(verify_input, "draft_probs", None) is not None:
        raise refusal(f"draft_probs: topk = {verify_input.tree_topk} with {verify_input.draft_token_num} draft "
                      "tokens is a tree, and SGLang has rows of chains alone; set speculative_eagle_topk to 1")
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


def _has_trees(verify_input: Any) -> bool:
    return is_tree(verify_input.tree_topk, verify_input.draft_token_num, verify_input.max_tree_depth)


def _outputs(found: BatchResults, retrieve_index: Any, max_depth: int) -> tuple[Any, Any, Any]:
    """predict has the token behind each node, accept_index the nodes of the kept tokens, or -1."""
    is_kept = np.arange(found.tokens.shape[1]) < found.num_kept[:, np.newaxis]
    # The token behind the root comes first, then that behind each accepted draft token.
    nodes = np.zeros(found.tokens.shape, np.int64)
    nodes[:, 1:] = found.path[:, :found.tokens.shape[1] - 1] + 1
    indices = np.take_along_axis(retrieve_index, np.where(is_kept, nodes, 0), 1)
    predict = np.zeros(retrieve_index.size, np.int32)
    predict[indices[is_kept]] = found.tokens[is_kept]
    accept_index = np.where(is_kept, indices, -1).astype(np.int32)[:, :max_depth]
    return predict, found.num_kept.astype(np.int32), accept_index
