"""The arrows between folders, as docs/ARCHITECTURE.md draws them, and the check of every #include.

A file belongs to the longest prefix in ARROWS. Such a folder may include our folders in `folders`
and the libraries in `libraries`. "daemon/." means the files directly in daemon/, without its rooms.
A library that no folder names yet is a finding. A new dependency is therefore a decision that shows
in the history of this file.
"""

import os
import re

from findings import Finding
from source_tree import line_of

OUR_FOLDERS = ("kernels", "speculative", "detokenizer", "ipc", "daemon", "tools", "tests")
# The installed headers of libspecd, by the name that a user includes them with.
PUBLIC_HEADERS = "specd/"


class Arrow:
    """The includes that files under one folder may have. `never` names headers."""

    def __init__(self, folders, libraries, never=(), why_never=""):
        self.folders = folders
        self.libraries = libraries
        self.never = never
        self.why_never = why_never


_SOCKETS = ("sys/socket.h", "sys/un.h", "netinet/in.h", "arpa/inet.h", "poll.h", "sys/epoll.h")
_CLOCK_AND_FILES = ("chrono", "ctime", "time.h", "sys/time.h", "fstream", "filesystem") + _SOCKETS
_ANY_LIBRARY = ("c", "std", "system", "intrinsics", "absl", "boost", "fmt", "msgpack", "simdjson",
                "spdlog", "zmq")
_PLAIN = ("c", "std", "system", "absl", "fmt")
# The C headers under both of their names: a user's, and the path from the root.
_C_API = (PUBLIC_HEADERS, "ipc/include/specd")

_NO_CLOCK = (_CLOCK_AND_FILES, "kernels have no clock, files or sockets")
_NO_LOGS = (("daemon/base/logging.h",), "libspecd does not log and does not link spdlog")
_NO_LOGS_OR_SOCKETS = (_NO_LOGS[0] + _SOCKETS, "sessions and traces have no logs and no sockets")
# The folders below daemon/.
_BELOW_DAEMON = ("ipc", "speculative", "kernels", "detokenizer") + _C_API



def _speculative(*folders):
    return Arrow(folders + ("kernels",), ("c", "std", "absl", "fmt"), ("fstream", "filesystem"),
                 "speculative reads no files")


def _grammar(*rooms):
    # A compile has the CPU time, the stack and the priority of its thread.
    folders = tuple(f"speculative/grammar/{room}" for room in rooms)
    return Arrow(folders + ("kernels/core", "detokenizer"),
                 ("c", "std", "system", "absl", "fmt", "simdjson"),
                 ("fstream", "filesystem") + _SOCKETS,
                 "a grammar reads no files and has no sockets")


