// The control messages here open many sequences at once, and answer openings.
//
// Plain data; a single opening is ipc/control/open_sequence_request.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ipc/control/control_type.h"

namespace specd {

// The largest number of sequences that one OpenSequences opens, and the largest size of its file.
inline constexpr uint32_t kOpeningsMax = 1024;
inline constexpr uint32_t kOpeningsFileBytesMax = uint32_t{1} << 25;

// Asks for the sequences of several openings, all or none. Travels with one descriptor: a memfd
// with the OpenSequence messages one after another. Behind each message stand the bytes of the
// memfd that would travel with that message alone.
struct OpenSequencesRequest {
  static constexpr ControlType kType = ControlType::kOpenSequences;
  uint32_t num_openings = 0;
  uint32_t file_bytes = 0;
  // The sequences get their slots now, and are built after the answer.
  bool pending = false;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("num_openings", self.num_openings);
    f("file_bytes", self.file_bytes);
    f(OptionalKey{"pending"}, self.pending);
  }
};

// Asks what became of a sequence that was opened pending: SequenceReply, or why it failed.
struct GetOpeningRequest {
  static constexpr ControlType kType = ControlType::kGetOpening;
  uint64_t sequence = 0;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequence", self.sequence);
  }
};

// Bounds of the warnings in a SequenceReply, which leave room for all else in kControlBytesMax.
inline constexpr size_t kReplyWarningsMax = 64;
inline constexpr size_t kReplyWarningBytesMax = 512;

// Answers OpenSequence (n sequences), ForkSequence and GetOpening (one).
struct SequenceReply {
  static constexpr ControlType kType = ControlType::kSequenceReply;
  std::vector<uint64_t> sequences;
  std::vector<uint64_t> seeds;
  uint32_t verify = 0;
  // The parts that the constraint does not enforce: MakeReplyWarnings. Empty for ForkSequence.
  std::vector<std::string> warnings = {};

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequences", self.sequences, 64);
    f("seeds", self.seeds, 64);
    f("verify", self.verify);
    f("warnings", self.warnings, kReplyWarningsMax);
  }
};

// Answers OpenSequences: the sequences of all openings in their order, or the refusal of one
// opening and no sequences.
struct SequencesReply {
  static constexpr ControlType kType = ControlType::kSequencesReply;
  std::vector<uint64_t> sequences;
  std::vector<uint64_t> seeds;
  std::vector<int32_t> verify;
  std::vector<std::string> warnings;  // as in SequenceReply, over all openings
  int32_t code = 0;                   // SPECD_OK, or the code of the refusal
  uint32_t refused = 0;               // the index of the opening that was refused
  std::string field;
  std::string text;

  template <class Self, class F>
  static void Fields(Self& self, F&& f) {
    f("sequences", self.sequences, kOpeningsMax);
    f("seeds", self.seeds, kOpeningsMax);
    f("verify", self.verify, kOpeningsMax);
    f("warnings", self.warnings, kReplyWarningsMax);
    f("code", self.code);
    f("refused", self.refused);
    f("field", self.field, 64);
    f("text", self.text, 2048);
  }
};

}  // namespace specd
