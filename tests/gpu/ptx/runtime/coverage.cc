#include "tests/gpu/ptx/runtime/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace specd::ptx {

namespace {

// A call by address may reach any function whose address is a value, which nothing here tells: all
// functions of the module count for such a kernel.
void AddCallees(const Function& function, std::set<const Function*>* reached) {
  if (!reached->insert(&function).second) return;
  for (const Instruction& instruction : function.code) {
    if (instruction.flow != Flow::kCall) continue;
    if (instruction.callee != nullptr) {
      AddCallees(*instruction.callee, reached);
      continue;
    }
    for (const auto& [name, other] : function.module->functions) {
      if (!other->is_entry) AddCallees(*other, reached);
    }
  }
}

}  // namespace

std::vector<KernelCoverage> CoverageOf(const Module& module) {
  std::vector<KernelCoverage> kernels;
  for (const auto& [name, entry] : module.functions) {
    if (!entry->is_entry) continue;
    std::set<const Function*> reached;
    AddCallees(*entry, &reached);
    KernelCoverage& coverage = kernels.emplace_back();
    coverage.kernel = name;
    coverage.file = module.file;
    for (const Function* const function : reached) {
      // The return that ends a body is none of its lines.
      for (size_t i = 0; i + 1 < function->code.size(); ++i) {
        ++coverage.num_lines;
        if (function->code[i].num_runs == 0) coverage.lines_left.push_back(function->code[i].line);
      }
    }
    std::sort(coverage.lines_left.begin(), coverage.lines_left.end());
  }
  return kernels;
}

std::string TextOf(const KernelCoverage& coverage) {
  const size_t num_left = coverage.lines_left.size();
  std::string text = fmt::format("{} {}: {} of {} lines ran", coverage.file, coverage.kernel,
                                 coverage.num_lines - num_left, coverage.num_lines);
  if (num_left > 0) text += "; not:";
  for (size_t i = 0; i < num_left;) {
    size_t last = i;
    while (last + 1 < num_left && coverage.lines_left[last + 1] <= coverage.lines_left[last] + 1) {
      ++last;
    }
    text += last == i ? fmt::format(" {}", coverage.lines_left[i])
                      : fmt::format(" {}-{}", coverage.lines_left[i], coverage.lines_left[last]);
    i = last + 1;
  }
  return text + "\n";
}

}  // namespace specd::ptx
