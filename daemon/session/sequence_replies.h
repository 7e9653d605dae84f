// The functions here put what an opening or a fork has made into replies, for ControlService.
//
// Pure functions; safe from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "ipc/control/control.h"
#include "speculative/verifier.h"

namespace specd {

SequenceReply ReplyOf(std::span<const SequenceInfo> infos);

// The reply to several openings. `opening_of` has the opening of each sequence.
SequencesReply ReplyOf(std::span<const SequenceInfo> infos, std::span<const uint32_t> opening_of);

// One of several openings was refused, and nothing was opened.
SequencesReply RefusalOf(uint32_t opening, const absl::Status& status);

}  // namespace specd
