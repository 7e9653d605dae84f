// ModelProfiles holds the models that a daemon serves, by name, with the compilers of each.
//
// The daemon fills it at start from its flags; afterwards it never changes. The flags of one model
// make the profile without a name, which an engine gets that names none. An engine names another
// in its hello. Safe from any thread once it is filled.
//
//   ModelProfiles models;
//   absl::Status status = models.Add("qwen3", options);
//   absl::StatusOr<ServedModel*> model = models.Find("qwen3");
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/session/grammar_compilers.h"
#include "daemon/session/model_profile.h"
#include "speculative/grammar/base/budget.h"

namespace specd {

struct ServedModel {
  ServedModel(ModelProfile loaded, const grammar::BudgetLimits& compile_limits,
              grammar::OnCompile on_compile = nullptr)
      : profile(std::move(loaded)), grammars(&profile, compile_limits, std::move(on_compile)) {}

  const ModelProfile profile;
  GrammarCompilers grammars;
};

class ModelProfiles {
 public:
  static constexpr size_t kNameBytesMax = 64;
  static constexpr size_t kProfilesMax = 64;

  // The limits are those of each compile of a constraint.
  explicit ModelProfiles(const grammar::BudgetLimits& compile_limits = grammar::CompileLimits(),
                         grammar::OnCompile on_compile = nullptr)
      : compile_limits_(compile_limits), on_compile_(std::move(on_compile)) {}

  // An empty name: the model of engines that name none. A name is of letters, digits and ._-/:
  absl::Status Add(const std::string& name, const ModelProfileOptions& options);

  // The error names the profiles that there are. The model lives as long as this object.
  absl::StatusOr<ServedModel*> Find(std::string_view name) const;

  // By name.
  const auto& models() const { return models_; }

 private:
  const grammar::BudgetLimits compile_limits_;
  const grammar::OnCompile on_compile_;
  std::map<std::string, std::unique_ptr<ServedModel>, std::less<>> models_;
};

}  // namespace specd
