// Quotients of a repetition penalty against the processor's own division, which IEEE 754 defines to
// the bit. They are computed on the CPU, and on a real device (suite "gpu"). There Divide of
// kernels/core/numerics.h makes them without the operator, from the device's own estimate of 1 / b.
#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/core/numerics.h"
#include "tests/kernels/cuda/device_or_reason.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 600;
constexpr TokenId kOther = 7;
constexpr TokenId kPenalised = 300;

struct Pair {
  float dividend;
  float divisor;
};

// Two rows determine a quotient: greedy takes it over the float below it, and not over itself at a
// lower id. Returns the pairs whose quotient is another, as text.
std::string WrongQuotients(Backend& backend, const std::vector<Pair>& pairs) {
  const auto num_tasks = static_cast<int32_t>(2 * pairs.size());
  RowMatrix target({.vocab_size = kVocabSize, .num_rows = num_tasks});
  const TokenEdit edit{.id = kPenalised, .flags = kEditSeen};
  std::vector<Task> tasks(num_tasks);
  std::vector<uint32_t> rows(num_tasks);
  for (int32_t i = 0; i < num_tasks; ++i) {
    const Pair& pair = pairs[i / 2];
    const float quotient = pair.dividend / pair.divisor;
    std::vector<double> row(kVocabSize, -INFINITY);
    row[kPenalised] = pair.dividend;
    row[kOther] = i % 2 == 0 ? std::nextafterf(quotient, -INFINITY) : quotient;
    target.Set(i, row);
    rows[i] = static_cast<uint32_t>(i);
    tasks[i].target_scale = 1;
    tasks[i].draft.target_rows = &rows[i];
    tasks[i].edits.edits = &edit;
    tasks[i].edits.num_edits = 1;
    tasks[i].edits.penalties.repetition = pair.divisor;
  }
  std::vector<TaskOutcome> outcomes(num_tasks);
  std::vector<TokenId> tokens(num_tasks, -7);
  RoundBatch batch;
  batch.target = target.view();
  batch.tasks = tasks.data();
  batch.num_tasks = num_tasks;
  batch.outcomes = outcomes.data();
  batch.tokens = tokens.data();
  batch.tokens_stride = 1;
  const absl::Status status = backend.Run(batch);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  std::string wrong;
  for (int32_t i = 0; i < num_tasks; ++i) {
    if (tokens[i] == (i % 2 == 0 ? kPenalised : kOther)) continue;
    wrong += fmt::format("{:a} / {:a} is too {}\n", pairs[i / 2].dividend, pairs[i / 2].divisor,
                         i % 2 == 0 ? "small" : "large");
  }
  return wrong;
}

// Positive, with quotients that are neither 0 nor infinite.
std::vector<Pair> Pairs(int num_random) {
  std::vector<float> sizes;
  for (const uint32_t bits :
       {0x1u,        0x2u,        0x7FFFFFu,   0x800000u,   0x800001u,   0x0DFFFFFFu, 0x21800000u,
        0x217FFFFFu, 0x3F7FFFFDu, 0x3F7FFFFFu, 0x3F800000u, 0x3F800001u, 0x3FFFFFFDu, 0x3FFFFFFFu,
        0x40400000u, 0x5D800000u, 0x5D800001u, 0x7F000000u, 0x7F7FFFFEu, 0x7F7FFFFFu}) {
    sizes.push_back(FloatOf(bits));
  }
  std::vector<Pair> pairs;
  const auto offer = [&](float dividend, float divisor) {
    const float quotient = dividend / divisor;
    if (quotient > 0 && quotient < INFINITY) pairs.push_back({dividend, divisor});
  };
  for (const float dividend : sizes) {
    for (const float divisor : sizes) offer(dividend, divisor);
  }
  std::mt19937 random(9);
  const auto any = [&](uint32_t from, uint32_t to) {
    return FloatOf(from + random() % (to - from));
  };
  for (int i = 0; i < num_random; ++i) {
    // Quotients of the size of penalties, denormal quotients, and any others.
    offer(any(BitsOf(0x1p-10f), BitsOf(0x1p10f)), any(BitsOf(0x1p-4f), BitsOf(2.0f)));
    const float dividend = any(1, 5u << 23);
    offer(dividend, any(BitsOf(1.0f), BitsOf(0x1p8f)));
    const float large = any(BitsOf(0x1p122f), BitsOf(INFINITY));
    offer(large, any(BitsOf(0x1p-8f), BitsOf(1.0f)));
    const float other = any(1, BitsOf(INFINITY));
    offer(other, any(1, BitsOf(INFINITY)));
  }
  return pairs;
}

void CheckQuotients(Backend& backend, const std::vector<Pair>& pairs) {
  constexpr size_t kPairsPerRound = 32;
  const absl::Status status = backend.Prepare({kVocabSize, 2 * kPairsPerRound, 0});
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  for (size_t first = 0; first < pairs.size(); first += kPairsPerRound) {
    const auto begin = pairs.begin() + static_cast<ptrdiff_t>(first);
    const auto end = pairs.end() - begin > static_cast<ptrdiff_t>(kPairsPerRound)
                         ? begin + kPairsPerRound
                         : pairs.end();
    CHECK(WrongQuotients(backend, {begin, end}) == "");
  }
}

TEST_SUITE("unit") {
  TEST_CASE("a repetition penalty on a CPU divides as the processor does") {
    auto backend = MakeBackend("cpu");
    REQUIRE(backend.ok());
    CheckQuotients(**backend, Pairs(200));
  }
}

TEST_SUITE("gpu") {
  TEST_CASE("CUDA quotients: very large, very small, and just below a power of two") {
    const std::unique_ptr<Backend> device = DeviceOrReason();
    if (device == nullptr) return;
    const std::vector<Pair> pairs = Pairs(Quick() ? 50 : 20000);
    CheckQuotients(*device, pairs);
    MESSAGE("compared ", pairs.size(), " answers");
  }
}

}  // namespace
}  // namespace specd
