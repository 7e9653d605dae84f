// The counts of rounds over nvcc's PTX against what their rows make certain.
#include "tests/gpu/ptx/counts/round_counter.h"

#include <doctest/doctest.h>

#include "tools/bench/verify_case.h"

namespace specd::ptx {
namespace {

constexpr int32_t kVocabSize = 4096;  // whole tiles
constexpr int32_t kDraft = 2;

int64_t Sum(const std::vector<LaunchProfile>& launches, uint64_t LaunchProfile::*member) {
  uint64_t sum = 0;
  for (const LaunchProfile& launch : launches) sum += launch.*member;
  return static_cast<int64_t>(sum);
}

TEST_SUITE("ptx") {
  TEST_CASE(
      "PTX counts: a read asks once for each sector of the rows, and rounds for little more") {
    RoundCounter counter;
    const absl::Status opened = counter.Open();
    REQUIRE_MESSAGE(opened.ok(), std::string(opened.message()));
    for (const bench::VerifyCase& verify_case : bench::GpuCases()) {
      CAPTURE(verify_case.name);
      const auto counts = counter.Count(
          {&verify_case, DType::kBFloat16, kVocabSize, {.batch = 2, .draft = kDraft}});
      REQUIRE_MESSAGE(counts.ok(), std::string(counts.status().message()));
      const int64_t row_bytes = 2 * counts->num_elements;
      REQUIRE(counts->num_elements % kVocabSize == 0);
      REQUIRE(counts->read.size() == 1);
      // Besides the rows, the list of their addresses is read, and the sink may be written.
      const int64_t read = Sum(counts->read, &LaunchProfile::needed_sectors);
      CHECK(read >= row_bytes / 32);
      CHECK(read <= row_bytes / 32 + 8);
      CHECK(Sum(counts->read, &LaunchProfile::asked_bytes) >= row_bytes);
      CHECK(Sum(counts->read, &LaunchProfile::num_bank_conflicts) == 0);
      CHECK(Sum(counts->read, &LaunchProfile::asked_row_sectors) == row_bytes / 32);
      CHECK(Sum(counts->read, &LaunchProfile::repeated_row_sectors) == 0);
      CHECK(Sum(counts->round, &LaunchProfile::asked_row_sectors) >= row_bytes / 32);
      // A round reads at least these rows. Every element takes an instruction of a lane or more.
      CHECK(Sum(counts->round, &LaunchProfile::needed_sectors) >= row_bytes / 32);
      uint64_t num_instructions = 0;
      for (const LaunchProfile& launch : counts->round) {
        num_instructions += launch.num_instructions();
      }
      CHECK(32 * static_cast<int64_t>(num_instructions) > counts->num_elements);
      CHECK(Sum(counts->round, &LaunchProfile::chain_instructions) > 100);
    }
  }
}

}  // namespace
}  // namespace specd::ptx
