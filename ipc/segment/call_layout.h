// These records hold calls and their answers in the session segment, byte by byte.
//
// A call is a request besides rounds; an answer here is one that is no ResultRecord. The rules of
// ipc/segment/layout.h hold here as well. ipc/segment/calls.h writes and reads these records. This
// header only describes; it synchronizes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd {

inline constexpr uint32_t kCallCoinsMax = 4096;
inline constexpr uint32_t kCallChildrenMax = 64;
inline constexpr uint32_t kCallChosenMax = 64;

// One request of kSampleDraft, or of kForcedTokens. int32 prefix[max_draft] follows it, then zeros
// up to call_record_bytes. A request of kForcedTokens has its largest number of ids in
// num_children, and 0 in row, mask_row, sampling and first_node. A ResultRecord answers it, whose
// tokens are the ids.
struct ChildrenRecord {
  uint64_t sequence;
  uint32_t row;
  int32_t mask_row;
  uint32_t num_prefix;
  uint32_t sampling;  // SPECD_WITH_REPLACEMENT, ...
  uint32_t num_children;
  uint32_t first_node;
};

// One request of kScore. A ResultRecord answers it, whose tokens are the ids that were scored.
// These arrays follow the request:
//   uint32 rows[max_output]
//   int32  ids[max_output]
//   int32  chosen[kCallChosenMax]
// Zeros fill the record up to call_record_bytes.
struct ScoreRecord {
  uint32_t num_ids;
  uint32_t mode;  // SPECD_RAW_LOGPROB, ...
  uint32_t num_top;
  uint32_t num_chosen;
};

// The request of kSetCoins. num_records times CoinRecord follow it; there are no results.
struct CoinsRecord {
  uint64_t sequence;
};
struct CoinRecord {
  uint32_t position;
  uint32_t round_base;
  uint32_t node;
  uint32_t purpose;  // SPECD_COIN_...
  uint64_t value;
};

// The answer to one ChildrenRecord. num_children times ChildRecord follow it. The next answer
// begins after the room of kCallChildrenMax ChildRecords.
struct ChildrenAnswerRecord {
  uint64_t sequence;
  uint16_t status;   // SPECD_STATUS_...
  uint16_t refusal;  // SPECD_DETAIL_... of SPECD_STATUS_BAD_DISTRIBUTION
  uint32_t num_children;
};
struct ChildRecord {
  int32_t id;
  uint32_t count;
  float weight;
  uint32_t kind;  // SPECD_ONE_HOT, ...
  double mass;
};
inline constexpr uint32_t kChildrenAnswerBytes =
    sizeof(ChildrenAnswerRecord) + kCallChildrenMax * sizeof(ChildRecord);

// The reason of kCompletionRefused, at the beginning of the answer area. The fields are those of
// ErrorReply.
struct RefusalRecord {
  int32_t code;
  uint32_t field_bytes;
  uint32_t text_bytes;
  uint32_t reserved;
  char field[64];
  char text[2048];
};

static_assert(sizeof(ChildrenRecord) == 32 && offsetof(ChildrenRecord, first_node) == 28);
static_assert(sizeof(ScoreRecord) == 16 && sizeof(CoinsRecord) == 8 && sizeof(CoinRecord) == 24);
static_assert(sizeof(ChildrenAnswerRecord) == 16 && sizeof(ChildRecord) == 24);
static_assert(offsetof(ChildRecord, mass) == 16 && kChildrenAnswerBytes == 1552);
static_assert(sizeof(RefusalRecord) == 2128 && offsetof(RefusalRecord, text) == 80);

}  // namespace specd
