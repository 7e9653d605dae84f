// MakeLlamaLoop for a build without llama.cpp, in place of llama_loop.cc.
#include "tools/bench/peers.h"

namespace specd::bench {

bool IsLlamaBuiltIn() { return false; }

std::unique_ptr<Peer> MakeLlamaLoop(const RoundSet&) { return nullptr; }

}  // namespace specd::bench
