#include "tests/support/cuda_stream_engine.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/support/c_drafts.h"

namespace specd {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kOwnTokensOffset = 64;  // on the page, after the gate
constexpr uint16_t kZero = 0;              // as bfloat16
constexpr uint16_t kOne = 0x3f80;
constexpr uint16_t kMinusInfinity = 0xff80;

void* PointerTo(GpuAddress address) { return reinterpret_cast<void*>(address); }

}  // namespace

CudaStreamEngine::CudaStreamEngine(EngineGpu* gpu, const Options& options)
    : gpu_(*gpu), options_(options), kept_(options.num_sequences) {
  Open();
  Require(gpu_.CreateStream(&stream_), "making a stream");
  Require(gpu_.CreateStream(&reader_), "making a stream");
  BindRows();
  OpenSequences();
  PrepareWords();
  PrepareForwards();
  Require(gpu_.Allocate(kLogRounds * note_bytes(), &log_), "memory for notes");
  for (uint64_t round = 0; round < kDepth; ++round) Forward(round, true);
  Synchronize();
}

CudaStreamEngine::~CudaStreamEngine() { specd_close(engine_); }

void CudaStreamEngine::Open() {
  specd_options options;
  specd_options_init(&options);
  options.vocab_size = options_.vocab_size;
  options.max_batch = options_.num_sequences;
  options.max_draft = kMaxDraft;
  options.ring_depth = kDepth;
  options.timeout_ms = static_cast<uint32_t>(options_.patience_ms);
  options.stream_timeout_ms =
      options_.stream_timeout_ms > 0 ? options_.stream_timeout_ms : options.timeout_ms;
  options.name = "stream_engine";
  options.reconnect_ms = options_.reconnect_ms;
  Require(specd_open(options_.uri.c_str(), &options, &engine_) == SPECD_OK, "it cannot attach");
}

void CudaStreamEngine::BindRows() {
  const uint64_t rows_bytes = row_bytes() * kDepth * options_.num_sequences * kRowsEach;
  const uint64_t size_bytes =
      (rows_bytes + outputs_bytes() + kPageBytes - 1) / kPageBytes * kPageBytes;
  specd_region region;
  if (options_.rows_on_device) {
    Require(gpu_.Allocate(size_bytes, &rows_), "memory for rows");
    Require(specd_import_device(engine_, rows_, size_bytes, &region) == SPECD_OK,
            "its device memory is refused");
  } else {
    Require(specd_alloc(engine_, size_bytes, &region) == SPECD_OK, "no memory from specd");
    Require(gpu_.RegisterHost(region.data, size_bytes, &rows_), "registering rows");
  }
  next_ = rows_ + rows_bytes;
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.dtype = SPECD_BFLOAT16;
  tensor.num_rows = uint64_t{kDepth} * options_.num_sequences * kRowsEach;
  Require(specd_bind(engine_, SPECD_TARGET_ROWS, &tensor) == SPECD_OK, "binding rows");
  BindOutput(region, SPECD_NEXT_TOKEN, rows_bytes);
  BindOutput(region, SPECD_NUM_KEPT, rows_bytes + next_bytes());
  BindOutput(region, SPECD_TOTAL_KEPT, rows_bytes + 2 * next_bytes());
  BindOutput(region, SPECD_KEPT_TOKENS, rows_bytes + 3 * next_bytes());
}

void CudaStreamEngine::BindOutput(const specd_region& region, uint32_t role,
                                  uint64_t offset_bytes) {
  specd_tensor tensor;
  specd_tensor_init(&tensor);
  tensor.region = region.id;
  tensor.offset_bytes = offset_bytes;
  tensor.num_rows = options_.num_sequences;
  tensor.dtype = SPECD_INT32;
  Require(specd_bind(engine_, role, &tensor) == SPECD_OK, "binding slot outputs");
}

void CudaStreamEngine::OpenSequences() {
  static int num_opened = 0;
  for (uint32_t i = 0; i < options_.num_sequences; ++i) {
    specd_params params;
    specd_params_init(&params);
    params.temperature = i % 4 < 2 ? 0 : 1;
    params.verify = i % 4 == 3 ? SPECD_VERIFY_TOKEN : SPECD_VERIFY_AUTO;
    params.max_tokens = 1'000'000'000;
    const std::string name = "s" + std::to_string(getpid()) + "." + std::to_string(++num_opened);
    specd_sequence_info info = Sized<specd_sequence_info>();
    Require(specd_open_sequence(engine_, name.c_str(), &params, &info) == SPECD_OK,
            "a sequence is refused");
    sequences_.push_back(info.sequence);
  }
}

