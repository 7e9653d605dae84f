#include "tools/http/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <iterator>
#include <utility>

#include "absl/strings/numbers.h"
#include "ipc/base/valid_text.h"
#include "ipc/counters/open_metrics.h"
#include "tools/http/live_page.h"
#include "tools/http/sse_format.h"
#include "tools/http/stream_events.h"
#include "tools/toy_engine/json_string.h"

namespace specd::http {
namespace {

constexpr std::string_view kStreams = "/v1/streams";
constexpr std::string_view kOneStream = "/v1/streams/";
constexpr std::string_view kIds = "/v1/detokenize";
// Those without parameters.
constexpr std::string_view kPlain[] = {"/", "/live", "/ready", "/metrics", kStreams, kIds};
constexpr std::string_view kEndMark = ".end";

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

HttpAnswer Refusal(unsigned status, std::string why) {
  return {.status = status, .content_type = "application/json", .body = ErrorJson(why) + "\n"};
}

HttpAnswer EventsAnswer(EventStream events) {
  return {.content_type = "text/event-stream; charset=utf-8",
          .events = std::move(events),
          .takes_place = true};
}

HttpAnswer TryLater(std::string why) {
  HttpAnswer answer = Refusal(503, std::move(why));
  answer.headers = {{"Retry-After", "1"}};
  return answer;
}

std::string_view MethodsOf(std::string_view path) {
  if (path == kIds) return "POST";
  return path.starts_with(kOneStream) ? "GET, HEAD, DELETE" : "GET, HEAD";
}

bool IsOneOf(std::string_view word, std::string_view list) {
  return fmt::format(", {}, ", list).find(fmt::format(", {}, ", word)) != std::string::npos;
}

// The request id behind /v1/streams/. INVALID_ARGUMENT: it is none.
absl::StatusOr<std::string> RequestIdOf(const RequestTarget& target) {
  const std::string_view name = std::string_view(target.path).substr(kOneStream.size());
  const std::optional<std::string> request_id = DecodePercents(name);
  if (request_id.has_value() && !name.empty() && name.find('/') == std::string_view::npos) {
    return *request_id;
  }
  return absl::InvalidArgumentError(
      "a request id is one word behind /v1/streams/; write its % and / as %25 and %2F");
}

// What became of an abort. Nullopt: the daemon has not answered yet.
std::optional<HttpAnswer> AnswerOfAbort(const AbortResult& result, const std::string& request_id,
                                        bool is_last) {
  if (result.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    const absl::Status& status = result.get();
    if (status.ok()) {
      return HttpAnswer{.content_type = "application/json",
                        .body = fmt::format("{{\"request_id\":{},\"aborted\":true}}\n",
                                            toy::QuoteJson(request_id))};
    }
    std::string why(status.message());
    return absl::IsNotFound(status) ? Refusal(404, std::move(why)) : TryLater(std::move(why));
  }
  if (!is_last) return std::nullopt;
  return TryLater("the daemon has not ended the request, and may do so yet; ask again");
}

// Every byte is looked at, so the time says nothing of the first that differs.
bool IsSame(std::string_view a, std::string_view b) {
  unsigned char differs = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    differs |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  }
  return differs == 0;
}

absl::Status NotANumber(std::string_view name, std::string_view value, std::string_view range) {
  return absl::InvalidArgumentError(
      fmt::format("{} = {} is outside {}", name, ValidText(value, 40), range));
}

// Digits alone: SimpleAtoi takes signs and spaces.
bool ReadNumber(std::string_view text, uint64_t* out) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos &&
         absl::SimpleAtoi(std::string(text), out);
}

absl::StatusOr<uint64_t> NumberOf(const RequestTarget& target, std::string_view name,
                                  uint64_t max) {
  const std::string* const value = target.Find(name);
  uint64_t number = 0;
  if (value == nullptr) return number;
  if (ReadNumber(*value, &number) && number <= max) return number;
  return NotANumber(name, *value, fmt::format("0 .. {}", max));
}

// Where the client is: Last-Event-ID if it comes again, and otherwise ?from.
struct Start {
  uint64_t offset = 0;
  bool has_all = false;
};
absl::StatusOr<Start> StartOf(const HttpRequest& request, const RequestTarget& target) {
  constexpr uint64_t kOffsetMax = uint64_t{1} << 53;
  Start start;
  std::string_view last = request.last_event_id;
  if (last.empty()) {
    const absl::StatusOr<uint64_t> from = NumberOf(target, "from", kOffsetMax);
    if (!from.ok()) return from.status();
    start.offset = *from;
    return start;
  }
  start.has_all = last.ends_with(kEndMark);
  if (start.has_all) last.remove_suffix(kEndMark.size());
  if (ReadNumber(last, &start.offset) && start.offset <= kOffsetMax) return start;
  return NotANumber("Last-Event-ID", request.last_event_id,
                    fmt::format("0 .. {}, a byte of the text", kOffsetMax));
}

}  // namespace

