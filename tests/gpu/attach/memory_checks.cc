// Checks of memory that one process exports and another imports (docs/PROTOCOL.md, "Registering
// device memory").
#include <fmt/format.h>

#include <optional>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"
#include "tests/support/pid_namespace.h"

namespace specd {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

AttachResult CheckMps(const AttachSetting& setting) {
  const std::optional<bool> has_mps = setting.device.has_mps;
  const char* const detail = !has_mps.has_value() ? "the driver does not say"
                             : *has_mps           ? "this process is a client of MPS"
                                                  : "this process has the device to itself";
  return {AttachStatus::kObserved, detail, {}};
}

AttachResult CheckSubAllocation(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    const uint64_t size_bytes = 8 * kMiB;
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kIpc, size_bytes, 0x11, 3 * kMiB);
    // Allocators hand out parts, and the whole allocation travels (torch's caching allocator).
    Expect(memory.reply.address == memory.address_there, "the exporter does not find the base");
    GpuMapping mapping;
    ExpectOk(scene.gpu().Import(memory.import(), &mapping), "importing");
    Expect(
        mapping.size_bytes == memory.reply.size_bytes && mapping.size_bytes >= size_bytes,
        fmt::format("{} bytes were imported of {}", mapping.size_bytes, memory.reply.size_bytes));
    GpuAllocation found;
    ExpectOk(scene.gpu().Describe(mapping.address + size_bytes - 1, &found), "describing");
    Expect(found.base == mapping.address, "the imported memory has another base");
    for (const uint64_t place : {uint64_t{0}, 3 * kMiB, size_bytes - 1}) {
      Expect(scene.ByteAt(mapping.address + place) == 0x11,
             fmt::format("byte {} is not the exporter's", place));
    }
    scene.Ask({.op = PeerOp::kFill,
               .address = memory.address_there,
               .size_bytes = size_bytes,
               .value = 0x22});
    Expect(scene.ByteAt(mapping.address + 5) == 0x22, "the import is a copy");
    ExpectOk(scene.gpu().Close(mapping), "closing");
    scene.Ask({.op = PeerOp::kFree, .address = memory.address_there});
    return AttachResult{.detail =
                            fmt::format("{} bytes from an inner address", memory.reply.size_bytes)};
  });
}

AttachResult CheckOpenedTwice(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kIpc, kMiB, 0x33);
    GpuMapping first;
    GpuMapping second;
    ExpectOk(scene.gpu().Import(memory.import(), &first), "importing");
    ExpectOk(scene.gpu().Import(memory.import(), &second), "importing again");
    Expect(first.address == second.address, "the second import has another address");
    ExpectOk(scene.gpu().Close(first), "closing");
    Expect(scene.ByteAt(second.address) == 0x33, "the first close took the memory away");
    ExpectOk(scene.gpu().Close(second), "closing again");
    const GpuResult third = scene.gpu().Close(second);
    Expect(!third.ok(), "closing once too often succeeds");
    return AttachResult{.detail = fmt::format("closing once too often: {}", third.code()),
                        .figures = {{"code_closed_too_often", third.code()}}};
  });
}

AttachResult CheckBadHandles(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    AttachResult result;
    const auto refused = [&](const char* name, const GpuImport& import) {
      GpuMapping mapping;
      const GpuResult imported = scene.gpu().Import(import, &mapping);
      Expect(!imported.ok(), fmt::format("{} is accepted", name));
      result.detail +=
          fmt::format("{}{}: {}", result.detail.empty() ? "" : ", ", name, imported.code());
      result.figures.emplace_back(fmt::format("code_{}", name), imported.code());
    };
    GpuAddress own = 0;
    GpuExport exported;
    ExpectOk(scene.gpu().Allocate(kMiB, &own), "allocating");
    ExpectOk(scene.gpu().Export(own, GpuMemoryKind::kIpc, &exported), "exporting");
    refused("own_handle", {exported.kind, exported.handle});
    GpuImport random;
    for (size_t i = 0; i < kGpuHandleBytes; ++i) {
      random.handle[i] = static_cast<uint8_t>(37 * i + 11);
    }
    refused("random_bytes", random);
    refused("no_bytes", {});
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kIpc, kMiB, 1);
    scene.Ask({.op = PeerOp::kFree, .address = memory.address_there});
    refused("freed", memory.import());
    const PeerMemory orphan = scene.MemoryOfPeer(GpuMemoryKind::kIpc, kMiB, 1);
    scene.peer().Kill();
    refused("exporter_gone", orphan.import());
    refused("no_descriptor", {GpuMemoryKind::kVmm, {}, {{-1, 2 * kMiB}}});
    ExpectOk(scene.gpu().Check(), "afterwards");
    return result;
  });
}

AttachResult CheckDescriptor(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kVmm, 4 * kMiB, 0x44);
    GpuMapping mapping;
    ExpectOk(scene.gpu().Import(memory.import(), &mapping), "importing");
    Expect(scene.ByteAt(mapping.address + 4 * kMiB - 1) == 0x44, "the bytes are others");
    scene.Ask({.op = PeerOp::kFree, .address = memory.address_there});
    Expect(scene.ByteAt(mapping.address) == 0x44, "the exporter's free took the memory away");
    scene.peer().Kill();
    Expect(scene.ByteAt(mapping.address + kMiB) == 0x44, "the exporter's end took the memory away");
    ExpectOk(scene.gpu().Close(mapping), "closing");
    return AttachResult{.detail = "readable after the exporter freed it and was killed"};
  });
}

