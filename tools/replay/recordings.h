// FindRecordings tells the recordings of a folder apart: a recording is what one session of one
// process wrote, in one file or in several.
//
// The recorder's file names have the process and the session. Pids come again, and embedded engines
// of one process share session numbers, so the records decide too: a later file goes on where the
// files before it ended, or repeats their rounds (the dumps of a flight recorder), and it knows the
// same sequences by the same times of opening. A trace is never the sum of two recordings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/trace/trace_record.h"

namespace specd::replay {

struct Recording {
  uint64_t number = 0;                  // from 1, in the order of the beginnings
  std::vector<std::string> files = {};  // in their order
  std::string process = {};  // the pid in the files' names; empty: they have another form
  uint64_t session = 0;
  int64_t start_unix_ns = 0;
  uint64_t first_round = 0;                // 0: the files have none
  std::vector<std::string> triggers = {};  // of the dumps of a flight recorder
};

// The recordings that a command is asked for. Every member narrows them.
struct RecordingChoice {
  std::optional<uint64_t> session;
  std::optional<uint64_t> number;
};

// `paths` are files and directories. One file is one recording and is not opened. INVALID_ARGUMENT
// lists the recordings if none is of the choice.
absl::StatusOr<std::vector<Recording>> FindRecordings(const std::vector<std::string>& paths,
                                                      const RecordingChoice& choice);

struct PresentRecording {
  std::vector<std::string> files;
  bool is_growing = false;  // a recorder still writes the last file
};

// What a recorder that runs has written, by the name of its last file: the files of the recording
// in that folder. Of a flight recorder `path` alone: each dump has all rounds that were kept.
absl::StatusOr<PresentRecording> PresentRecordingOf(const std::string& path);

// One line for each recording, with a head.
std::string RecordingTable(const std::vector<Recording>& recordings);
// "recording 2 (session 2 of process 4711, from 2026-11-29T18:00:00.000Z)"
std::string NameOf(const Recording& recording);
// The error of a command that reads one recording.
absl::Status TooMany(const std::vector<Recording>& recordings);

}  // namespace specd::replay
