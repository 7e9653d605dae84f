"""The types of the package: mypy --strict over the package itself, over a program that uses it, and over
mistakes of which it must find each.

Usage: typing_test.py (the tests), or typing_test.py --write (prints sampling_params.pyi anew)

Bug that this would catch: nothing told a user's type checker anything, and no checker
had read the package.
"""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import unittest

import specd
from specd.param_table import PYTHON_TYPES

TESTS = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(specd.__file__).resolve().parent
STUB = PACKAGE / "sampling_params.pyi"
HEAD = '''"""The fields of SamplingParams for type checkers, from the library's table of parameters.

tests/python/typing_test.py prints this file, and compares it with the class.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from .param_table import Number
from .row_types import Ids
from .structured import StructuredOutputs

class SamplingParams:
    numbers: ClassVar[dict[str, Number]]
    def check(self, *, vocab_size: int | None = ..., **options: Any) -> None: ...
'''


def stub():
    """What sampling_params.pyi has to be, for the library that is loaded."""
    fields = []
    for field in dataclasses.fields(specd.SamplingParams):
        number = specd.SamplingParams.numbers.get(field.name)
        if number is None:
            kind = field.type
        elif number.choices:
            kind = f"Literal[{', '.join(map(repr, number.choices))}] | None"
        else:
            kind = f"{PYTHON_TYPES[number.type].__name__} | None"
        fields.append(f"{field.name}: {kind}")
    return (HEAD + "".join(f"    {field}\n" for field in fields) +
            "    def __init__(self, *,\n" +
            ",\n".join(f"                 {field} = ..." for field in fields) + ") -> None: ...\n")


def strict(*paths):
    """What mypy says, as (file, line, code); its own text beside it."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--cache-dir", os.devnull,
         "--no-error-summary", *map(str, paths)],
        capture_output=True, text=True, check=False, cwd=TESTS,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})
    found = re.findall(r"^([^:\n]+):(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    return ([(pathlib.Path(file).name, int(line), code) for file, line, code in found],
            done.stdout + done.stderr, done.returncode)


class TypingTest(unittest.TestCase):
    def test_the_package_and_a_program_are_strict(self):
        found, text, code = strict("-p", "specd", "-m", "typed_program")
        self.assertEqual((found, code), ([], 0), text)

    def test_each_mistake_is_found(self):
        lines = (TESTS / "typed_mistakes.py").read_text().splitlines()
        expected = [("typed_mistakes.py", number, line.partition("# error: ")[2])
                    for number, line in enumerate(lines, 1) if "# error: " in line]
        found, text, _ = strict("typed_mistakes.py")
        self.assertEqual(found, expected, text)
        self.assertGreater(len(expected), 15)

    def test_the_program_runs(self):
        done = subprocess.run([sys.executable, TESTS / "typed_program.py"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "[1, 2, 3, 4, 5] [6, 7] 16\n[1, 2, 0, 2, 1] [3]\n[2] (1, 8)\n")

    def test_the_package_loads_where_the_type_of_arrays_is_no_class(self):
        """Bug: from numpy 2.5 on, with Python 3.12, NDArray is an alias that no class can be derived from."""
        script = """import numpy.typing, typing
class NDArray:
    def __class_getitem__(cls, number):
        return typing.Union[int, str]
numpy.typing.NDArray = NDArray
import specd"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_package_says_that_it_is_typed(self):
        self.assertTrue((PACKAGE / "py.typed").exists())

    def test_the_fields_of_sampling_params_are_those_of_the_library(self):
        self.assertEqual(STUB.read_text(), stub(), f"print it anew: {__file__} --write")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        STUB.write_text(stub())
    else:
        unittest.main()
