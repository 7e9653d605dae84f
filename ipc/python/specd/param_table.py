"""The library's parameter table: the parameters that are numbers, and the names that it refuses."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from . import _library as c
from . import _structs as s

# The codes of specd_param_info.type, and the types of their values here.
PARAM_TYPES = {"number": 0, "integer": 1, "flag": 2, "choice": 3}
PYTHON_TYPES: dict[str, type[Any]] = {"number": float, "integer": int, "flag": bool, "choice": str}


class Number(NamedTuple):
    """A parameter that is one number: a row of the library's table. `default` is the number of the
    flag or choice; `choices` has the names of a choice's values."""

    name: str
    vllm_name: str
    type: str
    default: float
    maximum: float
    choices: tuple[str, ...]

    @property
    def python_name(self) -> str:
        # vLLM's rejection_sample_method belongs to a whole engine.
        return self.name if self.name == "verify" else self.vllm_name or self.name

    @property
    def python_default(self) -> Any:
        """The default in SamplingParams: -1, which means none, becomes None."""
        if self.type == "choice":
            return self.choices[int(self.default)]
        if self.default == -1:
            return None
        return PYTHON_TYPES[self.type](self.default)


def _numbers() -> tuple[Number, ...]:
    types = {code: name for name, code in PARAM_TYPES.items()}
    info = s.ParamInfo(ctypes.sizeof(s.ParamInfo))
    numbers: list[Number] = []
    while c.check(c.load().specd_get_param_info(len(numbers), ctypes.byref(info))) == 0:
        choices = tuple(info.choices.items[i].decode() for i in range(info.choices.count))
        numbers.append(Number(info.name.decode(), info.vllm_name.decode(), types[info.type],
                              info.default_value, info.maximum, choices))
    return tuple(numbers)


NUMBERS = _numbers()

# {name: the names of its values} of the choices about a constraint, which StructuredOutputs has.
CONSTRAINT_CHOICES = {number.name: number.choices for number in NUMBERS
                      if number.name.startswith("grammar_") and number.choices}


def refused(name: str, value: str | None = None) -> str | None:
    """Why the library refuses a name of vLLM, SGLang or the OpenAI API, or one value of it, and
    what to do instead; None for any other name."""
    text: bytes | None = c.load().specd_refused_param(
        c.text_bytes(name, "parameter"), None if value is None else c.text_bytes(value, name))
    return None if text is None else text.decode()
