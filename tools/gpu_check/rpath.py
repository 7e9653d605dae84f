#!/usr/bin/env python3
"""rpath.py: makes the RUNPATH of programs and libraries an RPATH, in place.

Usage: tools/gpu_check/rpath.py FILE...

An RPATH also holds for the libraries of libraries, which come from packages without a path of their
own. It comes before the machine's LD_LIBRARY_PATH. The bundle needs both effects, and an installed
program must have neither. Both are copies of one link, so this program changes the entry's tag
afterwards. Files must be ELF of 64 bits, little-endian, with one of the two entries. Otherwise the
exit status is 1, with a line on standard error.
"""

import struct
import sys

PT_DYNAMIC = 2
DT_RPATH, DT_RUNPATH = 15, 29


def dynamic_section(data):
    """Returns the offset of the entries and their size in bytes."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("is no ELF file of 64 bits, little-endian")
    (first,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for header in range(first, first + size * count, size):
        if struct.unpack_from("<I", data, header) == (PT_DYNAMIC,):
            return struct.unpack_from("<Q", data, header + 8) + struct.unpack_from(
                "<Q", data, header + 32)
    raise ValueError("has no dynamic section")


def change(path):
    with open(path, "r+b") as file:
        data = file.read()
        begin, size = dynamic_section(data)
        tags = {struct.unpack_from("<q", data, at)[0]: at for at in range(begin, begin + size, 16)}
        if DT_RUNPATH in tags:
            file.seek(tags[DT_RUNPATH])
            file.write(struct.pack("<q", DT_RPATH))
        elif DT_RPATH not in tags:
            raise ValueError("has neither RUNPATH nor RPATH: set INSTALL_RPATH of its target")


def main(paths):
    for path in paths:
        try:
            change(path)
        except (OSError, ValueError, struct.error) as error:
            sys.exit(f"error: {path}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
