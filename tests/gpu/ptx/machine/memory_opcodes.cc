#include "tests/gpu/ptx/machine/memory_opcodes.h"

#include <cstring>
#include <functional>
#include <string_view>

#include "tests/gpu/ptx/machine/access.h"
#include "tests/gpu/ptx/machine/combining.h"
#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

namespace {

template <typename Value>
Value ReadAs(const std::byte* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// A register that is wider than the element gets its sign, or zeros.
uint64_t ReadElement(const std::byte* bytes, const MemoryAccess& access) {
  const auto extend = [&](auto value, auto with_sign) {
    return access.is_signed ? static_cast<uint64_t>(int64_t{with_sign}) : uint64_t{value};
  };
  switch (access.element_bytes) {
    case 1:
      return extend(ReadAs<uint8_t>(bytes), ReadAs<int8_t>(bytes));
    case 2:
      return extend(ReadAs<uint16_t>(bytes), ReadAs<int16_t>(bytes));
    case 4:
      return extend(ReadAs<uint32_t>(bytes), ReadAs<int32_t>(bytes));
    default:
      return ReadAs<uint64_t>(bytes);
  }
}

void LoadLane(Frame& frame, const Instruction& instruction, uint32_t lane, const std::byte* bytes) {
  const MemoryAccess& access = instruction.access;
  for (int i = 0; i < access.num_elements; ++i) {
    if (access.values[i] == kNoOperand) continue;
    const uint64_t value = ReadElement(bytes + i * access.element_bytes, access);
    if (access.register_bytes == 8) {
      frame.At<uint64_t>(access.values[i])[lane] = value;
    } else {
      const uint32_t mask = access.register_bytes == 2 ? 0xFFFFu : 0xFFFFFFFFu;
      frame.At<uint32_t>(access.values[i])[lane] = static_cast<uint32_t>(value) & mask;
    }
  }
}

void StoreLane(const Frame& frame, const Instruction& instruction, uint32_t lane,
               std::byte* bytes) {
  const MemoryAccess& access = instruction.access;
  for (int i = 0; i < access.num_elements; ++i) {
    // The machine is little-endian, as PTX is.
    const void* const value =
        access.register_bytes == 8
            ? static_cast<const void*>(frame.Source<uint64_t>(access.values[i]) + lane)
            : static_cast<const void*>(frame.Source<uint32_t>(access.values[i]) + lane);
    std::memcpy(bytes + i * access.element_bytes, value, access.element_bytes);
  }
}

// Whether every byte that an access computes with was written, and any byte of it at all.
bool IsWritten(const uint8_t* marks, const MemoryAccess& access) {
  if (marks == nullptr) return true;
  bool any = false;
  for (uint32_t i = 0; i < access.size_bytes(); ++i) {
    any |= marks[i] != 0;
    if (marks[i] == 0 && (access.copied >> (i / access.element_bytes) & 1) == 0) return false;
  }
  return any;
}

// The order of a read with what it reads. Only strong accesses order anything.
void OrderRead(Warp& warp, const Instruction& instruction, uint32_t lane, const Place& place) {
  if (instruction.access.order == Order::kWeak) return;
  warp.launch().races.Acquire(&warp.clock(), lane, place.address, instruction.access);
  warp.EndTurnSoon();
}

// Tells the warp's pipeline what an access touches, if the launch is profiled.
class AccessNote {
 public:
  AccessNote(Warp& warp, const Instruction& instruction) : warp_(warp), instruction_(instruction) {
    access_.size_bytes = instruction.access.size_bytes();
  }

  void Add(uint32_t lane, const Place& place) {
    if (warp_.pipeline() == nullptr) return;
    access_.addresses[lane] = place.address;
    uint32_t& lanes = place.cells == nullptr   ? access_.local_lanes
                      : place.marks != nullptr ? access_.shared_lanes
                                               : access_.global_lanes;
    lanes |= 1u << lane;
  }
  void End(bool is_atomic) {
    if (warp_.pipeline() == nullptr) return;
    if (is_atomic) {
      warp_.pipeline()->Atomic(instruction_, access_);
    } else {
      warp_.pipeline()->Access(instruction_, access_);
    }
  }

 private:
  Warp& warp_;
  const Instruction& instruction_;
  WarpAccess access_;
};

// Places of a write by several lanes. The lanes of one instruction do not race with each other: one
// of them is last.
class Writes {
 public:
  Writes(Warp& warp, Frame& frame, const Instruction& instruction)
      : warp_(warp), frame_(frame), instruction_(instruction), note_(warp, instruction) {}

  // False if a lane may not write there. A store knows its values; an atomic operation does not.
  bool Find(uint32_t lanes, bool is_store) {
    bool may_write = true;
    ForEachLane(lanes, [&](uint32_t lane) {
      std::byte after[kMostBytes] = {};
      if (is_store) StoreLane(frame_, instruction_, lane, after);
      may_write = may_write && FindPlace(warp_, frame_, instruction_, lane, &places_[lane]) &&
                  !Races(warp_, frame_, instruction_, lane, places_[lane], true,
                         is_store ? after : nullptr);
    });
    return may_write;
  }
  const Place& At(uint32_t lane) const { return places_[lane]; }
  void Note(uint32_t lane) {
    const Place& place = places_[lane];
    NoteAccess(warp_, instruction_, lane, place, true);
    if (place.marks != nullptr) std::memset(place.marks, 1, instruction_.access.size_bytes());
    note_.Add(lane, place);
  }
  void End(bool is_atomic) { note_.End(is_atomic); }

 private:
  static constexpr size_t kMostBytes = 4 * sizeof(uint64_t);  // of an access

  Warp& warp_;
  Frame& frame_;
  const Instruction& instruction_;
  AccessNote note_;
  Place places_[kLanes];
};

// PTX ISA, "atom" and "red": read, compute and write in one step. "red" has no result.
template <typename Value, typename Function>
void Atomic(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  Writes writes(warp, frame, instruction);
  if (!writes.Find(lanes, false)) return;
  ForEachLane(lanes, [&](uint32_t lane) {
    const Place& place = writes.At(lane);
    if (!IsWritten(place.marks, instruction.access)) {
      warp.Fail(frame, instruction, 1u << lane, "an atomic operation on memory never written");
      return;
    }
    OrderRead(warp, instruction, lane, place);
    const auto before = ReadAs<Value>(place.bytes);
    const Value after = Function{}(before, frame.Source<Value>(instruction.sources[1])[lane]);
    std::memcpy(place.bytes, &after, sizeof(after));
    if (instruction.result != kNoOperand) frame.At<Value>(instruction.result)[lane] = before;
    writes.Note(lane);
    warp.launch().races.Release(&warp.clock(), lane, place.address, instruction.access, true);
  });
  writes.End(true);
}

template <typename Function>
Handler OfSize(std::string_view type) {
  return type.ends_with("64") ? &Atomic<uint64_t, Function> : &Atomic<uint32_t, Function>;
}
template <typename Function>
Handler OfType(std::string_view type) {
  if (type == "s32") return &Atomic<int32_t, Function>;
  if (type == "u32") return &Atomic<uint32_t, Function>;
  if (type == "s64") return &Atomic<int64_t, Function>;
  return type == "u64" ? &Atomic<uint64_t, Function> : nullptr;
}

}  // namespace

void Load(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  bool goes_on = true;
  AccessNote note(warp, instruction);
  ForEachLane(lanes, [&](uint32_t lane) {
    Place place;
    goes_on = goes_on && FindPlace(warp, frame, instruction, lane, &place);
    if (!goes_on) return;
    if (!IsWritten(place.marks, instruction.access)) {
      warp.Fail(frame, instruction, 1u << lane,
                "a read of bytes of shared or local memory that were never written");
      goes_on = false;
      return;
    }
    OrderRead(warp, instruction, lane, place);
    goes_on = !Races(warp, frame, instruction, lane, place, false);
    if (!goes_on) return;
    NoteAccess(warp, instruction, lane, place, false);
    LoadLane(frame, instruction, lane, place.bytes);
    note.Add(lane, place);
  });
  note.End(false);
}

void Store(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  Writes writes(warp, frame, instruction);
  if (!writes.Find(lanes, true)) return;
  ForEachLane(lanes, [&](uint32_t lane) {
    const Place& place = writes.At(lane);
    StoreLane(frame, instruction, lane, place.bytes);
    writes.Note(lane);
    if (instruction.access.order == Order::kWeak) return;
    warp.launch().races.Release(&warp.clock(), lane, place.address, instruction.access, false);
    warp.EndTurnSoon();
  });
  writes.End(false);
}

Handler FindAtomic(std::string_view op, std::string_view type) {
  const bool is_sum = type == "s32" || type == "u32" || type == "u64";  // of 64 bits .u64 alone
  if (op == "add" && is_sum) return OfSize<std::plus<>>(type);
  if (op == "or" && type.starts_with('b')) return OfSize<std::bit_or<>>(type);
  if (op == "max") return OfType<Max>(type);
  if (op == "min") return OfType<Min>(type);
  return nullptr;
}

}  // namespace specd::ptx
