// Slot outputs in shared host memory, over the C interface, embedded and attached: every role after
// each round, and the tensors that cannot be bound.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "tests/daemon/client/engine_host.h"
#include "tests/support/last_error.h"
#include "tests/support/session_fixture.h"

namespace specd {
namespace {

using test::EmbeddedEngine;
using test::TokensOf;

using Row = std::vector<int64_t>;

constexpr uint32_t kSlots = 4;  // max_sequences of an EmbeddedEngine
constexpr int64_t kUnwritten = -9;

struct RoleCase {
  int role;
  uint32_t width;
};
constexpr uint32_t kWidth = EmbeddedEngine::kMaxDraft + 1;
const RoleCase kRoles[] = {{SPECD_NEXT_TOKEN, 1},    {SPECD_KEPT_TOKENS, kWidth},
                           {SPECD_NUM_KEPT, 1},      {SPECD_NUM_ACCEPTED, 1},
                           {SPECD_TOTAL_KEPT, 1},    {SPECD_ACCEPTED_PATH, kWidth - 1},
                           {SPECD_PREDICTS, kWidth}, {SPECD_ACCEPT_INDEX, kWidth}};

bool MayHaveGaps(int role) {
  return role == SPECD_KEPT_TOKENS || role == SPECD_ACCEPTED_PATH || role == SPECD_ACCEPT_INDEX;
}

// A bound array, and what it should hold: unwritten elements, or the row of the last round.
template <typename Element>
class Output {
 public:
  Output(EmbeddedEngine& f, const RoleCase& of, uint32_t replica, uint32_t gap)
      : width_(of.width), stride_(of.width + gap), expected_(kRoom, kUnwritten) {
    specd_region region;
    REQUIRE(specd_alloc(f.engine, kRoom * sizeof(Element), &region) == SPECD_OK);
    data_ = static_cast<Element*>(region.data);
    std::fill_n(data_, kRoom, Element{kUnwritten});
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.dtype = sizeof(Element) == 8 ? SPECD_INT64 : SPECD_INT32;
    tensor.offset_bytes = kFirst * sizeof(Element);
    tensor.num_rows = kSlots;
    tensor.row_stride = gap == 0 ? 0 : stride_;
    const int code = specd_bind(f.engine, of.role + static_cast<int>(replica), &tensor);
    INFO(specd_last_error());
    REQUIRE(code == SPECD_OK);
  }

  void Expect(uint32_t slot, Row row) {
    row.resize(width_, -1);
    std::copy(row.begin(), row.end(), &expected_[kFirst + slot * stride_]);
  }
  void Check() const { CHECK(Row(data_, data_ + kRoom) == expected_); }

 private:
  static constexpr uint32_t kFirst = 3;
  static constexpr uint32_t kRoom = 40;
  uint32_t width_;
  uint32_t stride_;
  Element* data_;
  Row expected_;
};

// All roles of one engine.
class Outputs {
 public:
  explicit Outputs(EmbeddedEngine& f) {
    for (const RoleCase& role : kRoles) {
      narrow_.emplace(role.role, Output<int32_t>(f, role, 0, 0));
    }
  }
  // By role: the row that a round leaves at a slot.
  void Expect(uint32_t slot, const std::map<int, Row>& rows) {
    for (const RoleCase& role : kRoles) narrow_.at(role.role).Expect(slot, rows.at(role.role));
  }
  void Check() const {
    for (const RoleCase& role : kRoles) {
      CAPTURE(role.role);
      narrow_.at(role.role).Check();
    }
  }

