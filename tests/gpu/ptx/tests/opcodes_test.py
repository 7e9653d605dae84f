"""Demands that the machine's own tests run every instruction in the kernels' PTX, and every entry of the
machine's tables.

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
    names = {"known": set(), "ran": set()}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "opcodes"
        done = subprocess.run([program, "--test-suite=unit"], env=dict(os.environ, SPECD_PTX_OPCODES=str(path)),
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        for line in path.read_text().splitlines():
            kind, _, name = line.partition(" ")
            names[kind].add(name)
    if len(names["known"]) < 200:
        sys.exit(f"{len(names['known'])} entries of tables: the machine has more")
    for whose, needed in (("the kernels", wanted), ("the machine's tables", names["known"])):
        missing = sorted(needed - names["ran"])
        if missing:
            sys.exit(f"no test runs these instructions of {whose}:\n" + "\n".join(missing))
    print(f"tests run all {len(wanted)} instructions of the kernels, and all {len(names['known'])} of the tables")


if __name__ == "__main__":
    main()
