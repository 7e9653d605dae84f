// Member is the rank's side of its place in an engine's session, for the C functions of
// specd_member.
//
// A member has a link to the daemon and the memory in which its next tokens are written.
// member_api.cc wraps every method for C; errors are made with ipc/base/error.h. One thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/engine_link.h"
#include "ipc/include/specd/specd.h"

namespace specd {

class Member {
 public:
  static absl::StatusOr<std::unique_ptr<Member>> Join(const std::string& uri,
                                                      const std::string& token,
                                                      const specd_join_options& options);

  absl::Status BindDevice(uint64_t address, uint64_t num_rows);
  absl::Status BindFd(int fd, uint64_t size_bytes, uint64_t offset_bytes, uint64_t num_rows);
  // An error if the session or the daemon has ended.
  absl::Status Check() const;
  absl::Status Leave() { return link_->Finish(); }

 private:
  Member(std::unique_ptr<EngineLink> link, uint32_t rank) : link_(std::move(link)), rank_(rank) {}

  // Binds next tokens in a region that was registered for them, and unregisters the region before
  // it.
  absl::Status Bind(uint32_t region, uint64_t offset_bytes, uint64_t num_rows);
  absl::StatusOr<Reply> Call(const Request& request, int fd);

  const std::unique_ptr<EngineLink> link_;
  const uint32_t rank_;
  std::optional<uint32_t> region_;  // the region that is bound
};

}  // namespace specd
