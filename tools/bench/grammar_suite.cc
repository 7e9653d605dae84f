#include "tools/bench/grammar_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/escaping.h"
#include "kernels/core/check.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tools/bench/child_process.h"
#include "tools/bench/embedded_files.h"
#include "tools/bench/synthetic_vocabulary.h"
#include "tools/bench/try.h"

namespace specd::bench {
namespace {

using grammar::GrammarCompiler;
using grammar::GrammarMatcher;
using Compiled = std::shared_ptr<const grammar::CompiledGrammar>;

enum class GrammarCase { kCompile, kColdMask, kWarmMask };
constexpr CaseWords kCases[] = {
    {"compile", "compile a constraint that was not seen before"},
    {"cold_mask", "each mask along a text, the first time"},
    {"warm_mask", "the same masks again, by another matcher"},
};
// The design names numbers for one vocabulary.
constexpr int32_t kTargetVocabSize = 128256;

// xgrammar: a process with xgrammar_peer.py, which calls xgrammar's own Python package.
constexpr std::string_view kPeer = "xgrammar";
// The names of xgrammar_peer.py, by GrammarKind.
constexpr std::string_view kKinds[] = {"none", "json",   "json_object",   "regex",
                                       "ebnf", "choice", "structural_tag"};

std::string ToHex(std::string_view bytes) {
  return absl::BytesToHexString({bytes.data(), bytes.size()});
}

// FailedPrecondition: the interpreter has no xgrammar, or there is none.
absl::StatusOr<std::unique_ptr<PythonProcess>> StartPeer(const std::string& interpreter,
                                                         const SyntheticVocabulary& made) {
  SPECD_TAKE(std::unique_ptr<PythonProcess> process,
             PythonProcess::Start({.interpreter = interpreter, .script = "xgrammar_peer.py"}));
  const Vocabulary& vocabulary = made.vocabulary();
  std::vector<std::string> tokens;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    tokens.push_back(vocabulary.IsSpecial(id) ? "" : ToHex(vocabulary.Bytes(id)));
  }
  const auto answer =
      process->Ask(fmt::format(R"({{"vocab_size": {}, "eos": {}, "tokens": ["{}"]}})",
                               vocabulary.size(), made.eos_id(), fmt::join(tokens, "\", \"")));
  if (answer.ok()) return process;
  return absl::FailedPreconditionError(
      fmt::format("python = {} did not start {}; give an interpreter that has the package and "
                  "what it needs (tools/bench/README.md, \"grammar\")",
                  interpreter, kPeer));
}

void Time(Times* times_us, absl::FunctionRef<void()> work) {
  const SteadyClock::time_point start = SteadyClock::now();
  work();
  times_us->push_back(MicrosSince(start));
}

// One text of a constraint, which specd and the peer follow.
struct Lane {
  std::string_view name;
  grammar::GrammarRequest request;
  std::vector<TokenId> tokens;  // the last one is the stop id

  std::unique_ptr<GrammarMatcher> NewMatcher(const Compiled& compiled) const {
    return compiled->NewMatcher({.stop_ids = {tokens.back()}});
  }

  absl::Status Check(GrammarCompiler* compiler) const {
    SPECD_TAKE(const Compiled compiled, compiler->CompileAnew(request));
    const std::unique_ptr<GrammarMatcher> matcher = NewMatcher(compiled);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool is_allowed = matcher->Mask().Allows(tokens[i]);
      const bool is_accepted = matcher->Accept(tokens[i]);
      if (is_allowed && is_accepted) continue;
      return absl::InternalError(fmt::format("token {} of {} is {} by the mask and {}", i,
                                             tokens.size(), is_allowed ? "allowed" : "forbidden",
                                             is_accepted ? "accepted" : "not accepted"));
    }
    return absl::OkStatus();
  }

