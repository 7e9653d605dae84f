#include "tools/toy_engine/report.h"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "simdjson.h"
#include "tools/toy_engine/json_string.h"

namespace specd::toy {
namespace {

// Two streams: 6 and 2 tokens, 2 rounds and 1, 4 and 1 accepted of 10 and 5 drafts.
RunReport MakeReport() {
  RunReport report;
  report.streams = {{.request_id = "na\u00efve \"quoted\"",
                     .tokens = {1, 2, 3, 4, 5, 6},
                     .finish = "stop",
                     .num_drafts = 10,
                     .num_accepted = 4,
                     .seconds = 0.5,
                     .verify_ns = {3000, 1000},
                     .total_ns = {9000, 7000}},
                    {.request_id = std::string(60, 'x'),
                     .tokens = {1, 2},
                     .finish = "length",
                     .num_drafts = 5,
                     .num_accepted = 1,
                     .seconds = 0.25,
                     .verify_ns = {3000},
                     .total_ns = {9000}}};
  report.seconds = 2.0;
  report.verify_ns = {3000, 2000};  // The streams shared one of their rounds.
  report.total_ns = {9000, 8000};
  return report;
}

size_t CountCharacters(const std::string& text) {
  size_t count = 0;
  for (char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

TEST_SUITE("unit") {
  TEST_CASE("the median") {
    CHECK(Median({}) == 0);
    CHECK(Median({5}) == 5);
    CHECK(Median({9, 1, 5}) == 5);
    CHECK(Median({4, 1, 3, 2}) == 2);
  }

  TEST_CASE("the JSON holds the numbers, per stream and in total") {
    simdjson::dom::parser parser;
    const std::string json = FormatJson(MakeReport());
    simdjson::dom::element document;
    REQUIRE(parser.parse(json).get(document) == simdjson::SUCCESS);
    const simdjson::dom::element first = document["streams"].at(0);
    CHECK(std::string_view(first["name"]) == "na\u00efve \"quoted\"");
    CHECK(uint64_t(first["tokens"]) == 6);
    CHECK(uint64_t(first["rounds"]) == 2);
    CHECK(double(first["accepted_per_round"]) == doctest::Approx(2.0));
    CHECK(double(first["tokens_per_second"]) == doctest::Approx(12.0));
    CHECK(uint64_t(first["verify_ns"]) == 1000);
    CHECK(std::string_view(first["finish"]) == "stop");

    const simdjson::dom::element total = document["total"];
    CHECK(uint64_t(total["tokens"]) == 8);
    CHECK(uint64_t(total["rounds"]) == 2);
    CHECK(uint64_t(total["drafts"]) == 15);
    CHECK(uint64_t(total["accepted"]) == 5);
    // Per sequence and round: a bigger batch is no better drafter.
    CHECK(double(total["accepted_per_round"]) == doctest::Approx(5.0 / 3).epsilon(1e-4));
    CHECK(double(total["tokens_per_second"]) == doctest::Approx(4.0));
    CHECK(uint64_t(total["verify_ns"]) == 2000);
    CHECK(uint64_t(total["total_ns"]) == 8000);
  }

  TEST_CASE("the table is aligned, whatever the prompts") {
    std::istringstream table(FormatTable(MakeReport()));
    std::vector<std::string> lines;
    for (std::string line; std::getline(table, line);) lines.push_back(line);
    REQUIRE(lines.size() == 9);
    const std::string rule(lines[0].size(), '-');
    CHECK(lines[1] == rule);
    CHECK(lines[4] == rule);
    // The last column is the only one aligned to the left: it begins at the same place everywhere.
    const size_t finish = lines[0].find("finish");
    CHECK(lines[2].substr(lines[2].size() - 4) == "stop");
    CHECK(CountCharacters(lines[2]) == finish + 4);
    CHECK(CountCharacters(lines[3]) == finish + 6);
    CHECK(CountCharacters(lines[5]) == finish - 2);
    CHECK(lines[5].substr(0, 5) == "total");
  }

  TEST_CASE("strings in JSON") {
    CHECK(QuoteJson("a\"b\\c\n\x01") == R"("a\"b\\c\u000a\u0001")");
    CHECK(QuoteJson("\u00e9\xff") == "\"\u00e9\\ufffd\"");
  }
}

}  // namespace
}  // namespace specd::toy
