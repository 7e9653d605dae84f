"""Fails if clang-format 14 would change a source file; exits with 77, skipped, where it is missing.

Other versions lay out the same style differently, so they are not asked.
"""

import os
import re
import shutil
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPOSITORY, "tools", "layout_check"))

import source_tree  # noqa: E402  (its folder is known from here on only)

VERSION = "14"
SKIPPED = 77


def find_clang_format():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if program is None:
            continue
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        if re.search(rf"version {VERSION}\.", answer.stdout):
            return program
    return None


def main():
    program = find_clang_format()
    if program is None:
        print(f"skipped: clang-format {VERSION} is not installed (tools/setup develop)")
        return SKIPPED
    sources = [file.path for file in source_tree.read_tree(REPOSITORY) if file.is_code()]
    run = subprocess.run([program, "--dry-run", "-Werror", "--style=file", *sources],
                         cwd=REPOSITORY, check=False)
    if run.returncode != 0:
        print("to mend it: clang-format -i FILE...")
        return 1
    print(f"{len(sources)} files are laid out as .clang-format says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