Site::Site(Options options) : options_(std::move(options)), awake_(2 * Health::kLookNs) {}

void Site::Look() {
  if (NowNs() - looked_ns_ >= Health::kLookNs) (void)ReadDaemon();
}

HttpAnswer Site::Answer(const HttpRequest& request) {
  const std::string_view path =
      std::string_view(request.target).substr(0, request.target.find('?'));
  if (std::optional<HttpAnswer> refused = RefusedAtTheDoor(request, path)) {
    return *std::move(refused);
  }
  if (!IsOneOf(request.method, MethodsOf(path))) {
    HttpAnswer answer = Refusal(405, fmt::format("{} is not answered here; there is {}",
                                                 ValidText(request.method, 20), MethodsOf(path)));
    answer.headers = {{"Allow", std::string(MethodsOf(path))}};
    return answer;
  }
  if (path != kIds && !request.body.empty()) {
    return Refusal(400, fmt::format("body has {} bytes; only POST {} takes one, so send none",
                                    request.body.size(), kIds));
  }
  if (path.starts_with(kOneStream)) {
    return request.method == "DELETE" ? AbortStream(request) : AnswerStream(request);
  }
  if (std::find(std::begin(kPlain), std::end(kPlain), path) == std::end(kPlain)) {
    return Refusal(404,
                   "there are /v1/streams, /v1/streams/REQUEST_ID, /v1/detokenize, /metrics, "
                   "/live, /ready and the page /");
  }
  if (const absl::Status target = ParseTarget(request.target, {}).status(); !target.ok()) {
    return Refusal(400, std::string(target.message()));
  }
  if (path == kIds) return AnswerIds(request);
  if (path == "/") {
    return HttpAnswer{.content_type = "text/html; charset=utf-8",
                      .body = std::string(kLivePage),
                      .headers = {{"Content-Security-Policy",
                                   "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
                                   "script-src 'unsafe-inline'; connect-src 'self'"}}};
  }
  if (path == kStreams) return AnswerAllStreams();
  return AnswerHealth(path);
}

std::optional<HttpAnswer> Site::RefusedAtTheDoor(const HttpRequest& request,
                                                 std::string_view path) const {
  // Another site's page may lead its name to this address, and then read what it likes.
  if (!IsKnownHost(request.host, options_.hosts)) {
    return Refusal(421, fmt::format("Host = {} is no name of this server; use its numeric address, "
                                    "or start specd-http with --hosts",
                                    ValidText(request.host, 100)));
  }
  // A page at another port is of the same site, and may not read the answer either.
  if (request.fetch_site == "cross-site" || request.fetch_site == "same-site") {
    return Refusal(403, "pages of other servers may not ask this one");
  }
  // The page has nothing of the streams in it, and health is one word.
  const bool is_open = path == "/" || path == "/live" || path == "/ready";
  if (is_open || options_.token.empty() || HasToken(request.authorization)) return std::nullopt;
  HttpAnswer answer = Refusal(401, "the header Authorization has no bearer token that is known");
  answer.headers = {{"WWW-Authenticate", "Bearer"}};
  return answer;
}

bool Site::HasToken(std::string_view authorization) const {
  constexpr std::string_view kBearer = "Bearer ";
  return authorization.starts_with(kBearer) &&
         IsSame(authorization.substr(kBearer.size()), options_.token);
}

absl::StatusOr<CounterSnapshot> Site::ReadDaemon() {
  absl::StatusOr<CounterSnapshot> found = ReadCounters(options_.counters);
  looked_ns_ = NowNs();
  health_.Look(found, awake_.Step(looked_ns_));
  return found;
}

HttpAnswer Site::AnswerHealth(std::string_view path) {
  const absl::StatusOr<CounterSnapshot> found = ReadDaemon();
  const Health::Verdict& verdict = health_.verdict();
  const auto say = [&verdict](bool is_fine) {
    return HttpAnswer{.status = is_fine ? 200U : 503U, .body = verdict.why + "\n"};
  };
  if (path == "/live") return say(verdict.is_live);
  if (path == "/ready") return say(verdict.is_ready);
  // The last numbers of a dead daemon would look like those of one that idles.
  if (!found.ok() || !found->is_alive) return say(false);
  return {.content_type = std::string(kOpenMetricsType), .body = OpenMetrics(*found)};
}

