"""SGLang's own hash against ours, on 10,000 triples. The function comes from SGLang's wheel, which
pip downloads once into .cache; its Triton source runs here on numpy, without a GPU and without
torch. Skipped, with the reason, where the wheel cannot be had."""

import pathlib
import subprocess
import sys
import types
import zipfile

import numpy as np

VERSION = "0.5.23"
SOURCE = "sglang/kernels/ops/sampling/murmur_hash.py"
SKIPPED = 77


class Words:
    """A Triton tensor of unsigned integers."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def to(self, dtype):
        return Words(self.values.astype(dtype))

    def __getattr__(self, name):
        raise AttributeError(name)


def _operator(name):
    def apply(self, other):
        other = other.values if isinstance(other, Words) else other
        # Constants of the source may be wider than 32 bits: Triton promotes them, and masks follow.
        left = self.values.astype(np.uint64)
        right = np.asarray(other).astype(np.uint64)
        with np.errstate(over="ignore"):
            result = getattr(left, name)(right)
        return result if result.dtype == bool else Words(result)
    return apply


for _name in ("add", "mul", "and", "xor", "or", "lshift", "rshift", "lt"):
    setattr(Words, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(Words, f"__r{_name}__", _operator(f"__{_name}__"))


def wheel(folder):
    """The path of SGLang's wheel, or None and why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    found = sorted(folder.glob(f"sglang-{VERSION}-*.whl"))
    if found:
        return found[0], ""
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                           "--only-binary=:all:", "--python-version=3.11",
                           "--platform=manylinux_2_34_x86_64", f"--dest={folder}",
                           f"sglang=={VERSION}"], capture_output=True, text=True, timeout=300)
    found = sorted(folder.glob(f"sglang-{VERSION}-*.whl"))
    return (found[0], "") if found else (None, (done.stderr.strip().splitlines() or ["?"])[-1])


def kernel(text):
    """The Triton kernel of the module, with stand-ins for Triton and torch."""
    language = types.SimpleNamespace(uint32=np.uint32, uint64=np.uint64, constexpr=int)
    memory = {}
    language.program_id = lambda axis: 0
    language.arange = lambda first, last: np.arange(first, last)
    language.load = lambda address, mask=None, other=None: Words(memory[address])
    language.store = lambda address, value, mask=None: memory.__setitem__("out", value.values)
    triton = types.ModuleType("triton")
    triton.jit, triton.language = (lambda function: function), language
    triton.cdiv = lambda a, b: -(-a // b)
    stubs = {"triton": triton, "triton.language": language, "torch": types.ModuleType("torch")}
    namespace = {}
    saved = {name: sys.modules.get(name) for name in stubs}
    sys.modules.update(stubs)
    try:
        exec(compile(text, SOURCE, "exec"), namespace)
    finally:
        for name, module in saved.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module

    class Address(str):
        def __add__(self, offset):
            return self

    def run(seeds, positions, columns):
        memory.update(seed=seeds, position=positions, column=columns)
        namespace["murmur_hash32_kernel"](Address("seed"), Address("position"), Address("column"),
                                          Address("out"), 1, len(columns), len(columns))
        return memory["out"].astype(np.uint64) & 0xFFFFFFFF
    return run


def main():
    probe, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    try:
        path, why = wheel(folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        path, why = None, str(error)
    if path is None:
        print(f"skipped: sglang=={VERSION} cannot be had from a package index: {why}")
        return SKIPPED
    theirs = kernel(zipfile.ZipFile(path).read(SOURCE).decode())
    random = np.random.default_rng(81)
    count = 10_000
    seeds = random.integers(0, 2**64, count, np.uint64)
    seeds[: count // 4] = random.integers(0, 2**16, count // 4)
    positions = random.integers(0, 2**32, count, np.uint64)
    positions[count // 8 : count // 2] %= 200_000
    columns = random.integers(0, 2**20, count, np.uint64)
    wanted = theirs(seeds, positions.astype(np.uint32), columns.astype(np.uint32))
    # A value that this file checks by itself: the kernel ran as SGLang runs it.
    one = theirs(np.array([42], np.uint64), np.array([7], np.uint32), np.array([3], np.uint32))
    assert one[0] == 966665676, one
    lines = "".join(f"{s} {p} {c}\n" for s, p, c in zip(seeds, positions, columns))
    ours = subprocess.run([probe], input=lines, capture_output=True, text=True, check=True).stdout
    got = np.array(ours.split(), np.uint64)
    assert len(got) == count and np.array_equal(got, wanted), np.flatnonzero(got != wanted)[:5]
    print(f"{count} hashes are those of SGLang {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
