#include "tools/replay/npz_writer.h"

#include <fmt/format.h>

#include "daemon/trace/crc32.h"

namespace specd::replay {
namespace {

// APPNOTE.TXT 6.3.10 of ZIP, sections 4.3 and 4.5.3.
constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr uint16_t kVersion64 = 45;
constexpr uint16_t kExtra64 = 1;
constexpr uint32_t kSeeExtra = 0xffffffff;
constexpr uint16_t kDate = 0x0021;  // 1980-01-01, so that equal traces give equal files

class Bytes {
 public:
  template <class T>
  Bytes& Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) text_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  Bytes& Text(std::string_view text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string NpyHeader(const NpzWriter::Array& array) {
  std::string shape;
  for (const uint64_t size : array.shape) shape += fmt::format("{}, ", size);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.dtype, shape);
  constexpr size_t kPrefix = 10;
  constexpr size_t kAlignment = 64;
  text.append(kAlignment - (kPrefix + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  return Bytes()
      .Text(std::string_view("\x93NUMPY\x01\x00", 8))
      .Put(static_cast<uint16_t>(text.size()))
      .Text(text)
      .text();
}

}  // namespace

absl::Status NpzWriter::Add(const Array& array) {
  const std::string header = NpyHeader(array);
  Entry entry;
  entry.name = fmt::format("{}.npy", array.name);
  entry.crc = JoinCrc32(Crc32(header), array.values->crc(), array.values->size_bytes());
  entry.size_bytes = header.size() + array.values->size_bytes();
  entry.offset = out_->size_bytes();
  Bytes local;
  local.Put(kLocalHeader).Put(kVersion64).Put(uint16_t{0}).Put(uint16_t{0});
  local.Put(uint16_t{0}).Put(kDate).Put(entry.crc).Put(kSeeExtra).Put(kSeeExtra);
  local.Put(static_cast<uint16_t>(entry.name.size())).Put(uint16_t{20}).Text(entry.name);
  local.Put(kExtra64).Put(uint16_t{16}).Put(entry.size_bytes).Put(entry.size_bytes);
  entries_.push_back(entry);
  if (absl::Status status = out_->Write(local.text()); !status.ok()) return status;
  if (absl::Status status = out_->Write(header); !status.ok()) return status;
  return array.values->Read([&](std::string_view bytes) { return out_->Write(bytes); });
}

absl::Status NpzWriter::Finish() {
  const uint64_t begin = out_->size_bytes();
  for (const Entry& entry : entries_) {
    Bytes central;
    central.Put(kCentralHeader).Put(kVersion64).Put(kVersion64).Put(uint16_t{0}).Put(uint16_t{0});
    central.Put(uint16_t{0}).Put(kDate).Put(entry.crc).Put(kSeeExtra).Put(kSeeExtra);
    central.Put(static_cast<uint16_t>(entry.name.size())).Put(uint16_t{28}).Put(uint16_t{0});
    central.Put(uint16_t{0}).Put(uint16_t{0}).Put(uint32_t{0}).Put(kSeeExtra).Text(entry.name);
    central.Put(kExtra64).Put(uint16_t{24}).Put(entry.size_bytes).Put(entry.size_bytes);
    central.Put(entry.offset);
    if (absl::Status status = out_->Write(central.text()); !status.ok()) return status;
  }
  const uint64_t end = out_->size_bytes();
  const uint64_t count = entries_.size();
  Bytes tail;
  tail.Put(kEnd64).Put(uint64_t{44}).Put(kVersion64).Put(kVersion64).Put(uint32_t{0});
  tail.Put(uint32_t{0}).Put(count).Put(count).Put(end - begin).Put(begin);
  tail.Put(kEnd64Locator).Put(uint32_t{0}).Put(end).Put(uint32_t{1});
  tail.Put(kEnd).Put(uint16_t{0}).Put(uint16_t{0}).Put(static_cast<uint16_t>(count));
  tail.Put(static_cast<uint16_t>(count)).Put(kSeeExtra).Put(kSeeExtra).Put(uint16_t{0});
  return out_->Write(tail.text());
}

}  // namespace specd::replay
