#include "tools/http/http_server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <limits>
#include <list>
#include <utility>

#include "ipc/sockets/socket_listener.h"
#include "tools/http/listen_address.h"

namespace specd::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Protocol = asio::generic::stream_protocol;
using Error = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr int kKernelBytes = 64 * 1024;
constexpr size_t kAcceptedMax = HttpServer::kClientsMax / 4;  // at a time
// A client that sends so much beside its request is closed.
constexpr size_t kStrayBytesMax = 64 * 1024;
// A comment without the empty line that ends an event. Some readers take an empty line behind an
// event with an id for a further event.
constexpr std::string_view kPing = ":\n";

class Client;
using Clients = std::list<std::weak_ptr<Client>>;  // the oldest first

// Where clients of each kind are.
struct Places {
  Clients silent;     // no request has come
  Clients answered;   // they get an answer with a body
  Clients waiting;    // an answer with a body is to come
  Clients streaming;  // they get events, or wait for them
};

HttpRequest Read(bhttp::request<bhttp::string_body> from) {
  const auto field = [&from](auto name) { return std::string(from[name]); };
  return {.method = std::string(from.method_string()),
          .target = std::string(from.target()),
          .host = field(bhttp::field::host),
          .authorization = field(bhttp::field::authorization),
          .last_event_id = field("Last-Event-ID"),
          .fetch_site = field("Sec-Fetch-Site"),
          .body = std::move(from.body())};
}

