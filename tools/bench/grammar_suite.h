// GrammarSuite measures specd's grammar engine for `specd-bench grammar`, beside xgrammar.
//
// Every constraint is compiled, and followed along its texts, by each engine in turn, again and
// again until the time is used. Lines pool the samples of all constraints, and with `each` those of
// one constraint too. A constraint that an engine refuses has one line, the refusal. The suite runs
// on the calling thread, except for the threads of `fill_threads`, which measures specd alone.
#pragma once

#include <cstdint>
#include <memory>
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
  std::vector<GrammarCase> cases = {};  // that are reported; every case is measured
  std::vector<const GrammarText*> texts = {};
  int32_t vocab_size = 0;
  bool each = false;             // lines of single constraints too
  double seconds = 1;            // of timing; each text is run at least twice
  std::string peer_python = {};  // the interpreter of GrammarPeer; empty: no peer
};

class GrammarSuite {
 public:
  GrammarSuite(GrammarOptions options, Output* out)
      : options_(std::move(options)),
        out_(*out),
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
  // An engine refused the constraint, which was therefore not measured.
  struct Refusal {
    std::string_view constraint;
    std::string_view by;
    std::string why;
  };
  // What a line says beside its times.
  struct Reported {
    GrammarCase grammar_case;
    std::string_view constraint;
    int64_t num_checked;  // tokens
    ForeignLoad load;
  };

  absl::Status Prepare();
  // Follows the text of a new lane once, by each engine. After an error `refused_by` names the
  // engine.
  absl::StatusOr<Lane> MakeLane(const GrammarText& text, std::string_view instance,
                                std::string_view* refused_by);
  std::vector<TokenId> TokensOf(std::string_view instance) const;
  absl::StatusOr<size_t> MemoryOf(const GrammarReplay& replay);
  bool Has(GrammarCase grammar_case) const;
  // Times the replays until the time is used.
  absl::Status Replay();
  // Times batches of specd's own masks.
  absl::Status Fill();
  void Report(std::string_view constraint, const ForeignLoad& load);
  void Print(const Reported& what, const Times& own, const Times& peer);

  const GrammarOptions options_;
  Output& out_;
  const SyntheticVocabulary vocabulary_;
  grammar::GrammarCompiler compiler_;
  std::unique_ptr<GrammarPeer> peer_;
  std::vector<Lane> lanes_;
  std::vector<Refusal> refusals_;
};

}  // namespace specd::bench
