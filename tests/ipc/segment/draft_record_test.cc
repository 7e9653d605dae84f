// The records of a round: what is written is read, and numbers that cannot be are refused where
// they are read.
#include "ipc/segment/draft_record.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <vector>

namespace specd {
namespace {

constexpr SessionLimits kLimits = {.vocab_size = 100,
                                   .max_batch = 2,
                                   .max_sequences = 4,
                                   .max_draft = 6,
                                   .ring_depth = 1,
                                   .max_scores = 2,
                                   .max_path = 3};
constexpr RowLimits kRows = {.target_rows = 10, .draft_rows = 10, .mask_rows = 10};
constexpr SequenceHandle kSequence = uint64_t{1} << 32 | 2;

// A draft of five nodes: two children of the root, a chain of two below the first.
struct Buffers {
  std::vector<TokenId> tokens = {10, 11, 12, 13, 14};
  std::vector<int32_t> parents = {-1, 0, 1, -1, 3};
  std::vector<DraftKind> kinds = std::vector<DraftKind>(5, DraftKind::kSampled);
  std::vector<uint32_t> target_rows = {0, 1, 2, 3, 4, 5};
  std::vector<uint32_t> draft_rows = {5, 6, 7, 5, 9};  // siblings have one row
  std::vector<int32_t> mask_rows = {-1, 0, 1, 2, 3, 9};

  SequenceInput Input() const {
    SequenceInput input;
    input.sequence = kSequence;
    input.draft = {.num_nodes = static_cast<int32_t>(tokens.size()),
                   .tokens = tokens.data(),
                   .parents = parents.data(),
                   .kinds = kinds.data(),
                   .target_rows = target_rows.data(),
                   .draft_rows = draft_rows.data()};
    input.mask_rows = mask_rows.data();
    return input;
  }
};

// A record, by its own memory, as the daemon reads it.
class Record {
 public:
  explicit Record(const SessionLimits& limits = kLimits)
      : limits_(limits),
        layout_(ComputeLayout(limits)),
        bytes_(layout_.draft_record_bytes / 8 + 1) {}

  SequenceInput Read(const SequenceInput& input, const RowLimits& rows = kRows) {
    std::vector<uint64_t> shared(bytes_.size(), 0xABABABABABABABABu);
    WriteDraft(layout_, input, reinterpret_cast<char*>(shared.data()));
    CopyDraft(layout_, reinterpret_cast<char*>(shared.data()), data());
    return ReadDraft(layout_, limits_, rows, data());
  }

 private:
  char* data() { return reinterpret_cast<char*>(bytes_.data()); }

