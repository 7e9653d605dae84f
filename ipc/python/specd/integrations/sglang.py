"""use_specd makes specd the sampler of SGLang, and the verifier of its EAGLE drafts.

SGLang loads `plugin` in its own processes, where this package is installed:

$ SPECD_SGLANG_ENGINE=unix:/run/specd/specd.sock python -m sglang.launch_server --model-path ... \\
    --sampling-backend specd --speculative-algorithm EAGLE3 --speculative-eagle-topk 1 ...

specd_params translates the parameters of a request, where requests come in. A field that is not
honoured, or outside its range, is an Error with its name. tools/engines/sglang/README.md has the list.
"""

from __future__ import annotations

import importlib
import os

from ..engine import Engine
from ._sglang_params import specd_params
from ._sglang_sampler import make_sampler
from ._sglang_verify import EagleVerifier

__all__ = ["EagleVerifier", "make_sampler", "plugin", "specd_params", "use_specd"]

_ENGINE = "SPECD_SGLANG_ENGINE"
_REPLACED = "sglang.srt.speculative.eagle_utils.eagle_sample"


def plugin() -> None:
    """The entry point for SGLang's group sglang.srt.plugins: use_specd, if SPECD_SGLANG_ENGINE has the URI
    of an engine."""
    engine = os.environ.get(_ENGINE)
    if engine:
        use_specd(engine)


def use_specd(engine: Engine | str = "embedded:cpu") -> None:
    """Registers the sampling backend "specd", and a hook in the place of eagle_sample, which SGLang
    applies when its plug-ins are loaded."""
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    verifier = EagleVerifier(engine)
    hooks.HookRegistry.register(_REPLACED, verifier.__call__, hooks.HookType.REPLACE)
    importlib.import_module("sglang.srt.layers.sampler").register_sampler_backend("specd", make_sampler)
