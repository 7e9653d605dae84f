// Maps of narrow draft rows: ids and offsets, and every number that an outsider may write.
#include "ipc/memory/draft_map.h"

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

constexpr int32_t kVocabSize = 8;

template <class Element>
absl::StatusOr<std::vector<int32_t>> Columns(const std::vector<Element>& elements,
                                             uint32_t kind = SPECD_MAP_IDS) {
  const RowMemory memory{elements.data(), elements.size() * sizeof(Element)};
  const TensorSpec spec{.dtype = sizeof(Element) == 8 ? SPECD_INT64 : SPECD_INT32,
                        .num_rows = 1,
                        .kind = kind,
                        .columns = elements.size()};
  const absl::StatusOr<DraftMapView> view = BindDraftMap(memory, spec, kVocabSize);
  if (!view.ok()) return view.status();
  std::vector<std::byte> copy(view->size_bytes());
  std::memcpy(copy.data(), view->data, copy.size());
  return ColumnsOfMap(*view, copy, kVocabSize);
}

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

TEST_SUITE("unit") {
  TEST_CASE("a draft map: ids and offsets, of 32 and 64 bits") {
    const std::vector<int32_t> expected = {1, -1, -1, 0, -1, -1, -1, 2};
    CHECK(*Columns(std::vector<int32_t>{3, 0, 7}) == expected);
    CHECK(*Columns(std::vector<int64_t>{3, 0, 7}) == expected);
    // d2t of EAGLE-3: the id of column c is c + d2t[c].
    CHECK(*Columns(std::vector<int64_t>{3, -1, 5}, SPECD_MAP_OFFSETS) == expected);
    CHECK(*Columns(std::vector<int32_t>{3, -1, 5}, SPECD_MAP_OFFSETS) == expected);
  }

  TEST_CASE("a draft map that does not name each id once, inside the vocabulary, is refused") {
    CHECK(TextOf(Columns(std::vector<int32_t>{3, 0, 3}).status()).find("columns 0 and 2") !=
          std::string::npos);
    for (const int64_t id : {int64_t{-1}, int64_t{8}, int64_t{1} << 40, INT64_MIN, INT64_MAX}) {
      CHECK(TextOf(Columns(std::vector<int64_t>{3, id}).status()).find("column 1 has id") !=
            std::string::npos);
      if (id < 0 && id > -8) continue;  // a valid offset
      CHECK(!Columns(std::vector<int64_t>{3, id}, SPECD_MAP_OFFSETS).ok());
    }
    CHECK(!Columns(std::vector<int32_t>{-1, 3}, SPECD_MAP_OFFSETS).ok());
    // As ids, the offsets of a sorted map begin with zeros.
    CHECK(TextOf(Columns(std::vector<int32_t>{0, 0, 1}).status()).find("SPECD_MAP_OFFSETS") !=
          std::string::npos);
  }

  TEST_CASE("a draft map is one row of integers that lies in its region") {
    const std::vector<int32_t> ids = {3, 0, 7};
    const RowMemory memory{ids.data(), sizeof(int32_t) * ids.size()};
    const TensorSpec good{.dtype = SPECD_INT32, .num_rows = 1, .columns = 3};
    CHECK(BindDraftMap(memory, good, kVocabSize).ok());
    const auto field_of = [&](auto change) {
      TensorSpec spec = good;
      change(&spec);
      return ErrorFieldOf(BindDraftMap(memory, spec, kVocabSize).status());
    };
    CHECK(field_of([](TensorSpec* spec) { spec->dtype = SPECD_FLOAT32; }) == "dtype");
    CHECK(field_of([](TensorSpec* spec) { spec->kind = 2; }) == "kind");
    CHECK(field_of([](TensorSpec* spec) { spec->columns = 0; }) == "columns");
    CHECK(field_of([](TensorSpec* spec) { spec->columns = 1; }) == "columns");
    CHECK(field_of([](TensorSpec* spec) { spec->columns = 8; }) == "columns");
    CHECK(field_of([](TensorSpec* spec) { spec->num_rows = 2; }) == "num_rows");
    CHECK(field_of([](TensorSpec* spec) { spec->renormalise = true; }) == "num_rows");
    CHECK(field_of([](TensorSpec* spec) { spec->columns = 4; }) == "offset_bytes");
    CHECK(field_of([](TensorSpec* spec) { spec->offset_bytes = 2; }) == "offset_bytes");
    CHECK(field_of([](TensorSpec* spec) { spec->offset_bytes = ~uint64_t{3}; }) == "offset_bytes");
  }
}

}  // namespace
}  // namespace specd
