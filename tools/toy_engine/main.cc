// specd-toy-engine turns flags into a ToyEngine, and prints the engine's text and a table.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "daemon/base/command_line.h"
#include "specd/specd.h"
#include "specd/trees.h"
#include "tools/toy_engine/bpe_encoder.h"
#include "tools/toy_engine/corpus.h"
#include "tools/toy_engine/engine.h"
#include "tools/toy_engine/flag_choices.h"
#include "tools/toy_engine/report.h"
#include "tools/toy_engine/request_ids.h"

ABSL_FLAG(std::string, specd, "embedded:cpu",
          "where the verifier runs: unix:/path/to/specd.sock or embedded:cpu");
ABSL_FLAG(std::string, tokenizer, "tools/toy_engine/tokenizer.json",
          "byte-level BPE tokenizer.json; the daemon must have the same");
ABSL_FLAG(std::vector<std::string>, corpus, {"tools/toy_engine/corpus.txt"},
          "what the models learn: files, folders of Markdown or patterns, comma separated");
ABSL_FLAG(std::string, prompt, "The daemon|A round|The engine|A draft token",
          "prompts, separated by |; prompts may also follow the flags as arguments, and then this "
          "one is not used");
ABSL_FLAG(uint32_t, draft, 5, "draft tokens per sequence and round, at most; 0: no speculation");
ABSL_FLAG(bool, forced, false,
          "with a constraint: the tokens that it forces are drafts before those of the drafter");
ABSL_FLAG(specd::toy::DraftChoice, drafts, specd::toy::DraftChoice::kOneHot,
          "one_hot (the drafter's likeliest tokens), sampled (drawn from the drafter; siblings "
          "without replacement), or in trees mixed (the likeliest ones, and one that is drawn)");
ABSL_FLAG(std::vector<std::string>, tree, {},
          "drafts are trees: the children of a place at each depth, such as 2,2,1, in place of "
          "--draft");
ABSL_FLAG(bool, compare, false,
          "run the prompts with sampled chains, trees and mixed trees of --tree (2,2,1,1), and "
          "print what each kept");
ABSL_FLAG(specd::toy::VerifyChoice, verify, {},
          "auto, greedy, exact_match, token, block, tree, traversal or target_only; typical, "
          "relaxed, threshold or synthetic with a daemon's --allow_lossy");
ABSL_FLAG(std::vector<std::string>, synthetic_rates, {},
          "with --verify=synthetic: the share of draft tokens that stand, by depth, such as "
          ".9,.7,.5, whatever the model says; the last one holds for all deeper ones");
ABSL_FLAG(double, temperature, 0.8, "of the target model, 0 .. 100; 0 is greedy");
ABSL_FLAG(double, draft_temperature, 1.0, "of sampled drafts, 1e-5 .. 100");
ABSL_FLAG(uint64_t, seed, 1, "of the first prompt; the next one has seed + 1, and so on");
ABSL_FLAG(uint32_t, max_tokens, 160, "per prompt");
ABSL_FLAG(std::string, stop, "",
          "stop strings, separated by |; they need a daemon with a tokenizer");
ABSL_FLAG(std::string, json_schema, "",
          "a JSON Schema that every text obeys; with a daemon, one that has a tokenizer");
ABSL_FLAG(std::string, regex, "", "a pattern that every text matches as a whole");
ABSL_FLAG(std::string, grammar, "", "a grammar in EBNF, with the rule root, that every text obeys");
ABSL_FLAG(uint32_t, max_batch, 4,
          "sequences in one round; with more prompts, one begins when another ends");
ABSL_FLAG(uint32_t, reconnect_ms, 0,
          "how long to wait for the next daemon if this one is gone; 0: end");
ABSL_FLAG(uint32_t, forward_ms, 0,
          "how long a forward pass of the model is made to take, so that text can be watched");
ABSL_FLAG(std::string, trace, "",
          "directory for a trace of all rounds; a daemon has a flag of this name");