  // The us of a compilation, of each mask along the text, and of the same masks by another matcher.
  // REQUIRES: Check succeeded.
  Times Run(GrammarCompiler* compiler) const {
    Times times_us;
    Compiled compiled;
    Time(&times_us, [&] { compiled = compiler->CompileAnew(request).value(); });
    // Both live to the end, as sequences with one constraint do.
    const std::unique_ptr<GrammarMatcher> matchers[] = {NewMatcher(compiled), NewMatcher(compiled)};
    for (const auto& matcher : matchers) {
      grammar::MaskRow row;
      for (const TokenId token : tokens) {
        Time(&times_us, [&] { row = matcher->Mask(); });
        SPECD_CHECK(matcher->Accept(token));
      }
    }
    return times_us;
  }
};

// Microseconds, by case.
using Samples = std::array<Times, std::size(kCases)>;

// Adds the times of a run of a lane.
void AddRun(const Times& run_us, Samples* samples) {
  for (size_t i = 0; i < run_us.size(); ++i) {
    const size_t index = i == 0 ? 0 : i <= run_us.size() / 2 ? 1 : 2;
    (*samples)[index].push_back(run_us[i]);
  }
}

class GrammarSuite {
 public:
  GrammarSuite(const Flags& flags, Output* out)
      : flags_(flags),
        out_(*out),
        vocab_size_(flags.Number("vocab")),
        vocabulary_(vocab_size_),
        compiler_({.vocabulary = &vocabulary_.vocabulary(), .vocab_size = vocab_size_}) {}

  absl::Status Run(const std::vector<GrammarText>& texts) {
    if (!flags_.Text("base").empty()) {
      SPECD_TAKE(peer_, StartPeer(flags_.Text("python"), vocabulary_));
    }
    out_.Caption(fmt::format(
        "V = {}; {}", vocab_size_,
        peer_ == nullptr ? "no peer" : fmt::format("base = {}, ratio = specd / base", kPeer)));
    const std::vector<std::string> names = flags_.List("constraint");
    for (const GrammarText& text : texts) {
      if (!names.empty() && std::ranges::count(names, text.name) == 0) continue;
      out_.Show(fmt::format("checking {}", text.name));
      for (const std::string_view instance : text.instances) SPECD_TRY(AddLane(text, instance));
    }
    return Replay();
  }

 private:
  // Follows the text once, by each engine. The peer numbers its lanes alike.
  absl::Status AddLane(const GrammarText& text, std::string_view instance) {
    Lane lane = {.name = text.name,
                 .request = {.kind = text.kind, .text = std::string(text.text)},
                 .tokens = vocabulary_.Tokenize(instance)};
    lane.tokens.push_back(vocabulary_.eos_id());
    num_tokens_ += std::ssize(lane.tokens);
    const auto wrong = [&](std::string_view engine, std::string_view why) {
      return absl::InternalError(fmt::format("{}: {}: {}", text.name, engine, why));
    };
    const absl::Status checked = lane.Check(&compiler_);
    if (!checked.ok()) return wrong("specd", std::string(checked.message()));
    if (peer_ != nullptr) {
      SPECD_TAKE(const std::string why,
                 peer_->Ask(fmt::format(R"({{"kind": "{}", "text": "{}", "ids": [{}]}})",
                                        kKinds[static_cast<size_t>(text.kind)], ToHex(text.text),
                                        fmt::join(lane.tokens, ", "))));
      if (!why.empty()) return wrong(kPeer, why);
    }
    lanes_.push_back(std::move(lane));
    return absl::OkStatus();
  }

  // Times the lanes, whose engines take turns to be the first.
  absl::Status Replay() {
    Samples own;
    Samples peer;
    std::vector<Side> sides(1);
    sides[0].turn = [&, run = 0](Times*) mutable -> absl::Status {
      const bool is_own_first = run++ % 2 == 0;
      for (size_t i = 0; i < lanes_.size(); ++i) {
        out_.Show(fmt::format("run {}: {}", run, lanes_[i].name));
        if (is_own_first) AddRun(lanes_[i].Run(&compiler_), &own);
        if (peer_ != nullptr) {
          SPECD_TAKE(const Times times_us, peer_->AskTimes(fmt::format(R"({{"run": {}}})", i),
                                                           1 + 2 * lanes_[i].tokens.size()));
          AddRun(times_us, &peer);
        }
        if (!is_own_first) AddRun(lanes_[i].Run(&compiler_), &own);
      }
      return absl::OkStatus();
    };
    SPECD_TAKE(const ForeignLoad load,
               TakeTurns({.seconds = flags_.Real("seconds"), .least = 2}, &sides));
    for (const CaseWords* const chosen : Chosen(flags_, kCases)) {
      const auto index = static_cast<size_t>(chosen - std::begin(kCases));
      const Summary value = Summarise(own[index]);
      Line line;
      line.Name("case", chosen->name, 10)
          .Json("vocab", vocab_size_)
          .Json("checked", num_tokens_)
          .Spread(value, "us", 2);
      if (peer_ != nullptr) AddBase(value, Summarise(peer[index]), &line);
      out_.Print(line.Target(GoalOf(static_cast<GrammarCase>(index), value)).Load(load));
    }
    return absl::OkStatus();
  }

