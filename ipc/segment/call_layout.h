// The records of calls in the session segment, byte by byte: what an engine asks for besides
// rounds, and the answers that are no ResultRecord.
//
// The rules of ipc/segment/layout.h hold here as well; ipc/segment/calls.h writes and reads these.
// This header only describes; it synchronizes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace specd {

inline constexpr uint32_t kCallCoinsMax = 4096;
inline constexpr uint32_t kCallChildrenMax = 64;
inline constexpr uint32_t kCallChosenMax = 64;

// One request of kSampleDraft. It is followed by int32 prefix[max_draft] and zeros up to
// call_record_bytes.
struct ChildrenRecord {
  uint64_t sequence;
  uint32_t row;
  int32_t mask_row;
  uint32_t num_prefix;
  uint32_t sampling;  // SPECD_WITH_REPLACEMENT, ...
  uint32_t num_children;
  uint32_t first_node;
};

// One request of kScore, answered by a ResultRecord: its tokens are the ids that were scored. It is
// followed by
//   uint32 rows[max_output]
//   int32  ids[max_output]
//   int32  chosen[kCallChosenMax]
// and zeros up to call_record_bytes.
struct ScoreRecord {
  uint32_t num_ids;
  uint32_t mode;  // SPECD_RAW_LOGPROB, ...
  uint32_t num_top;
  uint32_t num_chosen;
};

// The request of kSetCoins, followed by num_records times CoinRecord; there are no results.
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

// The answer to one ChildrenRecord, followed by num_children times ChildRecord; the next answer
// begins kCallChildrenMax of them later.
struct ChildrenAnswerRecord {
  uint64_t sequence;
  uint32_t status;  // SPECD_STATUS_...
  uint32_t num_children;
};
struct ChildRecord {
  int32_t id;
  uint32_t count;
  float weight;
  uint32_t reserved;
  double mass;
};
inline constexpr uint32_t kChildrenAnswerBytes =
    sizeof(ChildrenAnswerRecord) + kCallChildrenMax * sizeof(ChildRecord);

// With kCompletionRefused, at the beginning of the answer area: as ErrorReply.
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
