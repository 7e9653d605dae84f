// The bytes that McapWriter writes, compared with bytes put together from the specification.
#include "daemon/trace/mcap_writer.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "daemon/base/version.h"
#include "tests/daemon/trace/mcap_bytes.h"
#include "tests/support/temporary_folder.h"

namespace specd {
namespace {

constexpr McapWriterOptions kNoOptions;

std::string HeadBytes() {
  const std::string library = std::string("specd ") + kVersion;
  return std::string(kMagicBytes) + Record(0x01, Text("specd") + Text(library));
}

TEST_SUITE("unit") {
  TEST_CASE("an MCAP file begins with the magic and a header") {
    const MemoryFile file;
    const absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), kNoOptions);
    REQUIRE(writer.ok());
    const std::string library = std::string("specd ") + kVersion;
    // By hand: opcode 1, the content's size, "specd" and the library, each after its size.
    const std::string expected = std::string("\x89MCAP0\r\n\x01", 9) +
                                 static_cast<char>(4 + 5 + 4 + library.size()) +
                                 std::string(7, '\0') + std::string("\x05\0\0\0specd", 9) +
                                 static_cast<char>(library.size()) + std::string(3, '\0') + library;
    CHECK(file.bytes() == expected);
    CHECK(writer->bytes_written() == expected.size());
    CHECK(writer->bytes_pending() == 0);
  }

