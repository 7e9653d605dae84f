#include "tests/recorded/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "tests/recorded/player.h"
#include "tests/recorded/rows.h"

namespace specd::recorded {
namespace {

constexpr uint64_t kRowSeeds = 10000;  // few digits in the file

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  if (text.empty() || text.back() == separator) parts.emplace_back();
  return parts;
}

// The contents of one part of a plan.
struct PartPlan {
  std::string flags;
  uint32_t sequence = 0;
  std::string letters;
  std::string masks;
  std::vector<std::string> overrides;  // "PLACE=ROW"

  bool Has(char flag) const { return flags.find(flag) != std::string::npos; }
};

PartPlan ParsePart(const std::string& text) {
  PartPlan plan;
  std::vector<std::string> pieces = Split(text, '@');
  std::string head = pieces[0];
  plan.overrides.assign(pieces.begin() + 1, pieces.end());
  if (const size_t colon = head.find(':'); colon != std::string::npos) {
    plan.flags = head.substr(0, colon);
    head = head.substr(colon + 1);
  }
  if (const size_t arrow = head.find('>'); arrow != std::string::npos) {
    plan.sequence = static_cast<uint32_t>(std::stoul(head.substr(0, arrow)));
    head = head.substr(arrow + 1);
  }
  const size_t slash = head.find('/');
  plan.letters = head.substr(0, slash);
  if (slash != std::string::npos) plan.masks = head.substr(slash + 1);
  return plan;
}

// The id of the greatest value, or of the next one; the lowest on a tie.
int32_t BestId(const std::vector<float>& values, size_t nth) {
  std::vector<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto value = [&](int32_t id) {
    const float found = values[static_cast<size_t>(id)];
    return std::isnan(found) ? -1e30f : found;
  };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return value(a) > value(b); });
  return ids[std::min(nth, ids.size() - 1)];
}

bool IsSampled(char letter) { return std::string_view("sqRO").find(letter) != std::string::npos; }

class Resolver {
 public:
  Resolver(const EngineSpec& engine, const LifePlan& plan)
      : engine_(engine), plan_(plan), player_(engine, {}) {}

  Life Resolve() {
    Life life;
    life.name = plan_.name;
    if (!plan_.params.empty()) life.params = Split(plan_.params, ';');
    player_.Open(0, life.params);
    has_draft_edits_ = plan_.params.find("draft_edits=1") != std::string::npos;
    for (const std::string& text : Split(plan_.steps, '|')) {
      Step& step = life.steps.emplace_back();
      if (text.starts_with('!')) {
        step.calls.push_back(ResolveCall(text.substr(1)));
        player_.Play(0, step.calls.back());
        continue;
      }
      for (const std::string& part : Split(text, '&')) ResolvePart(ParsePart(part), &step);
      std::vector<LivePart> parts;
      for (const Part& part : step.parts) parts.push_back({.life = 0, .part = &part});
      player_.Submit(parts);
    }
    return life;
  }

 private:
  uint64_t NextNumber() { return Hash(plan_.row_seed, counter_++); }
  std::string NextRow() { return fmt::format("{}:{}", plan_.shape, NextNumber() % kRowSeeds); }
  int32_t AnyId() { return static_cast<int32_t>(NextNumber() % engine_.vocab_size); }

  std::string MaskOf(char letter) {
    switch (letter) {
      case 'h':
        return fmt::format("half:{}", NextNumber() % kRowSeeds);
      case 'a':
        return "all";
      case 'o':
        return fmt::format("one:{}", NextNumber() % kRowSeeds);
      case 'n':
        return "none";
      default:
        return "-";
    }
  }

  std::string OverrideOf(const std::string& row) {
    return row.starts_with('#') ? row : fmt::format("{}:{}", row, NextNumber() % kRowSeeds);
  }

  void MakeRows(const PartPlan& plan, Part* part) {
    for (size_t i = 0; i <= plan.letters.size(); ++i) part->target_rows.push_back(NextRow());
    if (std::any_of(plan.letters.begin(), plan.letters.end(), IsSampled)) {
      for (size_t i = 0; i < plan.letters.size(); ++i) {
        part->draft_rows.push_back(
            fmt::format("{}~{}", part->target_rows[i], NextNumber() % kRowSeeds));
      }
    }
    for (const char letter : plan.masks) part->masks.push_back(MaskOf(letter));
    for (const std::string& text : plan.overrides) {
      const size_t equals = text.find('=');
      const std::string row = OverrideOf(text.substr(equals + 1));
      const bool is_target = text[0] != 'd' && text[0] != 'm';
      auto& rows = is_target ? part->target_rows : text[0] == 'd' ? part->draft_rows : part->masks;
      rows.at(std::stoul(text.substr(is_target ? 0 : 1, equals))) = row;
    }
  }

  std::vector<float> Values(const std::string& row, const RowFormat& format) {
    if (row.starts_with('#')) return std::vector<float>(engine_.vocab_size);
    return RowValues(row, engine_.vocab_size, format);
  }

