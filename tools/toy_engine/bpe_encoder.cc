#include "tools/toy_engine/bpe_encoder.h"

#include <cstddef>
#include <utility>

#include "tools/toy_engine/pre_tokenizer.h"

namespace specd::toy {

absl::StatusOr<BpeEncoder> BpeEncoder::Load(const std::string& path) {
  absl::StatusOr<BpeVocabulary> vocabulary = LoadVocabulary(path);
  if (!vocabulary.ok()) return vocabulary.status();
  return BpeEncoder(*std::move(vocabulary));
}

BpeEncoder::BpeEncoder(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

// Joins the pair of lowest rank, the leftmost of equals, until no pair can be joined. The loop is
// quadratic in the piece, which is a word and not a document.
void BpeEncoder::EncodePiece(std::string_view piece, std::vector<int32_t>* ids) const {
  std::vector<int32_t> parts;
  parts.reserve(piece.size());
  for (char c : piece) parts.push_back(vocabulary_.id_of_byte[static_cast<uint8_t>(c)]);
  while (parts.size() > 1) {
    const BpeMerge* best = nullptr;
    size_t best_index = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto merge = vocabulary_.merges.find(PairKey(parts[i], parts[i + 1]));
      if (merge == vocabulary_.merges.end()) continue;
      if (best != nullptr && merge->second.rank >= best->rank) continue;
      best = &merge->second;
      best_index = i;
    }
    if (best == nullptr) break;
    parts[best_index] = best->id;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_index) + 1);
  }
  ids->insert(ids->end(), parts.begin(), parts.end());
}

std::vector<int32_t> BpeEncoder::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  for (std::string_view piece : PreTokenize(text)) EncodePiece(piece, &ids);
  return ids;
}

std::string BpeEncoder::Decode(const std::vector<int32_t>& ids) const {
  std::string text;
  for (int32_t id : ids) {
    if (id >= 0 && id < vocab_size()) text += vocabulary_.bytes[id];
  }
  return text;
}

std::optional<int32_t> BpeEncoder::FindSpecialToken(std::string_view content) const {
  const auto found = vocabulary_.special_tokens.find(std::string(content));
  if (found == vocabulary_.special_tokens.end()) return std::nullopt;
  return found->second;
}

}  // namespace specd::toy
