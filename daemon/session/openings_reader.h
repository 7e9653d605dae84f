// OpeningsReader opens the sequences of one OpenSequences message, for ControlService.
//
// The openings travel in a file beside the message, as messages one behind the other. All of them
// are opened, or none. An object is for one message; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/pending_opening.h"
#include "daemon/session/pending_openings.h"
#include "daemon/session/session.h"
#include "ipc/base/unique_fd.h"
#include "ipc/control/control.h"

namespace specd {

// Explains a field that this protocol does not have. Such a field may be a parameter that a newer
// peer has, and then "unknown" is not enough.
absl::Status ExplainUnknownField(const ControlHeader& header, const absl::Status& status);

class OpeningsReader {
 public:
  // `pending` builds openings that are pending.
  OpeningsReader(std::shared_ptr<Session> session, PendingOpenings* pending)
      : session_(std::move(session)), pending_openings_(pending) {}

  absl::StatusOr<Reply> Open(const OpenSequencesRequest& request, const std::vector<UniqueFd>& fds);

  // The openings so far that have a handle.
  uint64_t num_resumed() const { return num_resumed_; }

 private:
  // Reads the first opening of these bytes, and leaves the rest in them.
  absl::Status PrepareNext(std::span<const uint8_t>* bytes);
  // `infos`: of the sequences of all openings, which have their slots. Those that a daemon before
  // has refused fail now.
  void BuildLater(std::span<const SequenceInfo> infos);

  const std::shared_ptr<Session> session_;
  PendingOpenings* const pending_openings_;
  bool are_pending_ = false;
  PreparedSequences prepared_;
  std::vector<PendingOpening> pending_;  // if they are
  uint64_t num_resumed_ = 0;
};

}  // namespace specd
