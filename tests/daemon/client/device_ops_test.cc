// The library calls of <specd/ops.h> on rows in device memory: over the pretended device of this
// process.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "ipc/include/specd/ops.h"
#include "tests/daemon/client/graph_device.h"
#include "tests/support/last_error.h"

namespace specd::test {
namespace {

constexpr uint32_t kVocab = 37;
constexpr size_t kNumRows = 70;  // more than go to a backend at once

// A thread keeps the backends of its calls, so each test has a thread that ends before the device.
template <class Body>
void InThread(const Body& body) {
  std::thread(body).join();
}

struct OpsDevice {
  OpsDevice() {
    for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>((i * 7919) % 101) / 9;
    host[3 * kVocab] = std::numeric_limits<float>::quiet_NaN();  // a row that has no distribution
    REQUIRE(device.gpu.Allocate(host.size() * sizeof(float), &address).ok());
    std::memcpy(reinterpret_cast<void*>(address), host.data(), host.size() * sizeof(float));
  }
  ~OpsDevice() { CHECK(device.gpu.Free(address).ok()); }

  specd_rows Rows(bool on_device) const {
    specd_rows rows;
    specd_rows_init(&rows);
    rows.data = on_device ? reinterpret_cast<const void*>(address) : host.data();
    rows.vocab_size = kVocab;
    rows.num_rows = kNumRows;
    return rows;
  }

  GraphDevice device;
  GpuAddress address = 0;
  std::vector<float> host = std::vector<float>(kNumRows * kVocab);
};

struct Results {
  std::vector<float> out = std::vector<float>(kNumRows * kVocab, -1);
  std::vector<int32_t> ids = std::vector<int32_t>(kNumRows, -2);
  std::vector<uint32_t> statuses = std::vector<uint32_t>(kNumRows, 99);

