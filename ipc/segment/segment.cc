#include "ipc/segment/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "ipc/base/error.h"
#include "ipc/base/peer_memory.h"
#include "ipc/include/specd/specd.h"

// Linux has this seal since 5.1; the libc headers of some supported systems are older.
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace specd {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

absl::Status BadSegment(std::string_view field, std::string_view text) {
  return MakeError(SPECD_ERROR_REGION, field, fmt::format("session segment: {}", text));
}

void WriteHeader(SegmentHeader* header, const SessionLimits& limits, const SegmentLayout& layout,
                 const SessionIdentity& identity) {
  header->magic = kSegmentMagic;
  header->header_bytes = sizeof(SegmentHeader);
  header->entry_bytes = kEntryBytes;
  header->session_id = identity.session_id;
  header->daemon_epoch = identity.daemon_epoch;
  header->segment_bytes = layout.segment_bytes;
  header->vocab_size = limits.vocab_size;
  header->max_batch = limits.max_batch;
  header->max_sequences = limits.max_sequences;
  header->max_draft = limits.max_draft;
  header->ring_depth = limits.ring_depth;
  header->max_scores = limits.max_scores;
  header->max_path = limits.max_path;
  header->submission_ring_offset = layout.submission_ring_offset;
  header->completion_ring_offset = layout.completion_ring_offset;
  header->draft_payload_offset = layout.draft_payload_offset;
  header->result_payload_offset = layout.result_payload_offset;
  header->sequence_table_offset = layout.sequence_table_offset;
  header->draft_record_bytes = layout.draft_record_bytes;
  header->result_record_bytes = layout.result_record_bytes;
  header->call_request_offset = static_cast<uint32_t>(layout.call_request_offset);
  header->call_answer_offset = static_cast<uint32_t>(layout.call_answer_offset);
  header->round_words_offset = static_cast<uint32_t>(layout.round_words_offset);
  // Pairs with the acquire in CheckHeader. Release keeps the fields above from moving after this
  // store.
  header->version.store(kProtocolVersion, std::memory_order_release);
}

// On success *limits holds the checked limits.
absl::Status CheckHeader(const SegmentHeader& header, uint64_t file_bytes, SessionLimits* limits) {
  // Pairs with the release in WriteHeader. Acquire keeps the reads below from moving before this
  // load.
  const uint32_t version = header.version.load(std::memory_order_acquire);
  if (header.magic != kSegmentMagic) return BadSegment("magic", "this is no specd segment");
  if (version != kProtocolVersion) {
    return MakeError(
        SPECD_ERROR_VERSION, "version",
        fmt::format("session segment: layout version {} from the daemon, but this "
                    "library knows {}; upgrade the {}",
                    version, kProtocolVersion, version > kProtocolVersion ? "library" : "daemon"));
  }
  *limits = {.vocab_size = ReadOnce(header.vocab_size),
             .max_batch = ReadOnce(header.max_batch),
             .max_sequences = ReadOnce(header.max_sequences),
             .max_draft = ReadOnce(header.max_draft),
             .ring_depth = ReadOnce(header.ring_depth),
             .max_scores = ReadOnce(header.max_scores),
             .max_path = ReadOnce(header.max_path)};
  if (absl::Status status = ValidateLimits(*limits); !status.ok()) return status;
  const SegmentLayout layout = ComputeLayout(*limits);
  if (header.segment_bytes != layout.segment_bytes || file_bytes != layout.segment_bytes) {
    return BadSegment("segment_bytes",
                      fmt::format("segment_bytes = {} in a file of {} bytes; its limits need {}",
                                  header.segment_bytes, file_bytes, layout.segment_bytes));
  }
  const bool same = header.header_bytes == sizeof(SegmentHeader) &&
                    header.entry_bytes == kEntryBytes &&
                    header.submission_ring_offset == layout.submission_ring_offset &&
                    header.completion_ring_offset == layout.completion_ring_offset &&
                    header.draft_payload_offset == layout.draft_payload_offset &&
                    header.result_payload_offset == layout.result_payload_offset &&
                    header.sequence_table_offset == layout.sequence_table_offset &&
                    header.draft_record_bytes == layout.draft_record_bytes &&
                    header.result_record_bytes == layout.result_record_bytes &&
                    header.call_request_offset == layout.call_request_offset &&
                    header.call_answer_offset == layout.call_answer_offset &&
                    header.round_words_offset == layout.round_words_offset;
  if (!same) return BadSegment("offsets", "its offsets do not follow from its limits");
  return absl::OkStatus();
}

}  // namespace

Segment::Segment(UniqueFd fd, Mapping mapping, const SessionLimits& limits,
                 const SessionIdentity& identity)
    : fd_(std::move(fd)),
      mapping_(std::move(mapping)),
      limits_(limits),
      layout_(ComputeLayout(limits)),
      identity_(identity) {}

absl::StatusOr<Segment> Segment::Create(const SessionLimits& limits,
                                        const SessionIdentity& identity) {
  if (absl::Status status = ValidateLimits(limits); !status.ok()) return status;
  const SegmentLayout layout = ComputeLayout(limits);
  const auto failed = [&layout](const char* what) {
    return MakeErrnoError(
        SPECD_ERROR_EXHAUSTED, "segment",
        fmt::format("session segment of {} bytes: {}", layout.segment_bytes, what), errno);
  };
  UniqueFd fd(memfd_create("specd-session", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return failed("memfd_create");
  const auto size = static_cast<off_t>(layout.segment_bytes);
  if (ftruncate(fd.get(), size) != 0) return failed("ftruncate");
  if (fallocate(fd.get(), 0, 0, size) != 0) return failed("fallocate");
  if (fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) return failed("sealing");
  absl::StatusOr<Mapping> mapping =
      Mapping::Map(fd.get(), layout.segment_bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  WriteHeader(static_cast<SegmentHeader*>(mapping->data()), limits, layout, identity);
  return Segment(std::move(fd), *std::move(mapping), limits, identity);
}

absl::StatusOr<Segment> Segment::Attach(UniqueFd fd) {
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0) return BadSegment("fd", "the descriptor is no memfd");
  if ((seals & kSizeSeals) != kSizeSeals) {
    return BadSegment("seals",
                      "the memfd could change its size: F_SEAL_SHRINK and F_SEAL_GROW "
                      "are needed");
  }
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return BadSegment("fd", "fstat failed");
  const uint64_t file_bytes = info.st_size;
  if (file_bytes < sizeof(SegmentPage)) {
    return BadSegment("segment_bytes",
                      fmt::format("a file of {} bytes has no room for its header", file_bytes));
  }
  absl::StatusOr<Mapping> mapping = Mapping::Map(fd.get(), file_bytes, MapAccess::kReadWrite);
  if (!mapping.ok()) return mapping.status();
  const auto& header = *static_cast<const SegmentHeader*>(mapping->data());
  SessionLimits limits;
  if (absl::Status status = CheckHeader(header, file_bytes, &limits); !status.ok()) return status;
  const SessionIdentity identity{.session_id = header.session_id,
                                 .daemon_epoch = header.daemon_epoch};
  return Segment(std::move(fd), *std::move(mapping), limits, identity);
}

absl::Status Segment::SealFutureWrites() {
  if (fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) {
    return absl::OkStatus();
  }
  return MakeErrnoError(SPECD_ERROR_INTERNAL, "seals", "the session segment could not be sealed",
                        errno);
}

}  // namespace specd
