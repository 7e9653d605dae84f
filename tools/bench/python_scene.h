// BatchEngine and PythonEngine are the two sides that `specd-bench python` measures between.
//
// Each has an engine with the same rows, drafts and openings of 256 sequences. BatchEngine calls
// the C interface. PythonEngine is a process with tools/bench/python_rounds.py, which calls the
// Python package. One thread uses both.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ipc/include/specd/specd.h"
#include "tools/bench/python_process.h"

namespace specd::bench {

inline constexpr uint32_t kPythonBatch = 256;
inline constexpr uint32_t kPythonDraft = 4;

// A round, openings or draws of all sequences: in one call, or the calls for single sequences.
enum class BatchWork { kRoundBatch, kRoundEach, kOpenBatch, kOpenEach, kDrawBatch, kDrawEach };

// The name of the work in python_rounds.py.
std::string_view NameOf(BatchWork work);

class BatchEngine {
 public:
  static absl::StatusOr<std::unique_ptr<BatchEngine>> Open(const std::string& uri,
                                                           uint32_t vocab_size);
  ~BatchEngine();
  BatchEngine(const BatchEngine&) = delete;
  BatchEngine& operator=(const BatchEngine&) = delete;

  // Does the work `count` times, and appends the time of each in us.
  absl::Status Run(BatchWork work, int count, std::vector<double>* times_us);

  // The checksum of the kept tokens of all rounds, and of all drawn tokens.
  uint32_t digest() const { return digest_; }

 private:
  BatchEngine() = default;
  absl::Status Start(const std::string& uri, uint32_t vocab_size);
  absl::Status BindRows(uint32_t vocab_size);
  absl::Status BindDraftRows(uint32_t vocab_size);
  absl::StatusOr<float*> BindRole(uint32_t role, uint32_t num_rows, uint32_t vocab_size);
  void MakeOpenings(uint32_t vocab_size);
  absl::Status OpenForRounds();
  absl::StatusOr<double> RoundBatch();
  absl::StatusOr<double> RoundEach();
  absl::StatusOr<double> OpenBatch();
  absl::StatusOr<double> OpenEach();
  absl::StatusOr<double> DrawBatch();
  absl::StatusOr<double> DrawEach();
  // One call of specd_sample_draft.
  absl::Status Draw(uint32_t first, uint32_t count);
  absl::Status CloseAll();
  void AddToDigest(const std::vector<int32_t>& ids);

  specd_engine* engine_ = nullptr;
  uint64_t num_rounds_ = 0;
  uint32_t digest_ = 0;
  std::vector<specd_sequence> sequences_;
  std::vector<int32_t> drafts_;
  std::vector<uint32_t> offsets_;
  std::vector<uint32_t> rows_;
  std::vector<int32_t> tokens_;  // kept tokens of a round
  std::vector<int32_t> drawn_;
  std::vector<specd_draft_request> requests_;
  std::vector<specd_draft_children> children_;
  std::vector<uint32_t> status_;
  std::vector<uint32_t> num_kept_;
  std::vector<int32_t> prompts_;
  std::vector<std::string> names_;
  std::vector<const char*> name_pointers_;
  std::vector<specd_params> params_;
  std::vector<specd_sequence_info> infos_;
};

class PythonEngine {
 public:
  // `interpreter` has numpy and finds the package specd.
  static absl::StatusOr<std::unique_ptr<PythonEngine>> Start(const std::string& interpreter,
                                                             const std::string& uri,
                                                             uint32_t vocab_size);
  // As BatchEngine.
  absl::Status Run(BatchWork work, int count, std::vector<double>* times_us);
  uint32_t digest() const { return digest_; }

 private:
  explicit PythonEngine(std::unique_ptr<PythonProcess> process) : process_(std::move(process)) {}

  const std::unique_ptr<PythonProcess> process_;
  uint32_t digest_ = 0;
};

}  // namespace specd::bench
