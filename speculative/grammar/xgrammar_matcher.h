// XgrammarMatcher follows one sequence through a grammar that the xgrammar library compiled.
//
// The library never sees a stop id. It throws if a mask is asked of a matcher that ended, so this
// class counts the stop ids itself. If the library reports an error, the matcher allows no id from
// then on: the sequence fails, and nothing unconstrained passes.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "speculative/grammar/grammar_backend.h"
#include "speculative/grammar/tvm_library.h"
#include "speculative/grammar/xgrammar_methods.h"

namespace specd::grammar {

// The state that all matchers of one compiled grammar share. It outlives them.
struct XgrammarShared {
  XgrammarMethods methods;
  int32_t vocab_size = 0;
  // One bit for each id that has text and is not special.
  std::vector<uint32_t> text_ids;
};

class XgrammarMatcher final : public GrammarMatcher {
 public:
  // `compiled` keeps `shared` and the library's grammar alive.
  static std::unique_ptr<XgrammarMatcher> Create(const XgrammarShared& shared,
                                                 std::shared_ptr<const CompiledGrammar> compiled,
                                                 const TvmValue& grammar,
                                                 const MatcherOptions& options);

  std::optional<MaskRow> TryMask(WorkSlice* slice) override;
  MatcherFault fault() const override {
    return status_.ok() ? MatcherFault::kNone : MatcherFault::kLibrary;
  }
  bool Accept(TokenId id) override;
  bool AcceptText(std::string_view text) override;
  void Rollback(size_t num_tokens) override;
  size_t num_accepted() const override { return num_text_ids_ + num_stop_ids_; }
  std::unique_ptr<GrammarMatcher> Fork() const override;
  bool IsAccepting() override;
  bool IsFinished() override;
  bool IsTerminated() const override { return num_stop_ids_ > 0; }
  std::string ForcedText() override;

 private:
  using Words = std::vector<uint32_t>;

  XgrammarMatcher(const XgrammarShared& shared, std::shared_ptr<const CompiledGrammar> compiled)
      : shared_(shared), compiled_(std::move(compiled)) {}

  // Returns whether the call succeeded. The matcher keeps the first error.
  bool Keep(const absl::Status& status);
  // Calls a method that answers whether it advanced. The library counts that as one step.
  bool Advance(const TvmLibrary::Function& method, const tvm::Any& argument);
  // Fills row_ if it is not there.
  void FillRow();
  absl::Status FillText(Words& words) const;
  bool IsTextComplete();

  const XgrammarShared& shared_;
  std::shared_ptr<const CompiledGrammar> compiled_;
  TvmValue matcher_;
  absl::Status status_;
  std::shared_ptr<const std::vector<TokenId>> stop_ids_;  // within the vocabulary
  // text_ids of shared_, without the stop ids.
  std::shared_ptr<const Words> text_ids_;
  size_t num_text_ids_ = 0;  // accepted by the library
  size_t num_stop_ids_ = 0;  // accepted after them
  // The mask of the present place, empty until it is asked for.
  std::shared_ptr<const Words> row_;
  bool row_has_text_ = false;
};

}  // namespace specd::grammar
