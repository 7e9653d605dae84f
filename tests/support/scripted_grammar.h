// ScriptedMatcher is the matcher of a constraint that a test watches and disturbs.
//
// The constraint allows every id at every place, except those that the script forbids. The script
// is called where a matcher works, in whatever thread that is, and may throw.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "speculative/grammar/matchers/grammar_matcher.h"

namespace specd {

struct GrammarScript {
  // Called with the name of the constraint and the accepted ids. May be null.
  std::function<void(const std::string& name, const std::vector<TokenId>& ids)> on_mask;
  std::function<void(const std::string& name, const std::vector<TokenId>& ids)> on_accept;
  std::vector<TokenId> forbidden;
  int32_t vocab_size = 8;

  // The rows of matchers that something still holds.
  size_t num_rows_held() const {
    return static_cast<size_t>(
        std::count_if(rows.begin(), rows.end(), [](const auto& row) { return !row.expired(); }));
  }
  mutable std::vector<std::weak_ptr<const grammar::MaskWords>> rows;
  mutable std::mutex mutex;  // guards rows
};

class ScriptedMatcher : public grammar::GrammarMatcher {
 public:
  ScriptedMatcher(std::string name, std::shared_ptr<const GrammarScript> script)
      : name_(std::move(name)), script_(std::move(script)) {}

  std::optional<grammar::MaskRow> TryMask(grammar::WorkSlice* /*slice*/) override {
    if (script_->on_mask) script_->on_mask(name_, ids_);
    grammar::MaskWords words((static_cast<size_t>(script_->vocab_size) + 31) / 32, ~uint32_t{0});
    for (const TokenId id : script_->forbidden) {
      words[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (static_cast<uint32_t>(id) % 32));
    }
    auto row = std::make_shared<const grammar::MaskWords>(std::move(words));
    const std::lock_guard lock(script_->mutex);
    script_->rows.emplace_back(row);
    return grammar::MaskRow(std::move(row));
  }
  grammar::MatcherFault fault() const override { return grammar::MatcherFault::kNone; }
  bool Accept(TokenId id) override {
    if (script_->on_accept) script_->on_accept(name_, ids_);
    ids_.push_back(id);
    return true;
  }
  bool AcceptText(std::string_view) override { return false; }
  void Rollback(size_t num_tokens) override { ids_.resize(ids_.size() - num_tokens); }
  size_t num_accepted() const override { return ids_.size(); }
  std::unique_ptr<GrammarMatcher> Fork() const override {
    return std::make_unique<ScriptedMatcher>(*this);
  }
  bool IsAccepting() override { return false; }
  bool IsFinished() override { return false; }
  bool IsTerminated() const override { return false; }
  std::string ForcedText() override { return {}; }
  uint64_t StateNumber() const override { return ids_.size() + 1; }

 private:
  const std::string name_;
  const std::shared_ptr<const GrammarScript> script_;
  std::vector<TokenId> ids_;
};

}  // namespace specd
