#include "tools/bench/grammar_suite.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/base/cpus.h"
#include "tools/bench/grammar_fill.h"
#include "tools/bench/suite.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr std::string_view kAllConstraints = "all";

// The samples of a run are kept, some thousands of them.
TimingBounds RunsFor(double seconds) { return {.seconds = seconds, .least = 2, .most = 1000}; }

struct Target {
  GrammarCase grammar_case;
  double median_us;
  double p99_us;
};
// The targets of the design, at the vocabulary of kTargetVocabSize.
constexpr Target kTargets[] = {{GrammarCase::kCompile, 1000, 50'000},
                               {GrammarCase::kWarmMask, 1, 100}};
constexpr int32_t kTargetVocabSize = 128256;

// The batches of kFillThreads: constrained sequences.
constexpr int32_t kBatches[] = {1, 8, 64};

void Append(const Times& more, Times* all) { all->insert(all->end(), more.begin(), more.end()); }

}  // namespace

absl::Status GrammarSuite::Run() {
  if (!options_.peer_python.empty()) {
    SPECD_TAKE(peer_, GrammarPeer::Start(options_.peer_python, vocabulary_, options_.vocab_size));
  }
  SPECD_TRY(Prepare());
  const bool has_replays = std::ranges::any_of(
      options_.cases, [](GrammarCase each) { return each != GrammarCase::kFillThreads; });
  if (has_replays && !lanes_.empty()) SPECD_TRY(Replay());
  for (const Refusal& refusal : refusals_) {
    out_.Print(Line()
                   .Name("case", GrammarCaseName(GrammarCase::kCompile), 10)
                   .Name("constraint", refusal.constraint, 11)
                   .Json("vocab", options_.vocab_size)
                   .Cell("unit", 5, "refused")
                   .Json("refused_by", refusal.by)
                   .Json("refusal", refusal.why));
    out_.Note(fmt::format("{} is refused by {}: {}", refusal.constraint, refusal.by, refusal.why));
  }
  return Has(GrammarCase::kFillThreads) ? Fill() : absl::OkStatus();
}

bool GrammarSuite::Has(GrammarCase grammar_case) const {
  return std::ranges::count(options_.cases, grammar_case) > 0;
}

absl::Status GrammarSuite::Prepare() {
  for (const GrammarText* text : options_.texts) {
    out_.Show(fmt::format("checking {}", text->name));
    for (const std::string_view instance : text->instances) {
      std::string_view refused_by;
      absl::StatusOr<Lane> lane = MakeLane(*text, instance, &refused_by);
      if (lane.ok()) {
        lanes_.push_back(*std::move(lane));
        continue;
      }
      const std::string why(lane.status().message());
      // The engine took the constraint, and its masks are wrong.
      if (lane.status().code() == absl::StatusCode::kInternal) {
        return absl::InternalError(fmt::format("{}: {}", text->name, why));
      }
      refusals_.push_back({text->name, refused_by, why});
      break;
    }
  }
  return absl::OkStatus();
}

std::vector<TokenId> GrammarSuite::TokensOf(std::string_view instance) const {
  std::vector<TokenId> tokens = vocabulary_.Tokenize(instance);
  tokens.push_back(vocabulary_.eos_id());
  return tokens;
}

absl::StatusOr<GrammarSuite::Lane> GrammarSuite::MakeLane(const GrammarText& text,
                                                          std::string_view instance,
                                                          std::string_view* refused_by) {
  constexpr auto kMemory = static_cast<size_t>(GrammarCase::kMemory);
  Lane lane = {.text = &text,
               .replay = {&compiler_, text.request(), TokensOf(instance), options_.vocab_size}};
  *refused_by = "specd";
  SPECD_TRY(lane.replay.Check());
  SPECD_TAKE(const size_t own_bytes, MemoryOf(lane.replay));
  lane.own[kMemory].push_back(static_cast<double>(own_bytes));
  if (peer_ == nullptr) return lane;
  *refused_by = GrammarPeer::kName;
  SPECD_TAKE(const size_t peer_bytes, peer_->Add(text, lane.replay.tokens()));
  lane.peer[kMemory].push_back(static_cast<double>(peer_bytes));
  return lane;
}

