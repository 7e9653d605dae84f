#include "daemon/server/operator_service.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "daemon/base/logging.h"
#include "daemon/server/peer_name.h"
#include "ipc/base/error.h"
#include "ipc/base/valid_text.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/method_names.h"

namespace specd {
namespace {

uint64_t IdOf(const Session& session) { return session.options().identity.session_id; }

ListedPhase PhaseOf(const SequenceFacts& facts) {
  if (facts.phase == SequencePhase::kPending) return ListedPhase::kPending;
  if (facts.phase == SequencePhase::kFailed) return ListedPhase::kFailed;
  if (facts.finish_reason == FinishReason::kNone) return ListedPhase::kRuns;
  return static_cast<ListedPhase>(static_cast<int32_t>(facts.finish_reason) + 2);
}

void Append(const Session& session, const std::string& program, ListedEngines* reply) {
  const SessionClient& client = session.client();
  reply->sessions.push_back(IdOf(session));
  reply->uids.push_back(static_cast<int32_t>(client.uid));
  reply->pids.push_back(client.pid);
  reply->programs.push_back(program);
  reply->clients.push_back(ValidText(client.name, 64));
}

void Append(const Session& session, const std::string& program, const SequenceFacts& facts,
            int64_t now_ns, bool with_params, SequenceListReply* reply) {
  Append(session, program, reply);
  reply->streams.push_back(facts.stream);
  reply->request_ids.push_back(facts.request_id);
  reply->phases.push_back(static_cast<int32_t>(PhaseOf(facts)));
  reply->tokens.push_back(facts.tokens);
  reply->ages_ms.push_back(
      static_cast<uint64_t>(std::max<int64_t>(0, now_ns - facts.opened_ns) / 1'000'000));
  reply->rounds.push_back(facts.rounds);
  reply->accepted.push_back(facts.accepted);
  reply->methods.emplace_back(kMethodNames[static_cast<size_t>(facts.method)]);
  std::string params;
  if (with_params) params = fmt::format("seed = {}\n", facts.seed);
  if (with_params && facts.params != nullptr) params += *facts.params;
  reply->params.push_back(ValidText(params, kListedParamsBytesMax));
}

std::string NameOf(const SequenceFilter& filter) {
  if (filter.stream != 0) return fmt::format("stream = {}", filter.stream);
  return fmt::format("request_id = \"{}\"", Printable(std::string(filter.request_id)));
}

}  // namespace

absl::StatusOr<Reply> OperatorService::Answer(const Request& request, const Caller& caller) {
  if (const auto* const list = std::get_if<ListSequencesRequest>(&request)) {
    return On(*list, caller);
  }
  if (const auto* const abort = std::get_if<AbortStreamsRequest>(&request)) {
    return On(*abort, caller);
  }
  if (const auto* const drain = std::get_if<DrainRequest>(&request)) return On(*drain, caller);
  if (const auto* const list = std::get_if<ListSessionsRequest>(&request)) {
    return On(*list, caller);
  }
  return On(std::get<DumpSessionRequest>(request), caller);
}

absl::Status OperatorService::CheckOpens() const {
  if (!drains_.load()) return absl::OkStatus();
  return MakeError(SPECD_ERROR_SHUTDOWN, "",
                   "the daemon drains: it opens nothing new, and ends with the last sequence that "
                   "runs; open at another daemon, or at the next one here");
}

SessionList::Snapshot OperatorService::SessionsOf(const Caller& caller) const {
  SessionList::Snapshot sessions;
  uint64_t version = 0;
  options_.sessions->Refresh(&version, &sessions);
  std::erase_if(sessions, [&caller](const auto& session) {
    return session->ended() || !(caller.sees_all || session->client().uid == caller.uid);
  });
  std::sort(sessions.begin(), sessions.end(),
            [](const auto& a, const auto& b) { return IdOf(*a) < IdOf(*b); });
  return sessions;
}

uint32_t OperatorService::CountRunning() const {
  uint32_t count = 0;
  for (const auto& session : SessionsOf({.uid = 0, .sees_all = true})) {
    count += session->CountRunning();
  }
  return count;
}

absl::StatusOr<Reply> OperatorService::On(const ListSequencesRequest& request,
                                          const Caller& caller) const {
  const size_t max = request.params ? kListedMaxWithParams : kListedMax;
  const SequenceFilter filter{.request_id = request.request_id, .stream = request.stream};
  const int64_t now_ns = options_.clock->NowNs();
  SequenceListReply reply;
  for (const auto& session : SessionsOf(caller)) {
    if (IdOf(*session) < request.session) continue;
    const uint32_t slot = IdOf(*session) == request.session ? request.slot : 0;
    const size_t left = max - reply.sessions.size();
    const std::vector<SequenceFacts> found = session->ListSequences(filter, slot, left + 1);
    const std::string program = found.empty() ? std::string() : ProgramOf(session->client().pid);
    for (size_t i = 0; i < std::min(left, found.size()); ++i) {
      Append(*session, program, found[i], now_ns, request.params, &reply);
    }
    if (found.size() <= left) continue;
    reply.more = true;
    reply.next_session = IdOf(*session);
    reply.next_slot = SlotOf(found[left].sequence);
    break;
  }
  return Reply(std::move(reply));
}

absl::StatusOr<Reply> OperatorService::On(const ListSessionsRequest&, const Caller& caller) const {
  SessionListReply reply;
  for (const auto& session : SessionsOf(caller)) {
    if (reply.sessions.size() == kListedMax) break;  // a daemon has fewer places
    const SessionUse use = session->Use();
    Append(*session, ProgramOf(session->client().pid), &reply);
    reply.profiles.push_back(session->options().profile->name);
    reply.ages_ms.push_back(static_cast<uint64_t>(std::max<int64_t>(0, use.age_ns) / 1'000'000));
    reply.memory_bytes.push_back(use.memory_bytes);
    reply.memory_bytes_max.push_back(use.memory_bytes_max);
    reply.sequences.push_back(use.sequences);
    reply.sequences_max.push_back(use.sequences_max);
    reply.rounds.push_back(use.rounds);
    reply.rounds_max.push_back(use.rounds_max);
    reply.openings.push_back(use.openings);
    reply.openings_per_second_max.push_back(use.openings_per_second_max);
    reply.refusals.push_back(use.refusals);
  }
  return Reply(std::move(reply));
}

absl::StatusOr<Reply> OperatorService::On(const AbortStreamsRequest& request,
                                          const Caller& caller) const {
  const SequenceFilter filter{.request_id = request.request_id, .stream = request.stream};
  if (request.all != (filter.request_id.empty() && filter.stream == 0)) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, "all",
                     "name a request_id or a stream, or set all and name none");
  }
  AbortedReply reply;
  for (const auto& session : SessionsOf(caller)) {
    const uint32_t count = session->AbortMatching(filter);
    reply.num_ended += count;
    if (count == 0) continue;
    Log("attach").info("session {}: {} sequences were ended for uid {}", IdOf(*session), count,
                       caller.uid);
  }
  if (reply.num_ended > 0 || request.all) return Reply(reply);
  return MakeError(SPECD_ERROR_NOT_FOUND, filter.stream != 0 ? "stream" : "request_id",
                   fmt::format("{} is that of no sequence that runs", NameOf(filter)));
}

