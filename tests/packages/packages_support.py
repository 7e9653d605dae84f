"""What the tests of this folder share: the libraries that a file finds, the README's programs, rounds."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
from support import PATIENCE_S, SOURCE, ProcessTest, wait_until  # noqa: E402

PACKAGES = pathlib.Path(os.environ["SPECD_PACKAGES"])
# A package may have so many bytes, except of a build that is not optimised. On 2026-11-29 the archive had
# 12.8 MB, the Debian package 10.6 and the wheel 23.5: a zip holds the kernels of two files twice.
PACKAGE_BYTES_MAX = {".xz": 14 * 1000 * 1000, ".deb": 14 * 1000 * 1000, ".whl": 25 * 1000 * 1000}
IS_OPTIMISED = os.environ["SPECD_BUILD_TYPE"] != "Debug"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# A machine has these: glibc, and the two libraries of g++.
OF_SYSTEM = re.compile(
    r"linux-vdso|ld-linux.*|lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|util|gcc_s|stdc\+\+)")
ANSWER = "2 drafts accepted, tokens: 1 2 3\n"  # README.md, "Attach an engine"


def run(*command, **options):
    """Runs a command without the environment of the test, and returns what it says."""
    options = {"env": {"PATH": PATH}, "cwd": "/", **options}
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False, timeout=PATIENCE_S, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def only(paths):
    paths = list(paths)
    if len(paths) != 1:
        raise AssertionError(f"expected one file, found {paths}")
    return paths[0]


def programs_and_libraries(folder):
    """The ELF files of a folder, without links."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    found = [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]
    if not found:
        raise AssertionError(f"{folder} has no program and no library")
    return found


def found_libraries(path):
    """(name, place) of each library that the dynamic linker finds for a file; the place of one that it does
    not find is ""."""
    said = run("ldd", path)
    lines = re.findall(r"^\t(\S+) => (\S+)( found| \(0x)", said, re.MULTILINE)
    return [(name, "" if end == " found" else place) for name, place, end in lines]


def is_stripped(path):
    return ".symtab" not in run("readelf", "--sections", "--wide", path)


def readme_block(path, language, text):
    """The one code block of a README that holds `text`."""
    blocks = re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)
    return only(block for block in blocks if text in block)


def compile_readme_engine(folder, libraries, run_path):
    """Compiles README.md's engine in C by what pkg-config says of the package in `libraries`. Returns the
    engine, and what the linker says."""
    source, engine = folder / "engine.c", folder / "engine"
    source.write_text(readme_block(SOURCE / "README.md", "c", "specd_open"))
    search = {"PATH": PATH, "PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "specd", env=search).split()
    if str(libraries) not in os.path.normpath(next(flag[2:] for flag in flags if flag[:2] == "-L")):
        raise AssertionError(f"pkg-config names another folder than {libraries}: {flags}")
    said = run("cc", source, "-o", engine, *flags, f"-Wl,-rpath,{run_path}", "-Wl,--verbose")
    return engine, said


def main():
    """Runs the tests that the command line names. ctest shows the script as skipped if all of them are."""
    result = unittest.main(exit=False).result
    all_skipped = 0 < result.testsRun == len(result.skipped)
    sys.exit(1 if not result.wasSuccessful() else 77 if all_skipped else 0)


class PackageTest(ProcessTest):
    def need(self, root):
        if root.enter is None:
            self.skipTest("this system lets nobody make a root: neither root nor a user namespace may mount")

    def start_words(self, words):
        return self.start(pathlib.Path(words[0]), *words[1:], env={"PATH": PATH})

    def check_python_rounds(self, python, daemon, uri, command=lambda *words: words):
        """README.md's engine in Python verifies its round inside its process and then through `daemon`, which
        serves `uri`. `command` makes the words of a program a command in the test's environment."""
        code = readme_block(SOURCE / "README.md", "python", "specd.Engine")
        self.assertIn("embedded:cpu", code)
        self.assertEqual(run(*command(python, "-B", "-c", code)), ANSWER)
        process = self.start_words(command(*daemon))
        self.wait_for_daemon(process)
        code = code.replace("embedded:cpu", uri)
        self.assertEqual(run(*command(python, "-B", "-c", code)), ANSWER)
        self.stop(process)

    def check_place(self, name, place, folder):
        """A library is one of `folder`, or one that every machine has."""
        if not OF_SYSTEM.fullmatch(name.partition(".so")[0]):
            self.assertTrue(place.startswith(f"{folder}/"), f"{name} is found at {place!r}, not in {folder}")

    def check_size(self, package):
        if IS_OPTIMISED:
            self.assertLess(package.stat().st_size, PACKAGE_BYTES_MAX[package.suffix], package)

    def check_linked(self, said, folder):
        """The linker of an engine has found the libraries that libspecd needs, and those that these need."""
        found = re.findall(r"^found (\S+) at (\S+)$", said, re.MULTILINE)
        self.assertGreater(len(found), 20, said)
        for name, place in found:
            self.check_place(name, os.path.normpath(place), folder)

    def check_self_contained(self, folder):
        """Every program and library finds all it needs in `folder`, or is a library that every machine has."""
        for path in programs_and_libraries(folder):
            self.assertTrue(is_stripped(path), path)
        # A library of others is found for the file that needs it, never by itself.
        for path in programs_and_libraries(folder):
            if path.name.startswith("libspecd.so") or path.parent.name == "bin":
                libraries = found_libraries(path)
                self.assertGreater(len(libraries), 20, path)
                for name, place in libraries:
                    self.check_place(name, place, folder)

    def wait_for_daemon(self, daemon):
        wait_until(lambda: "serves" in daemon.stderr or not daemon.running(), "the daemon")
        self.assertTrue(daemon.running(), daemon.stderr)
