// GrammarPeer is xgrammar as the peer of `specd-bench grammar`: a process with
// tools/bench/xgrammar_peer.py, which calls xgrammar's own Python package. One thread.
//
//   auto peer = GrammarPeer::Start("build/xgrammar/bin/python", vocabulary, vocab_size);
//   auto bytes = (*peer)->Add(request, tokens);   // checked, and lane 0 from now on
//   absl::Status status = (*peer)->Run(0, &samples);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/child_process.h"
#include "tools/bench/grammar_replay.h"
#include "tools/bench/synthetic_vocabulary.h"

namespace specd::bench {

class GrammarPeer {
 public:
  static constexpr std::string_view kName = "xgrammar";

  // FailedPrecondition: the interpreter has no xgrammar, or there is none.
  static absl::StatusOr<std::unique_ptr<GrammarPeer>> Start(const std::string& interpreter,
                                                            const SyntheticVocabulary& vocabulary,
                                                            int32_t vocab_size);

  // Adds a lane: one text of a constraint, whose tokens end with the stop id. Returns the bytes of
  // the compiled grammar. Internal: a mask forbids a token of the text. Unimplemented: xgrammar
  // refuses the constraint.
  absl::StatusOr<size_t> Add(const grammar::GrammarRequest& request,
                             const std::vector<TokenId>& tokens);
  // As GrammarReplay::Run. Lanes are numbered as they were added.
  absl::Status Run(size_t lane, GrammarSamples* samples);

 private:
  explicit GrammarPeer(std::unique_ptr<PythonProcess> process) : process_(std::move(process)) {}

  const std::unique_ptr<PythonProcess> process_;
};

}  // namespace specd::bench
