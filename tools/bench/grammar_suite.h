// GrammarSuite measures specd's grammar engine for `specd-bench grammar`, beside xgrammar.
//
// Every constraint is compiled, and followed along its texts, by each engine in turn, again and
// again until the time is used. Results pool the samples of all constraints, and with `each` those
// of one constraint too. A constraint that an engine refuses has one result, the refusal. The suite
// runs on the calling thread, except for the threads of `fill_threads`, which measures specd alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "speculative/grammar/compiler/grammar_compiler.h"
#include "tools/bench/grammar_peer.h"
#include "tools/bench/grammar_replay.h"
#include "tools/bench/grammar_text.h"
#include "tools/bench/output.h"
#include "tools/bench/synthetic_vocabulary.h"

namespace specd::bench {

struct GrammarOptions {
  std::vector<GrammarCase> cases;  // that are reported; every case is measured
  std::vector<const GrammarText*> texts;
  int32_t vocab_size = 0;
  bool each = false;   // results of single constraints too
  double seconds = 1;  // of timing; each text is run at least twice
};

struct GrammarMeasurement {
  GrammarCase grammar_case = GrammarCase::kCompile;
  // A name of GrammarTexts, or kAllConstraints; of kFillThreads: a batch, such as b8_cold_t2.
  std::string constraint = {};
  int32_t vocab_size = 0;
  std::string_view unit;          // us or bytes
  Summary value = {};             // of specd
  Summary base = {};              // of the peer; no samples if there is none
  std::string_view base_of = {};  // the peer's name
  double target = 0;              // the median to stay below; 0: none
  double target_p99 = 0;
  int64_t num_checked = 0;  // tokens
  ForeignLoad load = {};
  // An engine refused the constraint, which was therefore not measured.
  std::string refusal = {};
  std::string_view refused_by = {};

  bool IsRefused() const { return !refused_by.empty(); }
  bool HasBase() const { return base.num_samples > 0; }
  bool HasTarget() const { return target > 0; }
  bool IsMet() const { return value.median <= target && value.p99 <= target_p99; }
};

inline constexpr std::string_view kAllConstraints = "all";

// A refusal has cells for the case and the constraint alone.
Line LineOf(const GrammarMeasurement& measurement);

class GrammarSuite {
 public:
  struct Hooks {
    // Null: no peer. It is called with the suite's vocabulary.
    std::function<absl::StatusOr<std::unique_ptr<GrammarPeer>>(const SyntheticVocabulary&)>
        make_peer;
    std::function<void(std::string_view)> on_progress;  // is told each piece of work
    std::function<void(const GrammarMeasurement&)> on_result;
  };

  GrammarSuite(GrammarOptions options, Hooks hooks)
      : options_(std::move(options)),
        hooks_(std::move(hooks)),
        vocabulary_(options_.vocab_size),
        compiler_({.vocabulary = &vocabulary_.vocabulary(), .vocab_size = options_.vocab_size}) {}

  absl::Status Run();

 private:
  // One text of a constraint, which specd and the peer follow. The peer numbers lanes alike.
  struct Lane {
    const GrammarText* text = nullptr;
    GrammarReplay replay;
    GrammarSamples own = {};
    GrammarSamples peer = {};
  };

  absl::Status Prepare();
  // Follows the text of a new lane once, by each engine. After an error `refused_by` names the
  // engine.
  absl::StatusOr<Lane> MakeLane(const GrammarText& text, std::vector<TokenId> tokens,
                                std::string_view* refused_by);
  absl::StatusOr<size_t> MemoryOf(const GrammarText& text, std::span<const TokenId> tokens);
  bool IsRefused(std::string_view constraint) const;
  bool Has(GrammarCase grammar_case) const;
  // Times the replays until the time is used.
  absl::Status Replay();
  // Times batches of specd's own masks.
  void Fill();
  void Report(std::string_view constraint, const ForeignLoad& load) const;

  const GrammarOptions options_;
  const Hooks hooks_;
  const SyntheticVocabulary vocabulary_;
  grammar::GrammarCompiler compiler_;
  std::unique_ptr<GrammarPeer> peer_;
  std::vector<Lane> lanes_;
  std::vector<GrammarMeasurement> refusals_;
};

}  // namespace specd::bench
