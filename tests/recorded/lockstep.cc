#include "tests/recorded/lockstep.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/recorded/player.h"

namespace specd::recorded {
namespace {

void PlayStep(size_t step, Player* player, std::vector<Life>* lives) {
  std::vector<LivePart> parts;
  std::vector<Answer*> answers;
  for (uint32_t life = 0; life < lives->size(); ++life) {
    std::vector<Step>& steps = (*lives)[life].steps;
    if (step >= steps.size()) continue;
    for (Call& call : steps[step].calls) call.answer = player->Play(life, call);
    for (Part& part : steps[step].parts) {
      parts.push_back({.life = life, .part = &part});
      answers.push_back(&part.answer);
    }
  }
  if (parts.empty()) return;
  std::vector<Answer> found = player->Submit(parts);
  for (size_t i = 0; i < found.size(); ++i) *answers[i] = std::move(found[i]);
}

// Adds a text for each field that differs.
void Compare(const std::string& place, const Answer& expected, const Answer& found,
             std::vector<std::string>* differences) {
  const std::map<std::string, std::string> expected_fields(expected.begin(), expected.end());
  const std::map<std::string, std::string> found_fields(found.begin(), found.end());
  std::set<std::string> names;
  for (const auto& [name, text] : expected) names.insert(name);
  for (const auto& [name, text] : found) names.insert(name);
  const auto text = [](const auto& fields, const std::string& name) {
    const auto field = fields.find(name);
    return field == fields.end() ? std::string("its usual value") : field->second;
  };
  for (const std::string& name : names) {
    const std::string expected_text = text(expected_fields, name);
    const std::string found_text = text(found_fields, name);
    if (expected_text == found_text) continue;
    differences->push_back(
        fmt::format("{}, {}: expected {}, found {}", place, name, expected_text, found_text));
  }
}

}  // namespace

std::vector<Life> PlayTogether(const EngineSpec& engine, std::vector<Life> lives,
                               uint32_t threads) {
  Player player(engine, {.num_lives = static_cast<uint32_t>(lives.size()), .threads = threads});
  size_t num_steps = 0;
  for (uint32_t life = 0; life < lives.size(); ++life) {
    lives[life].opened = player.Open(life, lives[life].params);
    lives[life].stats.clear();
    num_steps = std::max(num_steps, lives[life].steps.size());
  }
  for (size_t step = 0; step < num_steps; ++step) PlayStep(step, &player, &lives);
  if (!lives.empty()) lives[0].stats = player.Stats();
  return lives;
}

std::vector<Life> PlayAlone(const EngineSpec& engine, std::vector<Life> lives) {
  std::vector<Life> played;
  for (Life& life : lives) {
    played.push_back(PlayTogether(engine, {std::move(life)}, /*threads=*/1)[0]);
  }
  return played;
}

std::vector<std::string> Differences(const std::vector<Life>& expected,
                                     const std::vector<Life>& found, bool with_stats) {
  std::vector<std::string> differences;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Life& life = expected[i];
    Compare(fmt::format("{}, opening", life.name), life.opened, found[i].opened, &differences);
    for (size_t k = 0; k < life.steps.size(); ++k) {
      const Step& step = life.steps[k];
      for (size_t c = 0; c < step.calls.size(); ++c) {
        Compare(fmt::format("{}, round {}, call {} ({}), sequence {}", life.name, k, c,
                            step.calls[c].op, step.calls[c].sequence),
                step.calls[c].answer, found[i].steps[k].calls[c].answer, &differences);
      }
      for (size_t p = 0; p < step.parts.size(); ++p) {
        Compare(fmt::format("{}, round {}, sequence {}", life.name, k, step.parts[p].sequence),
                step.parts[p].answer, found[i].steps[k].parts[p].answer, &differences);
      }
    }
    if (with_stats) {
      Compare(fmt::format("{}, stats", life.name), life.stats, found[i].stats, &differences);
    }
  }
  return differences;
}

}  // namespace specd::recorded
