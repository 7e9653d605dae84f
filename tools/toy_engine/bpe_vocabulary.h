// BpeVocabulary holds the contents of a tokenizer.json (the format of the tokenizers library), read
// and checked, for BpeEncoder.
//
// Use BpeEncoder::Load; this file keeps the format apart from the algorithm. A file is refused if
// it asks for anything except plain byte-level BPE as in GPT-2, such as a normalizer, another split
// expression or byte fallback. Ignoring such a part would give other ids than the model's training.
//
// Plain data and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

namespace specd::toy {

struct BpeMerge {
  int32_t rank;  // the lowest is joined first
  int32_t id;    // the id of the joined pair
};

// Key of a pair of neighbours in BpeVocabulary::merges.
inline uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

struct BpeVocabulary {
  std::vector<std::string> bytes;  // by id; empty for special tokens and unused ids
  std::array<int32_t, 256> id_of_byte;
  absl::flat_hash_map<uint64_t, BpeMerge> merges;
  absl::flat_hash_map<std::string, int32_t> special_tokens;
};

absl::StatusOr<BpeVocabulary> LoadVocabulary(const std::string& path);
absl::StatusOr<BpeVocabulary> ParseVocabulary(std::string_view json);

}  // namespace specd::toy
