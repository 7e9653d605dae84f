#include "daemon/recorder/trace_options.h"

#include <doctest/doctest.h>

#include <string>

#include "ipc/base/error.h"
#include "tests/support/mentions.h"

namespace specd {
namespace {

TraceOptions Parse(const std::string& text) {
  const auto options = ParseTraceOptions("/t", text);
  REQUIRE_MESSAGE(options.ok(), std::string(options.status().message()));
  return *options;
}

std::string RefusalOf(const std::string& text, const std::string& directory = "/t") {
  const auto options = ParseTraceOptions(directory, text);
  REQUIRE(!options.ok());
  CHECK(ErrorFieldOf(options.status()) == "trace_options");
  return std::string(options.status().message());
}

TEST_SUITE("unit") {
  TEST_CASE("trace options: without any, every round's decisions are written") {
    const TraceOptions options = Parse("");
    CHECK(options.enabled());
    CHECK(options.level == TraceLevel::kRounds);
    CHECK(options.every == 1);
    CHECK(options.flight == 0);
    CHECK(options.triggers == kAllTriggers);
    CHECK_FALSE(ParseTraceOptions("", "")->enabled());
  }

  TEST_CASE("trace options: every key is read") {
    const TraceOptions options = Parse(
        "level=rows,every=100,request=r-1,places=all,flight=64,triggers=bad_row+signal,"
        "file_mib=2,total_mib=5,total_files=7,buffer_mib=4,check=5,check_drafts=9");
    CHECK(options.level == TraceLevel::kRows);
    CHECK(options.every == 100);
    CHECK(options.request == "r-1");
    CHECK(options.all_places);
    CHECK(options.flight == 64);
    CHECK(options.triggers == (kTriggerBadRow | kTriggerSignal));
    CHECK(options.file_bytes == 2 << 20);
    CHECK(options.total_bytes == 5 << 20);
    CHECK(options.total_files == 7);
    CHECK(options.buffer_bytes == 4 << 20);
    CHECK(options.check == 5);
    CHECK(options.check_drafts == 9);
    CHECK(Parse("level=hashes").level == TraceLevel::kHashes);
    CHECK(options.text.starts_with("level=rows,"));
  }

  TEST_CASE("trace options: an unknown key is refused with the nearest one") {
    CHECK(Mentions(RefusalOf("evry=3"), "evry is no key; did you mean every?"));
    CHECK(Mentions(RefusalOf("buffer=3"), "did you mean buffer_mib?"));
    CHECK_FALSE(Mentions(RefusalOf("zzzzzzzzzzz=3"), "did you mean"));
  }

  TEST_CASE("trace options: a bad value is refused with key, value and range") {
    CHECK(Mentions(RefusalOf("every=0"), "every = 0 is outside 1 .. 1000000000"));
    CHECK(Mentions(RefusalOf("every=x"), "every = x is outside"));
    CHECK(Mentions(RefusalOf("flight=-1"), "flight = -1 is outside 1 .. 1000000"));
    CHECK(Mentions(RefusalOf("buffer_mib=99999999999999999999"), "is outside 1 .. 1048576"));
    CHECK(Mentions(RefusalOf("level=row"), "did you mean rows?"));
    CHECK(Mentions(RefusalOf("places=some"), "places = some is not read or all"));
    CHECK(Mentions(RefusalOf("flight=1,triggers=bad_row+signl"), "did you mean signal?"));
    CHECK(Mentions(RefusalOf("request="), "request is empty"));
    CHECK(Mentions(RefusalOf("level"), "\"level\" is not of the form key=value"));
    CHECK(Mentions(RefusalOf("level=rows,"), "\"\" is not of the form key=value"));
    CHECK(Mentions(RefusalOf("every=2,every=3"), "every is given twice"));
  }

  TEST_CASE("trace options: options that contradict each other are refused") {
    CHECK(Mentions(RefusalOf("check=1"), "add level=rows"));
    CHECK(Mentions(RefusalOf("check_drafts=3"), "check_drafts = 3 needs the rows of rounds"));
    CHECK(Mentions(RefusalOf("triggers=abort"), "add flight=N"));
    CHECK(Mentions(RefusalOf("file_mib=20,total_mib=10"), "total_mib = 10 is below file_mib = 20"));
    CHECK(Mentions(RefusalOf("flight=9,file_mib=9,total_mib=10"),
                   "total_mib = 10 is below buffer_mib = 64"));
    CHECK(ParseTraceOptions("/tmp", "file_mib=9,total_mib=10").ok());
    CHECK(Mentions(RefusalOf("level=rows", ""), "has no effect without a directory"));
  }
}

}  // namespace
}  // namespace specd
