// PrintTreeTable draws a recorded tree with the walk through it, one line for each node.
//
// Use it with the nodes of ViewTree. One thread.
#pragma once

#include <vector>

#include "tools/replay/token_text.h"
#include "tools/replay/tree_view.h"
#include "tools/terminal/terminal.h"

namespace specd::replay {

void PrintTreeTable(const TraceTask& task, const std::vector<NodeView>& nodes,
                    const TokenText& text, Paint paint);

}  // namespace specd::replay
