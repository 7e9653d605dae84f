"""The Debian package of `cpack`: its dependencies, its service, and a round with what it unpacks."""

import configparser
import os
import pathlib
import re
import shutil
import subprocess

from packages_support import (ANSWER, PACKAGES, PATIENCE_S, SOURCE, PackageTest,
                              compile_readme_engine, is_stripped, main, only,
                              programs_and_libraries, run)
from roots import DebianRoot, package_names


def unit_file(path):
    """The sections of a unit file; keys keep their case, and the last of equal keys counts."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(path)
    return parser


def package_names_of(field):
    return [package_names(part)[0] for part in field.split(", ")]


class DebianCase(PackageTest):
    def setUp(self):
        super().setUp()
        self.package = only(PACKAGES.glob("specd_*.deb"))
        self.root = self.folder / "root"
        run("dpkg-deb", "--raw-extract", self.package, self.root)

    def field(self, name):
        return run("dpkg-deb", "--field", self.package, name).strip()

    def control(self, name):
        return (self.root / "DEBIAN" / name).read_text()


class FilesTest(DebianCase):
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
        # The socket outlives the service, and stands where the daemon looks for it.
        socket = unit.with_name("specd.socket")
        self.assertEqual(unit_file(unit)["Unit"]["Requires"], socket.name)
        self.assertEqual(unit_file(unit)["Install"]["Also"], socket.name)
        self.assertEqual(service["RuntimeDirectoryPreserve"], "yes")
        self.assertEqual(service["Type"], "notify")
        listening = unit_file(socket)["Socket"]
        self.assertEqual(listening["ListenSequentialPacket"],
                         f"/run/{service['RuntimeDirectory']}/specd.sock")
        self.assertEqual((listening["SocketUser"], listening["SocketMode"]), (service["User"], "0660"))
        self.assertEqual(unit_file(unit).sections(), ["Unit", "Service", "Install"])
        self.assertEqual(service["RuntimeDirectory"], "specd")
        self.assertEqual(service["Restart"], "on-failure")
        user = (self.root / "usr/lib/sysusers.d/specd.conf").read_text().split()
        self.assertEqual(user[:2], ["u", service["User"]])
        program, flags = service["ExecStart"].split()
        flags = flags.partition("--flagfile=")[2]
        for path in (program, flags):
            self.assertTrue((self.root / path.lstrip("/")).is_file(), path)
        http = unit_file(unit.with_name("specd-http.service"))["Service"]
        self.assertEqual((http["User"], http["Group"]), (service["User"], service["Group"]))
        http_program, http_flags = http["ExecStart"].split()
        http_flags = http_flags.partition("--flagfile=")[2]
        for path in (http_program, http_flags):
            self.assertTrue((self.root / path.lstrip("/")).is_file(), path)
        self.assertEqual(self.control("conffiles").split(), [flags, http_flags])
        # What breaks CUDA or the sharing of a device.
        for name in ("PrivateDevices", "PrivateTmp", "MemoryDenyWriteExecute", "PrivateNetwork",
                     "DevicePolicy", "PrivateUsers"):
            self.assertNotIn(name, service)
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed: only the text was checked")
        here = self.folder / "specd.service"
        here.write_text(unit.read_text().replace(f"={program} ", f"={self.root}{program} "))
        shutil.copy(socket, self.folder)
        over_http = self.folder / "specd-http.service"
        over_http.write_text(unit.with_name(over_http.name).read_text().replace(
            f"={http_program} ", f"={self.root}{http_program} "))
        done = subprocess.run(["systemd-analyze", "verify", here, self.folder / "specd.socket", over_http],
                              capture_output=True, text=True, check=False, timeout=PATIENCE_S)
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
                ("prerm", "remove", ["systemctl disable --now specd-http.service specd.service specd.socket"], []),
                ("prerm", "upgrade", [], []),
                ("postrm", "remove", ["systemctl daemon-reload"], [])):
            said = run("/bin/sh", self.root / "DEBIAN" / name, word, env={"PATH": str(programs)})
            self.assertEqual(said.splitlines(), always + (asks if runs else []), name)
            self.assertTrue(os.access(self.root / "DEBIAN" / name, os.X_OK), name)
        if not runs:  # an image has neither program
            run("/bin/sh", self.root / "DEBIAN/postinst", "configure", env={"PATH": str(self.folder)})


class RootTest(DebianCase):
    """In a bare Debian."""

    def test_it_is_installed_and_verifies_rounds(self):
        """dpkg takes it once the packages that it depends on are there. Only these can be missing for the daemon."""
        root = DebianRoot(self.folder / "debian")
        self.need(root)
        dpkg = root.outside("dpkg", "--root", root.folder)
        depends = package_names_of(self.field("Depends"))
        refused = subprocess.run([*dpkg, "--install", self.package], capture_output=True, text=True,
                                 check=False, timeout=PATIENCE_S)
        self.assertNotEqual(refused.returncode, 0)
        missing = re.findall(r"^ specd depends on ([^ ;]+)", refused.stderr, re.MULTILINE)
        self.assertEqual(set(missing), set(depends) - root.names)
        root.add(*depends)
        run(*dpkg, "--configure", "specd")
        self.assertIn("libspecd.so.0", run(*root.command("ldconfig", "-p")))  # by the trigger

        engine, _ = compile_readme_engine(self.folder, root.folder / "usr/lib", "/usr/lib")
        engine.rename(root.folder / "engine")
        program = ("/usr/bin/specd", "--flagfile=/etc/specd/specd.flags")  # as in the service
        uri = "unix:/run/specd/specd.sock"
        daemon = self.start_words(root.command(*program))
        self.wait_for_daemon(daemon)
        for place in (uri, "embedded:cpu"):
            self.assertEqual(run(*root.command("/engine", place)), ANSWER)
        self.stop(daemon)
        root.add(*package_names_of(self.field("Recommends")))
        self.check_python_rounds("/usr/bin/python3", program, uri, root.command)

        self.assertTrue([*root.folder.glob("usr/lib/*specd*")])
        run(*dpkg, "--purge", "specd")
        self.assertEqual([*root.folder.glob("usr/**/*specd*"), *root.folder.glob("etc/*specd*")], [])


if __name__ == "__main__":
    main()
