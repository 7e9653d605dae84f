"""What SGLang's processes know beside a batch."""

from __future__ import annotations

import importlib
from typing import Any

from .._library import refusal


def context(name: str) -> Any:
    """What a function of SGLang's runtime_context returns."""
    return getattr(importlib.import_module("sglang.srt.runtime_context"), name)()


def check_sampling_masks(sampling_info: Any) -> None:
    if sampling_info.sampling_mask_batch_indices is not None:
        raise refusal("return_sampling_mask: True is not honoured; specd does not report what its filters "
                      "kept")


def check_ranks() -> None:
    ranks = context("get_parallel").tp_size
    if ranks != 1:
        raise refusal(f"tp_size: {ranks} ranks would each draw tokens of their own; 1 is served")
