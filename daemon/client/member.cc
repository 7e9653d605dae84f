#include "daemon/client/member.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/clock.h"
#include "daemon/base/version.h"
#include "daemon/client/bind_request.h"
#include "daemon/client/session_record.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

// A binding may end every daemon that does it.
constexpr int kDaemonsMax = 5;
// Pauses between two tries grow with the wait: many ranks may ask one daemon. ESTIMATE
constexpr absl::Duration kPauseMin = absl::Milliseconds(10);
constexpr absl::Duration kPauseMax = absl::Milliseconds(100);

absl::Status Gone() {
  return MakeError(SPECD_ERROR_DISCONNECTED, "",
                   "the session that this rank has joined has ended, or its daemon has; nothing is "
                   "written to its memory any more. Join the engine's new session with the token "
                   "of that one");
}

// The daemon checks the rest, whose limits only it knows.
absl::Status CheckTensor(const specd_tensor& tensor) {
  if (tensor.region != 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "region",
                     fmt::format("region = {} must be 0: the call says where the tensor of a rank "
                                 "lies",
                                 tensor.region));
  }
  if (tensor.num_rows == 0 || tensor.num_rows > std::numeric_limits<int32_t>::max()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "num_rows",
                     fmt::format("num_rows = {} is outside 1 .. 2^31 - 1; bind a row for each "
                                 "slot, as many as rank 0's max_sequences",
                                 tensor.num_rows));
  }
  return absl::OkStatus();
}

// Whoever has the token may bring it to the next daemon, but the rank's memory is for its engine.
absl::Status OtherOwner(uint32_t before, uint32_t now) {
  return MakeError(SPECD_ERROR_PERMISSION, "uid",
                   fmt::format("the session that has the token is of an engine of uid {}, and was "
                               "of one of uid {}; keep the token secret, and attach again",
                               now, before));
}

absl::Status NotHere() {
  return MakeError(SPECD_ERROR_NOT_FOUND, "token",
                   "token is of a session that is not here: rank 0's engine has not come to this "
                   "daemon, or has ended");
}

absl::Status GivenUp() {
  return MakeError(SPECD_ERROR_DISCONNECTED, "timeout_ms",
                   "an earlier call was given up when timeout_ms had passed; leave, which says "
                   "whether the memory is free, and join again");
}

// The daemon has still to see that the process that had the place has gone; or the token is that of
// an engine that has not come, and another engine's has the same number.
bool IsRefusedForNow(const absl::Status& status) {
  const int code = ErrorCodeOf(status);
  const std::string field = ErrorFieldOf(status);
  return (code == SPECD_ERROR_STATE && field == "rank") ||
         (code == SPECD_ERROR_PERMISSION && field == "token");
}

absl::Status WhyLost(const absl::Status& status) {
  const bool has_ended =
      ErrorFieldOf(status) == "token" && ErrorCodeOf(status) == SPECD_ERROR_STATE;
  if (has_ended) return Gone();
  return MakeError(SPECD_ERROR_DISCONNECTED, "",
                   fmt::format("the daemon has closed the connection, and none took this rank: {}",
                               std::string(status.message())));
}

}  // namespace

Member::Member(std::string uri, JoinRequest request, const specd_join_options& options)
    : uri_(std::move(uri)),
      request_(std::move(request)),
      timeout_(absl::Milliseconds(options.timeout_ms)),
      reconnect_ns_(int64_t{options.reconnect_ms} * 1'000'000) {}

absl::StatusOr<std::unique_ptr<Member>> Member::Join(const std::string& uri,
                                                     const std::string& token,
                                                     const specd_join_options& options) {
  if (absl::Status status = CheckTimeout("timeout_ms", options.timeout_ms, 1); !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckTimeout("reconnect_ms", options.reconnect_ms, 0); !status.ok()) {
    return status;
  }
  if (!uri.starts_with("unix:")) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "uri",
        fmt::format("uri = \"{}\" is not unix:/path/to/socket: a rank joins the session "
                    "of a daemon. Embedded engines bind SPECD_NEXT_TOKEN + 1 .. 7 to "
                    "memory of their own process",
                    uri));
  }
  JoinRequest request{.name = options.name == nullptr ? "rank" : options.name,
                      .version = kVersion,
                      .pid = static_cast<uint32_t>(getpid()),
                      .token = token,
                      .rank = options.rank,
                      .resumes = options.reconnect_ms != 0};
  std::unique_ptr<Member> member(new Member(uri, std::move(request), options));
  for (;;) {
    const absl::StatusOr<absl::Duration> pause = member->Try();
    if (!pause.ok()) return pause.status();
    if (*pause == absl::ZeroDuration()) break;
    absl::SleepFor(*pause);
  }
  if (!member->resumes()) return member;
  absl::Status started = member->thread_.Start("reconnect_ms", "the rank's way to the next daemon",
                                               [rank = member.get()] { rank->Follow(); });
  if (!started.ok()) return started;
  return member;
}

