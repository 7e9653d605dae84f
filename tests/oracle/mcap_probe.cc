// specd_mcap_probe write FILE CHUNK_SIZE: takes one command in each line of stdin and writes a
// trace. specd_mcap_probe read FILE: prints what it reads from one. For mcap_oracle.py.
//
// Strings are in hexadecimal, and empty ones are "-". Commands: "channel TOPIC ENCODING [KEY
// VALUE]...", "message CHANNEL_ID SEQUENCE TIME PAYLOAD", "metadata NAME [KEY VALUE]...", "flush",
// "finish". Without "finish" the trace is a torn one.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

#include "daemon/trace/mcap_reader.h"
#include "daemon/trace/mcap_writer.h"
#include "daemon/trace/row_file.h"

namespace specd {
namespace {

std::string Unhex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; digits != "-" && i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string Hex(std::string_view bytes) {
  std::string digits;
  for (const char byte : bytes) digits += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return digits.empty() ? "-" : digits;
}

std::string TakeText(std::istringstream* words) {
  std::string word;
  *words >> word;
  return Unhex(word);
}

uint64_t TakeNumber(std::istringstream* words) {
  uint64_t number = 0;
  *words >> number;
  return number;
}

McapMap TakeMap(std::istringstream* words) {
  McapMap values;
  for (std::string key, value; *words >> key >> value;) {
    values.emplace_back(Unhex(key), Unhex(value));
  }
  return values;
}

absl::Status Do(std::istringstream words, McapWriter* writer) {
  std::string command;
  words >> command;
  if (command == "flush") return writer->Flush();
  if (command == "finish") return writer->Finish();
  if (command == "message") {
    McapWriter::Message message;
    message.channel_id = static_cast<uint16_t>(TakeNumber(&words));
    message.sequence = static_cast<uint32_t>(TakeNumber(&words));
    message.log_time_ns = TakeNumber(&words);
    const std::string payload = TakeText(&words);
    message.payload = AsBytes(payload);
    return writer->Write(message);
  }
  const std::string name = TakeText(&words);
  if (command == "metadata") return writer->WriteMetadata(name, TakeMap(&words));
  const std::string encoding = TakeText(&words);
  if (command != "channel") return absl::InvalidArgumentError("no such command: " + command);
  return writer->AddChannel({.topic = name, .encoding = encoding, .metadata = TakeMap(&words)})
      .status();
}

absl::Status WriteTrace(const std::string& path, size_t chunk_size_bytes) {
  absl::StatusOr<McapWriter> writer =
      McapWriter::Create(path, {.chunk_size_bytes = chunk_size_bytes});
  if (!writer.ok()) return writer.status();
  for (std::string line; std::getline(std::cin, line);) {
    if (absl::Status status = Do(std::istringstream(line), &*writer); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadTrace(const std::string& path) {
  absl::StatusOr<McapReader> reader = McapReader::Open(path, {});
  if (!reader.ok()) return reader.status();
  fmt::print("header {} {}\n", Hex(reader->profile()), Hex(reader->library()));
  McapMessage message;
  absl::StatusOr<bool> more = reader->Next(&message);
  for (; more.ok() && *more; more = reader->Next(&message)) {
    const std::string_view payload(reinterpret_cast<const char*>(message.payload.data()),
                                   message.payload.size());
    fmt::print("message {} {} {} {} {} {}\n", Hex(message.topic), Hex(message.encoding),
               message.channel_id, message.sequence, message.log_time_ns, Hex(payload));
  }
  for (const McapMetadata& metadata : reader->metadata()) {
    fmt::print("metadata {}", Hex(metadata.name));
    for (const auto& [key, value] : metadata.values) fmt::print(" {} {}", Hex(key), Hex(value));
    fmt::print("\n");
  }
  if (IsTornFile(more.status())) {
    fmt::print("torn\n");
    return absl::OkStatus();
  }
  if (more.ok()) fmt::print("end\n");
  return more.status();
}

absl::Status WriteRows(const std::string& path) {
  absl::StatusOr<RowFileWriter> writer = RowFileWriter::Create(path);
  if (!writer.ok()) return writer.status();
  for (std::string line; std::getline(std::cin, line);) {
    const absl::StatusOr<uint64_t> offset = writer->Append(AsBytes(Unhex(line)));
    if (!offset.ok()) return offset.status();
    fmt::print("{}\n", *offset);
  }
  return writer->Finish();
}

}  // namespace
}  // namespace specd

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  absl::Status status;
  if (command == "write" && argc == 4) {
    status = specd::WriteTrace(argv[2], std::stoul(argv[3]));
  } else if (command == "read" && argc == 3) {
    status = specd::ReadTrace(argv[2]);
  } else if (command == "rows" && argc == 3) {
    status = specd::WriteRows(argv[2]);
  } else {
    fmt::print(stderr, "usage: specd_mcap_probe write FILE CHUNK_SIZE | read FILE | rows FILE\n");
    return 2;
  }
  if (!status.ok()) fmt::print(stderr, "{}\n", std::string(status.message()));
  return status.ok() ? 0 : 1;
}
