// BadWords bans the completion of words of two ids and more: step 5 of CONTRACT §3.
//
// The last id of a word is banned if the ids before it were just emitted; the draft prefix counts.
// A word that begins in the prompt is not caught, as in vLLM: only emitted ids count. TokenEdits
// bans words of one id everywhere. One sequence owns it, like every Processor.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "speculative/processors/processor.h"

namespace specd {

class BadWords : public Processor {
 public:
  // Returns null if no word has two ids or more.
  static std::unique_ptr<Processor> Make(std::span<const std::vector<TokenId>> words);

  explicit BadWords(std::vector<std::vector<TokenId>> words) : words_(std::move(words)) {}

  size_t max_edits() const override { return words_.size(); }
  void Apply(const TokenHistory& history, PlaceEditor* place) const override;
  std::unique_ptr<Processor> Clone() const override { return std::make_unique<BadWords>(*this); }

 private:
  const std::vector<std::vector<TokenId>> words_;
};

}  // namespace specd
