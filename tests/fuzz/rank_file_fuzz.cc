// Any bytes as a rank file, and after a zero byte as the tokenizer_config.json beside it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "detokenizer/rank_file.h"
#include "tests/fuzz/vocabulary_promises.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  constexpr size_t kInputSizeBytesMax = 1 << 16;
  if (size_bytes > kInputSizeBytesMax) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size_bytes);
  const std::string_view ranks = bytes.substr(0, bytes.find('\0'));
  const std::string_view config = bytes.substr(ranks.size() < size_bytes ? ranks.size() + 1 : 0);
  specd::CheckLoaded(specd::ParseRankFile(
      ranks, "fuzz", [config](size_t) { return specd::ParseTokenizerConfig(config, "fuzz"); }));
  return 0;
}
