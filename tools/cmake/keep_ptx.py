#!/usr/bin/env python3
"""keep_ptx: runs the compiler of a CUDA file, and keeps the PTX that carry_ptx.py put into the object.

  keep_ptx.py FOLDER ARCHS -- [LAUNCHER ...] COMPILER [ARGUMENT ...]

The PTX of a file for 8.0 goes into FOLDER/sm_80, under the file's name with another ending. ARCHS is
a list such as 80,90. If ccache is the launcher, it runs carry_ptx.py for what it does not have. A call
that compiles no CUDA file is passed on. Exit status: that of the command; 2 for wrong usage.
"""

import os
import subprocess
import sys

CARRY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "carry_ptx.py")


def carried(command, archs):
    """Runs the command with carry_ptx.py between launcher and compiler."""
    environment = dict(os.environ, SPECD_PTX_ARCHS=archs)
    if any(os.path.basename(argument) == "ccache" for argument in command):
        # ccache looks for its prefix on PATH, and takes a blank for the end of a name.
        environment.update(CCACHE_PREFIX=os.path.basename(CARRY), CCACHE_EXTRAFILES=CARRY,
                           CCACHE_NAMESPACE=f"ptx-{archs}",
                           PATH=os.path.dirname(CARRY) + os.pathsep + os.environ.get("PATH", os.defpath))
    else:
        command = [sys.executable, "-B", CARRY, *command]
    return subprocess.run(command, check=False, env=environment).returncode


def keep(command, source, folder, archs):
    status = carried(command, archs)
    name = os.path.splitext(os.path.basename(source))[0]
    for arch in archs.split(","):
        if status != 0:
            return status
        kept = os.path.join(folder, f"sm_{arch}", f"{name}.ptx")
        os.makedirs(os.path.dirname(kept), exist_ok=True)
        # objcopy always writes an object too.
        status = subprocess.run(
            ["objcopy", "--dump-section", f".specd_ptx_{arch}={kept}", command[command.index("-o") + 1],
             f"{kept}.o"], check=False).returncode
        os.remove(f"{kept}.o")
    return status


def main(arguments):
    if len(arguments) < 4 or arguments[2] != "--":
        print(__doc__, file=sys.stderr)
        return 2
    folder, archs, command = arguments[0], arguments[1], arguments[3:]
    sources = [argument for argument in command if argument.endswith(".cu")]
    if len(sources) != 1 or "-c" not in command:
        return subprocess.run(command, check=False).returncode
    return keep(command, sources[0], folder, archs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
