// Any payload from a publisher or a detokenizer: decoding ends, and what it accepts keeps the
// promises of ipc/events/token_event.h and is written and read again with the same bytes. So does
// any ask, and any answer to one.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/events/ask.h"
#include "ipc/events/token_event.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

template <class Decode, class Append>
void FuzzMessage(std::string_view payload, Decode decode, Append append) {
  const auto message = decode(payload);
  if (!message.ok()) return;
  std::string once;
  append(*message, &once);
  const auto again = decode(once);
  SPECD_CHECK(again.ok());
  std::string twice;
  append(*again, &twice);
  SPECD_CHECK(once == twice);
}

void CheckScores(const std::vector<TokenScore>& scores, uint64_t num_tokens) {
  if (scores.empty()) return;
  SPECD_CHECK(num_tokens > 0 && scores.size() % num_tokens == 0);
  for (const TokenScore& score : scores) SPECD_CHECK(score.id >= kNoToken && score.rank >= 0);
}

void CheckPromises(std::string_view payload) {
  if (const absl::StatusOr<TokenBatch> batch = DecodeTokenBatch(payload); batch.ok()) {
    for (const TokenEvent& event : batch->events) {
      if (event.tokens() == nullptr) continue;
      SPECD_CHECK(event.tokens()->accepted <= event.num_ids());
      CheckScores(event.tokens()->scores, event.num_ids());
    }
  }
  if (const absl::StatusOr<TextEvent> text = DecodeTextEvent(payload); text.ok()) {
    size_t covered = 0;
    for (const auto& span : text->spans) covered += span.size_bytes;
    SPECD_CHECK(covered == text->text.size());
    CheckScores(text->scores, text->tokens - text->token_offset);
  }
}

}  // namespace
}  // namespace specd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  using namespace specd;
  const std::string_view payload(reinterpret_cast<const char*>(data), size_bytes);
  FuzzMessage(payload, DecodeTokenBatch, AppendTokenBatch);
  FuzzMessage(payload, DecodeTextEvent, AppendTextEvent);
  FuzzMessage(payload, DecodeHeartbeat, AppendHeartbeat);
  FuzzMessage(payload, DecodeAbortRequest, AppendAbortRequest);
  FuzzMessage(payload, DecodeAsk, AppendAsk);
  const auto append = [](const auto& answer, std::string* out) { AppendAnswer(answer, out); };
  FuzzMessage(payload, DecodeTokenAnswer, append);
  FuzzMessage(payload, DecodeTextAnswer, append);
  CheckPromises(payload);
  return 0;
}