  const SessionLimits limits_;
  const SegmentLayout layout_;
  std::vector<uint64_t> bytes_;
};

Refusal WhyRefused(const std::function<void(Buffers*)>& change, const RowLimits& rows = kRows) {
  Buffers buffers;
  change(&buffers);
  Record record;
  return record.Read(buffers.Input(), rows).refusal;
}

TEST_SUITE("unit") {
  TEST_CASE("draft records: a tree arrives as it was written") {
    const Buffers buffers;
    Record record;
    const SequenceInput read = record.Read(buffers.Input());
    CHECK(read.refusal == Refusal::kNone);
    CHECK(read.sequence == kSequence);
    REQUIRE(read.draft.num_nodes == 5);
    for (int32_t i = 0; i < 5; ++i) {
      const auto at = static_cast<size_t>(i);
      CHECK(read.draft.tokens[i] == buffers.tokens[at]);
      REQUIRE(read.draft.parents != nullptr);
      CHECK(read.draft.parents[i] == buffers.parents[at]);
      CHECK(read.draft.draft_rows[i] == buffers.draft_rows[at]);
      CHECK(read.draft.target_rows[i + 1] == buffers.target_rows[at + 1]);
      CHECK(read.mask_rows[i + 1] == buffers.mask_rows[at + 1]);
    }
  }

  TEST_CASE("draft records: parents that make a chain are a chain") {
    Buffers buffers;
    buffers.tokens.resize(3);
    buffers.parents = {-1, 0, 1};
    Record record;
    const SequenceInput read = record.Read(buffers.Input());
    CHECK(read.refusal == Refusal::kNone);
    CHECK(read.draft.parents == nullptr);
  }

  TEST_CASE("draft records: a parent is -1 or an earlier node, and no path is too long") {
    CHECK(WhyRefused([](Buffers* b) { b->parents[0] = 0; }) == Refusal::kParents);
    CHECK(WhyRefused([](Buffers* b) { b->parents[2] = 2; }) == Refusal::kParents);
    CHECK(WhyRefused([](Buffers* b) { b->parents[2] = -2; }) == Refusal::kParents);
    CHECK(WhyRefused([](Buffers* b) { b->parents[4] = INT32_MAX; }) == Refusal::kParents);
    // max_path is 3: nodes 0, 1, 2 fill it.
    CHECK(WhyRefused([](Buffers* b) { b->parents[3] = 2; }) == Refusal::kPath);
    Buffers chain;
    SequenceInput input = chain.Input();
    input.draft.parents = nullptr;
    Record record;
    CHECK(record.Read(input).refusal == Refusal::kPath);
    Record without_limit({.vocab_size = 100,
                          .max_batch = 2,
                          .max_sequences = 4,
                          .max_draft = 6,
                          .ring_depth = 1,
                          .max_scores = 2});
    CHECK(without_limit.Read(input).refusal == Refusal::kNone);
  }

  // Nodes 0 and 3 are siblings; node 4 is no sibling of node 1.
  TEST_CASE("draft records: siblings that do not fit together are refused, each by its name") {
    constexpr DraftKind kRest = DraftKind::kSampledRest;
    CHECK(WhyRefused([](Buffers* b) { b->draft_rows[3] = 6; }) == Refusal::kSiblingRows);
    CHECK(WhyRefused([](Buffers* b) { b->kinds[3] = kRest; }) == Refusal::kSiblingKinds);
    CHECK(WhyRefused([](Buffers* b) { b->kinds[4] = kRest; }) == Refusal::kNone);
    CHECK(WhyRefused([](Buffers* b) { b->tokens[4] = b->tokens[1]; }) == Refusal::kNone);
    // Two draws of one id, a draw of a one-hot sibling's id, and neither.
    const auto repeat = [](DraftKind a, DraftKind b, TokenId id) {
      return WhyRefused([&](Buffers* of) {
        of->kinds[0] = a;
        of->kinds[3] = b;
        of->tokens[0] = of->tokens[3] = id;
      });
    };
    CHECK(repeat(DraftKind::kSampled, DraftKind::kSampled, 7) == Refusal::kNone);
    CHECK(repeat(DraftKind::kOneHot, DraftKind::kSampled, 7) == Refusal::kNone);
    CHECK(repeat(DraftKind::kOneHot, DraftKind::kOneHot, 7) == Refusal::kSiblingTokens);
    CHECK(repeat(kRest, DraftKind::kOneHot, 7) == Refusal::kSiblingTokens);
    CHECK(repeat(kRest, kRest, 7) == Refusal::kSiblingTokens);
    for (const TokenId outside : {kNoToken, 100}) {  // both branches end
      CHECK(repeat(kRest, kRest, outside) == Refusal::kNone);
    }
    CHECK(WhyRefused([](Buffers* b) { b->kinds[0] = DraftKind{3}; }) == Refusal::kKind);
  }

  TEST_CASE("draft records: rows that are not bound are refused, each by its name") {
    const auto same = [](Buffers*) {};
    CHECK(WhyRefused(same, {.draft_rows = 10, .mask_rows = 10}) == Refusal::kTargetUnbound);
    CHECK(WhyRefused(same, {.target_rows = 10, .mask_rows = 10}) == Refusal::kDraftUnbound);
    CHECK(WhyRefused(same, {.target_rows = 10, .draft_rows = 10}) == Refusal::kMaskUnbound);
    CHECK(WhyRefused([](Buffers* b) { b->mask_rows[1] = -2; }) == Refusal::kMaskRow);
    // Sampled tokens without rows; the record does not find those of an earlier round.
    Buffers buffers;
    SequenceInput input = buffers.Input();
    input.draft.draft_rows = nullptr;
    Record record;
    CHECK(record.Read(input).refusal == Refusal::kNoDraftRow);
    const uint32_t outside[] = {0, 0, 10, 0, 0};
    input.draft.draft_rows = outside;
    CHECK(record.Read(input, {.target_rows = 10, .draft_rows = 10, .mask_rows = 10}).refusal ==
          Refusal::kDraftRow);
    // -1 alone is no mask, and nothing need be bound for it.
    buffers.mask_rows.assign(6, -1);
    CHECK(record.Read(buffers.Input(), {.target_rows = 10, .draft_rows = 10}).refusal ==
          Refusal::kNone);
    input = buffers.Input();
    input.drafts_by_slot = true;
    CHECK(record.Read(input).refusal == Refusal::kDraftTokens);
    const TokenId argmax[] = {0, 99, 100, 0, 0, 0};
    input = buffers.Input();
    input.draft.target_argmax = argmax;
    CHECK(record.Read(input).refusal == Refusal::kArgmax);
  }

  TEST_CASE("result records: counts beyond their room are no result") {
    const SegmentLayout layout = ComputeLayout(kLimits);
    const TokenId tokens[] = {4, 5, 6, 7};
    const int32_t path[] = {0, 1, 2};
    const SequenceResult result = {.sequence = kSequence,
                                   .num_accepted = 3,
                                   .num_kept = 4,
                                   .total_kept = 9,
                                   .tokens = tokens,
                                   .path = path,
                                   .cumulative_logprob = -2.5};
    std::vector<uint64_t> shared(layout.result_record_bytes / 8 + 1);
    std::vector<uint64_t> copy(shared.size());
    char* const from = reinterpret_cast<char*>(shared.data());
    char* const to = reinterpret_cast<char*>(copy.data());
    WriteResult(layout, kLimits, result, from);
    SequenceResult read;
    REQUIRE(ReadResult(layout, kLimits, from, to, &read));
    CHECK(read.total_kept == 9);
    CHECK(read.tokens[3] == 7);
    CHECK(read.path[2] == 2);
    CHECK(read.scores == nullptr);
    CHECK(read.cumulative_logprob == -2.5);
    const auto refuses = [&](size_t offset, uint32_t value) {
      std::vector<uint64_t> broken = shared;
      std::memcpy(reinterpret_cast<char*>(broken.data()) + offset, &value, sizeof(value));
      return !ReadResult(layout, kLimits, reinterpret_cast<char*>(broken.data()), to, &read);
    };
    CHECK(refuses(offsetof(ResultRecord, num_kept), 5));      // max_path + 1 is 4
    CHECK(refuses(offsetof(ResultRecord, num_accepted), 5));  // of four kept tokens
    CHECK(refuses(offsetof(ResultRecord, scores_per_token), 3));
  }
}

}  // namespace
}  // namespace specd
