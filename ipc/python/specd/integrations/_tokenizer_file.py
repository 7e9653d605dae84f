"""tokenizer_file finds or writes the file of a tokenizer, for the option tokenizer of an engine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from .._library import refusal


@contextlib.contextmanager
def tokenizer_file(tokenizer: Any) -> Iterator[str]:
    """tokenizer: a path, a fast tokenizer of transformers, or a Tokenizer of tokenizers. The file may
    be gone after the with statement."""
    if isinstance(tokenizer, (str, os.PathLike)):
        yield os.fspath(tokenizer)
        return
    whole = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(whole, "to_str"):
        raise refusal(f"tokenizer: {type(tokenizer).__name__} has no tokenizer.json; give a fast tokenizer, "
                      "or the path of a file that docs/DAEMON.md lists")
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        file.write(whole.to_str())
        file.flush()
        yield file.name
