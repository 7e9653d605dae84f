#include "daemon/client/opening_arguments.h"

#include <fmt/format.h>

#include <string_view>

#include "daemon/client/engine_link.h"
#include "ipc/base/error.h"

namespace specd {
namespace {

static_assert(SPECD_OPENINGS_MAX == kOpeningsMax);

absl::Status IsNull(std::string_view field) {
  return Invalid(field, fmt::format("{} is NULL", field));
}

template <class Reply, class Verify>
absl::Status Put(const Reply& reply, size_t wanted, const OutputArray<specd_sequence_info>& infos,
                 Verify verify) {
  if (reply.sequences.size() != wanted || reply.seeds.size() != wanted) return UnexpectedReply();
  for (size_t i = 0; i < wanted; ++i) {
    infos.Put(i, {.struct_size = 0,
                  .verify = verify(i),
                  .sequence = reply.sequences[i],
                  .seed = reply.seeds[i]});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamedParams>> NamedParamsOf(const specd_openings& openings,
                                                       uint32_t* refused) {
  const uint32_t count = openings.num_openings;
  // The verifier refuses a larger number too, but nothing is read before.
  if (count == 0 || count > kOpeningsMax) {
    return Invalid("num_openings",
                   fmt::format("num_openings = {} is outside 1 .. {}; open the rest "
                               "in another call",
                               count, kOpeningsMax));
  }
  if (openings.request_ids == nullptr) return IsNull("request_ids");
  if (openings.params == nullptr) return IsNull("params");
  if (openings.infos == nullptr) return IsNull("infos");
  InputArray<specd_params> params;
  if (absl::Status s = InputArray<specd_params>::Check("params", openings.params, count, &params);
      !s.ok()) {
    return s;
  }
  std::vector<NamedParams> named(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (openings.request_ids[i] == nullptr) {
      *refused = i;
      return IsNull("request_id");
    }
    named[i] = {openings.request_ids[i], &params[i]};
  }
  return named;
}

absl::Status CheckInfos(const specd_openings& openings, uint32_t num_sequences,
                        OutputArray<specd_sequence_info>* infos) {
  if (openings.max_infos < num_sequences) {
    return Invalid("max_infos",
                   fmt::format("max_infos = {} is less than {}, the sum of all params.n; give a "
                               "longer array",
                               openings.max_infos, num_sequences));
  }
  return OutputArray<specd_sequence_info>::Check("infos", openings.infos, num_sequences, infos);
}

absl::Status Report(const SequenceReply& reply, size_t wanted,
                    const OutputArray<specd_sequence_info>& infos) {
  return Put(reply, wanted, infos, [&reply](size_t) { return reply.verify; });
}

absl::Status Report(const SequencesReply& reply, size_t wanted,
                    const OutputArray<specd_sequence_info>& infos) {
  if (reply.verify.size() != wanted) return UnexpectedReply();
  return Put(reply, wanted, infos,
             [&reply](size_t i) { return static_cast<uint32_t>(reply.verify[i]); });
}

}  // namespace specd
