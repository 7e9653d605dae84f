// Player plays the lives of recorded rounds in one engine on embedded:cpu, through the C interface.
//
// Only this file and api_params.h know the C structs. The player turns a call or a round of life.h
// into C structs, and an answer into fields of text. Floats become the digits of their bits, so
// equal texts are equal bits. A life names its sequences by index. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/include/specd/specd.h"
#include "tests/recorded/life.h"

namespace specd::recorded {

struct PlayerOptions {
  uint32_t num_lives = 1;
  uint32_t threads = 1;
};

// One sequence of one life in a round.
struct LivePart {
  uint32_t life = 0;
  const Part* part = nullptr;
};

class Player {
 public:
  // Throws std::runtime_error if the engine cannot be opened.
  Player(const EngineSpec& spec, const PlayerOptions& options);
  ~Player() { specd_close(engine_); }
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  Answer Open(uint32_t life, const std::vector<std::string>& params);
  Answer Play(uint32_t life, const Call& call);
  // Plays one round with all these parts, and returns an answer for each.
  std::vector<Answer> Submit(std::span<const LivePart> parts);
  Answer Stats();

  // The one id that the last "sample_draft" drew, with its side channel as in Part; -1 means none.
  struct Child {
    int32_t id = -1;
    std::string weight;
    std::string mass;
  };
  const Child& child() const { return child_; }

 private:
  struct Memory {
    char* data = nullptr;
    uint32_t num_used = 0;  // rows used since the last call
  };
  // The memory that a specd_draft points at.
  struct DraftLists;

  void* Bind(int role, const RowFormat& format);
  void BindTokens();
  // The index of a row with the contents of `text`: "#INDEX", or a text of rows.h.
  uint32_t PlaceRow(std::string_view text, const RowFormat& format, Memory* memory);
  int32_t PlaceMask(std::string_view text);
  void FreeRows();
  specd_draft DraftOf(const LivePart& live, DraftLists* lists);
  specd_sequence Handle(uint32_t life, uint32_t sequence) const;

  Answer SampleDraft(uint32_t life, const Call& call);
  Answer Score(const Call& call);
  Answer Fork(uint32_t life, const Call& call);
  Answer SetCoins(uint32_t life, const Call& call);
  Answer State(uint32_t life, const Call& call);

  const EngineSpec spec_;
  uint32_t num_rows_ = 0;  // in each tensor
  specd_engine* engine_ = nullptr;
  Memory target_;
  Memory draft_;
  Memory mask_;
  int32_t* draft_tokens_ = nullptr;                     // the bound memory
  std::vector<std::vector<specd_sequence>> sequences_;  // for each life
  uint32_t num_named_ = 0;
  Child child_;
};

}  // namespace specd::recorded
