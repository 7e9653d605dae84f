// Any bytes as a tokenizer.json: they are refused with a message, or become a vocabulary that keeps
// its promises and gives valid UTF-8 for any ids.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "detokenizer/text_stream.h"
#include "detokenizer/tokenizer_json.h"
#include "kernels/core/check.h"
#include "tests/detokenizer/reference_text.h"

namespace specd {
namespace {

constexpr int32_t kSearchedSizeMax = 4096;  // FindAdded takes linear time

void CheckVocabulary(const Vocabulary& vocabulary) {
  SPECD_CHECK(vocabulary.size() >= 0 && vocabulary.size() <= kVocabSizeMax);
  SPECD_CHECK(vocabulary.size() == 0 || vocabulary.Contains(vocabulary.size() - 1));
  TextStream stream(&vocabulary, nullptr, {.skip_special_tokens = false});
  TextChunk chunk;
  std::string bytes;
  for (TokenId id = -1; id <= vocabulary.size(); ++id) {
    SPECD_CHECK(vocabulary.Contains(id) || vocabulary.Bytes(id).empty());
    SPECD_CHECK(vocabulary.Contains(id) || !vocabulary.IsAdded(id));
    if (vocabulary.IsAdded(id) && vocabulary.size() <= kSearchedSizeMax) {
      SPECD_CHECK(vocabulary.FindAdded(vocabulary.Bytes(id)) <= id);
    }
    bytes += vocabulary.Bytes(id);
    stream.Push(id, false, &chunk);
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  const TextRules& rules = vocabulary.text_rules();
  const bool each_byte = rules.replacement == Utf8Replacement::kByte;
  reference::Decoded expected = reference::DecodeUtf8(bytes, each_byte);
  const size_t num_replaced = each_byte ? expected.pending_bytes : (expected.pending ? 1 : 0);
  for (size_t i = 0; i < num_replaced; ++i) expected.text += kReplacementCharacter;
  const size_t front = std::min(expected.text.find_first_not_of(' '), expected.text.size());
  expected.text.erase(0, std::min<size_t>(front, rules.stripped_spaces));
  SPECD_CHECK(chunk.text == expected.text);
}

}  // namespace
}  // namespace specd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  constexpr size_t kInputSizeBytesMax = 1 << 16;
  if (size_bytes > kInputSizeBytesMax) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data), size_bytes);
  const auto vocabulary = specd::ParseTokenizerJson(json, "fuzz.json");
  if (vocabulary.ok()) {
    specd::CheckVocabulary(*vocabulary);
  } else {
    const std::string message(vocabulary.status().message());
    SPECD_CHECK(message.find("fuzz.json: ") == 0);
    SPECD_CHECK(message.find('\n') == std::string::npos);
    SPECD_CHECK(message.size() < 1000);
    const specd::reference::Decoded decoded = specd::reference::DecodeUtf8(message);
    SPECD_CHECK(decoded.text == message && !decoded.pending);
  }
  return 0;
}
