"""The wheel of ipc/python: `pip wheel` makes it, a fresh virtual environment installs it without an index, and rounds run.

It runs in the oracles' virtual environment, which has the numpy that the fresh one borrows.
"""

import base64
import csv
import hashlib
import os
import pathlib
import re
import sys
import unittest
import zipfile

import numpy

from packages_support import (ANSWER, PATH, SOURCE, PackageTest, only,
                              programs_and_libraries, readme_block, run)

BUILD = os.environ["SPECD_BUILD"]
BASE_PYTHON = pathlib.Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")


class WheelTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.environment = self.folder / "venv"
        self.python = self.environment / "bin/python"
        run(BASE_PYTHON, "-m", "venv", self.environment)
        self.packages = only(self.environment.glob("lib/python*/site-packages"))
        self.wheel = self.make_wheel()

    def isolated(self, *command):
        """Runs a command that sees nothing but its own folder and the system's programs."""
        return run(*command, cwd=self.folder, env={
            "PATH": PATH, "HOME": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"})

    def make_wheel(self):
        self.isolated(self.python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", self.folder,
                      f"--config-settings=build-dir={BUILD}", SOURCE / "ipc/python")
        return only(self.folder.glob("*.whl"))

    def install(self):
        # As if numpy had been installed: the wheel's dependency is met, and no index is asked.
        for part in pathlib.Path(numpy.__path__[0]).parent.glob("numpy*"):
            (self.packages / part.name).symlink_to(part)
        self.isolated(self.python, "-m", "pip", "install", self.wheel)

    def test_it_installs_without_an_index_and_verifies_rounds(self):
        self.check_size(self.wheel)
        self.check_record()
        self.install()
        package = self.packages / "specd"
        self.check_self_contained(package)
        self.check_glibc(package)

        code = readme_block(SOURCE / "README.md", "python", "specd.Engine")
        self.assertIn("embedded:cpu", code)
        self.assertEqual(self.isolated(self.python, "-c", code), ANSWER)
        # The library is the wheel's own.
        code = "import specd._library; print(specd._library.load()._name)"
        self.assertEqual(self.isolated(self.python, "-c", code), f"{package}/lib/libspecd.so.0\n")

        for name in ("specd", "specd-detok"):
            said = self.isolated(self.environment / "bin" / name, "--version")
            self.assertIn(self.isolated(self.python, "-c", "import specd; print(specd.version())")
                          .strip(), said)
        daemon = self.start(self.environment / "bin/specd", f"--listen=unix:{self.socket}",
                            "--detokenizer=off", env={"PATH": PATH})
        self.wait_for_daemon(daemon)
        code = readme_block(SOURCE / "README.md", "python", "specd.Engine")
        code = code.replace("embedded:cpu", f"unix:{self.socket}")
        self.assertEqual(self.isolated(self.python, "-c", code), ANSWER)
        self.stop(daemon)

    def check_record(self):
        """Every file is in the record with its hash, and the record has no other."""
        with zipfile.ZipFile(self.wheel) as archive:
            record = only(name for name in archive.namelist() if name.endswith("/RECORD"))
            rows = {name: digest for name, digest, _ in csv.reader(archive.read(record).decode().splitlines())}
            self.assertEqual(set(rows), set(archive.namelist()))
            for name in set(rows) - {record}:
                digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest())
                self.assertEqual(rows[name], f"sha256={digest.rstrip(b'=').decode()}", name)

    def check_glibc(self, package):
        """No file asks for a newer glibc than the wheel's name says."""
        major, minor = re.search(r"-py3-none-manylinux_(\d+)_(\d+)_", self.wheel.name).groups()
        asked = set()
        for path in programs_and_libraries(package):
            asked.update(re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "--version-info", "--wide", path)))
        self.assertLessEqual(max((int(a), int(b)) for a, b in asked), (int(major), int(minor)))


if __name__ == "__main__":
    unittest.main()
