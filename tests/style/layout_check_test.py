"""Each rule of layout_check is shown a tree that breaks it, and a tree that just does not.

A good tree is made in a temporary folder; every test adds or changes one file and says which
findings, by rule, file and line, must come of it. Forbidden words are put together from halves
here, because the check reads this file too.
"""

import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(REPOSITORY, "tools", "layout_check", "layout_check.py")
sys.path.insert(0, os.path.dirname(PROGRAM))

import layout_check  # noqa: E402  (its folder is known from here on only)

HEADER = "// A thing for tests.\n//\n// Thread-safe: it holds nothing.\n#pragma once\n\n"
C_HEADER = "/* A thing for tests.\n * Thread-safe: it holds nothing. */\n#ifndef SPECD_SPECD_H_\n" \
           "#define SPECD_SPECD_H_\n#include <stdint.h>\n#endif\n"
# Two documents that code cites. The second heading of a name has an anchor of its own.
CONTRACT = "# The contract\n\n## 3. Order\n\n### 3.1 Masks\n\n### 3.2 Bias\n\n## 4. Proof\n\n" \
           "### Exact\n"
ALGORITHMS = "# Algorithms\n\n## Chains\n\n### block\n\n## A round on a GPU\n\n" \
             "```\n## Not a heading\n```\n\n## Chains\n"
# Put together here, so that the check does not take a test's text for a citation.
SIGN, CITED, DOCUMENTS = "\u00a7", "CONT" "RACT", "do" "cs"
FOLDERS = ("daemon", "detokenizer", "ipc", "kernels", "speculative", "tests", "tools")

GOOD_TREE = {
    **{f"{folder}/README.md": f"# {folder}\n" for folder in FOLDERS},
    "docs/ARCHITECTURE.md": "See https://arxiv.org/abs/2211.17192 and tcp://127.0.0.1:5556.\n",
    "docs/CONTRACT.md": CONTRACT,
    "docs/ALGORITHMS.md": ALGORITHMS,
    "kernels/core/types.h": HEADER + "#include <cstdint>\n",
    "kernels/bodies/greedy.h": HEADER + '#include "kernels/core/types.h"\n',
    "kernels/backend.h": HEADER + '#include "absl/status/status.h"\n'
                         '#include "kernels/core/types.h"\n',
    "kernels/warps/round.h": HEADER + '#include "kernels/bodies/greedy.h"\n',
    "kernels/cpu/cpu.cc": '#include "kernels/backend.h"\n#include "kernels/bodies/greedy.h"\n',
    "kernels/registry.cc": '#include "kernels/cpu/cpu.h"\n#include "kernels/cuda/cuda.h"\n',
    "kernels/cuda/launch.cu": '#include <cuda_runtime.h>\n#include "kernels/backend.h"\n'
                              '#include "kernels/warps/round.h"\nvoid F() { G<<<1, 32>>>(); }\n',
    "tools/bench/probe.cu": "#include <cuda_runtime.h>\nvoid F() { G<<<1, 32>>>(); }\n",
    "speculative/verifier.cc": '#include "kernels/backend.h"\n#include <spdlog/fmt/fmt.h>\n',
    "detokenizer/stop_matcher.cc": '#include "kernels/core/types.h"\n#include <simdjson.h>\n',
    "ipc/include/specd/specd.h": C_HEADER,
    "ipc/base/mapping.cc": '#include "specd/specd.h"\n#include "kernels/core/types.h"\n'
                           '#include <boost/interprocess/mapped_region.hpp>\n',
    "ipc/sockets/zmq_socket.cc": '#include "ipc/base/mapping.h"\n#include <zmq.hpp>\n',
    "ipc/control/control.cc": '#include "ipc/sockets/unix_socket.h"\n',
    "ipc/memory/region.cc": '#include "ipc/sockets/unix_socket.h"\n',
    "ipc/segment/ring.cc": '#include "ipc/include/specd/specd.h"\n#include "ipc/base/mapping.h"\n',
    "ipc/events/token_event.cc": '#include "ipc/base/mapping.h"\n',
    "daemon/base/logging.cc": "#include <spdlog/spdlog.h>\n",
    "daemon/session/session.cc": '#include "daemon/base/clock.h"\n#include "ipc/segment/ring.h"\n'
                                 '#include "speculative/verifier.h"\n',
    "daemon/client/engine.cc": '#include "daemon/session/session.h"\n'
                               '#include "daemon/base/clock.h"\n',
    "daemon/text/publisher.cc": '#include "daemon/session/session.h"\n'
                                '#include "detokenizer/stop_matcher.h"\n',
    "daemon/server/verify_loop.cc": '#include "daemon/session/session.h"\n',
    "daemon/main.cc": '#include <zmq.hpp>\n#include "daemon/config.h"\n'
                      '#include "daemon/base/logging.h"\n#include "daemon/server/verify_loop.h"\n'
                      '#include "daemon/text/publisher.h"\n',
    "tools/toy_engine/main.cc": '#include "specd/specd.h"\n#include "tools/toy_engine/model.h"\n',
    "tests/ring_test.cc": '#include <doctest/doctest.h>\n#include "daemon/session/session.h"\n',
}


