// specd-bench measures specd and prints each number beside its bound or its peer.

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "daemon/base/command_line.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_driver.h"
#include "tools/bench/command.h"
#include "tools/bench/gpu_case.h"
#include "tools/bench/gpu_suite.h"
#include "tools/bench/grammar_command.h"
#include "tools/bench/ipc_command.h"
#include "tools/bench/llama_loop.h"
#include "tools/bench/machine.h"
#include "tools/bench/opening_report.h"
#include "tools/bench/opening_suite.h"
#include "tools/bench/probes/cuda_probes.h"
#include "tools/bench/ptx_command.h"
#include "tools/bench/python_command.h"
#include "tools/bench/report.h"
#include "tools/bench/stall_command.h"
#include "tools/bench/terminal.h"
#include "tools/bench/trace_command.h"
#include "tools/bench/verify_case.h"
#include "tools/bench/verify_suite.h"

ABSL_FLAG(std::string, batch, "", "sequences of a round, separated by commas");
ABSL_FLAG(std::string, draft, "", "draft tokens of a sequence, separated by commas");
ABSL_FLAG(std::string, dtype, "fp32,bf16", "types of the rows, separated by commas");
ABSL_FLAG(int32_t, threads, 0, "threads of the backend and of the floor; 0: all usable CPUs");
ABSL_FLAG(std::string, state, "cold",
          "cold: rows come from memory; warm: the same rows again and again");
ABSL_FLAG(std::string, rows, "llm",
          "llm, spikes, flat, ascending, or a file of recorded fp32 logits of one --vocab");

namespace specd::bench {
namespace {

constexpr char kUsage[] =
    "measures specd, each number beside the bound it is compared with.\n\n"
    "  specd-bench verify    rounds of the CPU backend beside a read of the same rows\n"
    "  specd-bench gpu       rounds on the first device, cold and warm, beside a read of the same "
    "rows\n"
    "  specd-bench ptx       predicted times of the same rounds, from counts of their PTX\n"
    "  specd-bench opening   rounds of an engine while another opens sequences with long "
    "prompts\n"
    "  specd-bench stall     ten small engines beside one with a round of a minute, new masks or "
    "hostile openings\n"
    "  specd-bench grammar   compiling constraints, and their masks along texts\n"
    "  specd-bench trace     rounds of an engine with a trace beside rounds without\n"
    "  specd-bench ipc       rounds of an engine that is attached to a daemon beside embedded "
    "rounds\n"
    "  specd-bench python    rounds and openings of 256 sequences in one call, from Python and "
    "C\n\n"
    "Every case is checked before it is timed: verify's with a reference in double precision, "
    "gpu's "
    "with\nthe CPU backend, to the bit; grammar's along the texts. opening and stall check every "
    "round.\n\n"
    "Examples:\n"
    "  specd-bench verify --quick\n"
    "  specd-bench verify --quick --json > verify.jsonl\n"
    "  specd-bench verify --case=topk40,flat_topp95 --vocab=151936 --batch=8 --draft=3\n"
    "  specd-bench verify --quick --threads=1 --state=warm --batch=1\n"
    "  specd-bench verify --quick --base=textbook --threads=1 --batch=1\n"
    "  specd-bench verify --rows=logits.f32 --vocab=128256 --batch=1 --draft=0\n"
    "  specd-bench verify --list\n"
    "  specd-bench gpu --quick --json > gpu.jsonl\n"
    "  specd-bench ptx --counts=counts.jsonl --markdown\n"
    "  specd-bench opening --markdown\n"
    "  specd-bench stall --quick --markdown\n"
    "  specd-bench grammar --quick --base=xgrammar --python=build/xgrammar/bin/python\n"
    "  specd-bench trace --quick --markdown\n"
    "  specd-bench ipc --case=added_spin --vocab=32000\n"
    "  PYTHONPATH=ipc/python specd-bench python --quick\n\n"
    "Exit status: 0 measured, whatever the numbers are; 1 a wrong answer or an error; 2 bad flags; "
    "3 "
    "no\ndevice.";

constexpr int32_t kBatchMax = 4096;
constexpr int32_t kDraftMax = 64;
constexpr int32_t kThreadsMax = 1024;

// The parts that differ between `verify` and `gpu`.
struct Suite {
  std::string_view name;
  std::span<const VerifyCase> cases;
  const VerifyCase* (*find)(std::string_view name);
  std::vector<int32_t> quick_batches;
  std::vector<int32_t> batches;
  std::vector<int32_t> drafts;
};

Suite VerifySuiteOfCpu() {
  return {"verify", VerifyCases(), FindVerifyCase, {32}, {1, 8, 32, 64}, {0, 3, 5, 8}};
}
Suite GpuSuiteOfDevice() {
  return {"gpu", GpuCases(), FindGpuCase, {1, 64}, {1, 8, 32, 64, 256}, {1, 3, 5, 8}};
}

int ListCases(const Suite& suite) {
  for (const VerifyCase& known : suite.cases) {
    fmt::print("{:<17} {:<12} {}\n", known.name, MethodName(known.method), known.summary);
  }
  return 0;
}

absl::StatusOr<std::vector<const VerifyCase*>> ParseCases(const Suite& suite,
                                                          const std::string& text) {
  std::vector<const VerifyCase*> cases;
  if (text.empty()) {
    for (const VerifyCase& known : suite.cases) cases.push_back(&known);
    return cases;
  }
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    const VerifyCase* found = suite.find({name.data(), name.size()});
    if (found == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("case = {} is unknown: specd-bench {} --list names them",
                      std::string_view(name.data(), name.size()), suite.name));
    }
    cases.push_back(found);
  }
  return cases;
}

