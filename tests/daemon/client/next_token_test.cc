// Next tokens in shared host memory, over the C interface, embedded and attached. The tests check
// the word at a sequence's slot after each round, and the memory that cannot be bound.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/session_fixture.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::TokensOf;

constexpr uint32_t kSlots = 4;  // max_sequences of an EmbeddedEngine

int BindNext(EmbeddedEngine& f, int role, const specd_region& region, uint64_t offset_bytes = 0) {
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.offset_bytes = offset_bytes;
  tensor.num_rows = kSlots;
  return specd_bind(f.engine, role, &tensor);
}

UniqueFd SealedFd(unsigned seals) {
  UniqueFd fd(memfd_create("next", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(fd.get(), 4096) == 0);
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, static_cast<int>(seals)) == 0);
  return fd;
}

TEST_SUITE("unit") {
  TEST_CASE("next tokens in host memory follow every round, at the sequence's slot") {
    test::ForBothModes([](EmbeddedEngine& f) {
      for (uint32_t row = 0; row < 4; ++row) {
        f.SetRow(f.target, row, {0, 0, 0, 0, 0, 0});
        f.target[row * EmbeddedEngine::kVocab + row + 1] = 5;  // id r + 1 wins row r
      }
      specd_region regions[2];
      for (specd_region& region : regions) {
        REQUIRE(specd_alloc(f.engine, 64, &region) == SPECD_OK);
      }
      auto* const next = static_cast<int32_t*>(regions[0].data);
      auto* const copy = static_cast<int32_t*>(regions[1].data) + 2;
      std::fill_n(next, 16, -9);
      std::fill_n(copy - 2, 16, -9);
      REQUIRE(BindNext(f, SPECD_NEXT_TOKEN, regions[0]) == SPECD_OK);
      REQUIRE(BindNext(f, SPECD_NEXT_TOKEN + 3, regions[1], 8) == SPECD_OK);

      const specd_sequence first = f.Open(f.Params(), "first");
      const specd_sequence second = f.Open(f.Params(), "second");
      const uint32_t slots[] = {specd_sequence_slot(first), specd_sequence_slot(second)};
      CHECK(slots[0] != slots[1]);
      std::vector<int32_t> expected(16, -9);
      const auto check = [&] {
        CHECK(std::vector<int32_t>(next, next + 16) == expected);
        CHECK(std::vector<int32_t>(copy, copy + kSlots) ==
              std::vector<int32_t>(expected.begin(), expected.begin() + kSlots));
        CHECK(copy[-1] == -9);
        CHECK(copy[kSlots] == -9);
      };
      const int32_t drafts[] = {1, 2, 7};
      CHECK(TokensOf(f.Round(ChainDraft(second, 3, drafts, f.rows))) ==
            std::vector<int32_t>{1, 2, 3});
      expected[slots[1]] = 3;
      check();
      CHECK(TokensOf(f.Sample(first, 3)) == std::vector<int32_t>{4});
      expected[slots[0]] = 4;
      check();
      // A discarded round, and a row without a distribution: no token, so no change.
      specd_draft discarded = ChainDraft(first, 0, nullptr, f.rows);
      discarded.flags = SPECD_DISCARD;
      CHECK(f.Round(discarded).num_kept == 0);
      check();
      f.target[0] = std::numeric_limits<float>::quiet_NaN();
      CHECK(f.Sample(first, 0).status == SPECD_STATUS_BAD_DISTRIBUTION);
      check();

      // After a new binding the old memory is left alone, and may be freed.
      CHECK(specd_unregister(f.engine, regions[0].id) == SPECD_ERROR_STATE);
      CHECK(EmbeddedEngine::LastErrorHas("SPECD_NEXT_TOKEN is bound"));
      specd_region moved;
      REQUIRE(specd_alloc(f.engine, 64, &moved) == SPECD_OK);
      REQUIRE(BindNext(f, SPECD_NEXT_TOKEN, moved) == SPECD_OK);
      CHECK(TokensOf(f.Sample(second, 1)) == std::vector<int32_t>{2});
      CHECK(next[slots[1]] == 3);
      CHECK(static_cast<int32_t*>(moved.data)[slots[1]] == 2);
      CHECK(copy[slots[1]] == 2);
      CHECK(specd_unregister(f.engine, regions[0].id) == SPECD_OK);
      CHECK(specd_unregister(f.engine, regions[0].id) == SPECD_ERROR_NOT_FOUND);
      CHECK(specd_unregister(f.engine, 99) == SPECD_ERROR_NOT_FOUND);
      CHECK(specd_unregister(nullptr, 1) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_import_device(nullptr, 16, 16, &moved) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_import_device(f.engine, 16, 16, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    });
  }

  TEST_CASE("what cannot be bound to next tokens is refused by field") {
    SessionFixture f(false);  // 4 sequences
    const auto region = f.session->RegisterRegion(SealedFd(F_SEAL_SHRINK), 64);
    REQUIRE(region.ok());
    const auto bind = [&](uint32_t role, const TensorSpec& spec) {
      return f.session->Bind(static_cast<TensorRole>(role), *region, spec);
    };
    CHECK(bind(4, {0, 0, 4, 0}).ok());
    CHECK(bind(4, {0, 48, 4, 1}).ok());
    CHECK(bind(11, {0, 0, 16, 0}).ok());
    struct Bad {
      uint32_t role;
      TensorSpec spec;
      const char* field;
    };
    TensorSpec scaled{0, 0, 4, 0};
    scaled.scale = 2;
    for (const Bad& bad :
         {Bad{4, {0, 0, 3, 0}, "num_rows"}, Bad{4, {0, 0, 0, 0}, "num_rows"},
          Bad{4, {0, 0, 17, 0}, "num_rows"}, Bad{4, {0, 52, 4, 0}, "num_rows"},
          Bad{4, {0, 64, 4, 0}, "offset_bytes"}, Bad{4, {0, ~uint64_t{3}, 4, 0}, "offset_bytes"},
          Bad{4, {0, 2, 4, 0}, "offset_bytes"}, Bad{4, {0, 0, 4, 2}, "row_stride"},
          Bad{4, {1, 0, 4, 0}, "dtype"}, Bad{4, scaled, "role"}, Bad{12, {0, 0, 4, 0}, "role"},
          Bad{0, {0, 0, 4, 0}, "role"}}) {
      const absl::Status status = bind(bad.role, bad.spec);
      CAPTURE(std::string(status.message()));
      CHECK(ErrorFieldOf(status) == bad.field);
    }
  }

  TEST_CASE("next tokens need memory that specd may write") {
    SessionFixture f(false);
    const auto bind = [&](UniqueFd fd, TensorRole role, uint64_t num_rows) {
      const auto region = f.session->RegisterRegion(std::move(fd), 4096);
      REQUIRE(region.ok());
      return f.session->Bind(role, *region, {0, 0, num_rows, 0});
    };
    for (const unsigned seal : {unsigned{F_SEAL_WRITE}, unsigned{F_SEAL_FUTURE_WRITE}}) {
      const absl::Status status =
          bind(SealedFd(F_SEAL_SHRINK | seal), TensorRole::kNextToken, kSlots);
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_REGION);
      CHECK(std::string(status.message()).find("specd_alloc") != std::string::npos);
      // Rows are only read.
      CHECK(bind(SealedFd(F_SEAL_SHRINK | seal), TensorRole::kTargetRows, 1).ok());
    }
  }
}

}  // namespace
}  // namespace specd
