// HostTrees copies trees by slot to the host for RoundPacker, and makes ordinary drafts of them.
//
// The host needs them for sequences whose parameters look at draft tokens, and for trees in host
// memory: those are the host's own. One draft for each input of a round. The limits size the
// memory once. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/core/sequence_round.h"
#include "kernels/core/slot_tree.h"

namespace specd {

class HostTrees {
 public:
  explicit HostTrees(const BackendLimits& limits);

  // Forgets the trees of the last round.
  void Clear() { reads_.clear(); }
  // Asks for the tree of this input. REQUIRES: rows.is_bound(), and fewer inputs than max_batch.
  void Ask(const TreeRows& rows, size_t index, const SequenceInput& input);
  // Copies all trees that were asked for.
  absl::Status Read(const TreeRows& rows, Backend* backend);
  // Gives the input the parents and the draft rows of its nodes. If no tree lay there, the input
  // has a refusal. REQUIRES: the tree was read, and the input's tokens lie in `tokens`.
  void Give(const TreeRows& rows, size_t index, TokenId* tokens, SequenceInput* input);

 private:
  char* CopyOf(size_t index) { return &copies_[index * copy_bytes_]; }

  const size_t max_draft_;
  const int32_t max_path_;
  const size_t copy_bytes_;  // of the numbers of one tree, int64 at most
  std::vector<char> copies_;
  std::vector<int32_t> numbers_;  // of the tree that is made
  std::vector<int32_t> parents_;
  std::vector<uint32_t> draft_rows_;
  std::vector<MemoryRead> reads_;
};

}  // namespace specd
