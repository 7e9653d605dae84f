// McapReader on files that are cut or changed at every byte.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/daemon/trace/mcap_bytes.h"

namespace specd {
namespace {

struct Trace {
  std::string bytes;
  std::vector<std::string> messages;
  // After each chunk: where its record ends, and the number of messages up to there.
  std::vector<std::pair<size_t, size_t>> chunk_ends;
};

Trace MakeTrace() {
  Trace trace;
  const MemoryFile file;
  absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), {});
  REQUIRE(writer.ok());
  REQUIRE(writer->WriteMetadata("build", {{"backend", "cpu"}}).ok());
  for (const char* topic : {"a", "b"}) {
    REQUIRE(writer->AddChannel({.topic = topic, .encoding = "json", .metadata = {}}).ok());
  }
  uint32_t sequence = 0;
  for (const uint16_t num_messages : {3, 1, 2}) {
    // Message i of a chunk is on channel 1 or 2 in turn, so a chunk has one or two indexes.
    for (uint32_t i = 0; i < num_messages; ++i, ++sequence) {
      const std::string payload(sequence, static_cast<char>('p' + sequence));
      REQUIRE(
          writer->Write({static_cast<uint16_t>(1 + i % 2), sequence, 100, AsBytes(payload)}).ok());
      trace.messages.push_back(std::string(i % 2 == 0 ? "a " : "b ") + std::to_string(sequence) +
                               " 100 " + payload);
    }
    REQUIRE(writer->Flush().ok());
    // An index has 9 + 2 + 4 bytes, and 16 for each message.
    const size_t index_size = 15 * std::min<size_t>(num_messages, 2) + 16 * num_messages;
    trace.chunk_ends.emplace_back(writer->bytes_written() - index_size, trace.messages.size());
  }
  REQUIRE(writer->Finish().ok());
  trace.bytes = file.bytes();
  return trace;
}

bool IsPrefix(const std::vector<std::string>& part, const std::vector<std::string>& whole) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

// Tells whether `part` has messages of `whole` only, in their order.
bool IsPart(const std::vector<std::string>& part, const std::vector<std::string>& whole) {
  auto from = whole.begin();
  for (const std::string& message : part) {
    from = std::find(from, whole.end(), message);
    if (from == whole.end()) return false;
    ++from;
  }
  return true;
}

TEST_SUITE("unit") {
  TEST_CASE("a file cut at any byte yields the messages of its whole chunks") {
    const Trace trace = MakeTrace();
    CHECK(ReadAll(MemoryFile(trace.bytes)).status.ok());
    for (size_t size = 0; size < trace.bytes.size(); ++size) {
      CAPTURE(size);
      size_t num_messages = 0;
      for (const auto& [end, num] : trace.chunk_ends)
        num_messages = end <= size ? num : num_messages;
      const ReadResult read = ReadAll(MemoryFile(std::string_view(trace.bytes).substr(0, size)));
      REQUIRE(IsTornFile(read.status));
      REQUIRE(Contains(read.status, "a.mcap: the file ends at byte " + std::to_string(size)));
      REQUIRE(read.messages.size() == num_messages);
      REQUIRE(IsPrefix(read.messages, trace.messages));
    }
  }

  TEST_CASE("zeros after a cut are a tear, as a lost power leaves them") {
    const Trace trace = MakeTrace();
    const size_t size = trace.chunk_ends[0].first;
    const ReadResult read =
        ReadAll(MemoryFile(trace.bytes.substr(0, size) + std::string(5000, '\0')));
    CHECK(IsTornFile(read.status));
    CHECK(Contains(read.status, "the file ends at byte " + std::to_string(size)));
    CHECK(read.messages.size() == 3);
  }

  TEST_CASE("a flipped bit anywhere in a finished file is found, and changes no message") {
    const Trace trace = MakeTrace();
    for (size_t i = 0; i < trace.bytes.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        CAPTURE(i);
        CAPTURE(bit);
        std::string bytes = trace.bytes;
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
        const ReadResult read = ReadAll(MemoryFile(bytes));
        REQUIRE_FALSE(read.status.ok());
        REQUIRE_FALSE(read.status.message().empty());
        REQUIRE(IsPrefix(read.messages, trace.messages));
      }
    }
  }

  TEST_CASE("a flipped bit in a torn file never changes a message") {
    const Trace trace = MakeTrace();
    const std::string torn = trace.bytes.substr(0, trace.chunk_ends[1].first + 7);
    for (size_t i = 0; i < torn.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        CAPTURE(i);
        CAPTURE(bit);
        std::string bytes = torn;
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
        const ReadResult read = ReadAll(MemoryFile(bytes));
        REQUIRE_FALSE(read.status.ok());
        REQUIRE(IsPrefix(read.messages, trace.messages));
      }
    }
  }

  TEST_CASE("hostile sizes at every byte end with an error and take no memory") {
    const Trace trace = MakeTrace();
    const std::string sizes[] = {std::string(8, '\xff'), std::string(7, '\xff') + '\x7f',
                                 std::string(4, '\xff'), Little(uint64_t{1} << 40, 8),
                                 Little(0x7fffffff, 4),  Little(0, 8)};
    for (const std::string& size : sizes) {
      for (size_t i = 0; i + size.size() <= trace.bytes.size(); ++i) {
        CAPTURE(i);
        std::string bytes = trace.bytes;
        bytes.replace(i, size.size(), size);
        const ReadResult read = ReadAll(MemoryFile(bytes));
        // Zeros may stand where zeros stood; over a checksum they say that there is none.
        REQUIRE((read.status.ok() || !read.status.message().empty()));
        if (size[0] != '\0') REQUIRE((!read.status.ok() || bytes == trace.bytes));
        REQUIRE(IsPart(read.messages, trace.messages));
      }
    }
  }
}  // TEST_SUITE

}  // namespace
}  // namespace specd
