// PTX ISA, "Data Movement and Conversion Instructions: ld, st" and "State Spaces: Local State
// Space" and "Parameter State Space".
#include "tests/gpu/ptx/machine/own_memory_opcodes.h"

#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

namespace {

// Where the lanes of an instruction go in their local memory.
class OwnPlaces {
 public:
  OwnPlaces(Warp& warp, const Frame& frame, const Instruction& instruction)
      : warp_(warp),
        frame_(frame),
        instruction_(instruction),
        size_bytes_(instruction.access.size_bytes()),
        base_(static_cast<uint64_t>(instruction.immediate)),
        end_(kLocalBytes),
        registers_(instruction.access.address_bytes == 8
                       ? frame.Source<uint64_t>(instruction.sources[0])
                       : nullptr) {
    if (instruction.access.space != Space::kParam) return;
    // Offsets of params begin at those of the call.
    base_ += static_cast<uint64_t>(frame.params_offset);
    end_ = static_cast<uint64_t>(frame.params_offset + frame.function->param_bytes);
  }

  // Ends the launch and returns false if the lane may not go there.
  bool Find(uint32_t lane, uint64_t* offset) {
    *offset = base_ + (registers_ == nullptr ? 0 : registers_[lane]);
    const bool is_inside = *offset < end_ && size_bytes_ <= end_ - *offset;
    if (is_inside && (*offset & (size_bytes_ - 1)) == 0) return true;
    const bool is_param = instruction_.access.space == Space::kParam;
    Refuse(lane, *offset,
           is_inside  ? "the address is not aligned"
           : is_param ? "outside the params"
                      : "outside local memory");
    return false;
  }
  void Refuse(uint32_t lane, uint64_t offset, const char* what) {
    warp_.Fail(frame_, instruction_, 1u << lane,
               fmt::format("{} bytes at {:#x}: {}", size_bytes_, offset, what));
  }

 private:
  Warp& warp_;
  const Frame& frame_;
  const Instruction& instruction_;
  const uint32_t size_bytes_;
  uint64_t base_;
  uint64_t end_;
  const uint64_t* registers_;
};

// One mark of each byte of an element, all together.
template <typename Element>
using MarksOf = std::make_unsigned_t<Element>;
template <typename Element>
constexpr auto kWritten = static_cast<MarksOf<Element>>(0x0101010101010101u);

template <typename Value>
Value ReadAs(const void* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// "ld"
template <typename Element>
void LoadOwn(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const MemoryAccess& access = instruction.access;
  OwnPlaces places(warp, frame, instruction);
  ForEachLane(lanes, [&](uint32_t lane) {
    uint64_t offset = 0;
    if (!places.Find(lane, &offset)) return;
    const std::byte* const bytes = warp.memory().LocalOf(lane) + offset;
    const uint8_t* const marks = warp.memory().MarksOf(lane) + offset;
    bool any_is_written = false;
    bool is_written = true;  // as far as the kernel computes with the bytes
    for (int i = 0; i < access.num_elements; ++i) {
      const auto mark = ReadAs<MarksOf<Element>>(marks + i * sizeof(Element));
      any_is_written |= mark != 0;
      is_written &= mark == kWritten<Element> || (access.copied >> i & 1) != 0;
      if (access.values[i] == kNoOperand) continue;
      // "Operand Size Exceeding Instruction-Type Size": a wider register gets the element's sign,
      // or zeros.
      const auto value = static_cast<int64_t>(ReadAs<Element>(bytes + i * sizeof(Element)));
      if (access.register_bytes == 8) {
        frame.At<uint64_t>(access.values[i])[lane] = static_cast<uint64_t>(value);
      } else {
        const uint32_t mask = access.register_bytes == 2 ? 0xFFFFu : 0xFFFFFFFFu;
        frame.At<uint32_t>(access.values[i])[lane] = static_cast<uint32_t>(value) & mask;
      }
    }
    if (!any_is_written || !is_written) {
      places.Refuse(lane, offset, "a read of bytes of local memory that were never written");
    }
  });
}

// "st"
template <typename Element>
void StoreOwn(Warp& warp, Frame& frame, const Instruction& instruction, uint32_t lanes) {
  const MemoryAccess& access = instruction.access;
  OwnPlaces places(warp, frame, instruction);
  ForEachLane(lanes, [&](uint32_t lane) {
    uint64_t offset = 0;
    if (!places.Find(lane, &offset)) return;
    std::byte* const bytes = warp.memory().LocalOf(lane) + offset;
    uint8_t* const marks = warp.memory().MarksOf(lane) + offset;
    for (int i = 0; i < access.num_elements; ++i) {
      const auto value = access.register_bytes == 8
                             ? frame.Source<uint64_t>(access.values[i])[lane]
                             : uint64_t{frame.Source<uint32_t>(access.values[i])[lane]};
      const auto element = static_cast<Element>(value);
      std::memcpy(bytes + i * sizeof(Element), &element, sizeof(element));
      std::memcpy(marks + i * sizeof(Element), &kWritten<Element>, sizeof(Element));
    }
  });
}

}  // namespace

Handler FindOwnLoad(const MemoryAccess& access) {
  switch (access.element_bytes) {
    case 1:
      return access.is_signed ? &LoadOwn<int8_t> : &LoadOwn<uint8_t>;
    case 2:
      return access.is_signed ? &LoadOwn<int16_t> : &LoadOwn<uint16_t>;
    case 4:
      return access.is_signed ? &LoadOwn<int32_t> : &LoadOwn<uint32_t>;
    default:
      return &LoadOwn<uint64_t>;
  }
}

Handler FindOwnStore(const MemoryAccess& access) {
  switch (access.element_bytes) {
    case 1:
      return &StoreOwn<uint8_t>;
    case 2:
      return &StoreOwn<uint16_t>;
    case 4:
      return &StoreOwn<uint32_t>;
    default:
      return &StoreOwn<uint64_t>;
  }
}

}  // namespace specd::ptx
