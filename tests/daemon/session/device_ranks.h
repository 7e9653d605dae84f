// RankZero and OtherRank are ranks in processes of their own: rank 0's engine with rows in
// pretended device memory, and another rank with slot outputs there.
//
//   RankZero zero(daemon);
//   OtherRank one(0);
//   REQUIRE(one.Join(zero, 1) == SPECD_OK);
//   REQUIRE(one.Bind(one.Allocate(kind)) == SPECD_OK);
//   zero.Round(0);
//
// Not thread-safe.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/daemon/client/device_host.h"

namespace specd::test {

inline constexpr uint64_t kDeviceRankSlots = ScriptEngine::kMaxSequences;

inline int32_t ArgmaxOf(uint32_t row) {
  static const std::vector<float> rows = ScriptEngine::Rows(true);
  const auto first = rows.begin() + (row % ScriptEngine::kRows) * ScriptEngine::kVocab;
  return static_cast<int32_t>(std::max_element(first, first + ScriptEngine::kVocab) - first);
}
// The last token of a greedy round from that row on. Its drafts are the argmaxes of three rows,
// which are kept, and the fourth row decides the last token.
inline int32_t LastTokenOf(uint32_t first_row) {
  return ArgmaxOf(first_row + ScriptEngine::kMaxDraft);
}

// Rank 0: rows and its own next tokens in device memory, and one greedy sequence.
struct RankZero : DeviceEngine {
  explicit RankZero(const DeviceHost& daemon)
      : DeviceEngine(daemon.host->uri, 3'600'000), uri(daemon.host->uri), address(Allocate()) {
    ShareAll(address);
    const PeerReply opened = peer.Call({.op = PeerOp::kOpenSequence, .word = 1, .value = 1});
    REQUIRE(opened.code == SPECD_OK);
    sequence = opened.value;
    slot = opened.address;
  }
  uint64_t BoundRanks() { return peer.Call({.op = PeerOp::kGetGroup}).value; }
  void Round(uint32_t first_row) {
    const PeerReply answer =
        peer.Call({.op = PeerOp::kRound, .word = first_row, .value = sequence});
    REQUIRE(answer.code == SPECD_OK);
    REQUIRE(answer.size_bytes == 4);
    CHECK(answer.tokens[3] == LastTokenOf(first_row));
    CHECK(ReadId(address + kNextOffset + slot * sizeof(int32_t)) == LastTokenOf(first_row));
  }

  const std::string uri;
  uint64_t address = 0;
  uint64_t sequence = 0;
  uint64_t slot = 0;
};

// Another rank, in a process of its own and on a device of its own.
struct OtherRank {
  explicit OtherRank(size_t device_index = 0) : peer(device_index) {}

  int Join(RankZero& zero, uint32_t rank) {
    PeerRequest join{.op = PeerOp::kJoin, .word = rank};
    join.handle = zero.peer.Call({.op = PeerOp::kGetGroup}).handle;
    zero.uri.copy(join.path, sizeof(join.path) - 1);
    return peer.Call(join).code;
  }
  uint64_t Allocate(GpuMemoryKind kind) {
    const PeerReply made =
        peer.Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = kDeviceBytes});
    REQUIRE(made.code == kGpuOk);
    peer.Call(
        {.op = PeerOp::kFill, .address = made.address, .size_bytes = kDeviceBytes, .value = 0x5a});
    return made.address;
  }
  int Bind(uint64_t address, uint64_t num_rows = kDeviceRankSlots) {
    return peer.Call({.op = PeerOp::kBindMember, .address = address, .size_bytes = num_rows}).code;
  }
  int BindOutput(int role, uint64_t address, uint64_t num_ids) {
    return peer
        .Call({.op = PeerOp::kBindOutput,
               .address = address,
               .size_bytes = num_ids * sizeof(int32_t),
               .word = static_cast<uint64_t>(role),
               .value = kDeviceRankSlots})
        .code;
  }
  int Check() { return peer.Call({.op = PeerOp::kCheckMember}).code; }
  int Leave() { return peer.Call({.op = PeerOp::kLeave}).code; }
  uint64_t CountViolations() { return peer.Call({.op = PeerOp::kCountViolations}).value; }
  // The ids of all slots, as this process sees its own memory.
  std::vector<int32_t> Ids(uint64_t address, uint64_t count = kDeviceRankSlots) {
    std::vector<int32_t> ids;
    for (uint64_t i = 0; i < count; ++i) {
      const PeerReply read =
          peer.Call({.op = PeerOp::kRead, .address = address + i * sizeof(int32_t)});
      ids.push_back(static_cast<int32_t>(read.value));
    }
    return ids;
  }

  GpuPeer peer;
};

// Kept tokens and lengths of another rank: two slot outputs in one allocation, neither at its
// start.
class RankOutputs {
 public:
  static constexpr uint64_t kWidth = ScriptEngine::kMaxDraft + 1;

  explicit RankOutputs(OtherRank& rank, GpuMemoryKind kind = GpuMemoryKind::kVmm)
      : rank_(&rank),
        kept_(rank.Allocate(kind) + 4),
        total_(kept_ + kDeviceRankSlots * kWidth * sizeof(int32_t) + 8) {
    REQUIRE(rank.BindOutput(SPECD_KEPT_TOKENS, kept_, kDeviceRankSlots * kWidth) == SPECD_OK);
    REQUIRE(rank.BindOutput(SPECD_TOTAL_KEPT, total_, kDeviceRankSlots) == SPECD_OK);
  }
  // The words after rounds 0 .. `round` of the slot. Each round keeps its whole draft.
  void CheckRound(uint64_t slot, uint32_t round) const {
    std::vector<int32_t> tokens(kDeviceRankSlots * kWidth, kUntouched);
    for (uint32_t k = 0; k < kWidth; ++k) tokens[slot * kWidth + k] = ArgmaxOf(round + k);
    CHECK(rank_->Ids(kept_, kDeviceRankSlots * kWidth) == tokens);
    CHECK(Length(slot) == static_cast<int32_t>((round + 1) * kWidth));
  }
  int32_t Length(uint64_t slot) const {
    std::vector<int32_t> lengths = rank_->Ids(total_);
    const int32_t length = std::exchange(lengths[slot], kUntouched);
    CHECK(lengths == std::vector<int32_t>(kDeviceRankSlots, kUntouched));
    return length;
  }

 private:
  OtherRank* rank_;
  uint64_t kept_;
  uint64_t total_;
};

// The ids of all slots after specd has written `id` at one of them.
inline std::vector<int32_t> OnlyAt(uint64_t slot, int32_t id) {
  std::vector<int32_t> ids(kDeviceRankSlots, kUntouched);
  ids[slot] = id;
  return ids;
}

}  // namespace specd::test
