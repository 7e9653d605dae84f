#include "tests/gpu/ptx/machine/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/gpu/ptx/machine/launch_state.h"
#include "tests/gpu/ptx/machine/profile.h"
#include "tests/gpu/ptx/machine/warp.h"

namespace specd::ptx {

namespace {

// Params as they lie in a function's memory of them.
std::vector<std::byte> PackParams(const Function& entry, const void* const* arguments) {
  std::vector<std::byte> params(static_cast<size_t>(entry.param_bytes));
  for (size_t i = 0; i < entry.params.size(); ++i) {
    std::memcpy(params.data() + entry.params[i].offset, arguments[i],
                static_cast<size_t>(entry.params[i].size_bytes));
  }
  return params;
}

// The clusters that are resident, and their warps in one list.
class Scheduler {
 public:
  explicit Scheduler(LaunchState* launch) : launch_(*launch) {}

  void Run() {
    const uint32_t num_clusters = launch_.shape.grid / launch_.shape.cluster;
    while (!launch_.has_failed()) {
      while (num_started_ < num_clusters && HasRoom()) Start();
      if (clusters_.empty()) return;
      Warp* const warp = Choose();
      if (warp == nullptr) return FailAllWait();
      ++num_switches_;
      warp->Run(1 + launch_.Random(launch_.options.quantum));
      if (warp->has_ended()) End(warp);
    }
  }
  uint64_t num_switches() const { return num_switches_; }

 private:
  bool HasRoom() const {
    return launch_.options.profiler != nullptr ||
           clusters_.size() < static_cast<size_t>(launch_.options.resident_clusters);
  }

  void Start() {
    auto cluster = std::make_unique<Cluster>();
    const auto shared_bytes = static_cast<size_t>(launch_.entry.module->shared_bytes);
    for (uint32_t rank = 0; rank < launch_.shape.cluster; ++rank) {
      const uint32_t index = num_started_ * launch_.shape.cluster + rank;
      cluster->blocks.push_back(std::make_unique<Block>(cluster.get(), index, rank, shared_bytes));
      Block* const block = cluster->blocks.back().get();
      for (uint32_t i = 0; i < launch_.warps_per_block(); ++i) {
        cluster->warps.push_back(std::make_unique<Warp>(&launch_, block, i));
        warps_.push_back(cluster->warps.back().get());
        ++block->barrier.num_live;
        ++cluster->barrier.num_live;
      }
    }
    ++num_started_;
    clusters_.push_back(std::move(cluster));
  }

  // Any warp that can go on; if times are counted, the earliest.
  Warp* Choose() {
    if (launch_.options.profiler != nullptr) {
      Warp* earliest = nullptr;
      for (Warp* const warp : warps_) {
        if (!warp->CanRun()) continue;
        if (earliest == nullptr || warp->now().cycles < earliest->now().cycles) earliest = warp;
      }
      return earliest;
    }
    const auto from = static_cast<size_t>(launch_.Random(static_cast<int32_t>(warps_.size())));
    for (size_t i = 0; i < warps_.size(); ++i) {
      Warp* const warp = warps_[(from + i) % warps_.size()];
      if (warp->CanRun()) return warp;
    }
    return nullptr;
  }

  void End(Warp* warp) {
    if (Pipeline* const pipeline = warp->pipeline(); pipeline != nullptr) {
      launch_.options.profiler->NoteEnd(pipeline->now(), pipeline->times());
    }
    std::erase(warps_, warp);
    Cluster* const cluster = warp->block().cluster;
    Barrier& barrier = warp->block().barrier;
    if (barrier.num_arrived > 0 && !launch_.has_failed()) {
      launch_.error = fmt::format(
          "kernel {}: warp {} of block {} has ended, and {} warps wait for it at a barrier",
          launch_.entry.name, warp->index(), warp->block().index, barrier.num_arrived);
    }
    barrier.End();
    cluster->barrier.End();
    if (cluster->barrier.num_live > 0) return;
    std::erase_if(clusters_, [&](const auto& ended) { return ended.get() == cluster; });
  }

  void FailAllWait() {
    launch_.error = fmt::format("kernel {}: every warp waits at a barrier:", launch_.entry.name);
    for (const Warp* const warp : warps_) launch_.error += "\n" + warp->Describe();
  }

  LaunchState& launch_;
  uint32_t num_started_ = 0;
  uint64_t num_switches_ = 0;
  std::vector<std::unique_ptr<Cluster>> clusters_;
  std::vector<Warp*> warps_;  // that have not ended
};

absl::Status CheckShape(const Function& entry, const LaunchShape& shape) {
  const uint64_t warps_per_block = WarpsPerBlock(shape);
  if (shape.grid == 0 || shape.block == 0 || shape.block > 1024 || shape.cluster == 0 ||
      shape.grid % shape.cluster != 0) {
    return absl::InvalidArgumentError(
        fmt::format("kernel {}: a launch of {} blocks of {} threads in clusters of {}", entry.name,
                    shape.grid, shape.block, shape.cluster));
  }
  if (shape.grid * warps_per_block >= Moment::kMaxWarps) {
    return absl::InvalidArgumentError(fmt::format(
        "kernel {}: {} blocks of {} threads are more warps than the check of races tells apart "
        "({}); a smaller round has fewer",
        entry.name, shape.grid, shape.block, Moment::kMaxWarps));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunLaunch(const Function& entry, const LaunchShape& shape,
                       const void* const* arguments, const LaunchOptions& options,
                       LaunchCounts* counts) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const absl::Status status = CheckShape(entry, shape); !status.ok()) return status;
  LaunchCounts none;
  if (counts == nullptr) counts = &none;
  const uint32_t warps_per_block = WarpsPerBlock(shape);
  LaunchState launch{.entry = entry,
                     .shape = shape,
                     .options = options,
                     .params = PackParams(entry, arguments),
                     .races = RaceChecker({.warps_per_block = warps_per_block,
                                           .warps_per_cluster = warps_per_block * shape.cluster,
                                           .narrowest_scope = entry.module->narrowest_scope}),
                     .random = options.seed * 0x9E3779B97F4A7C15u + counts->num_launches,
                     .error = {}};
  if (options.profiler != nullptr) options.profiler->Begin(entry.name, shape.grid, shape.block);
  Scheduler scheduler(&launch);
  scheduler.Run();
  ++counts->num_launches;
  counts->num_warp_instructions += launch.num_instructions;
  counts->num_switches += scheduler.num_switches();
  return launch.has_failed() ? absl::InternalError(launch.error) : absl::OkStatus();
}

}  // namespace specd::ptx
