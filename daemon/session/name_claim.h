// NameClaim claims the names of an opening's sequences, and releases them unless they are kept.
//
// An opening that fails therefore leaves no name behind. The wanted names must outlive the object.
// One thread at a time.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "daemon/session/shared_names.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {

class NameClaim {
 public:
  NameClaim(SharedNames* names, std::span<const std::string> wanted)
      : names_(names), wanted_(wanted) {}
  ~NameClaim() {
    for (const std::string& name : wanted_.first(num_claimed_)) names_->Release(name);
  }
  NameClaim(const NameClaim&) = delete;
  NameClaim& operator=(const NameClaim&) = delete;

  absl::Status ClaimAll() {
    for (const std::string& name : wanted_) {
      if (!names_->Claim(name)) {
        return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "request_id",
                         fmt::format("request_id = \"{}\" is the name of a sequence that is open; "
                                     "names must be unique among open sequences",
                                     name));
      }
      ++num_claimed_;
    }
    return absl::OkStatus();
  }

  // After a refusal the index of the name that is taken.
  size_t num_claimed() const { return num_claimed_; }

  void Keep() { num_claimed_ = 0; }

 private:
  SharedNames* const names_;
  const std::span<const std::string> wanted_;
  size_t num_claimed_ = 0;
};

}  // namespace specd
