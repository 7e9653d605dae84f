// This file ties the enumerations of a round to the constants of the C header. The compiler refuses
// a value that one side lacks, or that differs.
//
// Each list pairs all values of both sides. A switch without a default must name every value of its
// enumeration (-Wswitch), so a value that is missing from a list is an error.
#include "ipc/segment/wire_values.h"

#include <cstdint>

#include "ipc/include/specd/specd.h"
#include "kernels/core/sequence_round.h"

namespace specd {
namespace {

#define SPECD_REFUSALS(PAIR)                                 \
  PAIR(Refusal::kNone, SPECD_DETAIL_NONE)                    \
  PAIR(Refusal::kSequence, SPECD_DETAIL_SEQUENCE)            \
  PAIR(Refusal::kCount, SPECD_DETAIL_COUNT)                  \
  PAIR(Refusal::kKind, SPECD_DETAIL_KIND)                    \
  PAIR(Refusal::kTargetRow, SPECD_DETAIL_TARGET_ROW)         \
  PAIR(Refusal::kDraftRow, SPECD_DETAIL_DRAFT_ROW)           \
  PAIR(Refusal::kFlags, SPECD_DETAIL_FLAGS)                  \
  PAIR(Refusal::kMaskRow, SPECD_DETAIL_MASK_ROW)             \
  PAIR(Refusal::kArgmax, SPECD_DETAIL_ARGMAX)                \
  PAIR(Refusal::kTwice, SPECD_DETAIL_TWICE)                  \
  PAIR(Refusal::kDraftTokens, SPECD_DETAIL_DRAFT_TOKENS)     \
  PAIR(Refusal::kHostTokens, SPECD_DETAIL_HOST_TOKENS)       \
  PAIR(Refusal::kNoRoom, SPECD_DETAIL_NO_ROOM)               \
  PAIR(Refusal::kParents, SPECD_DETAIL_PARENTS)              \
  PAIR(Refusal::kPath, SPECD_DETAIL_PATH)                    \
  PAIR(Refusal::kTree, SPECD_DETAIL_TREE)                    \
  PAIR(Refusal::kFinalMask, SPECD_DETAIL_FINAL_MASK)         \
  PAIR(Refusal::kArgmaxSampled, SPECD_DETAIL_ARGMAX_SAMPLED) \
  PAIR(Refusal::kArgmaxEdited, SPECD_DETAIL_ARGMAX_EDITED)   \
  PAIR(Refusal::kArgmaxScored, SPECD_DETAIL_ARGMAX_SCORED)   \
  PAIR(Refusal::kTwoMasks, SPECD_DETAIL_TWO_MASKS)           \
  PAIR(Refusal::kStagedGrammar, SPECD_DETAIL_STAGED_GRAMMAR) \
  PAIR(Refusal::kGrammarWays, SPECD_DETAIL_GRAMMAR_WAYS)     \
  PAIR(Refusal::kGrammarMemory, SPECD_DETAIL_GRAMMAR_MEMORY) \
  PAIR(Refusal::kGrammarWork, SPECD_DETAIL_GRAMMAR_WORK)     \
  PAIR(Refusal::kTargetUnbound, SPECD_DETAIL_TARGET_UNBOUND) \
  PAIR(Refusal::kDraftUnbound, SPECD_DETAIL_DRAFT_UNBOUND)   \
  PAIR(Refusal::kMaskUnbound, SPECD_DETAIL_MASK_UNBOUND)     \
  PAIR(Refusal::kNoDraftRow, SPECD_DETAIL_NO_DRAFT_ROW)      \
  PAIR(Refusal::kTargetNan, SPECD_DETAIL_TARGET_NAN)         \
  PAIR(Refusal::kTargetNoMass, SPECD_DETAIL_TARGET_NO_MASS)  \
  PAIR(Refusal::kTargetSum, SPECD_DETAIL_TARGET_SUM)         \
  PAIR(Refusal::kDraftNan, SPECD_DETAIL_DRAFT_NAN)           \
  PAIR(Refusal::kDraftNoMass, SPECD_DETAIL_DRAFT_NO_MASS)    \
  PAIR(Refusal::kDraftSum, SPECD_DETAIL_DRAFT_SUM)           \
  PAIR(Refusal::kDraftShare, SPECD_DETAIL_DRAFT_SHARE)       \
  PAIR(Refusal::kRowChanged, SPECD_DETAIL_ROW_CHANGED)       \
  PAIR(Refusal::kBadToken, SPECD_DETAIL_BAD_TOKEN)           \
  PAIR(Refusal::kSiblingRows, SPECD_DETAIL_SIBLING_ROWS)     \
  PAIR(Refusal::kSiblingKinds, SPECD_DETAIL_SIBLING_KINDS)   \
  PAIR(Refusal::kSiblingTokens, SPECD_DETAIL_SIBLING_TOKENS) \
  PAIR(Refusal::kSlotParents, SPECD_DETAIL_SLOT_PARENTS)

#define SPECD_STATUSES(PAIR)                                         \
  PAIR(RoundStatus::kOk, SPECD_STATUS_OK)                            \
  PAIR(RoundStatus::kFinished, SPECD_STATUS_FINISHED)                \
  PAIR(RoundStatus::kBadDistribution, SPECD_STATUS_BAD_DISTRIBUTION) \
  PAIR(RoundStatus::kUnknownSequence, SPECD_STATUS_UNKNOWN_SEQUENCE) \
  PAIR(RoundStatus::kInvalid, SPECD_STATUS_INVALID)                  \
  PAIR(RoundStatus::kDeviceError, SPECD_STATUS_DEVICE_ERROR)         \
  PAIR(RoundStatus::kAborted, SPECD_STATUS_ABORTED)                  \
  PAIR(RoundStatus::kNotReady, SPECD_STATUS_NOT_READY)

#define SPECD_FINISHES(PAIR)                       \
  PAIR(FinishReason::kNone, SPECD_FINISH_NONE)     \
  PAIR(FinishReason::kStop, SPECD_FINISH_STOP)     \
  PAIR(FinishReason::kLength, SPECD_FINISH_LENGTH) \
  PAIR(FinishReason::kAbort, SPECD_FINISH_ABORT)   \
  PAIR(FinishReason::kError, SPECD_FINISH_ERROR)

#define SPECD_SAME_VALUE(cpp, c) static_assert(static_cast<uint32_t>(cpp) == c, #cpp " is " #c);
#define SPECD_CPP_CASE(cpp, c) case cpp:
#define SPECD_C_CASE(cpp, c) case c:
#define SPECD_ONE(cpp, c) +1

#define SPECD_TIE(LIST, Cpp, C)                    \
  LIST(SPECD_SAME_VALUE)                           \
  [[maybe_unused]] void NameEvery(Cpp value) {     \
    switch (value) { LIST(SPECD_CPP_CASE) break; } \
  }                                                \
  [[maybe_unused]] void NameEvery(C value) {       \
    switch (value) { LIST(SPECD_C_CASE) break; }   \
  }

SPECD_TIE(SPECD_REFUSALS, Refusal, decltype(SPECD_DETAIL_NONE))
SPECD_TIE(SPECD_STATUSES, RoundStatus, decltype(SPECD_STATUS_OK))
SPECD_TIE(SPECD_FINISHES, FinishReason, decltype(SPECD_FINISH_NONE))

// Two entries of one value would be two equal cases, so the values are 0 .. kRefusalMax.
static_assert(SPECD_REFUSALS(SPECD_ONE) == kRefusalMax + 1);
static_assert(static_cast<uint32_t>(Refusal::kSlotParents) == kRefusalMax);
static_assert(kNoRow == SPECD_NO_ROW);

#define SPECD_NAME(cpp, c) \
  case cpp:                \
    return #c;

}  // namespace

const char* DetailName(Refusal refusal) {
  switch (refusal) { SPECD_REFUSALS(SPECD_NAME) }
  return "";
}

}  // namespace specd
