// SessionRecord keeps what an engine has told its daemon, so that it can tell the next one.
//
// An answer of specd depends on rows, drafts, parameters, seeds and kept tokens, and the engine has
// all of them. The record holds the regions, what is bound, and of each open sequence its opening
// and the tokens that the engine has taken. The engine's numbers of regions stay the same at every
// daemon; the record has the daemon's. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/client/engine_link.h"
#include "daemon/client/open_message.h"
#include "ipc/base/unique_fd.h"
#include "ipc/segment/engine_channel.h"

namespace specd {

// True if a later try may go better: the daemon is gone, or it does not take engines or sequences
// now.
bool IsForNow(const absl::Status& status);

class SessionRecord {
 public:
  // ---- what the engine has done

  // A region that the daemon has registered; returns the engine's number for it. The record keeps a
  // descriptor of its own.
  absl::StatusOr<uint32_t> AddRegion(uint32_t at_daemon, int fd, uint64_t size_bytes);
  // The same for device memory, which is exported anew for each daemon.
  uint32_t AddDeviceRegion(const EngineLink::Registration& at_daemon, uint64_t address,
                           uint64_t size_bytes);
  void RemoveRegion(uint32_t region) { regions_.erase(region); }
  // The daemon's number of a region; of an unknown region, one that the daemon does not know.
  uint32_t RegionAtDaemon(uint32_t region) const;
  bool IsOnDevice(uint32_t region) const;
  // `bound` has the engine's number of the region. `map`: of a draft map, which the daemon copies.
  void AddBinding(const BindTensorRequest& bound, UniqueFd map = UniqueFd());
  // A copy of the map that is to be bound. Invalid where the daemon will refuse the binding.
  absl::StatusOr<UniqueFd> CopyMap(const BindTensorRequest& bound) const;

  // Sequences that were opened with this content, in order.
  void AddOpening(const OpenContent& content, const std::vector<uint64_t>& sequences,
                  const std::vector<uint64_t>& seeds);
  void AddFork(uint64_t source, const std::string& request_id, uint64_t sequence, uint64_t seed);
  void AddAbort(uint64_t sequence);
  // The sequence is to be closed. A daemon that has done that, and dies before it says so, has
  // wiped out the sequence's end.
  void AddClosing(uint64_t sequence, const EngineChannel& channel);
  void RemoveSequence(uint64_t sequence);
  // The engine takes the results of a round.
  void AddResults(const CompletionView& view);

  // ---- for the next daemon

  // Of all handles; 0: there was none.
  uint32_t owner() const { return owner_; }
  uint32_t generation() const { return generation_; }

  // Call it before each try. `is_last`: a sequence that the daemon refuses for now has failed too.
  void BeginTelling(bool is_last) {
    is_last_ = is_last;
    waits_for_sequence_ = false;
  }
  // Registers, binds and opens everything over a link that has said hello. `channel` still shows
  // the states of the sequences at the daemon before. A sequence that the daemon refuses has failed
  // from then on, at later daemons too, and the others go on.
  absl::Status Tell(EngineLink* link, const EngineChannel& channel);
  // True if the last Tell ended at a sequence that is refused for now.
  bool waits_for_sequence() const { return waits_for_sequence_; }

 private:
  struct Region {
    UniqueFd fd;              // invalid: device memory
    uint64_t address = 0;     // of device memory
    uint64_t skip_bytes = 0;  // of device memory: from the region's beginning to the address
    uint64_t size_bytes = 0;
    uint32_t at_daemon = 0;
  };
  struct Bound {
    BindTensorRequest request;
    UniqueFd map;  // the copy of a draft map
  };
  // The content of an opening, which its samples and their forks share.
  struct Opening {
    OpenSequenceRequest request;
    std::vector<int32_t> prompt;
    std::vector<int32_t> lists;  // the ids behind the outputs
    std::string text;
  };
  struct Known {
    std::shared_ptr<const Opening> opening;
    std::string request_id;
    uint64_t sequence = 0;
    uint64_t seed = 0;
    size_t num_given = 0;          // of the outputs: those before its stream began
    std::vector<int32_t> outputs;  // that the engine knows
    double cumulative_logprob = 0;
    uint32_t finish_reason = 0;       // in a result that the engine knows
    std::vector<int32_t> stop_token;  // at most one
    bool is_aborted = false;
    absl::Status refusal = {};  // of a daemon that was told of it; OK: none
  };

  void Add(Known known);
  absl::Status TellMemory(EngineLink* link);
  static absl::Status TellRegion(EngineLink* link, Region* region);
  static absl::Status TellMap(EngineLink* link, const Bound& bound);
  // Those that were pending at the daemon before, or were refused; or the others.
  absl::Status TellSequences(EngineLink* link, const EngineChannel& channel, bool pending);
  // Tells of as many sequences from *next on as one message has, `max` at most, and moves *next
  // behind them. False: one was refused, which fails alone, and *next is where it was.
  absl::StatusOr<bool> TellSome(EngineLink* link, const EngineChannel& channel, bool pending,
                                size_t max, std::map<uint32_t, Known>::iterator* next);
  // Takes over an end that shared memory has.
  static void TakeEnd(const EngineChannel& channel, Known* known);
  static OpenContent ContentOf(const Known& known);

  std::map<uint32_t, Region> regions_;   // by the engine's number
  std::vector<Bound> bindings_;          // in order
  std::map<uint32_t, Known> sequences_;  // by slot
  bool is_last_ = false;                 // of this try
  bool waits_for_sequence_ = false;
  uint32_t next_region_ = 1;
  uint32_t owner_ = 0;
  uint32_t generation_ = 0;
};

}  // namespace specd
