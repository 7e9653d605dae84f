// Any bytes as a GGUF file.
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "detokenizer/gguf_tokenizer.h"
#include "kernels/core/check.h"
#include "tests/fuzz/vocabulary_promises.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  constexpr size_t kInputSizeBytesMax = 1 << 16;
  if (size_bytes > kInputSizeBytesMax) return 0;
  // Reads only. A file of no bytes cannot be opened.
  std::FILE* file = size_bytes == 0 ? std::fopen("/dev/null", "rb")
                                    : fmemopen(const_cast<uint8_t*>(data), size_bytes, "rb");
  SPECD_CHECK(file != nullptr);
  specd::CheckLoaded(specd::ReadGgufTokenizer(file, "fuzz"));
  std::fclose(file);
  return 0;
}
