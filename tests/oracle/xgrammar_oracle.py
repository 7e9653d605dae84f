"""The xgrammar backend against the library of the PyPI package, which the daemon loads without Python.

Usage: xgrammar_oracle.py SPECD_XGRAMMAR_TEST

This script only finds the packages of its own environment and runs the test with them. Set
SPECD_XGRAMMAR_DIR to run it with another installation. Where there is none the test is skipped.
"""

import os
import pathlib
import subprocess
import sys
import sysconfig


def main():
    environment = dict(os.environ)
    directory = environment.setdefault("SPECD_XGRAMMAR_DIR", sysconfig.get_paths()["platlib"])
    if not (pathlib.Path(directory) / "xgrammar").is_dir():
        print(f"skipped oracle.xgrammar: {directory} has no package xgrammar; run tools/test where "
              "a package index can be reached, or set SPECD_XGRAMMAR_DIR")
        return 77
    return subprocess.run([sys.argv[1]], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
