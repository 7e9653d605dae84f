// specd_lend: rounds of an embedded engine read and write the caller's memory in place; a daemon
// cannot, and says so.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/daemon/client/engine_host.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::TokensOf;

constexpr uint32_t kVocab = EmbeddedEngine::kVocab;
constexpr uint32_t kSlots = 4;  // max_sequences of an EmbeddedEngine

specd_tensor TensorIn(const specd_region& region, uint64_t offset_bytes, uint64_t num_rows,
                      uint32_t dtype) {
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.dtype = dtype;
  tensor.offset_bytes = offset_bytes;
  tensor.num_rows = num_rows;
  return tensor;
}

specd_region Lend(EmbeddedEngine& f, void* data, uint64_t size_bytes) {
  specd_region region = {};
  const int code = specd_lend(f.engine, data, size_bytes, &region);
  INFO(specd_last_error());
  REQUIRE(code == SPECD_OK);
  CHECK(region.data == data);
  CHECK(region.size_bytes == size_bytes);
  return region;
}

TEST_SUITE("unit") {
  TEST_CASE("lent rows are read in place, from any address that their elements may have") {
    EmbeddedEngine f;
    // 0x3f80 is 1 as a bfloat16, and -0 (0x8000) is less. The rows begin at every distance from a
    // multiple of 16 that an array of them may begin at.
    for (size_t skip = 0; skip < 8; ++skip) {
      CAPTURE(skip);
      std::vector<uint16_t> memory(16 + 2 * kVocab, 0x8000);
      size_t first = 0;
      while (reinterpret_cast<uintptr_t>(&memory[first]) % 16 != 0) ++first;
      uint16_t* const rows = &memory[first + skip];
      rows[5] = 0x3f80;
      rows[kVocab + 2] = 0x3f80;
      const specd_region region = Lend(f, rows, 2 * kVocab * sizeof(uint16_t));
      const specd_tensor tensor = TensorIn(region, 0, 2, SPECD_BFLOAT16);
      REQUIRE(specd_bind(f.engine, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
      const specd_sequence sequence = f.Open(EmbeddedEngine::Params(), "r" + std::to_string(skip));
      CHECK(TokensOf(f.Sample(sequence, 0)) == std::vector<int32_t>{5});
      CHECK(TokensOf(f.Sample(sequence, 1)) == std::vector<int32_t>{2});
      rows[7] = 0x4000;  // 2: what the caller writes is what the next round reads
      CHECK(TokensOf(f.Sample(sequence, 0)) == std::vector<int32_t>{7});
      CHECK(specd_close_sequence(f.engine, sequence) == SPECD_OK);
      CHECK(specd_unregister(f.engine, region.id) == SPECD_ERROR_STATE);
      const specd_region own = Lend(f, f.target, EmbeddedEngine::kRows * kVocab * sizeof(float));
      const specd_tensor back = TensorIn(own, 0, EmbeddedEngine::kRows, SPECD_FLOAT32);
      REQUIRE(specd_bind(f.engine, SPECD_TARGET_ROWS, &back) == SPECD_OK);
      CHECK(specd_unregister(f.engine, region.id) == SPECD_OK);
      CHECK(specd_unregister(f.engine, region.id) == SPECD_ERROR_NOT_FOUND);
      REQUIRE(f.Bind(SPECD_TARGET_ROWS, 1) == SPECD_OK);
      CHECK(specd_unregister(f.engine, own.id) == SPECD_OK);
    }
  }

  TEST_CASE("slot outputs are written into lent memory, and nowhere beside it") {
    EmbeddedEngine f;
    std::vector<int32_t> memory(kSlots + 3, -9);
    const specd_region region = Lend(f, &memory[1], (kSlots + 1) * sizeof(int32_t));
    const specd_tensor tensor = TensorIn(region, sizeof(int32_t), kSlots, SPECD_INT32);
    REQUIRE(specd_bind(f.engine, SPECD_NEXT_TOKEN, &tensor) == SPECD_OK);
    const specd_sequence sequence = f.Open(EmbeddedEngine::Params());
    EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 0, 3, 0, 0, 0});
    CHECK(TokensOf(f.Sample(sequence)) == std::vector<int32_t>{4});
    std::vector<int32_t> expected(kSlots + 3, -9);
    expected[2 + specd_sequence_slot(sequence)] = 4;
    CHECK(memory == expected);
  }

  TEST_CASE("lent memory that cannot be: a tensor past its end, no memory, no size, too many") {
    EmbeddedEngine f;
    std::vector<float> memory(kVocab + 1, 0.0f);
    const specd_region region = Lend(f, &memory[1], kVocab * sizeof(float));
    for (const specd_tensor& bad : {TensorIn(region, 0, 2, SPECD_FLOAT32),
                                    TensorIn(region, sizeof(float), 1, SPECD_FLOAT32)}) {
      CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &bad) == SPECD_ERROR_REGION);
      const std::string skipped =
          fmt::format("The region begins {} bytes before the registered address",
                      reinterpret_cast<uintptr_t>(&memory[1]) % 16);
      CHECK(LastErrorHas(skipped.c_str()));
    }
    const specd_tensor uneven = TensorIn(region, 2, 1, SPECD_FLOAT32);
    CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &uneven) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("before the registered address"));
    // Of an error that names no byte nothing more is said.
    const specd_tensor empty = TensorIn(region, 0, 0, SPECD_FLOAT32);
    CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &empty) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(!LastErrorHas("registered address"));
    const specd_tensor good = TensorIn(region, 0, 1, SPECD_FLOAT32);
    CHECK(specd_bind(f.engine, SPECD_TARGET_ROWS, &good) == SPECD_OK);

    specd_region none;
    CHECK(specd_lend(nullptr, memory.data(), 4, &none) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_lend(f.engine, nullptr, 4, &none) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_lend(f.engine, memory.data(), 4, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    for (const uint64_t size_bytes : {uint64_t{0}, (uint64_t{1} << 40) + 1, ~uint64_t{0}}) {
      CAPTURE(size_bytes);
      CHECK(specd_lend(f.engine, memory.data(), size_bytes, &none) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("size_bytes = "));
    }
    // 64 bytes before the end of all addresses.
    CHECK(specd_lend(f.engine, reinterpret_cast<void*>(~uintptr_t{63}), 65, &none) ==
          SPECD_ERROR_INVALID_ARGUMENT);
    int code = SPECD_OK;
    int lent = 0;
    while (code == SPECD_OK && lent < 100) {
      code = specd_lend(f.engine, memory.data(), 4, &none);
      if (code == SPECD_OK) ++lent;
    }
    CHECK(code == SPECD_ERROR_EXHAUSTED);
    CHECK(lent < 16);
  }

  TEST_CASE("a daemon cannot read lent memory, and names what an engine does instead") {
    test::EngineHost host;
    EmbeddedEngine f(host.uri);
    std::vector<float> memory(kVocab, 0.0f);
    specd_region region;
    CHECK(specd_lend(f.engine, memory.data(), sizeof(float), &region) == SPECD_ERROR_UNSUPPORTED);
    for (const char* part : {"specd_alloc", "specd_import_fd", "embedded"}) {
      CHECK(LastErrorHas(part));
    }
    EmbeddedEngine::SetRow(f.target, 0, {0, 0, 0, 0, 3, 0, 0, 0});
    CHECK(TokensOf(f.Sample(f.Open(EmbeddedEngine::Params()))) == std::vector<int32_t>{4});
  }
}

}  // namespace
}  // namespace specd
