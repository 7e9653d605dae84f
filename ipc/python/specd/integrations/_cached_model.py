"""CachedModel is a causal model of transformers and the keys and values that it keeps."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

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


def check_trees(model: Any, name: str, most: int | None) -> None:
    """Refuses models that cannot be asked about the nodes of a tree. most: the tokens of the text."""
    kind, given = type(model).__name__, inspect.signature(model.forward).parameters
    for argument in ("attention_mask", "position_ids"):
        if argument not in given:
            raise refusal(f"tree: the forward of {name}, {kind}, takes no {argument}; leave tree out, or "
                          "give a model with positions of its own choice, such as Llama")
    window = getattr(model.config, "sliding_window", None)
    if window is not None and (most is None or most > window):
        raise refusal(f"tree: {name} looks back {window} tokens, and the text may have {most}; set "
                      "max_tokens to fewer, or leave tree out")


class CachedModel:
    """Forward passes of one sequence. `length` is the number of tokens that the cache has; nodes of a
    tree may stand behind them. A forward of fewer positions than min_positions is filled up with its last
    token."""

    def __init__(self, model: Any, name: str, min_positions: int):
        self.model, self.name, self.min_positions = model, name, min_positions
        self.torch = package("torch")
        self.cache = package("transformers").DynamicCache()
        self.length = self.num_nodes = 0
        names = inspect.signature(model.forward).parameters
        # A long prompt has one row that is needed, of perhaps 128k numbers.
        self.last_rows = next((one for one in ("logits_to_keep", "num_logits_to_keep")
                               if one in names), None)

    def forward(self, tokens: Sequence[int], num_rows: int) -> Any:
        """Feeds tokens and returns the last num_rows rows of logits, as a tensor."""
        padding = max(0, self.min_positions - len(tokens))
        logits = self._feed([*tokens, *([tokens[-1]] * padding)], num_rows + padding)
        self.length += len(tokens)
        if padding:
            self.cache.crop(self.length)
            logits = logits[:-padding]
        return logits

    def forward_tree(self, tokens: Sequence[int], nodes: Sequence[int], parents: Sequence[int]) -> Any:
        """Feeds tokens and then nodes of a draft tree behind them. parents has one for each node since the
        last keep, and `nodes` are the last of them. Returns a row for the last token, if there is one, and
        for each node."""
        text, torch = self.length + len(tokens), self.torch
        sees, depths = np.eye(len(parents), dtype=bool), np.zeros(len(parents), np.int64)
        for i, parent in enumerate(parents):
            if parent >= 0:
                sees[i] |= sees[parent]
                depths[i] = depths[parent] + 1
        allowed = np.tri(len(tokens) + len(nodes), text + len(parents), self.length, dtype=bool)
        allowed[len(tokens):] = np.hstack([np.ones((len(parents), text), bool), sees])[self.num_nodes:]
        kept = torch.from_numpy(allowed).to(self.model.device)
        mask = torch.zeros(kept.shape, dtype=self.model.dtype, device=kept.device).masked_fill(
            ~kept, torch.finfo(self.model.dtype).min)
        places = np.concatenate([np.arange(self.length, text), text + depths[self.num_nodes:]])
        logits = self._feed(
            [*tokens, *nodes], len(nodes) + bool(tokens), attention_mask=mask[None, None],
            position_ids=torch.from_numpy(places)[None].to(kept.device))
        self.length, self.num_nodes = text, len(parents)
        return logits

    def _feed(self, ids: list[int], num_rows: int, **options: Any) -> Any:
        before = self.length + self.num_nodes
        if self.last_rows:
            options[self.last_rows] = num_rows
        with self.torch.inference_mode():
            logits = self.model(
                input_ids=self.torch.tensor([ids], device=self.model.device),
                past_key_values=self.cache, use_cache=True, **options).logits[0]
        if self.cache.get_seq_length() != before + len(ids):
            raise refusal(f"{self.name}: {type(self.model).__name__} was fed {before + len(ids)} "
                          f"tokens, and its cache has {self.cache.get_seq_length()}; give a model "
                          "that keeps all its keys and values")
        return logits[-num_rows:]

    def keep(self, length: int, path: Sequence[int] = ()) -> None:
        """Forgets the tokens from `length` on but the draft tokens of `path`, which ascends: they are tokens
        of the text from now on. A draft token that was never fed may stand at its end."""
        if not self.num_nodes:  # a chain was fed as text
            length, path = length + len(path), ()
            if length >= self.length:
                return
        path = [node for node in path if node < self.num_nodes]
        if path and path[-1] != len(path) - 1:
            with self.torch.inference_mode():
                for keys, values, *_ in self.cache:
                    for each in keys, values:
                        each[..., length:length + len(path), :] = each[
                            ..., [length + node for node in path], :]
        self.length, self.num_nodes = length + len(path), 0
        self.cache.crop(self.length)
