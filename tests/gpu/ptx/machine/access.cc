#include "tests/gpu/ptx/machine/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu/ptx/machine/device_memory.h"

namespace specd::ptx {

namespace {

bool Refuse(Warp& warp, const Frame& frame, const Instruction& instruction, uint32_t lane,
            uint64_t address, const std::string& what) {
  warp.Fail(frame, instruction, 1u << lane,
            fmt::format("{} bytes at {:#x}: {}", instruction.access.size_bytes(), address, what));
  return false;
}

uint64_t AddressOf(const Frame& frame, const Instruction& instruction, uint32_t lane) {
  const MemoryAccess& access = instruction.access;
  const int32_t base = instruction.sources[0];
  uint64_t address = static_cast<uint64_t>(instruction.immediate);
  if (access.address_bytes == 8) address += frame.Source<uint64_t>(base)[lane];
  if (access.address_bytes == 4) address += frame.Source<uint32_t>(base)[lane];
  return address;
}

void TakeShared(SharedMemory* shared, uint64_t offset, Place* place) {
  place->bytes = shared->begin() + offset;
  place->address = shared->address() + offset;
  place->cells = shared->CellOf(offset);
  place->marks = shared->MarkOf(offset);
}

bool TakeLocal(Warp& warp, uint32_t lane, uint64_t offset, uint32_t size_bytes, Place* place) {
  if (offset >= kLocalBytes || size_bytes > kLocalBytes - offset) return false;
  place->bytes = warp.memory().LocalOf(lane) + offset;
  place->address = reinterpret_cast<uint64_t>(place->bytes);
  place->marks = warp.memory().MarksOf(lane) + offset;
  return true;
}

bool TakeSharedOffset(Warp& warp, uint64_t offset, uint32_t size_bytes, Place* place) {
  Block* block = &warp.block();
  if (offset >> kRankShift != 0) {
    const auto& blocks = block->cluster->blocks;
    const uint64_t rank = (offset >> kRankShift) - 1;
    if (rank >= blocks.size()) return false;
    block = blocks[rank].get();
    offset &= (uint64_t{1} << kRankShift) - 1;
  }
  if (offset >= block->shared.size_bytes() || size_bytes > block->shared.size_bytes() - offset) {
    return false;
  }
  TakeShared(&block->shared, offset, place);
  return true;
}

// Global memory comes first: most accesses go there.
bool TakeGeneric(Warp& warp, const Instruction& instruction, uint32_t lane, uint64_t address,
                 Place* place) {
  const uint32_t size_bytes = instruction.access.size_bytes();
  const MemoryRange* range = instruction.last_range;
  if (range == nullptr || !range->Holds(address, size_bytes)) {
    const auto local = reinterpret_cast<uint64_t>(warp.memory().LocalOf(lane));
    if (address >= local && TakeLocal(warp, lane, address - local, size_bytes, place)) return true;
    for (const auto& block : warp.block().cluster->blocks) {
      if (!block->shared.Holds(address, size_bytes)) continue;
      TakeShared(&block->shared, address - block->shared.address(), place);
      return true;
    }
    range = FindDeviceMemory(address, size_bytes);
    if (range == nullptr) return false;
    instruction.last_range = range;
  }
  place->bytes = reinterpret_cast<std::byte*>(address);
  place->address = address;
  place->cells = range->CellOf(address);
  return true;
}

// The bytes of a cell from offset `begin` on, of an access of so many bytes.
uint8_t BytesOfCell(uint64_t begin, uint64_t size_bytes) {
  const uint64_t end = std::min<uint64_t>(begin + size_bytes, kCellBytes);
  return static_cast<uint8_t>((1u << end) - (1u << begin));
}

// The part of an access that lies in one cell.
struct CellPart {
  ShadowCell* cell;
  uint8_t bytes;    // of the cell
  uint32_t offset;  // in the access
  uint32_t size_bytes;
};

// Calls function(part) for the cells of an access until it returns false.
template <typename PartFunction>
bool ForEachCell(const Place& place, uint32_t size_bytes, const PartFunction& function) {
  const uint64_t begin = place.address % kCellBytes;
  if (size_bytes <= kCellBytes) {
    return function(CellPart{place.cells, BytesOfCell(begin, size_bytes), 0, size_bytes});
  }
  for (uint32_t offset = 0; offset < size_bytes; offset += kCellBytes) {
    if (!function(CellPart{place.cells + offset / kCellBytes, 15, offset, kCellBytes})) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool FindPlace(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lane,
               Place* place) {
  const MemoryAccess& access = instruction.access;
  const uint32_t size_bytes = access.size_bytes();
  const uint64_t address = AddressOf(frame, instruction, lane);
  if ((address & (size_bytes - 1)) != 0) {
    return Refuse(warp, frame, instruction, lane, address, "the address is not aligned");
  }
  switch (access.space) {
    // ld and st of these are in own_memory_opcodes.h; other instructions have no such form.
    case Space::kParam:
    case Space::kLocal:
      return Refuse(warp, frame, instruction, lane, address, "memory of the lane's own");
    case Space::kShared:
      if (TakeSharedOffset(warp, address, size_bytes, place)) return true;
      return Refuse(warp, frame, instruction, lane, address, "outside shared memory");
    case Space::kGeneric:
    case Space::kGlobal:
      if (!TakeGeneric(warp, instruction, lane, address, place)) {
        return Refuse(warp, frame, instruction, lane, address,
                      fmt::format("no memory of the device: {}", DescribeAddress(address)));
      }
      // Memory of a block or a lane has marks.
      if (!warp.is_early || place->marks != nullptr) return true;
      return Refuse(warp, frame, instruction, lane, address,
                    "the launch before may still use it: griddepcontrol.wait comes first");
  }
  return false;
}

bool Races(Warp& warp, const Frame& frame, const Instruction& instruction, uint32_t lane,
           const Place& place, bool is_write, const std::byte* after) {
  if (place.cells == nullptr) return false;
  const RaceChecker& races = warp.launch().races;
  const Scope scope = instruction.access.scope;
  return !ForEachCell(place, instruction.access.size_bytes(), [&](const CellPart& part) {
    if (!races.IsSuspect(*part.cell, is_write)) return true;
    const std::optional<Race> race =
        races.Look(warp.clock(), lane, *part.cell, part.bytes, scope, is_write);
    if (!race.has_value()) return true;
    const Moment other = race->other;
    if (after != nullptr && other.warp() == warp.clock().warp &&
        std::memcmp(place.bytes + part.offset, after + part.offset, part.size_bytes) == 0) {
      return true;
    }
    const uint32_t warps = warp.launch().warps_per_block();
    return Refuse(warp, frame, instruction, lane, place.address,
                  fmt::format("a race: lane {} of warp {} of block {} has {} it", other.lane(),
                              other.warp() % warps, other.warp() / warps,
                              race->other_wrote ? "written" : "read"));
  });
}

void NoteAccess(Warp& warp, const Instruction& instruction, uint32_t lane, const Place& place,
                bool is_write) {
  if (place.cells == nullptr) return;
  const RaceChecker& races = warp.launch().races;
  const Scope scope = instruction.access.scope;
  ForEachCell(place, instruction.access.size_bytes(), [&](const CellPart& part) {
    races.Note(warp.clock(), lane, part.cell, part.bytes, scope, is_write);
    return true;
  });
}

}  // namespace specd::ptx
