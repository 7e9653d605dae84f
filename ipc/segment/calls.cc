#include "ipc/segment/calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "ipc/base/error.h"
#include "ipc/base/peer_memory.h"
#include "ipc/include/specd/specd.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

static_assert(sizeof(DraftSample) == sizeof(ChildRecord) &&
                  offsetof(DraftSample, count) == offsetof(ChildRecord, count) &&
                  offsetof(DraftSample, weight) == offsetof(ChildRecord, weight) &&
                  offsetof(DraftSample, mass) == offsetof(ChildRecord, mass),
              "children are read as they are");

// A list that is longer than its room is refused by its count, so nothing of it need travel.
template <class T>
void PutList(char* to, const T* items, uint32_t count, uint32_t room) {
  if (count > 0 && count <= room) std::memcpy(to, items, count * sizeof(T));
}

uint32_t ListRoom(uint32_t begin, uint32_t end) {
  return (end - begin) / static_cast<uint32_t>(sizeof(uint32_t));
}

}  // namespace

uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ChildrenCall> calls, char* to) {
  const uint32_t room = ListRoom(sizeof(ChildrenRecord), layout.call_record_bytes);
  char* record = to;
  for (const ChildrenCall& call : calls) {
    const ChildrenRecord header{call.sequence, call.row,          call.mask_row,  call.num_prefix,
                                call.sampling, call.num_children, call.first_node};
    std::memcpy(record, &header, sizeof(header));
    PutList(record + sizeof(header), call.prefix, call.num_prefix, room);
    record += layout.call_record_bytes;
  }
  return static_cast<uint32_t>(record - to);
}

uint32_t WriteCalls(const SegmentLayout& layout, std::span<const ScoreCall> calls, char* to) {
  const uint32_t room = ListRoom(layout.call_rows_offset, layout.call_ids_offset);
  char* record = to;
  for (const ScoreCall& call : calls) {
    const ScoreRecord header{call.num_ids, call.mode, call.num_top, call.num_chosen};
    std::memcpy(record, &header, sizeof(header));
    PutList(record + layout.call_rows_offset, call.rows, call.num_ids, room);
    PutList(record + layout.call_ids_offset, call.ids, call.num_ids, room);
    PutList(record + layout.call_chosen_offset, call.chosen, call.num_chosen, kCallChosenMax);
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

ChildrenCall ReadChildrenCall(const SegmentLayout& layout, const char* from, uint32_t index) {
  const char* record = from + uint64_t{index} * layout.call_record_bytes;
  ChildrenRecord header;
  std::memcpy(&header, record, sizeof(header));
  return {header.sequence,     header.row,
          header.mask_row,     reinterpret_cast<const TokenId*>(record + sizeof(header)),
          header.num_prefix,   header.sampling,
          header.num_children, header.first_node};
}

ScoreCall ReadScoreCall(const SegmentLayout& layout, const char* from, uint32_t index) {
  const char* record = from + uint64_t{index} * layout.call_record_bytes;
  ScoreRecord header;
  std::memcpy(&header, record, sizeof(header));
  return {reinterpret_cast<const uint32_t*>(record + layout.call_rows_offset),
          reinterpret_cast<const TokenId*>(record + layout.call_ids_offset),
          header.num_ids,
          header.mode,
          header.num_top,
          reinterpret_cast<const TokenId*>(record + layout.call_chosen_offset),
          header.num_chosen};
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

void WriteAnswer(const ChildrenAnswer& answer, char* to) {
  SPECD_CHECK(answer.children.size() <= kCallChildrenMax);
  const ChildrenAnswerRecord header{answer.sequence, answer.status,
                                    static_cast<uint32_t>(answer.children.size())};
  std::memcpy(to, &header, sizeof(header));
  to += sizeof(header);
  for (const DraftSample& child : answer.children) {
    const ChildRecord record{child.id, child.count, child.weight, 0, child.mass};
    std::memcpy(to, &record, sizeof(record));
    to += sizeof(record);
  }
}

bool ReadAnswer(const char* from, char* copy, ChildrenAnswer* answer) {
  CopyOnce(copy, from, sizeof(ChildrenAnswerRecord));
  ChildrenAnswerRecord header;
  std::memcpy(&header, copy, sizeof(header));
  if (header.num_children > kCallChildrenMax) return false;
  char* children = copy + sizeof(header);
  CopyOnce(children, from + sizeof(header), header.num_children * sizeof(ChildRecord));
  *answer = {header.sequence,
             header.status,
             {reinterpret_cast<const DraftSample*>(children), header.num_children}};
  return true;
}

void WriteRefusal(const absl::Status& status, char* to) {
  const std::string field = ErrorFieldOf(status);
  const absl::string_view text = status.message();
  RefusalRecord record = {};
  record.code = ErrorCodeOf(status);
  record.field_bytes = static_cast<uint32_t>(std::min(field.size(), sizeof(record.field)));
  record.text_bytes = static_cast<uint32_t>(std::min(text.size(), sizeof(record.text)));
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