HttpAnswer Site::AnswerStream(const HttpRequest& request) const {
  const absl::StatusOr<RequestTarget> target = ParseTarget(
      request.target, {"format", "from", "usage", "prompt_tokens", "abort_on_disconnect"});
  if (!target.ok()) return Refusal(400, std::string(target.status().message()));
  const absl::StatusOr<std::string> request_id = RequestIdOf(*target);
  if (!request_id.ok()) return Refusal(404, std::string(request_id.status().message()));
  std::optional<HttpAnswer> answer = FindStream(request, *target, *request_id, false);
  if (answer.has_value()) return *std::move(answer);
  return {.takes_place = true,
          .later = [this, request, target = *target, request_id = *request_id](bool is_last) {
            return FindStream(request, target, request_id, is_last);
          }};
}

std::optional<HttpAnswer> Site::FindStream(const HttpRequest& request, const RequestTarget& target,
                                           const std::string& request_id, bool is_last) const {
  const std::optional<uint64_t> stream = options_.hub->Find(request_id);
  if (stream.has_value()) {
    absl::StatusOr<HttpAnswer> answer = Begin(request, target, request_id, *stream);
    if (answer.ok()) return *std::move(answer);
    return Refusal(absl::IsNotFound(answer.status()) ? 416 : 400,
                   std::string(answer.status().message()));
  }
  // The engine may open it yet, or it has not been read yet.
  if (!is_last) return std::nullopt;
  if (options_.hub->is_current()) {
    return Refusal(404, fmt::format("no stream of request {} runs or ended lately",
                                    ValidText(request_id, 128)));
  }
  return TryLater(
      "the daemon's texts cannot be read; check that it runs with a detokenizer and serves this "
      "user");
}

HttpAnswer Site::AbortStream(const HttpRequest& request) const {
  const absl::StatusOr<RequestTarget> target = ParseTarget(request.target, {});
  if (!target.ok()) return Refusal(400, std::string(target.status().message()));
  const absl::StatusOr<std::string> request_id = RequestIdOf(*target);
  if (!request_id.ok()) return Refusal(404, std::string(request_id.status().message()));
  // A client that finds no place to wait ends nothing.
  return {.later = [this, result = std::optional<AbortResult>(),
                    request_id = *request_id](bool is_last) mutable {
    if (!result.has_value()) result = options_.abort(request_id);
    return AnswerOfAbort(*result, request_id, is_last);
  }};
}

absl::StatusOr<HttpAnswer> Site::Begin(const HttpRequest& request, const RequestTarget& target,
                                       const std::string& request_id, uint64_t stream) const {
  constexpr uint64_t kTokensMax = uint64_t{1} << 40;
  const std::string* const name = target.Find("format");
  const SseFormat* const format = FindFormat(name == nullptr ? "completions" : *name);
  if (format == nullptr) {
    return absl::InvalidArgumentError(fmt::format(
        "format = {} is none of completions, chat, responses and specd", ValidText(*name, 40)));
  }
  const absl::StatusOr<uint64_t> prompt_tokens = NumberOf(target, "prompt_tokens", kTokensMax);
  const absl::StatusOr<uint64_t> has_usage = NumberOf(target, "usage", 1);
  const absl::StatusOr<uint64_t> aborts = NumberOf(target, "abort_on_disconnect", 1);
  const absl::StatusOr<Start> start = StartOf(request, target);
  for (const absl::Status& status :
       {prompt_tokens.status(), has_usage.status(), aborts.status(), start.status()}) {
    if (!status.ok()) return status;
  }
  if (start->has_all) return HttpAnswer{.status = 204};  // ends an EventSource
  const absl::StatusOr<TextPart> part = options_.hub->From(stream, start->offset);
  if (!part.ok()) return part.status();
  StreamFacts facts = {.request_id = request_id,
                       .model = options_.model,
                       .created_s = std::time(nullptr),
                       .prompt_tokens = *prompt_tokens,
                       .has_usage = *has_usage == 1};
  EventStream events = {.next = [cursor = StreamCursor(options_.hub, stream, format,
                                                       std::move(facts), start->offset)](
                                    std::string* out) mutable { return cursor.Next(out); }};
  if (*aborts == 1) {
    // Its name may be another stream's by then.
    events.on_left = [hub = options_.hub, abort = options_.abort, request_id, stream] {
      if (hub->Running(request_id) == stream) abort(request_id);
    };
  }
  return EventsAnswer(std::move(events));
}

HttpAnswer Site::AnswerAllStreams() const {
  return EventsAnswer({.next = [all = AllStreams(options_.hub)](std::string* out) mutable {
    return all.Next(NowNs(), out);
  }});
}

HttpAnswer Site::AnswerIds(const HttpRequest& request) {
  if (options_.derender == nullptr) {
    return Refusal(404, "specd-http was started without --tokenizer, so it has no text for ids");
  }
  const absl::StatusOr<std::string> answer = options_.derender->Answer(request.body, NowNs());
  if (answer.ok()) return {.content_type = "application/json", .body = *answer + "\n"};
  return Refusal(absl::IsFailedPrecondition(answer.status()) ? 409 : 400,
                 std::string(answer.status().message()));
}

}  // namespace specd::http
