"""Turns the results of a round into the output tensors of vLLM's samplers."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np

from ..batch import BatchResults
from ..dlpack import Array


class LogprobArrays(NamedTuple):
    """vLLM's layout: the token itself, then the other ids of its place. A place without a value has id
    0 and -inf, as vLLM pads."""

    ids: Array
    values: Array
    ranks: Array


def logprob_arrays(found: BatchResults, num_logprobs: int) -> LogprobArrays:
    """Arrays of (sequences, longest draft + 1, columns). num_logprobs: what vLLM wants at least beside
    each token."""
    assert found.scores is not None and found.scores_per_token is not None
    columns = max(num_logprobs + 1, int(found.scores_per_token.max(initial=0)))
    scores = found.scores[:, :, :columns]
    sequences, places, given = scores.shape
    ids = np.zeros((sequences, places, columns), np.int32)
    values = np.full((sequences, places, columns), -np.inf, np.float32)
    ranks = np.zeros((sequences, places), np.int64)
    column, place = np.arange(given), np.arange(places)
    is_score = (column < found.scores_per_token[:, None, None]) \
        & (place[:, None] < found.num_kept[:, None, None]) & (scores["id"] >= 0)
    ids[:, :, :given][is_score] = scores["id"][is_score]
    values[:, :, :given][is_score] = scores["value"][is_score]
    first = is_score[:, :, 0]
    ranks[first] = scores["rank"][:, :, 0][first]
    return LogprobArrays(ids, values, ranks)


def logprob_tensors(arrays: LogprobArrays, device: Any, is_place: Array | None = None,
                    bounds: list[int] | None = None) -> Any:
    """vLLM's LogprobsTensors. is_place: the places that have a row, by default all. bounds: where the
    rows of each request begin and end."""
    torch = importlib.import_module("torch")
    if is_place is None:
        is_place = np.ones(arrays.ranks.shape, bool)
    ids, values, ranks = (torch.from_numpy(part[is_place]).to(device) for part in arrays)
    return importlib.import_module("vllm.v1.outputs").LogprobsTensors(ids, values, ranks, bounds)