  bool operator==(const Results& other) const {
    return std::memcmp(out.data(), other.out.data(), out.size() * sizeof(float)) == 0 &&
           ids == other.ids && statuses == other.statuses;
  }
};

Results Sampled(const specd_rows& rows) {
  specd_sampling sampling;
  specd_sampling_init(&sampling);
  const double temperature = 0.8, top_p = 0.9;
  const int32_t top_k = 20;
  const uint64_t seed = 11;
  sampling.temperature = {&temperature, 0};
  sampling.top_p = {&top_p, 0};
  sampling.top_k = {&top_k, 0};
  sampling.seed = {&seed, 0};
  Results results;
  CHECK(specd_sample(&rows, &sampling, results.ids.data(), results.statuses.data()) == SPECD_OK);
  CHECK(specd_softmax(&rows, {&temperature, 0}, results.out.data(), nullptr) == SPECD_OK);
  return results;
}

TEST_SUITE("unit") {
  TEST_CASE("device ops: rows in device memory are worked on there, with the bits of the CPU") {
    const OpsDevice d;
    InThread([&] {
      const Results expected = Sampled(d.Rows(false));
      CHECK(expected.statuses[3] == SPECD_STATUS_BAD_DISTRIBUTION);
      CHECK(expected.ids[3] == -1);
      CHECK(d.device.driver.num_launches == 0);
      CHECK(Sampled(d.Rows(true)) == expected);
      CHECK(d.device.driver.num_launches > 0);
    });
  }

  TEST_CASE("device ops: a device by name, for rows of either memory") {
    const OpsDevice d;
    InThread([&] {
      const Results expected = Sampled(d.Rows(false));
      for (const bool on_device : {true, false}) {
        for (const char* const device : {"cuda", "cuda:0"}) {
          const int before = d.device.driver.num_launches;
          specd_rows rows = d.Rows(on_device);
          rows.device = device;
          CHECK(Sampled(rows) == expected);
          CHECK(d.device.driver.num_launches > before);
        }
      }
    });
  }

  TEST_CASE("device ops: a thread keeps one backend for all spellings of a device") {
    OpsDevice d;
    InThread([&] {
      specd_rows rows = d.Rows(true);
      Results results;
      REQUIRE(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
      const FakeGpuDriver* const driver = d.device.rounds;
      d.device.rounds = nullptr;  // set when another backend is made
      for (const char* const device : {"cuda", "cuda:0", "cuda:00"}) {
        rows.device = device;
        REQUIRE(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
        CHECK(d.device.rounds == nullptr);
      }
      rows.device = nullptr;
      rows.num_rows = 1;
      rows.vocab_size = kVocab + 1;  // more than before
      REQUIRE(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
      CHECK(d.device.rounds != nullptr);
      CHECK(driver != nullptr);
    });
  }

  TEST_CASE("device ops: the work comes after that on the caller's CUDA stream") {
    OpsDevice d;
    InThread([&] {
      int stream = 0;
      specd_rows rows = d.Rows(true);
      rows.cuda_stream = &stream;
      const Results expected = Sampled(d.Rows(false));
      // The caller's work, which writes the rows, is on the CUDA stream and has not run.
      auto* const on_device = reinterpret_cast<float*>(d.address);
      const auto clear = [&] { std::fill_n(on_device, d.host.size(), 1.0f); };
      d.device.driver.before_mark = [&] {
        std::copy(d.host.begin(), d.host.end(), on_device);
        return GpuResult::Ok();
      };
      const specd_rows on_host = d.Rows(false);
      Results results, wanted;
      CHECK(specd_argmax(&on_host, wanted.ids.data(), nullptr) == SPECD_OK);
      CHECK(specd_softmax(&on_host, {nullptr, 0}, wanted.out.data(), nullptr) == SPECD_OK);
      clear();
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
      CHECK(d.device.driver.marked == &stream);
      clear();
      CHECK(specd_softmax(&rows, {nullptr, 0}, results.out.data(), nullptr) == SPECD_OK);
      CHECK(results == wanted);
      d.device.driver.before_mark = nullptr;
      CHECK(Sampled(rows) == expected);

      d.device.driver.failing_call = "EnqueueAfterMark";
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_ERROR_INTERNAL);
      CHECK(LastErrorHas("fake failure of EnqueueAfterMark"));
      d.device.driver.failing_call = "";
      d.device.driver.devices_of_streams[&stream] = 1;
      results = Results();
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("cuda_stream is of device 1"));
      CHECK(results.ids[0] == -2);
    });
  }

  TEST_CASE("device ops: bug: a default CUDA stream was refused if another device was current") {
    OpsDevice d;
    InThread([&] {
      const Results expected = Sampled(d.Rows(false));
      for (const uintptr_t handle : {1, 2}) {  // cudaStreamLegacy, cudaStreamPerThread
        auto* const stream = reinterpret_cast<void*>(handle);
        d.device.driver.devices_of_streams[stream] = 1;  // the device that is current
        specd_rows rows = d.Rows(true);
        rows.cuda_stream = stream;
        CHECK(Sampled(rows) == expected);
        CHECK(d.device.driver.marked == stream);
      }
    });
  }

  TEST_CASE("device ops: what is refused") {
    OpsDevice d;
    InThread([&] {
      Results results;
      const auto argmax = [&](const specd_rows& rows) {
        return specd_argmax(&rows, results.ids.data(), nullptr);
      };
      specd_rows rows = d.Rows(true);
      rows.device = "cpu";
      CHECK(argmax(rows) == SPECD_ERROR_UNSUPPORTED);
      CHECK(LastErrorHas("rows.device = \"cpu\" does not read rows.data"));
      rows.device = "tpu";
      CHECK(argmax(rows) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("the backends are \"cpu\", \"cuda\""));
      rows.device = "cuda:1";
      CHECK(argmax(rows) == SPECD_ERROR_NOT_FOUND);
      CHECK(LastErrorHas("devices 0 .. 0"));
      rows.device = "";
      CHECK(argmax(rows) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("rows.device = \"\""));
      int stream = 0;
      specd_rows on_host = d.Rows(false);
      on_host.cuda_stream = &stream;
      CHECK(argmax(on_host) == SPECD_ERROR_UNSUPPORTED);
      CHECK(
          LastErrorHas("backend \"cpu\" follows no CUDA stream; wait for the stream and leave "
                       "cuda_stream NULL, or name the GPU in rows.device"));
      on_host.device = "cuda";  // the remedy
      CHECK(argmax(on_host) == SPECD_OK);
      results = Results();
      // Other arrays in device memory, which the library would read or write on the host.
      const specd_rows good = d.Rows(true);
      auto* const on_device = reinterpret_cast<float*>(d.device.address);
      CHECK(specd_softmax(&good, {nullptr, 0}, on_device, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("out is memory of cuda:0"));
      CHECK(specd_argmax(&good, reinterpret_cast<int32_t*>(on_device), nullptr) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("ids is memory of cuda:0"));
      rows = d.Rows(false);
      rows.indices = reinterpret_cast<const uint32_t*>(on_device);
      rows.num_indices = 1;
      CHECK(argmax(rows) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("indices is memory of cuda:0"));
      const specd_rows host_rows = d.Rows(false);
      const auto* const numbers = reinterpret_cast<const double*>(on_device);
      CHECK(specd_softmax(&host_rows, {numbers, 0}, results.out.data(), nullptr) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("temperature is memory of cuda:0"));
      specd_sampling sampling;
      specd_sampling_init(&sampling);
      sampling.seed.items = reinterpret_cast<const uint64_t*>(on_device);
      CHECK(specd_sample(&host_rows, &sampling, results.ids.data(), nullptr) ==
            SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(LastErrorHas("seed is memory of cuda:0"));
      CHECK(results.ids[0] == -2);
    });
  }

  TEST_CASE(
      "device ops: bug: rows were taken for host memory if the GPU did not say where they lie") {
    OpsDevice d;
    InThread([&] {
      Results results;
      const specd_rows rows = d.Rows(true);
      int after = 0;  // the queries that succeed
      for (const char* const asked : {"asked where ids lies", "asked where rows.data lies"}) {
        d.device.gpu.Inject({.call = "Describe", .after = after++, .code = kGpuIllegalAddress});
        CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_ERROR_INTERNAL);
        CHECK(LastErrorHas(asked));
        CHECK(LastErrorHas("Describe"));
        CHECK(results.ids[0] == -2);
      }
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
    });
  }

  TEST_CASE("device ops: after a failure of the device the next call begins anew") {
    OpsDevice d;
    InThread([&] {
      Results results;
      const specd_rows rows = d.Rows(true);
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
      const Results expected = results;
      d.device.driver.failing_call = "LaunchGraph";
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_ERROR_INTERNAL);
      CHECK(LastErrorHas("the GPU failed"));
      d.device.driver.failing_call = "";
      results = Results();
      CHECK(specd_argmax(&rows, results.ids.data(), nullptr) == SPECD_OK);
      CHECK(results == expected);
    });
  }
}

}  // namespace
}  // namespace specd::test
