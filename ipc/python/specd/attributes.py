"""Known refuses attributes that a class does not have, so that a misspelt one is no silence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeVar

from ._library import refusal


class Known:
    """A base whose instances take only the attributes that `attribute_names` lists."""

    attribute_names: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.attribute_names:
            raise refusal(self.why_unknown(name))
        super().__setattr__(name, value)

    def why_unknown(self, name: str) -> str:
        return f"{name}: {type(self).__name__} has no such attribute" + \
            nearest(name, self.attribute_names) + \
            f" The attributes are {', '.join(self.attribute_names)}"


def nearest(name: str, names: Iterable[str]) -> str:
    """"; did you mean ...?", or nothing if no name is near."""
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ";"


_Made = TypeVar("_Made", bound="type[Known]")


def known_dataclass(made: _Made) -> _Made:
    """A dataclass over Known: its attributes are its fields."""
    made.attribute_names = tuple(getattr(made, "__dataclass_fields__"))
    return made
