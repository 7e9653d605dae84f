// Records of rounds on a real device against the CPU, bit for bit: suite "gpu". Without a device a
// case passes and says that nothing was compared, unless SPECD_REQUIRE_GPU is set; SPECD_GPU_QUICK
// makes the rounds few and small.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/support/decision_text.h"
#include "tests/support/round_case.h"

namespace specd {
namespace {

// The first difference between the records of a round on the device and on the CPU, or between its
// answers with and without records; "" if there is none.
std::string RecordDifference(Backend& device, Backend& cpu, const RoundCase::Options& options,
                             DecisionCounts* counts) {
  const int32_t num_places = options.max_draft + 1;
  RoundCase plain(options);
  RoundCase recorded(options);
  RoundCase on_cpu(options);
  const absl::Status status = device.Run(plain.All());
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  const std::vector<PlaceDecision> decisions = DecisionsOf(device, recorded.All(), num_places);
  const std::vector<PlaceDecision> expected = DecisionsOf(cpu, on_cpu.All(), num_places);
  for (int32_t i = 0; i < options.batch; ++i) {
    if (recorded.answer(i) != plain.answer(i)) {
      return fmt::format("sequence {}\n  recorded: {}\n  plain:    {}", i, recorded.answer(i),
                         plain.answer(i));
    }
    const auto first = static_cast<size_t>(i * num_places);
    for (int32_t place = 0; place < num_places; ++place) {
      const std::string text = DecisionText(decisions[first + static_cast<size_t>(place)]);
      const std::string wanted = DecisionText(expected[first + static_cast<size_t>(place)]);
      if (text == wanted) continue;
      return fmt::format("sequence {}, place {}\n  device: {}\n  CPU:    {}", i, place, text,
                         wanted);
    }
    counts->Add(recorded.task(i), recorded.outcome(i),
                std::span(decisions).subspan(first, static_cast<size_t>(num_places)));
  }
  return "";
}

TEST_SUITE("gpu") {
  TEST_CASE("CUDA rounds that are recorded: every method, element type and kind of rows") {
    const std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr) return;
    const auto cpu = MakeBackend("cpu");
    REQUIRE(cpu.ok());
    const std::vector<int32_t> sizes =
        Quick() ? std::vector<int32_t>{7, 2049} : std::vector<int32_t>{1, 7, 2049, 32000, 151936};
    DecisionCounts counts;
    for (const int32_t vocab_size : sizes) {
      for (const Shape& shape : kShapes) {
        const RoundCase::Options options =
            OptionsOf(shape, vocab_size, Quick() ? 8 : 96, Quick() ? 3 : 6);
        for (Backend* const backend : {device.get(), cpu->get()}) {
          REQUIRE(backend->Prepare({options.vocab_size, options.batch, options.max_draft}).ok());
        }
        const std::string difference = RecordDifference(*device, **cpu, options, &counts);
        CHECK_MESSAGE(difference.empty(), shape.name, ", V = ", vocab_size, ": ", difference);
      }
    }
    CHECK(counts.HasAll());
    int64_t num_judged = 0;
    for (const int64_t judged : counts.judged) num_judged += judged;
    MESSAGE("compared ", num_judged, " judged places, ", counts.drawn, " draws");
  }
}

}  // namespace
}  // namespace specd
