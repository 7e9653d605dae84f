"""layout_check finds each include and each kernel launch against the arrows."""

import unittest

from layout_tree import HEADER, TreeTest, check


class IncludeRulesTest(TreeTest):
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


if __name__ == "__main__":
    unittest.main()
