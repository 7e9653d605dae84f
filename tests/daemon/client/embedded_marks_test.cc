// specd_mark_drafts in an embedded engine on a pretended device: the masks of all places are built
// before the target model has run, and the round has the draft tokens of its own time.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "speculative/grammar/base/grammar_memory.h"
#include "tests/daemon/client/graph_device.h"
#include "tests/support/c_drafts.h"

namespace specd {
namespace {

using Ids = std::vector<int32_t>;

constexpr uint32_t kToyVocab = 2048;
constexpr uint32_t kDraft = 3;
constexpr uint32_t kSequencesMax = 2;
constexpr int32_t kEos = 0;
constexpr uint32_t kRows[] = {0, 1, 2, 3};

// Grows where a mask or a draft token meets a new state of a constraint.
size_t StateBytes() { return grammar::GrammarMemory::OfProcess().size_bytes(); }

struct MarkingEngine : test::GraphDevice {
  MarkingEngine() {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = kToyVocab;
    options.max_batch = kSequencesMax;
    options.max_sequences = kSequencesMax;
    options.max_draft = kDraft;
    options.tokenizer = SPECD_TOKENIZER;
    options.eos_token_ids = {&kEos, 1};
    options.cuda_stream = &stream;
    const int code = specd_open("embedded:cuda", &options, &engine);
    INFO(std::string(specd_last_error()));
    REQUIRE(code == SPECD_OK);
    target = reinterpret_cast<float*>(address);
    ids = reinterpret_cast<int32_t*>(target + (kDraft + 1) * kToyVocab);
    specd_region region = {};
    REQUIRE(specd_import_device(engine, address, uint64_t{1} << 20, &region) == SPECD_OK);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.num_rows = kDraft + 1;
    REQUIRE(specd_bind(engine, SPECD_TARGET_ROWS, &tensor) == SPECD_OK);
    tensor.offset_bytes = (kDraft + 1) * kToyVocab * sizeof(float);
    tensor.num_rows = kSequencesMax;
    REQUIRE(specd_bind(engine, SPECD_DRAFT_TOKENS, &tensor) == SPECD_OK);
    specd_params params;
    specd_params_init(&params);
    params.temperature = 0;
    params.max_tokens = 100;
    params.grammar_kind = SPECD_GRAMMAR_REGEX;
    params.grammar = "[^\\n]{20,40}";
    specd_sequence_info info = Sized<specd_sequence_info>();
    const int opened = specd_open_sequence(engine, "r", &params, &info);
    INFO(specd_last_error());
    REQUIRE(opened == SPECD_OK);
    sequence = info.sequence;
  }
  ~MarkingEngine() { specd_close(engine); }

  template <class Work>
  void Enqueue(Work work) {
    REQUIRE(rounds
                ->Enqueue("model", false,
                          [work] {
                            work();
                            return GpuResult::Ok();
                          })
                .ok());
  }
  void Draft(const Ids& drafted) {
    Enqueue([this, drafted] {
      std::copy(drafted.begin(), drafted.end(), ids + kDraft * specd_sequence_slot(sequence));
    });
  }
  int Mark() { return specd_mark_drafts(engine, &stream); }
  // The rows want these ids.
  void Target(const Ids& wanted) {
    Enqueue([this, wanted] {
      bytes_at_target = StateBytes();
      std::fill_n(target, (kDraft + 1) * kToyVocab, 0.0f);
      for (size_t i = 0; i < wanted.size(); ++i) {
        target[i * kToyVocab + static_cast<uint32_t>(wanted[i])] = 9;
      }
    });
  }
  Ids Round() {
    specd_draft part = ChainDraft(sequence, kDraft, nullptr, kRows);
    part.flags = SPECD_DRAFTS_BY_SLOT;
    REQUIRE(specd_submit(engine, 1, &part, 1) == SPECD_OK);
    specd_completion done = SizedCompletion();
    REQUIRE(specd_poll(engine, &done, -1) == SPECD_OK);
    REQUIRE(done.results[0].status == SPECD_STATUS_OK);
    return {done.results[0].tokens, done.results[0].tokens + done.results[0].num_kept};
  }

  int stream = 0;
  specd_engine* engine = nullptr;
  float* target = nullptr;
  int32_t* ids = nullptr;
  specd_sequence sequence = 0;
  size_t bytes_at_target = 0;
};

TEST_SUITE("unit") {
  TEST_CASE("with a mark the target model finds every mask built, and without it none is") {
    for (const bool is_marked : {false, true}) {
      CAPTURE(is_marked);
      MarkingEngine f;
      const size_t before = StateBytes();
      f.Draft({300, 301, 302});
      if (is_marked) REQUIRE(f.Mark() == SPECD_OK);
      f.Target({300, 301, 302, 303});
      CHECK(f.Round() == Ids{300, 301, 302, 303});
      // The commit advances over the last token too, which no mask needed.
      const size_t after = StateBytes();
      CHECK(after > before);
      if (is_marked) {
        CHECK(f.bytes_at_target > before);
      } else {
        CHECK(f.bytes_at_target == before);
      }
      // The mark is used up.
      f.Draft({304, 305, 306});
      f.Target({304, 305, 306, 307});
      CHECK(f.Round() == Ids{304, 305, 306, 307});
      CHECK(f.bytes_at_target == after);
    }
  }

  TEST_CASE("a drafter that writes after the mark has its last ids verified") {
    MarkingEngine f;
    f.Draft({300, 301, 302});
    REQUIRE(f.Mark() == SPECD_OK);
    f.Draft({304, 305, 306});
    f.Target({304, 305, 300, 307});
    CHECK(f.Round() == Ids{304, 305, 300});
  }

  TEST_CASE("marks are refused while the stream captures, and without a device") {
    MarkingEngine f;
    f.driver.stream_captures = true;
    CHECK(f.Mark() == SPECD_ERROR_STATE);
    CHECK(std::string(specd_last_error()).find("cuda_stream is capturing") != std::string::npos);
    CHECK(f.driver.caller_spoiled_by.empty());
    f.driver.stream_captures = false;
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    specd_engine* on_cpu = nullptr;
    REQUIRE(specd_open("embedded:cpu", &options, &on_cpu) == SPECD_OK);
    CHECK(specd_mark_drafts(on_cpu, &f.stream) == SPECD_ERROR_UNSUPPORTED);
    CHECK(std::string(specd_last_error()).find("\"cpu\" has no device") != std::string::npos);
    specd_close(on_cpu);
  }
}

}  // namespace
}  // namespace specd