absl::StatusOr<std::vector<DType>> ParseDTypes(const std::string& text) {
  std::vector<DType> dtypes;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    if (name == "fp32") {
      dtypes.push_back(DType::kFloat32);
    } else if (name == "bf16") {
      dtypes.push_back(DType::kBFloat16);
    } else {
      return absl::InvalidArgumentError(
          fmt::format("dtype = {} is not a list of fp32 and bf16", text));
    }
  }
  return dtypes;
}

absl::StatusOr<Baseline> ParseBaseline(std::string_view text) {
  if (text.empty()) return Baseline::kRead;
  for (const Baseline known : {Baseline::kRead, Baseline::kTextbook, Baseline::kLlama}) {
    if (text != BaselineName(known)) continue;
    if (known == Baseline::kLlama && !IsLlamaBuiltIn()) {
      return absl::InvalidArgumentError(
          "base = llama needs llama.cpp, which this specd-bench was built without: configure with "
          "-DSPECD_LLAMA=PREFIX of an installed llama.cpp, or give --base=textbook");
    }
    return known;
  }
  return absl::InvalidArgumentError(
      fmt::format("base = {} is none of read, textbook and llama", text));
}

absl::StatusOr<double> SecondsFromFlags(double by_default) {
  const double seconds = absl::GetFlag(FLAGS_seconds);
  if (!(seconds >= 0 && seconds <= 3600)) {
    return absl::InvalidArgumentError(fmt::format("seconds = {} is outside 0 .. 3600", seconds));
  }
  return seconds == 0 ? by_default : seconds;
}

