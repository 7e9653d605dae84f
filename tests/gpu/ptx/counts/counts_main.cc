// specd_ptx_counts counts what rounds of `specd-bench gpu` ask of a device, and predicts their
// times.
//
//   export SPECD_PTX_FOLDER=sm_90 SPECD_PTX_ARCH=90 SPECD_PTX_PROCESSORS=132
//   specd_ptx_counts [--draft=N] [VOCAB [CASE ...]]
//
// The cases are those of `specd-bench gpu --quick` in bf16, or the named ones of them, over a
// vocabulary of 128256 or VOCAB ids, with drafts of 5 tokens or N. The environment describes the
// device (pretended_device.h). A table of the rounds comes first, and then one of their launches.
#include <absl/strings/numbers.h>
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/gpu/ptx/counts/prediction_table.h"
#include "tests/gpu/ptx/counts/round_counter.h"
#include "tests/gpu/ptx/runtime/pretended_device.h"
#include "tools/bench/verify_case.h"

namespace specd::ptx {
namespace {

constexpr int32_t kVocabSize = 128256;
constexpr int32_t kDraft = 5;
constexpr int32_t kDraftMost = 16;

int Fail(int exit_code, const std::string& message) {
  fmt::print(stderr, "specd_ptx_counts: error: {}\n", message);
  return exit_code;
}

int Main(int argc, char** argv) {
  constexpr std::string_view kDraftOption = "--draft=";
  int32_t draft = kDraft;
  if (argc > 1 && std::string_view(argv[1]).starts_with(kDraftOption)) {
    const char* const text = argv[1] + kDraftOption.size();
    if (!absl::SimpleAtoi(text, &draft) || draft < 0 || draft > kDraftMost) {
      return Fail(2, fmt::format("draft = {} is outside 0 .. {}", text, kDraftMost));
    }
    --argc;
    ++argv;
  }
  int32_t vocab_size = kVocabSize;
  if (argc > 1 &&
      (!absl::SimpleAtoi(argv[1], &vocab_size) || vocab_size < 1 || vocab_size > kVocabSizeMax)) {
    return Fail(2, fmt::format("VOCAB = {} is outside 1 .. {}", argv[1], kVocabSizeMax));
  }
  std::vector<const bench::VerifyCase*> cases;
  for (int i = 2; i < argc; ++i) {
    cases.push_back(bench::FindCase(bench::GpuCases(), argv[i]));
    if (cases.back() == nullptr) {
      return Fail(2,
                  fmt::format("CASE = {} is unknown: specd-bench gpu --list names them", argv[i]));
    }
  }
  if (cases.empty()) {
    for (const bench::VerifyCase& known : bench::GpuCases()) cases.push_back(&known);
  }
  const PretendedDevice& pretended = PretendedDevice::Get();
  const DeviceFigures* const device = FindDevice(pretended.arch(), pretended.num_processors());
  if (device == nullptr) {
    return Fail(2, fmt::format("SPECD_PTX_PROCESSORS = {} is no known device for PTX of {}: count "
                               "for 132 or 148 (90), or for 108 (80)",
                               pretended.num_processors(), pretended.arch()));
  }
  RoundCounter counter;
  if (const absl::Status opened = counter.Open(); !opened.ok()) {
    return Fail(1, std::string(opened.message()));
  }
  bench::Output out(
      {.suite = "ptx", .command = "specd_ptx_counts", .format = bench::Format::kMarkdown});
  out.Begin("", "no device: predicted from counts of executed PTX");
  std::vector<bench::Line> launches;
  for (const int32_t batch : {1, 64}) {
    for (const bench::VerifyCase* const verify_case : cases) {
      const bench::Cell cell = {
          verify_case, DType::kBFloat16, vocab_size, {.batch = batch, .draft = draft}};
      const absl::StatusOr<RoundCounts> counts = counter.Count(cell);
      if (!counts.ok()) return Fail(1, std::string(counts.status().message()));
      out.Print(PredictionLine(cell, *counts, *device));
      for (const LaunchProfile& launch : counts->round) {
        launches.push_back(LaunchLine(cell, launch, *device));
      }
    }
  }
  out.NextTable();
  for (const bench::Line& line : launches) out.Print(line);
  return 0;
}

}  // namespace
}  // namespace specd::ptx

int main(int argc, char** argv) { return specd::ptx::Main(argc, argv); }
