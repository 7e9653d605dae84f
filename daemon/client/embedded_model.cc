#include "daemon/client/embedded_model.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "ipc/base/error.h"
#include "speculative/params/params.h"

namespace specd {
namespace {

template <class List>
absl::Status CheckEos(std::string_view field, const List& list) {
  if (list.count <= kStopIdsMax && (list.count == 0 || list.items != nullptr)) {
    return absl::OkStatus();
  }
  return Invalid(field, fmt::format("{}.count = {} is outside 0 .. {}, or items is NULL", field,
                                    list.count, kStopIdsMax));
}

}  // namespace

absl::StatusOr<EmbeddedModel> EmbeddedModelOf(const specd_options& options) {
  const specd_ids& eos = options.eos_token_ids;
  const specd_strings& texts = options.eos_tokens;
  for (absl::Status status : {CheckEos("eos_token_ids", eos), CheckEos("eos_tokens", texts)}) {
    if (!status.ok()) return status;
  }
  EmbeddedModel given;
  if (options.profile_file != nullptr) given.profile_file = options.profile_file;
  ModelProfileOptions& model = given.fields;
  if (options.tokenizer != nullptr) model.tokenizer_path = options.tokenizer;
  model.eos_token_ids.assign(eos.items, eos.items + eos.count);
  for (uint64_t i = 0; i < texts.count; ++i) {
    if (texts.items[i] == nullptr) return Invalid("eos_tokens", "eos_tokens has an item of NULL");
    model.eos_tokens.emplace_back(texts.items[i]);
  }
  if (options.reasoning_start != nullptr) model.reasoning.start = options.reasoning_start;
  if (options.reasoning_end != nullptr) model.reasoning.end = options.reasoning_end;
  given.compile_ms = options.compile_ms;
  given.compile_mib = options.compile_mib;
  if (options.allow_lossy > 1) {
    return Invalid("allow_lossy",
                   fmt::format("allow_lossy = {} must be 0 or 1", options.allow_lossy));
  }
  given.allow_lossy = options.allow_lossy;
  return given;
}

}  // namespace specd
