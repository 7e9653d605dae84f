#include "tools/replay/names.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <span>

#include "kernels/core/method_names.h"

namespace specd::replay {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 8> kStatuses = {
    "ok",      "finished",     "bad_distribution", "unknown_sequence",
    "invalid", "device_error", "aborted",          "not_ready"};
constexpr std::array<std::string_view, 5> kReasons = {"none", "stop", "length", "abort", "error"};
constexpr std::array<std::string_view, 8> kOutcomes = {
    "ok",      "bad_target_row", "bad_draft_row", "bad_token",
    "no_room", "bad_parents",    "long_path",     "mixed_kinds"};
static_assert(kOutcomes.size() == static_cast<size_t>(OutcomeStatus::kMixedKinds) + 1);
constexpr std::array<std::string_view, 4> kLevels = {"off", "rounds", "hashes", "rows"};
constexpr std::array<std::string_view, 4> kNoRows = {
    "with all", "left out by a full buffer",
    "that may have changed (in a CUDA graph, or called off)", "that the device did not give"};
constexpr std::array<std::string_view, 4> kTensors = {"target", "draft", "mask", "grammar mask"};
constexpr std::array<std::string_view, 3> kDTypes = {"fp32", "bf16", "fp16"};
constexpr std::array<std::string_view, 3> kKinds = {"logits", "probabilities",
                                                    "final probabilities"};
constexpr std::array<std::string_view, 6> kPurposes = {"?",      "SAMPLE",   "DRAFT",
                                                       "ACCEPT", "RESIDUAL", "TREE"};

constexpr std::array<std::string_view, 14> kZeroSteps = {"not by a step",
                                                         "the thinking budget forces another id",
                                                         "the grammar forbids the id",
                                                         "a mask of the engine forbids the id",
                                                         "allowed_token_ids leaves the id out",
                                                         "disallowed ids name it",
                                                         "an end before min_tokens",
                                                         "a bad word or a repeated n-gram",
                                                         "the row or its bias has no mass there",
                                                         "min_p",
                                                         "top_k",
                                                         "top_p",
                                                         "top_k or top_p",
                                                         "the probability rounds to 0"};
static_assert(kZeroSteps.size() == static_cast<size_t>(ZeroStep::kUnderflow) + 1);

template <class E>
std::string_view WordOf(Words words, E value) {
  const auto index = static_cast<size_t>(value);
  return index < words.size() ? words[index] : "?";
}

template <class E>
bool Find(Words words, std::string_view name, E* value) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != name) continue;
    *value = static_cast<E>(i);
    return true;
  }
  return false;
}

}  // namespace

std::string_view NameOf(VerifyMethod method) { return WordOf(kMethodNames, method); }
std::string MethodText(VerifyMethod method) {
  return fmt::format("{}{}", NameOf(method), IsLossy(method) ? " (lossy)" : "");
}
std::string_view NameOf(RoundStatus status) { return WordOf(kStatuses, status); }
std::string_view NameOf(FinishReason reason) { return WordOf(kReasons, reason); }
std::string_view NameOf(OutcomeStatus status) { return WordOf(kOutcomes, status); }
std::string_view NameOf(TraceLevel level) { return WordOf(kLevels, level); }
std::string_view NameOf(NoRows why) { return WordOf(kNoRows, why); }
std::string_view NameOf(TraceTensor tensor) { return WordOf(kTensors, tensor); }
std::string_view NameOf(DType dtype) { return WordOf(kDTypes, dtype); }
std::string_view NameOf(RowKind kind) { return WordOf(kKinds, kind); }
std::string_view NameOf(ZeroStep step) { return WordOf(kZeroSteps, step); }
std::string_view NameOf(Purpose purpose) { return WordOf(kPurposes, purpose); }

std::string_view NameOf(RowFault fault) {
  switch (fault) {
    case RowFault::kNan:
      return "holds NaN or a negative probability";
    case RowFault::kNoMass:
      return "has no id above -inf";
    case RowFault::kSum:
      return "has probabilities that do not sum to 1";
    case RowFault::kShare:
      return "has a weight or a mass out of range";
    case RowFault::kChanged:
      return "changed while it was read";
    case RowFault::kNone:
      break;
  }
  return "has a NaN or no mass";
}

bool ParseMethod(std::string_view name, VerifyMethod* method) {
  return Find(kMethodNames, name, method);
}
bool ParseStatus(std::string_view name, RoundStatus* status) {
  return Find(kStatuses, name, status);
}

std::string HandleText(SequenceHandle sequence) { return fmt::format("{:#x}", sequence); }

std::string TimeText(int64_t unix_ns) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  int64_t seconds = unix_ns / kNsPerSecond;
  int64_t rest = unix_ns % kNsPerSecond;
  if (rest < 0) {
    rest += kNsPerSecond;
    --seconds;
  }
  const std::time_t time = seconds;
  std::tm parts = {};
  if (gmtime_r(&time, &parts) == nullptr) return "?";
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, rest / 1'000'000);
}

std::string DurationText(int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns < 1'000'000) return fmt::format("{:.1f} us", value / 1e3);
  if (ns < 1'000'000'000) return fmt::format("{:.2f} ms", value / 1e6);
  return fmt::format("{:.2f} s", value / 1e9);
}

std::string SizeText(uint64_t size_bytes) {
  const auto value = static_cast<double>(size_bytes);
  if (size_bytes < 1024) return fmt::format("{} bytes", size_bytes);
  if (size_bytes < 1024 * 1024) return fmt::format("{:.1f} KiB", value / 1024);
  return fmt::format("{:.1f} MiB", value / 1048576);
}

}  // namespace specd::replay