// The bytes that are added along the tokens: states, and mask rows, which the compiler keeps.
absl::StatusOr<size_t> GrammarSuite::MemoryOf(const GrammarReplay& replay) {
  const size_t before = compiler_.mask_bytes();
  SPECD_TAKE(const auto compiled, compiler_.CompileAnew(replay.request()));
  const auto matcher = compiled->NewMatcher({.stop_ids = {replay.tokens().back()}});
  for (const TokenId token : replay.tokens()) {
    matcher->Mask();
    matcher->Accept(token);
  }
  return compiled->size_bytes() + compiler_.mask_bytes() - before;
}

absl::Status GrammarSuite::Replay() {
  const LoadMeter meter;
  SPECD_TRY(Repeat(RunsFor(options_.seconds), [&](size_t run) -> absl::Status {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      out_.Show(fmt::format("run {}: {}", run + 1, lanes_[i].text->name));
      // The engines take turns to be the first.
      const bool is_own_first = run % 2 == 0;
      if (is_own_first) lanes_[i].replay.Run(&lanes_[i].own);
      if (peer_ != nullptr) SPECD_TRY(peer_->Run(i, &lanes_[i].peer));
      if (!is_own_first) lanes_[i].replay.Run(&lanes_[i].own);
    }
    return absl::OkStatus();
  }));
  const ForeignLoad load = meter.Read();
  Report(kAllConstraints, load);
  for (const GrammarText* text : options_.texts) {
    if (options_.each) Report(text->name, load);
  }
  return absl::OkStatus();
}

absl::Status GrammarSuite::Fill() {
  std::vector<GrammarFill::Text> texts;
  for (const GrammarText* text : options_.texts) {
    if (std::ranges::count(refusals_, text->name, &Refusal::constraint) > 0) continue;
    for (const std::string_view instance : text->instances) {
      texts.push_back({.request = text->request(), .tokens = TokensOf(instance)});
    }
  }
  if (!GrammarFill::IsAnyLongEnough(texts)) return absl::OkStatus();
  const GrammarFill fill(&compiler_, std::move(texts), options_.vocab_size);
  std::vector<GrammarFill::Batch> batches;
  for (const int32_t num_sequences : kBatches) {
    batches.push_back({.num_sequences = num_sequences, .threads = 1});
    const int32_t all = ResolveThreads(0);
    if (all > 1) batches.push_back({.num_sequences = num_sequences, .threads = all});
  }
  std::vector<GrammarFill::Samples> samples(batches.size());
  const LoadMeter meter;
  SPECD_TRY(Repeat(RunsFor(options_.seconds), [&](size_t run) {
    out_.Show(fmt::format("run {}: fill_threads", run + 1));
    for (size_t i = 0; i < batches.size(); ++i) {
      const GrammarFill::Samples made = fill.Run(batches[i]);
      Append(made.cold, &samples[i].cold);
      Append(made.warm, &samples[i].warm);
    }
    return absl::OkStatus();
  }));
  const ForeignLoad load = meter.Read();
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const bool is_cold : {true, false}) {
      const std::string name = fmt::format("b{}_{}_t{}", batches[i].num_sequences,
                                           is_cold ? "cold" : "warm", batches[i].threads);
      Print({GrammarCase::kFillThreads, name, batches[i].num_sequences * (GrammarFill::kDraft + 1),
             load},
            is_cold ? samples[i].cold : samples[i].warm, {});
    }
  }
  return absl::OkStatus();
}

void GrammarSuite::Report(std::string_view constraint, const ForeignLoad& load) {
  for (const GrammarCase grammar_case : options_.cases) {
    Reported what = {grammar_case, constraint, 0, load};
    Times own;
    Times peer;
    for (const Lane& lane : lanes_) {
      if (constraint != kAllConstraints && constraint != lane.text->name) continue;
      what.num_checked += static_cast<int64_t>(lane.replay.tokens().size());
      Append(lane.own[static_cast<size_t>(grammar_case)], &own);
      Append(lane.peer[static_cast<size_t>(grammar_case)], &peer);
    }
    // A text shorter than a draft has no round.
    if (!own.empty()) Print(what, own, peer);
  }
}

