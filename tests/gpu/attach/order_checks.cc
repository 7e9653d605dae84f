// Checks of CUDA streams of two processes that wait for each other (docs/GPU.md, "A round on a CUDA
// stream").
#include <fmt/format.h>

#include <thread>
#include <vector>

#include "tests/gpu/attach/scenarios.h"
#include "tests/gpu/attach/scene.h"

namespace specd {

namespace {

constexpr GpuWord kWord = GpuWord::k64;

void SetWord(void* word) {
  __atomic_store_n(static_cast<uint64_t*>(word), uint64_t{1}, __ATOMIC_RELEASE);
}

constexpr size_t kBegun = 3;  // behind the word that ends the wait

void HoldByWord(void* word) {
  SetWord(static_cast<uint64_t*>(word) + kBegun);
  while (__atomic_load_n(static_cast<uint64_t*>(word), __ATOMIC_ACQUIRE) == 0) {
    std::this_thread::yield();
  }
}

}  // namespace

AttachResult CheckWords(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    NeedWords(scene);
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    constexpr uint64_t kRounds = 20;
    // ready = word 0, done = word 1, as an engine and the daemon use them.
    for (uint64_t round = 1; round <= kRounds; ++round) {
      ExpectOk(scene.gpu().WaitValue(scene.stream(), words.at(0), kWord, round), "waiting");
      ExpectOk(scene.gpu().WriteValue(scene.stream(), words.at(1), kWord, round), "writing");
      Expect(words.Load(1) == round - 1, "a stream did not wait for its word");
      scene.Ask({.op = PeerOp::kWriteValue, .word = 0, .value = round});
      scene.Ask({.op = PeerOp::kWaitValue, .word = 1, .value = round});
      Expect(scene.Await([&] { return words.Load(1) == round; }),
             fmt::format("round {} does not come through", round));
      Expect(scene.Await(
                 [&] { return scene.peer().Call({.op = PeerOp::kQuery}).code != kGpuNotReady; }),
             fmt::format("round {} does not come back", round));
    }
    return AttachResult{.detail = fmt::format("{} rounds", kRounds)};
  });
}

AttachResult CheckReleaseByStore(const AttachSetting& setting) {
  return PlayScene(setting, [](Scene& scene) {
    NeedWords(scene);
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    scene.Ask({.op = PeerOp::kWaitValue, .word = 3, .value = 9});
    ExpectOk(scene.gpu().WaitValue(scene.stream(), words.at(4), kWord, 2), "waiting");
    Expect(!scene.IsPeerIdle() && !scene.IsIdle(), "a stream did not wait for its word");
    words.Store(3, 9);
    Expect(scene.Await([&] { return scene.IsPeerIdle(); }),
           "our store does not release the other process's stream");
    scene.Ask({.op = PeerOp::kStore, .word = 4, .value = 2});
    Expect(scene.Await([&] { return scene.IsIdle(); }),
           "the other process's store does not release our stream");
    return AttachResult{.detail = "in both directions"};
  });
}

// Hardware has a number of queues (CUDA_DEVICE_MAX_CONNECTIONS). Further CUDA streams share them.
AttachResult CheckManyStreams(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    NeedWords(scene);
    SharedWords words(&scene.gpu());
    std::vector<GpuStream> streams(100);
    size_t num_free = streams.size();  // CUDA streams that no waiting CUDA stream holds up
    for (size_t i = 0; i < streams.size(); ++i) {
      ExpectOk(scene.gpu().CreateStream(&streams[i]), "making a stream");
      ExpectOk(scene.gpu().WriteValue(streams[i], words.at(1 + i), kWord, 1), "writing");
      const auto is_written = [&] { return words.Load(1 + i) == 1; };
      if (num_free > i && !scene.Await(is_written, setting.held_up_ms)) num_free = i;
      ExpectOk(scene.gpu().WaitValue(streams[i], words.at(0), kWord, 1), "waiting");
    }
    words.Store(0, 1);
    for (const GpuStream stream : streams) {
      Expect(scene.Await([&] { return scene.gpu().Query(stream).ok(); }), "a stream still waits");
      ExpectOk(scene.gpu().DestroyStream(stream), "destroying a stream");
    }
    return AttachResult{AttachStatus::kObserved,
                        fmt::format("all of {} streams were released; {} waited before one was "
                                    "held up",
                                    streams.size(), num_free),
                        {{"streams_until_held_up", static_cast<double>(num_free)}}};
  });
}

// Plays specd_submit_on_stream on a device whose CUDA streams have no memory operations
// (daemon/client/host_waits.h).
AttachResult CheckHostFunctions(const AttachSetting& setting) {
  return PlayScene(setting, [&](Scene& scene) {
    SharedWords words(&scene.gpu());
    scene.Ask({.op = PeerOp::kWords}, words.fd());
    GpuStream unordered;
    GpuStream ordered;
    GpuEvent turn;
    ExpectOk(scene.gpu().CreateStream(&unordered), "making a stream");
    ExpectOk(scene.gpu().CreateStream(&ordered), "making a stream");
    ExpectOk(scene.gpu().CreateEvent(&turn), "making an event");
    ExpectOk(scene.gpu().LaunchHostFunction(scene.stream(), HoldByWord, words.host(0)), "holding");
    Expect(scene.Await([&] { return words.Load(kBegun) == 1; }), "a host function does not begin");
    ExpectOk(scene.gpu().RecordEvent(turn, scene.stream()), "recording");
    ExpectOk(scene.gpu().WaitEvent(ordered, turn), "waiting for the event");
    ExpectOk(scene.gpu().LaunchHostFunction(ordered, SetWord, words.host(1)), "launching");
    Expect(scene.Await([&] { return scene.gpu().Query(unordered).ok(); }),
           "a host function that waits holds up a stream without one");
    ExpectOk(scene.gpu().LaunchHostFunction(unordered, SetWord, words.host(2)), "launching");
    const bool is_held_up = !scene.Await([&] { return words.Load(2) == 1; }, setting.held_up_ms);
    Expect(!scene.IsIdle() && words.Load(1) == 0, "a stream does not wait for its host function");
    scene.Ask({.op = PeerOp::kStore, .word = 0, .value = 1});
    Expect(scene.Await([&] { return scene.IsIdle() && words.Load(1) == 1 && words.Load(2) == 1; }),
           "the other process's store does not release a host function");
    ExpectOk(scene.gpu().DestroyEvent(turn), "destroying the event");
    return AttachResult{AttachStatus::kObserved,
                        is_held_up ? "one that waits holds up those of other streams"
                                   : "one that waits holds up none of another stream",
                        {{"held_up", is_held_up ? 1.0 : 0.0}}};
  });
}

}  // namespace specd
