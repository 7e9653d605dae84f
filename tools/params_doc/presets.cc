#include "tools/params_doc/presets.h"

namespace specd {
namespace {

constexpr Preset kPresets[] = {
    {"code, one answer",
     [] {
       SequenceParams params;
       params.temperature = 0.2;
       params.top_p = 0.95;
       return params;
     },
     "what the Codex paper (arXiv 2107.03374) found best for one try; code repeats its names and "
     "brackets rightly, so every penalty stays off"},
    {"code, many tries",
     [] {
       SequenceParams params;
       params.n = 10;
       params.temperature = 0.8;
       params.top_p = 0.95;
       return params;
     },
     "the same paper's choice for 100 tries of which one has to pass a test: variety costs nothing "
     "where a test picks"},
    {"code, repeatable edits",
     [] {
       SequenceParams params;
       params.temperature = 0;
       return params;
     },
     "the argmax: the same rows give the same text without a seed"},
    {"writing",
     [] {
       SequenceParams params;
       params.temperature = 1.2;
       params.min_p = 0.05;
       params.presence_penalty = 0.3;
       return params;
     },
     "min_p (arXiv 2407.01082) cuts the tail relative to the best id, so a temperature above 1 "
     "widens the choice where the model hesitates and not where it is sure; a small "
     "presence_penalty asks for new words"},
    {"chat",
     [] {
       SequenceParams params;
       params.temperature = 0.7;
       params.top_p = 0.9;
       return params;
     },
     "a nucleus of 0.9 (arXiv 1904.09751) cuts the unreliable tail and 0.7 keeps to the subject; "
     "penalties would punish the names and figures that an answer has to repeat"},
    {"chat with a thinking model",
     [] {
       SequenceParams params;
       params.temperature = 0.6;
       params.top_p = 0.95;
       params.top_k = 20;
       return params;
     },
     "what Qwen3's model card asks for; greedy makes such models repeat their thoughts; add "
     "thinking_budget to bound them"},
};

}  // namespace

std::span<const Preset> Presets() { return kPresets; }

}  // namespace specd
