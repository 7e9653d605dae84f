#include "tools/specctl/http_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <list>
#include <optional>
#include <utility>

namespace specd::ctl {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Error = boost::system::error_code;

// Splits 127.0.0.1:9464 and [::1]:9464. Names are refused: whom they admit would be another's word.
absl::StatusOr<tcp::endpoint> ParseAddress(const std::string& text) {
  const absl::Status refused = absl::InvalidArgumentError(fmt::format(
      "listen = {} is no numeric address with a port; use 127.0.0.1:9464 or [::1]:9464", text));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() || text.size() - colon > 6) {
    return refused;
  }
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return refused;
  }
  uint32_t port = 0;
  for (const char c : text.substr(colon + 1)) {
    if (c < '0' || c > '9') return refused;
    port = port * 10 + static_cast<uint32_t>(c - '0');
  }
  Error error;
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (error || port > 65535) return refused;
  return tcp::endpoint(address, static_cast<uint16_t>(port));
}

using Answer = std::function<HttpAnswer(std::string_view path)>;

// One client: a request, an answer, the end. It lives while an operation of it is under way.
class Client : public std::enable_shared_from_this<Client> {
 public:
  Client(tcp::socket socket, const Answer* answer)
      : stream_(std::move(socket)), buffer_(HttpServer::kHeadBytesMax), answer_(*answer) {
    parser_.header_limit(HttpServer::kHeadBytesMax);
    parser_.body_limit(0);
  }

  void Start() {
    stream_.expires_after(std::chrono::milliseconds(HttpServer::kClientMs));
    http::async_read(
        stream_, buffer_, parser_,
        [self = shared_from_this()](const Error& error, size_t) { self->Respond(error); });
  }
  void Close() { stream_.close(); }

 private:
  void Respond(const Error& error) {
    static const auto& kOfHttp = http::make_error_code(http::error::bad_method).category();
    if (error && (error.category() != kOfHttp || error == http::error::end_of_stream ||
                  error == http::error::partial_message)) {
      return;  // too late, or gone
    }
    HttpAnswer answer;
    if (error) {
      const bool is_long =
          error == http::error::header_limit || error == http::error::buffer_overflow;
      answer = {.status = is_long ? 431U : 400U, .body = error.message() + "\n"};
    } else if (parser_.get().method() != http::verb::get &&
               parser_.get().method() != http::verb::head) {
      answer = {.status = 405, .body = "only GET and HEAD are answered\n"};
    } else {
      const auto target = parser_.get().target();
      const std::string_view path(target.data(), target.size());
      answer = answer_(path.substr(0, path.find('?')));
    }
    Send(std::move(answer), !error && parser_.get().method() == http::verb::head);
  }

  void Send(HttpAnswer answer, bool is_head) {
    response_.result(answer.status);
    response_.set(http::field::content_type, answer.content_type);
    response_.set(http::field::cache_control, "no-store");
    response_.keep_alive(false);
    response_.content_length(answer.body.size());
    if (answer.status == 405) response_.set(http::field::allow, "GET, HEAD");
    if (!is_head) response_.body() = std::move(answer.body);
    stream_.expires_after(std::chrono::milliseconds(HttpServer::kClientMs));
    http::async_write(stream_, serializer_, [self = shared_from_this()](Error error, size_t) {
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    });
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::request_parser<http::empty_body> parser_;
  http::response<http::string_body> response_;
  http::response_serializer<http::string_body> serializer_{response_};
  const Answer& answer_;
};

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(Options options) : options_(std::move(options)) {}

  absl::Status Listen() {
    absl::StatusOr<tcp::endpoint> endpoint = ParseAddress(options_.address);
    if (!endpoint.ok()) return endpoint.status();
    Error error;
    acceptor_.open(endpoint->protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(*endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(fmt::format("listen = {}: {}; choose another address or port",
                                              options_.address, error.message()));
  }

  std::string address() const {
    const tcp::endpoint local = acceptor_.local_endpoint();
    const std::string host = local.address().to_string();
    return local.address().is_v6() ? fmt::format("[{}]:{}", host, local.port())
                                   : fmt::format("{}:{}", host, local.port());
  }
  bool is_loopback() const { return acceptor_.local_endpoint().address().is_loopback(); }

  void Run() {
    signals_.async_wait([this](const Error&, int) { context_.stop(); });
    Look();
    Accept();
    context_.run();
  }

 private:
  void Look() {
    options_.look();
    timer_.expires_after(std::chrono::milliseconds(options_.look_ms));
    timer_.async_wait([this](const Error& error) {
      if (!error) Look();
    });
  }

  void Accept() {
    acceptor_.async_accept([this](const Error& error, tcp::socket socket) {
      if (!error) {
        Admit(std::move(socket));
        return Accept();
      }
      // Such as no descriptor left: the queue of the kernel keeps the client for a later try.
      pause_.expires_after(std::chrono::milliseconds(100));
      pause_.async_wait([this](const Error&) { Accept(); });
    });
  }

  void Admit(tcp::socket socket) {
    clients_.remove_if([](const auto& client) { return client.expired(); });
    if (clients_.size() >= kClientsMax) {
      if (const auto oldest = clients_.front().lock()) oldest->Close();
      clients_.pop_front();
    }
    const auto client = std::make_shared<Client>(std::move(socket), &options_.answer);
    clients_.push_back(client);
    client->Start();
  }

  const Options options_;
  asio::io_context context_{1};
  asio::signal_set signals_{context_, SIGINT, SIGTERM};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer timer_{context_};
  asio::steady_timer pause_{context_};
  std::list<std::weak_ptr<Client>> clients_;  // the oldest first
};

absl::StatusOr<HttpServer> HttpServer::Create(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status status = impl->Listen(); !status.ok()) return status;
  return HttpServer(std::move(impl));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::HttpServer(HttpServer&&) noexcept = default;
HttpServer::~HttpServer() = default;
std::string HttpServer::address() const { return impl_->address(); }
bool HttpServer::is_loopback() const { return impl_->is_loopback(); }
void HttpServer::Run() { impl_->Run(); }

}  // namespace specd::ctl
