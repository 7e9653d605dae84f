#!/usr/bin/env python3
"""licences.py: puts the texts of licences beside libraries of others that a package brings along.

Usage: tools/packaging/licences.py LIBRARIES OUTPUT

LIBRARIES is a folder of libraries that came from Debian packages. OUTPUT gets a file PACKAGE for each
of these packages, the copyright file that Debian has of it. Where there is no dpkg, the program says
so and ends with 0. A library of no package is an error, because nobody could say how it is licensed.
"""

import pathlib
import re
import shutil
import subprocess
import sys


def package_of(name):
    found = subprocess.run(["dpkg-query", "--search", f"*/{name}"], text=True, capture_output=True,
                           check=False)
    owners = sorted({re.split(r"[:,]", line)[0] for line in found.stdout.splitlines()
                     if line.endswith(f"/{name}") and not line.startswith("diversion ")})
    if len(owners) != 1:
        raise ValueError(f"{name} is of {' and '.join(owners) or 'no'} Debian package: "
                         "install the library from one, or leave it out of the bundle")
    return owners[0]


def main(libraries, output):
    if shutil.which("dpkg-query") is None:
        print("licences.py: no dpkg here, so the licences of the libraries in "
              f"{libraries} are not beside them; add them before you hand the package on")
        return
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    files = [path for path in pathlib.Path(libraries).glob("lib*") if not path.is_symlink()]
    try:
        for package in sorted({package_of(path.name) for path in files}):
            shutil.copyfile(f"/usr/share/doc/{package}/copyright", output / package)
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
