"""Folders that are / for the programs run in them. They have what a test asks for and nothing else of this machine."""

import os
import pathlib
import re
import shutil
import subprocess

from packages_support import OF_SYSTEM, PATH, PATIENCE_S, found_libraries, run


class Root:
    """An empty folder that is / for the programs run in it.

    Where the system allows no such thing, to neither root nor a user namespace, `enter` is None.
    """

    # Of this machine; $ORIGIN of a program is found by /proc.
    mounts = ("proc",)

    def __init__(self, folder):
        self.folder = folder
        for name in (*self.mounts, "tmp", "run/specd"):
            (folder / name).mkdir(parents=True)
        self.enter = next((way for way in (["unshare", "--mount"], ["unshare", "-r", "--mount"])
                           if self._works(way)), None)

    def command(self, *words):
        """The command that runs a program in the root."""
        return self.outside("chroot", self.folder, *words)

    def outside(self, *words):
        """The command that runs a program of this machine, which sees the mounts of the root."""
        script = "".join(f'mount --rbind /{name} "$0/{name}" && ' for name in self.mounts)
        return ["/usr/bin/env", "-i", f"PATH={PATH}", "HOME=/tmp", *self.enter, "sh", "-c",
                f'{script}exec "$@"', *map(str, (self.folder, *words))]

    def _works(self, way):
        self.enter = way
        done = subprocess.run(self.outside("chroot", "/", "true"), capture_output=True, check=False,
                              timeout=PATIENCE_S)
        return done.returncode == 0


class EmptyRoot(Root):
    """A root that has glibc, libstdc++ and what a test puts there."""

    def __init__(self, folder):
        super().__init__(folder)
        loader = pathlib.Path(re.search(r"interpreter: (\S+)\]", run("readelf", "-l", "/bin/sh"))[1])
        self._copy(loader, loader)
        libc = next(place for name, place in found_libraries("/bin/sh") if name.startswith("libc."))
        cxx = run("cc", "-print-file-name=libstdc++.so.6").strip()
        for library in [*pathlib.Path(libc).parent.glob("lib*.so.*"), pathlib.Path(cxx)]:
            if OF_SYSTEM.fullmatch(library.name.partition(".so")[0]):
                self._copy(library, pathlib.Path("/lib", library.name))

    def _copy(self, source, place):
        target = self.folder / str(place).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class DebianRoot(Root):
    """A bare Debian, of its essential packages, with the packages that a test names and those that they depend on.

    This machine has them installed, and their files are copied: no archive is asked. The root's own
    database names them, so `dpkg --root` compares a new package's dependencies with them alone.
    """

    mounts = ("proc", "dev")
    _DATABASE = pathlib.Path("/var/lib/dpkg")
    # As in Debian's slim images.
    _LEFT_OUT = re.compile(r"/usr/share/(doc|man|info|locale|lintian|bug|i18n)/.")

    def __init__(self, folder, *names):
        super().__init__(folder)
        for part in ("info", "updates", "alternatives"):
            (folder / "var/lib/dpkg" / part).mkdir(parents=True)
        for part in ("etc/alternatives", "var/log"):
            (folder / part).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            if pathlib.Path("/", name).is_symlink():
                (folder / name).symlink_to(os.readlink(f"/{name}"))
                (folder / name).resolve().mkdir(parents=True, exist_ok=True)
        shutil.copy(self._DATABASE / "info/format", folder / "var/lib/dpkg/info")
        self._installed = installed_packages()
        self._status = folder / "var/lib/dpkg/status"
        self._status.write_text("")
        self.names = set()
        self.add(*(name for name, package in self._installed.items() if package.get("Essential") == "yes"), *names)
        shutil.copytree(self._DATABASE / "triggers", folder / "var/lib/dpkg/triggers",
                        ignore=lambda _, files: set(files) - {"ldconfig"})

    def add(self, *names):
        """Adds packages and what they depend on. The first installed one of alternatives counts, as for apt."""
        added = []
        for name in names:
            self._close(name, added)
        with self._status.open("a") as status:
            for package in added:
                status.write(package["text"] + "\n\n")
        for package in added:
            self._copy_package(package)
        self._choose_alternatives()

    def _close(self, name, added):
        if name not in self._installed:
            raise AssertionError(f"Debian's package {name} is not installed here: run tools/setup")
        package = self._installed[name]
        if package["Package"] in self.names:
            return
        self.names.add(package["Package"])
        added.append(package)
        for field in ("Pre-Depends", "Depends"):
            for part in filter(None, package.get(field, "").split(", ")):
                names = package_names(part)
                self._close(next((name for name in names if name in self._installed), names[0]), added)

    def _copy_package(self, package):
        name = package["Package"]
        if package.get("Multi-Arch") == "same":
            name += f":{package['Architecture']}"
        database = self.folder / "var/lib/dpkg/info"
        for path in (self._DATABASE / "info").glob(f"{name}.*"):
            if path.stem == name:
                shutil.copy(path, database)
        for line in (self._DATABASE / "info" / f"{name}.list").read_text().splitlines():
            source, target = pathlib.Path(line), self.folder / line.lstrip("/")
            if self._LEFT_OUT.match(line) or not os.path.lexists(source) or os.path.lexists(target):
                continue
            if source.is_dir() and not source.is_symlink():
                target.mkdir()
            else:
                shutil.copy2(source, target, follow_symlinks=False)

    def _choose_alternatives(self):
        """Lets update-alternatives choose among the files that are in the root."""
        for path in (self._DATABASE / "alternatives").iterdir():
            target = self.folder / path.relative_to("/")
            lines = path.read_text().splitlines()
            if not target.exists() and any(line.startswith("/") and (self.folder / line[1:]).exists()
                                           for line in lines[2:]):
                shutil.copy(path, target)
                run("update-alternatives", "--root", self.folder, "--quiet", "--auto", path.name)


def installed_packages():
    """The installed packages of this machine's architecture: their fields, by each name that they have or provide."""
    architecture, found, provided = run("dpkg", "--print-architecture").strip(), {}, {}
    for text in pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", text, re.MULTILINE))
        if (not fields.get("Status", "").endswith(" ok installed")
                or fields["Architecture"] not in (architecture, "all")):
            continue
        found[fields["Package"]] = {**fields, "text": text.strip()}
        for part in filter(None, fields.get("Provides", "").split(", ")):
            provided.setdefault(package_names(part)[0], found[fields["Package"]])
    return {**provided, **found}


def package_names(part):
    """The names of one dependency, without versions and architectures: "a (>= 1) | b:any" gives a and b."""
    return [re.match(r"[\w.+-]+", name.strip())[0] for name in part.split("|")]
