// A hostile process at either end of a session's segment: with any bytes there, the daemon's copy
// is inside the limits and the engine's results are inside their record.
//
// The input is a list of steps. The first byte of a step says what happens: an honest submission, a
// take with its completion, a poll, a call, or a write of up to 8 bytes anywhere in the segment.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr SessionLimits kLimits{100, 3, 4, 2, 2, 1};
constexpr RowLimits kRows{20, 10, 5};

class Input {
 public:
  Input(const uint8_t* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}
  bool empty() const { return size_bytes_ == 0; }
  template <class T>
  T Take() {
    T value{};
    const size_t num = std::min(size_bytes_, sizeof(T));
    std::memcpy(&value, data_, num);
    data_ += num;
    size_bytes_ -= num;
    return value;
  }

 private:
  const uint8_t* data_;
  size_t size_bytes_;
};

void CheckPlace(const SequenceInput& record, int32_t i) {
  const Draft& draft = record.draft;
  SPECD_CHECK((draft.target_rows == nullptr) != (draft.target_argmax == nullptr));
  if (draft.target_rows != nullptr) SPECD_CHECK(draft.target_rows[i] < kRows.target_rows);
  if (draft.target_argmax != nullptr) {
    SPECD_CHECK(draft.target_argmax[i] >= 0 &&
                static_cast<uint32_t>(draft.target_argmax[i]) < kLimits.vocab_size);
  }
  if (record.mask_rows != nullptr) {
    SPECD_CHECK(record.mask_rows[i] >= -1 &&
                record.mask_rows[i] < static_cast<int64_t>(kRows.mask_rows));
  }
}

// Reads every list to the end of its room, so that a sanitizer sees where it lies.
void CheckCalls(const SubmissionCopy& copy) {
  int64_t sum = 0;
  SPECD_CHECK(copy.draft_calls().size() <= kLimits.max_batch);
  for (const DraftInput& call : copy.draft_calls()) {
    for (uint32_t i = 0; i < kLimits.max_draft; ++i) sum += call.prefix[i];
  }
  for (const ForcedInput& call : copy.forced_calls()) {
    for (uint32_t i = 0; i < kLimits.max_draft; ++i) sum += call.prefix[i];
  }
  SPECD_CHECK(copy.score_calls().size() <= kLimits.max_batch);
  for (const ScoreInput& call : copy.score_calls()) {
    for (uint32_t i = 0; i <= kLimits.max_draft; ++i) sum += call.rows[i] + call.ids[i];
    for (uint32_t i = 0; i < kCallChosenMax; ++i) sum += call.request.chosen[i];
  }
  if (copy.kind() == SubmissionKind::kSetCoins) {
    SPECD_CHECK(copy.coins_call().coins.size() <= kCallCoinsMax);
    for (const CoinRecord& coin : copy.coins_call().coins) sum += coin.purpose;
  }
  volatile int64_t sink = sum;
  (void)sink;
}

void CheckCopy(const SubmissionCopy& copy) {
  CheckCalls(copy);
  SPECD_CHECK(copy.records().size() <= kLimits.max_batch);
  SPECD_CHECK(!copy.malformed() || copy.records().empty());
  for (const SequenceInput& record : copy.records()) {
    const Draft& draft = record.draft;
    if (record.refusal != Refusal::kNone || record.discard) {
      SPECD_CHECK(draft.num_nodes == 0 && draft.target_rows == nullptr);
      SPECD_CHECK(record.mask_rows == nullptr && draft.target_argmax == nullptr);
      continue;
    }
    SPECD_CHECK(SlotOf(record.sequence) < kLimits.max_sequences);
    SPECD_CHECK(draft.num_nodes >= 0 &&
                static_cast<uint32_t>(draft.num_nodes) <= kLimits.max_draft);
    for (int32_t i = 0; i <= draft.num_nodes; ++i) {
      CheckPlace(record, i);
    }
    SPECD_CHECK((draft.draft_weights == nullptr) == (draft.draft_masses == nullptr));
    for (int32_t i = 0; i < draft.num_nodes; ++i) {
      SPECD_CHECK(draft.kinds[i] <= DraftKind::kSampledRest);
      SPECD_CHECK(!IsDrawn(draft, i) || draft.draft_rows[i] < kRows.draft_rows);
    }
  }
}

