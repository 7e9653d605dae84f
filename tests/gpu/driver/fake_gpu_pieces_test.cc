// Memory of several pieces, each with a descriptor of its own, on the pretended GPU. The tests hold
// the GPU to cuMemMap's rules (<cuda.h>), which the import of such memory needs.
#include <doctest/doctest.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "tests/gpu/driver/fake_gpu_context.h"
#include "tests/support/gpu_peer.h"
#include "tests/support/open_fds.h"

namespace specd {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

unsigned char ByteAt(FakeGpuContext& gpu, GpuAddress address) {
  GpuStream stream;
  unsigned char byte = 0;
  REQUIRE(gpu.CreateStream(&stream).ok());
  REQUIRE(gpu.Copy(stream, &byte, reinterpret_cast<void*>(address), 1).ok());
  REQUIRE(gpu.Synchronize(stream).ok());
  return byte;
}

TEST_SUITE("process") {
  TEST_CASE("fake gpu: pieces lie side by side on both sides, and are mapped all or none") {
    GpuPeer peer;
    FakeGpuContext own(FakeGpuOptions(), 0);
    const uint64_t sizes[] = {4 * kMiB, 4 * kMiB, 2 * kMiB};
    const PeerReply made = peer.Call({.op = PeerOp::kAllocate,
                                      .kind = GpuMemoryKind::kVmm,
                                      .size_bytes = 10 * kMiB,
                                      .piece_bytes = 4 * kMiB});
    REQUIRE(made.code == kGpuOk);
    GpuImport import{.kind = GpuMemoryKind::kVmm};
    std::vector<UniqueFd> fds;
    GpuAddress there = made.address;
    for (const uint64_t size_bytes : sizes) {
      peer.Call({.op = PeerOp::kFill,
                 .address = there,
                 .size_bytes = size_bytes,
                 .value = 0x10 + fds.size()});
      UniqueFd fd;
      // An address in the middle stands for its piece.
      const PeerReply piece = peer.Call(
          {.op = PeerOp::kExport, .kind = GpuMemoryKind::kVmm, .address = there + kMiB}, -1, &fd);
      REQUIRE(piece.code == kGpuOk);
      CHECK(piece.address == there);
      CHECK(piece.size_bytes == size_bytes);
      import.pieces.push_back({fd.get(), size_bytes});
      fds.push_back(std::move(fd));
      there += size_bytes;
    }
    // Over the seam, in the exporter's process too.
    CHECK(peer.Call({.op = PeerOp::kFill,
                     .address = made.address + 4 * kMiB - 1,
                     .size_bytes = 2,
                     .value = 0x77})
              .code == kGpuOk);

    GpuMapping mapping;
    const int fds_before = CountOpenFds();
    for (size_t i = 0; i < 3; ++i) {
      GpuImport bad = import;
      bad.pieces[i].fd = STDIN_FILENO;
      CHECK_FALSE(own.Import(bad, &mapping).ok());
      bad = import;
      bad.pieces[i].size_bytes += 2 * kMiB;  // more than there is
      CHECK_FALSE(own.Import(bad, &mapping).ok());
      bad.pieces[i].size_bytes = kMiB;
      CHECK_FALSE(own.Import(bad, &mapping).ok());
      CHECK(own.num_imports() == 0);
      CHECK(CountOpenFds() == fds_before);
    }
    REQUIRE(own.Import(import, &mapping).ok());
    CHECK(own.num_imports() == 1);
    CHECK(mapping.size_bytes == 10 * kMiB);
    CHECK(peer.Call({.op = PeerOp::kFree, .address = made.address}).code == kGpuOk);
    CHECK(peer.Call({.op = PeerOp::kRead, .address = made.address + 9 * kMiB}).code != kGpuOk);
    for (const uint64_t seam_bytes : {4 * kMiB, 8 * kMiB}) {
      const auto before = static_cast<unsigned char>(0x0f + seam_bytes / (4 * kMiB));
      const bool is_first = seam_bytes == 4 * kMiB;
      CHECK(ByteAt(own, mapping.address + seam_bytes - 2) == before);
      CHECK(ByteAt(own, mapping.address + seam_bytes - 1) == (is_first ? 0x77 : before));
      CHECK(ByteAt(own, mapping.address + seam_bytes) == (is_first ? 0x77 : before + 1));
    }
    CHECK(ByteAt(own, mapping.address + 10 * kMiB - 1) == 0x12);
    CHECK(own.Close(mapping).ok());
    CHECK(own.num_imports() == 0);
    CHECK(CountOpenFds() == fds_before);
  }
}

}  // namespace
}  // namespace specd
