#include "tests/gpu/ptx/machine/profile.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace specd::ptx {

namespace {

constexpr uint64_t kSectorBytes = 32;
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
  row_sectors_.Clear();
}

bool SectorSet::Add(uint64_t sector) {
  const uint64_t place = sector % kSectorsPerPage;
  uint64_t& bits = pages_[sector / kSectorsPerPage][place / 64];
  const uint64_t bit = uint64_t{1} << (place % 64);
  const bool is_new = (bits & bit) == 0;
  bits |= bit;
  return is_new;
}

uint64_t Profiler::NoteAccess(const WarpAccess& access, bool is_load, uint64_t now,
                              NearCache* near) {
  if (access.shared_lanes != 0) NoteShared(access);
  LaunchProfile& launch = launches_.back();
  std::array<uint64_t, 2 * kLanes> sectors;
  size_t count = 0;
  for (uint32_t lanes = access.global_lanes; lanes != 0; lanes &= lanes - 1) {
    const uint64_t begin = access.addresses[std::countr_zero(lanes)];
    sectors[count++] = begin / kSectorBytes;
    sectors[count++] = (begin + access.size_bytes - 1) / kSectorBytes;
  }
  std::sort(sectors.begin(), sectors.begin() + count);
  const auto end = std::unique(sectors.begin(), sectors.begin() + count);
  uint64_t last = now + kNearCycles;
  for (auto sector = sectors.begin(); sector != end; ++sector) {
    ++launch.asked_sectors;
    const bool is_row = std::any_of(rows_.begin(), rows_.end(), [&](const AddressRange& rows) {
      return rows.Holds(*sector * kSectorBytes);
    });
    if (is_row) {
      ++launch.asked_row_sectors;
      launch.repeated_row_sectors += row_sectors_.Add(*sector) ? 0 : 1;
    }
    const bool is_first = sectors_.Add(*sector);
    launch.needed_sectors += is_first ? 1 : 0;
    const uint64_t* const found = near == nullptr || is_first ? nullptr : near->Find(*sector);
    const uint64_t ready = found != nullptr ? *found : now + (is_first ? kMemoryCycles : kL2Cycles);
    last = std::max(last, ready);
    // What a store leaves is there at once.
    if (near != nullptr && found == nullptr) near->Add(*sector, is_load ? ready : now);
  }
  launch.asked_bytes +=
      uint64_t{access.size_bytes} * static_cast<uint64_t>(std::popcount(access.global_lanes));
  return last;
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
      if ((access.shared_lanes >> lane & 1) == 0) continue;
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
  launch.num_shared_turns += num_turns;
  launch.num_bank_conflicts += num_turns - num_least;
}

void Profiler::NoteEnd(const ChainPoint& end, const FunctionTimes& functions) {
  LaunchProfile& launch = launches_.back();
  if (end.cycles <= launch.chain_cycles) return;
  launch.chain_cycles = end.cycles;
  launch.chain_instructions = end.instructions;
  launch.chain_functions = functions;
}

}  // namespace specd::ptx
