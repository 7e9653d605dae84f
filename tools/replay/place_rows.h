// PlaceRows computes the distributions of one place of a rebuilt task, id by id: p and q after all
// steps, and which ids are forbidden.
//
// It applies steps 1 to 6 of CONTRACT §3 with the bodies' own function for one element, and the
// later steps with Backend::Transform. Use it to look at a few places; it makes two rows of floats.
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "tools/replay/replay_backend.h"
#include "tools/replay/round_rebuilder.h"

namespace specd::replay {

struct Candidate {
  TokenId id = 0;
  double p = 0;
  double q = 0;
  double residual = 0;
  bool is_forbidden = false;  // by step 1: a mask, or allowed and disallowed ids
  double free_p = 0;          // of a forbidden id: p without step 1 and without filters
};

class PlaceRows {
 public:
  explicit PlaceRows(ReplayBackend* backend) : backend_(backend) {}

  // Computes the rows of a place of task i of the rebuilder's batch.
  absl::Status Read(const RoundRebuilder& round, size_t i, int32_t place);
  // Transforms the draft row of a node with other scales and filters. INVALID_ARGUMENT: the row is
  // bad. REQUIRES: round.HasDraftRow(i, node).
  absl::Status TransformDraft(const RoundRebuilder& round, size_t i, int32_t node,
                              std::span<RowTransform> transforms);

  // The target's distribution of a place with these filters in place of the task's, which Read does
  // not change. REQUIRES: the task has target rows, and Read found p.
  absl::Status Distribution(const RoundRebuilder& round, size_t i, int32_t place,
                            const Filters& filters, std::vector<float>* out);

  bool has_p() const { return has_p_; }  // false: the target row is bad, or the task has argmax ids
  bool has_q() const { return has_q_; }  // false: there is no draft row here, or it is bad
  // (factor * p - q)+, summed; of one-hot drafts too. 0 where there is no draft token, and in a
  // tree, where children change the target one after another.
  double residual_mass() const { return residual_mass_; }
  int64_t num_allowed() const { return num_allowed_; }
  bool is_masked() const { return is_masked_; }

  // All ids; meaningless without has_p() or has_q().
  std::span<const float> p() const { return p_; }
  std::span<const float> q() const { return q_; }

  Candidate At(TokenId id) const;
  // The best ids of p and of q, `count` of each, and the given ids, by p and then q, descending.
  std::vector<Candidate> Best(int32_t count, const std::vector<TokenId>& also) const;
  // The ids that step 1 forbade, by their free_p, descending, at most `count`.
  std::vector<Candidate> BestForbidden(int32_t count) const;

 private:
  struct Source {
    RowView view;
    float scale = 0;
    Filters filters;
    bool has_edits = false;
    bool without_step1 = false;
  };
  absl::Status ReadForbidden(const RoundRebuilder& round, size_t i, int32_t place,
                             const Source& target);
  absl::Status Transform(const RoundRebuilder& round, size_t i, int32_t place, const Source& source,
                         std::vector<float>* out, bool* is_good);
  // The transforms of one row of logits. `is_good`: no transform found it bad.
  absl::Status TransformAll(std::span<const float> logits, std::span<RowTransform> transforms,
                            bool* is_good);

  ReplayBackend* backend_;
  std::vector<float> p_;
  std::vector<float> q_;
  std::vector<bool> forbidden_;
  std::vector<float> free_p_;  // empty: step 1 forbids no id, or the place has a forced one
  bool has_p_ = false;
  bool has_q_ = false;
  bool is_masked_ = false;
  TokenId one_hot_ = kNoToken;
  double factor_ = 1;
  double residual_mass_ = 0;
  int64_t num_allowed_ = 0;
};

}  // namespace specd::replay
