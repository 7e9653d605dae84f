// A tensor-parallel engine with each rank in a process of its own. Tests kill processes and check
// which ids each rank finds. The program prints its steps on standard output, and takes requests as
// lines on standard input. An error ends it with status 1.
//
//   ranks_engine URI zero            rank 0: says its token; for each line, which is an id, has a
//                                    round over a row that this id wins, and says what it was given
//   ranks_engine URI rank K FD       rank K: a line with the token; then has its ids written to the
//                                    memory of FD; for each line says what lies there
//
// Rounds of even ids are submitted, those of odd ones are on a stream of a pretended GPU.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ipc/include/specd/specd.h"
#include "tests/gpu/driver/fake_cuda.h"
#include "tests/process/engine_steps.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

constexpr uint32_t kVocab = 64;
constexpr uint32_t kSlots = 4;
constexpr int kPatienceMs = 60'000;

class RankZero {
 public:
  explicit RankZero(const char* uri) {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kVocab;
    options.max_batch = 1;
    options.max_sequences = kSlots;
    options.max_draft = 0;
    options.stream_timeout_ms = kPatienceMs;
    Check(specd_open(uri, &options, &engine_) == SPECD_OK, "open");
    specd_region region;
    Check(specd_alloc(engine_, sizeof(float) * kVocab, &region) == SPECD_OK, "alloc");
    row_ = static_cast<float*>(region.data);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = 1;
    Check(specd_bind(engine_, SPECD_TARGET_ROWS, &tensor) == SPECD_OK, "bind");
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 1'000'000;
    specd_sequence_info info = Sized<specd_sequence_info>();
    Check(specd_open_sequence(engine_, "ranks", &params, &info) == SPECD_OK, "sequence");
    sequence_ = info.sequence;
    Check(FakeCuda(0).CreateStream(&stream_), "stream");
  }

  specd_group Group() {
    specd_group group;
    Check(specd_get_group(engine_, &group) == SPECD_OK, "group");
    return group;
  }

  int32_t Round(uint32_t id) {
    std::memset(row_, 0, sizeof(float) * kVocab);
    row_[id] = 1;
    const uint32_t row = 0;
    specd_draft draft = Sized<specd_draft>();
    draft.sequence = sequence_;
    draft.target_rows = &row;
    Check(
        (id % 2 == 0 ? specd_submit(engine_, id, &draft, 1)
                     : specd_submit_on_stream(engine_, id, &draft, 1, stream_.handle)) == SPECD_OK,
        "submit");
    specd_completion done = SizedCompletion();
    Check(specd_poll(engine_, &done, kPatienceMs) == SPECD_OK, "poll");
    Check(done.num_results == 1 && done.results[0].num_kept == 1, "one token");
    return done.results[0].tokens[0];
  }
  uint32_t slot() const { return specd_sequence_slot(sequence_); }

 private:
  specd_engine* engine_ = nullptr;
  float* row_ = nullptr;
  specd_sequence sequence_ = 0;
  GpuStream stream_;
};

void RunZero(const char* uri) {
  RankZero zero(uri);
  Say(std::string("token ") + zero.Group().token);
  Say("slot " + std::to_string(zero.slot()));
  while (true) {
    const std::string line = AwaitLine();
    if (line == "ranks") {
      Say("ranks " + std::to_string(zero.Group().bound_ranks));
    } else {
      const auto id = static_cast<uint32_t>(std::stoul(line));
      Say("round " + line + " gave " + std::to_string(zero.Round(id)));
    }
  }
}

void RunRank(const char* uri, uint32_t rank, int fd) {
  const uint64_t size_bytes = kSlots * sizeof(int32_t);
  void* const mapped = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd, 0);
  Check(mapped != MAP_FAILED, "map");
  const auto* const ids = static_cast<const volatile int32_t*>(mapped);
  const std::string token = AwaitLine();
  specd_join_options options;
  specd_join_options_init(&options);
  options.rank = rank;
  options.timeout_ms = kPatienceMs;
  specd_member* member = nullptr;
  Check(specd_join(uri, token.c_str(), &options, &member) == SPECD_OK, "join");
  Check(specd_member_bind_fd(member, fd, size_bytes, 0, kSlots) == SPECD_OK, "bind");
  Say("bound");
  while (true) {
    const std::string line = AwaitLine();
    if (line == "leave") break;
    std::string found = "found";
    for (uint32_t slot = 0; slot < kSlots; ++slot) found += " " + std::to_string(ids[slot]);
    Say(found + " " + specd_code_name(specd_member_check(member)));
  }
  Check(specd_leave(member) == SPECD_OK, "leave");
  Say("left");
}

}  // namespace
}  // namespace specd

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[2] : "";
  if (mode == "zero") specd::RunZero(argv[1]);
  if (mode == "rank" && argc > 4) {
    specd::RunRank(argv[1], static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)),
                   std::atoi(argv[4]));
  }
  return 0;
}
