// What llama_loop.h declares, for a build without llama.cpp, in place of llama_loop.cc.
#include "tools/bench/llama_loop.h"

namespace specd::bench {

bool HasLlama() { return false; }
std::unique_ptr<LlamaLoop> MakeLlamaLoop(const RoundSet&) { return nullptr; }

}  // namespace specd::bench
