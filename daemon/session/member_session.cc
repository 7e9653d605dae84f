#include "daemon/session/member_session.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "daemon/session/tensor_role.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

absl::StatusOr<std::unique_ptr<MemberSession>> MemberSession::Join(std::shared_ptr<Session> session,
                                                                   const RankClaim& claim) {
  // The member is made first. If memory runs out, no place has been taken that could not be given
  // back.
  std::unique_ptr<MemberSession> member(new MemberSession(std::move(session), claim.rank));
  if (absl::Status status = member->session_->ranks().Take(claim); !status.ok()) return status;
  member->has_place_ = true;
  return member;
}

absl::Status MemberSession::UnregisterRegion(uint32_t region) {
  for (const auto& [role, bound] : bound_) {
    if (bound != region) continue;
    return MakeError(SPECD_ERROR_STATE, "region",
                     fmt::format("region = {} has the tensor of rank {} that {} is bound to, which "
                                 "rounds write; bind other memory first, or leave",
                                 region, rank_, NameOf(role)));
  }
  return regions_.Unregister(region);
}

absl::Status MemberSession::Bind(TensorRole role, uint32_t region, const TensorSpec& spec) {
  const std::optional<SlotRole> slot = SlotRoleOf(role);
  if (!slot.has_value() || slot->replica != rank_) {
    return MakeError(SPECD_ERROR_PERMISSION, "role",
                     fmt::format("role = {} is not for rank {}, which binds its own slot outputs "
                                 "(SPECD_NEXT_TOKEN + {} and others); rank 0's engine binds all "
                                 "else",
                                 static_cast<uint32_t>(role), rank_, rank_));
  }
  absl::Status status = session_->ranks().Bind(*slot, regions_, region, spec);
  if (status.ok()) bound_[role] = region;
  return status;
}

void MemberSession::Leave() {
  if (!has_place_) return;
  has_place_ = false;
  session_->ranks().Leave(rank_);
  regions_.device().Close();
}

}  // namespace specd
