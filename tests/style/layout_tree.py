"""A good tree in a temporary folder, for the tests of layout_check.

Every test adds or changes one file and says which findings, by rule, file and line, must come of it.
Forbidden words are put together from halves in these tests, because the check reads them too.
"""

import os
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

class TreeTest(unittest.TestCase):
    def assert_finds(self, rule, path, line, text):
        findings, _ = check({path: text})
        self.assertEqual(findings, [(rule, path, line)])

    def assert_clean(self, path, text):
        findings, _ = check({path: text})
        self.assertEqual(findings, [])
