// The library calls of <specd/ops.h> against definitions computed here in double, and against
// sequences of an engine.
#include "ipc/include/specd/ops.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "kernels/core/philox.h"
#include "tests/daemon/client/embedded_engine.h"
#include "tests/support/last_error.h"

namespace specd {
namespace {

using test::EmbeddedEngine;

constexpr float kInf = std::numeric_limits<float>::infinity();

specd_rows Rows(const std::vector<float>& data, uint32_t vocab_size) {
  specd_rows rows;
  specd_rows_init(&rows);
  rows.data = data.data();
  rows.vocab_size = vocab_size;
  rows.num_rows = data.size() / vocab_size;
  return rows;
}

std::vector<double> Softmax(const float* logits, uint32_t vocab_size, double temperature) {
  std::vector<double> p(vocab_size);
  double sum = 0;
  for (uint32_t i = 0; i < vocab_size; ++i) sum += p[i] = std::exp(logits[i] / temperature);
  for (double& value : p) value /= sum;
  return p;
}

TEST_SUITE("unit") {
  TEST_CASE("softmax: rows by index, each with its own temperature") {
    const std::vector<float> data = {0.5f, -1, 2, 0, 1, 1, 1, 1, -3, 4, 0.25f, 0};
    specd_rows rows = Rows(data, 4);
    const uint32_t indices[] = {2, 0, 2};
    rows.indices = indices;
    rows.num_indices = 3;
    const double temperatures[] = {0.5, 2.0, 1.0};
    float out[12];
    uint32_t statuses[3] = {9, 9, 9};
    REQUIRE(specd_softmax(&rows, {temperatures, 1}, out, statuses) == SPECD_OK);
    for (int i = 0; i < 3; ++i) {
      CHECK(statuses[i] == SPECD_STATUS_OK);
      const std::vector<double> p = Softmax(&data[indices[i] * 4], 4, temperatures[i]);
      for (int j = 0; j < 4; ++j) CHECK(out[4 * i + j] == doctest::Approx(p[j]).epsilon(1e-5));
    }
    // One temperature for all, and the default.
    REQUIRE(specd_softmax(&rows, {temperatures, 0}, out, nullptr) == SPECD_OK);
    CHECK(out[11] == doctest::Approx(Softmax(&data[8], 4, 0.5)[3]).epsilon(1e-5));
    REQUIRE(specd_softmax(&rows, {nullptr, 0}, out, nullptr) == SPECD_OK);
    CHECK(out[4] == doctest::Approx(Softmax(data.data(), 4, 1.0)[0]).epsilon(1e-5));
  }

  TEST_CASE(
      "softmax: more rows than are taken at once, each with its temperature, with gaps between") {
    std::vector<float> data(200 * 5, kInf);  // elements between rows are not read
    for (int row = 0; row < 200; ++row) {
      for (int i = 0; i < 3; ++i) data[row * 5 + i] = static_cast<float>((row * 7 + i * 5) % 11);
    }
    specd_rows rows = Rows(data, 3);
    rows.num_rows = 200;
    rows.row_stride = 5;
    std::vector<double> temperatures(200);
    for (int row = 0; row < 200; ++row) temperatures[row] = 0.5 + 0.01 * row;
    std::vector<float> out(200 * 3);
    REQUIRE(specd_softmax(&rows, {temperatures.data(), 1}, out.data(), nullptr) == SPECD_OK);
    for (int row = 0; row < 200; ++row) {
      const std::vector<double> p = Softmax(&data[row * 5], 3, temperatures[row]);
      for (int i = 0; i < 3; ++i) REQUIRE(out[row * 3 + i] == doctest::Approx(p[i]).epsilon(1e-5));
    }
  }

  TEST_CASE("top_k: exactly k survive, the lowest ids of a tie") {
    const std::vector<float> data = {1, 1, 1, 0, 5, 2, 3, 4};
    const specd_rows rows = Rows(data, 4);
    const int32_t two = 2;
    float out[8];
    REQUIRE(specd_top_k_renorm(&rows, {&two, 0}, out, nullptr) == SPECD_OK);
    CHECK(std::vector<float>(out, out + 4) == std::vector<float>{0.5f, 0.5f, 0, 0});
    CHECK(out[4] == doctest::Approx(1 / (1 + std::exp(-1.0))).epsilon(1e-5));
    CHECK(out[5] == 0);
    REQUIRE(specd_top_k_mask(&rows, {&two, 0}, out, nullptr) == SPECD_OK);
    CHECK(std::vector<float>(out, out + 4) == std::vector<float>{1, 1, -kInf, -kInf});
    CHECK(std::vector<float>(out + 4, out + 8) == std::vector<float>{5, -kInf, -kInf, 4});
    const int32_t each[] = {1, -1};
    REQUIRE(specd_top_k_mask(&rows, {each, 1}, out, nullptr) == SPECD_OK);
    CHECK(std::vector<float>(out, out + 4) == std::vector<float>{1, -kInf, -kInf, -kInf});
    CHECK(std::vector<float>(out + 4, out + 8) == std::vector<float>{5, 2, 3, 4});
  }

  TEST_CASE("a row without a distribution is a status, beside rows that have one") {
    const float nan = std::nanf("");
    const std::vector<float> data = {1, nan, 0, 3, 1, 2, -kInf, -kInf, -kInf, 0, kInf, 1};
    const specd_rows rows = Rows(data, 3);
    float out[12];
    uint32_t statuses[4];
    REQUIRE(specd_softmax(&rows, {nullptr, 0}, out, statuses) == SPECD_OK);
    const uint32_t bad = SPECD_STATUS_BAD_DISTRIBUTION;
    CHECK(std::vector<uint32_t>(statuses, statuses + 4) == std::vector<uint32_t>{bad, 0, bad, 0});
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[8]));
    CHECK(std::vector<float>(out + 9, out + 12) == std::vector<float>{0, 1, 0});  // +inf: a point
    int32_t ids[4];
    REQUIRE(specd_argmax(&rows, ids, statuses) == SPECD_OK);
    CHECK(std::vector<int32_t>(ids, ids + 4) == std::vector<int32_t>{-1, 0, -1, 1});
    CHECK(std::vector<uint32_t>(statuses, statuses + 4) == std::vector<uint32_t>{bad, 0, bad, 0});
    specd_sampling sampling;
    specd_sampling_init(&sampling);
    const uint64_t seed = 1;
    sampling.seed.items = &seed;
    REQUIRE(specd_sample(&rows, &sampling, ids, statuses) == SPECD_OK);
    CHECK(ids[0] == -1);
    CHECK(ids[3] == 1);
    CHECK(statuses[2] == bad);
  }

