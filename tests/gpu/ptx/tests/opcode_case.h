// CheckOpcode compares an instruction of the PTX machine with the same function of the host, for
// all combinations of edge values.
//
//   CheckOpcode<uint32_t, uint32_t, uint32_t>("add.u32", [](auto a, auto b) { return a + b; });
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "tests/gpu/ptx/machine/device_memory.h"
#include "tests/gpu/ptx/machine/launch.h"
#include "tests/gpu/ptx/machine/module_loader.h"

namespace specd::ptx {

// A module with one entry, `test`, of so many params of 8 bytes: p0, p1 and so on.
inline std::string EntryText(int num_params, const std::string& body,
                             const std::string& globals = "") {
  std::string params;
  for (int i = 0; i < num_params; ++i) {
    params += fmt::format("{}.param .u64 p{}", i == 0 ? "" : ", ", i);
  }
  return fmt::format(
      ".version 8.0\n.target sm_90\n.address_size 64\n{}\n.visible .entry "
      "test({})\n{{\n{}\nret;\n}}\n",
      globals, params, body);
}

inline std::unique_ptr<Module> LoadOrFail(const std::string& text) {
  absl::StatusOr<std::unique_ptr<Module>> module = LoadModule("test.ptx", text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()), "\n", text);
  return std::move(*module);
}

// Runs `test` of the text with these params.
inline absl::Status RunText(const std::string& text, const LaunchShape& shape,
                            const std::vector<uint64_t>& params,
                            const LaunchOptions& options = {}) {
  const std::unique_ptr<Module> module = LoadOrFail(text);
  const Function* const entry = module->FindEntry("test");
  REQUIRE(entry != nullptr);
  std::vector<const void*> arguments;
  for (const uint64_t& param : params) arguments.push_back(&param);
  return RunLaunch(*entry, shape, arguments.data(), options);
}

template <typename Value>
std::vector<Value> EdgeValues() {
  std::vector<Value> values;
  if constexpr (std::is_floating_point_v<Value>) {
    using Limits = std::numeric_limits<Value>;
    values = {0,
              1,
              Value(1.5),
              Value(0.1),
              3,
              Value(16777217),
              Value(1) + Limits::epsilon(),
              Limits::min(),
              Limits::denorm_min(),
              Limits::min() - Limits::denorm_min(),
              Limits::max(),
              Limits::infinity(),
              Limits::quiet_NaN()};
    for (size_t i = 0, end = values.size(); i < end; ++i) values.push_back(-values[i]);
  } else {
    for (const uint64_t value : {uint64_t{0},
                                 uint64_t{1},
                                 uint64_t{2},
                                 uint64_t{7},
                                 uint64_t{15},
                                 uint64_t{16},
                                 uint64_t{31},
                                 uint64_t{32},
                                 uint64_t{33},
                                 uint64_t{63},
                                 uint64_t{64},
                                 uint64_t{255},
                                 uint64_t{256},
                                 uint64_t{0x8000},
                                 uint64_t{0xAAAAAAAAAAAAAAAA},
                                 uint64_t{0x123456789ABCDEF0},
                                 uint64_t{1} << 31,
                                 (uint64_t{1} << 31) - 1,
                                 uint64_t{0xFFFFFFFF},
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0},
                                 (uint64_t{1} << 63) - 1}) {
      values.push_back(static_cast<Value>(value));
    }
  }
  return values;
}

template <typename Value>
std::string BitsOfType() {
  return fmt::format("b{}", 8 * sizeof(Value));
}

// NaN equals NaN of the same bits alone.
template <typename Value>
uint64_t BitsOf(Value value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

// All combinations of the edge values.
template <typename... Sources>
std::vector<std::tuple<Sources...>> AllRows() {
  std::vector<std::tuple<Sources...>> rows(1);
  const auto extend = [&]<size_t kIndex>(std::integral_constant<size_t, kIndex>) {
    using Value = std::tuple_element_t<kIndex, std::tuple<Sources...>>;
    std::vector<std::tuple<Sources...>> longer;
    for (const auto& row : rows) {
      for (const Value value : EdgeValues<Value>()) {
        longer.push_back(row);
        std::get<kIndex>(longer.back()) = value;
      }
    }
    rows = std::move(longer);
  };
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (extend(std::integral_constant<size_t, kIndex>()), ...);
  }
  (std::index_sequence_for<Sources...>());
  return rows;
}

