// The lines of specd_ptx_counts, against numbers worked out by hand.
#include "tests/gpu/ptx/counts/prediction_table.h"

#include <doctest/doctest.h>
#include <simdjson.h>

#include <string>
#include <string_view>

#include "tools/bench/verify_case.h"

namespace specd::ptx {
namespace {

std::string JsonOf(const bench::Line& line) {
  return bench::Output({.suite = "ptx", .command = "", .format = bench::Format::kJson})
      .JsonOf(line);
}

bench::Cell CellOf(std::string_view name, int32_t batch, int32_t vocab_size = 128256) {
  return {bench::FindCase(bench::GpuCases(), name),
          DType::kBFloat16,
          vocab_size,
          {.batch = batch, .draft = 5}};
}

LaunchProfile Launch(uint64_t num_sectors, uint64_t chain_cycles) {
  LaunchProfile launch;
  launch.kernel = "k";
  launch.num_blocks = 1000;
  launch.needed_sectors = launch.asked_sectors = num_sectors;
  launch.chain_cycles = chain_cycles;
  launch.num_by_class[0] = 10;
  return launch;
}

TEST_SUITE("ptx") {
  TEST_CASE("PTX counts: a round's ratio is to a read of its rows, at 64 its goal too") {
    // On an H200, 0.92 of 4,800 GB/s are 138,000 sectors in a microsecond: 10 us for the round, and
    // 8 for the read. The first launch of each comes after a gap of 1.5 us.
    const RoundCounts counts = {
        .num_elements = 1600, .round = {Launch(1'380'000, 7)}, .read = {Launch(1'104'000, 7)}};
    const std::string text =
        JsonOf(PredictionLine(CellOf("greedy", 64), counts, *FindDevice(90, 132)));
    simdjson::dom::parser parser;
    const simdjson::dom::object line = parser.parse(text).get_object();
    CHECK(double(line["predicted_us"]) == doctest::Approx(11.5));
    CHECK(double(line["read_us"]) == doctest::Approx(9.5));
    CHECK(double(line["ratio"]) == doctest::Approx(11.5 / 9.5).epsilon(1e-4));
    CHECK(double(line["instr/element"]) == doctest::Approx(0.2));
    CHECK(std::string_view(line["bound"]) == "memory");
    CHECK(double(line["target"]) == 1.25);
    CHECK(bool(line["met"]));
  }

  TEST_CASE("PTX counts: one sequence has a time to meet, which its launches take alone") {
    // An A100 makes 1,410 cycles in a microsecond: the chains take 13 us and 2.
    const RoundCounts counts = {
        .num_elements = 1600, .round = {Launch(1, 13 * 1410)}, .read = {Launch(1, 2 * 1410)}};
    const std::string text =
        JsonOf(PredictionLine(CellOf("one_hot", 1), counts, *FindDevice(80, 108)));
    simdjson::dom::parser parser;
    const simdjson::dom::object line = parser.parse(text).get_object();
    CHECK(double(line["predicted_us"]) == doctest::Approx(14.5));
    CHECK(double(line["read_us"]) == doctest::Approx(3.5));
    CHECK(std::string_view(line["bound"]) == "chain");
    CHECK(double(line["target_us"]) == 12);
    CHECK_FALSE(bool(line["met"]));
    // Without chains both are a gap and a sector.
    CHECK(double(line["without_chain"]) == doctest::Approx(1).epsilon(1e-4));
  }

  TEST_CASE("PTX counts: a goal for 128,256 ids was judged at other sizes") {
    const RoundCounts counts = {
        .num_elements = 1600, .round = {Launch(1, 1)}, .read = {Launch(1, 1)}};
    for (const int32_t batch : {1, 64}) {
      const std::string text =
          JsonOf(PredictionLine(CellOf("greedy", batch, 2048), counts, *FindDevice(80, 108)));
      CHECK(text.find("target") == std::string::npos);
    }
  }

  TEST_CASE("PTX counts: a launch has the functions of its longest warp") {
    LaunchProfile launch = Launch(1, 12 * 1410);
    launch.asked_row_sectors = 1'000'000;
    launch.repeated_row_sectors = 250'000;
    launch.num_bank_conflicts = 4;
    // Two instances of a template are one function: 9 of 12 us are Finish's.
    launch.chain_functions = {{"k", 12 * 1410},
                              {"_ZN5specd6FinishILb0EEEvv", 5 * 1410},
                              {"_ZN5specd6FinishILb1EEEvv", 4 * 1410},
                              {"Judge", 6 * 1410},
                              {"Rest", 1410}};
    const std::string text = JsonOf(LaunchLine(CellOf("one_hot", 1), launch, *FindDevice(80, 108)));
    simdjson::dom::parser parser;
    const simdjson::dom::object line = parser.parse(text).get_object();
    CHECK(double(line["predicted_us"]) == doctest::Approx(12));
    CHECK(double(line["rows_MB"]) == doctest::Approx(32));
    CHECK(double(line["again_MB"]) == doctest::Approx(8));
    CHECK(double(line["conflicts"]) == 4);
    // The kernel itself is no part of it, nor is less than a tenth.
    CHECK(std::string_view(line["functions of the longest warp"]) == "Finish 75 %, Judge 50 %");
  }
}

}  // namespace
}  // namespace specd::ptx
