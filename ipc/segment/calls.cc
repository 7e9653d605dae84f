#include "ipc/segment/calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "ipc/base/error.h"
#include "ipc/base/peer_memory.h"
#include "ipc/base/valid_text.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

static_assert(sizeof(DraftSample) == sizeof(ChildRecord) &&
                  offsetof(DraftSample, count) == offsetof(ChildRecord, count) &&
                  offsetof(DraftSample, weight) == offsetof(ChildRecord, weight) &&
                  offsetof(DraftSample, kind) == offsetof(ChildRecord, kind) &&
                  offsetof(DraftSample, mass) == offsetof(ChildRecord, mass),
              "children are read as they are");

// A list that is longer than its room is refused by its count, so its elements need not travel.
template <class T>
void PutList(char* to, const T* items, uint32_t count, uint32_t room) {
  if (count > 0 && count <= room) std::memcpy(to, items, count * sizeof(T));
}

// A count that does not fit is refused as out of range.
int32_t Signed(uint32_t value) {
  return value > INT32_MAX ? INT32_MAX : static_cast<int32_t>(value);
}

uint32_t ListRoom(uint32_t begin, uint32_t end) {
  return (end - begin) / static_cast<uint32_t>(sizeof(uint32_t));
}

}  // namespace

uint32_t WriteCalls(const SegmentLayout& layout, std::span<const DraftInput> calls, char* to) {
  const uint32_t room = ListRoom(sizeof(ChildrenRecord), layout.call_record_bytes);
  char* record = to;
  for (const DraftInput& call : calls) {
    const ChildrenRecord header = {.sequence = call.sequence,
                                   .row = call.row,
                                   .mask_row = call.mask_row,
                                   .num_prefix = static_cast<uint32_t>(call.num_prefix),
                                   .sampling = static_cast<uint32_t>(call.sampling),
                                   .num_children = static_cast<uint32_t>(call.num_children),
                                   .first_node = call.first_node};
    std::memcpy(record, &header, sizeof(header));
    PutList(record + sizeof(header), call.prefix, header.num_prefix, room);
    record += layout.call_record_bytes;
  }
  return static_cast<uint32_t>(record - to);
}

uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ScoreInput> calls, char* to) {
  const uint32_t room = ListRoom(layout.call_rows_offset, layout.call_ids_offset);
  char* record = to;
  for (const ScoreInput& call : calls) {
    const ScoreRequest& request = call.request;
    const ScoreRecord header = {.num_ids = static_cast<uint32_t>(call.num_ids),
                                .mode = static_cast<uint32_t>(request.mode),
                                .num_top = static_cast<uint32_t>(request.num_top),
                                .num_chosen = static_cast<uint32_t>(request.num_chosen)};
    std::memcpy(record, &header, sizeof(header));
    PutList(record + layout.call_rows_offset, call.rows, header.num_ids, room);
    PutList(record + layout.call_ids_offset, call.ids, header.num_ids, room);
    PutList(record + layout.call_chosen_offset, request.chosen, header.num_chosen, kCallChosenMax);
    record += layout.call_record_bytes;
  }
  return static_cast<uint32_t>(record - to);
}

uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ForcedInput> calls, char* to) {
  const uint32_t room = ListRoom(sizeof(ChildrenRecord), layout.call_record_bytes);
  char* record = to;
  for (const ForcedInput& call : calls) {
    const ChildrenRecord header = {.sequence = call.sequence,
                                   .row = 0,
                                   .mask_row = 0,
                                   .num_prefix = static_cast<uint32_t>(call.num_prefix),
                                   .sampling = 0,
                                   .num_children = static_cast<uint32_t>(call.num_ids_max),
                                   .first_node = 0};
    std::memcpy(record, &header, sizeof(header));
    PutList(record + sizeof(header), call.prefix, header.num_prefix, room);
    record += layout.call_record_bytes;
  }
  return static_cast<uint32_t>(record - to);
}

uint32_t WriteCalls(const SegmentLayout&, const CoinsCall& call, char* to) {
  SPECD_CHECK(call.coins.size() <= kCallCoinsMax);
  const CoinsRecord header{call.sequence};
  std::memcpy(to, &header, sizeof(header));
  if (!call.coins.empty()) {
    std::memcpy(to + sizeof(header), call.coins.data(), call.coins.size_bytes());
  }
  return static_cast<uint32_t>(sizeof(header) + call.coins.size_bytes());
}

