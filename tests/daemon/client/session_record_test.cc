// What an engine tells the next daemon of its memory, and in which order.
#include "daemon/client/session_record.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "ipc/segment/engine_channel.h"
#include "ipc/segment/segment.h"

namespace specd {
namespace {

// Takes every request, and writes down the roles that are bound and the regions that there are.
class TakingLink : public EngineLink {
 public:
  absl::StatusOr<Reply> Call(const Request& request, int, UniqueFd*) override {
    if (std::holds_alternative<RegisterRegionRequest>(request)) {
      most_regions = std::max(most_regions, ++num_regions);
      return Reply(RegionReply{++last_region});
    }
    if (std::holds_alternative<UnregisterRegionRequest>(request)) --num_regions;
    if (const auto* bind = std::get_if<BindTensorRequest>(&request)) roles.push_back(bind->role);
    return Reply(OkReply{});
  }
  absl::StatusOr<Registration> RegisterDevice(uint64_t, uint64_t) override {
    return Registration{.region = 70'000, .skip_bytes = 0};
  }
  absl::StatusOr<Registration> RegisterLent(void*, uint64_t) override { return UnexpectedReply(); }
  absl::Status Finish() override { return absl::OkStatus(); }
  absl::Status MarkDrafts(void*, uint64_t) override { return UnexpectedReply(); }
  absl::Status CheckStaging() override { return UnexpectedReply(); }
  absl::Status EnqueueStaged(void*, uint32_t) override { return UnexpectedReply(); }
  bool StepPiece() override { return false; }
  absl::StatusOr<SessionSequences::Text> TextOf(uint64_t) override { return UnexpectedReply(); }
  bool is_embedded() const override { return false; }
  bool PeerGone() const override { return false; }
  bool HungUp() const override { return false; }
  int hangup_fd() const override { return -1; }

  std::vector<uint32_t> roles;
  int num_regions = 0;
  int most_regions = 0;
  uint32_t last_region = 0;
};

UniqueFd SomeMemory() {
  UniqueFd fd(memfd_create("region", MFD_CLOEXEC));
  REQUIRE(fd.valid());
  return fd;
}

BindTensorRequest BindingOf(uint32_t role, uint32_t region) {
  return {.role = role, .region = region, .spec = {}};
}

struct Record {
  uint32_t AddHost() {
    const absl::StatusOr<uint32_t> region = record.AddRegion(1, SomeMemory().get(), 4096);
    REQUIRE(region.ok());
    return *region;
  }
  void Tell() {
    absl::StatusOr<Segment> segment = Segment::Create(SessionLimits{8, 4, 4, 3, 2, 4}, {1, 77});
    REQUIRE(segment.ok());
    REQUIRE(record.Tell(&link, EngineChannel(&*segment)).ok());
  }

  SessionRecord record;
  TakingLink link;
};

TEST_SUITE("unit") {
  // Bug: numbers of the record were compared with the daemon's, so no memory was a device's.
  TEST_CASE("session record: it knows which of its regions is device memory") {
    Record told;
    const uint32_t host = told.AddHost();
    const uint32_t device = told.record.AddDeviceRegion({.region = 70'000}, 0x1000, 4096);
    CHECK_FALSE(told.record.IsOnDevice(host));
    CHECK(told.record.IsOnDevice(device));
    CHECK_FALSE(told.record.IsOnDevice(device + 1));
  }

  // Bug: a list of children that the daemon had dropped was told, after its region was gone, with a
  // region that no daemon knew.
  TEST_CASE("session record: a list of children drops its sister in the other memory") {
    for (const uint32_t first : {SPECD_DRAFT_NEXT_CHILD, SPECD_DRAFT_NEXT_SIBLING}) {
      CAPTURE(first);
      const uint32_t second = SPECD_DRAFT_NEXT_CHILD + SPECD_DRAFT_NEXT_SIBLING - first;
      Record told;
      const uint32_t host = told.AddHost();
      const uint32_t device = told.record.AddDeviceRegion({.region = 70'000}, 0x1000, 4096);
      told.record.AddBinding(BindingOf(first, host));
      told.record.AddBinding(BindingOf(SPECD_DRAFT_PARENTS, host));
      told.record.AddBinding(BindingOf(second, device));
      told.record.RemoveRegion(host);
      told.Tell();
      CHECK(told.link.roles == std::vector<uint32_t>{SPECD_DRAFT_PARENTS, second});
      // In one memory both stay.
      told.record.AddBinding(BindingOf(first, device));
      told.link.roles.clear();
      told.Tell();
      CHECK(told.link.roles == std::vector<uint32_t>{SPECD_DRAFT_PARENTS, second, first});
    }
  }

  // Bug: a map's copy was a 17th region beside the 16 that a daemon takes.
  TEST_CASE("session record: a map is told before the regions, and needs one for a moment") {
    Record told;
    const uint32_t rows = told.AddHost();
    for (int i = 1; i < 16; ++i) told.AddHost();
    told.record.AddBinding(BindingOf(SPECD_TARGET_ROWS, rows));
    told.record.AddBinding(BindingOf(SPECD_DRAFT_MAP, rows), SomeMemory());
    told.record.AddBinding(BindingOf(SPECD_DRAFT_ROWS, rows));
    told.Tell();
    CHECK(told.link.most_regions == 16);
    CHECK(told.link.roles ==
          std::vector<uint32_t>{SPECD_DRAFT_MAP, SPECD_TARGET_ROWS, SPECD_DRAFT_ROWS});
  }
}

}  // namespace
}  // namespace specd
