// `specd-bench accept` against the expected accepted tokens of published sets, as fractions.
// tests/kernels/bodies/tree_law_test.cc enumerates the same trees.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tools/bench/accept_suite.h"

namespace specd::bench {
namespace {

// Many equal rows, from a file of ln p.
RowPool RowsOf(const std::vector<double>& p, const std::string& name) {
  const std::string path = (std::filesystem::temp_directory_path() / name).string();
  std::ofstream file(path, std::ios::binary);
  for (const double each : p) {
    const auto logit = static_cast<float>(std::log(each));
    file.write(reinterpret_cast<const char*>(&logit), sizeof(logit));
  }
  file.close();
  absl::StatusOr<RowPool> pool = RowPool::Make({.shape = RowShape::kFile,
                                                .path = path,
                                                .vocab_size = static_cast<int32_t>(p.size()),
                                                .num_rows = 3500});
  REQUIRE(pool.ok());
  return *std::move(pool);
}

struct Expected {
  std::array<uint32_t, 6> widths;
  // tree with, tree rest, traversal with, traversal rest, tree mixed, traversal mixed.
  std::array<double, 6> accepted;
};

void CheckSet(const std::string& name, const std::vector<double>& p, const std::vector<double>& q,
              const std::vector<Expected>& lines) {
  const std::string prefix = "specd_accept_" + std::to_string(getpid()) + name;
  const RowPool target = RowsOf(p, prefix + "p");
  const RowPool draft = RowsOf(q, prefix + "q");
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu");
  constexpr VerifyMethod kTree = VerifyMethod::kTree;
  constexpr VerifyMethod kTraversal = VerifyMethod::kTraversal;
  const std::array methods = {kTree, kTree, kTraversal, kTraversal, kTree, kTraversal};
  constexpr DraftSampling kWith = DraftSampling::kWithReplacement;
  constexpr DraftSampling kRest = DraftSampling::kWithoutReplacement;
  constexpr DraftSampling kMixed = DraftSampling::kMixed;
  const std::array samplings = {kWith, kRest, kWith, kRest, kMixed, kMixed};
  for (const Expected& line : lines) {
    for (size_t i = 0; i < methods.size(); ++i) {
      CAPTURE(name);
      CAPTURE(i);
      const absl::StatusOr<Accepted> found = MeasureAccepted({.name = "small",
                                                              .summary = "",
                                                              .method = methods[i],
                                                              .plan = DraftPlan::kDrawn,
                                                              .widths = line.widths,
                                                              .sampling = samplings[i],
                                                              .temperature = 1},
                                                             500, 40, target, draft, backend.get());
      REQUIRE(found.ok());
      // 4.9 standard errors: alpha 1e-6. Two means, .82 and .9 for example, are 20 apart.
      CHECK(std::abs(found->tokens - 1 - line.accepted[i]) <= 4.9 * found->error + 1e-12);
      CHECK(found->error < 0.01);
      CHECK(found->num_checked >= 500);
    }
  }
}

TEST_SUITE("statistical") {
  TEST_CASE("specd-bench accept: small trees accept what their exact values say") {
    CheckSet("A", {1. / 3, 2. / 3}, {2. / 3, 1. / 3},
             {{{2, 1}, {35. / 27, 5. / 3, 38. / 27, 16. / 9, 5. / 3, 16. / 9}},
              {{2, 2}, {112. / 81, 2, 118. / 81, 2, 2, 2}}});
    CheckSet("B", {.5, .3, .2}, {.2, .3, .5},
             {{{2}, {.76, .82, .76, .82, .9, .9}},
              {{2, 1}, {1.292, 1.394, 1.352, 1.454, 1.53, 1.61}},
              {{2, 2}, {1.3376, 1.4924, 1.3856, 1.5284, 1.71, 1.76}}});
    CheckSet("E", {.6, .2, .1, .1}, {.7, .2, .05, .05},
             {{{2, 2}, {1.7381, 406. / 225, 1.7571, 265. / 144, 2, 2}}});
  }
}

}  // namespace
}  // namespace specd::bench
