#include "tools/replay/tree_table.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "tools/terminal/text_table.h"

namespace specd::replay {
namespace {

using Align = TextTable::Align;

std::string Number(std::optional<double> value) {
  return value ? fmt::format("{:.6f}", *value) : std::string("-");
}

Colour ColourOf(NodeFate fate) {
  switch (fate) {
    case NodeFate::kAccepted:
      return Colour::kGreen;
    case NodeFate::kRejected:
    case NodeFate::kOutside:
      return Colour::kRed;
    case NodeFate::kNotJudged:
      break;
  }
  return Colour::kDim;
}

}  // namespace

void PrintTreeTable(const TraceTask& task, const std::vector<NodeView>& nodes,
                    const TokenText& text, Paint paint) {
  const std::string_view bound = task.method == VerifyMethod::kTree        ? "t/d"
                                 : task.method == VerifyMethod::kTraversal ? "P"
                                                                           : "sum of p";
  TextTable table({{"node"},
                   {"tree", Align::kLeft},
                   {"p"},
                   {"q"},
                   {"d"},
                   {bound},
                   {"u"},
                   {"fate", Align::kLeft},
                   {"", Align::kLeft}},
                  paint);
  for (const NodeView& view : nodes) {
    const bool is_good = view.fate == NodeFate::kAccepted;
    const std::string token = text.Show(task.tokens[view.node]);
    table.Add({fmt::format("{}", view.node),
               {fmt::format("{}{}{}", view.branch, is_good ? "● " : "○ ", token),
                is_good ? Colour::kGreen : Colour::kNone},
               Number(view.p),
               Number(view.q),
               Number(view.d),
               Number(view.bound),
               Number(view.coin),
               {std::string(NameOf(view.fate)), ColourOf(view.fate)},
               {std::string(NameOf(view.kind)), Colour::kDim}});
  }
}

}  // namespace specd::replay
