// Hash joins the values of records into one number, for diff.
//
// The numbers are for tables of this process only: another build may give others.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "daemon/trace/trace_fields.h"

namespace specd::replay {

// FNV-1a over 64-bit words, then SplitMix64's finaliser.
class Hash {
 public:
  Hash& Put(uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3;
    value_ ^= value_ >> 29;
    return *this;
  }
  template <class T>
  Hash& List(const std::vector<T>& values) {
    Put(values.size());
    for (const T& value : values) Value(value);
    return *this;
  }
  template <class T>
  Hash& Value(const T& value) {
    if constexpr (std::is_same_v<T, float>) {
      return Put(std::bit_cast<uint32_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
      return Put(std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      return Put(static_cast<uint64_t>(value));
    } else if constexpr (requires { value.begin(); }) {
      return List(value);
    } else {
      VisitFields(RecordType<T>{}, [&](const char*, auto member) { Value(value.*member); });
      return *this;
    }
  }
  uint64_t value() const {
    uint64_t x = value_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

 private:
  uint64_t value_ = 0xcbf29ce484222325;
};

template <class T>
uint64_t ValueHash(const T& value) {
  return Hash().Value(value).value();
}

}  // namespace specd::replay
