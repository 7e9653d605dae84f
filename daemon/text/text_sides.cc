#include "daemon/text/text_sides.h"

#include <fmt/format.h>

#include <algorithm>

namespace specd {

absl::Status TextSides::Hear(const SignOfLife& alive, bool* is_another) {
  const MutexLock lock(&mutex_);
  if (alive.shard.count != sides_.size()) {
    if (std::any_of(sides_.begin(), sides_.end(),
                    [this](const Side& side) { return IsAlive(side); })) {
      return absl::InvalidArgumentError(fmt::format(
          "alive: shards = {}, and detokenizers with --shard=I/{} are alive; stop them, or give "
          "all detokenizers of this daemon the same number",
          alive.shard.count, sides_.size()));
    }
    // The streams of the sides before wait for these, each with a whole grace.
    Side before;
    for (const Side& side : sides_) {
      if (side.instance != 0) before.instance = side.instance;
    }
    before.is_there = before.instance != 0;
    before.seen_ns = clock_->now_ns() - kSilenceNs;
    sides_.assign(alive.shard.count, before);
  }
  Side& side = sides_[alive.shard.index];
  *is_another = side.instance != 0 && side.instance != alive.instance;
  side = {.is_there = true, .seen_ns = clock_->now_ns(), .instance = alive.instance};
  return absl::OkStatus();
}

std::vector<TextShard> TextSides::TakeGone() {
  const MutexLock lock(&mutex_);
  std::vector<TextShard> gone;
  for (uint32_t i = 0; i < sides_.size(); ++i) {
    Side& side = sides_[i];
    if (!side.is_there || clock_->now_ns() - side.seen_ns < grace_ns_) continue;
    side.is_there = false;
    gone.push_back({.index = i, .count = static_cast<uint32_t>(sides_.size())});
  }
  return gone;
}

bool TextSides::Has(std::string_view request_id) const {
  const MutexLock lock(&mutex_);
  for (uint32_t i = 0; i < sides_.size(); ++i) {
    const TextShard shard = {.index = i, .count = static_cast<uint32_t>(sides_.size())};
    if (shard.Has(request_id)) return sides_[i].is_there;
  }
  return false;
}

bool TextSides::AreAlive() const {
  const MutexLock lock(&mutex_);
  return std::all_of(sides_.begin(), sides_.end(),
                     [this](const Side& side) { return IsAlive(side); });
}

}  // namespace specd
