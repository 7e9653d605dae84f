#include "tools/bench/stall_scene.h"

#include <fmt/format.h>
#include <malloc.h>

#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/base/clock.h"
#include "kernels/backend.h"
#include "speculative/grammar/base/compile_turns.h"

namespace specd::bench {
namespace {

// A small engine: a sequence with four drafts over 32,000 tokens.
constexpr SessionLimits kSmall{.vocab_size = 32000,
                               .max_batch = 1,
                               .max_sequences = 2,
                               .max_draft = 4,
                               .ring_depth = 1,
                               .max_scores = 1};
constexpr SessionLimits kMonster{.vocab_size = kVocabSizeMax,
                                 .max_batch = 640,
                                 .max_sequences = 640,
                                 .max_draft = 64,
                                 .ring_depth = 1,
                                 .max_scores = 1};
// With constraints over all of the synthetic vocabulary.
constexpr SessionLimits kConstrained{.vocab_size = 32000,
                                     .max_batch = 1,
                                     .max_sequences = 1,
                                     .max_draft = 64,
                                     .ring_depth = 1,
                                     .max_scores = 1};
constexpr TokenId kBest = 7;  // the id with the highest logit, and every draft token
constexpr int kRequestRounds = 4;
constexpr int kPromptIds = 32;
// As daemon/daemon.cc and daemon/main.cc have it.
constexpr size_t kLongCompiles = 2;
constexpr int kHeapParts = 256;

int64_t NowNs() { return Clock::Real()->NowNs(); }

SequenceParams Greedy() {
  SequenceParams params;
  params.max_tokens = std::numeric_limits<int32_t>::max();
  params.temperature = 0;
  return params;
}

absl::Status RunRequest(StallEngine& engine, const std::string& name) {
  const std::vector<TokenId> prompt(kPromptIds, kBest);
  if (absl::Status s = engine.Open(name, Greedy(), {.prompt = prompt, .outputs = {}}); !s.ok()) {
    return s;
  }
  for (int i = 0; i < kRequestRounds; ++i) {
    if (const auto status = engine.RunRound(true); !status.ok()) return status.status();
  }
  return engine.CloseAll();
}

// One at least, however late the thread begins.
absl::Status RunUntil(int64_t end_ns, SmallWork work, const std::string& name, StallEngine& engine,
                      std::vector<double>* times_us) {
  const bool has_sequence = work == SmallWork::kRounds;
  if (has_sequence) {
    if (absl::Status status = engine.Open(name, Greedy()); !status.ok()) return status;
  }
  do {
    const int64_t start_ns = NowNs();
    const absl::Status status =
        has_sequence ? engine.RunRound(true).status() : RunRequest(engine, name);
    if (!status.ok()) return status;
    times_us->push_back(static_cast<double>(NowNs() - start_ns) / 1e3);
  } while (NowNs() < end_ns);
  return engine.CloseAll();
}

}  // namespace

StallScene::StallScene(const Options& options)
    : options_(options),
      vocabulary_(static_cast<int32_t>(kConstrained.vocab_size)),
      loop_(&sessions_, {.spin_ns = 0,
                         .on_device_failure = [](std::string_view) {},
                         .on_channel_fault = [](Session&, ChannelFault) {}}) {
  constrained_.vocabulary = vocabulary_.vocabulary();
  constrained_.eos_token_ids = {vocabulary_.eos_id()};
}

absl::StatusOr<std::unique_ptr<StallScene>> StallScene::Create(const Options& options) {
  (void)mallopt(M_ARENA_MAX, kHeapParts);
  grammar::CompileTurns::OfProcess().Bound(kLongCompiles);
  std::unique_ptr<StallScene> scene(new StallScene(options));
  for (int i = 0; i < kSmallEngines; ++i) {
    absl::StatusOr<std::unique_ptr<StallEngine>> engine = scene->Attach(kSmall);
    if (!engine.ok()) return engine.status();
    scene->small_.push_back(*std::move(engine));
  }
  scene->verify_ = std::thread([loop = &scene->loop_] { loop->Run(); });
  return scene;
}

StallScene::~StallScene() {
  if (!verify_.joinable()) return;
  work_.reset();  // while its rounds are answered
  loop_.Stop();
  verify_.join();
}

absl::StatusOr<std::unique_ptr<StallEngine>> StallScene::Attach(const SessionLimits& limits) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend("cpu");
  if (!backend.ok()) return backend.status();
  const bool has_constraints = &limits == &kConstrained;
  SessionOptions options;
  options.identity = {.session_id = ++num_attached_, .daemon_epoch = 1};
  options.limits = limits;
  options.profile = has_constraints ? &constrained_ : &profile_;
  if (has_constraints) options.grammars = &compilers_;
  options.clock = Clock::Real();
  options.names = &names_;
  options.threads = options_.threads;
  options.piece_work = options_.piece_work;
  absl::StatusOr<std::shared_ptr<Session>> session = Session::Create(options, *std::move(backend));
  if (!session.ok()) return session.status();
  absl::StatusOr<std::unique_ptr<StallEngine>> engine = StallEngine::Create(
      *std::move(session), has_constraints ? vocabulary_.Tokenize("a").front() : kBest);
  if (engine.ok()) {
    sessions_.Add((*engine)->session());
    loop_.Wake();
  }
  return engine;
}

absl::StatusOr<std::vector<double>> StallScene::RunSmall(SmallWork work, double seconds) {
  const int64_t end_ns = NowNs() + static_cast<int64_t>(seconds * 1e9);
  std::vector<std::vector<double>> times_us(small_.size());
  std::vector<absl::Status> statuses(small_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < small_.size(); ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = RunUntil(end_ns, work, fmt::format("small {}", i), *small_[i], &times_us[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all_us;
  for (size_t i = 0; i < small_.size(); ++i) {
    if (!statuses[i].ok()) return statuses[i];
    all_us.insert(all_us.end(), times_us[i].begin(), times_us[i].end());
  }
  return all_us;
}

absl::Status StallScene::Begin(Neighbour neighbour) {
  absl::StatusOr<std::unique_ptr<StallEngine>> engine =
      Attach(neighbour == Neighbour::kMonster ? kMonster : kConstrained);
  if (!engine.ok()) return engine.status();
  neighbour_ = *std::move(engine);
  if (neighbour == Neighbour::kOpenings) {
    work_ = StallNeighbour::Openings(neighbour_.get());
  } else if (neighbour == Neighbour::kMasks) {
    work_ = StallNeighbour::Masks(neighbour_.get());
  } else {
    SequenceParams params;
    params.max_tokens = std::numeric_limits<int32_t>::max();
    params.top_p = 0.95;
    for (uint32_t i = 0; i < kMonster.max_batch; ++i) {
      absl::Status status = neighbour_->Open(fmt::format("monster {}", i), params);
      if (!status.ok()) return status;
    }
    return neighbour_->Submit();
  }
  return absl::OkStatus();
}

absl::Status StallScene::End() {
  absl::Status status;
  if (work_ != nullptr) {
    status = work_->Stop();
    work_.reset();
  } else if (neighbour_->Poll()) {
    status = absl::InternalError("stall: the monster's round ended before the small ones");
  }
  neighbour_->session()->EndAll();
  sessions_.Remove(neighbour_->session().get());
  loop_.Wake();
  neighbour_.reset();
  return status;
}

}  // namespace specd::bench