  // The token of a letter that no drafter draws.
  int32_t TokenOf(char letter, size_t place, const Part& part) {
    const std::string& target = part.target_rows[place];
    switch (letter) {
      case 'a':
        return BestId(Values(target, engine_.target), 0);
      case 'b':
        return BestId(Values(target, engine_.target), 1);
      case 'q':
        return BestId(Values(part.draft_rows[place], engine_.draft), 0);
      case 'r':
      case 'R':
        return AnyId();
      case 'o':
      case 'O':
        return static_cast<int32_t>(engine_.vocab_size) + (letter == 'o' ? 0 : 7);
      case 'n':
        return -7;
      case '-':
        return -1;
      case 'd':
        return part.tokens.empty() ? 0 : part.tokens.back();
      default:
        throw std::runtime_error(fmt::format("{}: letter '{}' is unknown", plan_.name, letter));
    }
  }

  // Asks for the token, and notes the call in the step.
  void Draw(size_t place, Step* step, Part* part) {
    Call call;
    call.op = "sample_draft";
    call.sequence = part->sequence;
    call.row = part->draft_rows[place];
    if (has_draft_edits_ && place < part->masks.size()) call.mask = part->masks[place];
    call.prefix = part->tokens;
    player_.Play(0, call);
    step->calls.push_back(call);
    const Player::Child& child = player_.child();
    part->tokens.push_back(child.id == -1 ? AnyId() : child.id);
    part->weights.push_back(child.id == -1 ? "3f800000" : child.weight);
    part->masses.push_back(child.id == -1 ? "3ff0000000000000" : child.mass);
  }

  void ResolvePart(const PartPlan& plan, Step* step) {
    Part part;
    part.sequence = plan.sequence;
    if (plan.Has('D')) part.flags |= SPECD_DISCARD;
    if (plan.Has('L')) part.flags |= SPECD_DRAFTS_BY_SLOT;
    MakeRows(plan, &part);
    for (size_t i = 0; i < plan.letters.size(); ++i) {
      const char letter = plan.letters[i];
      if (letter == 's') {
        Draw(i, step, &part);
      } else {
        part.tokens.push_back(TokenOf(letter, i, part));
        part.weights.push_back("3f800000");
        part.masses.push_back("3ff0000000000000");
      }
      if (!part.draft_rows.empty()) part.kinds.push_back(IsSampled(letter) ? 1 : 0);
    }
    if (!plan.Has('S')) {
      part.weights.clear();
      part.masses.clear();
    }
    if (plan.Has('A')) {
      for (const std::string& row : part.target_rows) {
        part.target_argmax.push_back(row.starts_with('#') ? std::stoi(row.substr(1))
                                                          : BestId(Values(row, engine_.target), 0));
      }
      part.target_rows.clear();
    }
    step->parts.push_back(std::move(part));
  }

  Call ResolveCall(const std::string& text) {
    std::istringstream stream(text);
    Call call;
    std::string op;
    stream >> op;
    call.op = op == "sample" ? "sample_draft" : op;
    if (op == "fork") stream >> call.seed;
    if (op == "coins") call.coins = MakeCoins(&stream);
    if (op == "score") {
      size_t num_ids = 0;
      stream >> call.mode >> call.num_top >> num_ids;
      for (size_t i = 0; i < num_ids; ++i) {
        call.rows.push_back(NextRow());
        call.ids.push_back(AnyId());
      }
      call.chosen_ids = {AnyId(), AnyId()};
    }
    if (op == "sample") {
      size_t num_prefix = 0;
      stream >> call.sampling >> call.num_children >> num_prefix;
      for (size_t i = 0; i < num_prefix; ++i) call.prefix.push_back(AnyId());
      call.row = NextRow();
    }
    if (stream >> op) call.sequence = static_cast<uint32_t>(std::stoul(op.substr(1)));
    return call;
  }

  // Coins for every purpose at the first places of an output that is opened empty, the extremes
  // included.
  std::vector<std::string> MakeCoins(std::istringstream* stream) {
    constexpr uint64_t kUnit = uint64_t{1} << 53;
    uint64_t seed = 0;
    *stream >> seed;
    std::vector<std::string> coins;
    for (uint32_t i = 0; i < 10; ++i) {
      const auto value = [&](uint64_t salt) -> uint64_t {
        const uint64_t drawn = Hash(seed + salt, i) % kUnit;
        return i % 5 == 3 ? 0 : i % 5 == 4 ? kUnit - 1 : drawn;
      };
      coins.push_back(fmt::format("{} 0 0 {} {}", i, +SPECD_COIN_SAMPLE, value(1)));
      for (const int purpose : {SPECD_COIN_DRAFT, SPECD_COIN_ACCEPT, SPECD_COIN_RESIDUAL}) {
        coins.push_back(
            fmt::format("{} 0 {} {} {}", i, i + 1, purpose, value(static_cast<uint64_t>(purpose))));
      }
    }
    return coins;
  }

  const EngineSpec& engine_;
  const LifePlan& plan_;
  Player player_;
  uint64_t counter_ = 0;
  bool has_draft_edits_ = false;
};

}  // namespace

Life Resolve(const EngineSpec& engine, const LifePlan& plan) {
  return Resolver(engine, plan).Resolve();
}

}  // namespace specd::recorded
