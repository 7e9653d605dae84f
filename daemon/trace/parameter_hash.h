// Hashes of a task's parameters, which a trace keeps at every level.
//
// EditsHash and OverridesHash stand for the lists of token edits, which level `rows` alone records.
// Two tasks with other edits have other hashes, so diff can name them without the lists.
// ParametersHash covers the recorded parameters and these two hashes, so verify finds a bit of
// them that has changed, whether it changes an answer or not. The numbers are those of RowHash:
// equal in every process and on every machine of the same byte order. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "daemon/trace/trace_record.h"
#include "kernels/core/edits.h"

namespace specd {

// Hashes the edits of every row of a sequence: biases, bans, counts, and allowed_token_ids as mask
// words. Never 0.
uint64_t EditsHash(std::span<const TokenEdit> edits, std::span<const uint32_t> allowed);

// Hashes the edits of single places, which depend on the draft. The caller leaves out places behind
// the end of the draft, because no processor reads them.
class OverridesHash {
 public:
  void Add(size_t place, std::span<const TokenEdit> overrides);
  // 0: no place has an override.
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// The same hashes of lists in a record.
uint64_t RecordedEditsHash(const TraceTask& task);
uint64_t RecordedOverridesHash(const TraceTask& task, int32_t vocab_size);

// Hashes method, scales, filters, penalties, scores, seed, coins, positions, the numbers of the
// places, and the two hashes above as they are in the record. Never 0. A member that a later
// version adds is no part of it while it has its default. The hash does not cover the dtypes and
// rules of the tensors, the draft tokens and their kinds, the side channel, `continues`,
// `drafts_by_slot`, the grammar state and the mask index of a place, and the outcome.
uint64_t ParametersHash(const TraceTask& task);

}  // namespace specd