  static void AddBase(const Summary& value, const Summary& base, Line* line) {
    line->Cell("base p50", 10, "{:.2f}", base.median)
        .Cell("base p90", 10, "{:.2f}", base.p90)
        .Cell("base p99", 10, "{:.2f}", base.p99)
        .Number("ratio", 9, 3, value.median / base.median)
        .Number("ratio p90", 9, 3, value.p90 / base.p90)
        .Number("ratio p99", 9, 3, value.p99 / base.p99)
        .Json("ratio_of", kPeer)
        .Times("base_", base);
  }

  // The p99 of the design at a vocabulary of a large model. Its p50 is a fiftieth for a compile,
  // and a hundredth for a warm mask.
  Goal GoalOf(GrammarCase grammar_case, const Summary& value) const {
    const bool are_all = flags_.List("constraint").empty();
    if (!are_all || vocab_size_ != kTargetVocabSize || grammar_case == GrammarCase::kColdMask) {
      return {};
    }
    const bool is_compile = grammar_case == GrammarCase::kCompile;
    const double times = is_compile ? 50 : 100;
    return {.measured = std::max(value.p99, times * value.median),
            .bound = is_compile ? 50'000.0 : 100.0,
            .unit = "us"};
  }

  const Flags& flags_;
  Output& out_;
  const int32_t vocab_size_;
  const SyntheticVocabulary vocabulary_;
  GrammarCompiler compiler_;
  std::unique_ptr<PythonProcess> peer_;
  std::vector<Lane> lanes_;
  int64_t num_tokens_ = 0;  // of all lanes
};

absl::Status RunGrammar(const Flags& flags, Output* out) {
  return MeasureGrammars(flags, GrammarTexts(), out);
}

// A file schemas/NAME.ENDING is a constraint, or none if the kind needs no text. NAME.1.txt and so
// on follow.
std::vector<GrammarText> MakeTexts() {
  using grammar::GrammarKind;
  constexpr std::string_view kFolder = "schemas/";
  std::vector<GrammarText> texts;
  for (const EmbeddedFile& file : kEmbeddedFiles) {
    if (!file.name.starts_with(kFolder)) continue;
    const std::string_view path = file.name.substr(kFolder.size());
    const std::string_view name = path.substr(0, path.find('.'));
    const std::string_view ending = path.substr(path.rfind('.') + 1);
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

absl::Status MeasureGrammars(const Flags& flags, const std::vector<GrammarText>& texts,
                             Output* out) {
  return GrammarSuite(flags, out).Run(texts);
}

Suite GrammarCommand() {
  Flag constraint = {.name = "constraint",
                     .help = "constraints by name, separated by commas; empty: all",
                     .is_list = true};
  for (const GrammarText& text : GrammarTexts()) constraint.choices.push_back(text.name);
  return {.name = "grammar",
          .summary = "compiling constraints, and their masks along texts",
          .cases = WordsOf(kCases),
          .flags = {Flag::Seconds("120", "20"),
                    constraint,
                    Flag::Whole("vocab", "the vocabulary's size",
                                {SyntheticVocabulary::kSizeMin, kVocabSizeMax}, "128256"),
                    {.name = "base",
                     .help = "xgrammar, by --python; without it no peer",
                     .choices = {kPeer}},
                    {.name = "python", .help = "an interpreter with xgrammar", .usual = "python3"}},
          .run = &RunGrammar};
}

}  // namespace specd::bench
