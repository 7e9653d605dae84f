"""The archive of `cpack`, unpacked at another place: it needs glibc and libstdc++ of its machine, and nothing else.

The daemon and an engine run in a root that has only these and the archive.
"""

import os

from packages_support import ANSWER, PACKAGES, SOURCE, PackageTest, compile_readme_engine, main, only, run
from roots import EmptyRoot

URI = "unix:/run/specd/specd.sock"


class ArchiveCase(PackageTest):
    def setUp(self):
        super().setUp()
        self.archive = only(PACKAGES.glob("specd-*.tar.xz"))
        self.root = EmptyRoot(self.folder / "root")
        self.specd = self.root.folder / "opt/moved"
        self.specd.mkdir(parents=True)
        run("tar", "-xJf", self.archive, "-C", self.specd, "--strip-components=1")


class FilesTest(ArchiveCase):
    def test_it_is_small_and_whole(self):
        self.check_size(self.archive)
        for name in ("bin/specd", "bin/specd-detok", "bin/specctl", "bin/specd-http", "bin/specd-replay", "lib/libspecd.so.0",
                     "include/specd/specd.h", "lib/pkgconfig/specd.pc", "share/specd/specd.service", "share/specd/specd.socket",
                     "lib/cmake/specd/specdConfig.cmake", "lib/specd/python/specd/__init__.py",
                     "share/doc/specd/LICENSE", "share/doc/specd/licences/libzmq5"):
            self.assertTrue((self.specd / name).is_file(), name)

    def test_it_brings_its_libraries(self):
        self.check_self_contained(self.specd)

    def test_a_project_of_cmake_finds_it(self):
        cmake, build = os.environ["SPECD_CMAKE"], self.folder / "build"
        run(cmake, "-S", SOURCE / "tests/consumer/app", "-B", build, "-G", "Ninja",
            f"-DCMAKE_PREFIX_PATH={self.specd}", "-DCMAKE_EXE_LINKER_FLAGS=-Wl,--verbose")
        self.check_linked(run(cmake, "--build", build, "--verbose"), self.specd)
        self.assertIn("verified a round of 2 drafts", run(build / "consumer"))


class RootTest(ArchiveCase):
    def setUp(self):
        super().setUp()
        self.need(self.root)

    def in_root(self, program, *arguments):
        return self.start_words(self.root.command(program, *arguments))

    def test_the_daemon_verifies_a_round_of_an_engine_in_c(self):
        engine, said = compile_readme_engine(self.folder, self.specd / "lib", "/opt/moved/lib")
        self.check_linked(said, self.specd)
        engine.rename(self.root.folder / "engine")
        daemon = self.in_root("/opt/moved/bin/specd", f"--listen={URI}", "--detokenizer=off")
        self.wait_for_daemon(daemon)
        for uri in (URI, "embedded:cpu"):
            done = self.in_root("/engine", uri)
            self.assertEqual(done.wait(), 0, done.stderr)
            self.assertEqual(done.stdout, ANSWER)
        self.stop(daemon)

    def test_the_other_programs_run(self):
        for name in ("specd-detok", "specctl", "specd-http", "specd-replay", "specd-toy-engine", "specd-toy-client"):
            done = self.in_root(f"/opt/moved/bin/{name}", "--version")
            self.assertEqual(done.wait(), 0, done.stderr)
            self.assertTrue(done.stdout.startswith((name, "specd")), done.stdout)


if __name__ == "__main__":
    main()
