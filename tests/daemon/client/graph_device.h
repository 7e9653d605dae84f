// GraphDevice makes a pretended device of this process for tests of embedded:cuda.
//
// It has memory for the tensors of the engine's model. embedded:cuda finds the device that was made
// last. One thread.
#pragma once

#include <memory>

#include "kernels/core/gpu_context.h"
#include "tests/daemon/client/graph_generator.h"
#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/gpu/driver/fake_gpu_driver.h"

namespace specd::test {

struct GraphDevice {
  GraphDevice();
  ~GraphDevice();
  GraphDevice(const GraphDevice&) = delete;
  GraphDevice& operator=(const GraphDevice&) = delete;

  void OpenEngine(void* cuda_stream = nullptr, const TraceOf& trace = {});
  void BindAll();

  FakeGpuContext gpu{FakeGpuOptions(), 0};
  FakeGpu driver;
  FakeGpuDriver* rounds = nullptr;  // of the engine that was opened last
  GpuAddress address = 0;
  std::unique_ptr<Generator> g;
};

}  // namespace specd::test
