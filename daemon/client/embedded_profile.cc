#include "daemon/client/embedded_profile.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "daemon/session/compile_limits.h"
#include "daemon/session/profile_file.h"
#include "detokenizer/tokenizer_file.h"
#include "ipc/base/error.h"
#include "ipc/include/specd/specd.h"

namespace specd {
namespace {

// Gives `to` the value that `from` has, unless both have one.
template <class T>
absl::Status Take(std::string_view field, const T& from, T* to) {
  if (from.empty()) return absl::OkStatus();
  if (!to->empty()) {
    return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field,
                     fmt::format("{} is given here and in the profile_file; leave it out of one of "
                                 "them",
                                 field));
  }
  *to = from;
  return absl::OkStatus();
}

absl::StatusOr<ModelProfileOptions> Join(const ModelProfileOptions& fields,
                                         ModelProfileOptions file) {
  for (const absl::Status& status :
       {Take("tokenizer", fields.tokenizer_path, &file.tokenizer_path),
        Take("eos_token_ids", fields.eos_token_ids, &file.eos_token_ids),
        Take("eos_tokens", fields.eos_tokens, &file.eos_tokens),
        Take("reasoning_start", fields.reasoning.start, &file.reasoning.start),
        Take("reasoning_end", fields.reasoning.end, &file.reasoning.end)}) {
    if (!status.ok()) return status;
  }
  return file;
}

absl::StatusOr<ModelProfile> LoadProfile(const EmbeddedModel& model) {
  ModelProfileOptions options = model.fields;
  const char* field = "tokenizer";
  if (!model.profile_file.empty()) {
    field = "profile_file";
    absl::StatusOr<ModelProfileOptions> file = ReadProfileFile(model.profile_file);
    if (!file.ok()) {
      return MakeError(SPECD_ERROR_INVALID_ARGUMENT, field, std::string(file.status().message()));
    }
    file = Join(model.fields, *std::move(file));
    if (!file.ok()) return file.status();
    options = *std::move(file);
  }
  options.embedded = true;
  absl::StatusOr<ModelProfile> profile = LoadModelProfile(options);
  if (profile.ok() || !ErrorFieldOf(profile.status()).empty()) return profile;
  return MakeError(ErrorCodeOf(profile.status()), field, std::string(profile.status().message()));
}

}  // namespace

absl::Status CheckNoProfile(const EmbeddedModel& given) {
  const ModelProfileOptions& model = given.fields;
  if (!given.profile_file.empty()) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "profile_file",
        fmt::format("profile_file = \"{}\" is for embedded mode; leave it NULL, start the daemon "
                    "with --profile=NAME={}, and name it in profile",
                    given.profile_file, given.profile_file));
  }
  if (!model.eos_token_ids.empty()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "eos_token_ids",
                     fmt::format("eos_token_ids[0] = {} is for embedded mode; leave the list empty "
                                 "and start the daemon with --eos_token_ids",
                                 model.eos_token_ids.front()));
  }
  if (!model.eos_tokens.empty()) {
    return MakeError(
        SPECD_ERROR_UNSUPPORTED, "eos_tokens",
        fmt::format("eos_tokens[0] = \"{}\" is for embedded mode; leave the list empty "
                    "and start the daemon with --eos_tokens",
                    model.eos_tokens.front()));
  }
  const grammar::ReasoningTexts& reasoning = model.reasoning;
  if (!reasoning.start.empty() || !reasoning.end.empty()) {
    return MakeError(SPECD_ERROR_UNSUPPORTED, "reasoning_end",
                     fmt::format("reasoning_start = \"{}\" and reasoning_end = \"{}\" are for "
                                 "embedded mode; leave them NULL and start the daemon with "
                                 "--reasoning_start and --reasoning_end",
                                 reasoning.start, reasoning.end));
  }
  for (const auto& [field, value] :
       {std::pair<std::string_view, uint32_t>{"compile_ms", given.compile_ms},
        {"compile_mib", given.compile_mib},
        {"allow_lossy", given.allow_lossy}}) {
    if (value == 0) continue;
    return MakeError(SPECD_ERROR_UNSUPPORTED, field,
                     fmt::format("{} = {} is for embedded mode; leave it 0 and start the daemon "
                                 "with --{}={}",
                                 field, value, field, value));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HashOfTokenizer(const EmbeddedModel& model) {
  if (model.fields.tokenizer_path.empty()) return 0;
  const absl::StatusOr<Vocabulary> vocabulary = OpenTokenizer(model.fields.tokenizer_path);
  if (vocabulary.ok()) return vocabulary->Hash();
  return MakeError(ErrorCodeOf(vocabulary.status()), "tokenizer",
                   std::string(vocabulary.status().message()));
}

absl::StatusOr<std::unique_ptr<ServedModel>> LoadEmbeddedModel(const EmbeddedModel& model) {
  grammar::BudgetLimits limits = grammar::CompileLimits();
  if (model.compile_ms != 0) {
    if (absl::Status status = SetCompileMs(model.compile_ms, &limits); !status.ok()) return status;
  }
  if (model.compile_mib != 0) {
    if (absl::Status status = SetCompileMib(model.compile_mib, &limits); !status.ok())
      return status;
  }
  absl::StatusOr<ModelProfile> profile = LoadProfile(model);
  if (!profile.ok()) return profile.status();
  return std::make_unique<ServedModel>(*std::move(profile), limits);
}

}  // namespace specd
