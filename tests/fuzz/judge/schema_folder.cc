#include "tests/fuzz/judge/schema_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tools/bench/synthetic_vocabulary.h"

namespace specd::grammar {
namespace {

namespace fs = std::filesystem;

// As many ids as large models have.
constexpr int32_t kVocabSize = 128256;
constexpr size_t kReasonBytesMax = 110;
constexpr size_t kReasonsShown = 25;
constexpr size_t kWorstShown = 8;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

double TotalMs(const TrialResult& result) { return result.cpu_ms + result.first_mask_ms; }

}  // namespace

std::string ReasonOf(std::string_view message) {
  // "STATUS: #/a/b: what is wrong (what to do): why"
  std::string reason;
  const size_t unsupported = message.find("unsupported ");
  if (unsupported != std::string_view::npos) {
    const size_t advice = message.find(" (", unsupported);
    reason = message.substr(unsupported, advice - unsupported);
    const size_t why = message.find("drop it): ", unsupported);
    if (why != std::string_view::npos) reason += fmt::format(": {}", message.substr(why + 10));
  } else {
    const size_t status_end = message.find(": ");
    std::string_view rest =
        status_end == std::string_view::npos ? message : message.substr(status_end + 2);
    if (rest.starts_with("#")) {
      const size_t pointer_end = rest.find(": ");
      if (pointer_end != std::string_view::npos) rest = rest.substr(pointer_end + 2);
    }
    reason = rest;
  }
  std::string plain;
  for (size_t i = 0; i < reason.size() && plain.size() < kReasonBytesMax; ++i) {
    const char byte = reason[i];
    if (byte >= '0' && byte <= '9') {
      if (!plain.ends_with('N')) plain += 'N';
    } else if (byte == '"') {
      const size_t end = reason.find('"', i + 1);
      plain += "\"\"";
      if (end == std::string::npos) break;
      i = end;
    } else {
      plain += byte;
    }
  }
  return plain;
}

absl::Status SchemaFolder::Run() {
  if (absl::Status status = FindSchemas(); !status.ok()) return status;
  Compile();
  if (absl::Status status = WriteOutcomes(); !status.ok()) return status;
  if (absl::Status status = WriteList(); !status.ok()) return status;
  PrintSummary();
  const absl::StatusOr<size_t> num_worse = Compare();
  if (!num_worse.ok()) return num_worse.status();
  const auto num_findings =
      std::count_if(results_.begin(), results_.end(),
                    [](const TrialResult& result) { return IsFinding(result.outcome); });
  if (num_findings == 0 && *num_worse == 0) return absl::OkStatus();
  return absl::AbortedError(
      fmt::format("{} findings, {} outcomes not as expected", num_findings, *num_worse));
}

absl::Status SchemaFolder::FindSchemas() {
  std::error_code error;
  for (fs::recursive_directory_iterator it(options_.folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".json" || !it->is_regular_file()) continue;
    names_.push_back(fs::relative(it->path(), options_.folder).replace_extension().string());
  }
  if (error) {
    return absl::InvalidArgumentError(
        fmt::format("cannot list {}: {}", options_.folder, error.message()));
  }
  if (names_.empty()) {
    return absl::InvalidArgumentError(fmt::format("{} has no *.json", options_.folder));
  }
  std::sort(names_.begin(), names_.end());
  return absl::OkStatus();
}

void SchemaFolder::Compile() {
  const bench::SyntheticVocabulary vocabulary(kVocabSize);
  GrammarCompiler compiler({.vocabulary = &vocabulary.vocabulary(), .vocab_size = kVocabSize});
  const Trial trial(
      &compiler,
      {.eos_id = vocabulary.eos_id(), .vocab_size = kVocabSize, .num_walks = 0, .num_tokens = 0});
  results_.resize(names_.size());
  size_t num_done = 0;
  TrialRunner(options_.runner)
      .Run(
          names_.size(),
          [&](uint64_t index, absl::FunctionRef<void()> opened) {
            const fs::path path = fs::path(options_.folder) / (names_[index] + ".json");
            GrammarRequest request = {.kind = GrammarKind::kJsonSchema, .text = ReadFile(path)};
            if (options_.any_order) request.key_order = KeyOrder::kAny;
            return trial.Run(request, index, opened);
          },
          [&](uint64_t index, const TrialResult& result) {
            results_[index] = result;
            if (++num_done % 16 == 0 && isatty(STDERR_FILENO) == 1) {
              fmt::print(stderr, "\r\x1b[K{} of {} schemas", num_done, names_.size());
            }
            return true;
          });
  if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\x1b[K");
}

absl::Status SchemaFolder::WriteOutcomes() const {
  if (options_.outcomes.empty()) return absl::OkStatus();
  std::ofstream file(options_.outcomes);
  for (size_t i = 0; i < names_.size(); ++i) {
    const TrialResult& result = results_[i];
    file << fmt::format("{} {} {:.2f} {:.2f}", names_[i], OutcomeName(result.outcome),
                        result.cpu_ms, result.first_mask_ms);
    if (result.outcome == Outcome::kRefused) file << " " << ReasonOf(result.detail);
    if (IsFinding(result.outcome)) file << " " << result.detail;
    file << "\n";
  }
  file.close();
  if (file.fail()) return absl::InvalidArgumentError("cannot write " + options_.outcomes);
  return absl::OkStatus();
}

std::vector<size_t> SchemaFolder::Chosen() const {
  std::vector<size_t> chosen(std::min(options_.list_size, names_.size()));
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = i * names_.size() / chosen.size();
  return chosen;
}

absl::Status SchemaFolder::WriteList() const {
  if (options_.list.empty()) return absl::OkStatus();
  std::ofstream file(options_.list);
  for (const size_t index : Chosen()) {
    const Outcome outcome = results_[index].outcome;
    if (outcome != Outcome::kOk) file << names_[index] << " " << OutcomeName(outcome) << "\n";
  }
  file.close();
  if (file.fail()) return absl::InvalidArgumentError("cannot write " + options_.list);
  return absl::OkStatus();
}

void SchemaFolder::PrintSummary() const {
  size_t counts[kNumOutcomes] = {};
  std::map<std::string, size_t> reasons;
  for (const TrialResult& result : results_) {
    ++counts[static_cast<size_t>(result.outcome)];
    if (result.outcome == Outcome::kRefused) ++reasons[ReasonOf(result.detail)];
  }
  fmt::print("{} schemas\n", results_.size());
  for (size_t i = 0; i < kNumOutcomes; ++i) {
    fmt::print("  {:<8} {:>6}\n", OutcomeName(static_cast<Outcome>(i)), counts[i]);
  }
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!IsFinding(results_[i].outcome)) continue;
    fmt::print("finding: {}: {}: {}\n", names_[i], OutcomeName(results_[i].outcome),
               results_[i].detail);
  }
  std::vector<std::pair<size_t, std::string>> frequent;
  for (const auto& [reason, count] : reasons) frequent.emplace_back(count, reason);
  std::sort(frequent.rbegin(), frequent.rend());
  if (!frequent.empty()) fmt::print("refusals by reason\n");
  for (size_t i = 0; i < std::min(kReasonsShown, frequent.size()); ++i) {
    fmt::print("  {:>6} {}\n", frequent[i].first, frequent[i].second);
  }
  PrintTimes();
}