absl::StatusOr<Reply> OperatorService::On(const DrainRequest&, const Caller& caller) {
  if (!caller.sees_all) {
    return MakeError(
        SPECD_ERROR_PERMISSION, "uid",
        fmt::format("uid {} may not drain this daemon; its own user and root may", caller.uid));
  }
  if (!drains_.exchange(true)) {
    Log("attach").info("uid {} lets the daemon drain: nothing is opened any more", caller.uid);
    options_.on_drain();
  }
  const uint32_t num_sessions = SessionsOf(caller).size();
  return Reply(DrainReply{.num_sessions = num_sessions,
                          .num_running = CountRunning(),
                          .pid = static_cast<uint32_t>(getpid())});
}

absl::StatusOr<Reply> OperatorService::On(const DumpSessionRequest& request,
                                          const Caller& caller) const {
  for (const auto& session : SessionsOf(caller)) {
    if (IdOf(*session) < request.session) continue;
    absl::StatusOr<TraceDump> dump = session->DumpTrace();
    if (!dump.ok() && session->ended()) continue;
    if (!dump.ok()) return dump.status();
    return Reply(SessionTraceReply{.session = IdOf(*session),
                                   .path = std::move(dump->path),
                                   .num_rounds = dump->num_rounds,
                                   .num_lost = dump->num_lost});
  }
  return Reply(SessionTraceReply());
}

}  // namespace specd