  TEST_CASE("sample: the draws of a sequence that has the LIBRARY coins (CONTRACT §4)") {
    EmbeddedEngine f;
    std::vector<float> data;
    for (uint32_t row = 0; row < 2; ++row) {
      const std::vector<float> logits = {0.1f, 0.7f, -0.3f, 1.1f, 0.2f, -1.0f, 0.5f, 0.9f - row};
      EmbeddedEngine::SetRow(f.target, row, logits);
      data.insert(data.end(), logits.begin(), logits.end());
    }
    specd_params params = EmbeddedEngine::Params(0.8);
    params.top_p = 0.85;
    params.top_k = 6;
    params.min_p = 0.05;
    params.filter_order = SPECD_FILTERS_JOINT;
    const specd_sequence s = f.Open(params);
    std::vector<specd_coin> coins;
    for (uint32_t i = 0; i < 90; ++i) {
      const uint64_t coin = KeyedCoins(params.seed)({i, 0, 0, static_cast<Purpose>(6)});
      coins.push_back({i, 0, 0, SPECD_COIN_SAMPLE, coin});
    }
    REQUIRE(specd_set_coins(f.engine, s, coins.data(), 90) == SPECD_OK);
    std::vector<uint32_t> indices;
    std::vector<int32_t> wanted;
    for (uint32_t i = 0; i < 90; ++i) {
      indices.push_back(i % 3 == 0 ? 1 : 0);
      wanted.push_back(f.Sample(s, indices.back()).tokens[0]);
    }
    specd_rows rows = Rows(data, 8);
    rows.indices = indices.data();
    rows.num_indices = indices.size();
    specd_sampling sampling;
    specd_sampling_init(&sampling);
    sampling.filter_order = SPECD_FILTERS_JOINT;
    sampling.temperature.items = &params.temperature;
    sampling.top_p.items = &params.top_p;
    sampling.top_k.items = &params.top_k;
    sampling.min_p.items = &params.min_p;
    sampling.seed.items = &params.seed;  // positions are 0, 1, 2, ... by default
    std::vector<int32_t> ids(90);
    REQUIRE(specd_sample(&rows, &sampling, ids.data(), nullptr) == SPECD_OK);
    CHECK(ids == wanted);
    CHECK(std::set<int32_t>(ids.begin(), ids.end()).size() > 3);
    // Another thread has a backend of its own.
    std::vector<int32_t> elsewhere(90);
    std::thread([&] { specd_sample(&rows, &sampling, elsewhere.data(), nullptr); }).join();
    CHECK(elsewhere == wanted);
    // Positions given, in another order.
    std::vector<uint64_t> positions;
    for (uint64_t i = 0; i < 90; ++i) positions.push_back(89 - i);
    std::vector<uint32_t> reversed(indices.rbegin(), indices.rend());
    rows.indices = reversed.data();
    sampling.position = {positions.data(), 1};
    REQUIRE(specd_sample(&rows, &sampling, ids.data(), nullptr) == SPECD_OK);
    CHECK(std::vector<int32_t>(ids.rbegin(), ids.rend()) == wanted);
    // Another round base, other coins.
    const uint64_t base = 1;
    sampling.round_base = {&base, 0};
    REQUIRE(specd_sample(&rows, &sampling, ids.data(), nullptr) == SPECD_OK);
    CHECK(std::vector<int32_t>(ids.rbegin(), ids.rend()) != wanted);
  }

