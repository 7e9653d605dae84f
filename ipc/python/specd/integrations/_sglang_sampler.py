"""make_sampler makes the Sampler of SGLang that draws with specd."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from .._library import Error
from ..dlpack import CUDA
from ..ops import argmax, sample
from ._sglang_context import check_ranks, check_sampling_masks

_seeds = np.random.default_rng()


def make_sampler() -> Any:
    """A sampler for SGLang's register_sampler_backend. SGLang itself does what comes before and after:
    processors, penalties, the temperature, an argmax where all requests are greedy, and logprobs."""
    check_ranks()
    base = importlib.import_module("sglang.srt.layers.sampler").Sampler
    return type("SpecdSampler", (base,), {"_sample_from_probs": _sample_from_probs})()


def _sample_from_probs(sampler: Any, probs: Any, sampling_info: Any, positions: Any,
                       simple_sampling_case: bool) -> tuple[Any, None]:
    """(ids, None) for rows of probabilities after the temperature. simple_sampling_case: no request has
    a filter, which the parameters say too."""
    check_sampling_masks(sampling_info)
    torch, info = importlib.import_module("torch"), sampling_info
    count, device = len(probs), probs.device
    if info.sampling_seed is None:
        # A seed of its own for each draw: it never meets the same coin twice.
        seeds, places = _seeds.integers(0, 2**64, count, np.uint64), np.zeros(count, np.uint64)
    else:
        seeds = info.sampling_seed.cpu().numpy().view(np.uint64)
        places = positions.cpu().numpy().astype(np.uint64)
    place = {}
    kind, index = probs.__dlpack_device__()
    if kind == CUDA and _samples_on(index):
        place["cuda_stream"] = torch.cuda.current_stream(probs.device)  # which writes the rows
    else:
        probs = probs.cpu()
    ids = sample(probs, seed=seeds, position=places, kind="probabilities", **place,
                 top_k=_host(info.top_ks), top_p=_host(info.top_ps), min_p=_host(info.min_ps))
    return torch.from_numpy(ids).to(device), None


@functools.cache
def _samples_on(index: int) -> bool:
    """Whether the library samples on this GPU: it may have been built without CUDA. Any other error is
    raised, and not remembered: the GPU may have had no memory for a moment."""
    try:
        argmax(np.zeros((1, 1), np.float32), device=f"cuda:{index}")
    except Error as error:
        if error.code_name != "SPECD_ERROR_UNSUPPORTED":
            raise
        return False
    return True


def _host(tensor: Any) -> Any:
    return tensor.cpu().numpy()
