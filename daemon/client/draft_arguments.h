// CheckDraft and InputOf turn a caller's specd_draft into the record of a sequence's part of a
// round, for EngineRounds.
//
// They check what can be seen without the daemon: counts, flags, arrays that are missing, and roles
// that were never bound.
// Indices are checked where the daemon reads the record (ipc/segment/draft_record.h). Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/sequence_round.h"

namespace specd {

// The roles that the engine has bound.
struct BoundRoles {
  bool target_rows = false;
  bool draft_rows = false;
  bool masks = false;
  bool draft_tokens = false;
  bool draft_parents = false;
  // Both lists lie in one memory: a list that is bound to the other one unbinds its sister.
  std::optional<bool> next_child_on_device = std::nullopt;
  std::optional<bool> next_sibling_on_device = std::nullopt;

  void Note(int role, bool on_device);
  bool has_tree() const {
    return draft_parents ||
           (next_child_on_device.has_value() && next_sibling_on_device.has_value());
  }
};

struct DraftPlace {
  std::string_view array = "drafts";  // of the caller, for the text of an error
  uint32_t index = 0;                 // in that array
  uint32_t max_draft = 0;             // of specd_open
  BoundRoles bound;
};

absl::Status CheckDraft(const DraftPlace& place, const specd_draft& draft);

// REQUIRES: CheckDraft accepted the draft. The arrays stay the caller's.
SequenceInput InputOf(const specd_draft& draft);

}  // namespace specd
