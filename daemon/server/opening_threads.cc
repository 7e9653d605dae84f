#include "daemon/server/opening_threads.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"
#include "speculative/grammar/base/compile_cancel.h"

namespace specd {
namespace {

// A constraint such as json_object has no text, and its first use still takes long.
bool NamesConstraint(const ControlHeader& header, std::span<const uint8_t> message) {
  const absl::StatusOr<Request> request = DecodeRequest(header, message);
  if (!request.ok()) return false;
  const auto* const opening = std::get_if<OpenSequenceRequest>(&*request);
  return opening != nullptr &&
         std::any_of(opening->numbers.begin(), opening->numbers.end(),
                     [](const auto& number) { return number.first == "grammar_kind"; });
}

}  // namespace

bool IsLong(const ControlService& service, std::span<const uint8_t> message,
            const std::vector<UniqueFd>& fds) {
  const absl::StatusOr<ControlHeader> header = DecodeHeader(message, ControlReader::kDaemon);
  if (!header.ok()) return false;
  if (header->type == ControlType::kDumpSession) return true;
  if (service.session() == nullptr) return false;
  return header->type == ControlType::kDumpTrace || header->type == ControlType::kOpenSequences ||
         (header->type == ControlType::kOpenSequence &&
          (!fds.empty() || NamesConstraint(*header, message)));
}

absl::StatusOr<std::unique_ptr<OpeningThreads>> OpeningThreads::Create() {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return MakeErrnoError(SPECD_ERROR_EXHAUSTED, "listen", "no eventfd for long openings", errno);
  }
  return std::unique_ptr<OpeningThreads>(new OpeningThreads(std::move(wake)));
}

void OpeningThreads::Begin(Opening opening) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++num_running_;
  }
  const auto held = std::make_shared<Opening>(std::move(opening));
  try {
    // A compile may lower the priority of its thread, so the thread ends with its opening. Nobody
    // joins it: the control thread must not wait for a thread of low priority.
    std::thread([this, held] { Handle(*held); }).detach();
  } catch (const std::system_error&) {
    Finish({.service = held->service,
            .answer = held->service->Refuse(
                held->message,
                MakeError(SPECD_ERROR_EXHAUSTED, "",
                          "the daemon gets no thread for this opening; try again, or raise the "
                          "daemon's limit of threads (ulimit -u, TasksMax=)"))});
  }
}

void OpeningThreads::Handle(Opening& opening) {
  Finish({.service = opening.service,
          .answer = opening.service->Handle(opening.message, std::move(opening.fds))});
}

void OpeningThreads::Finish(Handled handled) {
  const std::lock_guard<std::mutex> lock(mutex_);
  handled_.push_back(std::move(handled));
  eventfd_write(wake_.get(), 1);
  --num_running_;
  ended_.notify_all();  // with the lock, because Stop may free this object afterwards
}

std::vector<OpeningThreads::Handled> OpeningThreads::TakeHandled() {
  // The eventfd is emptied first: an opening that is handled after this line makes it readable
  // again.
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(handled_, {});
}

void OpeningThreads::Stop() {
  const grammar::CompileCancel cancel;
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [this] { return num_running_ == 0; });
}

}  // namespace specd
