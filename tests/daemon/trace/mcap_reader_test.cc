// McapReader on files of other writers, put together from the specification.
#include "daemon/trace/mcap_reader.h"

#include <doctest/doctest.h>

#include "tests/daemon/trace/mcap_bytes.h"

namespace specd {
namespace {

using Messages = std::vector<std::string>;

TEST_SUITE("unit") {
  TEST_CASE("McapReader hands out the fields of a message") {
    const std::string schema = Record(0x03, Little(5, 2) + Text("S") + Text("") + Text(""));
    const std::string file_bytes =
        FileOf(ChunkRecord(schema + ChannelRecord(3, 5, "t") + MessageRecord(3, 9, 77, "payload")));
    const MemoryFile file(file_bytes);
    absl::StatusOr<McapReader> reader = McapReader::Start(file.reader(), {});
    REQUIRE(reader.ok());
    CHECK(reader->profile() == "p");
    CHECK(reader->library() == "l");
    CHECK(reader->file_size_bytes() == file_bytes.size());
    McapMessage message;
    const absl::StatusOr<bool> more = reader->Next(&message);
    REQUIRE((more.ok() && *more));
    CHECK(message.topic == "t");
    CHECK(message.encoding == "json");
    CHECK(message.channel_id == 3);
    CHECK(message.sequence == 9);
    CHECK(message.log_time_ns == 77);
    CHECK(message.payload.size() == 7);
    CHECK(message.chunk_offset == 8 + 9 + 10);  // after the magic and the header
    CHECK(message.file_size_bytes == file_bytes.size());
  }

  TEST_CASE("messages outside chunks, unknown records and attachments are no error") {
    const std::string data = ChannelRecord(1, 0, "a") + MessageRecord(1, 1, 10, "x") +
                             Record(0x80, "private") + Record(0x42, "of a later version") +
                             Record(0x09, std::string(200000, 'z')) +
                             ChunkRecord(ChannelRecord(1, 0, "a") + Record(0x99, "private") +
                                         MessageRecord(1, 2, 20, "y")) +
                             Record(0x07, "an index") + MessageRecord(1, 3, 30, "");
    const ReadResult read = ReadAll(MemoryFile(FileOf(data)));
    CHECK(read.status.ok());
    CHECK(read.messages == Messages{"a 1 10 x", "a 2 20 y", "a 3 30 "});
    CHECK(read.chunk_offsets[0] == 27 + ChannelRecord(1, 0, "a").size());
  }

  TEST_CASE("records may have fields of a later version, and schemas are ignored") {
    const std::string content =
        Little(1, 2) + Little(0, 2) + Text("t") + Text("json") + Text("") + "more";
    const std::string schema = Record(0x03, "anything");
    std::string chunk = ChunkRecord(schema + Record(0x04, content) + MessageRecord(1, 1, 1, "m"));
    chunk = Record(0x06, chunk.substr(9) + "later");
    const ReadResult read = ReadAll(MemoryFile(FileOf(chunk)));
    CHECK(read.status.ok());
    CHECK(read.messages == Messages{"t 1 1 m"});
  }

  TEST_CASE("a file needs no DataEnd record") {
    // The specification draws such files.
    const std::string bytes = std::string(kMagicBytes) + Record(0x01, Text("") + Text("")) +
                              ChannelRecord(1, 0, "t") + MessageRecord(1, 1, 1, "m") +
                              Record(0x02, Little(0, 20)) + std::string(kMagicBytes);
    const ReadResult read = ReadAll(MemoryFile(bytes));
    CHECK(read.status.ok());
    CHECK(read.messages == Messages{"t 1 1 m"});
  }

  TEST_CASE("metadata before a message is there with the message") {
    const std::string data = Record(0x0c, Text("one") + Text(Text("k") + Text("v"))) +
                             ChunkRecord(ChannelRecord(1, 0, "t") + MessageRecord(1, 1, 1, "m")) +
                             Record(0x0c, Text("two") + Text(""));
    const MemoryFile file(FileOf(data));
    absl::StatusOr<McapReader> reader = McapReader::Start(file.reader(), {});
    REQUIRE(reader.ok());
    McapMessage message;
    REQUIRE((*reader->Next(&message)));
    REQUIRE(reader->metadata().size() == 1);
    CHECK(reader->metadata()[0].name == "one");
    CHECK(reader->metadata()[0].values == McapMap{{"k", "v"}});
    REQUIRE_FALSE((*reader->Next(&message)));
    REQUIRE(reader->metadata().size() == 2);
    CHECK(reader->metadata()[1].name == "two");
    CHECK(reader->metadata()[1].values.empty());
  }

  TEST_CASE("a reader that moves keeps its place") {
    const MemoryFile file(FileOf(ChunkRecord(
        ChannelRecord(1, 0, "t") + MessageRecord(1, 1, 1, "m") + MessageRecord(1, 2, 2, "n"))));
    absl::StatusOr<McapReader> reader = McapReader::Start(file.reader(), {});
    REQUIRE(reader.ok());
    McapMessage message;
    REQUIRE((*reader->Next(&message)));
    McapReader moved = *std::move(reader);
    REQUIRE((*moved.Next(&message)));
    CHECK(message.sequence == 2);
    CHECK(message.topic == "t");
  }

  TEST_CASE("a foreign or damaged file is refused with the place and what was expected") {
    struct Case {
      std::string bytes;
      std::string expected;
    };
    const std::string message = MessageRecord(1, 1, 1, "m");
    const std::string channel = ChannelRecord(1, 0, "t");
    std::string bad_crc = ChunkRecord(channel + message);
    bad_crc.back() ^= 1;
    std::string other_size = ChunkRecord(channel);
    other_size[9 + 16] ^= 1;
    const std::string start = std::string(kMagicBytes) + Record(0x01, Text("p") + Text("l"));
    std::string cut_end = FileOf("");
    cut_end.back() = 'x';
    const Case cases[] = {
        {"\x7f"
         "ELF and more",
         "a.mcap: byte 0: expected 89 4d 43 41 50 30 0d 0a, the beginning of "
         "an MCAP file, found 7f 45 4c 46 20 61 6e 64"},
        {std::string(kMagicBytes) + channel, "a.mcap: byte 8: expected a Header, found Channel"},
        {FileOf(message), "a.mcap: byte 36: a message belongs to channel 1, which is not there"},
        {FileOf(channel + ChannelRecord(1, 0, "u")), "channel 1 was another one before"},
        {FileOf(ChunkRecord(channel + "12345")), "expected a record of the Chunk, found 5 bytes"},
        {FileOf(ChunkRecord(ChunkRecord(""))),
         "byte 76: expected a Schema, Channel or Message, found "
         "a Chunk"},
        {FileOf(ChunkRecord("\x05" + Little(100, 8))),
         "byte 76: a Message of 100 bytes, but the Chunk has only 0 more"},
        {FileOf(bad_crc), "byte 27: the records of the Chunk have the checksum"},
        {FileOf(other_size), "byte 27: uncompressed_size = "},
        {FileOf(Record(0x06, std::string(31, '\0'))), "byte 27: a Chunk of 31 bytes, expected 32"},
        {FileOf(Record(0x0b, "")),
         "byte 27: expected a record of the data section, found Statistics"},
        {FileOf(Record(0x0f, Little(0, 4)) + channel + Record(0x0c, Text("") + Text(""))),
         "expected a record of the summary, found Metadata"},
        {FileOf(Record(0x0f, Little(5, 4))), "byte 27: the bytes before have the checksum "},
        {FileOf(Record(0x0c, Text("m") + Little(9, 4) + "short")),
         "byte 45: the map of a Metadata record takes 9 bytes, but the record has only 5 more"},
        {FileOf(Record(0x0c, Text("m\xff") + Text(""))),
         "byte 40: the name of a Metadata record is not UTF-8"},
        {FileOf(Record(0x05, "short")), "a message takes 4 bytes, but the record has only 3 more"},
        {FileOf(std::string("\0", 1) + Little(0, 8)), "byte 27: expected the opcode of a record"},
        {start + "\x06" + Little(1 << 20, 8) + Record(0x02, Little(0, 20)) +
             std::string(kMagicBytes),
         "byte 27: a Chunk of 1048576 bytes, but only 37 bytes follow"},
        {start + Record(0x02, Little(0, 19)), "a Footer of 19 bytes, expected 20"},
        {start + Record(0x02, Little(11, 20)), "summary_start = 11, expected 0"},
        {cut_end, "the end of an MCAP file, found 89 4d 43 41 50 30 0d 78"},
        {FileOf("") + "more", "expected the end of the file, found 4 bytes more"},
    };
    for (const Case& test : cases) {
      CAPTURE(test.expected);
      const ReadResult read = ReadAll(MemoryFile(test.bytes));
      CHECK(read.status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(MessageOf(read.status).find(test.expected) != std::string::npos);
      if (!Contains(read.status, test.expected)) MESSAGE(MessageOf(read.status));
    }
  }

  TEST_CASE("a trace of specd has no records but those that specd writes") {
    // One flipped bit made a Message of a MessageIndex, and a torn file has no checksum over it.
    const std::string start = std::string(kMagicBytes) + Record(0x01, Text("specd") + Text(""));
    const std::string chunk = ChunkRecord(ChannelRecord(1, 0, "t") + MessageRecord(1, 1, 1, "m"));
    const std::string index = Record(0x07, Little(1, 2) + Text(Little(1, 8) + Little(40, 8)));
    const std::string metadata = Record(0x0c, Text("m") + Text(""));
    const ReadResult whole = ReadAll(MemoryFile(start + chunk + index + metadata));
    CHECK(IsTornFile(whole.status));
    CHECK(whole.messages == Messages{"t 1 1 m"});

    const auto refusal = [&](const std::string& record) {
      const ReadResult read = ReadAll(MemoryFile(start + chunk + record));
      CHECK(read.messages == Messages{"t 1 1 m"});
      CHECK(read.status.code() == absl::StatusCode::kInvalidArgument);
      return MessageOf(read.status);
    };
    const std::string place = "a.mcap: byte " + std::to_string(start.size() + chunk.size()) + ": ";
    const std::string expected =
        place + "expected a Chunk, MessageIndex, Metadata or DataEnd, as specd writes them, found ";
    CHECK(refusal(MessageRecord(1, 2, 2, "n")) == expected + "Message");
    CHECK(refusal(ChannelRecord(2, 0, "u")) == expected + "Channel");
    CHECK(refusal(Record(0x03, "")) == expected + "Schema");
    CHECK(refusal(Record(0x09, "")) == expected + "Attachment");
    CHECK(refusal(Record(0x86, "")) == expected + "record 0x86");
    CHECK(refusal(Record(0x07, index.substr(9) + "x")) ==
          place + "a MessageIndex of 23 bytes, expected 22");
    CHECK(refusal(Record(0x07, "short")) == place + "a MessageIndex of 5 bytes, expected 6");
    CHECK(refusal(Record(0x06, chunk.substr(9) + "12")) ==
          place + "a Chunk with 2 bytes after its last field");
    CHECK(refusal(Record(0x0c, metadata.substr(9) + "1")) ==
          place + "a Metadata with 1 bytes after its last field");
  }

  TEST_CASE("compressed and too large chunks are refused by name") {
    const std::string records = ChannelRecord(1, 0, "t") + MessageRecord(1, 1, 1, "m");
    const ReadResult lz4 = ReadAll(MemoryFile(FileOf(ChunkRecord(records, "lz4"))));
    CHECK(lz4.status.code() == absl::StatusCode::kUnimplemented);
    CHECK(Contains(lz4.status, "a.mcap: byte 27: compression = lz4: "));
    const ReadResult hostile = ReadAll(MemoryFile(FileOf(ChunkRecord(records, "a\n\x1b[2J"))));
    CHECK(Contains(hostile.status, "compression = a??[2J: "));

    const MemoryFile file(FileOf(ChunkRecord(records)));
    CHECK(ReadAll(file, {.chunk_size_max_bytes = records.size()}).status.ok());
    const ReadResult large = ReadAll(file, {.chunk_size_max_bytes = records.size() - 1});
    CHECK(large.status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(Contains(large.status, "a.mcap: byte 27: a Chunk of " +
                                     std::to_string(records.size() + 40) +
                                     " bytes; this reader takes at most "));
  }

  TEST_CASE("names and metadata have a limit in memory") {
    // A sparse file: a Metadata record of 16 MiB and one byte, which is never read.
    const uint64_t size = kMcapKeptSizeMax + 1;
    const std::string head =
        std::string(kMagicBytes) + Record(0x01, Text("") + Text("")) + "\x0c" + Little(size, 8);
    const MemoryFile file(head);
    REQUIRE(ftruncate(file.fd(), static_cast<off_t>(head.size() + size)) == 0);
    const ReadResult large = ReadAll(file);
    CHECK(large.status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(
        Contains(large.status, "a Metadata of 16777217 bytes; this reader takes at most 16777216"));

    std::string entries;
    for (int i = 0; i < 4097; ++i) entries += Text("") + Text("");
    CHECK(Contains(ReadAll(MemoryFile(FileOf(Record(0x0c, Text("m") + Text(entries))))).status,
                   "has more than 4096 entries"));

    std::string many;
    for (int i = 0; i < 17; ++i) many += Record(0x0c, Text(std::string(1 << 20, 'n')) + Text(""));
    const ReadResult kept = ReadAll(MemoryFile(FileOf(many)));
    CHECK(Contains(kept.status, "names and metadata have more than 16777216 bytes"));
    CHECK(kept.metadata.size() == 15);
  }

  TEST_CASE("a folder or a pipe is refused as no regular file") {
    CHECK(Contains(McapReader::Open(".", {}).status(), ".: is no regular file"));
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    const UniqueFd writer(fds[1]);
    CHECK(Contains(FileReader::Start(UniqueFd(fds[0]), "pipe").status(), "pipe: is no regular"));
  }
}  // TEST_SUITE

}  // namespace
}  // namespace specd
