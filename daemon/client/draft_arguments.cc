#include "daemon/client/draft_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "ipc/base/error.h"

namespace specd {
namespace {

// The field of a draft, as the caller wrote it.
std::string NameOf(const DraftPlace& place, std::string_view field) {
  return fmt::format("{}[{}].{}", place.array, place.index, field);
}

absl::Status Unbound(const DraftPlace& place, std::string_view field, std::string_view role,
                     std::string_view or_else) {
  return MakeError(SPECD_ERROR_STATE, field,
                   fmt::format("{}[{}] needs {}, which is not bound; call specd_bind with that "
                               "role first, or {}",
                               place.array, place.index, role, or_else));
}

bool HasMask(const specd_draft& draft) {
  if (draft.mask_rows == nullptr) return false;
  const int32_t* const end = draft.mask_rows + draft.num_nodes + 1;
  return std::any_of(draft.mask_rows, end, [](int32_t row) { return row != -1; });
}

bool HasSampled(const specd_draft& draft) {
  if (draft.kinds == nullptr) return false;
  const uint8_t* const end = draft.kinds + draft.num_nodes;
  return std::any_of(draft.kinds, end, [](uint8_t kind) { return kind != SPECD_ONE_HOT; });
}

// REQUIRES: the arrays are there.
absl::Status CheckBound(const DraftPlace& place, const specd_draft& draft) {
  if (draft.target_rows != nullptr && !place.bound.target_rows) {
    return Unbound(place, "target_rows", "SPECD_TARGET_ROWS",
                   "give target_argmax in place of target_rows");
  }
  if (HasSampled(draft) && !place.bound.draft_rows) {
    return Unbound(place, "draft_rows", "SPECD_DRAFT_ROWS", "give the tokens as SPECD_ONE_HOT");
  }
  if (HasMask(draft) && !place.bound.masks) {
    return Unbound(place, "mask_rows", "SPECD_GRAMMAR_MASK", "give no mask_rows");
  }
  if ((draft.flags & SPECD_DRAFTS_BY_SLOT) != 0 && !place.bound.draft_tokens) {
    return Unbound(place, "flags", "SPECD_DRAFT_TOKENS",
                   "give the ids in tokens, without SPECD_DRAFTS_BY_SLOT");
  }
  if ((draft.flags & SPECD_PARENTS_BY_SLOT) != 0 && !place.bound.has_tree()) {
    return Unbound(place, "flags",
                   "SPECD_DRAFT_PARENTS, or SPECD_DRAFT_NEXT_CHILD and SPECD_DRAFT_NEXT_SIBLING",
                   "give the parents in parents, without SPECD_PARENTS_BY_SLOT");
  }
  return absl::OkStatus();
}

absl::Status CheckSlotParents(const DraftPlace& place, const specd_draft& draft) {
  if ((draft.flags & SPECD_PARENTS_BY_SLOT) == 0) return absl::OkStatus();
  if ((draft.flags & SPECD_DRAFTS_BY_SLOT) == 0) {
    return Invalid("flags", fmt::format("{} has SPECD_PARENTS_BY_SLOT (4) without "
                                        "SPECD_DRAFTS_BY_SLOT (2); the tokens of such a tree lie "
                                        "at the slot too",
                                        NameOf(place, "flags")));
  }
  if (draft.parents == nullptr) return absl::OkStatus();
  return Invalid("parents",
                 fmt::format("{} are given with SPECD_PARENTS_BY_SLOT, which takes them from the "
                             "slot; set them to NULL, or leave the flag out",
                             NameOf(place, "parents")));
}

}  // namespace

void BoundRoles::Note(int role, bool on_device) {
  target_rows = target_rows || role == SPECD_TARGET_ROWS;
  draft_rows = (draft_rows && role != SPECD_DRAFT_MAP) || role == SPECD_DRAFT_ROWS;
  masks = masks || role == SPECD_GRAMMAR_MASK;
  draft_tokens = draft_tokens || role == SPECD_DRAFT_TOKENS;
  draft_parents = draft_parents || role == SPECD_DRAFT_PARENTS;
  if (role != SPECD_DRAFT_NEXT_CHILD && role != SPECD_DRAFT_NEXT_SIBLING) return;
  const bool is_child = role == SPECD_DRAFT_NEXT_CHILD;
  (is_child ? next_child_on_device : next_sibling_on_device) = on_device;
  std::optional<bool>& sister = is_child ? next_sibling_on_device : next_child_on_device;
  if (sister.has_value() && *sister != on_device) sister.reset();
}

absl::Status CheckDraft(const DraftPlace& place, const specd_draft& draft) {
  if (draft.num_nodes > place.max_draft) {
    return Invalid("num_nodes",
                   fmt::format("{} = {} is outside 0 .. {} (max_draft of specd_open)",
                               NameOf(place, "num_nodes"), draft.num_nodes, place.max_draft));
  }
  if (draft.reserved != 0) {
    return Invalid("reserved", fmt::format("{} must be 0", NameOf(place, "reserved")));
  }
  constexpr uint32_t kFlags = SPECD_DISCARD | SPECD_DRAFTS_BY_SLOT | SPECD_PARENTS_BY_SLOT;
  if ((draft.flags & ~kFlags) != 0) {
    return Invalid("flags", fmt::format("{} = {} has more than SPECD_DISCARD (1), "
                                        "SPECD_DRAFTS_BY_SLOT (2) and SPECD_PARENTS_BY_SLOT (4)",
                                        NameOf(place, "flags"), draft.flags));
  }
  if ((draft.flags & SPECD_DISCARD) != 0) return absl::OkStatus();
  if ((draft.target_rows == nullptr) == (draft.target_argmax == nullptr)) {
    return Invalid(
        "target_rows",
        fmt::format("{}; num_nodes + 1 rows are needed, or as many argmax ids in their place",
                    NameOf(place, draft.target_rows == nullptr
                                      ? "target_rows is NULL"
                                      : "target_rows and target_argmax are both given")));
  }
  if ((draft.draft_weights == nullptr) != (draft.draft_masses == nullptr)) {
    return Invalid("draft_weights",
                   fmt::format("{} and draft_masses come together; one of them is NULL",
                               NameOf(place, "draft_weights")));
  }
  const bool by_slot = (draft.flags & SPECD_DRAFTS_BY_SLOT) != 0;
  if (by_slot && draft.tokens != nullptr) {
    return Invalid("tokens",
                   fmt::format("{} are given with SPECD_DRAFTS_BY_SLOT, which takes them from "
                               "SPECD_DRAFT_TOKENS; set them to NULL, or leave the flag out",
                               NameOf(place, "tokens")));
  }
  if (absl::Status status = CheckSlotParents(place, draft); !status.ok()) return status;
  if (draft.num_nodes > 0 && draft.tokens == nullptr && !by_slot) {
    return Invalid("tokens", fmt::format("{} is NULL but num_nodes = {}", NameOf(place, "tokens"),
                                         draft.num_nodes));
  }
  for (uint32_t i = 0; draft.kinds != nullptr && i < draft.num_nodes; ++i) {
    if (draft.kinds[i] > SPECD_SAMPLED_REST) {
      return Invalid("kinds",
                     fmt::format("{}[{}] = {} is neither SPECD_ONE_HOT (0), SPECD_SAMPLED (1) nor "
                                 "SPECD_SAMPLED_REST (2)",
                                 NameOf(place, "kinds"), i, draft.kinds[i]));
    }
    if (draft.kinds[i] != SPECD_ONE_HOT && draft.draft_rows == nullptr) {
      return Invalid("draft_rows",
                     fmt::format("{}[{}] was sampled but draft_rows is NULL; name the row it was "
                                 "drawn from",
                                 NameOf(place, "kinds"), i));
    }
  }
  return CheckBound(place, draft);
}

SequenceInput InputOf(const specd_draft& draft) {
  SequenceInput input;
  input.sequence = draft.sequence;
  input.discard = (draft.flags & SPECD_DISCARD) != 0;
  input.drafts_by_slot = (draft.flags & SPECD_DRAFTS_BY_SLOT) != 0;
  input.parents_by_slot = (draft.flags & SPECD_PARENTS_BY_SLOT) != 0;
  input.draft = {.num_nodes = static_cast<int32_t>(draft.num_nodes),
                 .tokens = draft.tokens,
                 .parents = draft.parents,
                 .kinds = reinterpret_cast<const DraftKind*>(draft.kinds),
                 .target_rows = draft.target_rows,
                 .draft_rows = draft.draft_rows,
                 .draft_weights = draft.draft_weights,
                 .draft_masses = draft.draft_masses,
                 .target_argmax = draft.target_argmax};
  input.mask_rows = draft.mask_rows;
  return input;
}

}  // namespace specd