// As in PyTorch's expandable segments: a tensor over pieces that have a descriptor each.
AttachResult CheckPieces(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    const PeerPieces pieces = scene.PiecesOfPeer(10 * kMiB, 4 * kMiB);
    GpuMapping mapping;
    ExpectOk(scene.gpu().Import(pieces.import, &mapping), "importing");
    Expect(mapping.size_bytes == 10 * kMiB, "the pieces have another size together");
    const auto expect_bytes = [&](const char* when) {
      uint64_t begin = 0;
      for (size_t i = 0; i < pieces.import.pieces.size(); ++i) {
        const uint64_t size_bytes = pieces.import.pieces[i].size_bytes;
        for (const uint64_t place : {begin, begin + size_bytes - 1}) {
          Expect(scene.ByteAt(mapping.address + place) == pieces.values[i],
                 fmt::format("byte {} is not the exporter's {}", place, when));
        }
        begin += size_bytes;
      }
    };
    expect_bytes("while it has them");
    // One read over a seam.
    uint64_t word = 0;
    const auto* const seam = reinterpret_cast<void*>(mapping.address + 4 * kMiB - 4);
    ExpectOk(scene.gpu().Copy(scene.stream(), &word, seam, sizeof(word)), "reading over a seam");
    ExpectOk(scene.gpu().Synchronize(scene.stream()), "reading over a seam");
    Expect((word & 0xff) == pieces.values[0] && word >> 56 == pieces.values[1],
           "a word over a seam is not the exporter's");
    scene.Ask({.op = PeerOp::kFree, .address = pieces.address_there});
    scene.peer().Kill();
    expect_bytes("after its end");
    ExpectOk(scene.gpu().Close(mapping), "closing");
    // A list that ends with a wrong piece maps nothing, and the same pieces open again.
    GpuImport bad = pieces.import;
    bad.pieces.back().fd = -1;
    Expect(!scene.gpu().Import(bad, &mapping).ok(), "a piece without a descriptor is accepted");
    ExpectOk(scene.gpu().Import(pieces.import, &mapping), "importing again");
    expect_bytes("when they are mapped again");
    ExpectOk(scene.gpu().Close(mapping), "closing again");
    ExpectOk(scene.gpu().Check(), "afterwards");
    return AttachResult{.detail = fmt::format("{} pieces as one", pieces.import.pieces.size())};
  });
}

AttachResult CheckPool(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    const PeerMemory memory = scene.MemoryOfPeer(GpuMemoryKind::kPool, kMiB, 0x55);
    GpuMapping mapping;
    ExpectOk(scene.gpu().Import(memory.import(), &mapping), "importing");
    Expect(scene.ByteAt(mapping.address + kMiB - 1) == 0x55, "the bytes are others");
    ExpectOk(scene.gpu().Close(mapping), "closing");
    scene.Ask({.op = PeerOp::kFree, .address = memory.address_there});
    return AttachResult{.detail = fmt::format("{} bytes", mapping.size_bytes)};
  });
}

// Plays a daemon and an engine in two containers. CUDA does not say whether its handles and
// descriptors work there.
AttachResult CheckPidNamespace(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    NeedWords(scene);
    const std::string why = WhyNoPidNamespace();
    if (!why.empty()) {
      throw SceneOver{AttachStatus::kSkipped, "this process can make no pid namespace: " + why};
    }
    scene.StartPeer({kInPidNamespace});
    PeerReply reply;
    if (!scene.peer().TryCall({.op = PeerOp::kQuery}, &reply)) {
      return AttachResult{AttachStatus::kObserved, "a process there has no GPU", {}};
    }
    Expect(reply.pid == 1, "the other process has no pid namespace of its own");
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    scene.Ask({.op = PeerOp::kWriteValue, .word = 0, .value = 7});
    Expect(scene.Await([&] { return words.Load(0) == 7; }), "its stream does not reach our word");
    AttachResult result = {.status = AttachStatus::kObserved};
    const auto add = [&](const char* name, const GpuResult& opened) {
      result.detail +=
          fmt::format("{}{}: {}", result.detail.empty() ? "" : ", ", name, opened.code());
      result.figures.emplace_back(fmt::format("code_{}", name), opened.code());
    };
    const std::pair<GpuMemoryKind, const char*> kinds[] = {{GpuMemoryKind::kIpc, "handle"},
                                                           {GpuMemoryKind::kVmm, "descriptor"},
                                                           {GpuMemoryKind::kPool, "pool"}};
    for (const auto& [kind, name] : kinds) {
      if (!scene.HasPeerMemory(kind)) continue;
      const PeerMemory memory = scene.MemoryOfPeer(kind, 2 * kMiB, 0x77);
      GpuMapping mapping;
      const GpuResult imported = scene.gpu().Import(memory.import(), &mapping);
      add(name, imported);
      if (!imported.ok()) continue;
      Expect(scene.ByteAt(mapping.address + kMiB) == 0x77, "the bytes are others");
      ExpectOk(scene.gpu().Close(mapping), "closing");
    }
    return result;
  });
}

}  // namespace specd
