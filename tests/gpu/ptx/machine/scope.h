// Scope says how far a strong access or a fence reaches. PTX ISA, "Memory Consistency Model:
// Scope".
//
// The scopes are in order: each reaches at least the threads that the one before reaches.
#pragma once

#include <cstdint>

namespace specd::ptx {

enum class Scope : uint8_t {
  kNone,     // a weak access orders nothing for other threads
  kBlock,    // .cta
  kCluster,  // .cluster
  kDevice,   // .gpu; also .sys, because the machine has one device and no accesses of the host
};
inline constexpr int kNumScopes = 4;

}  // namespace specd::ptx
