// Files of rows: the header, alignment, and errors that name the place.
#include "daemon/trace/row_file.h"

#include <doctest/doctest.h>
#include <fcntl.h>

#include "tests/daemon/trace/mcap_bytes.h"

namespace specd {
namespace {

absl::StatusOr<std::string> ReadRows(const RowFileReader& reader, const RowFileReader::Place& place,
                                     size_t size_bytes) {
  std::string bytes(size_bytes, '?');
  const absl::Status status = reader.Read(place, std::as_writable_bytes(std::span(bytes)));
  if (!status.ok()) return status;
  return bytes;
}

MemoryFile TwoEntries() {
  MemoryFile file;
  absl::StatusOr<RowFileWriter> writer = RowFileWriter::Start(file.writer());
  REQUIRE(writer.ok());
  const std::span<const std::byte> rows[] = {AsBytes("row one|"), {}, AsBytes("row two")};
  const absl::StatusOr<uint64_t> first = writer->Append(rows);
  REQUIRE((first.ok() && *first == 4096));
  const absl::StatusOr<uint64_t> second = writer->Append(AsBytes(std::string(4096, 'x')));
  REQUIRE((second.ok() && *second == 8192));
  const absl::StatusOr<uint64_t> third = writer->Append(AsBytes("end"));
  REQUIRE((third.ok() && *third == 12288));
  CHECK(writer->size_bytes() == 12291);
  CHECK(writer->bytes_written() == 4096 + 15 + 4096 + 3);
  REQUIRE(writer->Finish().ok());
  CHECK(Contains(writer->Append(AsBytes("late")).status(), "the file is finished"));
  return file;
}

TEST_SUITE("unit") {
  TEST_CASE("a file of rows has a header for people and entries at multiples of 4096") {
    const MemoryFile file = TwoEntries();
    const std::string bytes = file.bytes();
    REQUIRE(bytes.size() == 12291);
    CHECK(bytes.substr(0, 16) == std::string("SPECDROW\x01\0\0\0\0\x10\0\0", 16));
    const std::string header = bytes.substr(16, 4080);
    const size_t description_size = header.find('\0');
    REQUIRE(description_size != std::string::npos);
    CHECK(header.find("numpy.memmap(path, dtype, 'r', offset, shape)") < description_size);
    CHECK(header.substr(description_size) == std::string(4080 - description_size, '\0'));
    for (const char letter : header.substr(0, description_size)) {
      CHECK((letter == '\n' || (letter >= ' ' && letter <= '~')));
    }
    CHECK(bytes.substr(4096, 16) == std::string("row one|row two\0", 16));
    CHECK(bytes.substr(4096 + 15, 4096 - 15) == std::string(4096 - 15, '\0'));
    CHECK(bytes.substr(8192) == std::string(4096, 'x') + "end");
  }

  TEST_CASE("rows are read whole or in part, inside the file only") {
    const MemoryFile file = TwoEntries();
    const absl::StatusOr<RowFileReader> reader = RowFileReader::Start(file.reader());
    REQUIRE(reader.ok());
    CHECK(*ReadRows(*reader, {4096}, 7) == "row one");
    CHECK(*ReadRows(*reader, {4096, 8}, 7) == "row two");
    CHECK(*ReadRows(*reader, {12288}, 3) == "end");
    CHECK(*ReadRows(*reader, {12288, 3}, 0) == "");
    for (const uint64_t offset : {uint64_t{0}, uint64_t{4095}, uint64_t{4104}}) {
      const absl::Status status = ReadRows(*reader, {offset}, 1).status();
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(Contains(status, "a.mcap: byte " + std::to_string(offset) +
                                 ": an entry begins at a multiple of 4096"));
    }
    const RowFileReader::Place past[] = {
        {12288, 1},           {12288, 4},           {16384},
        {~uint64_t{0} << 12}, {4096, ~uint64_t{0}}, {4096, ~uint64_t{0} - 4095}};
    for (const RowFileReader::Place& place : past) {
      const absl::Status status = ReadRows(*reader, place, 3).status();
      CHECK(IsTornFile(status));
      CHECK(Contains(status, "the file ends at byte 12291"));
      CHECK(Contains(status, "entry at byte " + std::to_string(place.entry_offset)));
    }
  }

  TEST_CASE("a file of rows that is cut at any byte is torn, and its whole entries are there") {
    const MemoryFile file = TwoEntries();
    for (size_t size = 12291; size-- > 0;) {
      CAPTURE(size);
      REQUIRE(ftruncate(file.fd(), static_cast<off_t>(size)) == 0);
      const absl::StatusOr<RowFileReader> reader = RowFileReader::Start(file.reader());
      REQUIRE(reader.ok() == (size >= 4096));
      if (!reader.ok()) {
        REQUIRE(IsTornFile(reader.status()));
        continue;
      }
      REQUIRE(IsTornFile(ReadRows(*reader, {12288}, 3).status()));
      REQUIRE(ReadRows(*reader, {8192}, 4096).ok() == (size >= 12288));
      REQUIRE(ReadRows(*reader, {4096}, 15).ok() == (size >= 4111));
    }
  }

  TEST_CASE("an entry that was appended after the opening is there") {
    const MemoryFile file;
    absl::StatusOr<RowFileWriter> writer = RowFileWriter::Start(file.writer());
    REQUIRE(writer.ok());
    const absl::StatusOr<RowFileReader> reader = RowFileReader::Start(file.reader());
    REQUIRE(reader.ok());
    REQUIRE(writer->Append(AsBytes("new")).ok());
    CHECK(*ReadRows(*reader, {4096}, 3) == "new");
  }

  TEST_CASE("foreign files of rows are refused with the place") {
    std::string header = TwoEntries().bytes().substr(0, 4096);
    const auto start = [&] { return RowFileReader::Start(MemoryFile(header).reader()).status(); };
    CHECK(start().ok());
    header[12] = 1;
    CHECK(Contains(start(), "a.mcap: byte 12: alignment = 4097, expected 4096"));
    header[8] = 2;
    CHECK(start().code() == absl::StatusCode::kUnimplemented);
    CHECK(Contains(start(), "a.mcap: byte 8: version = 2: this specd reads version 1"));
    header[7] = 'x';
    CHECK(Contains(start(), "a.mcap: byte 0: expected \"SPECDROW\""));
    header.resize(3);
    CHECK(IsTornFile(start()));
  }

  TEST_CASE("a full disk ends a file of rows, and the error is kept") {
    const MemoryFile file;
    const int fd = dup(file.fd());
    absl::StatusOr<RowFileWriter> writer = RowFileWriter::Start(FileWriter(UniqueFd(fd), "b.rows"));
    REQUIRE(writer.ok());
    const UniqueFd full(open("/dev/full", O_WRONLY));
    REQUIRE(dup2(full.get(), fd) == fd);
    const absl::Status error = writer->Append(AsBytes("row")).status();
    CHECK(error.code() == absl::StatusCode::kResourceExhausted);
    CHECK(MessageOf(error) == "b.rows: cannot write at byte 4096: No space left on device");
    CHECK(writer->Append(AsBytes("row")).status() == error);
    CHECK(writer->Finish() == error);
    CHECK(writer->bytes_written() == 4096);
  }

  TEST_CASE("a pipe is refused for rows, because it has no holes") {
    int fds[2];
    REQUIRE(pipe(fds) == 0);
    const UniqueFd reader(fds[0]);
    absl::StatusOr<RowFileWriter> writer =
        RowFileWriter::Start(FileWriter(UniqueFd(fds[1]), "pipe"));
    REQUIRE(writer.ok());
    CHECK(Contains(writer->Append(AsBytes("row")).status(), "pipe: cannot move to byte 4096"));
  }
}  // TEST_SUITE

}  // namespace
}  // namespace specd
