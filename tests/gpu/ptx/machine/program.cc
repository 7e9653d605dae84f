#include "tests/gpu/ptx/machine/program.h"

namespace specd::ptx {

const Function* Module::FindEntry(const std::string& name) const {
  const auto found = functions.find(name);
  return found == functions.end() || !found->second->is_entry ? nullptr : found->second.get();
}

const Function* Module::FindFunction(uint64_t address) const {
  for (const auto& [name, function] : functions) {
    if (reinterpret_cast<uint64_t>(function.get()) == address) return function.get();
  }
  return nullptr;
}

}  // namespace specd::ptx
