// HeldWorker is a piece of work that ends when the test says so. Until then a StreamWorker does
// nothing else, so that the order of what is enqueued meanwhile follows from the seed alone.
#pragma once

#include <absl/status/status.h>

#include <future>
#include <memory>

#include "tests/gpu/ptx/runtime/stream_worker.h"

namespace specd::ptx {

class HeldWorker {
 public:
  // enqueue(work) enqueues it. Returns once the work has begun.
  template <typename Enqueue>
  explicit HeldWorker(const Enqueue& enqueue) {
    enqueue(Work([state = state_] {
      state->has_begun.set_value();
      state->may_end.get_future().wait();
      return absl::OkStatus();
    }));
    state_->has_begun.get_future().wait();
  }
  HeldWorker(const HeldWorker&) = delete;
  HeldWorker& operator=(const HeldWorker&) = delete;
  ~HeldWorker() { Release(); }

  void Release() {
    if (!is_released_) state_->may_end.set_value();
    is_released_ = true;
  }

 private:
  struct State {
    std::promise<void> has_begun;
    std::promise<void> may_end;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  bool is_released_ = false;
};

}  // namespace specd::ptx