void CheckCompletion(const CompletionView& completion) {
  SPECD_CHECK(completion.results.size() <= kLimits.max_batch);
  SPECD_CHECK(completion.children.size() <= kLimits.max_batch);
  int64_t sum = static_cast<int64_t>(completion.refusal.message().size());
  for (const DraftResult& answer : completion.children) {
    SPECD_CHECK(answer.children.size() <= kCallChildrenMax);
    for (const DraftSample& child : answer.children) sum += child.id;
  }
  for (const SequenceResult& result : completion.results) {
    SPECD_CHECK(result.num_kept <= kLimits.max_draft + 1);
    SPECD_CHECK(result.scores_per_token <= kLimits.max_scores);
    SPECD_CHECK((result.scores == nullptr) == (result.scores_per_token == 0));
    for (uint32_t i = 0; i < result.num_kept; ++i) sum += result.tokens[i];
    for (uint32_t i = 0; i < result.num_kept * result.scores_per_token; ++i) {
      sum += result.scores[i].rank;
    }
  }
  volatile int64_t sink = sum;  // the reads above must happen, so that a sanitizer sees them
  (void)sink;
}

// Both ends of a session and the hands of a stranger.
class Session {
 public:
  Session() : segment_(*Segment::Create(kLimits, {1, 1})), engine_(&segment_), daemon_(&segment_) {
    daemon_.SetRowLimits(kRows);
  }

  void Submit(Input* input) {
    const TokenId tokens[] = {1, 2};
    const DraftKind kinds[] = {DraftKind::kSampled, DraftKind::kOneHot};
    const uint32_t target_rows[] = {0, 1, 2};
    const uint32_t draft_rows[] = {0, 1};
    const float weights[] = {0.5f, 0.25f};
    const double masses[] = {1, 2};
    const TokenId argmax[] = {7, 8, 9};
    const int32_t mask_rows[] = {-1, 0, 4};
    SequenceInput drafts[3];
    const auto head = input->Take<uint8_t>();
    const size_t batch = head % 4;
    for (size_t i = 0; i < batch; ++i) {
      const auto shape = input->Take<uint8_t>();
      drafts[i].sequence = uint64_t{1} << 32 | i;
      drafts[i].draft = {.num_nodes = shape % 3,
                         .tokens = tokens,
                         .kinds = kinds,
                         .target_rows = target_rows,
                         .draft_rows = draft_rows};
      const int flags = shape / 3;
      if ((flags & 1) != 0) drafts[i].mask_rows = mask_rows;
      if ((flags & 2) != 0) {
        drafts[i].draft.draft_weights = weights;
        drafts[i].draft.draft_masses = masses;
      }
      if ((flags & 4) != 0) {
        drafts[i].draft.target_rows = nullptr;
        drafts[i].draft.target_argmax = argmax;
      }
      drafts[i].discard = (flags & 8) != 0;
    }
    if ((head & 4) == 0) {
      engine_.Submit(1, {drafts, batch}, 1);
      return;
    }
    // On a stream, which is there at once, or released by the library, or both.
    if (engine_.CheckRoom() != PushResult::kOk) return;
    const uint64_t number = engine_.next_number();
    RoundWords* words = segment_.round_words(number);
    engine_.ArmWords();
    engine_.SubmitOnStream(1, {drafts, batch}, 1);
    if ((head & 8) == 0) words->ready.store(number);
    if ((head & 16) == 0) return;
    Decide(words, number, RoundEnd::kAborted);
    Release(words, number);
  }

