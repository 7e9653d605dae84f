// The recorded rounds as plain data: an engine, the lives of its sequences, and the answers.
//
// A file of tests/data/traces/*.jsonl is one engine and its lives. The lives can be played one by
// one or together (lockstep.h). A field that is 0 or empty is not written. Plain data:
// thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace specd::recorded {

// An answer of the interface: the fields in the order of the file, and the JSON text of each.
using Answer = std::vector<std::pair<std::string, std::string>>;

// The format of a tensor's rows, in the words of the file.
struct RowFormat {
  std::string dtype{};  // "" (fp32), "bf16", "fp16"
  std::string kind{};   // "" (logits), "probabilities", "final"
  std::string scale{};
  std::string cap{};
  uint32_t renormalise = 0;
};

struct EngineSpec {
  std::string name;
  uint32_t vocab_size = 0;
  uint32_t max_draft = 0;
  uint32_t row_padding = 0;  // elements between two rows
  uint32_t bind_draft_tokens = 0;
  uint32_t only_alone = 0;  // a life has a round that is refused as a whole
  RowFormat target;
  RowFormat draft;
};

// One call between rounds. A row or a mask is a text of rows.h.
struct Call {
  std::string op;  // "sample_draft", "score", "fork", "coins", "abort", "close", "state"
  uint32_t sequence = 0;
  uint64_t seed = 0;                // fork
  std::string row;                  // sample_draft
  std::string mask;                 // sample_draft
  std::vector<int32_t> prefix;      // sample_draft
  uint32_t sampling = 0;            // sample_draft
  uint32_t num_children = 0;        // sample_draft; 0: one
  uint32_t first_node = 0;          // sample_draft
  std::vector<std::string> rows;    // score
  std::vector<int32_t> ids;         // score
  uint32_t mode = 0;                // score
  uint32_t num_top = 0;             // score
  std::vector<int32_t> chosen_ids;  // score
  std::vector<std::string> coins;   // "position round_base node purpose value"
  Answer answer;
};

// One sequence in one round.
struct Part {
  uint32_t sequence = 0;  // index in the life: opened sequences, then forks
  uint32_t flags = 0;     // SPECD_DISCARD, ...
  std::vector<int32_t> tokens;
  std::vector<uint32_t> kinds;
  std::vector<std::string> target_rows;
  std::vector<std::string> draft_rows;
  std::vector<std::string> masks;    // "-": unconstrained
  std::vector<std::string> weights;  // the side channel: bits of a float, in hexadecimal digits
  std::vector<std::string> masses;   // bits of a double
  std::vector<int32_t> target_argmax;
  Answer answer;
};

// Calls, one after another, and then a round if there are parts.
struct Step {
  std::vector<Call> calls;
  std::vector<Part> parts;
};

struct Life {
  std::string name;
  std::vector<std::string> params;  // "NAME=TEXT", as api_params.h reads them
  Answer opened;
  std::vector<Step> steps;
  Answer stats;
};

struct Recording {
  EngineSpec engine;
  std::vector<Life> lives;
};

// ---- every field with its name in the file; an archive reads or writes one
template <class Archive>
void VisitFields(Archive& archive, RowFormat& format) {
  archive("dtype", format.dtype);
  archive("kind", format.kind);
  archive("scale", format.scale);
  archive("cap", format.cap);
  archive("renormalise", format.renormalise);
}

template <class Archive>
void VisitFields(Archive& archive, EngineSpec& engine) {
  archive("engine", engine.name);
  archive("vocab_size", engine.vocab_size);
  archive("max_draft", engine.max_draft);
  archive("row_padding", engine.row_padding);
  archive("bind_draft_tokens", engine.bind_draft_tokens);
  archive("only_alone", engine.only_alone);
  archive("target", engine.target);
  archive("draft", engine.draft);
}

template <class Archive>
void VisitFields(Archive& archive, Call& call) {
  archive("op", call.op);
  archive("sequence", call.sequence);
  archive("seed", call.seed);
  archive("row", call.row);
  archive("mask", call.mask);
  archive("prefix", call.prefix);
  archive("sampling", call.sampling);
  archive("num_children", call.num_children);
  archive("first_node", call.first_node);
  archive("rows", call.rows);
  archive("ids", call.ids);
  archive("mode", call.mode);
  archive("num_top", call.num_top);
  archive("chosen_ids", call.chosen_ids);
  archive("coins", call.coins);
  archive("answer", call.answer);
}

template <class Archive>
void VisitFields(Archive& archive, Part& part) {
  archive("sequence", part.sequence);
  archive("flags", part.flags);
  archive("tokens", part.tokens);
  archive("kinds", part.kinds);
  archive("target_rows", part.target_rows);
  archive("draft_rows", part.draft_rows);
  archive("masks", part.masks);
  archive("weights", part.weights);
  archive("masses", part.masses);
  archive("target_argmax", part.target_argmax);
  archive("answer", part.answer);
}

template <class Archive>
void VisitFields(Archive& archive, Step& step) {
  archive("calls", step.calls);
  archive("round", step.parts);
}

template <class Archive>
void VisitFields(Archive& archive, Life& life) {
  archive("life", life.name);
  archive("params", life.params);
  archive("opened", life.opened);
  archive("steps", life.steps);
  archive("stats", life.stats);
}

}  // namespace specd::recorded
