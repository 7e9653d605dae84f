"""The programs of the wheel: `specd`, the daemon, `specd-detok`, the detokenizer, `specctl`, its counters, and `specd-http`.

Internal: pyproject.toml names the functions. Each becomes the program, so signals and the exit status are the program's.
"""

import os
import pathlib
import sys
from typing import NoReturn


def daemon() -> NoReturn:
    _become("specd")


def detokenizer() -> NoReturn:
    _become("specd-detok")


def control() -> NoReturn:
    _become("specctl")


def http() -> NoReturn:
    _become("specd-http")


def _become(name: str) -> NoReturn:
    program = pathlib.Path(__file__).resolve().parent / "bin" / name
    os.execv(program, [name, *sys.argv[1:]])
