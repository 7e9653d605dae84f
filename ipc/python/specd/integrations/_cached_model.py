"""CachedModel is a causal model of transformers and the keys and values that it keeps."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from .._library import refusal

def package(name: str) -> Any:
    """A package that specd does not need otherwise."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise refusal(f"specd.integrations.transformers: the package {name} cannot be imported "
                      f"({error}); install torch and transformers") from None


def vocab_size(model: Any) -> int:
    """The width of the model's rows, which may be more than its tokenizer has ids."""
    output = model.get_output_embeddings()
    return int(model.config.vocab_size if output is None else output.weight.shape[0])


def check_model(model: Any, name: str) -> None:
    """Refuses models whose cache cannot be cut, and models that are not ready to be asked."""
    kind = type(model).__name__
    if not hasattr(model, "config") or not hasattr(model, "get_output_embeddings"):
        raise refusal(f"{name}: {kind} is no model of transformers; give one of AutoModelForCausalLM")
    if model.config.is_encoder_decoder:
        raise refusal(f"{name}: {kind} is an encoder with a decoder; only causal models are served")
    if getattr(model, "_is_stateful", False):
        raise refusal(f"{name}: {kind} keeps a state that cannot be cut after a rejected draft; give a "
                      "model that keeps keys and values alone")
    if not getattr(model, "_supports_cache_class", True):
        raise refusal(f"{name}: this version of transformers gives {kind} no DynamicCache, which is "
                      "cut after each round; give another model, such as Llama, or a later version")
    if model.training:
        raise refusal(f"{name}: {kind} is in training mode, where rows are random; call .eval()")


class CachedModel:
    """Forward passes of one sequence. `length` is the number of tokens that the cache has. A forward of
    fewer positions than min_positions is filled up with its last token."""

    def __init__(self, model: Any, name: str, min_positions: int):
        self.model, self.name, self.min_positions = model, name, min_positions
        self.torch = package("torch")
        self.cache = package("transformers").DynamicCache()
        self.length = 0
        names = inspect.signature(model.forward).parameters
        # A long prompt has one row that is needed, of perhaps 128k numbers.
        self.last_rows = next((one for one in ("logits_to_keep", "num_logits_to_keep")
                               if one in names), None)

    def forward(self, tokens: Sequence[int], num_rows: int) -> Any:
        """Feeds tokens and returns the last num_rows rows of logits, as a tensor."""
        padding = max(0, self.min_positions - len(tokens))
        ids = [*tokens, *([tokens[-1]] * padding)]
        options = {self.last_rows: num_rows + padding} if self.last_rows else {}
        with self.torch.inference_mode():
            logits = self.model(
                input_ids=self.torch.tensor([ids], device=self.model.device),
                past_key_values=self.cache, use_cache=True, **options).logits[0]
        if self.cache.get_seq_length() != self.length + len(ids):
            raise refusal(f"{self.name}: {type(self.model).__name__} was fed {self.length + len(ids)} "
                          f"tokens, and its cache has {self.cache.get_seq_length()}; give a model "
                          "that keeps all its keys and values")
        self.length += len(tokens)
        if padding:
            self.cache.crop(self.length)
            logits = logits[:-padding]
        return logits[-num_rows:]

    def crop(self, length: int) -> None:
        """Forgets the tokens from `length` on, if there are any."""
        if length < self.length:
            self.cache.crop(length)
            self.length = length
