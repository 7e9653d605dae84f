#include "tools/specctl/operate.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/base/unique_fd.h"
#include "tools/specctl/daemon_link.h"
#include "tools/specctl/sequence_list.h"
#include "tools/specctl/session_list.h"
#include "tools/terminal/terminal.h"

namespace specd::ctl {
namespace {

// Until the process has ended.
void AwaitEnd(pid_t pid) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return;
  pollfd polled = {process.get(), POLLIN, 0};
  while (poll(&polled, 1, -1) < 0 && errno == EINTR) {
  }
}

int FailWith(const absl::Status& why) {
  const int code = ErrorCodeOf(why);
  const std::string text(why.message());
  if (code == SPECD_ERROR_PERMISSION) return Fail(kExitNotPermitted, text);
  return Fail(kExitNoDaemon, text);
}

int Finish() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  return Fail(kExitNoDaemon, "the output could not be written");
}

// All pages of a list.
absl::StatusOr<std::vector<ListedSequence>> Ask(const std::string& socket,
                                                ListSequencesRequest request) {
  std::vector<ListedSequence> all;
  for (;;) {
    const absl::StatusOr<SequenceListReply> page = AskDaemon<SequenceListReply>(socket, request);
    if (!page.ok()) return page.status();
    if (absl::Status s = Append(*page, &all); !s.ok()) return s;
    if (!page->more) return all;
    request.session = page->next_session;
    request.slot = page->next_slot;
  }
}

absl::StatusOr<SessionListReply> AskSessions(const std::string& socket) {
  absl::StatusOr<SessionListReply> reply =
      AskDaemon<SessionListReply>(socket, ListSessionsRequest{});
  if (!reply.ok()) return reply.status();
  if (absl::Status status = CheckLists(*reply); !status.ok()) return status;
  return reply;
}

// The requests that the command line names, one message each.
template <class Request>
std::vector<Request> Named(const OperateOptions& options) {
  std::vector<Request> named;
  for (const std::string& request_id : options.request_ids) {
    named.emplace_back().request_id = request_id;
  }
  if (options.stream != 0) named.emplace_back().stream = options.stream;
  return named;
}

template <class Request>
std::string NameOf(const Request& request) {
  return request.stream != 0 ? fmt::format("stream {}", request.stream)
                             : fmt::format("request \"{}\"", request.request_id);
}

void PrintAll(const std::vector<ListedSequence>& all, std::string_view key) {
  fmt::print("{{\"{}\": [", key);
  std::string_view comma = "\n";
  for (const ListedSequence& each : all) {
    fmt::print("{}{}", comma, SequenceJson(each));
    comma = ",\n";
  }
  fmt::print("]}}\n");
}

}  // namespace

int Fail(int status, std::string_view message) { return FailAs("specctl", status, message); }

int List(const OperateOptions& options) {
  const absl::StatusOr<std::vector<ListedSequence>> all = Ask(options.socket, {});
  if (!all.ok()) return FailWith(all.status());
  if (options.json) {
    PrintAll(*all, "sequences");
  } else if (options.ids) {
    for (const ListedSequence& each : *all) fmt::print("{}\n", SafeText(each.request_id));
  } else {
    PrintSequences(*all, Paint(IsColourful(STDOUT_FILENO)), stdout);
  }
  return Finish();
}

int Sessions(const OperateOptions& options) {
  const absl::StatusOr<SessionListReply> engines = AskSessions(options.socket);
  if (!engines.ok()) return FailWith(engines.status());
  if (options.json) {
    fmt::print("{}", SessionsJson(*engines));
  } else {
    PrintSessions(*engines, Paint(IsColourful(STDOUT_FILENO)), stdout);
  }
  return Finish();
}

int Show(const OperateOptions& options) {
  std::vector<ListedSequence> all;
  int status = 0;
  for (ListSequencesRequest& request : Named<ListSequencesRequest>(options)) {
    request.params = true;
    const absl::StatusOr<std::vector<ListedSequence>> found = Ask(options.socket, request);
    if (!found.ok()) return FailWith(found.status());
    if (found->empty()) status = Fail(kExitNotFound, NameOf(request) + " is not open");
    all.insert(all.end(), found->begin(), found->end());
  }
  if (options.json) {
    PrintAll(all, "sequences");
  } else {
    const absl::StatusOr<SessionListReply> engines = AskSessions(options.socket);
    if (!engines.ok()) return FailWith(engines.status());
    for (const ListedSequence& each : all) {
      PrintSequence(each, LimitsOf(*engines, each.session), Paint(IsColourful(STDOUT_FILENO)),
                    stdout);
    }
  }
  const int written = Finish();
  return written != 0 ? written : status;
}

