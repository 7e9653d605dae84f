#include "tools/specctl/daemon_doctor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tools/replay/doctor/examination_text.h"
#include "tools/replay/json_text.h"
#include "tools/replay/recordings.h"

namespace specd::ctl {
namespace {

using replay::Examination;

// Examines the sessions one after the other.
class Diagnosis {
 public:
  explicit Diagnosis(bool is_json) : is_json_(is_json), paint_(IsColourful(STDOUT_FILENO)) {}

  void Take(const SessionTraceReply& trace) {
    const absl::StatusOr<Examination> examination = ExaminationOf(trace.path);
    const std::string comma = json_.empty() ? "" : ",";
    // An engine that has not drafted yet is no error.
    const bool has_failed = !examination.ok() && !absl::IsOutOfRange(examination.status());
    const std::string why(examination.status().message());
    has_failed_ = has_failed_ || has_failed;
    if (!is_json_) fmt::print("{}{}\n", json_.empty() ? "" : "\n", TraceText(trace));
    if (!examination.ok()) {
      json_ += fmt::format("{}\n {{{}, \"error\": {}}}", comma, TraceMembers(trace),
                           replay::JsonString(why));
      if (has_failed) Fail(kExitDoctorError, why);
      if (!has_failed && !is_json_) fmt::print("{}\n", SafeText(why));
      return;
    }
    ++num_examined_;
    has_fault_ = has_fault_ || examination->has_fault();
    for (const std::string& warning : examination->warnings) Fail(0, "warning: " + warning);
    json_ += fmt::format("{}\n {{{}, \"doctor\": {}}}", comma, TraceMembers(trace),
                         replay::JsonOf(*examination));
    if (!is_json_) replay::PrintFindings(*examination, paint_);
  }

  int Finish() {
    if (is_json_) fmt::print("{{\"sessions\": [{}]}}\n", json_);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      return Fail(kExitDoctorError, "the output could not be written");
    }
    if (has_failed_) return kExitDoctorError;
    if (num_examined_ == 0) {
      return Fail(kExitDoctorError, json_.empty() ? "no engine is attached"
                                                  : "no session has judged drafts to examine");
    }
    return has_fault_ ? kExitFault : 0;
  }

 private:
  static absl::StatusOr<Examination> ExaminationOf(const std::string& path) {
    const absl::StatusOr<replay::PresentRecording> present = replay::PresentRecordingOf(path);
    if (!present.ok()) return present.status();
    return replay::Examine({.paths = present->files, .is_growing = present->is_growing},
                           MakeCpuBackend());
  }

  const bool is_json_;
  const Paint paint_;
  std::string json_;
  uint64_t num_examined_ = 0;
  bool has_failed_ = false;
  bool has_fault_ = false;
};

}  // namespace

int DiagnoseDaemon(const OperateOptions& options) {
  std::vector<SessionTraceReply> traces;
  const absl::Status status = AskForTraces(options.socket, &traces);
  if (!status.ok()) return Fail(kExitDoctorError, std::string(status.message()));
  Diagnosis diagnosis(options.json);
  for (const SessionTraceReply& trace : traces) diagnosis.Take(trace);
  return diagnosis.Finish();
}

}  // namespace specd::ctl
