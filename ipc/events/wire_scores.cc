#include "ipc/events/wire_scores.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <utility>

#include "ipc/base/limits.h"
#include "kernels/core/check.h"

namespace specd {
namespace {

constexpr std::string_view kScores = "scores";
constexpr size_t kTokensMax = SessionLimits::kDraftMax + 1;

bool ReadId(const msgpack::object& value, TokenId* out) {
  constexpr uint64_t kMax = std::numeric_limits<TokenId>::max();
  if (value.type == msgpack::type::NEGATIVE_INTEGER && value.via.i64 == kNoToken) {
    *out = kNoToken;
    return true;
  }
  if (value.type != msgpack::type::POSITIVE_INTEGER || value.via.u64 > kMax) return false;
  *out = static_cast<TokenId>(value.via.u64);
  return true;
}

bool ReadScore(const msgpack::object& value, TokenScore* out) {
  constexpr uint64_t kRankMax = std::numeric_limits<int32_t>::max();
  if (value.type != msgpack::type::ARRAY || value.via.array.size != 3) return false;
  const msgpack::object* const fields = value.via.array.ptr;
  if (!ReadId(fields[0], &out->id) || fields[1].type != msgpack::type::FLOAT32 ||
      fields[2].type != msgpack::type::POSITIVE_INTEGER || fields[2].via.u64 > kRankMax) {
    return false;
  }
  out->value = static_cast<float>(fields[1].via.f64);
  out->rank = static_cast<int32_t>(fields[2].via.u64);
  return true;
}

}  // namespace

void WriteScores(std::span<const TokenScore> scores, uint64_t num_tokens, MapWriter* writer) {
  if (scores.empty()) return;
  SPECD_CHECK(num_tokens > 0 && scores.size() % num_tokens == 0);
  const size_t per_token = scores.size() / num_tokens;
  writer->BeginArray(kScores, num_tokens);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (i % per_token == 0) writer->BeginArrayElement(per_token);
    writer->BeginArrayElement(3);
    writer->Element(scores[i].id);
    writer->Element(scores[i].value);
    writer->Element(scores[i].rank);
  }
}

void ReadScores(MapReader* reader, uint64_t num_tokens, std::vector<TokenScore>* out) {
  if (!reader->ok() || !reader->Has(kScores)) return;
  const std::vector<const msgpack::object*> tokens = reader->Array(kScores, kTokensMax);
  if (!reader->ok()) return;
  if (tokens.size() != num_tokens) {
    return reader->Fail(kScores, fmt::format("has the scores of {} tokens for {} tokens",
                                             tokens.size(), num_tokens));
  }
  std::vector<TokenScore> scores;
  for (const msgpack::object* token : tokens) {
    const bool is_list = token->type == msgpack::type::ARRAY && token->via.array.size >= 1 &&
                         token->via.array.size <= SessionLimits::kScoresMax;
    if (!is_list || token->via.array.size != tokens[0]->via.array.size) {
      return reader->Fail(kScores, fmt::format("must hold the same number of scores, 1..{}, for "
                                               "every token",
                                               SessionLimits::kScoresMax));
    }
    for (uint32_t i = 0; i < token->via.array.size; ++i) {
      if (!ReadScore(token->via.array.ptr[i], &scores.emplace_back())) {
        return reader->Fail(kScores, "must hold triples of an id, a 32-bit float and a rank");
      }
    }
  }
  *out = std::move(scores);
}

}  // namespace specd
