// TensorRole says how rounds use a tensor of an engine, and NameOf gives its name in messages.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/core/slot_output.h"

namespace specd {

// Values as SPECD_TARGET_ROWS, SPECD_DRAFT_ROWS, SPECD_GRAMMAR_MASK, SPECD_DRAFT_TOKENS,
// SPECD_DRAFT_MAP, SPECD_DRAFT_PARENTS and the lists of children, and the roles of slot outputs.
// Replica i of a slot output has its role + i.
enum class TensorRole : uint32_t {
  kTargetRows = 1,
  kDraftRows = 2,
  kGrammarMask = 3,
  kNextToken = 4,
  kDraftTokens = 16,
  kDraftMap = 17,
  kDraftParents = 18,
  kDraftNextChild = 19,
  kDraftNextSibling = 20,
  kKeptTokens = 32,
  kNumKept = 40,
  kNumAccepted = 48,
  kTotalKept = 56,
  kAcceptedPath = 64,
  kPredicts = 72,
  kAcceptIndex = 80,
};

// A role of a slot output.
struct SlotRole {
  SlotField field = SlotField::kNextToken;
  uint32_t replica = 0;
};
// Nothing for other roles.
std::optional<SlotRole> SlotRoleOf(TensorRole role);
TensorRole RoleOf(const SlotRole& slot_role);

// The name in specd.h; "" for a value that is not a role.
std::string NameOf(TensorRole role);

}  // namespace specd
