#include "daemon/compile_log.h"

#include <string>
#include <string_view>

#include "daemon/base/logging.h"
#include "speculative/params/param_table.h"

namespace specd {
namespace {

// A compile that others may have waited for is worth a line; the rest is for who looks.
void LogCompile(const grammar::GrammarRequest& request, const grammar::CompileResult& result,
                int64_t us) {
  constexpr int64_t kLongUs = 100'000;
  const std::string_view kind =
      FindParam("grammar_kind")->choices[static_cast<size_t>(request.kind)];
  const auto level = us < kLongUs ? spdlog::level::debug : spdlog::level::info;
  const double ms = static_cast<double>(us) / 1000;
  if (result.ok()) {
    Log("grammar").log(level, "compiled {} of {} bytes in {:.1f} ms: {} KiB", kind,
                       request.text.size(), ms, (*result)->size_bytes() / 1024);
  } else {
    // Its text has names out of the request.
    LogOfPeer({"grammar", level, "refused constraints"},
              "refused {} of {} bytes after {:.1f} ms: {}", kind, request.text.size(), ms,
              Printable(std::string(result.status().message())));
  }
}

}  // namespace

grammar::OnCompile LogAndCountCompiles(DaemonMeters* meters) {
  return [meters](const grammar::GrammarRequest& request, const grammar::CompileResult& result,
                  int64_t us) {
    meters->CountCompile(!result.ok(), us * 1000);
    LogCompile(request, result, us);
  };
}

}  // namespace specd