void GrammarSuite::Print(const Reported& what, const Times& own, const Times& peer) {
  const bool is_bytes = what.grammar_case == GrammarCase::kMemory;
  const std::string_view name = GrammarCaseName(what.grammar_case);
  const Summary value = Summarise(own);
  Line line;
  const auto add = [&](std::string_view title, size_t width, double number) {
    line.Cell(title, width, "{:.{}f}", number, is_bytes ? 0 : 2);
  };
  line.Name("case", name, 10)
      .Name("constraint", what.constraint, 11)
      .Json("vocab", options_.vocab_size)
      .Value("unit", "unit", 5, "{}", std::string_view(is_bytes ? "bytes" : "us"))
      .Json("draft", what.grammar_case == GrammarCase::kRoundK5       ? GrammarReplay::kDraft
                     : what.grammar_case == GrammarCase::kFillThreads ? GrammarFill::kDraft
                                                                      : 0);
  add("p50", 9, value.median);
  add("p90", 9, value.p90);
  add("p99", 9, value.p99);
  line.Cell("samples", 7, "{}", value.num_samples)
      .Times("", value)
      .Json("checked", what.num_checked);
  if (!peer.empty()) {
    const Summary base = Summarise(peer);
    add("base p50", 10, base.median);
    add("base p90", 10, base.p90);
    add("base p99", 10, base.p99);
    line.Value("ratio p50", "ratio", 9, "{:.3f}", value.median / base.median)
        .Value("ratio p90", "ratio_p90", 9, "{:.3f}", value.p90 / base.p90)
        .Value("ratio p99", "ratio_p99", 9, "{:.3f}", value.p99 / base.p99)
        .Json("ratio_of", GrammarPeer::kName)
        .Times("base_", base);
  }
  for (const Target& target : kTargets) {
    if (target.grammar_case != what.grammar_case || what.constraint != kAllConstraints ||
        options_.vocab_size != kTargetVocabSize) {
      continue;
    }
    const bool is_met = value.median <= target.median_us && value.p99 <= target.p99_us;
    line.Json("target", target.median_us).Json("target_p99", target.p99_us).Json("met", is_met);
    out_.Note(fmt::format("{}: p50 {:.2f} us, target {:.0f}; p99 {:.2f} us, target {:.0f}: {}",
                          name, value.median, target.median_us, value.p99, target.p99_us,
                          is_met ? "met" : "missed"));
  }
  out_.Print(line.LoadOfAll(what.load));
}

namespace {

absl::Status RunGrammar(const Flags& flags, Output* out) {
  GrammarOptions options = {.vocab_size = flags.Number("vocab"),
                            .each = flags.IsOn("each"),
                            .seconds = flags.Real("seconds")};
  const bool has_peer = !flags.Text("base").empty();
  if (has_peer) options.peer_python = flags.Text("python");
  for (const CaseWords* const chosen : Chosen(flags, kGrammarCases)) {
    options.cases.push_back(static_cast<GrammarCase>(chosen - std::begin(kGrammarCases)));
  }
  const std::vector<std::string> names = flags.List("constraint");
  for (const GrammarText& text : GrammarTexts()) {
    if (names.empty() || std::ranges::count(names, text.name) > 0) options.texts.push_back(&text);
  }
  const Machine machine = ReadMachine();
  out->Begin(machine.processor, Describe(machine, 1));
  out->Caption(fmt::format(
      "V = {}; {}", options.vocab_size,
      has_peer ? fmt::format("base = {}, ratio = specd / base", GrammarPeer::kName) : "no peer"));
  return GrammarSuite(options, out).Run();
}

}  // namespace

Suite GrammarCommand() {
  Flag constraint = {.name = "constraint",
                     .help = "constraints by name, separated by commas; empty: all",
                     .is_list = true};
  for (const GrammarText& text : GrammarTexts()) constraint.choices.push_back(text.name);
  return {.name = "grammar",
          .summary = "compiling constraints, and their masks along texts",
          .examples = {"--quick --base=xgrammar --python=build/xgrammar/bin/python",
                       "--quick --each --case=compile,cold_mask"},
          .cases = WordsOf(kGrammarCases),
          .seconds = "120",
          .quick_seconds = "20",
          .flags = {constraint,
                    Flag::Whole("vocab", "the vocabulary's size",
                                {SyntheticVocabulary::kSizeMin, kVocabSizeMax}, "128256"),
                    {"each", Flag::Kind::kSwitch, "lines for single constraints too"},
                    {.name = "base",
                     .help = "xgrammar, by --python; without it no peer",
                     .choices = {GrammarPeer::kName}},
                    {.name = "python", .help = "an interpreter with xgrammar", .usual = "python3"}},
          .run = &RunGrammar};
}

}  // namespace specd::bench
