"""The Debian package of `cpack`: its dependencies, its service, and a round with what it unpacks."""

import configparser
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from packages_support import (ANSWER, PACKAGES, PATH, PATIENCE_S, SOURCE,
                              PackageTest, compile_readme_engine, is_stripped, only,
                              programs_and_libraries, readme_block, run)


def unit_file(path):
    """The sections of a unit file; keys keep their case, and the last of equal keys counts."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser


class DebianTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.package = only(PACKAGES.glob("specd_*.deb"))
        self.root = self.folder / "root"
        run("dpkg-deb", "--raw-extract", self.package, self.root)

    def field(self, name):
        return run("dpkg-deb", "--field", self.package, name).strip()

    def control(self, name):
        return (self.root / "DEBIAN" / name).read_text()

    def test_it_is_small_and_names_itself(self):
        self.check_size(self.package)
        version = re.search(r"project\(specd VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        self.assertEqual(self.field("Package"), "specd")
        self.assertEqual(self.field("Version"), version)
        self.assertEqual(self.field("Architecture"), run("dpkg", "--print-architecture").strip())
        self.assertTrue(self.field("Description"))

    def test_it_depends_on_the_packages_of_what_its_files_need(self):
        needed = set()
        for path in programs_and_libraries(self.root):
            self.assertTrue(is_stripped(path), path)
            dynamic = run("readelf", "--dynamic", "--wide", path)
            needed.update(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        owners = set()
        for name in needed - {"libspecd.so.0"}:
            found = run("dpkg-query", "--search", f"*-linux-gnu/{name}")
            owners.add(only({line.partition(":")[0] for line in found.splitlines()}))
        # spdlog names the package of its ABI, which libspdlog1.10 provides.
        depends = {re.sub(r"-fmt\d+$", "", part.split()[0])
                   for part in self.field("Depends").split(", ")}
        self.assertGreater(len(owners), 5)
        self.assertEqual(depends, owners)

    def test_its_service_is_one_that_systemd_takes(self):
        unit = self.root / "usr/lib/systemd/system/specd.service"
        service = unit_file(unit)["Service"]
        self.assertEqual(unit_file(unit).sections(), ["Unit", "Service", "Install"])
        self.assertEqual(service["RuntimeDirectory"], "specd")
        self.assertEqual(service["Restart"], "on-failure")
        user = (self.root / "usr/lib/sysusers.d/specd.conf").read_text().split()
        self.assertEqual(user[:2], ["u", service["User"]])
        program, flags = service["ExecStart"].split()
        flags = flags.partition("--flagfile=")[2]
        for path in (program, flags):
            self.assertTrue((self.root / path.lstrip("/")).is_file(), path)
        self.assertEqual(self.control("conffiles").split(), [flags])
        # What breaks CUDA or the sharing of a device.
        for name in ("PrivateDevices", "PrivateTmp", "MemoryDenyWriteExecute", "PrivateNetwork",
                     "DevicePolicy", "PrivateUsers"):
            self.assertNotIn(name, service)
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed: only the text was checked")
        here = self.folder / "specd.service"
        here.write_text(unit.read_text().replace(f"={program} ", f"={self.root}{program} "))
        done = subprocess.run(["systemd-analyze", "verify", here], capture_output=True, text=True,
                              check=False, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_its_scripts_make_the_user_and_ask_systemd_only_where_it_runs(self):
        programs = self.folder / "programs"  # say how they are called, and do nothing
        programs.mkdir()
        for name in ("systemctl", "systemd-sysusers"):
            (programs / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
            (programs / name).chmod(0o755)
        runs = pathlib.Path("/run/systemd/system").is_dir()
        for name, word, asks, always in (
                ("postinst", "configure", ["systemctl daemon-reload"], ["systemd-sysusers specd.conf"]),
                ("prerm", "remove", ["systemctl disable --now specd.service"], []),
                ("prerm", "upgrade", [], []),
                ("postrm", "remove", ["systemctl daemon-reload"], [])):
            said = run("/bin/sh", self.root / "DEBIAN" / name, word, env={"PATH": str(programs)})
            self.assertEqual(said.splitlines(), always + (asks if runs else []), name)
            self.assertTrue(os.access(self.root / "DEBIAN" / name, os.X_OK), name)
        if not runs:  # an image has neither program
            run("/bin/sh", self.root / "DEBIAN/postinst", "configure", env={"PATH": str(self.folder)})

    def test_a_daemon_with_its_flags_verifies_a_round(self):
        engine, _ = compile_readme_engine(self.folder, self.root / "usr/lib", self.root / "usr/lib")
        self.daemon_of_package()
        for uri in (f"unix:{self.socket}", "embedded:cpu"):
            self.assertEqual(run(engine, uri), ANSWER)

    @unittest.skipUnless(os.environ.get("SPECD_ORACLE_PYTHON"), "no Python with numpy: run tools/test")
    def test_python_finds_the_package_and_its_library(self):
        self.daemon_of_package()
        code = readme_block(SOURCE / "README.md", "python", "specd.Engine")
        self.assertIn("embedded:cpu", code)
        code = code.replace("embedded:cpu", f"unix:{self.socket}")
        modules = self.root / "usr/lib/python3/dist-packages"
        said = run(os.environ["SPECD_ORACLE_PYTHON"], "-B", "-c", code,
                   env={"PATH": PATH, "PYTHONPATH": str(modules)})
        self.assertEqual(said, ANSWER)

    def daemon_of_package(self):
        flags = self.root / "etc/specd/specd.flags"
        daemon = self.start(pathlib.Path("/usr/bin/env"), "-i", self.root / "usr/bin/specd",
                            f"--flagfile={flags}", f"--listen=unix:{self.socket}")
        self.wait_for_daemon(daemon)


if __name__ == "__main__":
    unittest.main()
