// Transformed rows that can be worked out by hand, on the CPU and on the emulated device.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/gpu/driver/fake_gpu_driver.h"
#include "tests/support/rows.h"

namespace specd {
namespace {

constexpr float kLog2OfE = 0x1.715476p+0f;

TEST_SUITE("unit") {
  TEST_CASE("transforms: softmax, filters, logits, ties, and a bad row") {
    RowMatrix matrix({.vocab_size = 4, .num_rows = 3, .padding = 2});
    matrix.Set(0, {std::log(4.0), std::log(2.0), 0, 0});
    matrix.Set(1, {NAN, 0, 0, 0});
    matrix.Set(2, {5, INFINITY, 5, 5});
    float out[6][4];
    OutcomeStatus statuses[6];
    RowTransform rows[6] = {};
    for (int i = 0; i < 6; ++i) {
      rows[i].scale = kLog2OfE;
      rows[i].out = out[i];
    }
    rows[1].filters.top_k = 3;
    rows[2].row = 1;
    rows[3].filters.top_k = 1;
    rows[3].as_logits = true;
    rows[4].row = 2;
    rows[5].scale = 2 * kLog2OfE;  // squares: 16 : 4 : 1 : 1
    CpuBackend cpu(CpuTarget::kBaseline);
    FakeGpu gpu;
    CudaBackend cuda(std::make_unique<FakeGpuDriver>(&gpu), 1 << 20);
    const double expected[6][4] = {{0.5, 0.25, 0.125, 0.125},
                                   {4.0 / 7, 2.0 / 7, 1.0 / 7, 0},
                                   {},
                                   {},
                                   {0, 1, 0, 0},
                                   {16.0 / 22, 4.0 / 22, 1.0 / 22, 1.0 / 22}};
    for (Backend* backend : {static_cast<Backend*>(&cpu), static_cast<Backend*>(&cuda)}) {
      REQUIRE(backend->Prepare({4, 1, 0}).ok());
      REQUIRE(backend->Transform({matrix.view(), rows, 6, statuses}).ok());
      for (int i = 0; i < 6; ++i) {
        CAPTURE(i);
        CHECK(statuses[i] == (i == 2 ? OutcomeStatus::kBadTargetRow : OutcomeStatus::kOk));
        for (int id = 0; id < 4; ++id) {
          if (i == 2) CHECK(std::isnan(out[i][id]));
          if (i == 3)
            CHECK(out[i][id] == (id == 0
                                     ? static_cast<float>(RoundTo(DType::kFloat32, std::log(4.0)))
                                     : -INFINITY));
          if (i != 2 && i != 3) CHECK(out[i][id] == doctest::Approx(expected[i][id]).epsilon(1e-6));
        }
      }
    }
  }
}

}  // namespace
}  // namespace specd
