// Member is the rank's side of its place in an engine's session, for the C functions of
// specd_member.
//
// A member has a link to the daemon and the memory in which its slot outputs are written.
// member_api.cc wraps every method for C; errors are made with ipc/base/error.h. One thread at a
// time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
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

  // Binds the slot output with this role of the first replica. The tensor has no region.
  absl::Status BindDevice(uint32_t role, uint64_t address, uint64_t size_bytes,
                          const specd_tensor& tensor);
  absl::Status BindFd(uint32_t role, int fd, uint64_t size_bytes, const specd_tensor& tensor);
  // An error if the session or the daemon has ended.
  absl::Status Check() const;
  absl::Status Leave() { return link_->Finish(); }

 private:
  Member(std::unique_ptr<EngineLink> link, uint32_t rank) : link_(std::move(link)), rank_(rank) {}

  // Binds a tensor in a region that was registered for it, and unregisters the region before it.
  absl::Status Bind(uint32_t role, const RegionReply& region, const specd_tensor& tensor,
                    uint64_t skip_bytes);
  absl::StatusOr<Reply> Call(const Request& request, int fd);

  const std::unique_ptr<EngineLink> link_;
  const uint32_t rank_;
  std::map<uint32_t, uint32_t> regions_;  // the bound ones, by role
};

}  // namespace specd
