"""tools/changed_tests.py, over a repository and a build that are written by hand."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import changed_tests  # noqa: E402

NINJA = """
build daemon/a.o: CXX_COMPILER__lib_ /src/daemon/a.cc
build daemon/liba.a: CXX_STATIC_LIBRARY_LINKER__a_ daemon/a.o
build bin/peer: CXX_EXECUTABLE_LINKER__peer_ peer.o
build tests/a_test | tests/cases.cmake: CXX_EXECUTABLE_LINKER__a_test_ tests/a_test.o $
    | daemon/liba.a || bin/peer
build tests/b_test: CXX_EXECUTABLE_LINKER__b_test_ tests/b_test.o || cmake_object_order
build all: phony tests/a_test tests/b_test
"""


class ChangedTestsTest(unittest.TestCase):
    def test_a_change_is_what_the_branch_the_index_and_the_folder_add(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)

            def git(*arguments):
                subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *arguments], cwd=folder,
                               check=True, capture_output=True)
            git("init", "--initial-branch=main")
            for file in ("same", "committed", "edited", "moved"):
                (folder / file).write_text(file)
            (folder / ".gitignore").write_text("build\n")
            git("add", ".")
            git("commit", "-m", "first")
            self.assertEqual(changed_tests.changed_files(folder), [])
            git("checkout", "-b", "work")
            (folder / "committed").write_text("other")
            git("mv", "moved", "there")
            git("commit", "-am", "second")
            git("checkout", "main")
            (folder / "same").write_text("main goes on")
            git("commit", "-am", "third")
            git("checkout", "work")
            (folder / "edited").write_text("other")
            (folder / "new").write_text("new")
            (folder / "build").write_text("ignored")
            self.assertEqual(changed_tests.changed_files(folder), ["committed", "edited", "moved", "new", "there"])

    def test_a_header_touches_the_programs_that_take_its_objects(self):
        edges = changed_tests.edges_of(NINJA)
        dependencies = {"daemon/a.o": {"daemon/a.cc", "daemon/a.h"}, "tests/a_test.o": {"tests/a_test.cc"},
                        "tests/b_test.o": {"tests/b_test.cc", "tests/support/b.h"}, "peer.o": {"peer.cc"}}
        for changed, programs in ((["daemon/a.h"], {"tests/a_test"}), (["tests/support/b.h"], {"tests/b_test"}),
                                  (["peer.cc"], {"bin/peer", "tests/a_test"}), (["pages/A.md"], set()),
                                  (["daemon/CMakeLists.txt"], {"tests/a_test"}),
                                  (["tests/CMakeLists.txt"], {"tests/a_test", "tests/b_test"})):
            with self.subTest(changed=changed):
                objects = changed_tests.touched_objects(changed, dependencies)
                self.assertEqual(changed_tests.touched_programs(edges, objects), programs)

    def test_a_document_touches_the_tests_that_read_it_and_not_those_that_cite_it(self):
        texts = {"tests/doc_test.cc": 'std::ifstream file(SOURCE + "/pages/A.md");',
                 "tests/cite_test.cc": '// pages/A.md says "pages/A.md"\nint x;',
                 "tests/data_test.cc": 'Read(SOURCE "/tests/data/rounds")',
                 "tests/run_test.py": "import support\n", "tests/support.py": 'PAGE = "pages/B.md"\n',
                 "tests/other_test.py": "import supportive\n"}
        for changed, readers in ((["pages/A.md"], {"tests/doc_test.cc"}), (["pages/C.md"], set()),
                                 (["tests/data/rounds/1.bin"], {"tests/data_test.cc"}),
                                 (["pages/B.md"], {"tests/support.py", "tests/run_test.py"}),
                                 (["README.md"], set()), (["CMakeLists.txt"], set()), (["daemon/a.h"], set())):
            with self.subTest(changed=changed):
                self.assertEqual(changed_tests.readers_of(changed, texts), readers)

    def test_touched_programs_come_first_and_then_the_shortest_that_fit(self):
        tests = {"script": False, "long script": False, "unit": True}
        seconds = {"script": 5, "long script": 50, "unit": 8}
        self.assertEqual(changed_tests.choose(tests, seconds, 20), (["unit", "script"], ["long script"]))
        self.assertEqual(changed_tests.choose(tests, seconds, 100), (["unit", "script", "long script"], []))


if __name__ == "__main__":
    unittest.main()