ARROWS = {
    # cuda -> warps -> bodies -> core, cpu -> bodies -> core; kernels/backend.h is the seam of both.
    "kernels/core": Arrow(("kernels/core",), ("c", "std", "intrinsics"), *_NO_CLOCK),
    "kernels/bodies": Arrow(("kernels/core", "kernels/bodies"), ("c", "std"), *_NO_CLOCK),
    "kernels/warps": Arrow(("kernels/core", "kernels/bodies", "kernels/warps"), ("c", "std"),
                           *_NO_CLOCK),
    "kernels/cuda": Arrow(("kernels/core", "kernels/bodies", "kernels/warps", "kernels/cuda",
                           "kernels/."), ("c", "std", "system", "absl", "fmt", "cuda"), *_NO_CLOCK),
    "kernels/cpu": Arrow(("kernels/core", "kernels/bodies", "kernels/cpu", "kernels/."),
                         ("c", "std", "system", "intrinsics", "absl", "fmt", "hwy"), *_NO_CLOCK),
    "kernels": Arrow(("kernels",), ("c", "std", "system", "intrinsics", "absl", "fmt"), *_NO_CLOCK),
    # verifier -> round -> sequence -> processors -> params -> the base of grammar.
    "speculative/drafts": _speculative("speculative/drafts"),
    "speculative": _speculative("speculative/.", "speculative/round", "speculative/sequence",
                                "speculative/processors", "speculative/params",
                                "speculative/grammar"),
    "speculative/round": _speculative("speculative/round", "speculative/sequence",
                                      "speculative/processors", "speculative/params",
                                      "speculative/grammar"),
    "speculative/sequence": _speculative("speculative/sequence", "speculative/processors",
                                         "speculative/params", "speculative/grammar",
                                         "detokenizer"),
    "speculative/processors": _speculative("speculative/processors", "speculative/params"),
    "speculative/params": _speculative("speculative/params", "speculative/grammar/base"),
    # compiler -> matchers -> masks -> states -> network -> rules -> automata -> base;
    # compiler -> json_schema -> front_ends -> rules.
    "speculative/grammar": _grammar(),
    "speculative/grammar/base": _grammar("base"),
    "speculative/grammar/automata": _grammar("automata", "base"),
    "speculative/grammar/rules": _grammar("rules", "automata", "base"),
    "speculative/grammar/front_ends": _grammar("front_ends", "rules", "automata", "base"),
    "speculative/grammar/json_schema": _grammar("json_schema", "front_ends", "rules", "automata",
                                                "base"),
    "speculative/grammar/network": _grammar("network", "rules", "base"),
    "speculative/grammar/states": _grammar("states", "network", "base"),
    "speculative/grammar/masks": _grammar("masks", "states", "rules", "automata", "base"),
    "speculative/grammar/matchers": _grammar("matchers", "masks", "states", "network", "base"),
    "speculative/grammar/compiler": _grammar("compiler", "matchers", "masks", "network",
                                             "json_schema", "front_ends", "rules", "base"),
    "detokenizer": Arrow(("detokenizer", "kernels/core"),
                         ("c", "std", "system", "absl", "fmt", "simdjson"),
                         ("thread", "mutex", "condition_variable", "pthread.h") + _SOCKETS,
                         "detokenizer has no threads or sockets"),
    # control, memory -> sockets -> base; segment, events -> base; segment and control never meet.
    "ipc/include/specd": Arrow((PUBLIC_HEADERS,), ("c",)),
    "ipc/base": Arrow(("ipc/base", "kernels/core") + _C_API, _PLAIN + ("boost", "msgpack")),
    "ipc/sockets": Arrow(("ipc/sockets", "ipc/base", "kernels/core") + _C_API, _PLAIN + ("zmq",)),
    "ipc/control": Arrow(("ipc/control", "ipc/sockets", "ipc/base", "kernels/core") + _C_API,
                         _PLAIN),
    "ipc/memory": Arrow(("ipc/memory", "ipc/sockets", "ipc/base", "kernels/core") + _C_API, _PLAIN),
    "ipc/segment": Arrow(("ipc/segment", "ipc/base", "kernels/core") + _C_API,
                         _PLAIN + ("intrinsics",)),
    "ipc/events": Arrow(("ipc/events", "ipc/base", "kernels/core") + _C_API, _PLAIN),
    "ipc/counters": Arrow(("ipc/counters", "ipc/base", "kernels/core") + _C_API, _PLAIN),
    # A new room starts with the least, until it has a row of its own.
    "ipc": Arrow(("ipc/base", "kernels/core") + _C_API, _PLAIN),
    # The mains -> server, text -> session -> base; client -> session. Client and server never meet.
    # recorder -> trace -> base.
    "daemon/base": Arrow(("daemon/base", "ipc/base", "kernels/core") + _C_API, _ANY_LIBRARY),
    "daemon/metrics": Arrow(("daemon/metrics", "daemon/base", "ipc/counters", "ipc/segment", "ipc/base",
                             "kernels/core") + _C_API, _PLAIN, *_NO_LOGS_OR_SOCKETS),
    "daemon/trace": Arrow(("daemon/trace", "daemon/base", "ipc/base", "speculative",
                           "kernels/core", "kernels/.") + _C_API, _PLAIN + ("boost", "intrinsics", "msgpack", "simdjson"), *_NO_LOGS_OR_SOCKETS),
    "daemon/recorder": Arrow(("daemon/recorder", "daemon/trace", "daemon/base", "ipc/base", "ipc/segment", "speculative",
                              "kernels/core", "kernels/.") + _C_API, _PLAIN, *_NO_LOGS_OR_SOCKETS),
    "daemon/session": Arrow(("daemon/session", "daemon/recorder", "daemon/trace", "daemon/metrics", "daemon/base") + _BELOW_DAEMON, _PLAIN + ("boost",),
                            *_NO_LOGS_OR_SOCKETS),
    "daemon/client": Arrow(("daemon/client", "daemon/session", "daemon/recorder", "daemon/base")
                           + _BELOW_DAEMON, _PLAIN, *_NO_LOGS),
    "daemon/reader": Arrow(("daemon/reader", "ipc/events", "ipc/sockets", "ipc/base", "kernels/core") + _C_API, _PLAIN,
                           *_NO_LOGS),
    "daemon/text": Arrow(("daemon/text", "daemon/session", "daemon/metrics", "daemon/base") + _BELOW_DAEMON,
                         _ANY_LIBRARY),
    "daemon/server": Arrow(("daemon/server", "daemon/session", "daemon/metrics", "daemon/base") + _BELOW_DAEMON,
                           _ANY_LIBRARY),
    "daemon": Arrow(("daemon/.", "daemon/server", "daemon/text", "daemon/session", "daemon/recorder",
                     "daemon/metrics", "daemon/base") + _BELOW_DAEMON, _ANY_LIBRARY),
    # daemon/base reads its flags, so that a wrong one has the exit code of the other programs.
    "tools/toy_engine": Arrow(("tools/toy_engine", "daemon/base", PUBLIC_HEADERS), _ANY_LIBRARY),
    "tools/bench": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY + ("cuda",)),
    "tools": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY),
    "tests/consumer": Arrow((PUBLIC_HEADERS,), ("c",)),
    "tests/gpu": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY + ("cuda", "doctest")),
    "tests": Arrow(OUR_FOLDERS + (PUBLIC_HEADERS,), _ANY_LIBRARY + ("doctest",)),
}
# The backend's kernels, and the probes that a benchmark measures a device with.
MAY_LAUNCH = ("kernels/cuda", "tools/bench")

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
    if folder not in MAY_LAUNCH:
        code = file.without_comments_and_strings()
        for match in _LAUNCH.finditer(code):
            yield Finding(file.path, line_of(code, match.start()), "include",
                          f"a kernel launch outside {_join(MAY_LAUNCH)}: call it through the "
                          "Backend seam")


