"""TestBuilder: compiles test binaries against a mutant, and runs them with limits.

Every source is compiled once without a mutant, and says which files it read. Against a mutant, only
the sources that read the changed file are compiled again. A changed header lies in a folder, the
overlay, that the compiler searches before the repository.

Thread-safe after prepare(), where every caller brings a work folder of its own.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import time

import test_table

ROOT = test_table.ROOT
# A function that ends without its return does not compile.
FLAGS = ("-std=c++20", "-O1", "-ffp-contract=off", "-Werror=return-type")
COMPILE_CPU_SECONDS = 300
# far_rows_test maps rows that lie beyond 2^32 bytes.
MEMORY_MB = 20000
# A test has this much more than ten times what it takes without a mutant.
CPU_SECONDS_MIN = 20
# The limits bound the processor's time, which a busy machine does not stretch. The clock bounds
# only a process that waits and uses none.
WALL_PER_CPU = 6
# Runs "$@" with at most $1 seconds of the processor's time and $2 KiB of address space.
LIMITED = 'ulimit -S -t "$1"; [ "$2" = 0 ] || ulimit -v "$2"; shift 2; exec "$@"'


class BuildError(Exception):
    """A source does not compile, or a binary does not link."""


@dataclasses.dataclass(frozen=True)
class Result:
    passed: bool
    timed_out: bool
    how: str  # the first case that failed, or why the run ended
    seconds: float


class TestBuilder:
    __test__ = False

    def __init__(self, cxx, folder, memory_mb):
        self._cxx, self._folder, self._memory_kib = list(cxx), pathlib.Path(folder), memory_mb << 10
        self._objects = {}  # (source, is sanitized): (object, the files of ROOT that it read)
        self._cpu_limits = {}
        self._running = set()
        self._stopped = False
        (self._folder / "none").mkdir(parents=True, exist_ok=True)

    def compile_all(self, names, jobs):
        """Compiles the sources of the binaries without a mutant, so many at a time."""
        keys = {(source, test_table.BINARIES[name].sanitized)
                for name in names for source in test_table.BINARIES[name].sources}
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(self._original_of, *key) for key in sorted(keys)]:
                done.result()

    def prepare(self, name):
        """Builds a binary without a mutant and runs it. Its time bounds that of every mutant."""
        self._cpu_limits[name] = 300
        result = self.run(name, None, self._folder / "none", self._folder)
        self._cpu_limits[name] = int(CPU_SECONDS_MIN + 10 * result.seconds)
        return result

    def run(self, name, changed, overlay, work):
        """Builds a binary where the file `changed` is that of the overlay, and runs it."""
        binary = test_table.BINARIES[name]
        objects = [self._object_of(source, binary.sanitized, changed, overlay, work)
                   for source in binary.sources]
        program = work / name
        self._build([*self._flags(binary.sanitized), *map(str, objects), "-o", str(program),
                     *self._packages(binary), *test_table.LIBRARIES])
        # AddressSanitizer reserves more address space than there is memory.
        memory = 0 if binary.sanitized else self._memory_kib
        before = time.monotonic()
        code, output = self._run_limited([str(program), "--abort-after=1"], self._cpu_limits[name],
                                         memory)
        program.unlink(missing_ok=True)
        # Messages of cases that pass name their case too: the last name before the error counts.
        cases = re.findall(r"TEST CASE: +(.*)", output.partition("ERROR:")[0])
        how = cases[-1] if cases else "it never ends" if code is None else f"exit code {code}"
        return Result(code == 0, code is None, f"{name}: {how}", time.monotonic() - before)

    def reads(self, name, path):
        """Does a binary that was prepared depend on the file?"""
        binary = test_table.BINARIES[name]
        return any(path in self._objects[source, binary.sanitized][1] for source in binary.sources)

    def stop(self):
        """Ends what runs now. Calls that wait for it, and later ones, raise KeyboardInterrupt."""
        self._stopped = True
        for process in list(self._running):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def _flags(self, sanitized):
        return [*FLAGS, "-fsanitize=address"] if sanitized else list(FLAGS)

    def _packages(self, binary):
        if not binary.packages:
            return []
        code, output = self._run_limited(["pkg-config", "--libs", *binary.packages], 60, 0)
        if code != 0:
            raise BuildError(f"pkg-config knows nothing of {binary.packages}:\n{output}")
        return output.split()

    def _original_of(self, source, sanitized):
        """The object without a mutant, and the files of ROOT that its source read."""
        key = source, sanitized
        if key not in self._objects:
            stem = source.replace("/", "_") + ("_sanitized" if sanitized else "")
            target, rule = self._folder / f"{stem}.o", self._folder / f"{stem}.d"
            self._compile(source, target, sanitized, self._folder / "none",
                          ("-MD", "-MF", str(rule)))
            self._objects[key] = target, _files_of_rule(rule.read_text())
        return self._objects[key]

    def _object_of(self, source, sanitized, changed, overlay, work):
        target, files = self._original_of(source, sanitized)
        if changed is None or changed not in files:
            return target
        mutated = overlay / source
        target = work / (source.replace("/", "_") + ".o")
        self._compile(str(mutated) if mutated.exists() else source, target, sanitized, overlay)
        return target

    def _compile(self, source, target, sanitized, overlay, more=()):
        self._build([*self._flags(sanitized), "-I", str(overlay), "-I", str(ROOT), *more,
                     "-c", source, "-o", str(target)])

    def _build(self, arguments):
        code, output = self._run_limited([*self._cxx, *arguments], COMPILE_CPU_SECONDS, 0)
        if code != 0:
            raise BuildError(output[:2000] or "the compiler never ends")

    def _run_limited(self, command, cpu_seconds, memory_kib):
        """Exit code and output; no code where it did not end in time."""
        # A ccache that knows headers by name would not see that one now comes from the overlay.
        environment = {**os.environ, "CCACHE_NODIRECT": "1"}
        limited = ["sh", "-c", LIMITED, "sh", str(cpu_seconds), str(memory_kib), *command]
        # A session of its own: a Ctrl-C reaches this program alone, which then ends the others.
        process = subprocess.Popen(limited, cwd=ROOT, env=environment, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._running.add(process)
        try:
            if self._stopped:
                self.stop()
            output, _ = process.communicate(timeout=cpu_seconds * WALL_PER_CPU)
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, code = process.communicate()[0], None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        finally:
            self._running.discard(process)
        if self._stopped:
            raise KeyboardInterrupt
        # Behind a compiler's driver or a launcher, the shell's way of saying it.
        is_late = code in (-signal.SIGXCPU, 128 + signal.SIGXCPU)
        return None if is_late else code, output.decode("utf-8", "replace")


def _files_of_rule(text):
    """The files of ROOT that a dependency rule names, by their paths from ROOT."""
    files = set()
    for word in text.replace("\\\n", " ").partition(":")[2].split():
        path = pathlib.Path(os.path.normpath(ROOT / word))
        if path.is_relative_to(ROOT):
            files.add(str(path.relative_to(ROOT)))
    return files
