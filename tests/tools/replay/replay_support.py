"""Runs specd-replay on traces of specd_make_trace, for the tests of this folder."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = HERE.parents[2]
sys.path.insert(0, str(SOURCE / "tests/python"))

import trace_file  # noqa: E402  (its folder is known from here on only)

REPLAY, MAKE_TRACE, STRETCH_TRACE = (
    pathlib.Path(os.environ[name])
    for name in ("SPECD_REPLAY", "SPECD_MAKE_TRACE", "SPECD_STRETCH_TRACE"))
GOLDEN = SOURCE / "tests/data/traces"
TOKENIZER = SOURCE / "tools/toy_engine/tokenizer.json"


def run(*arguments, code=0):
    done = subprocess.run([str(REPLAY), *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=300)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def out(*arguments, code=0):
    return run(*arguments, code=code).stdout


def error(*arguments):
    done = run(*arguments, code=2)
    assert done.stderr.startswith("specd-replay: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


class Traces(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="specd-replay-"))
        cls.path = cls.make("a", "rounds=14")
        cls.trace = trace_file.Trace(cls.path)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def make(cls, name, *options):
        path = cls.folder / f"{name}.mcap"
        path.unlink(missing_ok=True)
        path.with_suffix(".rows").unlink(missing_ok=True)
        subprocess.run([MAKE_TRACE, path, *options], check=True, timeout=300)
        return path

    @classmethod
    def stretch(cls, path, name, copies):
        """A trace with the records and rows of another so many times."""
        longer = cls.folder / f"{name}.mcap"
        subprocess.run([STRETCH_TRACE, path, longer, str(copies)], check=True, timeout=600)
        return longer

    def steps_with_draft(self):
        return [step for step in self.trace.steps() if trace_file.num_drawn(step[1]) > 0]
