#include "daemon/trace/row_file.h"

#include <fmt/format.h>

#include <cstring>

namespace specd {
namespace {

constexpr std::string_view kDescription =
    "\n\nRaw rows of specd. This header has 4096 bytes. Entries begin at multiples of 4096.\n"
    "The trace (MCAP) beside this file has the offset, type and shape of every entry:\n"
    "  numpy.memmap(path, dtype, 'r', offset, shape)\n";
// The magic, the version, the alignment.
constexpr size_t kDescriptionOffset = 16;

std::string EncodeHeader() {
  std::string header(kRowFileAlignment, '\0');
  const uint32_t numbers[] = {kRowFileVersion, static_cast<uint32_t>(kRowFileAlignment)};
  header.replace(0, kRowFileMagic.size(), kRowFileMagic);
  std::memcpy(header.data() + kRowFileMagic.size(), numbers, sizeof(numbers));
  header.replace(kDescriptionOffset, kDescription.size(), kDescription);
  return header;
}

}  // namespace

absl::StatusOr<RowFileWriter> RowFileWriter::Create(const std::string& path) {
  absl::StatusOr<FileWriter> out = FileWriter::Create(path);
  if (!out.ok()) return out.status();
  return Start(*std::move(out));
}

absl::StatusOr<RowFileWriter> RowFileWriter::Start(FileWriter out) {
  if (absl::Status status = out.Write(AsBytes(EncodeHeader())); !status.ok()) return status;
  return RowFileWriter(std::move(out));
}

absl::StatusOr<uint64_t> RowFileWriter::Append(std::span<const std::byte> entry) {
  return Append(std::span(&entry, 1));
}

absl::StatusOr<uint64_t> RowFileWriter::Append(std::span<const std::span<const std::byte>> pieces) {
  const uint64_t gap = (kRowFileAlignment - out_.offset() % kRowFileAlignment) % kRowFileAlignment;
  const uint64_t entry_offset = out_.offset() + gap;
  if (absl::Status status = out_.SkipTo(entry_offset); !status.ok()) return status;
  for (const std::span<const std::byte> piece : pieces) {
    if (absl::Status status = out_.Write(piece); !status.ok()) return status;
  }
  return entry_offset;
}

absl::Status RowFileWriter::Finish() { return out_.Close(); }

absl::StatusOr<RowFileReader> RowFileReader::Open(const std::string& path) {
  absl::StatusOr<FileReader> file = FileReader::Open(path);
  if (!file.ok()) return file.status();
  return Start(*std::move(file));
}

absl::StatusOr<RowFileReader> RowFileReader::Start(FileReader file) {
  std::string header(kRowFileAlignment, '\0');
  const absl::StatusOr<size_t> size = file.ReadAt(0, std::as_writable_bytes(std::span(header)));
  if (!size.ok()) return size.status();
  header.resize(*size);
  const std::string_view magic = std::string_view(header).substr(0, kRowFileMagic.size());
  if (magic != kRowFileMagic.substr(0, magic.size())) {
    return DamagedFile(
        file.path(), 0,
        fmt::format("expected \"{}\", the beginning of a file of rows", kRowFileMagic));
  }
  if (header.size() < kRowFileAlignment) return TornFile(file.path(), *size, "its header");
  uint32_t numbers[2];
  std::memcpy(numbers, header.data() + kRowFileMagic.size(), sizeof(numbers));
  if (numbers[0] != kRowFileVersion) {
    return absl::UnimplementedError(
        fmt::format("{}: byte 8: version = {}: this specd reads version {}", file.path(),
                    numbers[0], kRowFileVersion));
  }
  if (numbers[1] != kRowFileAlignment) {
    return DamagedFile(file.path(), 12,
                       fmt::format("alignment = {}, expected {}", numbers[1], kRowFileAlignment));
  }
  return RowFileReader(std::move(file));
}

absl::Status RowFileReader::Read(const Place& place, std::span<std::byte> out) const {
  if (place.entry_offset < kRowFileAlignment || place.entry_offset % kRowFileAlignment != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{}: byte {}: an entry begins at a multiple of {}, after the header",
                    file_.path(), place.entry_offset, kRowFileAlignment));
  }
  const absl::StatusOr<uint64_t> size = file_.AskSize();
  if (!size.ok()) return size.status();
  const auto end_error = [&](uint64_t size_bytes) {
    return TornFile(file_.path(), size_bytes,
                    fmt::format("{} bytes that lie {} bytes into the entry at byte {}", out.size(),
                                place.skip_bytes, place.entry_offset));
  };
  const uint64_t after_begin = *size < place.entry_offset ? 0 : *size - place.entry_offset;
  if (place.skip_bytes > after_begin || out.size() > after_begin - place.skip_bytes) {
    return end_error(*size);
  }
  const uint64_t offset = place.entry_offset + place.skip_bytes;
  const absl::StatusOr<size_t> num_read = file_.ReadAt(offset, out);
  if (!num_read.ok()) return num_read.status();
  return *num_read == out.size() ? absl::OkStatus() : end_error(offset + *num_read);
}

}  // namespace specd
