#include "tests/gpu/attach/scene.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace specd {

namespace {

constexpr uint64_t kPageBytes = 4096;

}  // namespace

const char* NameOf(AttachStatus status) {
  switch (status) {
    case AttachStatus::kPass:
      return "pass";
    case AttachStatus::kFail:
      return "fail";
    case AttachStatus::kSkipped:
      return "skipped";
    case AttachStatus::kObserved:
      return "observed";
  }
  return "?";
}

void Expect(bool condition, const std::string& otherwise) {
  if (!condition) throw SceneOver{AttachStatus::kFail, otherwise};
}

void ExpectOk(const GpuResult& result, const char* what) {
  Expect(result.ok(), fmt::format("{}: {}", what, result.text()));
}

SharedWords::SharedWords(GpuContext* context)
    : context_(*context), fd_(memfd_create("specd-gpu-attach", MFD_CLOEXEC)) {
  Expect(fd_.valid() && ftruncate(fd_.get(), kPageBytes) == 0, "no memfd can be made");
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  Expect(page != MAP_FAILED, "the memfd cannot be mapped");
  host_ = static_cast<uint64_t*>(page);
  ExpectOk(context_.RegisterHost(host_, kPageBytes, &device_), "registering the memfd's page");
}

SharedWords::~SharedWords() {
  for (uint64_t word = 0; word < kPageBytes / sizeof(uint64_t); ++word) {
    Store(word, ~uint64_t{0} >> 2);
  }
}

Scene::Scene(const AttachSetting& setting) : setting_(setting), gpu_(setting.gpu->context()) {
  ExpectOk(gpu_.CreateStream(&stream_), "making a stream");
}

GpuPeer& Scene::peer() {
  if (peer_ == nullptr) StartPeer({});
  return *peer_;
}

void Scene::StartPeer(const PeerEnvironment& environment) {
  peer_ = setting_.start_peer(environment);
}

void Scene::LoadKernels() {
  for (const PeerKernel kernel : {PeerKernel::kRead, PeerKernel::kEcho}) {
    ExpectOk(setting_.gpu->LoadKernel(kernel), "loading a kernel");
  }
}

void Scene::Launch(const PeerLaunch& launch) {
  ExpectOk(setting_.gpu->Launch(stream_, launch), "launching a kernel");
}

PeerReply Scene::Ask(const PeerRequest& request, int fd, UniqueFd* reply_fd) {
  const PeerReply reply = peer().Call(request, fd, reply_fd);
  Expect(reply.code == kGpuOk, fmt::format("the other process: request {} gives error {}",
                                           static_cast<uint32_t>(request.op), reply.code));
  return reply;
}

bool Scene::HasPeerMemory(GpuMemoryKind kind) {
  constexpr uint64_t kSizeBytes = uint64_t{2} << 20;
  const PeerReply made =
      peer().Call({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = kSizeBytes});
  if (made.code == kGpuNotSupported) return false;
  Expect(made.code == kGpuOk, fmt::format("the other process cannot allocate: {}", made.code));
  Ask({.op = PeerOp::kFree, .address = made.address});
  return true;
}

PeerMemory Scene::MemoryOfPeer(GpuMemoryKind kind, uint64_t size_bytes, uint8_t value,
                               uint64_t offset_bytes) {
  PeerMemory memory;
  memory.kind = kind;
  memory.address_there =
      AllocateThere({.op = PeerOp::kAllocate, .kind = kind, .size_bytes = size_bytes});
  Ask({.op = PeerOp::kFill,
       .address = memory.address_there,
       .size_bytes = size_bytes,
       .value = value});
  memory.reply =
      Ask({.op = PeerOp::kExport, .kind = kind, .address = memory.address_there + offset_bytes}, -1,
          &memory.fd);
  return memory;
}

GpuAddress Scene::AllocateThere(const PeerRequest& request) {
  const PeerReply made = peer().Call(request);
  if (made.code == kGpuNotSupported) {
    throw SceneOver{AttachStatus::kSkipped, "this device has no memory of that kind"};
  }
  Expect(made.code == kGpuOk, fmt::format("the other process cannot allocate: {}", made.code));
  return made.address;
}

PeerPieces Scene::PiecesOfPeer(uint64_t size_bytes, uint64_t piece_bytes) {
  PeerPieces pieces;
  pieces.address_there = AllocateThere({.op = PeerOp::kAllocate,
                                        .kind = GpuMemoryKind::kVmm,
                                        .size_bytes = size_bytes,
                                        .piece_bytes = piece_bytes});
  for (uint64_t done_bytes = 0; done_bytes < size_bytes; done_bytes += piece_bytes) {
    const GpuAddress there = pieces.address_there + done_bytes;
    const uint64_t rest_bytes = std::min(piece_bytes, size_bytes - done_bytes);
    const auto value = static_cast<uint8_t>(0x31 + pieces.values.size());
    Ask({.op = PeerOp::kFill, .address = there, .size_bytes = rest_bytes, .value = value});
    // Any address in a piece stands for the piece.
    const PeerReply exported =
        Ask({.op = PeerOp::kExport, .kind = GpuMemoryKind::kVmm, .address = there + rest_bytes - 1},
            -1, &pieces.fds.emplace_back());
    Expect(exported.address == there && exported.size_bytes == rest_bytes,
           fmt::format("the exporter finds {} bytes from {} bytes behind the begin of piece {}",
                       exported.size_bytes, static_cast<int64_t>(exported.address - there),
                       pieces.values.size()));
    pieces.values.push_back(value);
    pieces.import.pieces.push_back({pieces.fds.back().get(), rest_bytes});
  }
  return pieces;
}

uint8_t Scene::ByteAt(GpuAddress address) {
  uint8_t byte = 0;
  ExpectOk(gpu_.Copy(stream_, &byte, reinterpret_cast<void*>(address), 1), "reading a byte");
  ExpectOk(gpu_.Synchronize(stream_), "reading a byte");
  return byte;
}

bool Scene::Await(const std::function<bool()>& condition, int patience_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

bool Scene::IsIdle() {
  const GpuResult result = gpu_.Query(stream_);
  if (result.code() == kGpuNotReady) return false;
  ExpectOk(result, "asking our stream");
  return true;
}

bool Scene::IsPeerIdle() {
  const int code = peer().Call({.op = PeerOp::kQuery}).code;
  if (code == kGpuNotReady) return false;
  Expect(code == kGpuOk, fmt::format("the other process's stream gives error {}", code));
  return true;
}

void NeedWords(const Scene& scene) {
  if (scene.device().has_64_bit_words) return;
  throw SceneOver{AttachStatus::kSkipped, "this device's streams have no 64-bit words"};
}

AttachResult PlayScene(const AttachSetting& setting,
                       const std::function<AttachResult(Scene&)>& scenario) {
  try {
    Scene scene(setting);
    return scenario(scene);
  } catch (const SceneOver& over) {
    return {over.status, over.why};
  }
}

double Percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  return values[place];
}

}  // namespace specd
