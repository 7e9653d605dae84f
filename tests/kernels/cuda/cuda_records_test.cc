// Records of rounds on a real device against the CPU, bit for bit: suite "gpu". Without a device a
// case passes and says that nothing was compared, unless SPECD_REQUIRE_GPU is set; SPECD_GPU_QUICK
// makes the rounds few and small.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/cuda/conformance_grid.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/kernels/cuda/record_difference.h"

namespace specd {
namespace {

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
        RoundCase plain(options);
        RoundCase on_cpu(options);
        REQUIRE(device->Run(plain.All()).ok());
        REQUIRE((*cpu)->Run(on_cpu.All()).ok());
        const std::string without = AnswerDifference(plain, on_cpu, options.batch);
        CHECK_MESSAGE(without.empty(), shape.name, ", V = ", vocab_size,
                      ", not recorded: ", without);
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
