// StubCuda is a libcuda.so.1 that only records its calls, for tests of kernels/cuda/driver_*.cc.
// The tests link it instead of the real one.
//
// It has every function of driver_api.h. Not synchronized: one test, one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace specd {

struct StubCuda {
  std::vector<std::string> calls;  // in order, without queries for names and contexts
  std::vector<std::string>
      forbidden;             // calls that a capture in another thread would have forbidden
  std::string failing_call;  // this call fails ...
  int failing_code = 1;      // ... with this number
  int contexts_pushed = 0;
  int capture_mode = 0;  // the thread's mode; global
  int contexts_retained = 0;

  // The answers to the next queries.
  unsigned memory_type = 2;
  int device_ordinal = 0;
  bool is_managed = false;
  bool is_ipc_capable = true;
  uint64_t handle_types = 0;
  void* pool = nullptr;
  uint64_t range_base = 0x10000;
  uint64_t range_bytes = 0x8000;
  uint64_t mapping_base = 0x12000;
  uint64_t mapping_bytes = 0x2000;
  void* stream_context = nullptr;  // the primary one is null
  int capture_status = 0;
  uint64_t last_value = 0;
  int last_fd = -1;

  int calls_before_failing = 0;  // the successes before the first failure
  std::vector<int> fds;          // the descriptors of imported pieces
  // The addresses and sizes of reservations and mappings, in order.
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
};

StubCuda& TheStubCuda();

}  // namespace specd