  TEST_CASE("a whole MCAP file has the bytes of the specification") {
    const MemoryFile file;
    absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), kNoOptions);
    REQUIRE(writer.ok());
    const absl::StatusOr<uint16_t> rounds =
        writer->AddChannel({.topic = "round", .encoding = "msgpack", .metadata = {{"k", "vé"}}});
    const absl::StatusOr<uint16_t> marks =
        writer->AddChannel({.topic = "mark", .encoding = "", .metadata = {}});
    REQUIRE((rounds.ok() && *rounds == 1 && marks.ok() && *marks == 2));
    REQUIRE(writer->WriteMetadata("build", {{"backend", "cpu"}, {"seed", ""}}).ok());
    REQUIRE(writer->Write({2, 7, 3000, AsBytes("m")}).ok());
    REQUIRE(writer->Write({1, 8, 1000, AsBytes("round one")}).ok());
    REQUIRE(writer->Write({1, 9, 2000, {}}).ok());
    REQUIRE(writer->Finish().ok());

    const std::string channel_records =
        Record(0x04, Little(1, 2) + Little(0, 2) + Text("round") + Text("msgpack") +
                         Text(Text("k") + Text("vé"))) +
        Record(0x04, Little(2, 2) + Little(0, 2) + Text("mark") + Text("") + Text(""));
    const std::string second_records = MessageRecord(2, 7, 3000, "m") +
                                       MessageRecord(1, 8, 1000, "round one") +
                                       MessageRecord(1, 9, 2000, "");

    const uint64_t first_chunk = HeadBytes().size();
    const auto chunk = [](uint64_t first_ns, uint64_t last_ns, const std::string& records) {
      return Record(0x06, Little(first_ns, 8) + Little(last_ns, 8) + Little(records.size(), 8) +
                              Little(BitwiseCrc(records), 4) + Text("") +
                              Little(records.size(), 8) + records);
    };
    std::string expected = HeadBytes() + chunk(0, 0, channel_records);
    const uint64_t metadata_offset = expected.size();
    const std::string metadata =
        Record(0x0c, Text("build") + Text(Text("backend") + Text("cpu") + Text("seed") + Text("")));
    expected += metadata;
    const uint64_t second_chunk = expected.size();
    expected += chunk(1000, 3000, second_records);
    const uint64_t index_offset = expected.size();
    // A message without payload has 31 bytes: 9 of the record's head, 22 of its own.
    const std::string index_1 = Record(
        0x07, Little(1, 2) +
                  Text(Little(1000, 8) + Little(32, 8) + Little(2000, 8) + Little(32 + 40, 8)));
    const std::string index_2 = Record(0x07, Little(2, 2) + Text(Little(3000, 8) + Little(0, 8)));
    expected += index_1 + index_2;
    expected += Record(0x0f, Little(BitwiseCrc(expected), 4));

    const uint64_t summary_start = expected.size();
    const auto chunk_index = [](uint64_t first_ns, uint64_t last_ns, uint64_t offset,
                                uint64_t records_size, const std::string& offsets,
                                uint64_t index_size) {
      return Record(0x08, Little(first_ns, 8) + Little(last_ns, 8) + Little(offset, 8) +
                              Little(9 + 40 + records_size, 8) + Text(offsets) +
                              Little(index_size, 8) + Text("") + Little(records_size, 8) +
                              Little(records_size, 8));
    };
    const std::string groups[] = {
        channel_records,
        chunk_index(0, 0, first_chunk, channel_records.size(), "", 0) +
            chunk_index(1000, 3000, second_chunk, second_records.size(),
                        Little(1, 2) + Little(index_offset, 8) + Little(2, 2) +
                            Little(index_offset + index_1.size(), 8),
                        index_1.size() + index_2.size()),
        Record(0x0d, Little(metadata_offset, 8) + Little(metadata.size(), 8) + Text("build")),
        Record(0x0b, Little(3, 8) + Little(0, 2) + Little(2, 4) + Little(0, 4) + Little(1, 4) +
                         Little(2, 4) + Little(1000, 8) + Little(3000, 8) +
                         Text(Little(1, 2) + Little(2, 8) + Little(2, 2) + Little(1, 8)))};
    const int opcodes[] = {0x04, 0x08, 0x0d, 0x0b};
    std::string summary;
    std::string offsets;
    for (int i = 0; i < 4; ++i) {
      offsets += Record(0x0e, Little(opcodes[i], 1) + Little(summary_start + summary.size(), 8) +
                                  Little(groups[i].size(), 8));
      summary += groups[i];
    }
    const uint64_t offsets_start = summary_start + summary.size();
    summary +=
        offsets + "\x02" + Little(20, 8) + Little(summary_start, 8) + Little(offsets_start, 8);
    expected += summary + Little(BitwiseCrc(summary), 4) + std::string(kMagicBytes);
    CHECK(file.bytes() == expected);
    CHECK(writer->bytes_written() == expected.size());
  }

  TEST_CASE("an empty MCAP file has a summary of its statistics") {
    const MemoryFile file;
    absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), kNoOptions);
    REQUIRE(writer.ok());
    REQUIRE(writer->Finish().ok());
    const ReadResult read = ReadAll(file);
    CHECK(read.status.ok());
    CHECK(read.messages.empty());
    // Statistics: 8 + 2 + 4 * 4 + 2 * 8 bytes of numbers, and an empty map.
    CHECK(file.bytes().find(Record(0x0b, std::string(42 + 4, '\0'))) != std::string::npos);
  }

  TEST_CASE("a chunk closes before it would grow larger than its size") {
    const MemoryFile file;
    // Three messages of 31 + 9 bytes, and the channel of 9 + 4 + 5 + 8 + 4 bytes.
    absl::StatusOr<McapWriter> writer =
        McapWriter::Start(file.writer(), {.chunk_size_bytes = 30 + 3 * 40});
    REQUIRE(writer.ok());
    REQUIRE(writer->AddChannel({.topic = "t", .encoding = "json", .metadata = {}}).ok());
    const uint64_t head_size = writer->bytes_written();
    for (uint32_t i = 0; i < 3; ++i) {
      REQUIRE(writer->Write({1, i, i, AsBytes("123456789")}).ok());
      CHECK(writer->bytes_written() == head_size);
    }
    CHECK(writer->bytes_pending() == 30 + 3 * 40);
    REQUIRE(writer->Write({1, 3, 3, AsBytes("123456789")}).ok());
    // The chunk, and an index of three messages.
    CHECK(writer->bytes_written() == head_size + 49 + 30 + 3 * 40 + 9 + 6 + 3 * 16);
    CHECK(writer->bytes_pending() == 40);
    // A message that is larger than a chunk has one of its own.
    REQUIRE(writer->Write({1, 4, 4, AsBytes(std::string(1000, 'x'))}).ok());
    REQUIRE(writer->Write({1, 5, 5, {}}).ok());
    CHECK(writer->bytes_pending() == 31);
    REQUIRE(writer->Finish().ok());
    const ReadResult read = ReadAll(file);
    REQUIRE(read.messages.size() == 6);
    CHECK(read.chunk_offsets[0] == read.chunk_offsets[2]);
    CHECK(read.chunk_offsets[2] < read.chunk_offsets[3]);
    CHECK(read.chunk_offsets[3] < read.chunk_offsets[4]);
    CHECK(read.chunk_offsets[4] < read.chunk_offsets[5]);
  }

  TEST_CASE("McapWriter refuses by name what no reader could take") {
    const MemoryFile file;
    for (const size_t size : {size_t{0}, size_t{kMcapChunkSizeMax} + 1}) {
      CHECK(Contains(McapWriter::Start(file.writer(), {.chunk_size_bytes = size}).status(),
                     "chunk_size_bytes = " + std::to_string(size)));
    }
    absl::StatusOr<McapWriter> writer = McapWriter::Start(file.writer(), kNoOptions);
    REQUIRE(writer.ok());
    CHECK(Contains(writer->Write({1, 0, 0, {}}), "channel_id = 1: the file has channels 1 to 0"));
    CHECK(Contains(writer->AddChannel({.topic = "\xff", .encoding = "", .metadata = {}}).status(),
                   "topic is not UTF-8"));
    CHECK(Contains(writer->AddChannel({.topic = "t", .encoding = "\x80", .metadata = {}}).status(),
                   "encoding of the channel is not UTF-8"));
    CHECK(Contains(writer->WriteMetadata("m", {{"key", "\xc3"}}), "metadata is not UTF-8"));
    CHECK(Contains(writer->WriteMetadata("m", McapMap(4097)), "metadata has 4097 entries"));
    const std::string large(kMcapKeptSizeMax, 'x');
    CHECK(Contains(writer->WriteMetadata(large, {}), "of at most 16777216"));
    // No refusal changes the file.
    REQUIRE(writer->AddChannel({.topic = "t", .encoding = "", .metadata = {}}).ok());
    REQUIRE(writer->Write({1, 0, 0, {}}).ok());
    REQUIRE(writer->Finish().ok());
    CHECK(Contains(writer->Write({1, 0, 0, {}}), "a.mcap: the file is finished"));
    CHECK(Contains(writer->Finish(), "a.mcap: the file is finished"));
    CHECK(ReadAll(file).status.ok());
    CHECK(ReadAll(file).messages.size() == 1);
  }

  TEST_CASE("Create makes a new trace and never writes over one") {
    const TemporaryFolder folder;
    const std::string path = folder.Of("a.mcap");
    {
      absl::StatusOr<McapWriter> writer = McapWriter::Create(path, kNoOptions);
      REQUIRE(writer.ok());
      REQUIRE(writer->Finish().ok());
    }
    struct stat info = {};
    CHECK(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    const absl::Status again = McapWriter::Create(path, kNoOptions).status();
    CHECK(Contains(again, path + ": cannot make the file: File exists"));
    absl::StatusOr<McapReader> reader = McapReader::Open(path, {});
    REQUIRE(reader.ok());
    CHECK(reader->profile() == "specd");
    CHECK(reader->library() == std::string("specd ") + kVersion);
    unlink(path.c_str());
    CHECK(McapReader::Open(path, {}).status().code() == absl::StatusCode::kNotFound);
  }
}  // TEST_SUITE

}  // namespace
}  // namespace specd
