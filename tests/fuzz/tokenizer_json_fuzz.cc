// Any bytes as a tokenizer.json or tekken.json.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "detokenizer/tokenizer_file.h"
#include "tests/fuzz/vocabulary_promises.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  constexpr size_t kInputSizeBytesMax = 1 << 16;
  if (size_bytes > kInputSizeBytesMax) return 0;
  const std::string_view json(reinterpret_cast<const char*>(data), size_bytes);
  specd::CheckLoaded(specd::ParseTokenizerJson(json, "fuzz"));
  return 0;
}
