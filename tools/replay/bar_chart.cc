#include "tools/replay/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>

namespace specd::replay {
namespace {

constexpr int kBarHeight = 22;
constexpr int kTop = 48;
constexpr int kLeft = 170;
constexpr int kWidth = 420;
constexpr int kRight = 170;
constexpr int kBottom = 28;

// Text of SVG. Control characters are no characters of XML.
std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     Escaped(text));
}

}  // namespace

std::string BarChart(const std::string& title, const std::vector<Bar>& bars) {
  const int height = kTop + kBarHeight * static_cast<int>(bars.size()) + kBottom;
  const int width = kLeft + kWidth + kRight;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#808080\">\n",
      width, height);
  svg += fmt::format("<text x=\"{}\" y=\"20\" font-size=\"15\">{}</text>\n", 8, Escaped(title));
  for (int tick = 0; tick <= 4; ++tick) {
    const double x = kLeft + kWidth * tick / 4.0;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#80808055\"/>\n", x,
        kTop - 6, height - kBottom + 2);
    svg += Text(x, height - 10, "middle", fmt::format("{:.2f}", tick / 4.0));
  }
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    const double y = kTop + kBarHeight * static_cast<double>(i);
    const double middle = y + kBarHeight / 2.0 - 2;
    const double end = kLeft + kWidth * std::clamp(bar.share, 0.0, 1.0);
    svg += Text(kLeft - 8, middle + 4, "end", bar.label);
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"#3b82c4\"/>\n", kLeft, y,
        end - kLeft, kBarHeight - 6);
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#d9822b\" "
        "stroke-width=\"2\"/>\n",
        kLeft + kWidth * bar.interval.low, middle, kLeft + kWidth * bar.interval.high, middle);
    svg += Text(kLeft + kWidth + 10, middle + 4, "start", bar.note);
  }
  return svg + "</svg>\n";
}

}  // namespace specd::replay