void CudaStreamEngine::PrepareWords() {
  // The memory is shared, because some devices reach only memory that others could map too.
  void* const page =
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Require(page != MAP_FAILED, "no page for words");
  words_ = static_cast<char*>(page);
  Require(kOwnTokensOffset + next_bytes() <= kPageBytes, "too many sequences");
  std::fill_n(reinterpret_cast<int32_t*>(words_ + kOwnTokensOffset), options_.num_sequences,
              kOwnToken);
  Require(gpu_.RegisterHost(words_, kPageBytes, &words_there_), "registering words");
}

// Puts the rows of each round of a period on the device, and spoilt rows, so that a forward is one
// copy. In half of the rows the token has the largest element. In the others nothing else is
// possible.
void CudaStreamEngine::PrepareForwards() {
  std::vector<uint16_t> forwards;
  for (uint64_t round = 0; round <= kPeriod; ++round) {
    for (uint32_t i = 0; i < options_.num_sequences; ++i) {
      for (uint32_t row = 0; row < kRowsEach; ++row) {
        const size_t begin = forwards.size();
        forwards.resize(begin + options_.vocab_size, i % 4 < 2 ? kZero : kMinusInfinity);
        const uint32_t index = round == kPeriod ? kNumTokens : IndexAt({round, i}, row);
        forwards[begin + static_cast<size_t>(TokenOf(index))] = kOne;
      }
    }
  }
  const uint64_t size_bytes = sizeof(uint16_t) * forwards.size();
  Require(gpu_.Allocate(size_bytes, &forwards_), "memory for forwards");
  Require(gpu_.Copy(stream_, PointerTo(forwards_), forwards.data(), size_bytes),
          "copying what forwards write");
  Synchronize();
}

// ---- the right answers

// No round expects the token of the last index: rows are spoilt with it.
int32_t CudaStreamEngine::TokenOf(uint32_t index) const {
  if (index == kNumTokens) return static_cast<int32_t>(options_.vocab_size - 1);
  return static_cast<int32_t>(1 + index * ((options_.vocab_size - 2) / kNumTokens));
}
uint32_t CudaStreamEngine::IndexAt(const Place& place, uint32_t row) {
  return static_cast<uint32_t>((place.round % kPeriod * 7 + place.sequence * 5 + row * 3) %
                               kNumTokens);
}
uint32_t CudaStreamEngine::NumRight(const Place& place) {
  const uint32_t num_drafts = NumDrafts(place.sequence);
  return static_cast<uint32_t>((place.round + place.sequence) % (num_drafts + 1));
}
uint32_t CudaStreamEngine::RowOf(const Place& place, uint32_t row) const {
  const auto turn = static_cast<uint32_t>(place.round % kDepth);
  return (turn * options_.num_sequences + place.sequence) * kRowsEach + row;
}
uint32_t CudaStreamEngine::max_draft() const { return options_.num_sequences == 1 ? 0 : kMaxDraft; }

void CudaStreamEngine::CheckResult(const specd_result& result, const Place& place) {
  const std::string where =
      "round " + std::to_string(place.round) + ", sequence " + std::to_string(place.sequence);
  Require(result.sequence == sequences_[place.sequence], where + " is another sequence");
  Require(result.status == SPECD_STATUS_OK, where + " has status " + std::to_string(result.status));
  const uint32_t num_right = NumRight(place);
  Require(result.num_accepted == num_right && result.num_kept == num_right + 1,
          where + " accepts " + std::to_string(result.num_accepted) + " drafts instead of " +
              std::to_string(num_right));
  for (uint32_t i = 0; i < result.num_kept; ++i) {
    const int32_t token = TokenOf(IndexAt(place, i));
    Require(result.tokens[i] == token, where + " gives token " + std::to_string(result.tokens[i]) +
                                           " instead of " + std::to_string(token));
  }
  kept_[place.sequence] += result.num_kept;
  Require(result.total_kept == kept_[place.sequence],
          where + " has lost tokens, or counted them twice");
}

// ---- rounds

void CudaStreamEngine::MakeDrafts(uint64_t round) {
  drafts_.assign(options_.num_sequences, Sized<specd_draft>());
  draft_tokens_.resize(size_t{options_.num_sequences} * kMaxDraft);
  target_rows_.resize(size_t{options_.num_sequences} * kRowsEach);
  for (uint32_t i = 0; i < options_.num_sequences; ++i) {
    const Place place{round, i};
    int32_t* const tokens = draft_tokens_.data() + size_t{i} * kMaxDraft;
    uint32_t* const rows = target_rows_.data() + size_t{i} * kRowsEach;
    for (uint32_t k = 0; k < kRowsEach; ++k) rows[k] = RowOf(place, k);
    for (uint32_t k = 0; k < NumDrafts(i); ++k) {
      const uint32_t index = IndexAt(place, k);
      tokens[k] = TokenOf(k < NumRight(place) ? index : (index + 1) % kNumTokens);
    }
    drafts_[i].sequence = sequences_[i];
    drafts_[i].num_nodes = NumDrafts(i);
    drafts_[i].tokens = NumDrafts(i) > 0 ? tokens : nullptr;
    drafts_[i].target_rows = rows;
  }
}

