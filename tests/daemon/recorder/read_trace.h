// ReadTrace reads a whole trace into memory, for tests of the recorder.
//
// A record that cannot be decoded fails the test. A torn file is no failure: is_torn says so.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "daemon/trace/mcap_reader.h"
#include "daemon/trace/row_file.h"
#include "daemon/trace/trace_codec.h"
#include "daemon/trace/trace_record.h"

namespace specd::test {

struct ReadTraceResult {
  std::vector<TraceInfo> infos;
  std::vector<TraceOpening> openings;
  std::vector<TraceEnd> ends;
  std::vector<TraceRound> rounds;
  std::vector<TraceDrops> drops;
  std::vector<McapMetadata> metadata;
  std::vector<std::string> topics;  // in the order of the file
  bool is_torn = false;

  const TraceOpening* Opening(SequenceHandle sequence) const {
    for (const TraceOpening& opening : openings) {
      if (opening.sequence == sequence) return &opening;
    }
    return nullptr;
  }
};

template <class Record>
void AddRecord(std::string_view payload, std::vector<Record>* to) {
  absl::StatusOr<Record> record = DecodeTrace<Record>(payload);
  REQUIRE_MESSAGE(record.ok(), std::string(record.status().message()));
  to->push_back(*std::move(record));
}

inline ReadTraceResult ReadTrace(const std::string& path) {
  ReadTraceResult result;
  absl::StatusOr<McapReader> reader = McapReader::Open(path, {});
  REQUIRE_MESSAGE(reader.ok(), std::string(reader.status().message()));
  McapMessage message;
  absl::StatusOr<bool> more = true;
  while ((more = reader->Next(&message)).ok() && *more) {
    const std::string_view payload(reinterpret_cast<const char*>(message.payload.data()),
                                   message.payload.size());
    CHECK(message.encoding == kTraceEncoding);
    result.topics.emplace_back(message.topic);
    if (message.topic == kTraceInfoTopic) AddRecord(payload, &result.infos);
    if (message.topic == kTraceOpeningTopic) AddRecord(payload, &result.openings);
    if (message.topic == kTraceEndTopic) AddRecord(payload, &result.ends);
    if (message.topic == kTraceRoundTopic) AddRecord(payload, &result.rounds);
    if (message.topic == kTraceDropsTopic) AddRecord(payload, &result.drops);
    for (const McapMetadata& metadata : reader->metadata()) result.metadata.push_back(metadata);
  }
  for (const McapMetadata& metadata : reader->metadata()) result.metadata.push_back(metadata);
  result.is_torn = !more.ok();
  if (!more.ok()) CHECK_MESSAGE(IsTornFile(more.status()), std::string(more.status().message()));
  return result;
}

// The traces of a directory in the order in which they were begun.
inline std::vector<std::string> TracesIn(const std::string& directory) {
  std::map<int64_t, std::string> by_number;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".mcap")) continue;
    const size_t dash = name.rfind('-');
    by_number[std::stoll(name.substr(dash + 1))] = entry.path().string();
  }
  std::vector<std::string> paths;
  for (const auto& [number, path] : by_number) paths.push_back(path);
  return paths;
}

// The bytes of a row as floats.
inline std::vector<float> RowFloats(const std::string& row_path, uint64_t offset, size_t count) {
  const absl::StatusOr<RowFileReader> reader = RowFileReader::Open(row_path);
  REQUIRE_MESSAGE(reader.ok(), std::string(reader.status().message()));
  std::vector<float> row(count);
  const absl::Status status =
      reader->Read({.entry_offset = offset / kRowFileAlignment * kRowFileAlignment,
                    .skip_bytes = offset % kRowFileAlignment},
                   std::as_writable_bytes(std::span(row)));
  REQUIRE_MESSAGE(status.ok(), std::string(status.message()));
  return row;
}

}  // namespace specd::test
