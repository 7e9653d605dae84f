"""Demands of every instruction in the kernels' PTX that the machine's own tests run it.

Usage: opcodes_test.py PROGRAM FOLDER ...

PROGRAM is specd_ptx_machine_test, and each FOLDER holds .ptx files.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

_STATEMENT = re.compile(r"(?:^|[;{}:])\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)(?=[\s;])", re.MULTILINE)


def opcodes_of(text):
    """The opcodes of a module. Names that stand on a line of their own are operands of calls. A trap ends
    the launch: refusals_test.cc has it."""
    text = re.sub(r"//[^\n]*", "", text)
    return {opcode for opcode in _STATEMENT.findall(text)
            if "." in opcode or opcode in ("bra", "call", "ret", "exit")}


def main():
    program, folders = sys.argv[1], sys.argv[2:]
    wanted = set()
    for folder in folders:
        for path in sorted(pathlib.Path(folder).glob("*.ptx")):
            wanted |= opcodes_of(path.read_text())
    if len(wanted) < 200:
        sys.exit(f"{len(wanted)} opcodes in {folders}: the kernels have more")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "opcodes"
        done = subprocess.run([program, "--test-suite=unit"], env=dict(os.environ, SPECD_PTX_OPCODES=str(path)),
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        missing = sorted(wanted - set(path.read_text().split()))
    if missing:
        sys.exit("no test runs these instructions of the kernels:\n" + "\n".join(missing))
    print(f"tests run all {len(wanted)} instructions of the kernels")


if __name__ == "__main__":
    main()
