// A segment is refused unless it is what a correct daemon makes.
#include "ipc/segment/segment.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cerrno>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "tests/ipc/segment/ipc_test_support.h"

namespace specd {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// A file with the bytes of a good segment, changed by `change`, with those seals.
template <class Change>
absl::Status AttachChanged(Change change, int seals = kSizeSeals, int64_t grow_bytes = 0) {
  const Segment good = test::MakeSegment();
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  std::vector<char> bytes(good.at(0), good.at(good.layout().segment_bytes));
  change(reinterpret_cast<SegmentHeader*>(bytes.data()));
  REQUIRE(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto size = static_cast<off_t>(bytes.size()) + grow_bytes;
  REQUIRE(ftruncate(fd.get(), size) == 0);
  if (seals != 0) REQUIRE(fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
  return Segment::Attach(std::move(fd)).status();
}

TEST_SUITE("unit") {
  TEST_CASE("segment: what the daemon writes the engine sees, through its own mapping") {
    Segment daemon = test::MakeSegment();
    absl::StatusOr<Segment> engine = Segment::Attach(test::Duplicate(daemon.fd()));
    REQUIRE(engine.ok());
    CHECK(engine->limits() == test::kSmallLimits);
    CHECK(engine->layout() == daemon.layout());
    CHECK(engine->identity() == SessionIdentity{7, 11});
    CHECK(engine->at(0) != daemon.at(0));
    daemon.sequence_table()[7].state.store(42);
    CHECK(engine->sequence_table()[7].state.load() == 42);
  }

  TEST_CASE("segment: all its pages exist before anybody touches them") {
    const Segment segment = test::MakeSegment({1000, 512, 512, 8, 8});
    struct stat info = {};
    REQUIRE(fstat(segment.fd(), &info) == 0);
    CHECK(static_cast<uint64_t>(info.st_size) == segment.layout().segment_bytes);
    CHECK(static_cast<uint64_t>(info.st_blocks) * 512 >= segment.layout().segment_bytes);
  }

  TEST_CASE("segment: its size is sealed from birth, its writers once both have mapped") {
    Segment segment = test::MakeSegment();
    CHECK(ftruncate(segment.fd(), 0) == -1);
    CHECK(errno == EPERM);
    CHECK(ftruncate(segment.fd(), 1 << 20) == -1);
    // Before: an engine can map it for writing.
    REQUIRE(Segment::Attach(test::Duplicate(segment.fd())).ok());
    REQUIRE(segment.SealFutureWrites().ok());
    CHECK_FALSE(Segment::Attach(test::Duplicate(segment.fd())).ok());
    CHECK(fallocate(segment.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == -1);
    CHECK(errno == EPERM);
    CHECK(fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
    // The mapping made before still writes.
    segment.sequence_table()[0].state.store(1);
    CHECK(segment.sequence_table()[0].state.load() == 1);
  }

  TEST_CASE("segment: limits outside their range make no segment") {
    const absl::Status status = Segment::Create({0, 1, 1, 0, 1}, {}).status();
    CHECK(ErrorFieldOf(status) == "vocab_size");
  }

  TEST_CASE("segment: attach refuses every file that no correct daemon sends") {
    const auto nothing = [](SegmentHeader*) {};
    CHECK(AttachChanged(nothing).ok());
    CHECK(ErrorFieldOf(AttachChanged(nothing, 0)) == "seals");
    CHECK(ErrorFieldOf(AttachChanged(nothing, F_SEAL_SHRINK)) == "seals");
    CHECK(ErrorFieldOf(AttachChanged(nothing, F_SEAL_GROW)) == "seals");
    CHECK(ErrorFieldOf(AttachChanged(nothing, kSizeSeals, 4096)) == "segment_bytes");
    CHECK(ErrorFieldOf(AttachChanged([](SegmentHeader* h) { h->magic ^= 1; })) == "magic");
    CHECK(ErrorFieldOf(AttachChanged([](SegmentHeader* h) { h->max_batch = 0; })) == "max_batch");
    CHECK(ErrorFieldOf(AttachChanged([](SegmentHeader* h) { h->max_draft = 60; })) ==
          "segment_bytes");
    CHECK(ErrorFieldOf(AttachChanged([](SegmentHeader* h) { h->segment_bytes = 1; })) ==
          "segment_bytes");
    CHECK(ErrorFieldOf(AttachChanged([](SegmentHeader* h) { h->entry_bytes = 64; })) == "offsets");
    CHECK(ErrorFieldOf(AttachChanged(
              [](SegmentHeader* h) { h->result_payload_offset = ~uint64_t{0}; })) == "offsets");
    CHECK(ErrorFieldOf(AttachChanged([](SegmentHeader* h) { h->draft_record_bytes = 0; })) ==
          "offsets");
    CHECK(ErrorCodeOf(Segment::Attach(test::MakeMemfd(64, kSizeSeals)).status()) ==
          SPECD_ERROR_REGION);
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const UniqueFd writer(ends[1]);
    CHECK(ErrorFieldOf(Segment::Attach(UniqueFd(ends[0])).status()) == "fd");
    CHECK(ErrorFieldOf(Segment::Attach(UniqueFd()).status()) == "fd");
  }

  TEST_CASE("segment: another layout version names both and says whom to upgrade") {
    const absl::Status newer = AttachChanged([](SegmentHeader* h) { h->version.store(3); });
    CHECK(ErrorCodeOf(newer) == SPECD_ERROR_VERSION);
    CHECK(newer.message().find("version 3") != absl::string_view::npos);
    CHECK(newer.message().find("knows 2; upgrade the library") != absl::string_view::npos);
    // A half-written header has version 0.
    const absl::Status older = AttachChanged([](SegmentHeader* h) { h->version.store(0); });
    CHECK(older.message().find("upgrade the daemon") != absl::string_view::npos);
  }
}

}  // namespace
}  // namespace specd