def check_circles(files):
    """Findings of files that need each other: a header and its source count as one."""
    arrows, sources = {}, {}
    for file in files:
        if not file.is_code() or file.path.startswith("tests/"):
            continue
        module = os.path.splitext(file.path)[0]
        sources.setdefault(module, file.path)
        names = (match["quote"] for match in _INCLUDE.finditer(file.without_comments()))
        arrows.setdefault(module, set()).update(os.path.splitext(name)[0] for name in names if name)
    for circle in _circles(arrows):
        yield Finding(sources[circle[0]], 1, "circle",
                      f"{_join(circle)} need each other: move what both need into a file of its own")


def _circles(arrows):
    """The lists of nodes, sorted, that lead to each other (Tarjan, without recursion)."""
    number, lowest, stack, on_stack = {}, {}, [], set()
    for root in sorted(arrows):
        if root in number:
            continue
        work = [(root, iter(sorted(arrows[root])))]
        while work:
            node, targets = work[-1]
            if node not in number:
                number[node] = lowest[node] = len(number)
                stack.append(node)
                on_stack.add(node)
            for target in targets:
                if target not in arrows or target == node:
                    continue
                if target not in number:
                    work.append((target, iter(sorted(arrows[target]))))
                    break
                if target in on_stack:
                    lowest[node] = min(lowest[node], number[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    first = stack.index(node)
                    circle, stack[first:] = sorted(stack[first:]), []
                    on_stack.difference_update(circle)
                    if len(circle) > 1:
                        yield circle


def _judge(folder, angle, quote):
    """Says what is wrong with one #include of a file under `folder`, or nothing."""
    arrow = ARROWS[folder]
    name = quote or angle
    if name in arrow.never:
        return f"{folder} may not include {name}: {arrow.why_never}; hand the value in from above"
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
    if folder.endswith("/."):
        return os.path.dirname(path) == folder[:-2]
    return path.startswith(folder.rstrip("/") + "/")


def _join(names):
    return ", ".join(names)
