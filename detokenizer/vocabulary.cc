#include "detokenizer/vocabulary.h"

#include <limits>
#include <utility>

namespace specd {

std::optional<TokenId> Vocabulary::FindAdded(std::string_view content) const {
  for (TokenId id = 0; id < size(); ++id) {
    if (IsAdded(id) && Bytes(id) == content) return id;
  }
  return std::nullopt;
}

void Vocabulary::Builder::Set(TokenId id, std::string_view bytes, TokenFlags flags) {
  SPECD_CHECK(id >= 0 && id < kVocabSizeMax);
  SPECD_CHECK(bytes.size() <= kTokenSizeBytesMax);
  SPECD_CHECK(!vocabulary_.Contains(id));
  std::string& blob = vocabulary_.blob_;
  SPECD_CHECK(blob.size() <= std::numeric_limits<uint32_t>::max() - bytes.size());

  const auto index = static_cast<size_t>(id);
  if (index >= vocabulary_.entries_.size()) vocabulary_.entries_.resize(index + 1);
  Entry& entry = vocabulary_.entries_[index];
  entry.offset = static_cast<uint32_t>(blob.size());
  entry.size_bytes = static_cast<uint16_t>(bytes.size());
  entry.flags = kPresent;
  if (flags.added) entry.flags |= kAdded;
  if (flags.special) entry.flags |= kSpecial;
  blob.append(bytes);
}

Vocabulary Vocabulary::Builder::Build() && {
  vocabulary_.entries_.shrink_to_fit();
  vocabulary_.blob_.shrink_to_fit();
  return std::move(vocabulary_);
}

}  // namespace specd