absl::Status Member::Attach() {
  if (link_ == nullptr) {
    absl::StatusOr<std::unique_ptr<EngineLink>> link = MakeEngineLink(uri_, {.timeout = timeout_});
    if (!link.ok()) return link.status();
    link_ = *std::move(link);
  } else {
    link_->Drop();
    if (absl::Status status = link_->Reconnect(); !status.ok()) return status;
  }
  JoinRequest request = request_;
  request.rejoins = !bound_.empty();
  const absl::StatusOr<JoinReply> joined = Expect<JoinReply>(link_->Call(request, -1, nullptr));
  if (!joined.ok()) return joined.status();
  if (joined->session_id == 0) return NotHere();
  if (has_joined_ && joined->uid != owner_uid_) return OtherOwner(owner_uid_, joined->uid);
  owner_uid_ = joined->uid;
  // Next tokens come last: with them bound_ranks shows that everything is there.
  for (const bool is_last : {false, true}) {
    for (auto& [role, bound] : bound_) {
      if ((role == SPECD_NEXT_TOKEN) != is_last) continue;
      if (thread_.is_stopping()) return NotHere();
      if (absl::Status status = BindHere(role, &bound); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> Member::Try() {
  MutexLock lock(&mutex_);
  if (lacks_ == Lacks::kNothing) {
    lacks_ = Lacks::kDaemon;
    lacks_since_ns_ = Clock::Real()->NowNs();
  }
  const absl::Status status = Attach();
  if (status.ok()) {
    has_joined_ = true;
    lacks_ = Lacks::kNothing;
    return absl::ZeroDuration();
  }
  // A daemon that has bound a part of the memory writes to none.
  if (link_ != nullptr) link_->Drop();
  if (!resumes()) return status;
  return WaitOrGiveUp(status);
}

absl::StatusOr<absl::Duration> Member::WaitOrGiveUp(const absl::Status& status) {
  const bool is_refused = IsRefusedForNow(status);
  const bool is_not_found = ErrorCodeOf(status) == SPECD_ERROR_NOT_FOUND;
  if (!is_refused && !is_not_found && !IsForNow(status)) return status;
  const Lacks lacks = is_refused                                        ? Lacks::kPlace
                      : is_not_found && ErrorFieldOf(status) == "token" ? Lacks::kSession
                                                                        : Lacks::kDaemon;
  const int64_t now_ns = Clock::Real()->NowNs();
  if (lacks > lacks_) {
    lacks_ = lacks;
    lacks_since_ns_ = now_ns;
  }
  const int64_t waited_ns = now_ns - lacks_since_ns_;
  const bool is_soon_over = is_refused && !has_joined_;
  const int64_t wait_ns =
      is_soon_over ? std::min(absl::ToInt64Nanoseconds(timeout_), reconnect_ns_) : reconnect_ns_;
  if (waited_ns < wait_ns) {
    return std::clamp(absl::Nanoseconds(waited_ns) / 8, kPauseMin, kPauseMax);
  }
  if (is_soon_over) return status;
  return MakeError(
      ErrorCodeOf(status), ErrorFieldOf(status),
      fmt::format("rank {} has found no place in its session within reconnect_ms = "
                  "{}: {}. Rank 0 comes in its calls: an engine that pauses polls meanwhile. "
                  "Or start the daemon and rank 0 again, and join with the token of that session",
                  request_.rank, reconnect_ns_ / 1'000'000, std::string(status.message())));
}

void Member::Follow() {
  for (;;) {
    int hangup_fd = -1;
    {
      MutexLock lock(&mutex_);
      hangup_fd = link_->hangup_fd();
    }
    pollfd polled[] = {{thread_.stop_fd(), POLLIN, 0}, {hangup_fd, POLLRDHUP, 0}};
    (void)poll(polled, 2, -1);
    if (polled[0].revents != 0 || !Check().ok()) return;
    // A link that is of no use is not left while its daemon lives, which goes on with its rounds.
    if (polled[1].revents != 0 && !JoinAgain()) return;
  }
}

bool Member::JoinAgain() {
  for (;;) {
    absl::StatusOr<absl::Duration> pause = kPauseMax;
    try {
      pause = Try();
    } catch (const std::bad_alloc&) {
      // The process may find memory again, and an exception here would end it.
    }
    if (!pause.ok()) {
      (void)Fail(WhyLost(pause.status()));
      return false;
    }
    if (*pause == absl::ZeroDuration()) return true;
    pollfd stop{thread_.stop_fd(), POLLIN, 0};
    if (poll(&stop, 1, static_cast<int>(absl::ToInt64Milliseconds(*pause))) > 0) return false;
  }
}

absl::Status Member::Fail(absl::Status status) {
  MutexLock lock(&failure_mutex_);
  failure_ = std::move(status);
  return failure_;
}

absl::StatusOr<Reply> Member::Call(const Request& request, int fd) {
  absl::StatusOr<Reply> reply = link_->Call(request, fd, nullptr);
  if (!reply.ok() && link_->HungUp()) return Gone();
  return reply;
}

absl::StatusOr<EngineLink::Registration> Member::Register(const Bound& bound) {
  if (bound.fd.valid()) {
    const absl::StatusOr<RegionReply> reply =
        Expect<RegionReply>(Call(RegisterRegionRequest{bound.size_bytes}, bound.fd.get()));
    if (!reply.ok()) return reply.status();
    return EngineLink::Registration{.region = reply->region, .skip_bytes = 0};
  }
  absl::StatusOr<EngineLink::Registration> registered =
      link_->RegisterDevice(bound.address, bound.size_bytes);
  if (!registered.ok() && link_->HungUp()) return Gone();
  return registered;
}

absl::Status Member::BindHere(uint32_t role, Bound* bound) {
  const absl::StatusOr<EngineLink::Registration> registered = Register(*bound);
  if (!registered.ok()) return registered.status();
  specd_tensor tensor = bound->tensor;
  tensor.region = registered->region;
  const absl::StatusOr<BindTensorRequest> request =
      MakeBindRequest(role + request_.rank, tensor, registered->skip_bytes);
  absl::Status status = request.ok() ? ExplainSkip(Expect<OkReply>(Call(*request, -1)).status(),
                                                   registered->skip_bytes)
                                     : request.status();
  if (status.ok()) {
    bound->region = registered->region;
  } else {
    // The reply does not matter: memory that is not bound is never written.
    (void)Call(UnregisterRegionRequest{registered->region}, -1);
  }
  return status;
}

absl::Status Member::Bind(uint32_t role, Bound bound) {
  for (int num_daemons = 0; num_daemons < kDaemonsMax;) {
    if (absl::Status status = Check(); !status.ok()) return status;
    {
      MutexLock lock(&mutex_);
      const bool was_gone = link_->PeerGone();
      if (!was_gone) ++num_daemons;
      absl::Status status = BindHere(role, &bound);
      if (status.ok()) {
        const auto [at, is_first] = bound_.try_emplace(role);
        std::swap(at->second, bound);
        // The binding alone is the answer, whatever becomes of the memory before.
        if (!is_first) (void)Call(UnregisterRegionRequest{bound.region}, -1);
      }
      if (status.ok() || !resumes() || !link_->PeerGone()) return status;
      // A daemon that ends may refuse a message a moment before it has hung up. The thread, when it
      // joins again, drops connections that the daemon has still to close.
      const bool is_late = was_gone || ErrorFieldOf(status) == "timeout_ms";
      if (is_late && lacks_ == Lacks::kNothing && !link_->HungUp()) {
        (void)Fail(GivenUp());
        return status;
      }
    }
    absl::SleepFor(kPauseMin);
  }
  return MakeError(SPECD_ERROR_DISCONNECTED, "",
                   fmt::format("{} daemons in a row ended before they had bound this memory; look "
                               "into their logs, then bind again",
                               kDaemonsMax));
}

absl::Status Member::BindDevice(uint32_t role, uint64_t address, uint64_t size_bytes,
                                const specd_tensor& tensor) {
  if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
  return Bind(role, {.tensor = tensor, .address = address, .size_bytes = size_bytes});
}

absl::Status Member::BindFd(uint32_t role, int fd, uint64_t size_bytes,
                            const specd_tensor& tensor) {
  if (absl::Status status = CheckTensor(tensor); !status.ok()) return status;
  if (fd < 0) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "fd",
                     fmt::format("fd = {} is no descriptor", fd));
  }
  UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) {
    return MakeErrnoError(errno == EBADF ? SPECD_ERROR_INVALID_ARGUMENT : SPECD_ERROR_EXHAUSTED,
                          "fd", fmt::format("fd = {} cannot be kept", fd), errno);
  }
  return Bind(role, {.tensor = tensor, .fd = std::move(own), .size_bytes = size_bytes});
}

absl::Status Member::Check() {
  if (resumes()) {
    MutexLock lock(&failure_mutex_);
    return failure_;
  }
  MutexLock lock(&mutex_);
  if (link_->HungUp()) return Gone();
  if (!link_->PeerGone()) return absl::OkStatus();
  return GivenUp();
}

absl::Status Member::Leave() {
  thread_.Stop();
  MutexLock lock(&mutex_);
  return link_->Finish();
}

}  // namespace specd
