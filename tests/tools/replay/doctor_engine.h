// DoctorEngine is an engine with a fault that a test chooses, and the trace of its rounds.
//
// Its model is a function of the last two tokens, and its drafter sees the model with noise. One
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "speculative/params/params.h"

namespace specd::test {

struct EngineKind {
  SequenceParams params = {};  // what it declares, with the method
  int32_t vocab_size = 128;
  int32_t num_sequences = 4;
  int32_t num_drafts = 3;
  double sharpness = 1.2;   // of the target's rows
  double noise = .7;        // of the drafter
  double draft_factor = 1;  // of the drafter's logits: it is sharper or flatter than the target
  bool is_drawn = true;     // else the drafts are the best ids of q, declared as one-hot
  bool is_tree = false;     // two drawn siblings at each place
  bool has_mixed_siblings = false;  // with is_tree: the best id and one drawn from the rest
  bool has_masks = false;
  bool has_narrow_rows = false;      // ids from 64 on are -inf in the draft rows
  double certain_boost = 0;          // of the best id's logit at half of the places, in both models
  bool has_forced_places = false;    // a mask leaves one id at a third of the places
  std::vector<double> temperatures;  // of the sequences in turn; empty: that of params
  std::vector<double> draft_temperatures;
  // ---- how it draws, if it does not draw as it declares
  double drawn_temperature = 0;  // 0: as declared
  int32_t drawn_top_k = -1;      // -1: as declared
  double drawn_top_p = -1;
  bool draws_best = false;     // the best id, declared as drawn
  bool draws_few_ids = false;  // every fourth id
  // ---- the rows that it names
  int32_t draft_shift = 0;  // place i has the draft row of place i + shift
  int32_t target_shift = 0;
  int32_t target_rotation = 0;  // sequence s has the target rows of sequence s - rotation
  int32_t draft_rotation = 0;
  // ---- its coins
  enum class Coins { kOwn, kOneForDraft, kOneForRound, kAccept };
  Coins coins = Coins::kOwn;
  uint64_t seed = 1;
};

// Runs rounds until so many drafts were judged. A recorder writes the trace with its rows into the
// folder.
void RecordEngine(const EngineKind& kind, int32_t num_judged, const std::string& folder);

}  // namespace specd::test