void CudaStreamEngine::CopyOnStream(GpuAddress target, GpuAddress source, uint64_t size_bytes,
                                    const char* what) {
  Require(gpu_.Copy(stream_, PointerTo(target), PointerTo(source), size_bytes), what);
}

void CudaStreamEngine::Forward(uint64_t round, bool is_spoilt) {
  const uint64_t size_bytes = row_bytes() * options_.num_sequences * kRowsEach;
  CopyOnStream(rows_ + round % kDepth * size_bytes,
               forwards_ + (is_spoilt ? kPeriod : round % kPeriod) * size_bytes, size_bytes,
               "a forward");
}

int CudaStreamEngine::Submit(uint64_t round) {
  MakeDrafts(round);
  return specd_submit_on_stream(engine_, round, drafts_.data(), options_.num_sequences,
                                stream_.handle);
}

void CudaStreamEngine::Note(uint64_t round) {
  specd_round_end end;
  Require(specd_get_round_end(engine_, &end) == SPECD_OK, "no round end");
  answered_[round % kLogRounds] = end.answered;
  CopyOnStream(NoteOf(round), end.device_address, sizeof(uint64_t),
               "copying the word of the round");
  CopyOnStream(NoteOf(round) + sizeof(uint64_t), next_, outputs_bytes(), "copying slot outputs");
}

int CudaStreamEngine::Enqueue(uint64_t round) {
  Forward(round, false);
  const int code = Submit(round);
  if (code == SPECD_FULL) return code;
  Require(code == SPECD_OK, "a round on the stream is refused");
  Note(round);
  Forward(round, true);
  return code;
}

void CudaStreamEngine::EnqueueWhenFree(uint64_t round) {
  int code = Enqueue(round);
  while (code == SPECD_FULL) {
    specd_completion done = SizedCompletion();
    Require(specd_poll(engine_, &done, 0) == SPECD_EMPTY, "a late answer");
    sched_yield();  // until the daemon has noticed
    code = Submit(round);
    if (code == SPECD_OK) {
      Note(round);
      Forward(round, true);
    }
  }
  Require(code == SPECD_OK, "a round on the stream is refused");
}

bool CudaStreamEngine::Poll(uint64_t round) {
  specd_completion done = SizedCompletion();
  Require(specd_poll(engine_, &done, options_.patience_ms) == SPECD_OK,
          "round " + std::to_string(round) + " is not answered");
  Require(done.round_id == round, "completions out of order");
  Require(done.num_results == options_.num_sequences, "results are missing");
  if (done.results[0].status != SPECD_STATUS_ABORTED) {
    for (uint32_t i = 0; i < done.num_results; ++i) CheckResult(done.results[i], {round, i});
    lengths_[round % kLogRounds] = kept_;
    return true;
  }
  for (uint32_t i = 0; i < done.num_results; ++i) {
    Require(done.results[i].status == SPECD_STATUS_ABORTED, "a round is aborted in part");
    Require(done.results[i].num_kept == 0, "a token of an aborted round");
    Require(done.results[i].sequence == sequences_[i], "an aborted round of another sequence");
  }
  return false;
}

