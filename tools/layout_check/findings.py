"""Findings are the results of rules. layout_check.py sorts and prints them."""

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing to mend. `line` is 1-based; `message` says what is wrong and what to do."""

    path: str
    line: int
    rule: str
    message: str


class Large(NamedTuple):
    """A file or function that wants splitting: listed, never a failure."""

    path: str
    line: int
    what: str
    num_lines: int
