// Anonymiser takes text and ids out of the records of a trace and keeps the numbers.
//
// Request ids become r1, r2, ... Token ids are numbered within one task, in the order in which they
// occur; equal ids of a task stay equal, and ids outside the vocabulary stay outside. Rows, masks,
// edits and their hashes are dropped, as are stop ids and the names of files. Seeds, coins, p, q
// and times stay. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/trace/trace_record.h"

namespace specd::replay {

class Anonymiser {
 public:
  void Take(TraceInfo* info);
  void Take(TraceOpening* opening);
  void Take(TraceRound* round);

 private:
  class TaskIds;
  void Take(TraceTask* task) const;

  int32_t vocab_size_ = 0;
  std::unordered_map<std::string, std::string> requests_;
};

}  // namespace specd::replay
