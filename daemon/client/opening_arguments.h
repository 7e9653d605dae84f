// The functions here check the arrays of a specd_openings, and fill the caller's infos, for Engine.
//
// They look at the arrays alone. The verifier checks names and values. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/client/open_message.h"
#include "daemon/client/struct_array.h"
#include "ipc/include/specd/specd.h"

namespace specd {

// Views of the openings. After a refusal of one opening *refused is its index.
absl::StatusOr<std::vector<NamedParams>> NamedParamsOf(const specd_openings& openings,
                                                       uint32_t* refused);

// Checks that the caller has room for this many sequences.
absl::Status CheckInfos(const specd_openings& openings, uint32_t num_sequences,
                        OutputArray<specd_sequence_info>* infos);

// Copies the opened sequences into the caller's structs.
absl::Status Report(const SequenceReply& reply, size_t wanted,
                    const OutputArray<specd_sequence_info>& infos);
absl::Status Report(const SequencesReply& reply, size_t wanted,
                    const OutputArray<specd_sequence_info>& infos);

}  // namespace specd
