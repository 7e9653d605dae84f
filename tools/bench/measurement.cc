#include "tools/bench/measurement.h"

#include <fmt/format.h>

#include "kernels/core/check.h"

namespace specd::bench {

void SetTimes(const Times& case_us, const Times& base_us, Measurement* measurement) {
  SPECD_CHECK(case_us.size() == base_us.size());
  const auto ratio_of = [&](double case_time_us, double base_time_us) {
    return measurement->IsSpeedUp() ? base_time_us / case_time_us : case_time_us / base_time_us;
  };
  Times ratios;
  for (size_t i = 0; i < case_us.size(); ++i) ratios.push_back(ratio_of(case_us[i], base_us[i]));
  measurement->time_us = Summarise(case_us);
  measurement->base_us = Summarise(base_us);
  measurement->ratio = ratio_of(measurement->time_us.median, measurement->base_us.median);
  const Summary spread = Summarise(std::move(ratios));
  measurement->ratio_p10 = spread.p10;
  measurement->ratio_p90 = spread.p90;
}

Line LineOf(const Measurement& m) {
  const double num_rows = static_cast<double>(m.batch) * (m.draft + 1);
  Line line;
  line.Name("case", m.case_name, 16)
      .Name("method", m.method, 11)
      .Name("dtype", DTypeName(m.dtype), 5)
      .Count("vocab", m.vocab_size, 6)
      .Count("batch", m.batch, 5)
      .Count("draft", m.draft, 5)
      .CellIf(m.rows_read > 0, "read/given", 10,
              fmt::format("{:.1f}/{}", m.rows_read, m.rows_given))
      .Cell("median us", 9, "{:.1f}", m.time_us.median)
      .Cell("p99 us", 9, "{:.1f}", m.time_us.p99)
      .Cell("us/row", 7, "{:.2f}", m.time_us.median / num_rows)
      .Cell("base us", 9, "{:.1f}", m.base_us.median)
      .CellIf(!m.IsSpeedUp() && m.ratio_of != kChainOfTree, "GB/s", 5,
              fmt::format("{:.1f}", m.base_gigabytes_per_s))
      .Number("ratio", 6, 2, m.ratio)
      .Cell("p10..p90", 16, "{:.2f}..{:.2f}", m.ratio_p10, m.ratio_p90)
      .Target(m.goal())
      .Count("checked", m.num_checked, 7)
      .Json("state", m.cold ? "cold" : "warm")
      .Json("rows", m.rows)
      .Json("unit", "us")
      .Times("", m.time_us)
      .Times("base_", m.base_us)
      .Json("ratio_p10", m.ratio_p10)
      .Json("ratio_p90", m.ratio_p90)
      .Json("ratio_of", m.ratio_of);
  if (m.rows_read > 0) line.Json("rows_read", m.rows_read).Json("rows_given", m.rows_given);
  if (!m.IsSpeedUp() && m.ratio_of != kChainOfTree)
    line.Json("base_gb_per_s", m.base_gigabytes_per_s);
  if (!m.IsOnDevice()) return line.Json("threads", m.threads).Load(m.load);
  // Cold and warm take turns on a device, and a whole round has a time of its own.
  const Summary& whole = m.whole_us;
  const bool has_whole = whole.num_samples > 0;
  if (has_whole) line.Times("whole_", whole);
  return line.Cell("state", 5, "{}", m.cold ? "cold" : "warm")
      .CellIf(has_whole, "whole us", 9, fmt::format("{:.1f}", whole.median))
      .CellIf(has_whole, "whole p10..p90", 16, fmt::format("{:.1f}..{:.1f}", whole.p10, whole.p90));
}

namespace {

// What the ratio is of, and where.
std::string CaptionOf(const Measurement& m) {
  const std::string_view base =
      m.ratio_of == kChainOfTree
          ? "ratio = time of specd / time of `token` over chains of the rows that the tree reads"
      : m.IsSpeedUp() ? "ratio = time of llama.cpp's sample-and-accept loop / time of specd"
                      : "ratio = time of specd / time of a read of the same rows";
  if (m.IsOnDevice()) {
    return fmt::format("{}, on the device; whole = wall time of a round of the backend", base);
  }
  return fmt::format("{}; {} rows, {} thread{}", base, m.cold ? "cold" : "warm", m.threads,
                     m.threads == 1 ? "" : "s");
}

}  // namespace

void Print(const Measurement& m, Output* out) {
  out->Caption(CaptionOf(m));
  out->Print(LineOf(m));
}

std::string_view DTypeName(DType dtype) {
  return dtype == DType::kFloat32 ? "fp32" : dtype == DType::kBFloat16 ? "bf16" : "fp16";
}

}  // namespace specd::bench
