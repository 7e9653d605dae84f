#include "daemon/session/tensor_role.h"

#include <fmt/format.h>

#include "speculative/verifier.h"

namespace specd {

std::optional<uint32_t> ReplicaOf(TensorRole role) {
  const uint32_t replica =
      static_cast<uint32_t>(role) - static_cast<uint32_t>(TensorRole::kNextToken);
  return replica < kNextTokensMax ? std::optional<uint32_t>(replica) : std::nullopt;
}

std::string NameOf(TensorRole role) {
  if (const std::optional<uint32_t> replica = ReplicaOf(role); replica.has_value()) {
    return *replica == 0 ? "SPECD_NEXT_TOKEN" : fmt::format("SPECD_NEXT_TOKEN + {}", *replica);
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
    case TensorRole::kNextToken:
      break;
  }
  return {};
}

}  // namespace specd
