"""The wheel of ipc/python, which `pip wheel` has made: its files, and rounds where only the wheel is installed."""

import base64
import csv
import hashlib
import os
import re
import shutil
import zipfile

from packages_support import PACKAGES, PackageTest, main, only, programs_and_libraries, run
from roots import DebianRoot


class WheelTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.wheel = only(PACKAGES.glob("*.whl"))

    def check_installed(self, environment, uri, command=lambda *words: words):
        """Both programs run, and rounds are verified; `command` makes words a command in the test's environment."""
        python, daemon, detokenizer = (f"{environment}/bin/{name}" for name in ("python", "specd", "specd-detok"))
        code = "import specd; print(specd.version(), specd._library.load()._name)"
        version, library = run(*command(python, "-B", "-c", code)).split()
        self.assertRegex(library, rf"^{environment}/lib/python[\d.]+/site-packages/specd/lib/libspecd\.so\.0$")
        for program in (daemon, detokenizer, f"{environment}/bin/specctl", f"{environment}/bin/specd-http"):
            self.assertIn(version, run(*command(program, "--version")))
        self.check_python_rounds(python, (daemon, f"--listen={uri}", "--detokenizer=off"), uri, command)

    def test_files(self):
        self.check_size(self.wheel)
        self.check_record()
        with zipfile.ZipFile(self.wheel) as archive:
            archive.extractall(self.folder)
        package = self.folder / "specd"
        self.check_self_contained(package)
        self.check_glibc(package)

    def test_bare_debian(self):
        """With Python and numpy of Debian and no library that the build has from elsewhere."""
        # apt depends on libstdc++6, so that no Debian lacks it.
        root = DebianRoot(self.folder / "root", "python3-venv", "python3-numpy", "libstdc++6")
        self.need(root)
        shutil.copy(self.wheel, root.folder / "tmp")
        run(*root.command("python3", "-m", "venv", "--system-site-packages", "/opt/venv"))
        run(*root.command("/opt/venv/bin/pip", "install", "--no-index", f"/tmp/{self.wheel.name}"))
        self.check_installed("/opt/venv", "unix:/run/specd/specd.sock", root.command)

    def test_other_python(self):
        """With a Python of another version, and with the numpy that the package index has for that one."""
        named = os.environ.get("SPECD_OTHER_PYTHON")
        python = named or shutil.which("python3.12") or "python3.12"
        environment = self.folder / "venv"
        # With this machine's environment, which may name a mirror of the index.
        ways = {"env": os.environ, "cwd": self.folder}
        # SPECD_OTHER_PYTHON promises a Python that works, and an index. A guessed one may do without.
        unless_named = () if named else (OSError, AssertionError)
        try:
            run(python, "-m", "venv", environment, **ways)
        except unless_named:
            self.skipTest(f"{python} makes no virtual environment here; SPECD_OTHER_PYTHON may name a Python")
        pip = (environment / "bin/pip", "install", "--quiet")
        try:
            run(*pip, "--only-binary=:all:", "numpy", **ways)
        except unless_named as error:
            self.skipTest(f"the package index gave no numpy: {error}")
        run(*pip, "--no-index", self.wheel)
        self.check_installed(environment, f"unix:{self.socket}")
        code = "import platform, numpy; print('Python', platform.python_version(), 'numpy', numpy.__version__)"
        print(run(environment / "bin/python", "-c", code))

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
    main()