  TEST_CASE("arguments of library calls are refused by name, and nothing is written") {
    const std::vector<float> data = {1, 2, 3, 4};
    const specd_rows good = Rows(data, 4);
    float out[4] = {7, 7, 7, 7};
    const auto refused = [&](auto change, const char* text) {
      specd_rows rows = good;
      change(&rows);
      CHECK(specd_softmax(&rows, {nullptr, 0}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
      return LastErrorHas(text);
    };
    CHECK(refused([](specd_rows* r) { r->vocab_size = 0; }, "vocab_size = 0"));
    CHECK(refused([](specd_rows* r) { r->vocab_size = (1 << 20) + 1; }, "vocab_size"));
    CHECK(refused([](specd_rows* r) { r->data = nullptr; }, "data is NULL"));
    CHECK(refused([](specd_rows* r) { r->data = static_cast<const char*>(r->data) + 2; },
                  "not aligned"));
    CHECK(refused([](specd_rows* r) { r->num_rows = 0; }, "num_rows = 0"));
    CHECK(refused([](specd_rows* r) { r->row_stride = 3; }, "row_stride = 3"));
    CHECK(refused([](specd_rows* r) { r->dtype = 3; }, "dtype = 3"));
    CHECK(refused([](specd_rows* r) { r->kind = 3; }, "kind = 3"));
    CHECK(refused([](specd_rows* r) { r->scale = 0; }, "scale = 0"));
    CHECK(refused([](specd_rows* r) { r->num_indices = 1; }, "indices is NULL"));
    CHECK(refused([](specd_rows* r) { r->struct_size = 0; }, "struct_size"));
    static const uint32_t outside[] = {0, 1};
    CHECK(refused(
        [](specd_rows* r) {
          r->indices = outside;
          r->num_indices = 2;
        },
        "indices[1] = 1"));
    const double cold = 1e-6;
    CHECK(specd_softmax(&good, {&cold, 0}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("temperature[0]"));
    CHECK(specd_softmax(&good, {&cold, 2}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("stride = 2"));
    const double zero = 0;
    CHECK(specd_top_p_renorm(&good, {&zero, 0}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("top_p[0] = 0"));
    CHECK(std::vector<float>(out, out + 4) == std::vector<float>{7, 7, 7, 7});
    CHECK(specd_softmax(nullptr, {nullptr, 0}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(specd_softmax(&good, {nullptr, 0}, nullptr, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);

    specd_sampling sampling;
    specd_sampling_init(&sampling);
    int32_t id = 7;
    CHECK(specd_sample(&good, &sampling, &id, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("seed.items is NULL"));
    sampling.temperature.items = &zero;  // greedy needs no seed
    REQUIRE(specd_sample(&good, &sampling, &id, nullptr) == SPECD_OK);
    CHECK(id == 3);
    const uint64_t large = uint64_t{1} << 32;
    sampling.round_base.items = &large;
    CHECK(specd_sample(&good, &sampling, &id, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("round_base[0] = 4294967296 is outside"));
    sampling.round_base = {};
    sampling.filter_order = 2;
    CHECK(specd_sample(&good, &sampling, &id, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
  }

  TEST_CASE("final probabilities: taken as they are, and nothing may change them") {
    const std::vector<float> data = {0.25f, 0.75f};
    specd_rows rows = Rows(data, 2);
    rows.kind = SPECD_FINAL_PROBABILITIES;
    float out[2];
    REQUIRE(specd_softmax(&rows, {nullptr, 0}, out, nullptr) == SPECD_OK);
    CHECK(out[1] == doctest::Approx(0.75).epsilon(1e-6));
    const double warm = 1.5;
    CHECK(specd_softmax(&rows, {&warm, 0}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    const int32_t one = 1;
    CHECK(specd_top_k_renorm(&rows, {&one, 0}, out, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("SPECD_FINAL_PROBABILITIES"));
  }
}

}  // namespace
}  // namespace specd
