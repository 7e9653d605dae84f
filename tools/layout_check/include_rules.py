"""The arrows between folders, as docs/ARCHITECTURE.md draws them, and the check of every #include.

A folder may include the folders of ours in `folders` and the libraries in `libraries`; a file
belongs to the longest prefix in ARROWS. A library that no folder names yet is a finding, so that a
new dependency is a decision and shows in the history of this file.
"""

import re

from findings import Finding
from source_tree import line_of

OUR_FOLDERS = ("kernels", "speculative", "detokenizer", "ipc", "daemon", "tools", "tests")
# The installed headers of libspecd, by the name that a user includes them with.
PUBLIC_HEADERS = "specd/"


class Arrow:
    """What the files under one folder may include. `never` are system headers, by name."""

    def __init__(self, folders, libraries, never=(), why_never=""):
        self.folders = folders
        self.libraries = libraries
        self.never = never
        self.why_never = why_never


_SOCKETS = ("sys/socket.h", "sys/un.h", "netinet/in.h", "arpa/inet.h", "poll.h", "sys/epoll.h")
_CLOCK_AND_FILES = ("chrono", "ctime", "time.h", "sys/time.h", "fstream", "filesystem") + _SOCKETS
_ANY_LIBRARY = ("c", "std", "system", "intrinsics", "absl", "boost", "fmt", "msgpack", "simdjson",
                "spdlog", "zmq")

ARROWS = {
    "kernels/core": Arrow(("kernels/core",), ("c", "std", "intrinsics"), _CLOCK_AND_FILES,
                          "kernels have no clock, files or sockets"),
    "kernels/bodies": Arrow(("kernels/core", "kernels/bodies"), ("c", "std"), _CLOCK_AND_FILES,
                            "kernels have no clock, files or sockets"),
    "kernels/cuda": Arrow(("kernels",), ("c", "std", "system", "absl", "fmt", "cuda"),
                          _CLOCK_AND_FILES, "kernels have no clock, files or sockets"),
    "kernels/cpu": Arrow(("kernels",), ("c", "std", "system", "intrinsics", "absl", "fmt", "hwy"),
                         _CLOCK_AND_FILES, "kernels have no clock, files or sockets"),
    "kernels": Arrow(("kernels",), ("c", "std", "system", "intrinsics", "absl", "fmt"),
                     _CLOCK_AND_FILES, "kernels have no clock, files or sockets"),
    "speculative": Arrow(("speculative", "kernels", "detokenizer"), ("c", "std", "absl", "fmt"),
                         ("fstream", "filesystem"), "speculative reads no files"),
    "detokenizer": Arrow(("detokenizer", "kernels/core"),
                         ("c", "std", "system", "absl", "fmt", "simdjson"),
                         ("thread", "mutex", "condition_variable", "pthread.h") + _SOCKETS,
                         "detokenizer has no threads or sockets"),
    "ipc/include/specd": Arrow((PUBLIC_HEADERS,), ("c",)),
    "ipc": Arrow(("ipc", "kernels/core", PUBLIC_HEADERS),
                 tuple(name for name in _ANY_LIBRARY if name != "simdjson")),
    "daemon": Arrow(("daemon", "ipc", "speculative", "kernels", "detokenizer", PUBLIC_HEADERS),
                    _ANY_LIBRARY),
    "tools/toy_engine": Arrow(("tools/toy_engine", PUBLIC_HEADERS), _ANY_LIBRARY),
    "tools/gpu_check": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY + ("cuda",)),
    "tools": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY),
    "tests/consumer": Arrow((PUBLIC_HEADERS,), ("c",)),
    "tests": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY + ("doctest",)),
}

_C_HEADERS = frozenset(
    name + ".h" for name in
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal"
    " stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath"
    " threads time uchar wchar wctype".split())

# First match decides; the pattern is applied to the name between the brackets.
_LIBRARIES = (
    ("cuda", re.compile(r"(cuda|cooperative_groups|cublas|curand|nvtx|nvml|mma\.h|driver_types\.h"
                        r"|device_launch|cub/|thrust/|nv/)")),
    ("intrinsics", re.compile(r"([a-z0-9]*intrin|cpuid)\.h$")),
    ("fmt", re.compile(r"(spdlog/)?fmt/")),
    ("spdlog", re.compile(r"spdlog/")),
    ("absl", re.compile(r"absl/")),
    ("hwy", re.compile(r"hwy/")),
    ("boost", re.compile(r"boost/")),
    ("zmq", re.compile(r"zmq(_addon)?\.(h|hpp)$")),
    ("msgpack", re.compile(r"msgpack(\.hpp$|/)")),
    ("simdjson", re.compile(r"simdjson\.h$")),
    ("doctest", re.compile(r"doctest/")),
    ("system", re.compile(r"(sys|linux|asm|net|netinet|arpa|sanitizer)/")),
    ("std", re.compile(r"[a-z_0-9]+$")),
    ("system", re.compile(r"[a-z_0-9]+\.h$")),
)

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<(?P<angle>[^>\n]+)>|"(?P<quote>[^"\n]+)")',
                      re.MULTILINE)
_LAUNCH = re.compile(r"<<<")


def check_includes(file):
    if not file.is_code():
        return
    folder = _longest_prefix(file.path, ARROWS)
    text = file.without_comments()
    if folder is not None:
        for match in _INCLUDE.finditer(text):
            message = _judge(folder, match["angle"], match["quote"])
            if message:
                yield Finding(file.path, line_of(text, match.start()), "include", message)
    if folder != "kernels/cuda":
        code = file.without_comments_and_strings()
        for match in _LAUNCH.finditer(code):
            yield Finding(file.path, line_of(code, match.start()), "include",
                          "a kernel launch outside kernels/cuda: call it through the Backend seam")


def _judge(folder, angle, quote):
    """Says what is wrong with one #include of a file under `folder`, or nothing."""
    arrow = ARROWS[folder]
    name = quote or angle
    if name.startswith(PUBLIC_HEADERS) or name.split("/")[0] in OUR_FOLDERS:
        if not any(_is_under(name, allowed) for allowed in arrow.folders):
            return (f"{folder} may not include {name}, only {_join(arrow.folders)}: move what is "
                    "shared down the arrows, or hand it in from above")
        return None
    library = _library_of(name)
    if quote and library in (None, "c", "std", "system"):
        return (f'"{name}" is not a path from the repository root: write the whole path, or '
                "<brackets> for a header of the system")
    if library is None:
        return (f"<{name}> belongs to no known library: a new dependency is named in "
                "tools/layout_check/include_rules.py, tools/setup and SpecdDependencies.cmake")
    if library not in arrow.libraries:
        return (f"{folder} may not include {name} ({library}), only {_join(arrow.libraries)}: "
                "use it in a folder that may, behind an interface")
    if name in arrow.never:
        return f"{folder} may not include {name}: {arrow.why_never}; hand the value in from above"
    return None


def _library_of(name):
    if name in _C_HEADERS:
        return "c"
    for library, pattern in _LIBRARIES:
        if pattern.match(name):
            return library
    return None


def _longest_prefix(path, prefixes):
    found = [prefix for prefix in prefixes if _is_under(path, prefix)]
    return max(found, key=len, default=None)


def _is_under(path, folder):
    return path.startswith(folder.rstrip("/") + "/")


def _join(names):
    return ", ".join(names)