// One client: a request, an answer, the end. It lives while an operation of it is under way.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(Protocol::socket socket, const HttpServer::Options* options, Places* places)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        buffer_(HttpServer::kHeadBytesMax),
        options_(*options),
        places_(*places) {
    parser_.header_limit(HttpServer::kHeadBytesMax);
    parser_.body_limit(HttpServer::kBodyBytesMax);
  }

  void Start() {
    place_ = places_.silent.insert(places_.silent.end(), weak_from_this());
    in_ = &places_.silent;
    CloseAfter(HttpServer::kClientMs);
    bhttp::async_read(
        socket_, buffer_, parser_,
        [self = shared_from_this()](const Error& error, size_t) { self->Respond(error); });
  }
  void Close() {
    Error ignored;
    socket_.close(ignored);
    deadline_.cancel();
    if (Clients* const in = std::exchange(in_, nullptr)) in->erase(place_);
  }
  ~Client() { Close(); }

  // Something may have changed, or a tick has passed.
  void Look() {
    if (later_) return TryAgain();
    if (!is_writing_ && events_.next) Pump();
    if (!is_writing_ && events_.next &&
        SteadyClock::now() - sent_at_ >= Milliseconds(options_.ping_ms)) {
      piece_ = kPing;
      WritePiece(false);
    }
  }

 private:
  // REQUIRES: it was not closed.
  void MoveTo(Clients* clients) {
    clients->splice(clients->end(), *in_, place_);
    in_ = clients;
    const size_t max = HttpServer::kClientsMax;
    if (clients != &places_.answered || clients->size() <= max) return;
    if (const auto oldest = clients->front().lock()) oldest->Close();
  }
  void CloseAfter(int64_t after_ms) {
    deadline_.expires_after(Milliseconds(after_ms));
    deadline_.async_wait([weak = weak_from_this()](const Error& error) {
      const auto self = weak.lock();
      if (!error && self) self->Close();
    });
  }

  void Respond(const Error& error) {
    static const auto& kOfHttp = bhttp::make_error_code(bhttp::error::bad_method).category();
    const bool is_gone =
        error && (error.category() != kOfHttp || error == bhttp::error::end_of_stream ||
                  error == bhttp::error::partial_message);
    if (is_gone || in_ == nullptr) return Close();
    deadline_.cancel();
    if (error) {
      const bool is_long =
          error == bhttp::error::header_limit || error == bhttp::error::buffer_overflow;
      const bool is_large = error == bhttp::error::body_limit;
      return Send(
          {.status = is_long ? 431U : (is_large ? 413U : 400U), .body = error.message() + "\n"});
    }
    is_head_ = parser_.get().method() == bhttp::verb::head;
    is_chunked_ = parser_.get().version() >= 11;
    // The parser keeps no body while the answer is under way.
    HttpAnswer answer = options_.answer(Read(parser_.release()));
    if (answer.takes_place && places_.streaming.size() >= options_.streams_max) {
      return Refuse(fmt::format("{} clients read streams (--streams_max)", options_.streams_max));
    }
    if (!answer.later) return Give(std::move(answer));
    if (!answer.takes_place && places_.waiting.size() >= HttpServer::kWaitingMax) {
      return Refuse(
          fmt::format("{} clients wait for an answer, and no more may", HttpServer::kWaitingMax));
    }
    MoveTo(answer.takes_place ? &places_.streaming : &places_.waiting);
    later_ = std::move(answer.later);
    asked_at_ = SteadyClock::now();
    WatchForTheEnd();
    TryAgain();
  }
  void Refuse(std::string_view why) {
    Send({.status = 503,
          .body = fmt::format("{}; try again later\n", why),
          .headers = {{"Retry-After", "1"}}});
  }

  void TryAgain() {
    if (in_ == nullptr) return;
    const bool is_last = SteadyClock::now() - asked_at_ >= Milliseconds(options_.patience_ms);
    std::optional<HttpAnswer> answer = later_(is_last);
    if (!answer.has_value()) return;
    later_ = nullptr;
    Give(*std::move(answer));
  }
  void Give(HttpAnswer answer) {
    answer.events.next && !is_head_ ? Stream(std::move(answer)) : Send(std::move(answer));
  }

  // ---- a body

  void Send(HttpAnswer answer) {
    MoveTo(&places_.answered);
    response_.content_length(answer.body.size());
    if (!is_head_) response_.body() = std::move(answer.body);
    WriteHead(answer);
    CloseAfter(HttpServer::kClientMs);
    bhttp::async_write(socket_, serializer_, [self = shared_from_this()](Error error, size_t) {
      if (!error) self->socket_.shutdown(Protocol::socket::shutdown_send, error);
      // Bytes that were not read would make the kernel take back the answer.
      if (!error && !self->is_watched_) self->WatchForTheEnd();
    });
  }
  void WriteHead(const HttpAnswer& answer) {
    response_.result(answer.status);
    response_.set(bhttp::field::content_type, answer.content_type);
    response_.set(bhttp::field::cache_control, "no-store");
    response_.set("X-Content-Type-Options", "nosniff");
    for (const auto& [name, value] : answer.headers) response_.set(name, value);
    response_.keep_alive(false);
  }
  // ---- events

  void Stream(HttpAnswer answer) {
    if (in_ != &places_.streaming) MoveTo(&places_.streaming);
    if (!is_watched_) WatchForTheEnd();
    events_ = std::move(answer.events);
    response_.chunked(is_chunked_);
    response_.set("X-Accel-Buffering", "no");  // nginx, pass the pieces on at once
    WriteHead(answer);
    is_writing_ = true;
    CloseAfter(HttpServer::kSlowMs);
    bhttp::async_write_header(
        socket_, serializer_,
        [self = shared_from_this()](const Error& error, size_t) { self->Written(error, false); });
  }
  void Pump() {
    piece_.clear();
    const StreamState state = events_.next(&piece_);
    if (!piece_.empty() || state == StreamState::kEnd) WritePiece(state == StreamState::kEnd);
  }
  void WritePiece(bool is_last) {
    if (is_chunked_ && !piece_.empty()) {
      piece_ = fmt::format("{:x}\r\n{}\r\n", piece_.size(), piece_);
    }
    if (is_chunked_ && is_last) piece_ += "0\r\n\r\n";
    is_writing_ = true;
    CloseAfter(HttpServer::kSlowMs);
    asio::async_write(socket_, asio::buffer(piece_),
                      [self = shared_from_this(), is_last](const Error& error, size_t) {
                        self->Written(error, is_last);
                      });
  }
  void Written(const Error& error, bool is_last) {
    is_writing_ = false;
    deadline_.cancel();
    if (error || in_ == nullptr) return Leave();
    sent_at_ = SteadyClock::now();
    if (!is_last) return Pump();
    events_ = {};
    Error ignored;
    socket_.shutdown(Protocol::socket::shutdown_send, ignored);
    MoveTo(&places_.answered);
    CloseAfter(HttpServer::kClientMs);
  }
  // Reads until the client has gone. It sends nothing else.
  void WatchForTheEnd() {
    is_watched_ = true;
    socket_.async_read_some(asio::buffer(stray_),
                            [self = shared_from_this()](Error error, size_t n) {
                              self->num_stray_ += n;
                              if (error == asio::error::eof && self->in_ == &self->places_.waiting)
                                return self->WatchForAReset();
                              if (error || self->num_stray_ > kStrayBytesMax) return self->Leave();
                              self->WatchForTheEnd();
                            });
  }
  // A client that sends nothing more may read its answer yet.
  void WatchForAReset() {
    socket_.async_wait(Protocol::socket::wait_error,
                       [self = shared_from_this()](const Error&) { self->Leave(); });
  }
  void Leave() {
    Close();
    later_ = nullptr;
    const EventStream left = std::exchange(events_, {});
    if (left.on_left) left.on_left();
  }

  Protocol::socket socket_;
  asio::steady_timer deadline_;
  beast::flat_buffer buffer_;
  bhttp::request_parser<bhttp::string_body> parser_;
  bhttp::response<bhttp::string_body> response_;
  bhttp::response_serializer<bhttp::string_body> serializer_{response_};
  const HttpServer::Options& options_;
  Places& places_;
  Clients* in_ = nullptr;
  Clients::iterator place_ = {};

  bool is_head_ = false;
  bool is_chunked_ = true;
  std::function<std::optional<HttpAnswer>(bool is_last)> later_;  // of an answer that is to come
  SteadyClock::time_point asked_at_ = {};
  EventStream events_;
  std::string piece_;
  bool is_writing_ = false;
  SteadyClock::time_point sent_at_ = {};
  bool is_watched_ = false;
  char stray_[512] = {};
  size_t num_stray_ = 0;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(Options options, SocketListener listener)
      : options_(std::move(options)), listener_(std::move(listener)) {
    acceptor_.assign(listener_.fd());
  }
  ~Impl() {
    acceptor_.release();  // the listener's
    context_.stop();
  }

  std::string address() const {
    const std::string& endpoint = listener_.endpoint();
    return endpoint.starts_with("tcp://") ? "http" + endpoint.substr(3) : options_.listen;
  }

  void Run() {
    signals_.async_wait([this](const Error&, int) { context_.stop(); });
    Tick();
    Accept();
    context_.run();
  }
  void Wake() {
    if (is_woken_.exchange(true)) return;
    asio::post(context_, [this] {
      is_woken_ = false;  // before the look, so that news after it wake again
      LookAtAll();
    });
  }

 private:
  void Tick() {
    options_.look();
    LookAtAll();
    timer_.expires_after(Milliseconds(kTickMs));
    timer_.async_wait([this](const Error& error) {
      if (!error) Tick();
    });
  }
  void LookAtAll() {
    // A look may end a client, and so its place.
    std::vector<std::weak_ptr<Client>> all(places_.streaming.begin(), places_.streaming.end());
    all.insert(all.end(), places_.waiting.begin(), places_.waiting.end());
    for (const auto& each : all) {
      if (const auto client = each.lock()) client->Look();
    }
  }

  void Accept() {
    acceptor_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const Error& error) {
      if (error) return;
      std::string name;
      // Those that are let in here have their turn before the next ones are. A crowd would push out
      // its own first clients otherwise, whose requests are there and not read yet.
      for (size_t i = 0; i < kAcceptedMax; ++i) {
        UniqueFd fd = listener_.Accept(0, &name);
        if (!fd.valid()) break;
        Admit(std::move(fd));
      }
      Accept();
    });
  }
  void Admit(UniqueFd fd) {
    if (places_.silent.size() >= kClientsMax) {
      if (const auto oldest = places_.silent.front().lock()) oldest->Close();
    }
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
    Protocol::socket socket(context_);
    Error error;
    socket.assign(Protocol(address.ss_family, 0), fd.get(), error);
    if (error) return;
    // The kernel would keep megabytes for a slow one, in the small pieces of a quick one.
    socket.set_option(asio::socket_base::send_buffer_size(kKernelBytes), error);
    (void)fd.Release();
    std::make_shared<Client>(std::move(socket), &options_, &places_)->Start();
  }

  const Options options_;
  SocketListener listener_;
  Places places_;  // outlives the clients, which the context holds
  asio::io_context context_{1};
  asio::signal_set signals_{context_, SIGINT, SIGTERM};
  asio::posix::stream_descriptor acceptor_{context_};
  asio::steady_timer timer_{context_};
  std::atomic<bool> is_woken_{false};
};

absl::StatusOr<HttpServer> HttpServer::Create(Options options) {
  const absl::StatusOr<ListenAddress> address = ParseListenAddress(options.listen);
  if (!address.ok()) return address.status();
  absl::StatusOr<SocketListener> listener = SocketListener::Listen(
      address->endpoint,
      {.uids = options.uids, .connections_max = std::numeric_limits<size_t>::max()});
  if (!listener.ok()) return listener.status();
  return HttpServer(std::make_unique<Impl>(std::move(options), *std::move(listener)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() = default;
std::string HttpServer::address() const { return impl_->address(); }
void HttpServer::Run() { impl_->Run(); }
void HttpServer::Wake() { impl_->Wake(); }

}  // namespace specd::http
