// Any bytes as a SentencePiece model.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "detokenizer/sentence_piece_model.h"
#include "tests/fuzz/vocabulary_promises.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  constexpr size_t kInputSizeBytesMax = 1 << 16;
  if (size_bytes > kInputSizeBytesMax) return 0;
  const std::string_view model(reinterpret_cast<const char*>(data), size_bytes);
  (void)specd::IsSentencePieceModel(model);
  specd::CheckLoaded(specd::ParseSentencePieceModel(model, "fuzz"));
  return 0;
}
