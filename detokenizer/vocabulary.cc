#include "detokenizer/vocabulary.h"

#include <limits>
#include <utility>

namespace specd {

int32_t Vocabulary::MinColumns() const {
  int32_t columns = size();
  while (columns > 0 && (IsAdded(columns - 1) || !Contains(columns - 1))) --columns;
  return columns;
}

std::optional<TokenId> Vocabulary::FindAdded(std::string_view content) const {
  for (TokenId id = 0; id < size(); ++id) {
    if (IsAdded(id) && Bytes(id) == content) return id;
  }
  return std::nullopt;
}

uint64_t Vocabulary::Hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view bytes = Bytes(id);
    const uint32_t length = Contains(id) ? static_cast<uint32_t>(bytes.size()) : ~uint32_t{0};
    for (int shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(length >> shift));
    for (const char byte : bytes) add(static_cast<uint8_t>(byte));
  }
  return hash == 0 ? 1 : hash;
}

void Vocabulary::Builder::Set(TokenId id, std::string_view bytes, TokenFlags flags) {
  SPECD_CHECK(id >= 0 && id < kVocabSizeMax);
  SPECD_CHECK(!vocabulary_.Contains(id));
  const size_t index = id;
  if (index >= vocabulary_.entries_.size()) vocabulary_.entries_.resize(index + 1);
  Entry& entry = vocabulary_.entries_[index];
  entry = Append(bytes);
  if (flags.added) entry.flags |= kAdded;
  if (flags.special) entry.flags |= kSpecial;
}

void Vocabulary::Builder::SetFront(TokenId id, std::string_view bytes) {
  SPECD_CHECK(vocabulary_.Contains(id));
  if (vocabulary_.Bytes(id) == bytes) return;
  const size_t index = id;
  if (index >= vocabulary_.fronts_.size()) vocabulary_.fronts_.resize(index + 1);
  vocabulary_.fronts_[index] = Append(bytes);
}

Vocabulary::Entry Vocabulary::Builder::Append(std::string_view bytes) {
  std::string& blob = vocabulary_.blob_;
  SPECD_CHECK(bytes.size() <= kTokenSizeBytesMax);
  SPECD_CHECK(blob.size() <= std::numeric_limits<uint32_t>::max() - bytes.size());
  const Entry entry{.offset = static_cast<uint32_t>(blob.size()),
                    .size_bytes = static_cast<uint16_t>(bytes.size()),
                    .flags = kPresent};
  blob.append(bytes);
  return entry;
}

Vocabulary Vocabulary::Builder::Build() && {
  vocabulary_.entries_.shrink_to_fit();
  vocabulary_.fronts_.shrink_to_fit();
  vocabulary_.blob_.shrink_to_fit();
  return std::move(vocabulary_);
}

}  // namespace specd
