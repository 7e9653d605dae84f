// Imported memory and the tensors in it: cases A4, A5, A10, A12 and A13 of the fault list, and the
// exact edges of every bound.
#include "ipc/memory/region.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

Region MakeRegion(uint64_t size_bytes) {
  absl::StatusOr<Region> region =
      Region::Import(test::MakeMemfd(size_bytes, F_SEAL_SHRINK), size_bytes);
  REQUIRE(region.ok());
  return *std::move(region);
}

absl::Status ImportStatus(UniqueFd fd, uint64_t size_bytes) {
  return Region::Import(std::move(fd), size_bytes).status();
}

constexpr int32_t kVocab = 1000;
constexpr uint32_t kF32 = 0;
constexpr uint32_t kF16 = 2;

TEST_SUITE("unit") {
  TEST_CASE("region: the engine's bytes are seen, and later ones too") {
    UniqueFd fd = test::MakeMemfd(8192, F_SEAL_SHRINK);
    REQUIRE(pwrite(fd.get(), "abc", 3, 4096) == 3);
    absl::StatusOr<Region> region = Region::Import(test::Duplicate(fd.get()), 8192);
    REQUIRE(region.ok());
    CHECK(region->size_bytes() == 8192);
    const char* data = static_cast<const char*>(region->data());
    CHECK(data[4096] == 'a');
    REQUIRE(pwrite(fd.get(), "x", 1, 4096) == 1);
    CHECK(data[4096] == 'x');
  }

  TEST_CASE("region: unsealed memory is refused (A10)") {
    for (int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_WRITE}) {
      const absl::Status status = ImportStatus(test::MakeMemfd(4096, seals), 4096);
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_REGION);
      CHECK(ErrorFieldOf(status) == "fd");
      CHECK(status.message().find("F_SEAL_SHRINK") != absl::string_view::npos);
    }
    CHECK(
        ImportStatus(test::MakeMemfd(4096, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 4096).ok());
  }

  TEST_CASE("region: a hole punched later reads as zeros and raises no signal (A12)") {
    UniqueFd fd = test::MakeMemfd(8192, F_SEAL_SHRINK | F_SEAL_GROW);
    REQUIRE(pwrite(fd.get(), "abc", 3, 0) == 3);
    absl::StatusOr<Region> region = Region::Import(test::Duplicate(fd.get()), 8192);
    REQUIRE(region.ok());
    const char* data = static_cast<const char*>(region->data());
    REQUIRE(data[0] == 'a');
    REQUIRE(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
    CHECK(data[0] == 0);
  }

  TEST_CASE("region: descriptors that are no memory are refused (A13)") {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const UniqueFd writer(ends[1]);
    CHECK(ErrorCodeOf(ImportStatus(UniqueFd(ends[0]), 1)) == SPECD_ERROR_REGION);
    CHECK(ErrorCodeOf(ImportStatus(UniqueFd(open(".", O_RDONLY | O_DIRECTORY)), 1)) ==
          SPECD_ERROR_REGION);
    CHECK(ErrorCodeOf(ImportStatus(UniqueFd(socket(AF_UNIX, SOCK_STREAM, 0)), 1)) ==
          SPECD_ERROR_REGION);
    CHECK(ErrorCodeOf(ImportStatus(UniqueFd(open("/dev/zero", O_RDONLY)), 1)) ==
          SPECD_ERROR_REGION);
    CHECK(ErrorCodeOf(ImportStatus(UniqueFd(), 1)) == SPECD_ERROR_REGION);
    FILE* file = std::tmpfile();
    REQUIRE(file != nullptr);
    UniqueFd ordinary = test::Duplicate(fileno(file));
    REQUIRE(ftruncate(ordinary.get(), 4096) == 0);
    CHECK(ErrorCodeOf(ImportStatus(std::move(ordinary), 4096)) == SPECD_ERROR_REGION);
    std::fclose(file);
    // Reading is all that is needed: a descriptor without write permission is good.
    const UniqueFd memory = test::MakeMemfd(4096, F_SEAL_SHRINK);
    char path[32];
    std::snprintf(path, sizeof(path), "/proc/self/fd/%d", memory.get());
    CHECK(ImportStatus(UniqueFd(open(path, O_RDONLY)), 4096).ok());
    CHECK_FALSE(ImportStatus(UniqueFd(open(path, O_WRONLY)), 4096).ok());
    CHECK_FALSE(ImportStatus(UniqueFd(open(path, O_PATH)), 4096).ok());
  }

  TEST_CASE("region: the size is 1 .. 2^40 and inside the file") {
    CHECK(ErrorFieldOf(ImportStatus(test::MakeMemfd(4096, F_SEAL_SHRINK), 0)) == "size_bytes");
    CHECK(ErrorFieldOf(ImportStatus(test::MakeMemfd(4096, F_SEAL_SHRINK),
                                    (uint64_t{1} << 40) + 1)) == "size_bytes");
    CHECK(ErrorFieldOf(ImportStatus(test::MakeMemfd(4096, F_SEAL_SHRINK), ~uint64_t{0})) ==
          "size_bytes");
    const absl::Status short_file = ImportStatus(test::MakeMemfd(4096, F_SEAL_SHRINK), 4097);
    CHECK(ErrorCodeOf(short_file) == SPECD_ERROR_REGION);
    CHECK(ErrorFieldOf(short_file) == "size_bytes");
    CHECK(ImportStatus(test::MakeMemfd(5000, F_SEAL_SHRINK), 5000).ok());
    CHECK(ImportStatus(test::MakeMemfd(5000, F_SEAL_SHRINK), 1).ok());
  }

  TEST_CASE("tensor: the last row may end exactly at the end, not one element later") {
    const Region region = MakeRegion(100 * 4000);
    const absl::StatusOr<TensorView> whole = BindTensor(region, {kF32, 0, 100, 0}, kVocab);
    REQUIRE(whole.ok());
    CHECK(whole->data == region.data());
    CHECK(whole->num_rows == 100);
    CHECK(whole->row_stride == kVocab);  // 0 means vocab_size
    CHECK(whole->vocab_size == kVocab);
    CHECK(whole->dtype == DType::kFloat32);
    const absl::Status more = BindTensor(region, {kF32, 0, 101, 0}, kVocab).status();
    CHECK(ErrorCodeOf(more) == SPECD_ERROR_REGION);
    CHECK(ErrorFieldOf(more) == "num_rows");
    CHECK(more.message().find("holds 100 rows") != absl::string_view::npos);
    CHECK_FALSE(BindTensor(region, {kF32, 4, 100, 0}, kVocab).ok());
    CHECK(BindTensor(region, {kF32, 4000, 99, 0}, kVocab).ok());
    // With a stride of 2,000 elements the gap after the last row need not exist.
    CHECK(BindTensor(region, {kF32, 4000, 50, 2000}, kVocab).ok());
    CHECK_FALSE(BindTensor(region, {kF32, 4004, 50, 2000}, kVocab).ok());
    // Half the bytes per element, twice the rows.
    CHECK(BindTensor(region, {kF16, 0, 200, 0}, kVocab).ok());
    CHECK_FALSE(BindTensor(region, {kF16, 2, 200, 0}, kVocab).ok());
    const absl::StatusOr<TensorView> inside = BindTensor(region, {kF16, 6, 1, 0}, kVocab);
    REQUIRE(inside.ok());
    CHECK(inside->data == static_cast<const char*>(region.data()) + 6);
  }

  TEST_CASE("region: a file that is cut and sealed while it is examined is never accepted") {
    // Bug: the size was read before the seals, so that a cut in between went unnoticed, and the
    // first row that was read killed the daemon.
    int accepted = 0;
    for (int i = 0; i < 3000; ++i) {
      UniqueFd fd = test::MakeMemfd(4096, 0);
      UniqueFd seen(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
      std::atomic<bool> go{false};
      std::thread engine([&] {
        while (!go.load(std::memory_order_relaxed)) {
        }
        if (ftruncate(fd.get(), 0) == 0) fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
      });
      go.store(true, std::memory_order_relaxed);
      accepted += Region::Import(std::move(seen), 4096).ok() ? 1 : 0;
      engine.join();
    }
    CHECK(accepted == 0);
  }

  TEST_CASE("tensor: offsets and sizes that wrap are out of bounds (A4, A5)") {
    const Region region = MakeRegion(4096);
    struct Bad {
      TensorSpec spec;
      const char* field;
    };
    const uint64_t rows_max = (uint64_t{1} << 31) - 1;
    const Bad bads[] = {
        {{kF32, ~uint64_t{0} - 31, 1, 0}, "offset_bytes"},    // 2^64 - 32 (A4)
        {{kF32, ~uint64_t{0} - 3999, 1, 0}, "offset_bytes"},  // offset + size = 2^64 (A5)
        {{kF32, 4096, 1, 0}, "offset_bytes"},
        {{kF32, 100, 1, 0}, "offset_bytes"},
        {{kF32, 2, 1, 0}, "offset_bytes"},  // not a multiple of 4
        {{kF16, 1, 1, 0}, "offset_bytes"},  // not a multiple of 2
        {{kF32, 0, 0, 0}, "num_rows"},
        {{kF32, 0, rows_max + 1, 0}, "num_rows"},
        {{kF32, 0, ~uint64_t{0}, 0}, "num_rows"},
        {{kF32, 0, rows_max, uint64_t{1} << 40}, "num_rows"},  // 2^73 bytes
        {{kF32, 0, 5, uint64_t{1} << 38}, "num_rows"},         // wraps to 0 in 40 bits
        {{kF32, 0, 1, 999}, "row_stride"},
        {{kF32, 0, 1, (uint64_t{1} << 40) + 1}, "row_stride"},
        {{kF32, 0, 1, ~uint64_t{0}}, "row_stride"},
        {{3, 0, 1, 0}, "dtype"},
        {{UINT32_MAX, 0, 1, 0}, "dtype"},
        {{kF32, 0, 1, 0, 3}, "kind"},
        {{kF32, 0, 1, 0, 0, true}, "renormalise"},  // logits have no sum
        {{kF16, 0, 1, 0, 1}, "dtype"},              // probabilities are float32
        {{kF32, 0, 1, 0, 0, false, 0}, "scale"},
        {{kF32, 0, 1, 0, 0, false, -1}, "scale"},
        {{kF32, 0, 1, 0, 0, false, std::nan("")}, "scale"},
        {{kF32, 0, 1, 0, 0, false, 1e39}, "scale"},   // infinite as a float
        {{kF32, 0, 1, 0, 0, false, 1e-60}, "scale"},  // zero as a float
        {{kF32, 0, 1, 0, 0, false, 1, -1}, "cap"},
        {{kF32, 0, 1, 0, 0, false, 1, 1e39}, "cap"},
        {{kF32, 0, 1, 0, 1, false, 2}, "scale"},  // of probabilities
        {{kF32, 0, 1, 0, 2, false, 1, 30}, "cap"},
    };
    for (const Bad& bad : bads) {
      const absl::Status status = BindTensor(region, bad.spec, kVocab).status();
      CAPTURE(bad.spec.offset_bytes);
      CAPTURE(bad.spec.num_rows);
      CAPTURE(bad.spec.row_stride);
      CHECK_FALSE(status.ok());
      CHECK(ErrorFieldOf(status) == bad.field);
    }
    CHECK(BindTensor(region, {kF32, 96, 1, 0}, kVocab).ok());
  }

  TEST_CASE("tensor: what the elements are arrives in the view") {
    const Region region = MakeRegion(4096);
    const auto capped = BindTensor(region, {kF16, 0, 1, 0, 0, false, 0.5, 30}, kVocab);
    REQUIRE(capped.ok());
    CHECK(capped->rules.kind == RowKind::kLogits);
    CHECK(capped->rules.scale == 0.5f);
    CHECK(capped->rules.cap == 30.0f);
    const auto probabilities = BindTensor(region, {kF32, 0, 1, 0, 1, true}, kVocab);
    REQUIRE(probabilities.ok());
    CHECK(probabilities->rules.kind == RowKind::kProbabilities);
    CHECK(probabilities->rules.renormalise);
    const auto final = BindTensor(region, {kF32, 0, 1, 0, 2}, kVocab);
    REQUIRE(final.ok());
    CHECK(final->rules.kind == RowKind::kFinalProbabilities);
    CHECK_FALSE(final->rules.renormalise);
  }

  TEST_CASE("mask: rows of ceil(vocab_size / 32) words, bounds as for any tensor") {
    const Region region = MakeRegion(1280);  // ten rows of 32 words, which 1,000 ids need
    const auto whole = BindMask(region, {0, 0, 10, 0}, kVocab);
    REQUIRE(whole.ok());
    CHECK(whole->words == region.data());
    CHECK(whole->num_rows == 10);
    CHECK(whole->row_stride == 32);
    CHECK(ErrorFieldOf(BindMask(region, {0, 0, 11, 0}, kVocab).status()) == "num_rows");
    CHECK(ErrorFieldOf(BindMask(region, {0, 4, 10, 0}, kVocab).status()) == "num_rows");
    CHECK(ErrorFieldOf(BindMask(region, {0, 2, 1, 0}, kVocab).status()) == "offset_bytes");
    CHECK(ErrorFieldOf(BindMask(region, {0, 0, 1, 31}, kVocab).status()) == "row_stride");
    CHECK(BindMask(region, {0, 0, 5, 64}, kVocab).ok());
    CHECK(BindMask(region, {0, 128, 9, 0}, 1024).ok());  // 32 words to the last bit
    CHECK_FALSE(BindMask(region, {0, 0, 10, 0}, 1025).ok());
    CHECK(ErrorFieldOf(BindMask(region, {1, 0, 1, 0}, kVocab).status()) == "role");
    CHECK(ErrorFieldOf(BindMask(region, {0, 0, 1, 0, 1}, kVocab).status()) == "role");
    CHECK(ErrorFieldOf(BindMask(region, {0, 0, 1, 0, 0, false, 2}, kVocab).status()) == "role");
  }

  TEST_CASE("draft tokens: a row of max_draft ids for each slot, bounds as for any tensor") {
    const Region region = MakeRegion(240);  // twelve rows of five ids
    const auto whole = BindTokenRows(region, {0, 0, 12, 0}, 12, 5);
    REQUIRE(whole.ok());
    CHECK(whole->ids == region.data());
    CHECK(whole->row_stride == 5);
    CHECK(whole->space == MemorySpace::kHost);
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 0, 13, 0}, 12, 5).status()) == "num_rows");
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 0, 11, 0}, 12, 5).status()) == "num_rows");
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 4, 12, 0}, 12, 5).status()) == "num_rows");
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 2, 2, 0}, 1, 5).status()) == "offset_bytes");
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 0, 2, 4}, 1, 5).status()) == "row_stride");
    const auto apart = BindTokenRows(region, {0, 8, 3, 20}, 3, 5);
    REQUIRE(apart.ok());
    CHECK(apart->ids == static_cast<const TokenId*>(region.data()) + 2);
    CHECK(apart->row_stride == 20);
    CHECK(ErrorFieldOf(BindTokenRows(region, {1, 0, 1, 0}, 1, 5).status()) == "role");
    // A session without drafts has no rows to speak of, wherever they would begin.
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 0, 1, 0}, 1, 0).status()) == "role");
    CHECK(ErrorFieldOf(BindTokenRows(region, {0, 4096, 1, 0}, 1, 0).status()) == "role");
  }
}

}  // namespace
}  // namespace specd
