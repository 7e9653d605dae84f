"""check_fields refuses the fields of another engine's request that specd does not honour."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .._library import refusal


def check_fields(params: Any, honoured: Collection[str], refused: Mapping[str, str]) -> None:
    """params: a msgspec.Struct. honoured: names of fields. refused: what to do about the others. A field
    that is in neither may be at its default alone, such as one of a later release."""
    default = type(params)()
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if name not in honoured and value != getattr(default, name):
            raise refusal(f"{name}: {value!r} is not honoured: " + refused.get(
                name, "this release of specd does not know the field; leave it out"))