DraftInput ReadDraftCall(const SegmentLayout& layout, const char* from, uint32_t index) {
  const char* record = from + uint64_t{index} * layout.call_record_bytes;
  ChildrenRecord header;
  std::memcpy(&header, record, sizeof(header));
  return {.sequence = header.sequence,
          .row = header.row,
          .mask_row = header.mask_row,
          .prefix = reinterpret_cast<const TokenId*>(record + sizeof(header)),
          .num_prefix = Signed(header.num_prefix),
          .sampling = static_cast<DraftSampling>(header.sampling),
          .num_children = Signed(header.num_children),
          .first_node = header.first_node};
}

ScoreInput ReadScoreCall(const SegmentLayout& layout, const char* from, uint32_t index) {
  const char* record = from + uint64_t{index} * layout.call_record_bytes;
  ScoreRecord header;
  std::memcpy(&header, record, sizeof(header));
  return {
      .rows = reinterpret_cast<const uint32_t*>(record + layout.call_rows_offset),
      .ids = reinterpret_cast<const TokenId*>(record + layout.call_ids_offset),
      .num_ids = Signed(header.num_ids),
      .request = {.enabled = true,
                  .mode = static_cast<ScoreMode>(header.mode),
                  .num_top = Signed(header.num_top),
                  .chosen = reinterpret_cast<const TokenId*>(record + layout.call_chosen_offset),
                  .num_chosen = Signed(header.num_chosen)}};
}

ForcedInput ReadForcedCall(const SegmentLayout& layout, const char* from, uint32_t index) {
  const DraftInput call = ReadDraftCall(layout, from, index);
  return {.sequence = call.sequence,
          .prefix = call.prefix,
          .num_prefix = call.num_prefix,
          .num_ids_max = call.num_children};
}

CoinsCall ReadCoinsCall(const char* from, uint32_t num_coins) {
  CoinsRecord header;
  std::memcpy(&header, from, sizeof(header));
  return {header.sequence, {reinterpret_cast<const CoinRecord*>(from + sizeof(header)), num_coins}};
}

uint64_t CallBytes(const SegmentLayout& layout, SubmissionKind kind, uint32_t num_records) {
  if (kind != SubmissionKind::kSetCoins) return uint64_t{num_records} * layout.call_record_bytes;
  return sizeof(CoinsRecord) + uint64_t{num_records} * sizeof(CoinRecord);
}

void WriteAnswer(const DraftResult& answer, char* to) {
  SPECD_CHECK(answer.children.size() <= kCallChildrenMax);
  const ChildrenAnswerRecord header = {
      .sequence = answer.sequence,
      .status = static_cast<uint16_t>(answer.status),
      .refusal = static_cast<uint16_t>(answer.refusal),
      .num_children = static_cast<uint32_t>(answer.children.size())};
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  for (const DraftSample& child : answer.children) {
    const ChildRecord record{.id = child.id,
                             .count = child.count,
                             .weight = child.weight,
                             .kind = static_cast<uint32_t>(child.kind),
                             .mass = child.mass};
    std::memcpy(to, &record, sizeof(record));
    to += sizeof(record);
  }
}

bool ReadAnswer(const char* from, char* copy, DraftResult* answer) {
  CopyOnce(copy, from, sizeof(ChildrenAnswerRecord));
  ChildrenAnswerRecord header;
  std::memcpy(&header, copy, sizeof(header));
  if (header.num_children > kCallChildrenMax) return false;
  char* children = copy + sizeof(header);
  CopyOnce(children, from + sizeof(header), header.num_children * sizeof(ChildRecord));
  *answer = {.sequence = header.sequence,
             .status = static_cast<RoundStatus>(header.status),
             .reason = {},
             .refusal = static_cast<Refusal>(header.refusal),
             .children = {reinterpret_cast<const DraftSample*>(children), header.num_children}};
  return true;
}

void WriteRefusal(const absl::Status& status, char* to) {
  RefusalRecord record = {};
  const std::string field = ValidText(ErrorFieldOf(status), sizeof(record.field));
  const std::string text =
      ValidText({status.message().data(), status.message().size()}, sizeof(record.text));
  record.code = ErrorCodeOf(status);
  record.field_bytes = static_cast<uint32_t>(field.size());
  record.text_bytes = static_cast<uint32_t>(text.size());
  std::memcpy(record.field, field.data(), record.field_bytes);
  std::memcpy(record.text, text.data(), record.text_bytes);
  std::memcpy(to, &record, sizeof(record));
}

absl::Status ReadRefusal(const char* from) {
  RefusalRecord record;
  CopyOnce(&record, from, sizeof(record));
  if (record.code >= 0 || record.field_bytes > sizeof(record.field) ||
      record.text_bytes > sizeof(record.text)) {
    return MakeError(SPECD_ERROR_INTERNAL, "", "the daemon refused the call and did not say why");
  }
  return MakeError(record.code, {record.field, record.field_bytes},
                   {record.text, record.text_bytes});
}

}  // namespace specd