double CudaStreamEngine::TimeRound(uint64_t round, bool on_stream) {
  Forward(round, false);
  Synchronize();
  MakeDrafts(round);
  const auto begin = std::chrono::steady_clock::now();
  const int code = on_stream ? specd_submit_on_stream(engine_, round, drafts_.data(),
                                                      options_.num_sequences, stream_.handle)
                             : specd_submit(engine_, round, drafts_.data(), options_.num_sequences);
  Require(code == SPECD_OK, "a round is refused");
  specd_completion done = SizedCompletion();
  Require(specd_poll(engine_, &done, options_.patience_ms) == SPECD_OK, "a round is not answered");
  const auto end = std::chrono::steady_clock::now();
  Require(done.num_results == options_.num_sequences, "results are missing");
  for (uint32_t i = 0; i < done.num_results; ++i) CheckResult(done.results[i], {round, i});
  Synchronize();
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

// ---- the notes of the CUDA stream

std::vector<char> CudaStreamEngine::ReadDevice(GpuAddress address, uint64_t size_bytes) {
  std::vector<char> bytes(size_bytes);
  Require(gpu_.Copy(reader_, bytes.data(), PointerTo(address), size_bytes), "reading back");
  Require(gpu_.Synchronize(reader_), "reading back");
  return bytes;
}

bool CudaStreamEngine::WasAnswered(uint64_t round) {
  uint64_t word = 0;
  std::memcpy(&word, ReadDevice(NoteOf(round), sizeof(word)).data(), sizeof(word));
  return word == answered_[round % kLogRounds];
}

void CudaStreamEngine::CheckLog(uint64_t first, uint64_t end) {
  Require(end - first <= kLogRounds, "more rounds than were noted");
  const std::vector<char> log = ReadDevice(log_, kLogRounds * note_bytes());
  for (uint64_t round = first; round < end; ++round) {
    const char* const note = log.data() + round % kLogRounds * note_bytes();
    uint64_t word = 0;
    std::memcpy(&word, note, sizeof(word));
    Require(word == answered_[round % kLogRounds],
            "the stream passed round " + std::to_string(round) + " before the answer");
    std::vector<int32_t> outputs(outputs_bytes() / sizeof(int32_t));
    std::memcpy(outputs.data(), note + sizeof(word), outputs_bytes());
    for (uint32_t i = 0; i < options_.num_sequences; ++i) CheckOutputs(outputs.data(), {round, i});
  }
}

void CudaStreamEngine::CheckOutputs(const int32_t* outputs, const Place& place) const {
  const uint32_t slot = specd_sequence_slot(sequences_[place.sequence]);
  const auto check = [&](const char* name, int64_t found, int64_t wanted) {
    Require(found == wanted, "behind round " + std::to_string(place.round) + " the stream finds " +
                                 name + " " + std::to_string(found) + " instead of " +
                                 std::to_string(wanted));
  };
  const uint32_t n = options_.num_sequences;
  const uint32_t num_kept = NumRight(place) + 1;
  check("next token", outputs[slot], LastToken(place));
  check("number of kept tokens", outputs[n + slot], num_kept);
  const auto length = static_cast<int64_t>(lengths_[place.round % kLogRounds].at(place.sequence));
  check("length", outputs[2 * n + slot], length);
  for (uint32_t i = 0; i < kRowsEach; ++i) {
    const int32_t token = i < num_kept ? TokenOf(IndexAt(place, i)) : -1;
    check("kept token", outputs[3 * n + slot * kRowsEach + i], token);
  }
}

void CudaStreamEngine::PutOwnTokens() {
  CopyOnStream(next_, words_there_ + kOwnTokensOffset, next_bytes(), "putting own tokens");
  Synchronize();
}

bool CudaStreamEngine::HasOwnTokens() {
  const std::vector<char> bytes = ReadDevice(next_, next_bytes());
  return std::memcmp(bytes.data(), words_ + kOwnTokensOffset, next_bytes()) == 0;
}

void CudaStreamEngine::Block() {
  __atomic_store_n(reinterpret_cast<uint32_t*>(words_), 0u, __ATOMIC_RELEASE);
  const GpuResult result = gpu_.WaitValue(stream_, words_there_, GpuWord::k32, 1);
  if (result.code() == kGpuNotSupported) DieAsEngine(kNoStreamWaits, kEngineSkips);
  Require(result, "holding the stream");
}
void CudaStreamEngine::Unblock() {
  __atomic_store_n(reinterpret_cast<uint32_t*>(words_), 1u, __ATOMIC_RELEASE);
}

void CudaStreamEngine::Synchronize() { Require(gpu_.Synchronize(stream_), "synchronizing"); }
bool CudaStreamEngine::IsWaiting() { return gpu_.Query(stream_).code() == kGpuNotReady; }

bool CudaStreamEngine::StreamsCanWait() {
  // Waits for a value that the word has already. If CUDA streams have such operations, the wait
  // does nothing.
  __atomic_store_n(reinterpret_cast<uint32_t*>(words_), 1u, __ATOMIC_RELEASE);
  return gpu_.WaitValue(stream_, words_there_, GpuWord::k32, 1).code() != kGpuNotSupported;
}

void CudaStreamEngine::CheckWaits() {
  const char* const waits = std::getenv("SPECD_STREAM_WAITS");
  const bool asks_for_host = waits != nullptr && std::strcmp(waits, "host") == 0;
  if (!asks_for_host && !StreamsCanWait()) DieAsEngine(kNoStreamWaits, kEngineSkips);
  specd_sharing sharing;
  Require(specd_get_sharing(engine_, &sharing) == SPECD_OK, "sharing");
  Require((std::strstr(sharing.text, "CPU thread") != nullptr) == asks_for_host,
          std::string("who waits is not who was asked for: ") + sharing.text);
}

std::string CudaStreamEngine::SharingName() {
  specd_sharing sharing;
  Require(specd_get_sharing(engine_, &sharing) == SPECD_OK, "sharing");
  switch (sharing.mode) {
    case SPECD_SHARING_NONE:
      return "none";
    case SPECD_SHARING_MPS:
      return "MPS";
    case SPECD_SHARING_TIME_SLICED:
      return "time-sliced";
    default:
      return "unknown";
  }
}

}  // namespace specd