  void Call(Input* input) {
    const TokenId ids[] = {1, 2, 3};
    const uint32_t rows[] = {0, 1, 2};
    const auto count = input->Take<uint32_t>();
    const DraftInput child = {.sequence = uint64_t{1} << 32,
                              .row = 1,
                              .mask_row = -1,
                              .prefix = ids,
                              .num_prefix = static_cast<int32_t>(count % 4)};
    const ScoreInput score = {.rows = rows,
                              .ids = ids,
                              .num_ids = static_cast<int32_t>(count % 4),
                              .request = {.enabled = true,
                                          .num_top = 1,
                                          .chosen = ids,
                                          .num_chosen = static_cast<int32_t>(count % 3)}};
    const CoinRecord coin{count, 0, 1, 2, 5};
    const ForcedInput forced = {.sequence = uint64_t{1} << 32,
                                .prefix = ids,
                                .num_prefix = child.num_prefix,
                                .num_ids_max = 3};
    switch (count % 4) {
      case 2:
        engine_.Call(std::span<const ForcedInput>(&forced, 1), 1);
        break;
      case 0:
        engine_.Call({&child, 1}, 1);
        break;
      case 1:
        engine_.Call({&score, 1}, 1);
        break;
      default:
        engine_.Call(CoinsCall{uint64_t{1} << 32, {&coin, 1}}, 1);
        break;
    }
  }

  // Answers a call with children or a refusal; false if it is none of those.
  bool AnswerCall() {
    const DraftSample sample{3, 1, 0.5f, DraftKind::kSampled, 1.0};
    if (copy_.kind() == SubmissionKind::kSampleDraft) {
      const std::vector<DraftResult> answers(
          copy_.draft_calls().size(), {.sequence = 1, .reason = {}, .children = {&sample, 1}});
      daemon_.Complete(copy_, std::span<const DraftResult>(answers), 3);
      return true;
    }
    if (copy_.kind() != SubmissionKind::kSetCoins) return false;
    daemon_.Refuse(copy_, absl::InvalidArgumentError("not these"), 3);
    return true;
  }

  void TakeAndComplete() {
    if (!daemon_.Take(&copy_, 2)) return;
    CheckCopy(copy_);
    if (AnswerCall()) return;
    daemon_.Claim(copy_);
    const TokenId tokens[] = {4, 5, 6};
    const TokenScore scores[] = {{4, -1, 1}, {5, -2, 2}, {6, -3, 3}};
    std::vector<SequenceResult> results(copy_.records().size() + copy_.score_calls().size() +
                                        copy_.forced_calls().size());
    for (SequenceResult& result : results) {
      result.num_kept = 3;
      result.tokens = tokens;
      result.scores_per_token = 1;
      result.scores = scores;
    }
    daemon_.Complete(copy_, std::span<const SequenceResult>(results), 3);
  }

  void Poll() {
    CompletionView completion;
    if (engine_.Poll(&completion)) CheckCompletion(completion);
  }

  void Write(Input* input) {
    const size_t size_bytes = 1 + input->Take<uint8_t>() % 8;
    // From here on the answer area, which lies further back than 16 bits reach.
    constexpr uint16_t kAnswers = 0xc000;
    const auto place = input->Take<uint16_t>();
    const uint64_t offset =
        place < kAnswers ? place : segment_.layout().call_answer_offset + (place - kAnswers);
    if (offset + size_bytes > segment_.layout().segment_bytes) return;
    const auto value = input->Take<uint64_t>();
    std::memcpy(segment_.at(offset), &value, size_bytes);
  }

 private:
  Segment segment_;
  EngineChannel engine_;
  DaemonChannel daemon_;
  SubmissionCopy copy_{kLimits};
};

}  // namespace
}  // namespace specd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  specd::Input input(data, size_bytes);
  specd::Session session;
  while (!input.empty()) {
    switch (input.Take<uint8_t>() % 5) {
      case 0:
        session.Submit(&input);
        break;
      case 1:
        session.TakeAndComplete();
        break;
      case 2:
        session.Poll();
        break;
      case 3:
        session.Write(&input);
        break;
      default:
        session.Call(&input);
        break;
    }
  }
  return 0;
}
