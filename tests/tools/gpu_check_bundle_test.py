"""The bundle of tools/gpu_check, made from a build with CUDA."""

import os
import pathlib
import re
import subprocess
import unittest

from gpu_check_support import FACTS, PATIENCE_S, SOURCE, GpuCheckTest

BUILD = os.environ["SPECD_BUILD"]
# The libraries that a bundle may ask of the machine: glibc, from its dynamic linker to its maths.
GLIBC = {"ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0",
         "libresolv.so.2", "librt.so.1"}


class BundleTest(GpuCheckTest):
    """The real bundle, made from this build, moved, and run in an empty environment."""

    def setUp(self):
        super().setUp()
        made = self.folder / "made.tar.gz"
        subprocess.run([SOURCE / "tools/gpu_check/make", "--build", BUILD, made], check=True,
                       stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        subprocess.run(["tar", "-C", self.folder, "-xzf", made], check=True, timeout=PATIENCE_S)

    def binaries(self):
        return [file for folder in ("bin", "lib") for file in (self.bundle / folder).iterdir()
                if file.is_file()]

    def output_of(self, *command):
        return subprocess.run(command, env={"PATH": os.environ["PATH"]}, check=True, text=True,
                              capture_output=True, timeout=PATIENCE_S).stdout

    def test_the_bundle(self):
        # One test, because the bundle is made once for it.
        self.libraries_come_from_the_bundle_or_are_glibc()
        self.peers_find_specd_and_its_kernels()
        self.it_is_small_and_stripped()
        self.it_says_what_it_is()
        self.it_runs_without_a_device()
        self.it_fails_where_a_device_is_expected()

    def libraries_come_from_the_bundle_or_are_glibc(self):
        names = {file.name for file in (self.bundle / "lib").iterdir()}
        self.assertFalse(names & GLIBC)
        self.assertFalse({name for name in names if name.startswith(("libcuda.", "libnvidia"))})
        self.assertIn("libstdc++.so.6", names)
        for file in self.binaries():
            needed = set(re.findall(r"NEEDED +(\S+)", self.output_of("objdump", "-p", file)))
            self.assertLessEqual(needed, names | GLIBC, file.name)
        for program in [*(self.bundle / "bin").iterdir(), self.bundle / "lib/libspecd.so.0"]:
            text = self.output_of("ldd", program)
            self.assertNotIn("not found", text)
            for name, path in re.findall(r"(\S+) => (.+) \(0x", text):
                inside = pathlib.Path(os.path.normpath(path)).is_relative_to(self.bundle)
                self.assertTrue(inside or name in GLIBC, text)

    def peers_find_specd_and_its_kernels(self):
        scripts = self.bundle / "share"
        self.assertEqual({file.name for file in scripts.glob("*.py")},
                         {file.name for file in (SOURCE / "tools/gpu_check").glob("peers*.py")})
        package = self.bundle / "lib/specd/python/specd"
        modules = lambda folder: {file.relative_to(folder): file.read_bytes()
                                  for file in folder.rglob("*.py")}
        self.assertEqual(modules(package), modules(SOURCE / "ipc/python/specd"))
        python = os.environ.get("SPECD_ORACLE_PYTHON")
        if not python:
            return  # no numpy here
        # The library is the bundle's, and has the backend, which wants a driver and nothing else.
        said = self.output_of(python, "-B", "-c", f"""
import sys
sys.path.insert(0, {str(scripts)!r})
import peers_specd
peers, version, reason = peers_specd.make_specd_peers(None)
print([peer.name for peer in peers], version, reason)
import specd
print(specd.Engine("embedded:cpu", vocab_size=8).vocab_size)
try:
    specd.Engine("embedded:cuda", vocab_size=8)
    print("a device")
except specd.Error as error:
    print(error)
""")
        version = (self.bundle / "VERSION").read_text().split()[0]
        found, size, error = said.splitlines()
        self.assertEqual(found, f"['specd_greedy', 'specd_sample', 'specd_rejection'] {version} None")
        self.assertEqual(size, "8")
        self.assertRegex(error, '^a device$|backend "cuda" needs an NVIDIA driver')

    def it_is_small_and_stripped(self):
        # The kernels are in the daemon, in libspecd, in the tests and in the bench, compressed for size:
        # their PTX for one architecture alone has 26 MB. The bundle had 61 MiB on 2026-11-29.
        files = [file for file in self.bundle.rglob("*") if file.is_file()]
        self.assertLess(sum(file.lstat().st_size for file in files), 64 << 20)
        for program in self.binaries():
            self.assertNotIn(".symtab", self.output_of("readelf", "-SW", program))

    def it_says_what_it_is(self):
        version, glibc = (self.bundle / "VERSION").read_text().splitlines()
        self.assertRegex(version, r"^\d+\.\d+\.\d+ \S+$")
        self.assertRegex(glibc, r"^glibc 2\.\d+$")
        asked = set()
        for file in self.binaries():
            asked |= set(re.findall(r"GLIBC_2\.(\d+)", self.output_of("objdump", "-p", file)))
        self.assertEqual(max(map(int, asked)), int(glibc.split(".")[1]))

    def it_runs_without_a_device(self):
        process, results = self.run_bundle()
        if process.returncode == 0:
            self.skipTest("this machine has a device")
        self.assertEqual(process.returncode, 3, process.stdout + process.stderr)
        self.assertEqual(results["result"], "no device")

    # The real tests run after a stand-in that claims a device: none passes because it has none.
    def it_fails_where_a_device_is_expected(self):
        self.program(self.bundle / "bin/specd-gpu-facts", FACTS)
        process, results = self.run_bundle("--quick", "--no-sanitizer")
        self.assertEqual(process.returncode, 1)
        checks = [check for check in results["checks"] if check["status"] == "fail"]
        self.assertGreaterEqual(len(checks), 8)
        for check in checks:
            if check["name"] == "timings":
                self.assertRegex(check["detail"], "^specd-bench: no device")
                continue
            self.assertTrue(check["name"].startswith(("CUDA ", "attach ", "daemon ")), check)
            if check["name"].startswith("CUDA "):
                self.assertRegex(check["detail"], '^backend "cuda" needs an NVIDIA driver')
            elif check["name"].startswith("daemon "):
                self.assertRegex(check["detail"],
                                 '^the daemon ends: specd: backend "cuda" needs an NVIDIA driver')
            else:
                self.assertRegex(check["detail"], "^error: .*driver")


if __name__ == "__main__":
    unittest.main()
