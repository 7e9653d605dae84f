// Rows that lie far from the beginning of their tensor, against the same rows near it. The case is
// of vLLM's <tests/v1/sample/test_rejection_sampler.py>.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <random>

#include "tests/kernels/bodies/row_law.h"
#include "tests/kernels/bodies/run_chain.h"

namespace specd {
namespace {

TEST_SUITE("unit") {
  TEST_CASE("vLLM: rows beyond 2^32 bytes are found where they lie") {
    constexpr int32_t kVocabSize = 155264;
    constexpr int64_t kRow = 15000;
    constexpr size_t kBytes = size_t(kRow + 2) * kVocabSize * 2;
    // Untouched pages cost nothing.
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::mt19937_64 random(32);
    RowMatrix few({.dtype = DType::kFloat16, .vocab_size = kVocabSize, .num_rows = 2});
    for (int row = 0; row < 2; ++row) few.Set(row, RandomLogits(random, kVocabSize));
    std::memcpy(static_cast<char*>(memory) + kRow * kVocabSize * 2, few.view().data,
                size_t(2) * kVocabSize * 2);
    TensorView far = few.view();
    far.data = memory;
    far.num_rows = kRow + 2;
    for (const VerifyMethod method : {VerifyMethod::kGreedy, VerifyMethod::kExactMatch,
                                      VerifyMethod::kToken, VerifyMethod::kBlock}) {
      ChainCase near_chain(method, {17}, DraftKind::kSampled);
      ChainCase far_chain(method, {17}, DraftKind::kSampled, kRow);
      const KeyedCoins coins(random());
      CHECK(RunScalar(near_chain.task, few.view(), few.view(), coins) ==
            RunScalar(far_chain.task, far, far, coins));
    }
    munmap(memory, kBytes);
  }
}

}  // namespace
}  // namespace specd