int Abort(const OperateOptions& options) {
  uint32_t num_ended = 0;
  int status = 0;
  for (const AbortStreamsRequest& request : Named<AbortStreamsRequest>(options)) {
    const absl::StatusOr<AbortedReply> reply = AskDaemon<AbortedReply>(options.socket, request);
    if (reply.ok()) {
      num_ended += reply->num_ended;
      if (!options.json) fmt::print("{}: ended\n", SafeText(NameOf(request)));
    } else if (ErrorCodeOf(reply.status()) == SPECD_ERROR_NOT_FOUND &&
               ErrorFieldOf(reply.status()) != "uri") {
      status = Fail(kExitNotFound, std::string(reply.status().message()));
    } else {
      return FailWith(reply.status());
    }
  }
  if (options.json) fmt::print("{{\"ended\": {}}}\n", num_ended);
  const int written = Finish();
  return written != 0 ? written : status;
}

int AbortAll(const OperateOptions& options) {
  AbortStreamsRequest request;
  request.all = true;
  const absl::StatusOr<AbortedReply> reply = AskDaemon<AbortedReply>(options.socket, request);
  if (!reply.ok()) return FailWith(reply.status());
  fmt::print("{}", options.json ? fmt::format("{{\"ended\": {}}}\n", reply->num_ended)
                                : fmt::format("{} sequences ended\n", reply->num_ended));
  return Finish();
}

int Drain(const OperateOptions& options) {
  const absl::StatusOr<DrainReply> reply = AskDaemon<DrainReply>(options.socket, DrainRequest{});
  if (!reply.ok()) return FailWith(reply.status());
  // A second connection could start another daemon, if the service manager has the socket.
  if (options.wait) AwaitEnd(static_cast<pid_t>(reply->pid));
  if (options.json) {
    fmt::print("{{\"sessions\": {}, \"running\": {}, \"ended\": {}}}\n", reply->num_sessions,
               reply->num_running, options.wait);
  } else {
    fmt::print("the daemon (pid {}) {}: {} sequences ran in {} sessions\n", reply->pid,
               options.wait ? "has ended" : "drains", reply->num_running, reply->num_sessions);
  }
  return Finish();
}

absl::Status AskForTraces(const std::string& socket, std::vector<SessionTraceReply>* traces) {
  for (DumpSessionRequest request;;) {
    absl::StatusOr<SessionTraceReply> reply = AskDaemon<SessionTraceReply>(socket, request);
    if (!reply.ok()) return reply.status();
    if (reply->session == 0) return absl::OkStatus();
    request.session = reply->session + 1;
    traces->push_back(*std::move(reply));
  }
}

std::string TraceText(const SessionTraceReply& trace) {
  return fmt::format("session {}: {} ({} rounds, {} lost)", trace.session, SafeText(trace.path),
                     trace.num_rounds, trace.num_lost);
}

std::string TraceMembers(const SessionTraceReply& trace) {
  return fmt::format(R"("session": {}, "path": {}, "rounds": {}, "lost": {})", trace.session,
                     JsonText(trace.path), trace.num_rounds, trace.num_lost);
}

int DumpTraces(const OperateOptions& options) {
  std::vector<SessionTraceReply> traces;
  const absl::Status status = AskForTraces(options.socket, &traces);
  const bool is_off = ErrorCodeOf(status) == SPECD_ERROR_UNSUPPORTED;
  const int code = status.ok() ? 0
                   : is_off    ? Fail(kExitNotFound, std::string(status.message()))
                               : FailWith(status);
  std::string json;
  for (const SessionTraceReply& trace : traces) {
    json += fmt::format("{}{{{}}}", json.empty() ? "" : ", ", TraceMembers(trace));
    if (!options.json) fmt::print("{}\n", TraceText(trace));
  }
  if (options.json && (code == 0 || !json.empty())) fmt::print("{{\"traces\": [{}]}}\n", json);
  const int written = Finish();
  return written != 0 ? written : code;
}

}  // namespace specd::ctl
