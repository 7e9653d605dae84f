"""use_specd makes specd the sampler of SGLang, and the verifier of its EAGLE drafts.

SGLang loads `plugin` in its own processes, where this package is installed:

$ SPECD_SGLANG_ENGINE=unix:/run/specd/specd.sock python -m sglang.launch_server --model-path ... \\
    --sampling-backend specd --speculative-algorithm EAGLE3 --speculative-eagle-topk 4 ...

A field of a request that is not honoured, or outside its range, is an Error with its name in the scheduler,
which ends it. Nothing calls specd_params by itself: a front end that calls it refuses the request alone.
tools/engines/sglang/README.md has the list.
"""

from __future__ import annotations

import importlib
import os

from .._library import refusal
from ..engine import Engine
from ._request_rounds import TIMEOUT_MS, checked_timeout
from ._sglang_params import specd_params
from ._sglang_sampler import make_sampler
from ._sglang_verify import EagleVerifier

__all__ = ["EagleVerifier", "make_sampler", "plugin", "specd_params", "use_specd"]

_ENGINE, _TIMEOUT = "SPECD_SGLANG_ENGINE", "SPECD_SGLANG_TIMEOUT_MS"
_REPLACED = "sglang.srt.speculative.eagle_utils.eagle_sample"
_IDLE = "sglang.srt.managers.scheduler.Scheduler.on_idle"


def plugin() -> None:
    """The entry point for SGLang's group sglang.srt.plugins: use_specd, if SPECD_SGLANG_ENGINE has the URI
    of an engine. SPECD_SGLANG_TIMEOUT_MS is the timeout_ms of EagleVerifier."""
    engine = os.environ.get(_ENGINE)
    if engine:
        use_specd(engine, _timeout_ms(os.environ.get(_TIMEOUT)))


def _timeout_ms(text: str | None) -> int:
    if not text:
        return TIMEOUT_MS
    try:
        timeout_ms = int(text)
    except ValueError:
        raise refusal(f"{_TIMEOUT}: {text!r} is not a number of milliseconds; -1 is without limit") from None
    return checked_timeout(timeout_ms, _TIMEOUT)


def use_specd(engine: Engine | str = "embedded:cpu", timeout_ms: int = TIMEOUT_MS) -> None:
    """Registers the sampling backend "specd", a hook in the place of eagle_sample, and one before the
    scheduler is idle, which closes the sequences of the last requests. SGLang applies hooks when its
    plug-ins are loaded. Arguments are those of EagleVerifier."""
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    verifier = EagleVerifier(engine, timeout_ms)
    hooks.HookRegistry.register(_REPLACED, verifier.__call__, hooks.HookType.REPLACE)
    hooks.HookRegistry.register(_IDLE, verifier.close_gone, hooks.HookType.BEFORE)
    importlib.import_module("sglang.srt.layers.sampler").register_sampler_backend("specd", make_sampler)
