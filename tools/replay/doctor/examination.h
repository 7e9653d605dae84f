// Examination is one recording as the doctor has examined it: its findings, and the figures that
// they come from.
//
// `specd-replay doctor` prints one, and `specctl doctor` those of a daemon. One thread.
//
//   absl::StatusOr<Examination> examination = Examine({.paths = paths}, MakeCpuBackend());
//   if (examination.ok()) PrintAll(*examination, paint);
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/replay/doctor/findings.h"
#include "tools/replay/replay_backend.h"
#include "tools/replay/trace_reader.h"

namespace specd::replay {

enum class RowsUse {
  kIfRecorded,  // a file of rows that the trace names and that cannot be read is an error
  kAll,         // a draft without rows is an error too
  kNone,        // the recorded numbers alone
};

struct ExaminationOptions {
  std::vector<std::string> paths;  // the files of one recording
  bool is_growing = false;         // a recorder still writes the last file
  TraceFilter filter = {};
  std::string tokenizer = {};  // its file; empty: no classes of tokens
  int32_t threads = 1;
  Costs costs = {};
  RowsUse rows = RowsUse::kIfRecorded;
};

struct Examination {
  std::unique_ptr<ReplayBackend> backend;  // of `doctor`
  std::unique_ptr<Doctor> doctor;
  std::vector<Finding> findings;
  std::vector<LengthGain> lengths;
  std::vector<std::string> warnings;  // of the reader

  bool has_fault() const { return !findings.empty() && findings.front().is_fault; }
};

// OUT_OF_RANGE: no draft was judged. An error names the file that cannot be read.
absl::StatusOr<Examination> Examine(const ExaminationOptions& options,
                                    std::unique_ptr<Backend> backend);

}  // namespace specd::replay
