// The opening of an engine: its options, its link and its session.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "daemon/base/version.h"
#include "daemon/client/embedded_model.h"
#include "daemon/client/engine.h"
#include "daemon/client/struct_array.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

constexpr int32_t kSpinUsMax = 1'000'000;

bool IsSocketUri(std::string_view uri) { return uri.substr(0, 5) == "unix:"; }

}  // namespace

SessionLimits Engine::LimitsOf(const specd_options& options) {
  return {.vocab_size = options.vocab_size,
          .max_batch = options.max_batch,
          .max_sequences = options.max_sequences == 0 ? options.max_batch : options.max_sequences,
          .max_draft = options.max_draft,
          .ring_depth = options.ring_depth,
          .max_scores = options.max_scores_per_token,
          .max_path = options.max_path};
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Open(const std::string& uri,
                                                     const specd_options& options) {
  if (absl::Status status = CheckTimeout("timeout_ms", options.timeout_ms, 1); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckTimeout("stream_timeout_ms", options.stream_timeout_ms, 0);
      !status.ok()) {
    return status;
  }
  HelloRequest hello;
  hello.name = options.name == nullptr ? "engine" : options.name;
  hello.version = kVersion;
  hello.profile = options.profile == nullptr ? "" : options.profile;
  hello.pid = static_cast<uint32_t>(getpid());
  if (options.reserved != 0) return Invalid("reserved", "reserved must be 0");
  if (absl::Status status = CheckTimeout("reconnect_ms", options.reconnect_ms, 0); !status.ok()) {
    return status;
  }
  if (options.reconnect_ms != 0 && !IsSocketUri(uri)) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "reconnect_ms",
                     fmt::format("reconnect_ms = {} is for engines of a daemon; leave it 0 with "
                                 "\"{}\", whose verifier lives as long as the engine",
                                 options.reconnect_ms, uri));
  }
  hello.resumes = options.reconnect_ms != 0;
  if (options.spin_us < -1 || options.spin_us > kSpinUsMax) {
    return Invalid("spin_us",
                   fmt::format("spin_us = {} is outside -1 .. {}", options.spin_us, kSpinUsMax));
  }
  hello.limits = LimitsOf(options);
  if (absl::Status status = ValidateLimits(hello.limits); !status.ok()) return status;

  absl::StatusOr<EmbeddedModel> model = EmbeddedModelOf(options);
  if (!model.ok()) return model.status();
  if (IsSocketUri(uri)) {
    // Before the socket is opened: the daemon does not wait long for a Hello.
    absl::StatusOr<uint64_t> hash = HashOfTokenizer(*model);
    if (!hash.ok()) return hash.status();
    hello.tokenizer_hash = *hash;
  }
  absl::StatusOr<std::unique_ptr<EngineLink>> link = MakeEngineLink(
      uri, {.timeout = absl::Milliseconds(options.timeout_ms),
            .threads = options.threads,
            .cuda_stream = options.cuda_stream,
            .model = *std::move(model),
            .profile = hello.profile,
            .trace = options.trace == nullptr ? "" : options.trace,
            .trace_options = options.trace_options == nullptr ? "" : options.trace_options});
  if (!link.ok()) return link.status();
  return Attach(*std::move(link), std::move(hello), options);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Attach(std::unique_ptr<EngineLink> link,
                                                       HelloRequest hello,
                                                       const specd_options& options) {
  UniqueFd segment_fd;
  absl::StatusOr<HelloReply> reply = Expect<HelloReply>(link->Call(hello, -1, &segment_fd));
  if (!reply.ok()) return reply.status();
  absl::StatusOr<Segment> segment = Segment::Attach(std::move(segment_fd));
  if (!segment.ok()) return segment.status();
  absl::StatusOr<OkReply> mapped = Expect<OkReply>(link->Call(MappedRequest{}, -1, nullptr));
  if (!mapped.ok()) return mapped.status();
  return std::unique_ptr<Engine>(new Engine(std::move(link),
                                            std::make_unique<Segment>(*std::move(segment)),
                                            std::move(hello), *std::move(reply), options));
}

Engine::Engine(std::unique_ptr<EngineLink> link, std::unique_ptr<Segment> segment,
               HelloRequest asked, HelloReply hello, const specd_options& options)
    : link_(std::move(link)),
      segment_(std::move(segment)),
      hello_(std::move(hello)),
      timeout_ms_(static_cast<int>(options.timeout_ms)),
      rounds_(link_.get(), segment_.get(), options.stream_timeout_ms, options.spin_us),
      calls_(link_.get(), &rounds_, segment_->limits(), timeout_ms_),
      ends_(*link_, rounds_, segment_->limits().max_sequences),
      opening_warnings_(link_->WarningsOfModel(options.vocab_size)) {
  if (options.reconnect_ms != 0) {
    reattachment_ = std::make_unique<Reattachment>(link_.get(), segment_.get(), std::move(asked),
                                                   options.reconnect_ms);
    rounds_.ReattachBy(reattachment_.get());
    reattachment_->OnGone([this] { rounds_.cuda_streams().LetGo(); });
  }
  rounds_.channel().SetState(EngineState::kRunning);
}

Engine::~Engine() {
  rounds_.channel().SetState(EngineState::kClosing);
  // If a CUDA stream has not come to its wait yet, it will still write a word of the segment.
  if (!rounds_.cuda_streams().Close(int64_t{timeout_ms_} * 1'000'000))
    KeepForever(std::move(segment_));
}

}  // namespace specd
