#include "tools/bench/grammar_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "daemon/base/cpus.h"
#include "tools/bench/grammar_peer.h"
#include "tools/bench/schema_files.h"
#include "tools/bench/suite.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

constexpr std::string_view kAllConstraints = "all";
constexpr auto kMemory = static_cast<size_t>(GrammarCase::kMemory);

// The samples of a run are kept, some thousands of them.
TimingBounds RunsFor(double seconds) { return {.seconds = seconds, .least = 2, .most = 1000}; }

// The batches of kFillThreads: constrained sequences.
constexpr int32_t kBatches[] = {1, 8, 64};

void Append(const Times& more, Times* all) { all->insert(all->end(), more.begin(), more.end()); }

// One text of a constraint, which specd and the peer follow. The peer numbers lanes alike.
struct Lane {
  const GrammarText* text = nullptr;
  GrammarReplay replay;
  GrammarSamples own = {};
  GrammarSamples peer = {};
};

// What a line says beside its times.
struct Reported {
  GrammarCase grammar_case;
  std::string_view constraint;
  int64_t num_checked;  // tokens
  ForeignLoad load;
};

class GrammarSuite {
 public:
  GrammarSuite(const GrammarOptions& options, Output* out)
      : options_(options),
        out_(*out),
        vocabulary_(options.vocab_size),
        compiler_({.vocabulary = &vocabulary_.vocabulary(), .vocab_size = options.vocab_size}) {}

  absl::Status Run() {
    if (!options_.peer_python.empty()) {
      SPECD_TAKE(peer_, GrammarPeer::Start(options_.peer_python, vocabulary_, options_.vocab_size));
    }
    out_.Caption(fmt::format(
        "V = {}; {}", options_.vocab_size,
        peer_ == nullptr ? "no peer"
                         : fmt::format("base = {}, ratio = specd / base", GrammarPeer::kName)));
    for (const GrammarText* text : options_.texts) {
      out_.Show(fmt::format("checking {}", text->name));
      SPECD_TRY(AddLanes(*text));
    }
    const auto has = [this](bool fills) {
      return std::ranges::any_of(options_.cases, [fills](GrammarCase each) {
        return (each == GrammarCase::kFillThreads) == fills;
      });
    };
    if (has(false) && !lanes_.empty()) SPECD_TRY(Replay());
    for (const Line& refusal : refusals_) out_.Print(refusal);
    return has(true) ? Fill() : absl::OkStatus();
  }