absl::StatusOr<VerifyOptions> OptionsFromFlags(const Suite& suite, const Machine& machine) {
  const bool quick = absl::GetFlag(FLAGS_quick);
  VerifyOptions options;
  const auto take = [](auto parsed, auto* out) {
    if (parsed.ok()) *out = *std::move(parsed);
    return parsed.status();
  };
  absl::Status status = take(ParseCases(suite, absl::GetFlag(FLAGS_case)), &options.cases);
  if (status.ok()) status = take(ParseDTypes(absl::GetFlag(FLAGS_dtype)), &options.dtypes);
  const NumberList vocab{"vocab",  absl::GetFlag(FLAGS_vocab),     1, kVocabSizeMax,
                         {128256}, {32000, 128256, 151936, 262144}};
  const NumberList batch{"batch",   absl::GetFlag(FLAGS_batch), 1,
                         kBatchMax, suite.quick_batches,        suite.batches};
  const NumberList draft{"draft", absl::GetFlag(FLAGS_draft), 0, kDraftMax, {5}, suite.drafts};
  if (status.ok()) status = take(ParseNumbers(vocab, quick), &options.vocab_sizes);
  if (status.ok()) status = take(ParseNumbers(batch, quick), &options.batches);
  if (status.ok()) status = take(ParseNumbers(draft, quick), &options.drafts);
  if (!status.ok()) return status;

  options.threads = absl::GetFlag(FLAGS_threads);
  if (options.threads < 0 || options.threads > kThreadsMax) {
    return absl::InvalidArgumentError(
        fmt::format("threads = {} is outside 0 .. {}", options.threads, kThreadsMax));
  }
  if (options.threads == 0) options.threads = machine.usable_cpus;
  const std::string state = absl::GetFlag(FLAGS_state);
  if (state != "cold" && state != "warm") {
    return absl::InvalidArgumentError(fmt::format("state = {} is neither cold nor warm", state));
  }
  options.cold = state == "cold";
  status = take(ParseBaseline(absl::GetFlag(FLAGS_base)), &options.baseline);
  if (!status.ok()) return status;
  options.rows_path = absl::GetFlag(FLAGS_rows);
  options.shape = ParseRowShape(options.rows_path);
  status = take(SecondsFromFlags(quick ? 1 : 0.5), &options.seconds);
  if (!status.ok()) return status;
  return options;
}

// Options for the second half of --quick: one thread, with rows that a cache holds.
VerifyOptions PeerOptions(VerifyOptions options) {
  options.baseline = Baseline::kTextbook;
  options.dtypes = {DType::kFloat32};
  options.batches = {1};
  options.threads = 1;
  options.cold = false;
  return options;
}

int RunVerify(const std::string& command) {
  const Suite suite = VerifySuiteOfCpu();
  if (absl::GetFlag(FLAGS_list)) return ListCases(suite);
  const Machine machine = ReadMachine();
  const absl::StatusOr<VerifyOptions> options = OptionsFromFlags(suite, machine);
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report_options = ReportOptionsFromFlags();
  if (!report_options.ok()) return Fail(kExitUsage, std::string(report_options.status().message()));

  const Progress progress;
  LoadWarning warning;
  Report report(*report_options, machine);
  const VerifySuite::Hooks hooks{.make_backend = [] { return MakeBackend("cpu"); },
                                 .on_progress = [&](std::string_view text) { progress.Show(text); },
                                 .on_result =
                                     [&](const Measurement& measurement) {
                                       progress.Clear();
                                       warning.Take(measurement);
                                       report.Print(measurement);
                                     }};
  report.PrintHead(command, Describe(machine, options->threads));
  absl::Status status = VerifySuite(*options, machine, hooks).Run();
  if (status.ok() && absl::GetFlag(FLAGS_quick) && absl::GetFlag(FLAGS_base).empty()) {
    status = VerifySuite(PeerOptions(*options), machine, hooks).Run();
  }
  progress.Clear();
  if (!status.ok()) return Fail(kExitError, std::string(status.message()));
  report.PrintEnd();
  return 0;
}

int RunGpu(const std::string& command) {
  const Suite suite = GpuSuiteOfDevice();
  if (absl::GetFlag(FLAGS_list)) return ListCases(suite);
  if (!absl::GetFlag(FLAGS_base).empty() || absl::GetFlag(FLAGS_state) != "cold") {
    return Fail(kExitUsage,
                "base and state are flags of verify: gpu measures both states, beside a read");
  }
  const absl::StatusOr<VerifyOptions> options = OptionsFromFlags(suite, ReadMachine());
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  const absl::StatusOr<ReportOptions> report_options = ReportOptionsFromFlags();
  if (!report_options.ok()) return Fail(kExitUsage, std::string(report_options.status().message()));

  const absl::StatusOr<OpenGpu> gpu = OpenFirstGpu(MakeCudaDriver(), MakeCudaProbes);
  if (!gpu.ok()) return Fail(kExitNoDevice, std::string(gpu.status().message()));
  const Machine machine{.processor = gpu->device.name};
  const Progress progress;
  Report report(*report_options, machine);
  report.PrintHead(command, fmt::format("{}; L2 {:.0f} MiB", gpu->device.name,
                                        static_cast<double>(gpu->device.l2_bytes) / 1048576));
  const absl::Status status =
      GpuSuite(*options, *gpu,
               {.make_backend = [] { return MakeBackend("cuda"); },
                .on_progress = [&](std::string_view text) { progress.Show(text); },
                .on_result =
                    [&](const Measurement& measurement) {
                      progress.Clear();
                      report.Print(measurement);
                    }})
          .Run();
  progress.Clear();
  if (!status.ok()) return Fail(kExitError, std::string(status.message()));
  report.PrintEnd();
  return 0;
}