ABSL_FLAG(std::string, trace_options, "",
          "what the trace holds, such as level=rows; docs/TRACES.md lists all");
ABSL_FLAG(specd::toy::PrintFormat, print, specd::toy::PrintFormat::kText,
          "what to print at the end of the run for each prompt: text, ids or none");
ABSL_FLAG(specd::toy::StatsFormat, stats, specd::toy::StatsFormat::kTable,
          "the numbers of the run: table, json or none");

namespace specd::toy {
namespace {

constexpr char kUsage[] =
    "an inference engine in miniature, attached to specd.\n\n"
    "Its target model is a 5-gram model and its drafter a 3-gram model, both learned at start "
    "from\n"
    "text or Markdown; everything else is done as a real engine would do it.\n\n"
    "Examples, from the root of the source tree:\n"
    "  specd-toy-engine                                      # all in this process\n"
    "  specd-toy-engine --specd=unix:/run/specd/specd.sock 'The daemon' 'A round'\n"
    "  specd-toy-engine --drafts=sampled --verify=token --draft=3 --seed=7\n"
    "  specd-toy-engine --tree=2,2,1 --drafts=mixed          # drafts that are trees\n"
    "  specd-toy-engine --draft=0 --print=ids --stats=none   # same ids as with --draft=5\n"
    "  specd-toy-engine --regex='[A-Z][a-z ]{20,40}\\.' 'The daemon'   # and so with "
    "constraints\n\n"
    "Exit status: 0 done; 1 an error; 2 bad flags; 3 the daemon is gone; 130 interrupted.";

constexpr char kEndToken[] = "<|endoftext|>";
constexpr int kTargetOrder = 5;
constexpr int kDrafterOrder = 3;

constexpr int kExitError = 1;
constexpr int kExitUsage = 2;
constexpr int kExitDisconnected = 3;
constexpr int kExitInterrupted = 130;

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "written by a signal handler");

void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int Fail(int exit_code, std::string_view message) {
  fmt::print(stderr, "specd-toy-engine: {}\n", message);
  return exit_code;
}

std::vector<std::string> SplitAtBars(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find('|'), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

struct Constraint {
  uint32_t kind = SPECD_GRAMMAR_NONE;
  std::string text;
};

// Nothing if more than one is given.
std::optional<Constraint> ReadConstraint() {
  const Constraint all[] = {{SPECD_GRAMMAR_JSON, absl::GetFlag(FLAGS_json_schema)},
                            {SPECD_GRAMMAR_REGEX, absl::GetFlag(FLAGS_regex)},
                            {SPECD_GRAMMAR_EBNF, absl::GetFlag(FLAGS_grammar)}};
  Constraint found;
  for (const Constraint& each : all) {
    if (each.text.empty()) continue;
    if (found.kind != SPECD_GRAMMAR_NONE) return std::nullopt;
    found = each;
  }
  return found;
}

// The widths of --tree; nothing if they are no tree of at most 64 nodes.
std::optional<std::vector<uint32_t>> ReadWidths() {
  std::vector<uint32_t> widths;
  for (const std::string& text : absl::GetFlag(FLAGS_tree)) {
    if (!absl::SimpleAtoi(text, &widths.emplace_back()) || widths.back() == 0) return std::nullopt;
  }
  if (widths.empty() && absl::GetFlag(FLAGS_compare)) widths = {2, 2, 1, 1};
  return widths;
}

// The rates of --synthetic_rates; nothing if one is no number. specd says what their range is.
std::optional<std::vector<float>> ReadRates() {
  std::vector<float> rates;
  for (const std::string& text : absl::GetFlag(FLAGS_synthetic_rates)) {
    if (!absl::SimpleAtof(text, &rates.emplace_back())) return std::nullopt;
  }
  return rates;
}

// Drafts become trees. Returns a code of specd.
int MakeTree(const std::vector<uint32_t>& widths, uint32_t sampling, EngineOptions* options) {
  int32_t parents[SPECD_NODES_MAX];
  options->widths = widths;
  options->sampling = sampling;
  return specd_static_tree(widths.data(), static_cast<uint32_t>(widths.size()), parents,
                           &options->num_drafts);
}

uint32_t SamplingOf(DraftChoice choice) {
  return choice == DraftChoice::kOneHot    ? SPECD_TOP_K_CHILDREN
         : choice == DraftChoice::kSampled ? SPECD_WITHOUT_REPLACEMENT
                                           : SPECD_MIXED_CHILDREN;
}

EngineOptions ReadFlags(const Constraint& constraint) {
  return {.uri = absl::GetFlag(FLAGS_specd),
          .max_batch = absl::GetFlag(FLAGS_max_batch),
          .num_drafts = absl::GetFlag(FLAGS_draft),
          .sampled_drafts = absl::GetFlag(FLAGS_drafts) == DraftChoice::kSampled,
          .verify = absl::GetFlag(FLAGS_verify).value,
          .temperature = absl::GetFlag(FLAGS_temperature),
          .draft_temperature = absl::GetFlag(FLAGS_draft_temperature),
          .seed = absl::GetFlag(FLAGS_seed),
          .max_tokens = absl::GetFlag(FLAGS_max_tokens),
          .stop_strings = SplitAtBars(absl::GetFlag(FLAGS_stop)),
          .grammar_kind = constraint.kind,
          .grammar = constraint.text,
          .forced = absl::GetFlag(FLAGS_forced),
          .tokenizer = absl::GetFlag(FLAGS_tokenizer),
          .forward_ms = absl::GetFlag(FLAGS_forward_ms),
          .reconnect_ms = absl::GetFlag(FLAGS_reconnect_ms),
          .trace = absl::GetFlag(FLAGS_trace),
          .trace_options = absl::GetFlag(FLAGS_trace_options)};
}

void PrintStreams(const RunReport& report, const BpeEncoder& encoder) {
  const PrintFormat format = absl::GetFlag(FLAGS_print);
  for (const StreamReport& stream : report.streams) {
    if (format == PrintFormat::kText) {
      fmt::print("== {}\n{}\n\n", stream.request_id, encoder.Decode(stream.tokens));
    } else if (format == PrintFormat::kIds) {
      fmt::print("{}: {}\n", stream.request_id, fmt::join(stream.tokens, " "));
    }
  }
}

void PrintStats(const RunReport& report) {
  const StatsFormat format = absl::GetFlag(FLAGS_stats);
  if (format == StatsFormat::kTable) fmt::print("{}", FormatTable(report));
  if (format == StatsFormat::kJson) fmt::print("{}", FormatJson(report));
}

int ExitCode(EngineEnd end) {
  switch (end) {
    case EngineEnd::kDone:
      return 0;
    case EngineEnd::kDisconnected:
      return kExitDisconnected;
    case EngineEnd::kInterrupted:
      return kExitInterrupted;
    case EngineEnd::kError:
      break;
  }
  return kExitError;
}

// The ways that --compare runs.
std::vector<EngineOptions> WaysOf(const EngineOptions& options) {
  std::vector<EngineOptions> ways(3, options);
  ways[0].num_drafts = static_cast<uint32_t>(options.widths.size());
  ways[0].widths = {};
  ways[0].sampled_drafts = true;
  ways[1].sampling = SPECD_WITHOUT_REPLACEMENT;
  ways[2].sampling = SPECD_MIXED_CHILDREN;
  return ways;
}
constexpr const char* kWayNames[] = {"chain", "tree", "mixed tree"};

int Generate(EngineOptions options, const std::vector<std::string>& texts) {
  const absl::StatusOr<BpeEncoder> encoder = BpeEncoder::Load(absl::GetFlag(FLAGS_tokenizer));
  if (!encoder.ok()) return Fail(kExitError, std::string(encoder.status().message()));
  const std::optional<int32_t> end_token = encoder->FindSpecialToken(kEndToken);
  if (!end_token.has_value()) {
    return Fail(kExitError, fmt::format("tokenizer: it has no special token {}, with which the toy "
                                        "model ends a text",
                                        kEndToken));
  }
  const absl::StatusOr<std::vector<std::string>> passages =
      ReadPassages(absl::GetFlag(FLAGS_corpus));
  if (!passages.ok()) return Fail(kExitError, std::string(passages.status().message()));

  std::vector<std::vector<int32_t>> ids;
  for (const std::string& passage : *passages) ids.push_back(encoder->Encode(passage));
  NgramOptions model = {
      .order = kTargetOrder, .vocab_size = encoder->vocab_size(), .end_token = *end_token};
  const NgramModel target(model, ids);
  model.order = kDrafterOrder;
  const NgramModel drafter(model, ids);

  const std::vector<std::string> request_ids = MakeRequestIds(texts);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < texts.size(); ++i) {
    prompts.push_back({request_ids[i], encoder->Encode(texts[i])});
  }
  options.vocab_size = encoder->vocab_size();
  options.end_token = *end_token;
  const bool compares = absl::GetFlag(FLAGS_compare);
  std::vector<WayReport> reports;
  for (const EngineOptions& way : compares ? WaysOf(options) : std::vector{options}) {
    WayReport& report = reports.emplace_back();
    report.name = kWayNames[reports.size() - 1];
    report.nodes = way.num_drafts;
    const EngineResult result =
        ToyEngine(way, &target, &drafter, &stop_requested).Run(prompts, &report.report);
    if (result.end != EngineEnd::kDone) return Fail(ExitCode(result.end), result.message);
    if (compares && absl::GetFlag(FLAGS_stats) != StatsFormat::kJson) continue;
    PrintStreams(report.report, *encoder);
    PrintStats(report.report);
  }
  if (compares && absl::GetFlag(FLAGS_stats) == StatsFormat::kTable) {
    fmt::print("{}", FormatComparison(reports, [&](int32_t id) { return encoder->Decode({id}); }));
  }
  return 0;
}

int Main(int argc, char** argv) {
  const std::vector<char*> arguments =
      ParseFlags(argc, argv,
                 {.usage = kUsage,
                  .source = "tools/toy_engine/main.cc",
                  .version = fmt::format("specd-toy-engine {}", specd_version())});
  std::vector<std::string> prompts(arguments.begin() + 1, arguments.end());
  if (prompts.empty()) prompts = SplitAtBars(absl::GetFlag(FLAGS_prompt));
  if (prompts.empty()) {
    return Fail(kExitUsage, "prompt: there is none; give --prompt='The daemon|A round'");
  }
  const std::optional<Constraint> constraint = ReadConstraint();
  if (!constraint.has_value()) {
    return Fail(kExitUsage, "json_schema, regex and grammar: give one of them");
  }
  EngineOptions options = ReadFlags(*constraint);
  std::optional<std::vector<float>> rates = ReadRates();
  if (!rates.has_value()) {
    return Fail(kExitUsage, "synthetic_rates: give numbers, such as --synthetic_rates=.9,.7");
  }
  options.synthetic_rates = *std::move(rates);
  const std::optional<std::vector<uint32_t>> widths = ReadWidths();
  const DraftChoice drafts = absl::GetFlag(FLAGS_drafts);
  if (!widths.has_value()) {
    return Fail(kExitUsage,
                "tree: give the children of a place at each depth, such as --tree=2,2,1");
  }
  if (widths->empty() && drafts == DraftChoice::kMixed) {
    return Fail(kExitUsage, "drafts = mixed is for trees; give --tree=2,2,1 too");
  }
  if (!widths->empty() && options.forced) {
    return Fail(kExitUsage, "forced is for chains; give it or tree");
  }
  if (!widths->empty() && MakeTree(*widths, SamplingOf(drafts), &options) != SPECD_OK) {
    return Fail(kExitUsage, fmt::format("tree: {}", specd_last_error()));
  }
  CatchSignals();
  return Generate(std::move(options), prompts);
}

}  // namespace
}  // namespace specd::toy

int main(int argc, char** argv) { return specd::toy::Main(argc, argv); }
