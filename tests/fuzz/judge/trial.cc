#include "tests/fuzz/judge/trial.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <new>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tests/fuzz/judge/dice.h"

namespace specd::grammar {
namespace {

double CpuMs() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

int64_t PeakBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int64_t ResidentBytes() {
  int64_t all = 0;
  int64_t resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    if (std::fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * sysconf(_SC_PAGESIZE);
}

// The peak of the process only grows, so it says something of a trial only if the trial moved it.
class PeakMeter {
 public:
  PeakMeter() : peak_(PeakBytes()), resident_(ResidentBytes()) {}
  int64_t Read() const {
    const int64_t peak = PeakBytes();
    return peak > peak_ ? peak - resident_ : 0;
  }

 private:
  const int64_t peak_;
  const int64_t resident_;
};

std::string_view FaultName(MatcherFault fault) {
  constexpr std::array<std::string_view, 6> kNames = {
      "no fault", "too many ways", "full", "too much work", "library failed", "no memory"};
  return kNames[static_cast<size_t>(fault)];
}

// The runs of letters and digits, without those that follow the first ones of a long text.
std::vector<std::string> WordsOf(const std::string& text) {
  constexpr size_t kWordsMax = 64;
  std::vector<std::string> words;
  std::string word;
  for (const char byte : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(byte))) {
      word += byte;
    } else if (!word.empty()) {
      words.push_back(word + "\":");
      if (words.size() == kWordsMax) break;
      word.clear();
    }
  }
  return words;
}

}  // namespace

std::string_view OutcomeName(Outcome outcome) {
  constexpr std::array<std::string_view, kNumOutcomes> kNames = {"ok",   "refused", "crash",
                                                                 "time", "memory",  "fault"};
  return kNames[static_cast<size_t>(outcome)];
}

TrialResult Trial::Run(const GrammarRequest& request, uint64_t seed,
                       absl::FunctionRef<void()> opened) const {
  TrialResult result;
  const PeakMeter meter;
  const double begin = CpuMs();
  try {
    const absl::StatusOr<std::shared_ptr<const CompiledGrammar>> compiled =
        compiler_.CompileAnew(request);
    result.cpu_ms = CpuMs() - begin;
    if (!compiled.ok()) {
      const bool is_short_of_memory = compiled.status().code() == absl::StatusCode::kUnavailable;
      result.outcome = is_short_of_memory ? Outcome::kMemory : Outcome::kRefused;
      result.detail = compiled.status().ToString();
    } else {
      const double compile_end = CpuMs();
      (*compiled)->NewMatcher({.stop_ids = {options_.eos_id}})->Mask();
      result.first_mask_ms = CpuMs() - compile_end;
      opened();
      const std::vector<std::string> words =
          options_.num_walks > 0 ? WordsOf(request.text) : std::vector<std::string>();
      for (int walk = 0; walk < options_.num_walks && result.detail.empty(); ++walk) {
        result.detail = Walk(**compiled, words, seed + static_cast<uint64_t>(walk));
      }
      if (!result.detail.empty()) result.outcome = Outcome::kFault;
    }
  } catch (const std::bad_alloc&) {
    result.outcome = Outcome::kMemory;
    result.detail = "std::bad_alloc";
  }
  result.peak_bytes = meter.Read();
  return result;
}

std::vector<TokenId> Trial::AllowedIds(const MaskRow& row) const {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < options_.vocab_size; ++id) {
    if (row.Allows(id)) ids.push_back(id);
  }
  return ids;
}

std::string Trial::Walk(const CompiledGrammar& compiled, const std::vector<std::string>& words,
                        uint64_t seed) const {
  Dice dice(seed);
  std::string_view spelled;  // what is left of a word
  const std::unique_ptr<GrammarMatcher> matcher =
      compiled.NewMatcher({.stop_ids = {options_.eos_id}});
  for (int i = 0; i < options_.num_tokens; ++i) {
    const MaskRow row = matcher->Mask();
    if (matcher->fault() != MatcherFault::kNone) {
      return fmt::format("the mask after {} tokens: {}", i, FaultName(matcher->fault()));
    }
    const std::vector<TokenId> ids = AllowedIds(row);
    if (ids.empty()) return fmt::format("the mask after {} tokens is empty", i);
    if (ids.back() == options_.eos_id && ids.size() == 1) return {};
    if (spelled.empty() && !words.empty() && dice.OneIn(2))
      spelled = words[dice.Below(words.size())];
    // The higher ids are longer pieces, which go on with the text rather than with one string.
    TokenId id = ids[std::max(dice.Below(ids.size()), dice.Below(ids.size()))];
    const TokenId byte = spelled.empty() ? -1 : static_cast<uint8_t>(spelled.front());
    if (byte >= 0 && row.Allows(byte)) {
      id = byte;
      spelled.remove_prefix(1);
    } else {
      spelled = {};
    }
    if (id == options_.eos_id) id = ids.front();
    if (!matcher->Accept(id)) {
      return fmt::format("token {} after {} tokens was allowed and not accepted ({})", id, i,
                         FaultName(matcher->fault()));
    }
  }
  return {};
}

}  // namespace specd::grammar
