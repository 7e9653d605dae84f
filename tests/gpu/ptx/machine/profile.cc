#include "tests/gpu/ptx/machine/profile.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace specd::ptx {

namespace {

constexpr uint64_t kSectorBytes = 32;
constexpr uint64_t kSectorsPerPage = 128;
constexpr uint64_t kBankBytes = 4;
constexpr size_t kNumBanks = 32;

}  // namespace

uint64_t LaunchProfile::num_instructions() const {
  return std::accumulate(num_by_class.begin(), num_by_class.end(), uint64_t{0});
}

void Profiler::Begin(const std::string& kernel, uint32_t num_blocks, uint32_t threads_per_block) {
  launches_.push_back(
      {.kernel = kernel, .num_blocks = num_blocks, .threads_per_block = threads_per_block});
  atomics_.clear();
}

bool Profiler::NoteAccess(const WarpAccess& access) {
  if (access.is_shared) {
    NoteShared(access);
    return false;
  }
  LaunchProfile& launch = launches_.back();
  std::array<uint64_t, 2 * kLanes> sectors;
  size_t count = 0;
  for (uint32_t lanes = access.lanes; lanes != 0; lanes &= lanes - 1) {
    const uint64_t begin = access.addresses[std::countr_zero(lanes)];
    sectors[count++] = begin / kSectorBytes;
    sectors[count++] = (begin + access.size_bytes - 1) / kSectorBytes;
  }
  std::sort(sectors.begin(), sectors.begin() + count);
  const auto end = std::unique(sectors.begin(), sectors.begin() + count);
  bool is_new = false;
  for (auto sector = sectors.begin(); sector != end; ++sector) {
    ++launch.asked_sectors;
    const uint64_t place = *sector % kSectorsPerPage;
    uint64_t& bits = pages_[*sector / kSectorsPerPage][place / 64];
    if ((bits >> (place % 64) & 1) != 0) continue;
    bits |= uint64_t{1} << (place % 64);
    ++launch.needed_sectors;
    is_new = true;
  }
  launch.asked_bytes +=
      uint64_t{access.size_bytes} * static_cast<uint64_t>(std::popcount(access.lanes));
  return is_new;
}

// CUDA C++ Programming Guide, "Shared Memory": 32 banks of 4 bytes; lanes that read one word share
// it. Accesses of 8 and 16 bytes go by halves and by quarters of the warp.
void Profiler::NoteShared(const WarpAccess& access) {
  LaunchProfile& launch = launches_.back();
  ++launch.num_shared_accesses;
  const uint32_t lanes_per_turn = std::max(32u / std::max(access.size_bytes / 4, 1u), 1u);
  uint64_t num_turns = 0;
  uint64_t num_least = 0;
  for (uint32_t first = 0; first < kLanes; first += lanes_per_turn) {
    std::array<std::vector<uint64_t>, kNumBanks> words;
    bool is_used = false;
    for (uint32_t lane = first; lane < first + lanes_per_turn; ++lane) {
      if ((access.lanes >> lane & 1) == 0) continue;
      is_used = true;
      const uint64_t end = access.addresses[lane] + access.size_bytes;
      for (uint64_t word = access.addresses[lane] / kBankBytes; word * kBankBytes < end; ++word) {
        std::vector<uint64_t>& bank = words[word % kNumBanks];
        if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
      }
    }
    size_t most = 0;
    for (const auto& bank : words) most = std::max(most, bank.size());
    num_turns += most;
    num_least += is_used ? 1 : 0;
  }
  launch.num_bank_conflicts += num_turns - num_least;
}

void Profiler::NoteEnd(const ChainPoint& end) {
  LaunchProfile& launch = launches_.back();
  if (end.cycles <= launch.chain_cycles) return;
  launch.chain_cycles = end.cycles;
  launch.chain_instructions = end.instructions;
}

}  // namespace specd::ptx
