#!/usr/bin/env python3
"""carry_ptx: runs nvcc on a CUDA file, and puts the PTX that nvcc makes for ptxas into the object.

nvcc makes PTX for each architecture and throws it away. Tests run that PTX on a CPU
(tests/gpu/ptx), and to compile it again would take as long as before. An architecture that nvcc is
not asked for is compiled to PTX alone. ccache runs this program in nvcc's place, so that an object
out of its cache has its PTX too; keep_ptx.py takes it out. No linker copies it.

PTX in which ptxas might make one rounding of two is an error: a float add, sub, mul or mad without
.rn or another rounding.

  SPECD_PTX_ARCHS=80,90 carry_ptx.py NVCC [ARGUMENT ...]

The PTX for 8.0 is the object's section .specd_ptx_80. Exit status: that of the compiler; 1 for PTX
that might be fused.
"""

import os
import re
import subprocess
import sys
import tempfile

WITHOUT_VALUE = re.compile(r"-(?:c|dc|dw)$")
WITH_VALUE = ("-o", "-MF", "-MT", "-MQ", "-x")
OF_OBJECTS = re.compile(r"(?:--generate-code|-gencode|-arch|--gpu-architecture|-code|--compress-mode"
                        r"|-Xptxas|-MD$|-MMD$)")

MAY_BE_FUSED = re.compile(r"^\s*(?:\{\s*)?(?:@!?%p\d+\s+)?(?:add|sub|mul|mad)(?:\.ftz)?(?:\.sat)?"
                          r"\.(?:bf16|f16|f32|f64)(?:x2)?\s")


def check_roundings(path, source):
    """Returns whether every float operation of the PTX says how it rounds."""
    with open(path, encoding="utf-8") as file:
        found = [(number, line.strip()) for number, line in enumerate(file, 1) if MAY_BE_FUSED.match(line)]
    for number, line in found:
        print(f"{source}: PTX line {number}: '{line}' may be fused by ptxas: compile with --fmad=false",
              file=sys.stderr)
    return not found


def ptx_command(command, arch, out):
    """The command that makes the PTX alone."""
    kept, skip = [], False
    for argument in command:
        if skip or WITHOUT_VALUE.match(argument) or OF_OBJECTS.match(argument):
            skip = False
        elif argument in WITH_VALUE:
            skip = True
        else:
            kept.append(argument)
    return kept + [f"-arch=compute_{arch}", "-ptx", "-o", out]


def main(command):
    source = next(argument for argument in command if argument.endswith(".cu"))
    output = command[command.index("-o") + 1]
    name = os.path.splitext(os.path.basename(source))[0]
    with tempfile.TemporaryDirectory() as work:
        status = subprocess.run(command + ["--keep", "--keep-dir", work], check=False).returncode
        for arch in os.environ["SPECD_PTX_ARCHS"].split(","):
            if status != 0:
                return status
            made = os.path.join(work, f"{name}.compute_{arch}.ptx")
            if not os.path.exists(made):
                status = subprocess.run(ptx_command(command, arch, made), check=False).returncode
            if status == 0 and not check_roundings(made, source):
                return 1
            if status == 0:
                section = f".specd_ptx_{arch}"
                status = subprocess.run(
                    ["objcopy", "--add-section", f"{section}={made}", "--set-section-flags",
                     f"{section}=exclude", output], check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
