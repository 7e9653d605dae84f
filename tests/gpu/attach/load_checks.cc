// Checks of two processes' CUDA streams while one process copies.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

using Clock = std::chrono::steady_clock;

constexpr GpuWord kWord = GpuWord::k64;

GpuAddress AllocateFilled(Scene& scene, uint64_t size_bytes, uint8_t value) {
  const std::vector<uint8_t> bytes(size_bytes, value);
  GpuAddress memory = 0;
  ExpectOk(scene.gpu().Allocate(size_bytes, &memory), "allocating");
  ExpectOk(
      scene.gpu().Copy(scene.stream(), reinterpret_cast<void*>(memory), bytes.data(), size_bytes),
      "filling");
  ExpectOk(scene.gpu().Synchronize(scene.stream()), "filling");
  return memory;
}

GpuResult CopyOnDevice(EngineGpu& gpu, GpuStream stream, GpuAddress target, GpuAddress source,
                       uint64_t size_bytes) {
  return gpu.Copy(stream, reinterpret_cast<void*>(target), reinterpret_cast<void*>(source),
                  size_bytes);
}

// The CPU writes word 0, our CUDA stream word 1, and the peer's CUDA stream word 2, which the CPU
// sees.
class HandOvers {
 public:
  explicit HandOvers(Scene* scene) : scene_(*scene), words_(&scene->gpu()) {
    scene_.Ask({.op = PeerOp::kWords}, words_.fd());
  }

  SharedWords& words() { return words_; }

  // Times in microseconds. `meanwhile` is called before each hand-over and until it is done.
  std::vector<double> Time(uint64_t num_batches, const std::function<void()>& meanwhile) {
    std::vector<double> microseconds;
    for (uint64_t batch = 0; batch < num_batches; ++batch, first_ += kPerBatch) {
      scene_.Ask({.op = PeerOp::kEcho, .size_bytes = kPerBatch, .word = 1, .value = first_});
      for (uint64_t value = first_; value < first_ + kPerBatch; ++value) {
        ExpectOk(scene_.gpu().WaitValue(scene_.stream(), words_.at(0), kWord, value), "waiting");
        ExpectOk(scene_.gpu().WriteValue(scene_.stream(), words_.at(1), kWord, value), "writing");
      }
      for (uint64_t value = first_; value < first_ + kPerBatch; ++value) {
        microseconds.push_back(TimeOne(value, meanwhile));
      }
    }
    return microseconds;
  }

 private:
  // A CUDA stream takes a limited number of commands before the next one waits for room.
  static constexpr uint64_t kPerBatch = 50;

  // Times from the CPU's store until the CPU sees the answer.
  double TimeOne(uint64_t value, const std::function<void()>& meanwhile) {
    meanwhile();
    const auto start = Clock::now();
    words_.Store(0, value);
    const auto is_through = [&] {
      meanwhile();
      return words_.Load(2) == value;
    };
    Expect(scene_.Await(is_through), "a hand-over is lost");
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    return took.count();
  }

  Scene& scene_;
  SharedWords words_;
  uint64_t first_ = 1;  // value of the next batch
};

// Hand-overs of one kind. Their figures' names begin with `figures`.
struct HandOverTimes {
  std::string what;
  std::string figures;
  std::vector<double> microseconds;
};

AttachResult Observed(const std::vector<HandOverTimes>& all) {
  AttachResult result{.status = AttachStatus::kObserved};
  for (const HandOverTimes& times : all) {
    const double p50 = Percentile(times.microseconds, 0.5);
    const double p99 = Percentile(times.microseconds, 0.99);
    result.detail +=
        fmt::format("{}{}: p50 {:.1f} us, p99 {:.1f} us of {}", result.detail.empty() ? "" : "; ",
                    times.what, p50, p99, times.microseconds.size());
    result.figures.emplace_back(times.figures + "p50_us", p50);
    result.figures.emplace_back(times.figures + "p99_us", p99);
  }
  return result;
}

// Copies between two allocations of this process, one after another on a CUDA stream of their own.
// Word 3 counts the copies that are done.
class BusyCudaStream {
 public:
  BusyCudaStream(Scene* scene, SharedWords* words, uint64_t copy_bytes)
      : scene_(*scene),
        words_(*words),
        copy_bytes_(copy_bytes),
        source_(AllocateFilled(*scene, copy_bytes, 0x5a)),
        target_(AllocateFilled(*scene, copy_bytes, 0)) {
    ExpectOk(scene_.gpu().CreateStream(&stream_), "making a stream");
  }

