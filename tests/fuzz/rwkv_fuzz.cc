// Any bytes as RWKV's vocabulary.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "detokenizer/rwkv_vocabulary.h"
#include "tests/fuzz/vocabulary_promises.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  constexpr size_t kInputSizeBytesMax = 1 << 16;
  if (size_bytes > kInputSizeBytesMax) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  (void)specd::IsRwkvVocabulary(text);
  specd::CheckLoaded(specd::ParseRwkvVocabulary(text, "fuzz"));
  return 0;
}
