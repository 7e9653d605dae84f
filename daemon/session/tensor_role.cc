#include "daemon/session/tensor_role.h"

#include <fmt/format.h>

#include "ipc/memory/region.h"
#include "speculative/round/row_bindings.h"

namespace specd {
namespace {

// By SlotField: the roles of the first replicas.
constexpr TensorRole kFirstReplicas[kNumSlotFields] = {
    TensorRole::kNextToken,   TensorRole::kKeptTokens, TensorRole::kNumKept,
    TensorRole::kNumAccepted, TensorRole::kTotalKept,  TensorRole::kAcceptedPath,
    TensorRole::kPredicts,    TensorRole::kAcceptIndex};

}  // namespace

std::optional<SlotRole> SlotRoleOf(TensorRole role) {
  for (uint32_t field = 0; field < kNumSlotFields; ++field) {
    const uint32_t replica =
        static_cast<uint32_t>(role) - static_cast<uint32_t>(kFirstReplicas[field]);
    if (replica < kReplicasMax) return SlotRole{static_cast<SlotField>(field), replica};
  }
  return std::nullopt;
}

TensorRole RoleOf(const SlotRole& slot_role) {
  const TensorRole first = kFirstReplicas[static_cast<size_t>(slot_role.field)];
  return static_cast<TensorRole>(static_cast<uint32_t>(first) + slot_role.replica);
}

std::string NameOf(TensorRole role) {
  if (const std::optional<SlotRole> slot = SlotRoleOf(role); slot.has_value()) {
    const std::string_view name = NameOf(slot->field);
    return slot->replica == 0 ? std::string(name) : fmt::format("{} + {}", name, slot->replica);
  }
  switch (role) {
    case TensorRole::kTargetRows:
      return "SPECD_TARGET_ROWS";
    case TensorRole::kDraftRows:
      return "SPECD_DRAFT_ROWS";
    case TensorRole::kGrammarMask:
      return "SPECD_GRAMMAR_MASK";
    case TensorRole::kDraftTokens:
      return "SPECD_DRAFT_TOKENS";
    case TensorRole::kDraftMap:
      return "SPECD_DRAFT_MAP";
    case TensorRole::kDraftParents:
      return "SPECD_DRAFT_PARENTS";
    case TensorRole::kDraftNextChild:
      return "SPECD_DRAFT_NEXT_CHILD";
    case TensorRole::kDraftNextSibling:
      return "SPECD_DRAFT_NEXT_SIBLING";
    default:
      return {};
  }
}

}  // namespace specd
