// Any bytes as a trace: the reader ends with an answer, hands out only memory that is there, and
// says the same of the same file twice. A round that it hands out is encoded and read again as it
// is, and specd-replay judges each of its tasks, chains and trees.
//
// The file is small, so a size in it that were trusted would show as an allocation or a wild read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "daemon/trace/crc32.h"
#include "daemon/trace/mcap_reader.h"
#include "daemon/trace/trace_codec.h"
#include "kernels/core/check.h"
#include "tools/replay/scalar_check.h"
#include "tools/replay/task_rules.h"
#include "tools/replay/tree_view.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 64;

struct Outcome {
  uint64_t num_messages = 0;
  uint32_t crc = 0;  // of all that was handed out
  absl::Status status;
};

void Add(std::string_view text, Outcome* outcome) {
  outcome->crc = JoinCrc32(outcome->crc, Crc32(text), text.size());
}

// A record that is not refused has every node of its tree, each with a fate.
void Judge(const TraceRound& round, const TraceTask& task) {
  if (!replay::CheckTask(round, task, kVocabSize).ok()) return;
  (void)replay::CheckScalars(task, kVocabSize);
  if (!replay::DraftTree::IsTree(task)) return;
  const auto nodes = replay::ViewTree(task, kVocabSize, nullptr, nullptr, 0);
  SPECD_CHECK(nodes.ok() && nodes->size() == task.tokens.size());
  size_t num_accepted = 0;
  for (const replay::NodeView& node : *nodes) {
    num_accepted += node.fate == replay::NodeFate::kAccepted ? 1 : 0;
  }
  SPECD_CHECK(num_accepted == task.path.size() || task.parents.empty());
}

void TakeRound(std::string_view bytes) {
  const absl::StatusOr<TraceRound> round = DecodeTrace<TraceRound>(bytes);
  if (!round.ok()) return;
  std::string encoded;
  EncodeTrace(*round, &encoded);
  const absl::StatusOr<TraceRound> again = DecodeTrace<TraceRound>(encoded);
  SPECD_CHECK(again.ok());
  std::string twice;
  EncodeTrace(*again, &twice);
  SPECD_CHECK(encoded == twice);
  for (const TraceTask& task : round->tasks) Judge(*round, task);
}

Outcome Read(int fd) {
  Outcome outcome;
  absl::StatusOr<FileReader> file = FileReader::Start(UniqueFd(dup(fd)), "fuzz");
  SPECD_CHECK(file.ok());
  // A small limit, so that inputs can reach it.
  absl::StatusOr<McapReader> reader =
      McapReader::Start(*std::move(file), {.chunk_size_max_bytes = 4096});
  outcome.status = reader.status();
  if (!reader.ok()) return outcome;
  McapMessage message;
  absl::StatusOr<bool> more = reader->Next(&message);
  for (; more.ok() && *more; more = reader->Next(&message)) {
    ++outcome.num_messages;
    SPECD_CHECK(message.payload.size() <= message.file_size_bytes);
    SPECD_CHECK(message.chunk_offset < message.file_size_bytes);
    for (const std::string_view text : {message.topic, message.encoding}) {
      Add(text, &outcome);
    }
    const std::string_view payload(reinterpret_cast<const char*>(message.payload.data()),
                                   message.payload.size());
    Add(payload, &outcome);
    if (message.topic == kTraceRoundTopic) TakeRound(payload);
  }
  for (const McapMetadata& metadata : reader->metadata()) {
    Add(metadata.name, &outcome);
    for (const auto& [key, value] : metadata.values) Add(key + value, &outcome);
  }
  outcome.status = more.status();
  SPECD_CHECK(reader->Next(&message).status() == outcome.status);
  return outcome;
}

}  // namespace
}  // namespace specd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const specd::UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC));
  SPECD_CHECK(fd.valid());
  SPECD_CHECK(pwrite(fd.get(), data, size_bytes, 0) == static_cast<ssize_t>(size_bytes));
  const specd::Outcome first = specd::Read(fd.get());
  const specd::Outcome second = specd::Read(fd.get());
  // A message takes 31 bytes of the file.
  SPECD_CHECK(first.num_messages <= size_bytes / 31);
  SPECD_CHECK(first.status.ok() || !first.status.message().empty());
  SPECD_CHECK(first.num_messages == second.num_messages && first.crc == second.crc &&
              first.status == second.status);
  return 0;
}
