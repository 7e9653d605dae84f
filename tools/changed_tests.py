#!/usr/bin/env python3
"""changed_tests: names what tests/ has for a change, for tools/test --changed.

  changed_tests.py targets BUILD     the programs and libraries to build, one a line
  changed_tests.py tests BUILD       the numbers of tests for ctest -I, and on stderr what is left out

The change is the difference from the merge base with main, origin's if there is one, with what is not
committed and not tracked. A program is touched if ninja's log of dependencies says that one of its
objects read a changed file. A changed file that a program does not compile touches the tests that say
its name in a string: documents, data, scripts. A CMakeLists.txt stands for the sources of its folder.

No list says which programs a script runs. So a change to a program in bin/, or to a library, touches
every test that is a script. The touched tests take BUDGET_S of processor time at most, by the
times of their last runs: first those of touched programs, then the shortest.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUDGET_S = 240
UNKNOWN_S = 0.1  # what a test takes that has not run: most are cases of a program
CODE = (".cc", ".h", ".cu", ".cuh", ".inc", ".c")


def output_of(*command, folder=ROOT):
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def changed_files(root=ROOT):
    """The paths that differ from the merge base with main, as git names them."""
    known = output_of("git", "for-each-ref", "--format=%(refname:short)", folder=root).split()
    main = next((name for name in ("origin/main", "main") if name in known), "HEAD")
    base = output_of("git", "merge-base", "HEAD", main, folder=root).strip()
    return sorted({*output_of("git", "diff", "--name-only", "--no-renames", base, folder=root).splitlines(),
                   *output_of("git", "ls-files", "--others", "--exclude-standard", folder=root).splitlines()})


def readers_of(changed, texts):
    """The files of `texts`, {path: text}, that name a changed file, or a folder with it, in a string, or
    import it; and the files that name those."""
    found, waiting = set(), [path for path in changed if not path.endswith(CODE)]
    while waiting:
        path = pathlib.PurePosixPath(waiting.pop())
        # A short name without an ending is a common word.
        names = [re.escape(name) for name in (
            str(path), *[str(path.parent)] * (len(path.parts) > 2 and path.suffix != ".py"), *[path.name] * ("." in path.name))
            if name not in ("README.md", "CMakeLists.txt")]
        said = re.compile(rf"""["'/}}(](?:{'|'.join(names) or '(?!)'})["'/)\s]""")
        imported = re.compile(rf"^\s*(?:import|from) {re.escape(path.stem)}\b", re.M)
        for reader, text in texts.items():
            if reader in found or reader == str(path):
                continue
            if said.search(re.sub(r"(^|\s)(//|#) .*", "", text)) or path.suffix == ".py" and imported.search(text):
                found.add(reader)
                if reader.endswith((".py", ".sh")):
                    waiting.append(reader)
    return found


def touched_objects(changed, dependencies):
    """The objects of `dependencies`, {object: {path}}, that read a changed file."""
    folders = [path.removesuffix("CMakeLists.txt") for path in changed
               if path.endswith("/CMakeLists.txt")]
    return {name for name, paths in dependencies.items()
            if not paths.isdisjoint(changed) or any(path.startswith(folder) for path in paths for folder in folders)}


def dependencies_of(build):
    """What each object read when it was compiled, and what it will read of files that are new."""
    found, name = {}, ""
    for line in output_of("ninja", "-C", str(build), "-t", "deps").splitlines():
        if line.startswith("    "):
            path = pathlib.Path(build, line.strip())
            if ".." in line or line.strip().startswith(str(ROOT)):
                found[name].add(str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else "")
        elif ": #deps" in line:
            name = line.split(": #deps")[0]
            found[name] = set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        paths = found.setdefault(re.search(r" -o (\S+)", entry["command"])[1], set())
        if source.is_relative_to(ROOT):
            paths.add(str(source.relative_to(ROOT)))
        if source.parent.name == "together":
            paths.update(re.findall(r'#include "(.*)"', source.read_text()))
    return found


def edges_of(ninja_text):
    """The rule and the inputs of each first output of a build.ninja."""
    found = {}
    for outputs, rule, inputs in re.findall(r"^build (.*?): (\S+)(.*)$", ninja_text.replace("$\n", ""), re.M):
        found[outputs.split(" ")[0]] = (rule, [name for name in inputs.split() if not name.startswith("|")])
    return found


def touched_programs(edges, objects):
    """The programs and shared libraries that take one of the objects, or another touched program."""
    known = {}

    def is_touched(name):
        if name not in known:
            known[name] = name in objects
            known[name] = known[name] or any([is_touched(each) for each in edges.get(name, ("", []))[1]
                                              if not each.endswith(".o") or each in objects])
        return known[name]
    return {name for name, (rule, _) in edges.items()
            if re.match(r"(C|CXX|CUDA)_(EXECUTABLE|SHARED_LIBRARY)_LINKER", rule) and is_touched(name)}


def seconds_of(build):
    """The processor time of each test, by its last runs. ctest loses the times of names with blanks."""
    costs = build / "Testing/Temporary/CTestCostData.txt"
    lines = costs.read_text().split("---")[0].splitlines() if costs.exists() else []
    return {line.rsplit(" ", 2)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def choose(tests, seconds, budget_s=BUDGET_S):
    """The names of `tests`, {name: is of a touched program}, that fit into the budget, and the others."""
    chosen, left = [], []
    for name in sorted(tests, key=lambda name: (not tests[name], seconds.get(name, UNKNOWN_S))):
        budget_s -= seconds.get(name, UNKNOWN_S)
        (chosen if budget_s >= 0 else left).append(name)
    return chosen, left


def print_tests(build, changed, readers, programs):
    preset = build.name
    numbers = dict(reversed(found) for found in
                   re.findall(r"^ *Test +#(\d+): (.*)$", output_of("ctest", "--preset", preset, "-N"), re.M))
    touched, style = {}, []
    runs = any("/" not in name.removeprefix("bin/") or name.endswith(".so") for name in programs)
    for test in json.loads(output_of("ctest", "--preset", preset, "--show-only=json-v1"))["tests"]:
        command = [pathlib.Path(word) for word in test.get("command", [])]
        inside = {str(path.relative_to(build)) for path in command if path.is_relative_to(build)}
        scripts = {str(path.relative_to(ROOT)) for path in command if path.is_relative_to(ROOT)}
        labels = [value for each in test["properties"] if each["name"] == "LABELS" for value in each["value"]]
        if "style" in labels:
            style.append(test["name"])
        elif not inside.isdisjoint(programs) or not scripts.isdisjoint([*changed, *readers]):
            touched[test["name"]] = True
        elif runs and any(path.endswith(".py") for path in scripts):
            touched[test["name"]] = False
    chosen, left = choose(touched, seconds_of(build))
    print("0,0,0," + ",".join(numbers[name] for name in [*style, *chosen] if name in numbers))
    print(f"{len(changed)} files changed, {len(programs)} programs touched; {len(style) + len(chosen)} tests",
          file=sys.stderr)
    if any(path.startswith("tools/cmake/") or path in ("CMakeLists.txt", "CMakePresets.json") for path in changed):
        print("left out: what the build's own files change; run tools/test without --changed", file=sys.stderr)
    if left:
        print(f"left out, for they take longer than {BUDGET_S} s with the others:", *left, sep="\n  ", file=sys.stderr)
    print("left out: the presets of sanitizers, and what no touched program or name leads to", file=sys.stderr)


def main(arguments):
    if len(arguments) != 2 or arguments[0] not in ("targets", "tests"):
        print(__doc__, file=sys.stderr)
        return 2
    build = pathlib.Path(arguments[1]).resolve()
    changed = changed_files()
    paths = output_of("git", "ls-files", "-co", "--exclude-standard", "tests", "tools").splitlines()
    texts = {path: (ROOT / path).read_text(errors="replace") for path in paths
             if path.endswith((".py", ".sh", ".cc")[:2 if path.startswith("tools/") else 3] + ("CMakeLists.txt",)) and (ROOT / path).exists()}
    readers = readers_of(changed, texts)
    objects = touched_objects({*changed, *readers}, dependencies_of(build))
    programs = touched_programs(edges_of((build / "build.ninja").read_text()), objects)
    if arguments[0] == "targets":
        print(*sorted(programs), sep="\n")
    else:
        print_tests(build, changed, readers, programs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
