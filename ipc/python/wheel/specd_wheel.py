"""specd_wheel: makes the wheel of the Python package, for pip (PEP 517).

The wheel is the package with libspecd, the daemon, the detokenizer, specctl, specd-http, and the libraries that these need:

    specd/*.py         the package
    specd/lib          libspecd, where the package looks first
    specd/lib/specd    libraries of others
    specd/bin          the programs, which the commands `specd`, `specd-detok`, `specctl` and `specd-http` become

CMake builds and installs them (component specd_wheel of tools/cmake/SpecdPackages.cmake); this file packs
them. Python's standard library is enough. Setting of pip:

    --config-settings=build-dir=FOLDER   take this finished build as it is. Without it the preset
                                         `package` is configured and built in build/package.
"""

import base64
import hashlib
import io
import os
import pathlib
import platform
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
TARGETS = ("specd", "specd_daemon", "specd_detok", "specctl", "specd_http")


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = pathlib.Path(metadata_directory, dist_info())
    folder.mkdir()
    for name, text in descriptions().items():
        (folder / name).write_text(text)
    return folder.name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = dict(config_settings or {})
    build = settings.pop("build-dir", None)
    if settings:
        sys.exit(f"error: --config-settings: {', '.join(settings)} is unknown; build-dir=FOLDER is the only one")
    wheel = Wheel(pathlib.Path(wheel_directory, f"specd-{version()}-{tag()}.whl"))
    with tempfile.TemporaryDirectory() as folder:
        staged = pathlib.Path(folder)
        install(finished_build(build), staged)
        wheel.add_tree(PACKAGE / "specd", "specd", suffixes=(".py", ".pyi", ".typed"))
        for part in ("lib", "bin"):
            wheel.add_tree(staged / part, f"specd/{part}")
        wheel.add_tree(staged / "licences", f"{dist_info()}/licenses")
    wheel.add(f"{dist_info()}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes())
    for name, text in descriptions().items():
        wheel.add(f"{dist_info()}/{name}", text.encode())
    wheel.close()
    return wheel.path.name


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("error: a source package of ipc/python would lack the C++ of the library; "
             "make a wheel from the repository: pip wheel ipc/python")


def finished_build(build):
    """The folder of the build that is asked for, or that of the preset `package`, built now."""
    if build is None:
        command("cmake", "--preset", "package")
        command("cmake", "--build", "--preset", "package", "--target", *TARGETS)
        return ROOT / "build/package"
    if not (ROOT / build / "CMakeCache.txt").is_file():
        sys.exit(f"error: build-dir = {build} is no folder that CMake has configured; leave it out, and the preset "
                 "`package` is built")
    return ROOT / build


def install(build, folder):
    command("cmake", "--install", build, "--component", "specd_wheel", "--strip", "--prefix", folder)


def command(*words):
    done = subprocess.run([str(word) for word in words], cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, words))} failed; ./tools/setup installs what a build needs")


def version():
    """The version of the library: the package has no other."""
    return re.search(r"^project\(specd VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def tag():
    """The wheel runs where glibc is as new as here; the bundled libraries make it independent of the rest."""
    name, number = os.confstr("CS_GNU_LIBC_VERSION").split()
    if name != "glibc":
        sys.exit(f"error: the C library here is {name}; build the wheel on a system with glibc")
    major, minor = number.split(".")[:2]
    return f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"


def dist_info():
    return f"specd-{version()}.dist-info"


def descriptions():
    """The texts of the folder dist-info, from pyproject.toml."""
    try:
        import tomllib
    except ImportError:
        sys.exit("error: to make the wheel takes Python 3.11 or newer (tomllib); the wheel runs on 3.10 too")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {version()}",
        f"Summary: {project['description']}",
        f"License: {project['license']['text']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {name}" for name in project["dependencies"])]
    for extra, names in project["optional-dependencies"].items():
        metadata.append(f"Provides-Extra: {extra}")
        metadata += [f'Requires-Dist: {name}; extra == "{extra}"' for name in names]
    metadata += ["Description-Content-Type: text/markdown", "", (PACKAGE / project["readme"]).read_text()]
    wheel = ["Wheel-Version: 1.0", "Generator: specd_wheel", "Root-Is-Purelib: false", f"Tag: {tag()}", ""]
    points = []
    for group, items in {"console_scripts": project["scripts"], **project["entry-points"]}.items():
        points += [f"[{group}]", *(f"{name} = {place}" for name, place in items.items()), ""]
    return {"METADATA": "\n".join(metadata), "WHEEL": "\n".join(wheel), "entry_points.txt": "\n".join(points)}


class Wheel:
    """A zip file with a record of its files' hashes. Equal contents give an equal file."""

    def __init__(self, path):
        self.path = path
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record = io.StringIO()

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name)  # of 1980, as every entry
        entry.external_attr = (stat.S_IFREG | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.write(f"{name},sha256={digest},{len(data)}\n")

    def add_tree(self, folder, name, suffixes=("",)):
        """A wheel has no links: a library is stored once, under the name by which it is loaded."""
        links = [path for path in folder.rglob("*") if path.is_symlink()]
        loaded = {path.resolve() for path in links}
        for path in sorted(folder.rglob("*")):
            if path.is_dir() or path in loaded or not path.name.endswith(suffixes):
                continue
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            self.add(f"{name}/{path.relative_to(folder)}", path.read_bytes(), mode)

    def close(self):
        record = f"{dist_info()}/RECORD"
        self._zip.writestr(zipfile.ZipInfo(record), self._record.getvalue() + f"{record},,\n")
        self._zip.close()
