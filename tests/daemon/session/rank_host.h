// RankedHost gives tests a daemon with ranks that join from this process.
//
// The next tokens of the ranks lie in shared host memory. Tests check which memory is written and
// which joins are refused. One thread makes and uses the ranks.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "ipc/base/unique_fd.h"
#include "ipc/include/specd/specd.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/daemon/client/engine_host.h"

namespace specd::test {

inline constexpr uint32_t kRankSlots = 4;  // max_sequences of an EmbeddedEngine
inline constexpr int32_t kNoId = -9;       // the contents before any write

struct MemberCloser {
  void operator()(specd_member* member) const { specd_leave(member); }
};
using MemberPtr = std::unique_ptr<specd_member, MemberCloser>;

inline std::string TokenOf(specd_engine* engine) {
  specd_group group;
  REQUIRE(specd_get_group(engine, &group) == SPECD_OK);
  return group.token;
}
inline uint32_t BoundRanks(specd_engine* engine) {
  specd_group group;
  REQUIRE(specd_get_group(engine, &group) == SPECD_OK);
  return group.bound_ranks;
}

// The code of a join. *member is set if the code is SPECD_OK.
inline int Join(const std::string& uri, const std::string& token, uint32_t rank,
                MemberPtr* member) {
  specd_join_options options;
  specd_join_options_init(&options);
  options.rank = rank;
  options.timeout_ms = 60000;
  specd_member* joined = nullptr;
  const int code = specd_join(uri.c_str(), token.c_str(), &options, &joined);
  member->reset(joined);
  return code;
}

// A page of ids in a memfd.
class RankMemory {
 public:
  static constexpr uint64_t kBytes = 4096;

  explicit RankMemory(int seals = F_SEAL_SHRINK)
      : fd(memfd_create("rank", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    REQUIRE(ftruncate(fd.get(), kBytes) == 0);
    void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    REQUIRE(mapped != MAP_FAILED);
    ids_ = static_cast<int32_t*>(mapped);
    Fill();
    REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  }
  ~RankMemory() { munmap(ids_, kBytes); }
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;

  int BindTo(const MemberPtr& member, uint64_t offset_bytes = 0, uint64_t num_rows = kRankSlots) {
    return specd_member_bind_fd(member.get(), fd.get(), kBytes, offset_bytes, num_rows);
  }
  void Fill() { std::fill_n(ids_, kBytes / sizeof(int32_t), kNoId); }
  // The entries of the page that differ from kNoId, with their indices.
  std::vector<std::pair<size_t, int32_t>> Written() const {
    std::vector<std::pair<size_t, int32_t>> written;
    for (size_t i = 0; i < kBytes / sizeof(int32_t); ++i) {
      if (ids_[i] != kNoId) written.emplace_back(i, ids_[i]);
    }
    return written;
  }

  UniqueFd fd;

 private:
  int32_t* ids_ = nullptr;
};

// Lets id r + 1 win row r of the target.
inline void WriteRows(EmbeddedEngine& engine) {
  for (uint32_t row = 0; row < 4; ++row) {
    engine.SetRow(engine.target, row, {0, 0, 0, 0, 0, 0});
    engine.target[row * EmbeddedEngine::kVocab + row + 1] = 5;
  }
}

// A daemon, and the engine of rank 0 with those rows.
struct RankedHost {
  RankedHost() { WriteRows(engine); }

  EngineHost host;
  const std::string uri = host.uri;
  EmbeddedEngine engine{uri};
};

}  // namespace specd::test
