#include "daemon/client/params_check.h"

#include <string>
#include <string_view>

#include "daemon/client/embedded_model.h"
#include "daemon/client/engine.h"
#include "daemon/client/open_message.h"
#include "daemon/session/open_request.h"
#include "daemon/session/opening_checks.h"
#include "daemon/session/profile_defaults.h"
#include "daemon/session/round_limits.h"
#include "ipc/segment/layout.h"
#include "speculative/sequence/sequence_opening.h"

namespace specd {
namespace {

absl::StatusOr<OpenRequest> ReadParams(const specd_params& params, const ModelProfile& profile) {
  const absl::StatusOr<OpenContent> content = ReadOpenContent({}, params);
  if (!content.ok()) return content.status();
  std::string lists(reinterpret_cast<const char*>(content->ids.data()),
                    content->ids.size() * sizeof(int32_t));
  lists += content->text;
  absl::StatusOr<OpenRequest> open =
      ReadOpenRequest(content->request, std::span<const char>(lists));
  if (open.ok()) ApplyProfile(profile, content->request, &open->params);
  return open;
}

}  // namespace

absl::Status CheckParams(const specd_params& params, const specd_options& options) {
  SessionOptions session;
  session.limits = Engine::LimitsOf(options);
  session.allow_lossy = options.allow_lossy != 0;
  if (absl::Status status = ValidateLimits(session.limits); !status.ok()) return status;
  const absl::StatusOr<EmbeddedModel> given = EmbeddedModelOf(options);
  if (!given.ok()) return given.status();
  const absl::StatusOr<std::unique_ptr<ServedModel>> model = LoadEmbeddedModel(*given);
  if (!model.ok()) return model.status();
  session.profile = &(*model)->profile;
  if (absl::Status status = CheckVocabSize(*session.profile, session.limits.vocab_size);
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<OpenRequest> open = ReadParams(params, *session.profile);
  if (!open.ok()) return open.status();
  if (absl::Status status = OpeningChecks(&session).Check(open->params); !status.ok()) {
    return status;
  }
  const BackendLimits limits = RoundLimitsOf(session.limits);
  const SequenceOpening opening(limits, session.profile->eos_token_ids,
                                (*model)->grammars.ForWidth(limits.vocab_size));
  return opening.Build(open->params, open->history()).status();
}

}  // namespace specd
