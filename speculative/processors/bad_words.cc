#include "speculative/processors/bad_words.h"

#include <algorithm>

namespace specd {

std::unique_ptr<Processor> BadWords::Make(std::span<const std::vector<TokenId>> words) {
  std::vector<std::vector<TokenId>> longer;
  std::copy_if(words.begin(), words.end(), std::back_inserter(longer),
               [](const std::vector<TokenId>& word) { return word.size() > 1; });
  if (longer.empty()) return nullptr;
  return std::make_unique<BadWords>(std::move(longer));
}

void BadWords::Apply(const TokenHistory& history, PlaceEditor* place) const {
  const std::span<const TokenId> outputs = history.outputs();
  for (const std::vector<TokenId>& word : words_) {
    const size_t prefix = word.size() - 1;
    if (outputs.size() >= prefix &&
        std::equal(word.begin(), word.end() - 1, outputs.end() - static_cast<ptrdiff_t>(prefix))) {
      place->Ban(word.back());
    }
  }
}

}  // namespace specd
