// UseBackend gives a library call the backend of its device: the one that the call names, or the
// one that reads its rows.
//
// A thread keeps a few prepared backends for its next calls. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/include/specd/ops.h"
#include "kernels/backend.h"
#include "kernels/core/round.h"

namespace specd {

// The rows that go to the backend at once. The number bounds the backend's workspace, not the call.
inline constexpr size_t kOpsChunkRows = 64;

class OpsBackend {
 public:
  // Makes a backend for rows of up to vocab_size ids. `device` is in the spelling of
  // BackendRegistry::FullName.
  static absl::StatusOr<OpsBackend> Make(const std::string& device, int32_t vocab_size);

  // As Backend has them. After an error the thread makes another backend for its next call.
  absl::Status Run(const RoundBatch& batch) { return Note(backend_->Run(batch)); }
  absl::Status Transform(const TransformBatch& batch) { return Note(backend_->Transform(batch)); }
  absl::Status FollowStream(void* stream) { return backend_->FollowStream(stream); }

  // Whether the next call for this device may use this backend.
  bool Serves(std::string_view device, int32_t vocab_size) const {
    return !has_failed_ && device == device_ && vocab_size <= vocab_size_;
  }
  const std::string& device() const { return device_; }
  // Whether rounds read the memory of this device of EngineDevice's list.
  bool Reads(size_t device_index);

 private:
  OpsBackend(std::string device, int32_t vocab_size, std::unique_ptr<Backend> backend)
      : device_(std::move(device)), vocab_size_(vocab_size), backend_(std::move(backend)) {}
  absl::Status Note(absl::Status status) {
    has_failed_ = has_failed_ || !status.ok();
    return status;
  }

  std::string device_;
  int32_t vocab_size_ = 0;
  std::unique_ptr<Backend> backend_;
  std::optional<size_t> device_index_ = std::nullopt;  // of its memory, once it is known
  bool has_failed_ = false;
};

// Sets view->space. REQUIRES: the rows are checked, and `view` describes them. The pointer is valid
// until the thread's next call.
absl::StatusOr<OpsBackend*> UseBackend(const specd_rows& rows, TensorView* view);

// The library reads and writes these arrays on the host. The pairs are names and addresses; null
// ones are not looked at.
absl::Status CheckOnHost(std::initializer_list<std::pair<std::string_view, const void*>> arrays);

}  // namespace specd