void SchemaFolder::PrintTimes() const {
  std::vector<std::pair<double, size_t>> times;
  for (size_t i = 0; i < results_.size(); ++i) {
    if (results_[i].outcome == Outcome::kOk) times.emplace_back(TotalMs(results_[i]), i);
  }
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[std::min(times.size() - 1,
                          static_cast<size_t>(part * static_cast<double>(times.size())))]
        .first;
  };
  fmt::print(
      "compile with first mask, of those that are ok: p50 {:.2f} ms, p90 {:.2f}, p99 {:.2f}, "
      "worst {:.2f}\n",
      at(0.5), at(0.9), at(0.99), times.back().first);
  for (size_t i = 0; i < std::min(kWorstShown, times.size()); ++i) {
    const auto& [ms, index] = times[times.size() - 1 - i];
    fmt::print("  {:>9.2f} ms, {} MiB: {}\n", ms, results_[index].peak_bytes >> 20, names_[index]);
  }
}

absl::StatusOr<size_t> SchemaFolder::Compare() const {
  if (options_.expect.empty()) return size_t{0};
  std::ifstream file(options_.expect);
  if (!file) return absl::InvalidArgumentError("cannot read " + options_.expect);
  std::map<std::string, std::string> expected;
  std::string name;
  std::string outcome;
  while (file >> name >> outcome) expected[name] = outcome;
  size_t num_worse = 0;
  size_t num_better = 0;
  size_t num_compared = 0;
  const std::vector<size_t> chosen = Chosen();
  for (size_t index = 0; index < names_.size(); ++index) {
    const auto node = expected.extract(names_[index]);
    if (!node && !std::binary_search(chosen.begin(), chosen.end(), index)) continue;
    ++num_compared;
    const std::string_view before = node ? node.mapped() : OutcomeName(Outcome::kOk);
    const TrialResult& result = results_[index];
    if (OutcomeName(result.outcome) == before) continue;
    const bool was_finding =
        before != OutcomeName(Outcome::kOk) && before != OutcomeName(Outcome::kRefused);
    const bool is_better =
        result.outcome == Outcome::kOk || (was_finding && !IsFinding(result.outcome));
    ++(is_better ? num_better : num_worse);
    fmt::print("{}: {} was {}: {} {}\n", is_better ? "better" : "worse", names_[index], before,
               OutcomeName(result.outcome), result.detail);
  }
  for (const auto& [missing, _] : expected) fmt::print("missing: {}\n", missing);
  num_worse += expected.size();
  fmt::print("{} schemas compared: {} better, {} worse or missing\n", num_compared, num_better,
             num_worse);
  return num_worse;
}

}  // namespace specd::grammar