def write_tree(root, tree):
    for path, text in tree.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)


def check(changes, removed=()):
    """Findings, as (rule, path, line), and large things of the good tree with changes."""
    with tempfile.TemporaryDirectory() as root:
        tree = {**GOOD_TREE, **changes}
        write_tree(root, {path: text for path, text in tree.items() if path not in removed})
        _, findings, large = layout_check.check_tree(root)
        return [(finding.rule, finding.path, finding.line) for finding in findings], large


class LayoutCheckTest(unittest.TestCase):
    def assert_finds(self, rule, path, line, text):
        findings, _ = check({path: text})
        self.assertEqual(findings, [(rule, path, line)])

    def assert_clean(self, path, text):
        findings, _ = check({path: text})
        self.assertEqual(findings, [])

    def test_good_tree_is_clean(self):
        findings, large = check({})
        self.assertEqual((findings, large), ([], []))

    def test_files_that_need_each_other(self):
        ring = {
            "kernels/core/a.h": HEADER + '#include "kernels/core/b.h"\n',
            "kernels/core/b.cc": '#include "kernels/core/c.h"\n',
            "kernels/core/b.h": HEADER,
            "kernels/core/c.h": HEADER,
            "kernels/core/c.cc": '#include "kernels/core/c.h"\n#include "kernels/core/a.h"\n',
        }
        findings, _ = check(ring)
        self.assertEqual(findings, [("circle", "kernels/core/a.h", 1)])
        findings, _ = check(ring, removed=("kernels/core/c.cc",))
        self.assertEqual(findings, [])

    def test_include_against_every_arrow(self):
        for path, include in (
            ("kernels/core/x.cc", "kernels/backend.h"),
            ("kernels/core/x.cc", "ipc/base/error.h"),
            ("kernels/bodies/x.cc", "kernels/backend.h"),
            ("kernels/bodies/x.cc", "kernels/warps/round.h"),
            ("kernels/warps/x.cc", "kernels/backend.h"),
            ("kernels/warps/x.cc", "kernels/cuda/launch.cuh"),
            ("kernels/cpu/x.cc", "kernels/warps/round.h"),
            ("kernels/cpu/x.cc", "kernels/cuda/launch.cuh"),
            ("kernels/cuda/x.cc", "kernels/cpu/cpu.h"),
            ("kernels/cpu/x.cc", "speculative/verifier.h"),
            ("kernels/x.cc", "specd/specd.h"),
            ("speculative/x.cc", "ipc/segment/ring.h"),
            ("speculative/x.cc", "daemon/session/session.h"),
            ("speculative/round/x.cc", "speculative/verifier.h"),
            ("speculative/sequence/x.cc", "speculative/round/round_scratch.h"),
            ("speculative/processors/x.cc", "speculative/sequence/row_rules.h"),
            ("speculative/params/x.cc", "speculative/processors/processor.h"),
            ("speculative/params/x.cc", "speculative/grammar/compiler/grammar_compiler.h"),
            ("speculative/grammar/base/x.cc", "speculative/grammar/automata/byte_dfa.h"),
            ("speculative/grammar/automata/x.cc", "speculative/grammar/rules/grammar_rules.h"),
            ("speculative/grammar/rules/x.cc", "speculative/grammar/network/network.h"),
            ("speculative/grammar/front_ends/x.cc", "speculative/grammar/json_schema/json_schema.h"),
            ("speculative/grammar/json_schema/x.cc", "speculative/grammar/states/key_sets.h"),
            ("speculative/grammar/states/x.cc", "speculative/grammar/masks/mask_builder.h"),
            ("speculative/grammar/masks/x.cc", "speculative/grammar/matchers/grammar_states.h"),
            ("speculative/grammar/matchers/x.cc", "speculative/grammar/compiler/compile_cache.h"),
            ("speculative/grammar/compiler/x.cc", "speculative/params/params.h"),
            ("detokenizer/x.cc", "kernels/backend.h"),
            ("detokenizer/x.cc", "speculative/verifier.h"),
            ("ipc/base/x.cc", "ipc/sockets/unix_socket.h"),
            ("ipc/base/x.cc", "kernels/backend.h"),
            ("ipc/sockets/x.cc", "ipc/control/control.h"),
            ("ipc/sockets/x.cc", "ipc/memory/region.h"),
            ("ipc/control/x.cc", "ipc/segment/ring.h"),
            ("ipc/control/x.cc", "ipc/memory/region.h"),
            ("ipc/memory/x.cc", "ipc/control/control.h"),
            ("ipc/memory/x.cc", "ipc/segment/ring.h"),
            ("ipc/segment/x.cc", "ipc/control/control.h"),
            ("ipc/segment/x.cc", "ipc/sockets/unix_socket.h"),
            ("ipc/events/x.cc", "ipc/segment/ring.h"),
            ("ipc/events/x.cc", "detokenizer/stop_matcher.h"),
            ("ipc/new_room/x.cc", "ipc/segment/ring.h"),
            ("daemon/base/x.cc", "daemon/session/session.h"),
            ("daemon/base/x.cc", "speculative/verifier.h"),
            ("daemon/session/x.cc", "daemon/client/engine.h"),
            ("daemon/session/x.cc", "daemon/server/verify_loop.h"),
            ("daemon/session/x.cc", "daemon/text/publisher.h"),
            ("daemon/session/x.cc", "daemon/config.h"),
            ("daemon/session/x.cc", "daemon/base/logging.h"),
            ("daemon/client/x.cc", "daemon/server/verify_loop.h"),
            ("daemon/client/x.cc", "daemon/text/publisher.h"),
            ("daemon/client/x.cc", "daemon/base/logging.h"),
            ("daemon/text/x.cc", "daemon/server/verify_loop.h"),
            ("daemon/text/x.cc", "daemon/client/engine.h"),
            ("daemon/server/x.cc", "daemon/client/engine.h"),
            ("daemon/server/x.cc", "daemon/text/publisher.h"),
            ("daemon/server/x.cc", "daemon/config.h"),
            ("daemon/x.cc", "daemon/client/engine.h"),
            ("daemon/x.cc", "tools/toy_engine/model.h"),
            ("daemon/x.cc", "tests/support/fake.h"),
            ("tools/toy_engine/x.cc", "ipc/segment/ring.h"),
            ("tools/toy_engine/x.cc", "tools/toy_client/printer.h"),
            ("tests/consumer/app/main.c", "ipc/segment/ring.h"),
        ):
            with self.subTest(path=path, include=include):
                self.assert_finds("include", path, 2, f'// First line.\n#include "{include}"\n')

    def test_library_where_it_does_not_belong(self):
        for path, include in (
            ("kernels/core/x.cc", "<absl/status/status.h>"),
            ("kernels/core/x.cc", '"absl/status/status.h"'),
            ("kernels/core/x.cc", "<spdlog/fmt/fmt.h>"),
            ("kernels/core/x.cc", "<unistd.h>"),
            ("kernels/bodies/x.cc", "<immintrin.h>"),
            ("kernels/warps/x.cc", "<cuda_runtime.h>"),
            ("kernels/cpu/x.cc", "<cuda_runtime.h>"),
            ("kernels/cpu/x.cc", "<chrono>"),
            ("speculative/x.cc", "<spdlog/spdlog.h>"),
            ("speculative/x.cc", "<sys/socket.h>"),
            ("speculative/x.cc", "<fstream>"),
            ("detokenizer/x.cc", "<zmq.hpp>"),
            ("detokenizer/x.cc", "<thread>"),
            ("ipc/control/x.cc", "<zmq.hpp>"),
            ("ipc/sockets/x.cc", "<msgpack.hpp>"),
            ("daemon/session/x.cc", "<spdlog/spdlog.h>"),
            ("daemon/session/x.cc", "<sys/socket.h>"),
            ("daemon/client/x.cc", "<spdlog/spdlog.h>"),
            ("daemon/client/x.cc", "<zmq.hpp>"),
            ("ipc/include/specd/x.cc", "<sys/types.h>"),
            ("ipc/include/specd/x.cc", "<cstdint>"),
            ("daemon/x.cc", "<doctest/doctest.h>"),
            ("daemon/x.cc", "<cooperative_groups.h>"),
            ("daemon/x.cc", "<grpcpp/server.h>"),
            ("tests/x_test.cc", "<cub/cub.cuh>"),
            ("daemon/x.cc", '"session.h"'),
            ("daemon/x.cc", '"../ipc/ring.h"'),
        ):
            with self.subTest(path=path, include=include):
                self.assert_finds("include", path, 1, f"#include {include}\n")

    def test_include_in_comment_or_raw_string_is_none(self):
        self.assert_clean("kernels/core/x.cc", '// #include "daemon/main.cc"\n'
                          '/*\n#include "daemon/main.cc"\n*/\n'
                          'const char* kText = R"(\n#include "daemon/z.h"\n)";\n')

    def test_include_after_a_string_with_comment_signs_counts(self):
        self.assert_finds("include", "kernels/core/x.cc", 2,
                          'const char* kUrl = "// /*";\n#include "daemon/x.h"  // */\n')

    def test_launch_outside_cuda(self):
        self.assert_finds("include", "kernels/cpu/x.cc", 1, "void F() { G<<<1, 32>>>(); }\n")
        self.assert_finds("include", "tools/x.cc", 1, "void F() { G<<<1, 32>>>(); }\n")
        self.assert_clean("tools/bench/x.cu", "void F() { G<<<1, 32>>>(); }\n")
        self.assert_clean("kernels/cpu/x.cc", '// G<<<1, 32>>>()\nconst char* k = "<<<";\n')

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

    def test_folder_without_readme(self):
        findings, _ = check({}, removed=("ipc/README.md",))
        self.assertEqual(findings, [("readme", "ipc/README.md", 1)])
        findings, _ = check({"python/client.py": "pass\n"})
        self.assertEqual(findings, [("readme", "python/README.md", 1)])

    def test_sections_of_the_contract(self):
        good = (f"{CITED} {SIGN}3", f"{CITED} {SIGN}3.2", f"{CITED} 3.1", f"{SIGN}3 and {SIGN}4",
                f"{CITED} 3.1, 4", f"steps 1 to 2 of {CITED} {SIGN}3",
                f"{CITED} {SIGN}3, step 2", f"step 1 of\n// {SIGN}3", f'{CITED} {SIGN}4, "Exact"')
        bad = (f"{CITED} {SIGN}5", f"{CITED} {SIGN}3.3", f"{CITED} 3.3", f"{SIGN}3 and {SIGN}5",
               f"{CITED} 3.1, 5", f"steps 1 to 3 of {CITED} {SIGN}3", f"{CITED} 5",
               f"{CITED} {SIGN}3, step 3", f"{CITED}, step 2", f'{CITED} {SIGN}4, "Exactly"')
        for path in ("kernels/core/x.cc", "docs/x.md", "tools/x.cmake", "tools/setup"):
            for text in good:
                with self.subTest(path=path, text=text):
                    self.assert_clean(path, f"// {text}.\n")
            for text in bad:
                with self.subTest(path=path, text=text):
                    self.assert_finds("section", path, 1, f"// {text}.\n")
        findings, _ = check({"docs/x.md": f"see {CITED} {SIGN}3\n"}, removed=("docs/CONTRACT.md",))
        self.assertEqual(findings, [("section", "docs/x.md", 1)])

    def test_headings_of_other_documents(self):
        page = f"{DOCUMENTS}/ALGORITHMS.md"
        for text in (f'{page}, "Chains"', f'{page}, "Chains: block" and "A round on a GPU"',
                     f'{page}, "A round\n// on a GPU"', f'[{page}](ALGORITHMS.md), "block"', page):
            with self.subTest(text=text):
                self.assert_clean("docs/x.md", f"// {text}\n")
        for text in (f'{page}, "Trees"', f'{page}, "Chains" and "Trees"',
                     f'{page}, "block: Chains"', f'{page}, "Not a heading"', f"{DOCUMENTS}/GPU.md",
                     f"{DOCUMENTS}/decisions/001-a.md"):
            with self.subTest(text=text):
                self.assert_finds("section", "kernels/core/x.cc", 2, f"int a;\n// {text}\n")

    def test_links_and_paths_in_documents(self):
        self.assert_clean("docs/x.md", "[a](ALGORITHMS.md) [b](ALGORITHMS.md#a-round-on-a-gpu) "
                          "[c](../ipc/README.md) [d](../ipc) [e](https://example.org/a#b)\n"
                          "[f](ALGORITHMS.md#chains-1) [g](#here) `kernels/core/types.h` `x.h` "
                          "`specd/specd.h` `a/b` `--flag=a/b.h`\n"
                          "## Here\n```\n[&](int)(x) `no/such.h` [h](gone.md)\n```\n")
        self.assert_clean("kernels/README.md",
                          "# kernels\n`core/types.h` [x](../docs/ALGORITHMS.md)\n")
        for text in ("[a](GONE.md)", "[a](ALGORITHMS.md#trees)", "[a](#nowhere)", "[a](../gone/)",
                     "`kernels/core/gone.h`", "`core/types.h`"):
            with self.subTest(text=text):
                self.assert_finds("link", "docs/x.md", 2, f"# x\n{text}\n")
        self.assert_clean("CHANGELOG.md", "`kernels/core/gone.h`\n")
        for page in (f"{DOCUMENTS}/decisions/001-a.md", f"{DOCUMENTS}/measurements/2026-01-02-a.md"):
            self.assert_clean(page, "# a\n`kernels/core/gone.h`\n")
            self.assert_finds("link", page, 2, "# a\n[a](GONE.md)\n")

    def test_files_named_in_comments(self):
        for comment in ("kernels/core/types.h", "types.h", "specd/specd.h", "see (types.h)",
                        "../core/types.h", "<gone.h>", "$OUT/gone.cc", "/usr/include/gone.h",
                        "*_test.cc", "<tests/gone/gone.py>", "gone.html"):
            with self.subTest(comment=comment):
                self.assert_clean("kernels/core/x.cc", f"// {comment}\n/* {comment}, */ int a;\n"
                                  "const char* k = \"kernels/core/gone.h\";\n")
                self.assert_clean("kernels/core/x.py", f'"""{comment}"""\n# {comment}\n'
                                  "k = 'kernels/core/gone.h'\n")
        for path in ("kernels/core/gone.h", "gone.h", "core/types.h", "../types.h", "tests/gone.py",
                     "gone_test.cc", "notes/gone.md"):
            for text in (f"(see {path}).", f"{path}: a thing", f"of\n// {path}, or"):
                line = 2 + text.count("\n")
                with self.subTest(text=text):
                    self.assert_finds("link", "kernels/core/x.cc", line, f"int a;\n// {text}\n")
                    self.assert_finds("link", "kernels/core/x.py", line,
                                      "a = 1\n# " + text.replace("//", "#") + "\n")
        self.assert_finds("link", "kernels/core/x.h", 2, HEADER.replace("//\n", "// gone.h\n"))
        self.assert_finds("link", "tools/x.py", 4,
                          'def f():\n    """One.\n\n    See gone.h.\n    """\n')

    def test_notes(self):
        for word in ("TO" "DO", "FIX" "ME", "XX" "X"):
            self.assert_finds("note", "daemon/x.cc", 2, f"int a;\n// {word}(ann): later\n")
        self.assert_clean("daemon/x.cc", 'char name[] = "specd-XXXXXX";\n')

    def test_large_things_are_listed_and_do_not_fail(self):
        body = "  a += 1;\n" * 69
        findings, large = check({
            "daemon/fits.cc": "void Fits(int a) {\n" + "  a += 1;\n" * 68 + "}\n",
            "daemon/long.cc": "namespace specd {\nclass A {\n  explicit A(int a) : a_{a}, b_(a) {\n"
                              + body + "  }\n};\nstatic const int k[] = {\n" + "  1,\n" * 80
                              + "};\n}\n"
                              "int Two(\n    int a) {\n" + body + "  if (a) { a = 2; }\n}\n",
            "daemon/table.cc": "const auto kTable = Make({\n" + "  1,\n" * 80 + "});\n",
            "tools/long.py": "def f():\n" + "    pass\n" * 70,
            "tools/file.py": "pass\n" * 401,
            "tools/fits.py": "pass\n" * 400,
        })
        self.assertEqual(findings, [])
        self.assertEqual({(item.path, item.line, item.what, item.num_lines) for item in large},
                         {("daemon/long.cc", 3, "A", 71), ("daemon/long.cc", 158, "Two", 73),
                          ("tools/long.py", 1, "f", 71), ("tools/file.py", 1, "file", 401)})

    def test_ignored_and_binary_files_are_not_read(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, GOOD_TREE)
            write_tree(root, {"build/x.md": "/wo" "rk/x\n", ".venv/x.py": "# /wo" "rk/x\n"})
            with open(os.path.join(root, "tests", "corpus"), "wb") as file:
                file.write(b"\xff\xfe/wo" b"rk/x\n")
            self.assertEqual(layout_check.check_tree(root)[1], [])

    def test_in_a_checkout_git_says_what_is_ignored(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, {**GOOD_TREE, ".gitignore": "/scratch/\n",
                              "scratch/x.md": "/wo" "rk/x\n", "docs/new.md": "/wo" "rk/x\n"})
            try:
                subprocess.run(["git", "init", "--quiet", root], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                self.skipTest("git is not installed")
            findings = layout_check.check_tree(root)[1]
            self.assertEqual([finding.path for finding in findings], ["docs/new.md"])

    def test_command_line(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, GOOD_TREE)
            run = subprocess.run([sys.executable, PROGRAM, "--root", root], capture_output=True,
                                 text=True, check=False)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertIn("clean", run.stdout)
            self.assertNotIn("\033", run.stdout)
            write_tree(root, {"daemon/x.h": "#pragma once\n"})
            run = subprocess.run([sys.executable, PROGRAM, "--root", root], capture_output=True,
                                 text=True, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn("daemon/x.h:1: prologue: ", run.stdout)
        run = subprocess.run([sys.executable, PROGRAM, "--root", os.path.join(root, "gone")],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 2)


if __name__ == "__main__":
    unittest.main()
