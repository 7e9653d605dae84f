"""layout_check finds machine paths, hosts, notes, and headers without a prologue."""

import unittest

from layout_tree import TreeTest, check


class TextRulesTest(TreeTest):
    def test_machine_paths(self):
        for path in ("/wo" "rk/main/x", "/ro" "ot/.cache", "/ho" "me/ann/specd",
                     "/tm" "p/specd.sock", "/Us" "ers/ann", "/mn" "t/data"):
            for text in (f'const char* k = "{path}";\n', f"// see {path}\n", f"unix:{path}\n",
                         f"ipc://{path}\n"):
                with self.subTest(text=text):
                    self.assert_finds("machine-path", "docs/x.md", 1, text)
        self.assert_clean("docs/x.md", "/run/specd/specd.sock /usr/lib /dev/shm tests/work/x "
                          "${folder}/tmp/x a/root/b /workers /proc/self\n")

    def test_scripts_and_presets_are_read(self):
        for path in ("tools/setup", ".ci/run", "CMakePresets.json", "kernels/CMakeLists.txt",
                     "tools/cmake/X.cmake", "tools/demo.py"):
            with self.subTest(path=path):
                self.assert_finds("machine-path", path, 1, "# /wo" "rk/x\n")

    def test_hosts(self):
        for text in ("https:/" "/build.corp.internal/x", "tcp:/" "/gpu-node-17:5556",
                     "ssh:/" "/git@code.somewhere.net/x", "10.0" ".0.7", "192.16" "8.1.20:80",
                     "py" "pi.org", "https:/" "/py" "pi.org/simple", "deb.deb" "ian.org"):
            with self.subTest(text=text):
                findings, _ = check({"docs/x.md": text + "\n"})
                self.assertEqual({finding[0] for finding in findings}, {"host"})
        self.assert_clean("docs/x.md", "http://localhost:8080 tcp://127.0.0.1:5556 tcp://*:5556 "
                          "tcp://[::1]:5556 https://github.com/a/b https://doi.org/10.1145/1 "
                          "tcp://192.0.2.1:5556 inproc://events unix:///run/x tcp://HOST:PORT "
                          "tcp://... https://node1.example.org version 1.74.0.3\n")

    def test_header_prologue(self):
        for text in ("#pragma once\n",
                     "// One line.\n#pragma once\n",
                     "// One line.\n//\n#pragma once\n",
                     "\n// Two\n// lines.\n#pragma once\n",
                     "// Two\n// lines, and no pragma.\n",
                     "// Two\n// lines.\n#ifndef X_H_\n#define X_H_\n#endif\n",
                     "#pragma once\n// Two\n// lines.\n"):
            with self.subTest(text=text):
                self.assert_finds("prologue", "daemon/x.h", 1, text)
        self.assert_finds("prologue", "kernels/cuda/x.cuh", 1, "#pragma once\n")

    def test_c_header_prologue(self):
        path = "ipc/include/specd/extra.h"
        self.assert_finds("prologue", path, 1, "#ifndef X_H_\n#define X_H_\n#endif\n")
        self.assert_finds("prologue", path, 1, "/* One line. */\n#ifndef X_H_\n#endif\n")
        self.assert_finds("prologue", path, 1, "/* Two\n * lines. */\n#include <stdint.h>\n")
        self.assert_clean(path, "/* Two\n * lines. */\n#ifndef X_H_\n#define X_H_\n#endif\n")
        self.assert_clean(path, "/* Two\n * lines. */\n#pragma once\n")

    def test_notes(self):
        for word in ("TO" "DO", "FIX" "ME", "XX" "X"):
            self.assert_finds("note", "daemon/x.cc", 2, f"int a;\n// {word}(ann): later\n")
        self.assert_clean("daemon/x.cc", 'char name[] = "specd-XXXXXX";\n')


if __name__ == "__main__":
    unittest.main()