 private:
  std::map<int, Output<int32_t>> narrow_;
};

// Id r + 1 wins row r.
void FillRows(EmbeddedEngine& f) {
  for (uint32_t row = 0; row < 4; ++row) {
    f.SetRow(f.target, row, {0, 0, 0, 0, 0, 0});
    f.target[row * EmbeddedEngine::kVocab + row + 1] = 5;
  }
}

UniqueFd SealedFd(unsigned seals) {
  UniqueFd fd(memfd_create("next", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(fd.get(), 4096) == 0);
  REQUIRE(fcntl(fd.get(), F_ADD_SEALS, static_cast<int>(seals)) == 0);
  return fd;
}

TEST_SUITE("unit") {
  TEST_CASE("slot outputs in host memory say after every round what it kept, and how far it came") {
    test::ForBothModes([](EmbeddedEngine& f) {
      FillRows(f);
      Outputs outputs(f);
      const specd_sequence first = f.Open(f.Params(), "first");
      const specd_sequence second = f.Open(f.Params(), "second");
      const uint32_t slots[] = {specd_sequence_slot(first), specd_sequence_slot(second)};
      outputs.Check();  // binding and opening write nothing

      // Two nodes of three stand.
      const int32_t drafts[] = {1, 2, 7};
      const specd_result result = f.Round(ChainDraft(second, 3, drafts, f.rows));
      CHECK(TokensOf(result) == std::vector<int32_t>{1, 2, 3});
      const int64_t root = slots[1] * int64_t{kWidth};
      outputs.Expect(slots[1], {{SPECD_NEXT_TOKEN, {3}},
                                {SPECD_KEPT_TOKENS, {1, 2, 3}},
                                {SPECD_NUM_KEPT, {3}},
                                {SPECD_NUM_ACCEPTED, {2}},
                                {SPECD_TOTAL_KEPT, {3}},
                                {SPECD_ACCEPTED_PATH, {0, 1}},
                                {SPECD_PREDICTS, {1, 2, 3}},
                                {SPECD_ACCEPT_INDEX, {root, root + 1, root + 2}}});
      outputs.Check();
      // No draft: the row of the round before goes, its padding too.
      CHECK(TokensOf(f.Sample(second, 3)) == std::vector<int32_t>{4});
      outputs.Expect(slots[1], {{SPECD_NEXT_TOKEN, {4}},
                                {SPECD_KEPT_TOKENS, {4}},
                                {SPECD_NUM_KEPT, {1}},
                                {SPECD_NUM_ACCEPTED, {0}},
                                {SPECD_TOTAL_KEPT, {4}},
                                {SPECD_ACCEPTED_PATH, {}},
                                {SPECD_PREDICTS, {4}},
                                {SPECD_ACCEPT_INDEX, {root}}});
      outputs.Check();
      // A discarded round, and a row without a distribution: no token, so no change.
      specd_draft discarded = ChainDraft(first, 0, nullptr, f.rows);
      discarded.flags = SPECD_DISCARD;
      CHECK(f.Round(discarded).num_kept == 0);
      outputs.Check();
      f.target[0] = std::numeric_limits<float>::quiet_NaN();
      CHECK(f.Sample(first, 0).status == SPECD_STATUS_BAD_DISTRIBUTION);
      outputs.Check();
    });
  }

  TEST_CASE("slot outputs of a sequence that returns count the tokens that it had before") {
    test::ForBothModes([](EmbeddedEngine& f) {
      FillRows(f);
      Output<int64_t> total(f, {SPECD_TOTAL_KEPT, 1}, 0, 0);
      const int32_t had[] = {5, 5, 2, 1, 5};
      specd_params params = f.Params();
      params.output_ids = {had, 5};
      const specd_sequence sequence = f.Open(params);
      const int32_t drafts[] = {1, 2};
      const specd_result result = f.Round(ChainDraft(sequence, 2, drafts, f.rows));
      CHECK(result.num_kept == 3);
      CHECK(result.total_kept == 8);
      total.Expect(specd_sequence_slot(sequence), {8});
      total.Check();
    });
  }

  TEST_CASE("slot outputs: int64, rows with gaps, and a replica of its own for each rank") {
    int replica = 0;
    for (const RoleCase& role : kRoles) {
      replica = replica % 7 + 1;  // each of them once at least
      CAPTURE(role.role);
      CAPTURE(replica);
      test::ForBothModes([&](EmbeddedEngine& f) {
        FillRows(f);
        const uint32_t gap = MayHaveGaps(role.role) ? 2 : 0;
        Output<int64_t> wide(f, role, 0, gap);
        Output<int32_t> copy(f, role, replica, gap);
        const specd_sequence sequence = f.Open(f.Params());
        const int32_t drafts[] = {1, 7};
        CHECK(f.Round(ChainDraft(sequence, 2, drafts, f.rows)).num_kept == 2);
        const uint32_t slot = specd_sequence_slot(sequence);
        const int64_t root = slot * int64_t{kWidth};
        const std::map<int, Row> rows = {
            {SPECD_NEXT_TOKEN, {2}},  {SPECD_KEPT_TOKENS, {1, 2}},
            {SPECD_NUM_KEPT, {2}},    {SPECD_NUM_ACCEPTED, {1}},
            {SPECD_TOTAL_KEPT, {2}},  {SPECD_ACCEPTED_PATH, {0}},
            {SPECD_PREDICTS, {1, 2}}, {SPECD_ACCEPT_INDEX, {root, root + 1}}};
        wide.Expect(slot, rows.at(role.role));
        copy.Expect(slot, rows.at(role.role));
        wide.Check();
        copy.Check();
      });
    }
  }

  TEST_CASE("what cannot be bound to a slot output is refused by field") {
    SessionFixture f(false);  // 4 sequences
    const auto region = f.session->RegisterRegion(SealedFd(F_SEAL_SHRINK), 4096);
    REQUIRE(region.ok());
    const auto path = static_cast<uint32_t>(f.session->options().limits.path_max());
    REQUIRE(path > 0);
    const uint64_t rows_end = 4 * (path + 1) * 4;
    TensorSpec scaled{SPECD_INT32, 0, 4, 0};
    scaled.scale = 2;
    struct Bad {
      uint32_t role;
      TensorSpec spec;
      const char* field;
      const char* words;
    };
    const Bad cases[] = {
        {SPECD_NUM_KEPT, {SPECD_FLOAT32, 0, 4, 0}, "dtype", "dtype = 0 of SPECD_NUM_KEPT"},
        {SPECD_KEPT_TOKENS, {SPECD_BFLOAT16, 0, 4, 0}, "dtype", "SPECD_INT64 (4)"},
        {SPECD_TOTAL_KEPT, {5, 0, 4, 0}, "dtype", "SPECD_INT32 (3)"},
        {SPECD_NEXT_TOKEN, {SPECD_FLOAT16, 0, 4, 0}, "dtype", "dtype = 2 of SPECD_NEXT_TOKEN"},
        {SPECD_NUM_ACCEPTED, {SPECD_INT32, 0, 3, 0}, "num_rows", "SPECD_NUM_ACCEPTED needs a row"},
        {SPECD_ACCEPT_INDEX + 7, {SPECD_INT32, 0, 3, 0}, "num_rows", "max_sequences = 4"},
        {SPECD_TOTAL_KEPT, {SPECD_INT32, 0, 4, 2}, "row_stride", "must be 0 or 1"},
        {SPECD_PREDICTS, {SPECD_INT32, 0, 4, path + 2}, "row_stride", "one after another"},
        {SPECD_KEPT_TOKENS, {SPECD_INT32, 0, 4, path}, "row_stride", "rows may not overlap"},
        {SPECD_ACCEPTED_PATH, {SPECD_INT64, 0, 4, path - 1}, "row_stride", ""},
        {SPECD_NUM_KEPT, {SPECD_INT64, 4, 4, 0}, "offset_bytes", "no multiple of 8"},
        {SPECD_KEPT_TOKENS,
         {SPECD_INT32, 4096 - rows_end + 4, 4, 0},
         "num_rows",
         "past the region"},
        {SPECD_KEPT_TOKENS, {SPECD_INT64, 4096 - rows_end, 4, 0}, "num_rows", "past the region"},
        {SPECD_NUM_KEPT, scaled, "role", "SPECD_NUM_KEPT have no use for kind, scale"},
        {SPECD_ACCEPT_INDEX + 8, {SPECD_INT32, 0, 4, 0}, "role", "SPECD_ACCEPT_INDEX (80)"},
        {SPECD_DRAFT_NEXT_SIBLING + 1, {SPECD_INT32, 0, 4, 0}, "role", "is not supported"}};
    for (const Bad& bad : cases) {
      const absl::Status status =
          f.session->Bind(static_cast<TensorRole>(bad.role), *region, bad.spec);
      const std::string text(status.message());
      CAPTURE(text);
      CHECK(ErrorFieldOf(status) == bad.field);
      CHECK(text.find(bad.words) != std::string::npos);
    }
    // The bounds themselves are inside.
    const auto bind = [&](uint32_t role, const TensorSpec& spec) {
      return f.session->Bind(static_cast<TensorRole>(role), *region, spec).ok();
    };
    CHECK(bind(SPECD_KEPT_TOKENS, {SPECD_INT32, 4096 - rows_end, 4, 0}));
    CHECK(bind(SPECD_NEXT_TOKEN, {SPECD_INT64, 4096 - 32, 4, 1}));
    CHECK(bind(SPECD_NEXT_TOKEN, {SPECD_INT32, 4096 - 16, 4, 1}));
    // A role that is bound keeps its region.
    CHECK(ErrorFieldOf(f.session->UnregisterRegion(*region)) == "region");
  }

  TEST_CASE("a slot output keeps its memory while it is bound, and leaves it alone afterwards") {
    test::ForBothModes([](EmbeddedEngine& f) {
      FillRows(f);
      specd_region regions[2];
      for (specd_region& region : regions) {
        REQUIRE(specd_alloc(f.engine, 64, &region) == SPECD_OK);
        std::fill_n(static_cast<int32_t*>(region.data), 16, -9);
      }
      const auto bind = [&](const specd_region& region) {
        specd_tensor tensor;
        specd_tensor_init(&tensor);
        tensor.region = region.id;
        tensor.num_rows = kSlots;
        return specd_bind(f.engine, SPECD_NEXT_TOKEN, &tensor);
      };
      REQUIRE(bind(regions[0]) == SPECD_OK);
      const specd_sequence sequence = f.Open(f.Params());
      const uint32_t slot = specd_sequence_slot(sequence);
      CHECK(TokensOf(f.Sample(sequence, 2)) == std::vector<int32_t>{3});
      CHECK(specd_unregister(f.engine, regions[0].id) == SPECD_ERROR_STATE);
      CHECK(LastErrorHas("SPECD_NEXT_TOKEN is bound"));
      REQUIRE(bind(regions[1]) == SPECD_OK);
      CHECK(TokensOf(f.Sample(sequence, 1)) == std::vector<int32_t>{2});
      CHECK(static_cast<int32_t*>(regions[0].data)[slot] == 3);
      CHECK(static_cast<int32_t*>(regions[1].data)[slot] == 2);
      CHECK(specd_unregister(f.engine, regions[0].id) == SPECD_OK);
      CHECK(specd_unregister(f.engine, regions[0].id) == SPECD_ERROR_NOT_FOUND);
      CHECK(specd_unregister(nullptr, 1) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_import_device(nullptr, 16, 16, &regions[0]) == SPECD_ERROR_INVALID_ARGUMENT);
      CHECK(specd_import_device(f.engine, 16, 16, nullptr) == SPECD_ERROR_INVALID_ARGUMENT);
    });
  }

  TEST_CASE("slot outputs need memory that specd may write") {
    SessionFixture f(false);
    const auto bind = [&](UniqueFd fd, TensorRole role, uint64_t num_rows) {
      const auto region = f.session->RegisterRegion(std::move(fd), 4096);
      REQUIRE(region.ok());
      return f.session->Bind(role, *region, {0, 0, num_rows, 0});
    };
    for (const unsigned seal : {unsigned{F_SEAL_WRITE}, unsigned{F_SEAL_FUTURE_WRITE}}) {
      const absl::Status status =
          bind(SealedFd(F_SEAL_SHRINK | seal), TensorRole::kNextToken, kSlots);
      CHECK(ErrorCodeOf(status) == SPECD_ERROR_REGION);
      CHECK(std::string(status.message()).find("specd_alloc") != std::string::npos);
      // Rows are only read.
      CHECK(bind(SealedFd(F_SEAL_SHRINK | seal), TensorRole::kTargetRows, 1).ok());
    }
  }

  TEST_CASE("an accepted path is refused where no draft has a node") {
    specd_options options;
    specd_options_init(&options);
    options.vocab_size = 8;
    options.max_batch = 2;
    options.max_draft = 0;
    specd_engine* engine = nullptr;
    REQUIRE(specd_open("embedded:cpu", &options, &engine) == SPECD_OK);
    specd_region region;
    REQUIRE(specd_alloc(engine, 64, &region) == SPECD_OK);
    specd_tensor tensor;
    specd_tensor_init(&tensor);
    tensor.region = region.id;
    tensor.dtype = SPECD_INT32;
    tensor.num_rows = 2;
    CHECK(specd_bind(engine, SPECD_ACCEPTED_PATH, &tensor) == SPECD_ERROR_INVALID_ARGUMENT);
    CHECK(LastErrorHas("max_draft = 0"));
    CHECK(specd_bind(engine, SPECD_KEPT_TOKENS, &tensor) == SPECD_OK);
    specd_close(engine);
  }
}

}  // namespace
}  // namespace specd