  // Enqueues enough copies to keep the CUDA stream busy until the next call, in most cases.
  void Feed() {
    constexpr uint64_t kEnough = 8;
    const uint64_t under_way = enqueued_ - done();
    if (under_way == 0 && enqueued_ != 0) ++num_dry_;
    if (under_way > kEnough / 2) return;
    for (uint64_t i = under_way; i < kEnough; ++i) {
      ExpectOk(CopyOnDevice(scene_.gpu(), stream_, target_, source_, copy_bytes_), "copying");
      ExpectOk(scene_.gpu().WriteValue(stream_, words_.at(3), kWord, ++enqueued_), "writing");
    }
  }

  uint64_t done() const { return words_.Load(3); }
  // The number of times that no work was left.
  uint64_t num_dry() const { return num_dry_; }

  void End() {
    ExpectOk(scene_.gpu().Synchronize(stream_), "ending the copies");
    Expect(done() == enqueued_ && scene_.ByteAt(target_ + copy_bytes_ - 1) == 0x5a,
           "the copies were not made");
    ExpectOk(scene_.gpu().DestroyStream(stream_), "destroying a stream");
    ExpectOk(scene_.gpu().Free(source_), "freeing");
    ExpectOk(scene_.gpu().Free(target_), "freeing");
  }

 private:
  Scene& scene_;
  SharedWords& words_;
  const uint64_t copy_bytes_;
  const GpuAddress source_;
  const GpuAddress target_;
  GpuStream stream_;
  uint64_t enqueued_ = 0;
  uint64_t num_dry_ = 0;
};

// Our copies into the peer's memory, and the peer's CUDA stream, which waits for word 0 meanwhile.
class LateWriter {
 public:
  static constexpr uint8_t kLast = 0x33;  // value of the last copy, and of none before it

  LateWriter(Scene* scene, uint64_t size_bytes)
      : scene_(*scene),
        size_bytes_(size_bytes),
        words_(&scene->gpu()),
        memory_(scene->MemoryOfPeer(GpuMemoryKind::kIpc, size_bytes, 0)),
        others_(AllocateFilled(*scene, size_bytes, 0x22)),
        last_(AllocateFilled(*scene, size_bytes, kLast)) {
    scene_.Ask({.op = PeerOp::kWords}, words_.fd());
    ExpectOk(scene_.gpu().Import(memory_.import(), &mapping_), "importing");
  }

  SharedWords& words() { return words_; }

  void CopyOnce() { Copy(others_); }
  void CopyAll() {
    constexpr int kCopies = 16;
    for (int i = 1; i < kCopies; ++i) Copy(others_);
    Copy(last_);
  }
  void WriteWord(uint64_t word) {
    ExpectOk(scene_.gpu().WriteValue(scene_.stream(), words_.at(word), kWord, 1), "writing");
  }
  void WaitForWord(uint64_t word) {
    ExpectOk(scene_.gpu().WaitValue(scene_.stream(), words_.at(word), kWord, 1), "waiting");
  }

  void HoldPeer(uint64_t value) {
    scene_.Ask({.op = PeerOp::kWaitValue, .word = 0, .value = value});
  }
  void ReleasePeer(uint64_t value) {
    words_.Store(0, value);
    Expect(scene_.Await([&] { return scene_.IsPeerIdle(); }),
           "a store does not release the exporter's stream");
  }
  // REQUIRES: the peer is not held.
  void PeerFill(uint8_t value) {
    scene_.Ask({.op = PeerOp::kFill,
                .address = memory_.address_there,
                .size_bytes = size_bytes_,
                .value = value});
  }
  bool PeerSees(uint8_t value) {
    const uint64_t word = value * uint64_t{0x0101010101010101};
    for (const uint64_t place : {uint64_t{0}, size_bytes_ / 2, size_bytes_ - sizeof(word)}) {
      const GpuAddress address = memory_.address_there + place;
      if (scene_.Ask({.op = PeerOp::kRead, .address = address}).value != word) return false;
    }
    return true;
  }

