// CheckLoaded holds what a loader made of any bytes against its promises, for the fuzzers.
//
// A file is refused with a message of one line, or becomes a vocabulary that gives valid UTF-8 for
// any ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "detokenizer/text_stream.h"
#include "detokenizer/vocabulary.h"
#include "kernels/core/check.h"
#include "tests/detokenizer/reference_text.h"

namespace specd {

inline constexpr int32_t kSearchedSizeMax = 4096;  // FindAdded takes linear time

inline void CheckVocabulary(const Vocabulary& vocabulary) {
  SPECD_CHECK(vocabulary.size() >= 0 && vocabulary.size() <= kVocabSizeMax);
  SPECD_CHECK(vocabulary.size() == 0 || vocabulary.Contains(vocabulary.size() - 1));
  TextStream stream(&vocabulary, nullptr, {.skip_special_tokens = false});
  TextChunk chunk;
  std::string bytes;
  const TextRules& rules = vocabulary.text_rules();
  bool is_front = true;
  for (TokenId id = -1; id <= vocabulary.size(); ++id) {
    SPECD_CHECK(vocabulary.Contains(id) || vocabulary.Bytes(id).empty());
    SPECD_CHECK(vocabulary.Contains(id) || !vocabulary.IsAdded(id));
    if (vocabulary.IsAdded(id) && vocabulary.size() <= kSearchedSizeMax) {
      SPECD_CHECK(vocabulary.FindAdded(vocabulary.Bytes(id)) <= id);
    }
    bytes += is_front ? vocabulary.FrontBytes(id) : vocabulary.Bytes(id);
    if (rules.front_end == FrontEnd::kToken && !vocabulary.Bytes(id).empty()) is_front = false;
    if (!vocabulary.FrontBytes(id).empty()) is_front = false;
    stream.Push(id, false, &chunk);
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  if (rules.holds_last_space && !bytes.empty() && bytes.back() == ' ') bytes.pop_back();
  const bool each_byte = rules.replacement == Utf8Replacement::kByte;
  reference::Decoded expected = reference::DecodeUtf8(bytes, each_byte);
  const size_t num_replaced = each_byte ? expected.pending_bytes : (expected.pending ? 1 : 0);
  for (size_t i = 0; i < num_replaced; ++i) expected.text += kReplacementCharacter;
  const size_t front = std::min(expected.text.find_first_not_of(' '), expected.text.size());
  expected.text.erase(0, std::min<size_t>(front, rules.stripped_spaces));
  SPECD_CHECK(chunk.text == expected.text);
}

// REQUIRES: the loader was given the name "fuzz".
inline void CheckLoaded(const absl::StatusOr<Vocabulary>& vocabulary) {
  if (vocabulary.ok()) {
    CheckVocabulary(*vocabulary);
    return;
  }
  const std::string message(vocabulary.status().message());
  SPECD_CHECK(message.find("fuzz: ") == 0);
  SPECD_CHECK(message.find('\n') == std::string::npos);
  SPECD_CHECK(message.size() < 1000);
  const reference::Decoded decoded = reference::DecodeUtf8(message);
  SPECD_CHECK(decoded.text == message && !decoded.pending);
}

}  // namespace specd
