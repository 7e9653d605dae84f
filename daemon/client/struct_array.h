// InputArray and OutputArray walk arrays of C structs whose elements may be of another version than
// this library.
//
// Every element begins with struct_size, the caller's sizeof. An input array steps by that size.
// Fields that an older caller does not have are zero here, and a newer caller's further fields must
// be zero. An output array writes as many bytes of each element as the caller has room for. Both
// are views: the array outlives them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/status.h"
#include "daemon/base/version.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// Refuses a struct_size that no version of this struct has. sizeof(T) is the size of the first
// version whose elements carry a size; keep that number here when T grows.
template <class T>
absl::Status CheckElementSize(std::string_view array, uint32_t index, uint32_t size,
                              std::string_view field = "struct_size") {
  if (size >= sizeof(T) && size <= 65536 && size % alignof(T) == 0) return absl::OkStatus();
  return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field,
                   fmt::format("{}[{}].{} = {}; set it to the struct's sizeof, {} or more in this "
                               "version ({})",
                               array, index, field, size, sizeof(T), kVersion));
}

template <class T>
class InputArray {
 public:
  // An array of `count` elements, count >= 1.
  static absl::Status Check(std::string_view array, const T* first, uint32_t count,
                            InputArray* out) {
    const uint32_t size = first->struct_size;
    if (absl::Status s = CheckElementSize<T>(array, 0, size); !s.ok()) return s;
    out->first_ = reinterpret_cast<const char*>(first);
    out->size_ = size;
    for (uint32_t i = 0; i < count; ++i) {
      const char* element = out->first_ + uint64_t{i} * size;
      if (reinterpret_cast<const T*>(element)->struct_size != size) {
        return MakeError(
            SPECD_ERROR_INVALID_ARGUMENT, "struct_size",
            fmt::format("{}[{}].struct_size = {}, but {} in the first element; set it "
                        "to the struct's sizeof in every element",
                        array, i, reinterpret_cast<const T*>(element)->struct_size, size));
      }
      const char* known_end = element + sizeof(T);
      if (std::any_of(known_end, element + size, [](char byte) { return byte != 0; })) {
        return MakeError(SPECD_ERROR_UNSUPPORTED, "struct_size",
                         fmt::format("{}[{}] has a field that this version ({}) does not know; "
                                     "leave it zero, or use a newer library",
                                     array, i, kVersion));
      }
    }
    return absl::OkStatus();
  }

  const T& operator[](size_t index) const {
    return *reinterpret_cast<const T*>(first_ + index * size_);
  }

 private:
  const char* first_ = nullptr;
  size_t size_ = 0;
};

template <class T>
class OutputArray {
 public:
  // REQUIRES: every element has its struct_size set; count >= 1.
  static absl::Status Check(std::string_view array, T* first, uint32_t count, OutputArray* out) {
    const uint32_t size = first->struct_size;
    if (absl::Status s = CheckElementSize<T>(array, 0, size); !s.ok()) return s;
    out->first_ = reinterpret_cast<char*>(first);
    out->size_ = size;
    for (uint32_t i = 1; i < count; ++i) {
      const auto* element = reinterpret_cast<const T*>(out->first_ + uint64_t{i} * size);
      if (element->struct_size == size) continue;
      return MakeError(
          SPECD_ERROR_INVALID_ARGUMENT, "struct_size",
          fmt::format("{}[{}].struct_size = {}, but {} in the first element; set it to "
                      "the struct's sizeof in every element",
                      array, i, element->struct_size, size));
    }
    return absl::OkStatus();
  }
  // An array of this library's own, laid out for a caller whose elements have this size.
  OutputArray(char* first, size_t size) : first_(first), size_(size) {}
  OutputArray() = default;

  void Put(size_t index, T value) const {
    if constexpr (requires { value.struct_size; }) {
      value.struct_size = static_cast<uint32_t>(size_);
    }
    char* element = first_ + index * size_;
    std::memcpy(element, &value, std::min(size_, sizeof(T)));
    if (size_ > sizeof(T)) std::memset(element + sizeof(T), 0, size_ - sizeof(T));
  }

 private:
  char* first_ = nullptr;
  size_t size_ = 0;
};

}  // namespace specd