  void End() {
    ExpectOk(scene_.gpu().Close(mapping_), "closing");
    scene_.Ask({.op = PeerOp::kFree, .address = memory_.address_there});
    ExpectOk(scene_.gpu().Free(others_), "freeing");
    ExpectOk(scene_.gpu().Free(last_), "freeing");
  }

 private:
  void Copy(GpuAddress source) {
    ExpectOk(CopyOnDevice(scene_.gpu(), scene_.stream(), mapping_.address, source, size_bytes_),
             "copying");
  }

  Scene& scene_;
  const uint64_t size_bytes_;
  SharedWords words_;
  const PeerMemory memory_;
  const GpuAddress others_;
  const GpuAddress last_;
  GpuMapping mapping_;
};

}  // namespace

AttachResult CheckHandOffLatency(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    HandOvers hand_overs(&scene);
    return Observed({{"CPU to stream to other process's stream to CPU", "",
                      hand_overs.Time(setting.num_batches, [] {})}});
  });
}

// Without MPS processes take turns, so work of one may hold up the other for a whole turn.
AttachResult CheckBusyHandOff(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    HandOvers hand_overs(&scene);
    BusyCudaStream other(&scene, &hand_overs.words(), setting.copy_bytes);
    const std::vector<double> idle = hand_overs.Time(setting.num_batches, [] {});
    const std::vector<double> busy = hand_overs.Time(setting.num_batches, [&] { other.Feed(); });
    // A CUDA stream without progress was held up itself, and did not keep the other process busy.
    const uint64_t copies = other.done();
    other.End();
    AttachResult result =
        Observed({{fmt::format("beside {} copies of {} bytes, which were all done {} times", copies,
                               setting.copy_bytes, other.num_dry()),
                   "busy_", busy},
                  {"without them", "idle_", idle}});
    result.figures.emplace_back("copies", static_cast<double>(copies));
    result.figures.emplace_back("times_without_copies", static_cast<double>(other.num_dry()));
    return result;
  });
}

// Tests the late writes of a slow but living daemon after a watchdog has released the engine's CUDA
// stream (docs/GPU.md, "A round on a CUDA stream"). This process is the daemon, and the other
// process is the engine.
AttachResult CheckLateWriter(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    constexpr int kReadsAfterwards = 100;
    constexpr int kHeldMs = 20;  // work that does not wait is mostly done by then
    LateWriter writer(&scene, setting.copy_bytes);
    // The device decides how long it takes. The exporter looks whenever it gets a turn.
    writer.HoldPeer(1);
    writer.CopyOnce();
    writer.WriteWord(1);
    writer.CopyAll();
    Expect(scene.Await([&] { return writer.words().Load(1) == 1; }), "no copy comes through");
    const auto start = Clock::now();
    writer.ReleasePeer(1);
    const bool is_late = !writer.PeerSees(LateWriter::kLast);
    Expect(scene.Await([&] { return writer.PeerSees(LateWriter::kLast); }),
           "the last copy does not arrive");
    const std::chrono::duration<double, std::milli> took = Clock::now() - start;
    const double late_ms = is_late ? took.count() : 0;
    ExpectOk(scene.gpu().Synchronize(scene.stream()), "waiting for the copies");
    // Now the copies begin only after the exporter was released, so all of them are late.
    writer.PeerFill(0x11);
    writer.HoldPeer(2);
    writer.WaitForWord(2);
    writer.CopyAll();
    writer.ReleasePeer(2);
    Expect(!scene.Await([&] { return !writer.PeerSees(0x11); }, kHeldMs),
           "a copy does not wait for its word");
    writer.words().Store(2, 1);
    ExpectOk(scene.gpu().Synchronize(scene.stream()), "waiting for the copies");
    Expect(writer.PeerSees(LateWriter::kLast), "Synchronize returns before the last byte is there");
    writer.PeerFill(0x44);
    for (int i = 0; i < kReadsAfterwards; ++i) {
      Expect(writer.PeerSees(0x44), "bytes arrive after the importer's Synchronize");
    }
    writer.End();
    return AttachResult{
        AttachStatus::kObserved,
        fmt::format("{}; none after the importer's Synchronize",
                    is_late ? fmt::format("the last byte came {:.2f} ms after the release", late_ms)
                            : std::string("every byte was there at the first look")),
        {{"late_ms", late_ms}}};
  });
}

}  // namespace specd
