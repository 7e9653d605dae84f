"""Runs the Python blocks of documents, as a reader would.

Usage: readme_test.py DOCUMENT ...

Every block that imports specd is run in a namespace of its own; a block that fails fails the test.
"""

import pathlib
import re
import sys


def main():
    num_run = 0
    for document in sys.argv[1:]:
        for block in re.findall(r"```python\n(.*?)```", pathlib.Path(document).read_text(), re.S):
            if "import specd" in block or "specd import" in block:
                exec(compile(block, document, "exec"), {"__name__": "__main__"})
                num_run += 1
    print(f"{num_run} blocks were run")
    sys.exit(0 if num_run else "no block imports specd")


if __name__ == "__main__":
    main()
