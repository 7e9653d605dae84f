"""What the tests of this folder share: an emptied root, the libraries that a file finds, the README's programs."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "process"))
from support import PATIENCE_S, SOURCE, ProcessTest, wait_until  # noqa: E402

PACKAGES = pathlib.Path(os.environ["SPECD_PACKAGES"])
# A package may have so many bytes, except of a build that is not optimised.
PACKAGE_BYTES_MAX = 20 * 1000 * 1000
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


class EmptyRoot:
    """A folder that is / for the programs run in it. It has glibc, libstdc++ and what a test puts there.

    Where the system allows no such thing, to neither root nor a user namespace, `enter` is None.
    """

    # $ORIGIN of a program is found by /proc.
    _SCRIPT = 'mount --rbind /proc "$0/proc" && exec chroot "$0" "$@"'

    def __init__(self, folder):
        self.folder = folder
        for name in ("proc", "tmp", "run/specd"):
            (folder / name).mkdir(parents=True)
        loader = pathlib.Path(re.search(r"interpreter: (\S+)\]", run("readelf", "-l", "/bin/sh"))[1])
        self._copy(loader, loader)
        libc = next(place for name, place in found_libraries("/bin/sh") if name.startswith("libc."))
        cxx = run("cc", "-print-file-name=libstdc++.so.6").strip()
        for library in [*pathlib.Path(libc).parent.glob("lib*.so.*"), pathlib.Path(cxx)]:
            if OF_SYSTEM.fullmatch(library.name.partition(".so")[0]):
                self._copy(library, pathlib.Path("/lib", library.name))
        self.enter = next((way for way in (["unshare", "--mount"], ["unshare", "-r", "--mount"])
                           if self._works(way)), None)

    def command(self, *words):
        return ["/usr/bin/env", "-i", f"PATH={PATH}", *self.enter, "sh", "-c", self._SCRIPT,
                str(self.folder), *words]

    def _works(self, way):
        """Whether the root's own dynamic linker runs in it."""
        self.enter = way
        loader = only(path for path in self.folder.rglob("ld-linux*") if path.parent.name != "lib")
        command = self.command(f"/{loader.relative_to(self.folder)}", "--version")
        return subprocess.run(command, capture_output=True, check=False,
                              timeout=PATIENCE_S).returncode == 0

    def _copy(self, source, place):
        target = self.folder / str(place).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class PackageTest(ProcessTest):
    def check_place(self, name, place, folder):
        """A library is one of `folder`, or one that every machine has."""
        if not OF_SYSTEM.fullmatch(name.partition(".so")[0]):
            self.assertTrue(place.startswith(f"{folder}/"), f"{name} is found at {place!r}, not in {folder}")

    def check_size(self, package):
        if IS_OPTIMISED:
            self.assertLess(package.stat().st_size, PACKAGE_BYTES_MAX, package)

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
