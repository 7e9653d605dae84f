// Makes segments, memfds and rounds for the tests of ipc. Each test makes its own; not thread-safe.
// The Pair below has both ends of one session.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "ipc/base/unique_fd.h"
#include "ipc/segment/daemon_channel.h"
#include "ipc/segment/engine_channel.h"
#include "ipc/segment/layout.h"
#include "ipc/segment/segment.h"

namespace specd::test {

inline constexpr SessionLimits kSmallLimits{32000, 4, 8, 3, 4, 2};

inline Segment MakeSegment(const SessionLimits& limits = kSmallLimits) {
  absl::StatusOr<Segment> segment = Segment::Create(limits, {7, 11});
  REQUIRE(segment.ok());
  return *std::move(segment);
}

// A memfd of that size with those seals.
inline UniqueFd MakeMemfd(uint64_t size_bytes, int seals) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(fd.valid());
  REQUIRE(ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0);
  if (seals != 0) REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return fd;
}

inline UniqueFd Duplicate(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  REQUIRE(copy.valid());
  return copy;
}

// The memory of one draft, to which a SequenceInput can point.
struct DraftBuffers {
  std::vector<TokenId> tokens;
  std::vector<DraftKind> kinds;
  std::vector<uint32_t> target_rows;
  std::vector<uint32_t> draft_rows;
  // Empty: the input does not have it.
  std::vector<float> draft_weights = {};
  std::vector<double> draft_masses = {};
  std::vector<TokenId> target_argmax = {};
  std::vector<int32_t> mask_rows = {};

  SequenceInput View(uint64_t sequence) const {
    const auto data = [](const auto& list) { return list.empty() ? nullptr : list.data(); };
    SequenceInput input;
    input.sequence = sequence;
    input.draft = {.num_nodes = static_cast<int32_t>(tokens.size()),
                   .tokens = tokens.data(),
                   .kinds = kinds.data(),
                   .target_rows = target_argmax.empty() ? target_rows.data() : nullptr,
                   .draft_rows = draft_rows.data(),
                   .draft_weights = data(draft_weights),
                   .draft_masses = data(draft_masses),
                   .target_argmax = data(target_argmax)};
    input.mask_rows = data(mask_rows);
    return input;
  }
};

// Two sampled tokens 10 and 11, with rows 0..2 and 0..1.
inline DraftBuffers TwoTokens() {
  return {{10, 11}, {DraftKind::kSampled, DraftKind::kOneHot}, {0, 1, 2}, {0, 1}};
}

// The same with a side channel and mask rows.
inline DraftBuffers TwoTokensWithAll() {
  DraftBuffers draft = TwoTokens();
  draft.draft_weights = {0.5f, 0.25f};
  draft.draft_masses = {2.0, 4.0};
  draft.mask_rows = {-1, 29, 0};
  return draft;
}

inline constexpr uint64_t kSequence0 = uint64_t{1} << 32;

// Both ends of one session, in this process.
struct Pair {
  explicit Pair(const SessionLimits& limits = kSmallLimits)
      : segment(MakeSegment(limits)), engine(&segment), daemon(&segment), copy(limits) {
    daemon.SetRowLimits({100, 50, 30});
  }

  PushResult Submit(uint64_t round_id, const DraftBuffers& draft, uint64_t sequence = kSequence0) {
    const SequenceInput drafts[] = {draft.View(sequence)};
    return engine.Submit(round_id, drafts, 1);
  }
  SubmissionEntry* entry(int i) { return segment.submission_entries() + i; }
  char* draft_record(int i) {
    return segment.at(segment.layout().draft_payload_offset +
                      static_cast<uint64_t>(i) * segment.layout().draft_record_bytes);
  }
  // Answers every record with kOk and no tokens.
  void CompleteEmpty() {
    std::vector<SequenceResult> results(copy.records().size());
    daemon.Complete(copy, results, 3);
  }

  Segment segment;
  EngineChannel engine;
  DaemonChannel daemon;
  SubmissionCopy copy;
  CompletionView completion;
};

}  // namespace specd::test
