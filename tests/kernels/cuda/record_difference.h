// RecordDifference compares the records of a round on a device with those on the CPU, for the suite
// "gpu".
#pragma once

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/decision_text.h"
#include "tests/support/round_case.h"

namespace specd {

// The first difference between the records of a round on the device and on the CPU, or between its
// answers with and without records; "" if there is none.
inline std::string RecordDifference(Backend& device, Backend& cpu,
                                    const RoundCase::Options& options, DecisionCounts* counts) {
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

}  // namespace specd
