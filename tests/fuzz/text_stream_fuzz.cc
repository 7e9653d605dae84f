// Any vocabulary, stop strings, ids and grouping: the text that comes out piece by piece is the
// text of all ids at once (tests/detokenizer/reference_text.h).
//
// The input, byte by byte: options; stop strings; tokens; then one byte for each pushed token.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "detokenizer/text_stream.h"
#include "kernels/core/check.h"
#include "tests/detokenizer/reference_text.h"

namespace specd {
namespace {

constexpr size_t kTokensMax = 32;
constexpr size_t kPushesMax = 64;  // the reference takes quadratic time

class Input {
 public:
  Input(const uint8_t* data, size_t size_bytes)
      : rest_(reinterpret_cast<const char*>(data), size_bytes) {}

  bool empty() const { return rest_.empty(); }

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return byte;
  }

  std::string String(size_t size_bytes) {
    const std::string text(rest_.substr(0, size_bytes));
    rest_.remove_prefix(text.size());
    return text;
  }

 private:
  std::string_view rest_;
};

struct Case {
  TextOptions options;
  bool is_last_withheld = false;
  std::vector<std::string> stop_strings;
  std::shared_ptr<const StopSet> stops;
  Vocabulary vocabulary;
  struct Push {
    TokenId id = 0;
    bool begins_chunk = false;
  };
  std::vector<Push> pushes;
  std::vector<reference::Token> sequence;
};

Case ReadCase(Input input) {
  Case result;
  const uint8_t options = input.Byte();
  result.options = {(options & 1) != 0, (options & 2) != 0};
  result.is_last_withheld = (options & 4) != 0;
  for (int count = options >> 3 & 3; count > 0; --count) {
    result.stop_strings.push_back(input.String(input.Byte() % 16));
  }
  auto stops = StopSet::Create(result.stop_strings);
  if (stops.ok()) {
    result.stops = *std::move(stops);
  } else {
    result.stop_strings.clear();
  }
  Vocabulary::Builder builder;
  const size_t num_tokens = input.Byte() % kTokensMax;
  for (size_t id = 0; id < num_tokens; ++id) {
    const uint8_t head = input.Byte();
    const bool is_special = (head & 0xF0) == 0xF0;
    builder.Set(static_cast<TokenId>(id), input.String(head & 7),
                {.added = is_special, .special = is_special});
  }
  result.vocabulary = std::move(builder).Build();
  while (!input.empty() && result.pushes.size() < kPushesMax) {
    const uint8_t byte = input.Byte();
    const TokenId id = byte % kTokensMax;
    result.pushes.push_back({id, (byte & 0x80) != 0});
    result.sequence.push_back(
        {std::string(result.vocabulary.Bytes(id)), (byte & 0x40) != 0,
         result.options.skip_special_tokens && result.vocabulary.IsSpecial(id)});
  }
  return result;
}

void CheckCase(const Case& input, bool is_one_chunk) {
  TextStream stream(&input.vocabulary, input.stops, input.options);
  std::string text;
  std::vector<bool> accepted_draft;
  std::optional<int> stop;
  TextChunk chunk;
  const auto take_chunk = [&] {
    size_t covered_size_bytes = 0;
    for (size_t i = 0; i < chunk.spans.size(); ++i) {
      const TextSpan& span = chunk.spans[i];
      SPECD_CHECK(span.size_bytes > 0);
      SPECD_CHECK(i == 0 || span.accepted_draft != chunk.spans[i - 1].accepted_draft);
      covered_size_bytes += span.size_bytes;
      accepted_draft.insert(accepted_draft.end(), span.size_bytes, span.accepted_draft);
    }
    SPECD_CHECK(covered_size_bytes == chunk.text.size());
    text += chunk.text;
    SPECD_CHECK(stream.text_offset() == text.size());
    chunk.Clear();
  };
  for (size_t i = 0; i < input.pushes.size() && !stop; ++i) {
    if (!is_one_chunk && input.pushes[i].begins_chunk) take_chunk();
    const bool is_withheld = input.is_last_withheld && i + 1 == input.pushes.size();
    const bool is_draft = input.sequence[i].accepted_draft;
    stop = is_withheld ? stream.PushWithheld(input.pushes[i].id, is_draft, &chunk)
                       : stream.Push(input.pushes[i].id, is_draft, &chunk);
  }
  stream.Finish(TextEnd::kFlush, &chunk);
  take_chunk();

  const reference::Text expected = reference::DecodeSequence(
      input.sequence, input.is_last_withheld, input.stop_strings, input.options.include_stop);
  SPECD_CHECK(text == expected.text);
  SPECD_CHECK(stop == expected.stop);
  SPECD_CHECK(accepted_draft == expected.accepted_draft);
}

}  // namespace
}  // namespace specd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const specd::Case input = specd::ReadCase(specd::Input(data, size_bytes));
  specd::CheckCase(input, /*is_one_chunk=*/true);
  specd::CheckCase(input, /*is_one_chunk=*/false);
  return 0;
}
