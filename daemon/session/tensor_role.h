// TensorRole says how rounds use a tensor of an engine, and NameOf gives its name in messages.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace specd {

// Values as SPECD_TARGET_ROWS, SPECD_DRAFT_ROWS, SPECD_GRAMMAR_MASK, SPECD_NEXT_TOKEN and
// SPECD_DRAFT_TOKENS. The next tokens of replica i have role kNextToken + i.
enum class TensorRole : uint32_t {
  kTargetRows = 1,
  kDraftRows = 2,
  kGrammarMask = 3,
  kNextToken = 4,
  kDraftTokens = 16,
};

// The replica that a role of next tokens belongs to; nothing for other roles.
std::optional<uint32_t> ReplicaOf(TensorRole role);

// The name in specd.h; "" for a value that is not a role.
std::string NameOf(TensorRole role);

}  // namespace specd