// `out[i] = opcode(in0[i], in1[i], ...)` for each thread.
template <typename Result, typename... Sources>
std::string OpcodeText(const std::string& opcode) {
  std::string body = ".reg .b64 %a, %o, %p; .reg .b32 %i, %n, %t; .reg .pred %q;\n";
  body += "mov.u32 %t, %tid.x; mov.u32 %i, %ctaid.x; mov.u32 %n, %ntid.x;\n";
  body += "mad.lo.s32 %i, %i, %n, %t;\n";
  std::string operands;
  int index = 0;
  const auto load = [&](const std::string& type, size_t bytes) {
    body += fmt::format(".reg .{0} %s{1}; ld.param.u64 %a, [p{1}];", type, index);
    body += fmt::format("mul.wide.u32 %o, %i, {}; add.s64 %p, %a, %o;", bytes);
    body += fmt::format("ld.global.{0} %s{1}, [%p];\n", type, index);
    operands += fmt::format(", %s{}", index++);
  };
  (load(BitsOfType<Sources>(), sizeof(Sources)), ...);
  body += fmt::format(".reg .{0} %d; {1} %d{2};\n", BitsOfType<Result>(), opcode, operands);
  body += fmt::format("ld.param.u64 %a, [p{}]; mul.wide.u32 %o, %i, {};", index, sizeof(Result));
  body += fmt::format("add.s64 %p, %a, %o; st.global.{} [%p], %d;", BitsOfType<Result>());
  return EntryText(index + 1, body);
}

// The results of an opcode for each of the rows.
template <typename Result, typename... Sources>
std::vector<Result> RunRows(const std::string& opcode, std::span<const std::tuple<Sources...>> rows,
                            const LaunchOptions& options) {
  const auto num_blocks = static_cast<uint32_t>((rows.size() + 127) / 128);
  std::vector<std::unique_ptr<DeviceBlock>> blocks;
  std::vector<uint64_t> params;
  const auto take = [&](size_t value_bytes) {
    blocks.push_back(std::make_unique<DeviceBlock>(size_t{num_blocks} * 128 * value_bytes));
    params.push_back(reinterpret_cast<uint64_t>(blocks.back()->begin()));
  };
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    (take(sizeof(Sources)), ...);
    for (size_t i = 0; i < rows.size(); ++i) {
      (std::memcpy(blocks[kIndex]->begin() + i * sizeof(Sources), &std::get<kIndex>(rows[i]),
                   sizeof(Sources)),
       ...);
    }
  }
  (std::index_sequence_for<Sources...>());
  take(sizeof(Result));
  const absl::Status status = RunText(OpcodeText<Result, Sources...>(opcode),
                                      {.grid = num_blocks, .block = 128}, params, options);
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  std::vector<Result> results(rows.size());
  std::memcpy(results.data(), blocks.back()->begin(), rows.size() * sizeof(Result));
  return results;
}

template <typename Result, typename... Sources, typename Function>
void CheckOpcode(const std::string& opcode, const Function& expected,
                 const LaunchOptions& options = {}) {
  CAPTURE(opcode);
  constexpr size_t kMostRows = 64 * 1024;  // of a launch
  const std::vector<std::tuple<Sources...>> all = AllRows<Sources...>();
  for (size_t begin = 0; begin < all.size(); begin += kMostRows) {
    const auto rows = std::span(all).subspan(begin, std::min(kMostRows, all.size() - begin));
    const auto results = RunRows<Result, Sources...>(opcode, rows, options);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto wanted = static_cast<Result>(std::apply(expected, rows[i]));
      if (BitsOf(results[i]) == BitsOf(wanted)) continue;
      std::string operands;
      std::apply([&](auto... source) { ((operands += fmt::format(" {:x}", BitsOf(source))), ...); },
                 rows[i]);
      FAIL(fmt::format("{}{}: {:x}, but the host has {:x}", opcode, operands, BitsOf(results[i]),
                       BitsOf(wanted)));
    }
    CHECK(results.size() == rows.size());
  }
}

}  // namespace specd::ptx
