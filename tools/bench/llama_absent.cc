// What stands in for llama_loop.cc where specd is built without llama.cpp.
#include "tools/bench/llama_loop.h"

namespace specd::bench {

bool IsLlamaBuiltIn() { return false; }

std::unique_ptr<Peer> MakeLlamaLoop(const RoundSet&) { return nullptr; }

}  // namespace specd::bench