int RunOpening(const std::string& command) {
  constexpr std::string_view kTaken[] = {"quick", "json", "markdown", "seconds", "list"};
  if (absl::Status status = CheckFlags("opening", kTaken); !status.ok()) {
    return Fail(kExitUsage, std::string(status.message()));
  }
  if (absl::GetFlag(FLAGS_list)) {
    for (const OpeningCase& known : OpeningCases()) {
      fmt::print("{:<17} {}\n", known.name, known.summary);
    }
    return 0;
  }
  const absl::StatusOr<double> seconds = SecondsFromFlags(absl::GetFlag(FLAGS_quick) ? 2 : 10);
  if (!seconds.ok()) return Fail(kExitUsage, std::string(seconds.status().message()));
  const absl::StatusOr<ReportOptions> report_options = ReportOptionsFromFlags();
  if (!report_options.ok()) return Fail(kExitUsage, std::string(report_options.status().message()));

  const Machine machine = ReadMachine();
  const Progress progress;
  const auto measured =
      OpeningSuite(*seconds, [&](std::string_view text) { progress.Show(text); }).Run();
  progress.Clear();
  if (!measured.ok()) return Fail(kExitError, std::string(measured.status().message()));
  Report(*report_options, machine).PrintHead(command, Describe(machine, machine.usable_cpus));
  PrintOpenings(*measured, *report_options, machine);
  return 0;
}

// The command as it was given, under the program's installed name.
std::string CommandLine(int argc, char** argv) {
  std::string command = "specd-bench";
  for (int i = 1; i < argc; ++i) command += fmt::format(" {}", argv[i]);
  return command;
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage(kUsage);
  absl::FlagsUsageConfig usage;
  usage.contains_help_flags = [](absl::string_view file) {
    return file.find("tools/bench/") != absl::string_view::npos;
  };
  absl::SetFlagsUsageConfig(usage);
  const std::string command = CommandLine(argc, argv);
  const std::vector<char*> arguments = ParseFlags(argc, argv);
  if (arguments.size() != 2) {
    return Fail(kExitUsage, "give one suite, such as specd-bench verify --quick; see --help");
  }
  const std::string_view suite = arguments[1];
  if (suite == "verify") return RunVerify(command);
  if (suite == "gpu") return RunGpu(command);
  if (suite == "opening") return RunOpening(command);
  if (suite == "grammar") return RunGrammar(command);
  if (suite == "stall") return RunStall(command);
  if (suite == "trace") return RunTrace(command);
  if (suite == "ipc") return RunIpc(command);
  if (suite == "ptx") return RunPtx(command);
  if (suite == "python") return RunPython(command);
  for (const std::string_view later : {"detok", "egress"}) {
    if (suite == later) {
      return Fail(
          kExitUsage,
          fmt::format(
              "suite = {} is not built yet; verify, gpu, opening, stall, grammar, trace, ipc and "
              "python are",
              suite));
    }
  }
  return Fail(kExitUsage, fmt::format("suite = {} is unknown; there are verify, gpu, opening, "
                                      "stall, grammar, trace, ipc and python",
                                      suite));
}

}  // namespace
}  // namespace specd::bench

int main(int argc, char** argv) { return specd::bench::Main(argc, argv); }