 private:
  // Adds a lane for each text, unless an engine refuses the constraint.
  absl::Status AddLanes(const GrammarText& text) {
    for (const std::string_view instance : text.instances) {
      std::string_view engine = "specd";
      absl::StatusOr<Lane> lane = MakeLane(text, instance, &engine);
      if (lane.ok()) {
        lanes_.push_back(*std::move(lane));
        continue;
      }
      const std::string why(lane.status().message());
      // The engine took the constraint, and its masks are wrong.
      if (lane.status().code() == absl::StatusCode::kInternal) {
        return absl::InternalError(fmt::format("{}: {}", text.name, why));
      }
      refusals_.push_back(Line()
                              .Name("case", GrammarCaseName(GrammarCase::kCompile), 10)
                              .Name("constraint", text.name, 11)
                              .Json("vocab", options_.vocab_size)
                              .Cell("unit", 5, "refused")
                              .Json("refused_by", engine)
                              .Json("refusal", why));
      out_.Note(fmt::format("{} is refused by {}: {}", text.name, engine, why));
      return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // Follows the text once, by each engine. `engine` is the one that works.
  absl::StatusOr<Lane> MakeLane(const GrammarText& text, std::string_view instance,
                                std::string_view* engine) {
    std::vector<TokenId> tokens = vocabulary_.Tokenize(instance);
    tokens.push_back(vocabulary_.eos_id());
    Lane lane = {.text = &text,
                 .replay = {&compiler_,
                            {.kind = text.kind, .text = std::string(text.text)},
                            tokens,
                            options_.vocab_size}};
    SPECD_TRY(lane.replay.Check());
    SPECD_TAKE(const size_t own_bytes, MemoryOf(lane.replay));
    lane.own[kMemory].push_back(static_cast<double>(own_bytes));
    if (peer_ == nullptr) return lane;
    *engine = GrammarPeer::kName;
    SPECD_TAKE(const size_t peer_bytes, peer_->Add(lane.replay.request(), tokens));
    lane.peer[kMemory].push_back(static_cast<double>(peer_bytes));
    return lane;
  }

  // The bytes that are added along the tokens: states, and mask rows, which the compiler keeps.
  absl::StatusOr<size_t> MemoryOf(const GrammarReplay& replay) {
    const size_t before = compiler_.mask_bytes();
    SPECD_TAKE(const auto compiled, compiler_.CompileAnew(replay.request()));
    const auto matcher = compiled->NewMatcher({.stop_ids = {replay.tokens().back()}});
    for (const TokenId token : replay.tokens()) {
      matcher->Mask();
      matcher->Accept(token);
    }
    return compiled->size_bytes() + compiler_.mask_bytes() - before;
  }

  // Times the lanes, whose engines take turns to be the first.
  absl::Status Replay() {
    std::vector<Side> sides(1);
    sides[0].turn = [&, run = 0](Times*) mutable -> absl::Status {
      const bool is_own_first = run++ % 2 == 0;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        out_.Show(fmt::format("run {}: {}", run, lanes_[i].text->name));
        if (is_own_first) lanes_[i].replay.Run(&lanes_[i].own);
        if (peer_ != nullptr) SPECD_TRY(peer_->Run(i, &lanes_[i].peer));
        if (!is_own_first) lanes_[i].replay.Run(&lanes_[i].own);
      }
      return absl::OkStatus();
    };
    SPECD_TAKE(const ForeignLoad load, TakeTurns(RunsFor(options_.seconds), 0, &sides));
    Report(kAllConstraints, load);
    for (const GrammarText* text : options_.texts) {
      if (options_.each) Report(text->name, load);
    }
    return absl::OkStatus();
  }

  // Times batches of specd's own masks, by one thread and by all.
  absl::Status Fill() {
    std::vector<const GrammarReplay*> replays;
    for (const Lane& lane : lanes_) {
      if (lane.replay.HasRounds()) replays.push_back(&lane.replay);
    }
    if (replays.empty()) return absl::OkStatus();
    std::vector<FillShape> shapes;
    for (const int32_t num_sequences : kBatches) {
      shapes.push_back({num_sequences, 1});
      if (ResolveThreads(0) > 1) shapes.push_back({num_sequences, ResolveThreads(0)});
    }
    std::vector<FillTimes> times(shapes.size());
    std::vector<Side> sides(shapes.size());
    for (size_t i = 0; i < shapes.size(); ++i) {
      sides[i].turn = [&, i](Times*) {
        out_.Show(fmt::format("fill_threads: {} sequences", shapes[i].num_sequences));
        FillBatch(replays, shapes[i], &times[i]);
        return absl::OkStatus();
      };
    }
    SPECD_TAKE(const ForeignLoad load, TakeTurns(RunsFor(options_.seconds), 0, &sides));
    for (size_t i = 0; i < shapes.size(); ++i) {
      for (const bool is_cold : {true, false}) {
        const auto [num_sequences, threads] = shapes[i];
        const std::string name =
            fmt::format("b{}_{}_t{}", num_sequences, is_cold ? "cold" : "warm", threads);
        Print({GrammarCase::kFillThreads, name, num_sequences * (GrammarReplay::kDraft + 1), load},
              is_cold ? times[i].cold : times[i].warm, {});
      }
    }
    return absl::OkStatus();
  }

  void Report(std::string_view constraint, const ForeignLoad& load) {
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

  void Print(const Reported& what, const Times& own, const Times& peer) {
    const bool is_bytes = what.grammar_case == GrammarCase::kMemory;
    const Summary value = Summarise(own);
    Line line;
    line.Name("case", GrammarCaseName(what.grammar_case), 10)
        .Name("constraint", what.constraint, 11)
        .Json("vocab", options_.vocab_size)
        .Spread(value, is_bytes ? "bytes" : "us", is_bytes ? 0 : 2)
        .Json("checked", what.num_checked);
    if (!peer.empty()) {
      const Summary base = Summarise(peer);
      line.Cell("base p50", 10, "{:.{}f}", base.median, is_bytes ? 0 : 2)
          .Cell("base p90", 10, "{:.{}f}", base.p90, is_bytes ? 0 : 2)
          .Cell("base p99", 10, "{:.{}f}", base.p99, is_bytes ? 0 : 2)
          .Number("ratio", 9, 3, value.median / base.median)
          .Number("ratio p90", 9, 3, value.p90 / base.p90)
          .Number("ratio p99", 9, 3, value.p99 / base.p99)
          .Json("ratio_of", GrammarPeer::kName)
          .Times("base_", base);
    }
    out_.Print(line.Target(GoalOf(what, value)).Load(what.load));
  }

  // The p99 of the design at a vocabulary of a large model. Its p50 is a fiftieth for a compile,
  // and a hundredth for a warm mask.
  Goal GoalOf(const Reported& what, const Summary& value) const {
    const bool is_asked =
        what.constraint == kAllConstraints && options_.vocab_size == kTargetVocabSize;
    const bool is_compile = what.grammar_case == GrammarCase::kCompile;
    if (!is_asked || (!is_compile && what.grammar_case != GrammarCase::kWarmMask)) return {};
    const double times = is_compile ? 50 : 100;
    return {.measured = std::max(value.p99, times * value.median),
            .bound = is_compile ? 50'000.0 : 100.0,
            .unit = "us"};
  }

  static constexpr int32_t kTargetVocabSize = 128256;

  const GrammarOptions& options_;
  Output& out_;
  const SyntheticVocabulary vocabulary_;
  grammar::GrammarCompiler compiler_;
  std::unique_ptr<GrammarPeer> peer_;
  std::vector<Lane> lanes_;
  std::vector<Line> refusals_;
};

absl::Status RunGrammar(const Flags& flags, Output* out) {
  GrammarOptions options = {.vocab_size = flags.Number("vocab"),
                            .each = flags.IsOn("each"),
                            .seconds = flags.Real("seconds")};
  if (!flags.Text("base").empty()) options.peer_python = flags.Text("python");
  for (const CaseWords* const chosen : Chosen(flags, kGrammarCases)) {
    options.cases.push_back(static_cast<GrammarCase>(chosen - std::begin(kGrammarCases)));
  }
  const std::vector<std::string> names = flags.List("constraint");
  for (const GrammarText& text : GrammarTexts()) {
    if (names.empty() || std::ranges::count(names, text.name) > 0) options.texts.push_back(&text);
  }
  return MeasureGrammars(options, out);
}

// A file NAME.ENDING is a constraint, or none if the kind needs no text. NAME.1.txt and so on
// follow.
std::vector<GrammarText> MakeTexts() {
  using grammar::GrammarKind;
  std::vector<GrammarText> texts;
  for (const SchemaFile& file : kSchemaFiles) {
    const std::string_view name = file.name.substr(0, file.name.find('.'));
    const std::string_view ending = file.name.substr(file.name.rfind('.') + 1);
    const std::string_view content = file.text.substr(0, file.text.size() - 1);  // no newline
    if (texts.empty() || texts.back().name != name) texts.push_back({.name = name});
    if (ending == "txt") {
      texts.back().instances.push_back(content);
      continue;
    }
    texts.back().text = content;
    texts.back().kind = ending == "json"    ? GrammarKind::kJsonSchema
                        : ending == "tag"   ? GrammarKind::kStructuralTag
                        : ending == "ebnf"  ? GrammarKind::kEbnf
                        : ending == "regex" ? GrammarKind::kRegex
                                            : GrammarKind::kChoice;
  }
  return texts;
}

}  // namespace

const std::vector<GrammarText>& GrammarTexts() {
  static const std::vector<GrammarText> texts = MakeTexts();
  return texts;
}

absl::Status MeasureGrammars(const GrammarOptions& options, Output* out) {
  return GrammarSuite(options, out).Run();
}

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
